// Execution DAGs as JSON: the interned tables, then one object per operation. Reading rebuilds the
// DAG, so that all that ExecDag derives (payloads, table positions) is right; this file first
// checks the preconditions of ExecDag.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "core/json_ops.hpp"
#include "core/json_support.hpp"

namespace parsim {

namespace json {

namespace {

using Bucket = std::vector<std::pair<ParameterId, RegionId>>;
constexpr std::size_t most_operands = 32;  // bits of Work::edges_to_partial_sum

}  // namespace

/// A region as in the file: [[begin, end], …].
struct RegionEntry {
  std::vector<std::array<std::int64_t, 2>> axes{};
};
void put_special(Writer& out, const RegionEntry& entry) { put(out, entry.axes); }
void get_special(const Node& node, RegionEntry& entry) {
  if (node.size() > Region::max_rank) {
    node.refuse(fmt::format("accepted: at most {} axes", Region::max_rank));
  }
  get(node, entry.axes, bounds);
}
void put_special_schema(Writer& out, const RegionEntry& entry) {
  out.key("description").text("begin and end along each axis, the sample first");
  put_schema_members(out, entry.axes, bounds);
}

struct TensorEntry {
  const TableSizes* sizes = nullptr;
  Tensor tensor{};
};

void fields(auto& visit, Of<TensorEntry> auto& entry) {
  auto& tensor = entry.tensor;
  const TableSizes* sizes = entry.sizes;
  const auto position = [&](auto size_of) {
    return index_of(sizes == nullptr ? TableSizes::unknown : size_of());
  };
  visit.constant("kind", to_text(tensor.kind));
  switch (tensor.kind) {
    case Tensor::Kind::output:
    case Tensor::Kind::edge:
      visit("layer", tensor.index, position([&] { return sizes->network->layers.size(); }));
      if (tensor.kind == Tensor::Kind::output) break;
      visit("input", tensor.input, position([&] {
              // A list of names is asked for before the layer is read.
              return tensor.index < 0 ? 0 : (*sizes->network)[LayerId{tensor.index}].inputs.size();
            }));
      break;
    case Tensor::Kind::parameter:
      visit("parameter", tensor.index, position([&] { return sizes->network->parameters.size(); }));
      break;
    case Tensor::Kind::bucket:
      visit("bucket", tensor.index, position([&] { return sizes->buckets; }));
      break;
  }
}

std::vector<TensorEntry> each_kind(const TensorEntry&) {
  std::vector<TensorEntry> kinds(spellings_of<Tensor::Kind>().size());
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    kinds[i].tensor.kind = static_cast<Tensor::Kind>(i);
  }
  return kinds;
}

void read_kind(const Node& node, TensorEntry& entry) { get(node["kind"], entry.tensor.kind); }

/// A part of a parameter in a bucket.
struct BucketPart {
  std::size_t parameters = TableSizes::unknown, regions = TableSizes::unknown;
  ParameterId parameter{};
  RegionId region{};
};

void fields(auto& visit, Of<BucketPart> auto& part) {
  visit("parameter", part.parameter, index_of(part.parameters));
  visit("region", part.region, index_of(part.regions));
}

struct WorkEntry {
  std::size_t layers = TableSizes::unknown, regions = TableSizes::unknown;
  LayerId layer{};
  RegionId out{};
  std::array<std::int32_t, 2> contraction{};
  std::vector<std::int32_t> edges{};
  std::int32_t zigzag = 0, class_parts = 0, class_part = 0;
};

void fields(auto& visit, Of<WorkEntry> auto& work) {
  visit("layer", work.layer, index_of(work.layers));
  visit("out", work.out, index_of(work.regions));
  visit("contraction", work.contraction);
  visit("edges_to_partial_sum", work.edges, index_of(most_operands));
  visit.optional(
      "zigzag", work.zigzag,
      Rule(Limits{0}, "devices over which the tokens of causal attention are in zigzag order"));
  visit.optional("class_parts", work.class_parts,
                 Rule(Limits{0}, "parts into which the classes of a loss are cut"));
  visit.optional("class_part", work.class_part, Rule(Limits{0}, "which of them this is"));
}

struct SliceEntry {
  const TableSizes* sizes = nullptr;
  Slice slice{};
};

void fields(auto& visit, Of<SliceEntry> auto& entry) {
  auto& slice = entry.slice;
  const bool known = entry.sizes != nullptr;
  visit("tensor", slice.tensor, index_of(known ? entry.sizes->tensors : TableSizes::unknown));
  visit("role", slice.role);
  visit("micro_batch", slice.micro_batch);
  visit.optional("region", slice.region,
                 Rule(index_of(known ? entry.sizes->regions : TableSizes::unknown),
                      "absent: all of a bucket"));
}

struct SharesEntry {
  std::size_t known = TableSizes::unknown;  ///< regions
  Shares shares{};
};

void fields(auto& visit, Of<SharesEntry> auto& entry) {
  visit("regions", entry.shares.regions, index_of(entry.known));
  visit("needs", entry.shares.needs, index_of(entry.known));
}

namespace {

constexpr std::string_view dag_format = "parsim-dag";
constexpr std::int64_t dag_version = 2;

RegionEntry entry_of_region(const Region& region) {
  RegionEntry entry;
  for (std::size_t axis = 0; axis < region.rank(); ++axis) {
    entry.axes.push_back({region[axis].begin, region[axis].end});
  }
  return entry;
}

std::vector<BucketPart> entry_of_bucket(const Bucket& bucket) {
  std::vector<BucketPart> parts(bucket.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].parameter = bucket[i].first;
    parts[i].region = bucket[i].second;
  }
  return parts;
}

WorkEntry entry_of_work(const Work& work) {
  WorkEntry entry;
  entry.layer = work.layer;
  entry.out = work.out;
  entry.contraction = {work.contraction_begin, work.contraction_end};
  entry.zigzag = work.zigzag;
  entry.class_parts = work.class_parts;
  entry.class_part = work.class_part;
  for (std::size_t input = 0; input < most_operands; ++input) {
    if (((work.edges_to_partial_sum >> input) & 1U) != 0) {
      entry.edges.push_back(static_cast<std::int32_t>(input));
    }
  }
  return entry;
}

}  // namespace

