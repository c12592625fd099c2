#include "experiment/purchases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/upkeep.hpp"
#include "topologies/machine.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {

namespace {

/// "4 x t4 + 4 x v100-sxm2": the GPUs of a machine.
std::string devices_text(const Cluster& cluster, NodeId node, std::string_view times) {
  std::map<std::string, int> counts;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const DeviceModel& model = cluster.model(DeviceId{d});
    if (cluster.devices[d].node == node && model.kind == DeviceKind::gpu) ++counts[model.name];
  }
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts)
    parts.push_back(fmt::format("{}{}{}", count, times, name));
  return join(parts, " + ");
}

/// A machine without names, alone: equal for machines that can stand in for each other. An end of a
/// link outside has no number, since it does not matter which of equal machines hangs where.
Cluster shape_of(const Cluster& cluster, NodeId node) {
  Cluster shape;
  shape.nodes = {{"", cluster.nodes[node.index()].upkeep}};
  std::map<Port, std::int32_t> numbers;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    Device device = cluster.devices[d];
    if (device.node != node) continue;
    numbers[Port::of(DeviceId{d})] = static_cast<std::int32_t>(shape.devices.size());
    device.name.clear();
    device.node = NodeId{0};
    shape.devices.push_back(std::move(device));
  }
  for (std::size_t s = 0; s < cluster.switches.size(); ++s) {
    if (cluster.switches[s].node != node) continue;
    numbers[Port::of(SwitchId{s})] = static_cast<std::int32_t>(shape.switches.size());
    shape.switches.push_back({"", NodeId{0}});
  }
  for (Link link : cluster.links) {
    const bool touches = numbers.contains(link.a) || numbers.contains(link.b);
    if (!touches) continue;
    for (Port* end : {&link.a, &link.b}) {
      const auto number = numbers.find(*end);
      *end = number == numbers.end() ? Port{} : Port{end->kind, number->second};
    }
    link.name.clear();
    link.provenance = -1;
    shape.links.push_back(std::move(link));
  }
  return shape;
}

/// What a machine adds to what is limited.
struct Unit {
  std::int64_t most = 0;
  Money price{};
  Watts power{};
  bool rented = false;
};

/// Counts of units within the limits, in lexicographic order.
class Enumeration {
 public:
  Enumeration(std::vector<Unit> units, std::size_t own, const PurchaseLimits& limits, bool thin)
      : units_(std::move(units)), own_(own), limits_(limits), thin_(thin) {
    counts_.resize(units_.size());
  }
  /// One more than `limits.most` if there are more.
  std::vector<std::vector<std::int64_t>> run() {
    add(0, limits_.budget, limits_.power.value_or(Watts{}));
    return std::move(found_);
  }

