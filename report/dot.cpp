#include "report/dot.hpp"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/layers.hpp"
#include "report/document.hpp"
#include "report/trace.hpp"

namespace parsim::report {

namespace {

/// Bytes of the UTF-8 character that begins at `at`; 0 if there is none. Source: RFC 3629, without
/// its finer rules on overlong forms, which no reader of DOT looks at.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80U) return 0;
  }
  return length;
}

/// A graph that is written down box by box.
class DotGraph {
 public:
  explicit DotGraph(std::string_view name, bool directed) : arrow_(directed ? "->" : "--") {
    text_ = fmt::format(
        "{} {} {{\n  node [shape=box, fontname=\"sans-serif\"];\n"
        "  edge [fontname=\"sans-serif\", fontsize=10];\n",
        directed ? "digraph" : "graph", dot_string(name));
  }
  void box(std::string_view id, const std::string& label, std::string_view style = {}) {
    line("n{} [label={}{}];", id, dot_string(label), style);
  }
  void edge(std::string_view from, std::string_view to, const std::string& label = {}) {
    if (label.empty()) {
      line("n{} {} n{};", from, arrow_, to);
    } else {
      line("n{} {} n{} [label={}];", from, arrow_, to, dot_string(label));
    }
  }
  void open_cluster(std::size_t number, std::string_view label) {
    line("subgraph cluster_{} {{", number);
    line("label={};", dot_string(label));
  }
  void close_cluster() { text_ += "  }\n"; }
  std::string take() && { return std::move(text_) + "}\n"; }

 private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += "  ";
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }

  std::string_view arrow_;
  std::string text_;
};

/// Boxes that stand for several things, in the order in which their names first come.
class Groups {
 public:
  std::size_t of(const std::string& name) {
    const auto [at, is_new] = numbers_.emplace(name, names_.size());
    if (is_new) {
      names_.push_back(name);
      counts_.push_back(0);
    }
    ++counts_[at->second];
    return at->second;
  }
  void join(std::size_t from, std::size_t to) {
    if (from != to) edges_.emplace(from, to);
  }
  void write(DotGraph& graph, std::string_view what) const {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      graph.box(fmt::format("{}", i), counts_[i] == 1
                                          ? names_[i]
                                          : fmt::format("{}: {} {}", names_[i], counts_[i], what));
    }
    for (const auto& [from, to] : edges_) {
      graph.edge(fmt::format("{}", from), fmt::format("{}", to));
    }
  }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> names_;
  std::vector<std::size_t> counts_;
  std::set<std::pair<std::size_t, std::size_t>> edges_;
};

std::string port_id(Port port) {
  return fmt::format("{}{}", port.kind == Port::Kind::device ? 'd' : 's', port.index);
}

void write_machine(DotGraph& graph, const Cluster& cluster, NodeId node) {
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    const Device& device = cluster.devices[i];
    if (device.node != node) continue;
    graph.box(port_id(Port::of(DeviceId{i})),
              fmt::format("{} ({})", device.name, cluster.model(DeviceId{i}).name),
              ", style=filled, fillcolor=\"#cfe8cf\"");
  }
  for (std::size_t i = 0; i < cluster.switches.size(); ++i) {
    if (cluster.switches[i].node != node) continue;
    graph.box(port_id(Port::of(SwitchId{i})), cluster.switches[i].name, ", shape=ellipse");
  }
}

std::string collapsed(const Cluster& cluster) {
  DotGraph graph(cluster.name, false);
  Groups groups;
  std::map<Port, std::size_t> group_of;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    group_of[Port::of(DeviceId{i})] =
        groups.of(cluster.nodes[cluster.devices[i].node.index()].name);
  }
  for (std::size_t i = 0; i < cluster.switches.size(); ++i) {
    const Switch& one = cluster.switches[i];
    group_of[Port::of(SwitchId{i})] =
        groups.of(one.node.valid() ? cluster.nodes[one.node.index()].name : one.name);
  }
  for (const Link& link : cluster.links) {
    groups.join(std::min(group_of.at(link.a), group_of.at(link.b)),
                std::max(group_of.at(link.a), group_of.at(link.b)));
  }
  groups.write(graph, "parts");
  return std::move(graph).take();
}

}  // namespace