// The tables refer to one another and to the network; what reads them is below.
void fields(auto& visit, Of<ExecDag> auto& dag) {
  visit.constant("format", dag_format);
  visit.constant("version", dag_version);
  visit("strategy", dag.strategy);
  visit("cluster", dag.cluster);
  visit("batch", dag.batch);
  visit("precision", dag.precision);
  visit.optional_or("reduce_precision", dag.reduce_precision, storage_of(dag.precision),
                    reduce_precision_rule);
  visit("optimizer", dag.optimizer);
  visit("network", dag.network);
  const ExecDag::Tables tables = dag.tables();
  const auto table = [&](std::string_view key, const auto& entries, auto entry_of) {
    visit.table(key, entries.size(), [&](std::size_t i) { return entry_of(entries[i]); });
  };
  table("regions", tables.regions, entry_of_region);
  table("tensors", tables.tensors, [](const Tensor& tensor) {
    return TensorEntry{nullptr, tensor};
  });
  table("buckets", tables.buckets, entry_of_bucket);
  table("works", tables.works, entry_of_work);
  table("slices", tables.slices, [](const Slice& slice) { return SliceEntry{nullptr, slice}; });
  table("groups", tables.groups, [](const std::vector<DeviceId>& group) { return group; });
  table("shares", tables.shares, [](const Shares& shares) {
    return SharesEntry{TableSizes::unknown, shares};
  });
  visit.table("ops", dag.size(), [&](std::size_t i) { return entry_of(dag, OpId{i}); });
}

