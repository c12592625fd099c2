#include "tests/support/notation.hpp"

#include <charconv>
#include <optional>
#include <stdexcept>

#include "core/units.hpp"

namespace parsim::testing {

namespace {

/// One statement: an optional name, words, and words in parentheses at the end.
struct Statement {
  std::string text, name;
  std::vector<std::string> words, operands;

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument("'" + text + "': " + why);
  }
  [[nodiscard]] const std::string& word(std::size_t position) const {
    if (position >= words.size()) refuse("too short");
    return words[position];
  }
  /// A quantity of one or two words ("3us", "3 us"): what stands from `position` up to a keyword.
  [[nodiscard]] std::string quantity(std::size_t position) const {
    std::string joined = word(position);
    for (std::size_t i = position + 1; i < words.size(); ++i) {
      if (words[i] == "on" || words[i] == "after") break;
      joined += words[i];
    }
    return joined;
  }
  /// The number after a letter ("k3"), if there is such a word.
  [[nodiscard]] std::int64_t option(char letter, std::int64_t otherwise) const {
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i][0] == letter) return number(words[i].substr(1));
    }
    return otherwise;
  }
  [[nodiscard]] std::int64_t number(const std::string& digits) const {
    std::int64_t value = 0;
    const char* const end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, value).ptr != end || digits.empty()) {
      refuse("'" + digits + "' is not a number");
    }
    return value;
  }
};

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (separators.find(c) == std::string_view::npos) {
      parts.back() += c;
    } else if (!parts.back().empty()) {
      parts.emplace_back();
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::vector<Statement> statements(std::string_view text) {
  std::vector<Statement> all;
  for (const std::string& part : split(text, ";\n")) {
    Statement statement;
    statement.text = part;
    std::string rest = part;
    if (const std::size_t colon = rest.find(':'); colon != std::string::npos) {
      const std::vector<std::string> names = split(rest.substr(0, colon), " ");
      if (names.size() != 1) statement.refuse("one name stands before the colon");
      statement.name = names[0];
      rest = rest.substr(colon + 1);
    }
    if (const std::size_t bracket = rest.find('('); bracket != std::string::npos) {
      statement.operands = split(rest.substr(bracket), " ()");
      rest.resize(bracket);
    }
    statement.words = split(rest, " ");
    if (!statement.words.empty()) all.push_back(statement);
  }
  return all;
}

// DAGs.

DeviceId device(const Statement& statement, const std::string& word) {
  if (word.empty() || word[0] != 'd') statement.refuse("'" + word + "' is not a device like d0");
  return DeviceId{static_cast<std::int32_t>(statement.number(word.substr(1)))};
}

constexpr std::int64_t elements_of_parameter = std::int64_t{1} << 34;

Slice slice(ExecDag& dag, Role role, Interval elements) {
  const TensorId parameter = dag.intern(Tensor{Tensor::Kind::parameter, 0, -1});
  return {parameter, role, 0, dag.intern(Region{elements})};
}

std::int64_t elements(const Statement& statement, const std::string& size) {
  const std::int64_t bytes = parse_bytes(size, statement.text).value;
  if (bytes % 4 != 0 || bytes > 4 * elements_of_parameter) {
    statement.refuse("the size is a multiple of 4 bytes, at most 64 GiB");
  }
  return bytes / 4;
}

OpId add_collective(const Statement& statement, CollectiveKind kind, ExecDag& dag, Stream stream,
                    const std::vector<OpId>& after) {
  std::vector<DeviceId> group;
  for (const std::string& member : split(statement.word(1), ",")) {
    group.push_back(device(statement, member));
  }
  const std::int64_t count = elements(statement, statement.quantity(2));
  Shares shares;
  if (kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter) {
    std::int64_t begin = 0;
    for (const std::int64_t size : even_split(count, group.size())) {
      shares.regions.push_back(dag.intern(Region{{begin, begin + size}}));
      begin += size;
    }
  }
  const Role role = kind == CollectiveKind::all_gather || kind == CollectiveKind::broadcast
                        ? Role::weight
                        : Role::weight_gradient;
  const Slice whole_slice = slice(dag, role, {0, count});
  return dag.add(Collective{kind, dag.intern(group), whole_slice, whole_slice}, shares, stream,
                 after);
}

OpId add_operation(const Statement& statement, ExecDag& dag, std::optional<Stream> stream,
                   const std::vector<OpId>& after) {
  const std::string& what = statement.word(0);
  if (what == "compute") {
    if (stream) statement.refuse("kernels run on stream compute");
    return dag.add(Delay{device(statement, statement.word(1)),
                         parse_seconds(statement.quantity(2), statement.text)},
                   after);
  }
  if (what == "transfer") {
    const std::vector<std::string> ends = split(statement.word(1), "->");
    if (ends.size() != 2) statement.refuse("a transfer runs d0->d1");
    const Slice moved = slice(dag, Role::weight, {0, elements(statement, statement.quantity(2))});
    return dag.add(
        Transfer{device(statement, ends[0]), device(statement, ends[1]), moved, moved, false},
        stream.value_or(Stream::pipeline), after);
  }
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter, CollectiveKind::broadcast}) {
    if (what == to_text(kind)) {
      return add_collective(statement, kind, dag, stream.value_or(Stream::gradient), after);
    }
  }
  statement.refuse("unknown operation '" + what + "'");
}

// Networks.

std::vector<Window> windows(const Statement& statement, std::int64_t kernel, std::int64_t stride,
                            const Shape& in) {
  const std::int64_t padding = statement.option('p', 0);
  const Window window{kernel, statement.option('s', stride), padding, padding, 1};
  return std::vector<Window>(in.axes.empty() ? 0 : in.axes.size() - 1, window);
}