std::string dot_string(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string out = "\"";
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (characters++ == longest) {
      out += "…";
      break;
    }
    const std::size_t length = utf8_length(text, i);
    const std::string_view character = text.substr(i, std::max<std::size_t>(length, 1));
    i += character.size();
    if (length == 0) {
      out += '?';
    } else if (character == "\"" || character == "\\") {
      // A backslash would be one of dot's own sequences (\N, \G), so it is doubled.
      out += '\\';
      out += character;
    } else {
      out += printable(character);
    }
  }
  return out + '"';
}

std::string dot_of(const Network& network) {
  DotGraph graph(network.name, true);
  if (network.layers.size() > most_dot_nodes) {
    Groups groups;
    std::vector<std::size_t> group;
    for (const Layer& layer : network.layers) {
      group.push_back(groups.of(layer.name.substr(0, layer.name.find('.'))));
      for (const LayerId input : layer.inputs) groups.join(group[input.index()], group.back());
    }
    groups.write(graph, "layers");
    return std::move(graph).take();
  }
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    const std::string id = fmt::format("{}", i);
    const bool learns = !layer.parameters.empty();
    graph.box(id, fmt::format("{}: {}", layer.name, kind_name(layer.kind)),
              learns ? ", style=filled, fillcolor=\"#cfe0f5\"" : "");
    for (const LayerId input : layer.inputs) {
      graph.edge(fmt::format("{}", input.value), id, to_text(network[input].out));
    }
  }
  return std::move(graph).take();
}

std::string dot_of(const Cluster& cluster) {
  if (cluster.devices.size() + cluster.switches.size() > most_dot_nodes) return collapsed(cluster);
  DotGraph graph(cluster.name, false);
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    graph.open_cluster(i, cluster.nodes[i].name);
    write_machine(graph, cluster, NodeId{i});
    graph.close_cluster();
  }
  write_machine(graph, cluster, NodeId{});
  // Parallel cables of one rate as one line.
  std::map<std::pair<std::pair<Port, Port>, double>, int> cables;
  for (const Link& link : cluster.links) ++cables[{{link.a, link.b}, link.rate.value}];
  for (const auto& [cable, count] : cables) {
    const std::string rate = to_text(BytesPerSecond{cable.second});
    graph.edge(port_id(cable.first.first), port_id(cable.first.second),
               count == 1 ? rate : fmt::format("{} x {}", count, rate));
  }
  return std::move(graph).take();
}

std::string dot_of(const ExecDag& dag, const Cluster& cluster) {
  DotGraph graph(dag.strategy, true);
  std::vector<Queue> queues_of;
  const auto devices = [&](OpId id) {
    std::set<std::int32_t> seen;
    queues_of.clear();
    queues(dag, id, queues_of);
    for (const Queue& queue : queues_of) seen.insert(queue.device.value);
    constexpr std::size_t named = 2;
    if (seen.size() > named) return fmt::format("{} devices", seen.size());
    std::string names;
    for (const std::int32_t device : seen) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", cluster[DeviceId{device}].name);
    }
    return names;
  };
  if (dag.size() <= most_dot_nodes) {
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const OpId id{i};
      graph.box(fmt::format("{}", i),
                fmt::format("{} on {}", operation_name(dag, id), devices(id)));
      for (const OpId before : dag.predecessors(id)) {
        graph.edge(fmt::format("{}", before.value), fmt::format("{}", i));
      }
    }
    return std::move(graph).take();
  }
  Groups groups;
  std::vector<std::size_t> group;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    const Op op = dag.op(id);
    const auto* compute = std::get_if<Compute>(&op);
    // "conv1 forward, micro-batch 2" without the layer's name and the number, else the first word.
    const std::string name = operation_name(dag, id);
    std::string verb = name.substr(0, name.find(' '));
    if (compute != nullptr) {
      verb = name.substr(dag.network[dag.work(compute->work).layer].name.size() + 1);
      verb = verb.substr(0, verb.find(','));
    }
    group.push_back(groups.of(fmt::format("{} on {}", verb, devices(id))));
    for (const OpId before : dag.predecessors(id)) groups.join(group[before.index()], group.back());
  }
  groups.write(graph, "operations");
  return std::move(graph).take();
}

}  // namespace parsim::report