 private:
  [[nodiscard]] bool is_tried(std::int64_t count, std::int64_t most) const {
    return !thin_ || count == most || (count & (count - 1)) == 0;
  }
  [[nodiscard]] std::int64_t most_of(const Unit& unit, Money money, Watts power) const {
    std::int64_t most = unit.most;
    const auto bound = [&](double have, double each) {
      constexpr double forgiven = 1 + 1e-9;  // rounding of what is left
      if (each <= 0) return;
      const double count = have * forgiven / each;
      if (count < static_cast<double>(most)) most = static_cast<std::int64_t>(count);
    };
    bound(money.value, unit.price.value);
    if (limits_.power && !unit.rented) bound(power.value, unit.power.value);
    return most;
  }
  [[nodiscard]] bool is_whole() const {
    bool kept = false, bought = false, any = false;
    std::size_t rented = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (counts_[u] == 0) continue;
      any = true;
      (u < own_ ? kept : bought) = true;
      rented += units_[u].rented ? 1 : 0;
    }
    if (rented > 0) return rented == 1 && !kept && alone();
    return any && (limits_.joinable || !(kept && bought));
  }
  [[nodiscard]] bool alone() const {
    return std::count_if(counts_.begin(), counts_.end(), [](auto count) { return count > 0; }) == 1;
  }
  // NOLINTNEXTLINE(misc-no-recursion): as deep as there are offers
  void add(std::size_t unit, Money money, Watts power) {
    if (found_.size() > limits_.most) return;
    if (unit == units_.size()) {
      if (is_whole()) found_.push_back(counts_);
      return;
    }
    const Unit& one = units_[unit];
    const bool others = std::any_of(counts_.begin(), counts_.begin() + static_cast<long>(unit),
                                    [](auto count) { return count > 0; });
    const std::int64_t most = one.rented && others ? 0 : most_of(one, money, power);
    for (std::int64_t count = 0; count <= most; ++count) {
      if (!is_tried(count, most)) continue;
      counts_[unit] = count;
      const auto times = static_cast<double>(count);
      add(unit + 1, money - times * one.price, one.rented ? power : power - times * one.power);
    }
    counts_[unit] = 0;
  }

  std::vector<Unit> units_;
  std::size_t own_;
  const PurchaseLimits& limits_;
  bool thin_;
  std::vector<std::int64_t> counts_;
  std::vector<std::vector<std::int64_t>> found_;
};

Watts needed_power(const std::optional<Watts>& power, const PurchaseLimits& limits,
                   const std::string& name) {
  if (power || !limits.power) return power.value_or(Watts{});
  throw InputError("--power", fmt::format("the power of '{}' is not known", name),
                   "accepted: with the power of every machine and GPU in --own and --offers");
}

}  // namespace

std::optional<Watts> power_of(const Offer& offer) {
  if (offer.power || !offer.model.upkeep.power) return offer.power;
  return static_cast<double>(offer.gpus) * *offer.model.upkeep.power;
}

std::vector<MachineGroup> machine_groups(const Cluster& cluster) {
  std::vector<MachineGroup> groups;
  std::vector<Cluster> shapes;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const NodeId node{n};
    MachineGroup one{devices_text(cluster, node, " x "),
                     devices_text(cluster, node, " "),
                     {node},
                     machine_power(cluster, node),
                     machine_price(cluster, node)};
    if (one.text.empty()) continue;
    Cluster shape = shape_of(cluster, node);
    const auto same = std::find(shapes.begin(), shapes.end(), shape);
    if (same != shapes.end()) {
      groups[static_cast<std::size_t>(same - shapes.begin())].nodes.push_back(node);
      continue;
    }
    groups.push_back(std::move(one));
    shapes.push_back(std::move(shape));
  }
  std::map<std::string, int> kinds;
  for (const MachineGroup& group : groups) ++kinds[group.text];
  for (MachineGroup& group : groups) {
    if (kinds[group.text] == 1) continue;
    const std::string like = " like " + cluster.nodes[group.nodes.front().index()].name;
    group.text += like;
    group.short_text += like;
  }
  return groups;
}

Purchases purchases(std::span<const MachineGroup> own, std::span<const Offer> offers,
                    const PurchaseLimits& limits) {
  std::vector<Unit> units;
  for (const MachineGroup& group : own) {
    units.push_back({static_cast<std::int64_t>(group.nodes.size()),
                     {},
                     needed_power(group.power, limits, group.text)});
  }
  for (const Offer& offer : offers) {
    const bool rented = offer.rent.has_value();
    const Money price = !rented              ? *offer.price
                        : limits.rent_by_run ? Money{}
                                             : *offer.rent * (limits.years * year);
    units.push_back({offer.most, price,
                     rented ? Watts{} : needed_power(power_of(offer), limits, offer.name), rented});
  }
  const auto gpus = [&](const std::vector<std::int64_t>& counts) {
    std::int64_t sum = 0;
    for (std::size_t o = 0; o < offers.size(); ++o) sum += counts[own.size() + o] * offers[o].gpus;
    return sum;
  };
  for (const bool thin : {false, true}) {
    const auto found = Enumeration(units, own.size(), limits, thin).run();
    std::int64_t all_gpus = 0;
    for (const std::vector<std::int64_t>& counts : found) all_gpus += gpus(counts);
    if (found.size() > limits.most || (!thin && all_gpus > limits.most_gpus)) continue;
    Purchases result{{}, thin};
    for (const std::vector<std::int64_t>& counts : found) {
      const auto border = counts.begin() + static_cast<std::ptrdiff_t>(own.size());
      result.all.push_back({{counts.begin(), border}, {border, counts.end()}});
    }
    return result;
  }
  throw InputError(
      "--offers", fmt::format("more than {} candidates", limits.most),
      "accepted: fewer offers, the most machines of an offer, as in most = 4, or fewer "
      "kinds of machines in --own");
}