LayerKind layer_kind(const Statement& statement, const Shape& in) {
  const std::string& what = statement.word(0);
  if (what == "conv") {
    const std::int64_t filters = statement.number(statement.word(1));
    return Conv{filters, windows(statement, statement.option('k', 1), 1, in),
                statement.option('g', 1), true};
  }
  if (what == "dense") return Dense{statement.number(statement.word(1)), true};
  if (what == "max-pool" || what == "average-pool") {
    const std::int64_t kernel = statement.number(statement.word(1));
    return Pool{what == "max-pool" ? PoolKind::max : PoolKind::average,
                windows(statement, kernel, kernel, in), false, true};
  }
  if (what == "relu") return Activation{};
  if (what == "norm") return Norm{};
  if (what == "add") return Combine{};
  if (what == "concat") return Concat{};
  if (what == "flatten") return Flatten{};
  if (what == "softmax") return Softmax{in.axes.empty() ? 0 : in.axes.size() - 1};
  if (what == "loss") return Loss{};
  statement.refuse("unknown kind '" + what + "'");
}

Shape input_shape(const Statement& statement) {
  std::vector<std::int64_t> extents;
  for (const std::string& extent : split(statement.word(1), "x")) {
    extents.push_back(statement.number(extent));
  }
  if (statement.word(0) == "vector" && extents.size() == 1) return vector_shape(extents[0]);
  if (statement.word(0) == "image" && extents.size() == 3) {
    return image_shape(extents[0], extents[1], extents[2]);
  }
  statement.refuse("an input is 'vector C' or 'image CxHxW'");
}

}  // namespace

OpId NotedDag::operator[](std::string_view name) const {
  const auto found = ids.find(name);
  if (found == ids.end()) throw std::out_of_range("no operation '" + std::string(name) + "'");
  return found->second;
}

NotedDag dag_of(std::string_view text) {
  Network network;
  network.name = "notation";
  add_layer(network, "numbers", Learned{vector_shape(elements_of_parameter)}, {});
  NotedDag noted{ExecDag(std::move(network), 1, Precision::fp32, Optimizer::sgd), {}};
  for (Statement& statement : statements(text)) {
    std::vector<OpId> after;
    std::optional<Stream> stream;
    for (std::size_t i = 0; i < statement.words.size(); ++i) {
      if (statement.words[i] == "on") {
        for (std::size_t s = 0; s < stream_count; ++s) {
          if (statement.word(i + 1) == to_text(static_cast<Stream>(s))) {
            stream = static_cast<Stream>(s);
          }
        }
        if (!stream) statement.refuse("unknown stream");
      }
      if (statement.words[i] != "after") continue;
      for (std::size_t k = i + 1; k < statement.words.size(); ++k) {
        after.push_back(noted[statement.words[k]]);
      }
      break;
    }
    const OpId id = add_operation(statement, noted.dag, stream, after);
    if (!statement.name.empty()) noted.ids[statement.name] = id;
  }
  return noted;
}

Network network_of(std::string_view text) {
  Network network;
  network.name = "notation";
  std::map<std::string, LayerId, std::less<>> ids;
  for (const Statement& statement : statements(text)) {
    const std::string& what = statement.word(0);
    const std::string name =
        statement.name.empty() ? what + std::to_string(network.layers.size()) : statement.name;
    if (what == "image" || what == "vector") {
      ids[name] = add_input(network, name, input_shape(statement));
      continue;
    }
    std::vector<LayerId> inputs;
    for (const std::string& operand : statement.operands) {
      if (!ids.contains(operand)) statement.refuse("no layer '" + operand + "'");
      inputs.push_back(ids[operand]);
    }
    if (inputs.empty()) {
      if (network.layers.empty()) statement.refuse("the first layer is an input");
      inputs.emplace_back(network.layers.size() - 1);
    }
    ids[name] = add_layer(network, name, layer_kind(statement, network[inputs[0]].out), inputs);
  }
  return network;
}

DeviceModel test_device(std::string name, const std::string& rate) {
  DeviceModel model;
  model.name = std::move(name);
  model.multiprocessors = 1;
  model.peak.fill(parse_flops_rate(rate, "rate"));
  model.memory_rate = {1e12};
  model.memory = {std::int64_t{16} << 30};
  return model;
}

Cluster star_of(const std::vector<DeviceModel>& devices, const std::string& rate,
                const std::string& latency) {
  Cluster cluster;
  cluster.name = "star";
  cluster.switches.push_back({"switch", {}});
  for (std::size_t i = 0; i < devices.size(); ++i) {
    std::size_t model = 0;
    while (model < cluster.models.size() && !(cluster.models[model] == devices[i])) ++model;
    if (model == cluster.models.size()) cluster.models.push_back(devices[i]);
    const std::string number = std::to_string(i);
    cluster.nodes.push_back({"n" + number});
    cluster.devices.push_back(
        {"d" + number, static_cast<std::int32_t>(model), NodeId{i}, devices[i].memory});
    cluster.links.push_back({"l" + number, Port::of(DeviceId{i}), Port::of(SwitchId{0}),
                             parse_rate(rate, "rate"), parse_seconds(latency, "latency"), -1});
  }
  return cluster;
}

Cluster star_of(std::size_t devices, const std::string& rate, const std::string& latency) {
  return star_of(std::vector<DeviceModel>(devices, test_device("gpu", "10 TFLOP/s")), rate,
                 latency);
}

}  // namespace parsim::testing
