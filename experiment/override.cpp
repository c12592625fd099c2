// Numbers of a cluster that the command line changes: --override.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/request.hpp"
#include "topologies/changes.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {

namespace {

/// What stands before the first dot, and the numbers that it has.
struct Overridable {
  std::string_view group, what;
  std::vector<std::string> numbers;
  std::string_view accepted;
};
const std::vector<Overridable>& overridable() {
  static const std::vector<Overridable> all = {
      {"devices",
       "device",
       {"memory", "price", "power", "idle_power", "mtbf"},
       "devices.NAME.memory=SIZE, price=PRICE, power=WATTS, idle_power=WATTS, mtbf=TIME"},
      {"nodes",
       "machine",
       {"price", "power", "mtbf"},
       "nodes.NAME.price=PRICE, power=WATTS, mtbf=TIME"},
      {"links", "link", {"power", "idle_power"}, "links.NAME.power=WATTS, idle_power=WATTS"},
  };
  return all;
}

/// "links.n0.gpu0-nic.power=10 W" in its parts.
struct Override {
  std::string name, number, value;
  std::string where;
};

void override_number(Cluster& cluster, const Overridable& of, const Override& change) {
  if (of.group == "links") {
    const bool idle = change.number == "idle_power";
    const std::optional<std::string> none, value = change.value;
    topologies::set_link_power(cluster, change.name, idle ? none : value, idle ? value : none,
                               change.where);
  } else if (of.group == "nodes") {
    topologies::set_node_upkeep(cluster, change.name, change.number, change.value, change.where);
  } else if (change.number == "memory") {
    if (change.name.find('*') == std::string::npos) {
      static_cast<void>(find_device(cluster, change.name, "--override"));  // with a did-you-mean
    }
    topologies::set_device_memory(cluster, change.name, change.value, change.where);
  } else {
    topologies::set_device_upkeep(cluster, change.name, change.number, change.value, change.where);
  }
}

}  // namespace

Cluster load_cluster_with(const std::string& name, const std::vector<std::string>& overrides,
                          std::string_view where, std::vector<std::string>* notes) {
  if (name.empty()) {
    throw InputError(where, "missing",
                     "accepted: a name, a generator call (see 'parsim list clusters') or a file");
  }
  Cluster cluster = topologies::load_cluster(name, where, notes);
  for (const std::string& text : overrides) apply_override(cluster, text);
  return cluster;
}

void apply_override(Cluster& cluster, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  const std::size_t first = key.find('.'), last = key.rfind('.');
  const std::string group = key.substr(0, first);
  const bool parts = equals != std::string::npos && first != std::string::npos && first < last;
  const std::vector<Overridable>& all = overridable();
  const auto of = std::find_if(all.begin(), all.end(),
                               [&](const Overridable& one) { return one.group == group; });
  if (!parts || of == all.end()) {
    std::vector<std::string> groups, accepted;
    for (const Overridable& one : all) {
      groups.emplace_back(one.group);
      accepted.emplace_back(one.accepted);
    }
    throw InputError("--override", fmt::format("'{}'", text),
                     fmt::format("accepted: {}{}", join(accepted, "; "),
                                 of == all.end() ? did_you_mean(group, groups) : ""));
  }
  const Override change{key.substr(first + 1, last - first - 1), key.substr(last + 1),
                        text.substr(equals + 1), fmt::format("--override {}", key)};
  const std::vector<std::string>& numbers = of->numbers;
  if (std::find(numbers.begin(), numbers.end(), change.number) == numbers.end()) {
    throw InputError(
        "--override", fmt::format("unknown key '{}' of a {}", change.number, of->what),
        fmt::format("accepted: {}{}", of->accepted, did_you_mean(change.number, numbers)));
  }
  override_number(cluster, *of, change);
}

}  // namespace parsim::experiment