bool is_joinable(const Cluster* own) {
  return own == nullptr || std::any_of(own->switches.begin(), own->switches.end(),
                                       [](const Switch& one) { return !one.node.valid(); });
}

Cluster cluster_of(const Purchase& purchase, const Cluster* own,
                   std::span<const MachineGroup> groups, std::span<const Offer> offers) {
  const std::string name = text_of(purchase, groups, offers);
  Cluster kept;
  if (own != nullptr) {
    std::vector<bool> keep(own->nodes.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (std::int64_t i = 0; i < purchase.kept[g]; ++i) {
        keep[groups[g].nodes[static_cast<std::size_t>(i)].index()] = true;
      }
    }
    kept = topologies::only_nodes(*own, keep);
  }
  const bool nothing = kept.devices.empty();
  if (nothing) kept = {};
  kept.name = name;
  topologies::ClusterBuilder builder(std::move(kept), "buy");
  SwitchId network;
  const std::vector<Switch>& switches = builder.cluster().switches;
  for (std::size_t s = switches.size(); s-- > 0;) {
    if (!switches[s].node.valid()) network = SwitchId{s};
  }
  std::int64_t taken = 0;
  for (const std::int64_t count : purchase.taken) taken += count;
  if (!network.valid() && taken > 1) network = builder.add_switch("network");
  for (std::size_t o = 0; o < offers.size(); ++o) {
    const Offer& offer = offers[o];
    const std::int32_t source = builder.add_provenance({"*", Label::guessed, offer.source});
    const topologies::MachineShape shape{
        std::vector(static_cast<std::size_t>(offer.gpus),
                    topologies::DeviceInMachine{&offer.model, offer.intra, offer.within, source}),
        offer.inter,
        offer.latency,
        offer.latency,
        offer.cards,
        offer.between,
        source};
    for (std::int64_t i = 0; i < purchase.taken[o]; ++i) {
      topologies::add_machine(builder, shape, fmt::format("{}-{}", offer.name, i), network);
      builder.change().nodes.back().upkeep.power = offer.power;
    }
  }
  return std::move(builder).finish();
}

std::string text_of(const Purchase& purchase, std::span<const MachineGroup> groups,
                    std::span<const Offer> offers) {
  std::vector<std::string> parts;
  bool all = !groups.empty();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto have = static_cast<std::int64_t>(groups[g].nodes.size());
    all = all && purchase.kept[g] == have;
    if (purchase.kept[g] == 0) continue;
    parts.push_back(fmt::format("{}{}/{} ({})", parts.empty() ? "keep " : "", purchase.kept[g],
                                have, groups[g].short_text));
  }
  if (all) parts = {"keep all"};
  for (std::size_t o = 0; o < offers.size(); ++o) {
    if (purchase.taken[o] == 0) continue;
    parts.push_back(fmt::format("{} {} {}", offers[o].rent ? "rent" : "buy", purchase.taken[o],
                                offers[o].name));
  }
  return join(parts);
}

}  // namespace parsim::experiment