namespace {

/// Adds an entry to an interned table, where it must be new.
template <class Entry>
void intern_new(ExecDag& dag, const Entry& entry, std::int32_t position, const Node& node) {
  std::int32_t given = 0;
  if constexpr (std::same_as<Entry, Slice>) {
    given = dag.intern(entry);
  } else {
    given = dag.intern(entry).value;
  }
  if (given != position) {
    node.refuse(fmt::format("the same as entry {}", given), "accepted: entries that differ");
  }
}

Region get_region(const Node& node) {
  RegionEntry entry;
  get(node, entry);
  Region region;
  for (const auto& [begin, end] : entry.axes) {
    if (end < begin) {
      node.item(region.rank(), entry.axes.size()).refuse("ends before it begins", "begin <= end");
    }
    region.push_back({begin, end});
  }
  return region;
}

Bucket get_bucket(const Node& node, const ExecDag& dag, std::size_t regions) {
  Bucket bucket;
  double sum = 0;
  node.each([&](const Node& item) {
    BucketPart part{dag.network.parameters.size(), regions};
    get(item, part);
    check_inside(item["region"], dag.region(part.region),
                 whole_parameter(dag.network[part.parameter]));
    sum += elements(dag.region(part.region));
    bucket.emplace_back(part.parameter, part.region);
  });
  if (sum > most_elements) {
    node.refuse(fmt::format("a bucket of {:.3g} elements", sum),
                fmt::format("accepted: at most {:.3g}", most_elements));
  }
  return bucket;
}

Work get_work(const Node& node, const ExecDag& dag, std::size_t regions) {
  WorkEntry entry{dag.network.layers.size(), regions};
  get(node, entry);
  check_inside(node["out"], dag.region(entry.out), whole(dag.network[entry.layer].out, dag.batch));
  const auto& [begin, end] = entry.contraction;
  if (end < begin) node["contraction"].refuse("ends before it begins", "begin <= end");
  Work work{entry.layer, entry.out, begin, end};
  work.zigzag = entry.zigzag;
  const Layer& layer = dag.network[entry.layer];
  const bool some_classes = layer.kind.as<Loss>() != nullptr && end > begin;
  const std::int64_t classes =
      some_classes ? contraction_extent(layer.kind, input_shapes(dag.network, entry.layer)) : 0;
  if (entry.class_parts > classes || some_classes != (entry.class_parts > 0)) {
    node["class_parts"].refuse(fmt::format("{}", entry.class_parts),
                               some_classes
                                   ? fmt::format("1 to {}, the classes of the loss", classes)
                                   : "0 unless the contraction of a loss is cut");
  }
  if (entry.class_part >= std::max(entry.class_parts, 1)) {
    node["class_part"].refuse(fmt::format("{}", entry.class_part), "less than class_parts");
  }
  work.class_parts = entry.class_parts;
  work.class_part = entry.class_part;
  const Limits operands = index_of(std::min(dag.network[entry.layer].inputs.size(), most_operands));
  node["edges_to_partial_sum"].each([&](const Node& input) {
    work.edges_to_partial_sum |= std::uint32_t{1} << input.integer(operands);
  });
  return work;
}

Slice get_slice(const Node& node, const ExecDag& dag, const TableSizes& sizes) {
  SliceEntry entry{&sizes};
  get(node, entry);
  const Slice& slice = entry.slice;
  const Tensor& tensor = dag.tensor(slice.tensor);
  const bool learned =
      tensor.kind == Tensor::Kind::parameter || tensor.kind == Tensor::Kind::bucket;
  const bool learned_role = slice.role == Role::weight || slice.role == Role::weight_gradient ||
                            slice.role == Role::optimizer_state;
  if (learned != learned_role) {
    node["role"].refuse(learned ? "accepted for parameters and buckets: weight, weight-gradient, "
                                  "optimizer-state"
                                : "accepted for outputs and edges: activation, gradient, "
                                  "partial-sum, and statistics of a loss");
  }
  const bool of_loss = tensor.kind == Tensor::Kind::output &&
                       dag.network[LayerId{tensor.index}].kind.as<Loss>() != nullptr;
  if (slice.role == Role::statistics && !of_loss) {
    node["role"].refuse("accepted: statistics of the output of a loss only");
  }
  if (tensor.kind == Tensor::Kind::bucket && !slice.region.valid()) return slice;
  check_inside(node["region"], dag.region(slice.region), whole_slice(dag, slice));
  return slice;
}

std::vector<DeviceId> get_group(const Node& node) {
  std::vector<DeviceId> group;
  get(node, group, device_number);
  std::vector<DeviceId> sorted = group;
  std::sort(sorted.begin(), sorted.end());
  if (group.empty() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    node.refuse("accepted: one device or more, each once");
  }
  return group;
}

/// Calls `read(node)` for the entries of a table and interns what it returns.
template <class Function>
void get_table(const Node& table, ExecDag& dag, Function read) {
  std::int32_t next = 0;
  table.each([&](const Node& node) { intern_new(dag, read(node), next++, node); });
}

/// Fills the interned tables and returns the slices; every entry is checked against those that it
/// refers to.
std::vector<Slice> get_tables(const Node& root, ExecDag& dag, const TableSizes& sizes) {
  get_table(root["regions"], dag, get_region);
  get_table(root["tensors"], dag, [&](const Node& node) {
    TensorEntry entry{&sizes};
    get(node, entry);
    return entry.tensor;
  });
  root["buckets"].each([&](const Node& node) {
    static_cast<void>(dag.add_bucket(get_bucket(node, dag, sizes.regions)));
  });
  get_table(root["works"], dag,
            [&](const Node& node) { return get_work(node, dag, sizes.regions); });
  std::vector<Slice> slices;
  get_table(root["slices"], dag, [&](const Node& node) {
    slices.push_back(get_slice(node, dag, sizes));
    return slices.back();
  });
  get_table(root["groups"], dag, get_group);
  return slices;
}

}  // namespace

}  // namespace json

std::string to_json(const ExecDag& dag) { return json::text_of_file(dag); }

ExecDag dag_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(json::dag_format, json::dag_version);
  ExecDag dag;
  json::get_fields(root, dag);
  const json::TableSizes sizes{
      &dag.network,         root["regions"].size(), root["tensors"].size(), root["buckets"].size(),
      root["works"].size(), root["slices"].size(),  root["groups"].size(),  root["shares"].size()};
  const std::vector<Slice> slices = json::get_tables(root, dag, sizes);
  std::vector<Shares> shares;
  root["shares"].each([&](const json::Node& node) {
    json::SharesEntry entry{sizes.regions};
    json::get(node, entry);
    shares.push_back(std::move(entry.shares));
  });
  json::OpReader reader(slices, shares, sizes);
  root["ops"].each([&](const json::Node& node) { reader.read(node, dag); });
  return dag;
}

std::string dag_schema() { return json::schema_of_file<ExecDag>("What parsim plan --dag writes"); }

}  // namespace parsim
