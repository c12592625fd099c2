#include "networks/onnx_graph.hpp"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/errors.hpp"
#include "core/graph.hpp"
#include "networks/onnx_decode.hpp"

namespace parsim::networks::onnx_reader {

namespace {

/// Explains why a file could not be parsed, from the lengths of its outermost fields.
std::string broken(const std::string& bytes) {
  std::size_t at = 0;
  const auto varint = [&]() -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      value |= std::uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
    return std::nullopt;
  };
  while (at < bytes.size()) {
    const std::size_t begin = at;
    const auto tag = varint();
    // ModelProto's fields: 1 to 8, 14, 20, 25; numbers are stored as wire type 0, the rest as 2.
    const std::uint64_t field = tag ? *tag >> 3 : 0, wire = tag ? *tag & 7 : 0;
    if (field == 0 || field > 25 || (wire != 0 && wire != 2)) {
      return begin == 0 ? "is not an ONNX file" : fmt::format("is broken at byte {}", begin);
    }
    const auto value = varint();
    if (!value) return "is truncated";
    if (wire == 2) {
      if (*value > bytes.size() - at) {
        return fmt::format("is truncated: field {} needs {} bytes, {} are left", field, *value,
                           bytes.size() - at);
      }
      at += static_cast<std::size_t>(*value);
    }
  }
  return "is broken or nested too deeply";
}

onnx::ModelProto parse(const std::string& path) {
  const std::string accepted = "accepted: an ONNX model (with or without its weights)";
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (!std::filesystem::exists(path)) throw InputError(path, "no such file", accepted);
  if (std::filesystem::is_directory(path)) {
    throw InputError(
        path, "a folder without a config.json",
        "accepted: the folder of a model, or an ONNX model (with or without its weights)");
  }
  if (error || !file) throw InputError(path, "cannot be read as a file", accepted);
  if (size == 0) throw InputError(path, "is empty", accepted);
  if (size >= (std::uintmax_t{1} << 31)) {
    throw InputError(path, "is larger than 2 GiB",
                     "accepted: up to 2 GiB; save the weights as external data");
  }
  onnx::ModelProto model;
  if (!model.ParseFromIstream(&file)) {
    constexpr std::size_t enough = std::size_t{1} << 31;
    std::ifstream again(path, std::ios::binary);
    std::string bytes(std::min<std::size_t>(static_cast<std::size_t>(size), enough), '\0');
    again.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    throw InputError(path, broken(bytes), accepted);
  }
  if (!model.has_graph()) throw InputError(path, "has no graph", accepted);
  if (model.graph().node().empty()) throw InputError(path, "has a graph without nodes", accepted);
  return model;
}

std::int64_t opset_of(const onnx::ModelProto& model) {
  for (const auto& set : model.opset_import()) {
    if (set.domain().empty() || set.domain() == "ai.onnx") return set.version();
  }
  return Graph{}.opset;
}

/// Binds one dimension of a graph input.
std::int64_t bind(const onnx::TensorShapeProto::Dimension& dim, const std::string& where, int axis,
                  const std::map<std::string, std::int64_t>& dims) {
  std::int64_t extent = 0;
  if (dim.has_dim_value()) {
    extent = dim.dim_value();
  } else if (dim.dim_param().empty()) {
    throw InputError(where, fmt::format("axis {} has neither a size nor a name", axis),
                     "accepted: a named axis, bound with --dim NAME=N");
  } else {
    const auto bound = dims.find(dim.dim_param());
    if (bound == dims.end()) {
      throw InputError(where, fmt::format("dimension '{}' is not bound", dim.dim_param()),
                       fmt::format("accepted: --dim {}=N", dim.dim_param()));
    }
    extent = bound->second;
  }
  if (extent < 1) {
    throw InputError(where, fmt::format("axis {} has size {}", axis, extent),
                     "accepted: 1 or more");
  }
  return extent;
}

/// Of a symbolic batch. The network is that of one sample, so any number does, best one that is no
/// extent of the network: where it turns up is where the batch is.
constexpr std::int64_t any_batch = 61;

/// The values given, and one for the first dimension of the first input.
std::map<std::string, std::int64_t> with_batch(std::map<std::string, std::int64_t> dims,
                                               const Graph& graph, const onnx::GraphProto& proto) {
  for (const auto& input : proto.input()) {
    if (graph.initializers.contains(input.name())) continue;
    const auto& shape = input.type().tensor_type().shape();
    if (shape.dim_size() > 0 && !shape.dim(0).dim_param().empty()) {
      dims.try_emplace(shape.dim(0).dim_param(), any_batch);
    }
    break;
  }
  return dims;
}

void read_inputs(Graph& graph, const onnx::GraphProto& proto,
                 const std::map<std::string, std::int64_t>& given) {
  const std::map<std::string, std::int64_t> dims = with_batch(given, graph, proto);
  std::set<std::string> symbols;
  for (const auto& input : proto.input()) {
    if (graph.initializers.contains(input.name())) continue;
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      if (!dim.dim_param().empty()) symbols.insert(dim.dim_param());
    }
  }
  const std::vector<std::string> known(symbols.begin(), symbols.end());
  for (const auto& [name, value] : given) {
    if (symbols.contains(name)) continue;
    throw InputError(fmt::format("--dim {}={}", name, value),
                     fmt::format("{} has no dimension '{}'", graph.file, name),
                     known.empty()
                         ? "accepted: nothing, all its dimensions are fixed"
                         : fmt::format("accepted: {}{}", join(known), did_you_mean(name, known)));
  }
  for (const auto& input : proto.input()) {
    if (graph.initializers.contains(input.name())) continue;
    const std::string where = fmt::format("{}: input '{}'", graph.file, input.name());
    if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape()) {
      throw InputError(where, "it has no shape", "accepted: a tensor with a shape");
    }
    const auto& type = input.type().tensor_type();
    GraphInput out{input.name(), element_of(type.elem_type(), where), {}, {}};
    if (type.shape().dim_size() > static_cast<int>(most_axes)) {
      throw InputError(where, fmt::format("{} axes", type.shape().dim_size()),
                       fmt::format("accepted: at most {}", most_axes));
    }
    for (int i = 0; i < type.shape().dim_size(); ++i) {
      out.dims.push_back(bind(type.shape().dim(i), where, i, dims));
    }
    if (!elements(out.dims)) {
      throw InputError(where, fmt::format("shape {}", to_text(out.dims)),
                       "accepted: at most 2^40 elements");
    }
    if (!out.dims.empty()) out.batch_symbol = type.shape().dim(0).dim_param();
    graph.inputs.push_back(std::move(out));
  }
  if (graph.inputs.empty() || graph.inputs[0].dims.empty()) {
    throw InputError(graph.file, "has no input with a batch dimension", "accepted: at least one");
  }
}

std::vector<Node> read_nodes(const Graph& graph, const onnx::GraphProto& proto) {
  std::vector<Node> nodes;
  nodes.reserve(static_cast<std::size_t>(proto.node_size()));
  for (const auto& from : proto.node()) {
    Node node;
    const bool own = from.domain().empty() || from.domain() == "ai.onnx";
    node.op = own ? from.op_type() : fmt::format("{}::{}", from.domain(), from.op_type());
    node.name = from.name().empty() ? fmt::format("{}_{}", node.op, nodes.size()) : from.name();
    node.inputs.assign(from.input().begin(), from.input().end());
    node.outputs.assign(from.output().begin(), from.output().end());
    for (const auto& attribute : from.attribute()) {
      if (auto value = to_value(attribute, fmt::format("{}: attribute '{}'", location(graph, node),
                                                       attribute.name()))) {
        node.attributes.push_back({attribute.name(), std::move(*value)});
      }
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

/// Puts every node after the nodes it reads; a file that is in order keeps its order.
std::vector<Node> in_order(const Graph& graph, std::vector<Node> nodes) {
  std::unordered_map<std::string, std::size_t> maker;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i].outputs) {
      if (output.empty()) continue;
      const auto [twin, fresh] = maker.emplace(output, i);
      if (!fresh) {
        throw InputError(location(graph, nodes[i]),
                         fmt::format("its output '{}' is also that of node '{}'", output,
                                     nodes[twin->second].name),
                         "accepted: one node per tensor");
      }
    }
  }
  std::set<std::string> sources;
  for (const GraphInput& input : graph.inputs) sources.insert(input.name);
  for (const auto& [name, tensor] : graph.initializers) sources.insert(name);
  std::vector<std::vector<std::size_t>> read(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& input : nodes[i].inputs) {
      if (const auto found = maker.find(input); found != maker.end()) {
        read[i].push_back(found->second);
      } else if (!input.empty() && !sources.contains(input)) {
        throw InputError(
            location(graph, nodes[i]), fmt::format("no node produces its input '{}'", input),
            "accepted: an input of the graph, an initializer or another node's output");
      }
    }
  }
  const TopologicalOrder sorted = topological_order(read);
  if (sorted.on_cycle) {
    throw InputError(location(graph, nodes[*sorted.on_cycle]), "it depends on its own output",
                     "accepted: an acyclic graph");
  }
  std::vector<Node> ordered;
  ordered.reserve(nodes.size());
  for (const std::size_t i : sorted.order) ordered.push_back(std::move(nodes[i]));
  return ordered;
}

}  // namespace

std::string location(const Graph& graph, const Node& node) {
  return fmt::format("{}: node '{}'", graph.file, node.name);
}

Graph load_graph(const std::string& path, const std::map<std::string, std::int64_t>& dims) {
  const onnx::ModelProto model = parse(path);
  const onnx::GraphProto& proto = model.graph();
  Graph graph;
  graph.file = path;
  graph.opset = opset_of(model);
  for (const auto& initializer : proto.initializer()) {
    const std::string where = fmt::format("{}: initializer '{}'", path, initializer.name());
    if (!graph.initializers.emplace(initializer.name(), to_tensor(initializer, where)).second) {
      throw InputError(where, "its name occurs twice", "accepted: unique names");
    }
  }
  if (proto.sparse_initializer_size() > 0) {
    throw InputError(path, "has sparse initializers", "accepted: dense initializers");
  }
  read_inputs(graph, proto, dims);
  for (const auto& output : proto.output()) graph.outputs.push_back(output.name());
  if (graph.outputs.empty()) throw InputError(path, "has no output", "accepted: at least one");
  graph.nodes = in_order(graph, read_nodes(graph, proto));
  return graph;
}

}  // namespace parsim::networks::onnx_reader
