#include "sim/merge.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/dag_traffic.hpp"
#include "sim/color.hpp"
#include "sim/link_rounds.hpp"
#include "sim/op_flows.hpp"
#include "sim/open_hops.hpp"
#include "sim/repeated_collectives.hpp"
#include "sim/runners.hpp"
#include "sim/unit_flows.hpp"

namespace parsim::sim {

namespace {

/// A difference travels from neighbour to neighbour, such as from stage to stage of a pipeline.
constexpr int most_rounds = 64;
/// An all-to-all has a flow for each pair; those that differ are in memory at once here.
constexpr std::size_t most_different_flows = 1 << 24;

class Classes {
 public:
  Classes(const ExecDag& dag, const Cluster& cluster, const SimOptions& options,
          PreparedDag& prepared, FoldedFlows folded)
      : dag_(dag),
        units_(dag.fold.units.get()),
        every_unit_(folded == FoldedFlows::of_all),
        alone_(options.fidelity == Fidelity::analytic),
        prepared_(prepared),
        hop_bytes_(2 * cluster.links.size()) {
    for (std::size_t i = 0; i < cluster.links.size(); ++i) {
      const LinkId link{i};
      const Color color = mix(color_of(options.slowdowns.of(link)), cluster[link].rate.value);
      links_.insert(links_.end(), 2, color);
    }
    for (const SlowPeriods& slow : options.slowdowns.devices) devices_.push_back(color_of(slow));
    if (units_alike() && devices_alike()) collect(options.fidelity);
    if (communications_.empty()) return;
    plain_links_ = links_;
    for (std::size_t i = 0; every_unit_ && units_ != nullptr && i < links_.size(); ++i) {
      // They differ, and how would travel from one to the next.
      links_[i] = mix(links_[i], static_cast<Color>(units_->hop_unit[i]));
    }
    if (alone_) {
      color_lists_alone(cluster);
    } else {
      hops_ = route_hops(dag, cluster, prepared_.table, communications_, lists_,
                         options.slowdowns.links.empty());
    }
  }

  /// False if too little is equal; of a folded DAG, if units would not stay equal.
  bool refine() {
    if (communications_.empty()) return false;  // kernels are only additions; or too many flows
    if (alone_) {
      color_operations();
      return images_alike();
    }
    if (every_unit_) {
      if (find_classes(false)) return true;
    } else if (find_classes(true)) {
      return units_alike() && ranks_alike();
    }
    // Links that differ will do so from a finer beginning, too.
    if (units_ == nullptr || (!every_unit_ && !units_alike())) return false;
    // Little is equal within a unit, but units may be: one class for each position in them.
    links_ = plain_links_;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (units_->hop_unit[i] < 0) continue;
      links_[i] = mix(links_[i], units_->hop_origin[i] + Color{1});
      if (every_unit_) links_[i] = mix(links_[i], static_cast<Color>(units_->hop_unit[i]));
    }
    return find_classes(false) && (every_unit_ || (units_alike() && ranks_alike()));
  }

  void merge(const SimulationOutput& output) {
    prepared_.runs_as = first_of_colors(operations_);
    if (alone_) {
      keep_flows();
    } else {
      choose_flows();
    }
    lists_ = {};  // millions, as the lists to come
    operations_ = {};
    prepared_.successors = waits_of_runners(prepared_.successors, prepared_.runs_as);
    for (std::size_t i = 0; i < hop_bytes_.size(); ++i) {
      output.hop_bytes[i] += hop_bytes_[i];
      if (units_ != nullptr && units_->hop_unit[i] >= 0)
        output.hop_bytes[i] += bytes_within_[units_->hop_origin[i]];
    }
    output.bytes_reduced_in_network += bytes_reduced_in_network_;
  }

 private:
  /// `few`: gives up where most links differ. Or where units do, as they then will to the end.
  bool find_classes(bool few) {
    std::size_t classes = link_classes();
    bool history = false;  // first only by what messages are: there are many more operations
    LinkRounds rounds(
        {prepared_.table, lists_, communications_, hops_, links_.size(), used_links_, units_});
    for (int round = 0; round < most_rounds; ++round) {
      if (history) {
        color_routes();
        color_operations();
        color_links();
      } else {
        rounds.refine(links_);
      }
      if (!every_unit_ && !units_alike()) return false;
      const std::size_t finer = link_classes();
      if (few && 2 * finer > used_links_.size()) return false;
      if (finer == classes && std::exchange(history, true)) return true;
      classes = finer;
    }
    return false;
  }

  [[nodiscard]] bool units_alike() const {
    if (units_ == nullptr) return true;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (!units_->keeps_hop(i) && links_[i] != links_[units_->hop_origin[i]]) return false;
    }
    return true;
  }
  /// The flows of a transfer, which are those of all ranks, and collectives of one rank alone.
  [[nodiscard]] bool ranks_alike() const {
    if (dag_.fold.ranks == nullptr) return true;
    const auto one_class = [&](const Communication& one) {
      const std::span<const OpFlow> flows = lists_.of(one.list);
      return dag_.kind(one.op) != OpKind::transfer ||
             std::all_of(flows.begin(), flows.end(), [&](const OpFlow& flow) {
               return routes_[flow.route] == routes_[flows.front().route];
             });
    };
    return std::all_of(communications_.begin(), communications_.end(), one_class) && images_alike();
  }
  [[nodiscard]] bool images_alike() const {
    return std::all_of(dag_.fold.images.begin(), dag_.fold.images.end(), [&](const auto& image) {
      return operations_[image.first.index()] == operations_[image.second.index()];
    });
  }
  [[nodiscard]] bool devices_alike() const {
    if (devices_.empty()) return true;
    std::vector<Color> copied = devices_;
    dag_.fold.copy_to_all(copied);
    return copied == devices_;
  }

  void collect(Fidelity fidelity) {
    OpFlows flows;
    std::optional<UnitFlows> others;
    if (every_unit_ && units_ != nullptr) others.emplace(*units_, prepared_.table);
    RepeatedCollectives repeated(dag_, prepared_);
    if (units_ != nullptr) {
      bytes_within_.resize(hop_bytes_.size());
      within_.resize(links_.size());
    }
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      if (prepared_.seconds[i] >= 0) continue;
      const std::size_t of_this = flow_count(dag_, prepared_, OpId{i}) *
                                  (others ? static_cast<std::size_t>(dag_.units(OpId{i})) : 1);
      if (lists_.flow_count() + of_this > most_different_flows) {
        communications_.clear();
        return;
      }
      const bool within = dag_.in_each_unit(OpId{i});
      const bool each_unit = others && within;
      if (const auto* same = each_unit ? nullptr : repeated.again(OpId{i})) {
        bytes_reduced_in_network_ += same->reduced;
        communications_.push_back(same->communication);
        communications_.back().op = OpId{i};
        continue;
      }
      double reduced = 0;
      // The output's spans are not touched.
      flows_of(dag_, prepared_, OpId{i}, fidelity,
               {{}, within ? bytes_within_ : hop_bytes_, reduced}, flows);
      reduced *= static_cast<double>(dag_.units(OpId{i}));
      bytes_reduced_in_network_ += reduced;
      if (each_unit) others->add_others(dag_, OpId{i}, flows);
      communications_.push_back({OpId{i}, lists_.add(flows.flows), flows.longest_wait, flows.least,
                                 within && !every_unit_});
      if (!each_unit) repeated.remember(communications_.back(), reduced);
    }
    repeated.add_bytes(fidelity, hop_bytes_, bytes_within_);
    std::vector<bool> used(links_.size(), false);
    for (const Route* route : prepared_.table.routes) {
      for (const Hop hop : route->hops) used[hop.index()] = true;
    }
    for (std::size_t i = 0; units_ != nullptr && i < used.size(); ++i) {
      if (!units_->keeps_hop(i)) used[i] = used[i] || used[units_->hop_origin[i]];
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i]) used_links_.push_back(i);
    }
    carried_.resize(links_.size());
    routes_.resize(prepared_.table.routes.size());
    operations_.resize(dag_.size());
  }

  [[nodiscard]] std::size_t link_classes() const {
    std::vector<Color> colors;
    for (const std::size_t link : used_links_) colors.push_back(links_[link]);
    std::sort(colors.begin(), colors.end());
    return static_cast<std::size_t>(std::unique(colors.begin(), colors.end()) - colors.begin());
  }

  // Sums of colours are those of multisets: their order does not matter.

  void color_routes() {
    std::size_t hop_number = 0;
    for (std::size_t i = 0; i < routes_.size(); ++i) {
      routes_[i] = hops_.slowest[i];
      for (const Hop hop : prepared_.table.routes[i]->hops) {
        if (hops_.open[hop_number++]) routes_[i] += splitmix64(links_[hop.index()]);
      }
    }
    of_lists_.assign(lists_.count(), 0);
    for (std::size_t list = 0; list < of_lists_.size(); ++list) {
      for (const OpFlow& flow : lists_.of(list)) of_lists_[list] += color_of_flow(0, flow);
    }
  }

  /// Without contention flows only take their time.
  void color_lists_alone(const Cluster& cluster) {
    for (std::size_t list = 0; list < lists_.count(); ++list) {
      const std::span<const OpFlow> flows = lists_.of(list);
      // By wait: the last one's is what the least time comes on top of.
      const Seconds wait = flows.empty() ? Seconds{0} : flows.back().wait;
      const OpFlows together{{flows.begin(), flows.end()}, {}, Seconds{0}};
      of_lists_.push_back(mix(mix(0, time_alone(together, prepared_, cluster)), wait));
      of_messages_.push_back(mix(mix(0, longest_alone(flows, prepared_, cluster)), wait));
    }
  }

  [[nodiscard]] Color color_of_flow(Color operation, const OpFlow& flow) const {
    const auto payload = static_cast<Color>(flow.payload.value);
    return mix(mix(mix(operation, routes_[flow.route]), payload), flow.wait);
  }

  [[nodiscard]] Color own_color(const Communication& communication) const {
    const bool messages = alone_ && dag_.kind(communication.op) == OpKind::transfer;
    return mix(
        mix((messages ? of_messages_ : of_lists_)[communication.list], communication.longest_wait),
        communication.least);
  }

  [[nodiscard]] Color own_color_of_kernel(std::size_t op) const {
    if (devices_.empty()) return mix(0, prepared_.seconds[op]);
    const DeviceId device = kernel_device(dag_, OpId{op});
    return mix(device.valid() ? devices_[device.index()] : 0, prepared_.seconds[op]);
  }

  void color_operations() {
    std::fill(operations_.begin(), operations_.end(), 0);  // of what they wait for, until then
    auto communication = communications_.begin();
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const bool flows = prepared_.seconds[i] < 0;
      const Color own = flows ? own_color(*communication++) : own_color_of_kernel(i);
      Color& color = operations_[i];
      color = mix(color, own);
      if (!prepared_.issued.empty()) color = mix(color, prepared_.issued[i]);
      for (const std::int32_t successor : prepared_.successors.of(i)) {
        operations_[static_cast<std::size_t>(successor)] += color;
      }
    }
  }

  void color_links() {
    std::fill(carried_.begin(), carried_.end(), 0);
    std::fill(within_.begin(), within_.end(), 0);
    // Of an operation and a flow the product of their colours, so that flows of many operations are
    // looked at once.
    std::vector<Color> of_list(lists_.count()), of_list_within(lists_.count());
    for (const Communication& one : communications_)
      (one.within ? of_list_within : of_list)[one.list] += mix(0, operations_[one.op.index()]);
    for (std::size_t list = 0; list < of_list.size(); ++list) {
      if (of_list[list] != 0) carry(list, of_list[list], carried_);
      if (of_list_within[list] != 0) carry(list, of_list_within[list], within_);
    }
    for (const std::size_t link : used_links_) {
      Color carried = carried_[link];
      if (units_ != nullptr && units_->hop_unit[link] >= 0)
        carried += within_[units_->hop_origin[link]];
      links_[link] = mix(links_[link], carried);
    }
  }

  void carry(std::size_t list, Color operations, std::vector<Color>& carried) const {
    for (const OpFlow& flow : lists_.of(list)) {
      const Color of_flow = operations * color_of_flow(0, flow);
      for (const Hop hop : prepared_.table.routes[flow.route]->hops)
        carried[hop.index()] += of_flow;
    }
  }

  void keep_flows() {
    prepared_.flows_of.assign(dag_.size(), -1);
    std::map<std::array<std::uint64_t, 3>, std::int32_t> known;
    for (const Communication& one : communications_) {
      if (!prepared_.runs(one.op.index())) continue;
      const auto next = static_cast<std::int32_t>(prepared_.flows.size());
      const auto [at, fresh] =
          known.try_emplace({one.list, bits(one.longest_wait), bits(one.least)}, next);
      if (fresh) {
        const std::span<const OpFlow> flows = lists_.of(one.list);
        prepared_.flows.push_back({{flows.begin(), flows.end()}, one.longest_wait, one.least});
      }
      prepared_.flows_of[one.op.index()] = at->second;
    }
  }

  static std::uint64_t bits(Seconds time) { return std::bit_cast<std::uint64_t>(time.count()); }

  /// Whether it is asked if the flows of an operation, of all units, end together.
  [[nodiscard]] bool watched(const Communication& one) const {
    return every_unit_ && (dag_.kind(one.op) == OpKind::transfer || dag_.in_each_unit(one.op));
  }

  /// Classes with the same lists of flows, often those of all micro-batches, have the same ways.
  void choose_flows() {
    std::unordered_set<Color> standing;  // classes of links
    std::vector<bool> stands(links_.size(), false);
    for (const std::size_t link : used_links_) {
      // What units do by themselves is known of the kept ones' links.
      if (units_ != nullptr && !every_unit_ && !units_->keeps_hop(link)) continue;
      stands[link] = standing.insert(links_[link]).second;
    }
    std::vector<std::pair<std::int32_t, const Communication*>> members;  // by the one that runs
    for (const Communication& one : communications_)
      members.emplace_back(prepared_.runs_as[one.op.index()], &one);
    std::stable_sort(members.begin(), members.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Ways ways;
    std::map<std::vector<std::uint64_t>, std::int32_t> known;  // number of flows by what makes them
    std::vector<std::size_t> lists;
    prepared_.flows_of.assign(dag_.size(), -1);
    for (std::size_t begin = 0, end = 0; begin < members.size(); begin = end) {
      const Communication& runs = *members[begin].second;
      lists.clear();
      for (; end < members.size() && members[end].first == members[begin].first; ++end)
        lists.push_back(members[end].second->list);
      std::sort(lists.begin() + 1, lists.end());  // the first one's order is that of the flows
      const bool transfer = dag_.kind(runs.op) == OpKind::transfer;
      std::vector<std::uint64_t> key{std::uint64_t{watched(runs)}, std::uint64_t{transfer},
                                     bits(runs.longest_wait), bits(runs.least)};
      key.insert(key.end(), lists.begin(), lists.end());
      const auto next = static_cast<std::int32_t>(prepared_.flows.size());
      const auto [at, fresh] = known.try_emplace(std::move(key), next);
      if (fresh) prepared_.flows.push_back(flows_of_class(runs, lists, stands, ways));
      prepared_.flows_of[runs.op.index()] = at->second;
    }
    prepared_.table = std::move(ways.table);
  }

  /// Of the operation that runs for those with these lists, of which its own is the first.
  [[nodiscard]] OpFlows flows_of_class(const Communication& runs,
                                       const std::vector<std::size_t>& lists,
                                       const std::vector<bool>& stands, Ways& ways) const {
    std::unordered_map<Color, std::vector<Hop>> paths;  // by class of flows
    for (const std::size_t list : lists) {
      for (const OpFlow& flow : lists_.of(list)) {
        std::vector<Hop>& path = paths[color_of_flow(0, flow)];
        for (const Hop hop : prepared_.table.routes[flow.route]->hops) {
          if (stands[hop.index()]) path.push_back(hop);
        }
      }
    }
    OpFlows flows{{}, runs.longest_wait, runs.least};
    const bool transfer = dag_.kind(runs.op) == OpKind::transfer, together = watched(runs);
    std::unordered_map<Color, std::uint32_t> numbers;
    std::vector<std::int32_t> kinds;
    std::vector<std::uint32_t> runs_as;
    for (const OpFlow& flow : lists_.of(runs.list)) {
      const Color color = color_of_flow(0, flow);
      const auto at = static_cast<std::uint32_t>(flows.flows.size());
      const auto [entry, fresh] = numbers.try_emplace(color, at);
      if (fresh) flows.flows.push_back({ways.number(paths.at(color)), flow.payload, flow.wait});
      runs_as.push_back(entry->second);
      if (!together) continue;
      const Hop first = prepared_.table.routes[flow.route]->hops[0];
      kinds.push_back(transfer ? static_cast<std::int32_t>(kinds.size())
                               : units_->hop_unit[first.index()]);
    }
    if (together) flows.together = flows_that_end_together(kinds, runs_as);
    return flows;
  }

  const ExecDag& dag_;
  const AlikeUnits* units_;  ///< null: the DAG is whole
  bool every_unit_;          ///< the flows of communication within units are those of all
  bool alone_;
  PreparedDag& prepared_;
  std::vector<Communication> communications_;
  FlowLists lists_;
  std::vector<double> hop_bytes_, bytes_within_;  ///< `within`: of communication within units
  double bytes_reduced_in_network_ = 0;
  std::vector<std::size_t> used_links_;  ///< by Hop::index()
  RouteHops hops_;
  std::vector<Color> plain_links_;
  // Colours; links by Hop::index().
  std::vector<Color> links_, carried_, within_, devices_, routes_, of_lists_, operations_;
  std::vector<Color> of_messages_;  ///< without contention: of lists of messages of folded ranks
};

}  // namespace

bool merge_equals(const ExecDag& dag, const Cluster& cluster, const SimOptions& options,
                  const SimulationOutput& output, PreparedDag& prepared, FoldedFlows folded) {
  if (!options.merge || options.slowdowns.has_contention() ||
      options.slowdowns.jitter.relative > 0 || options.fidelity == Fidelity::p2p) {
    return false;
  }
  Classes classes(dag, cluster, options, prepared, folded);
  if (!classes.refine()) return false;
  classes.merge(output);
  return true;
}

std::int64_t unmerge(const PreparedDag& prepared, std::span<Span> spans) {
  std::int64_t merged = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (prepared.runs(i)) continue;
    spans[i] = spans[static_cast<std::size_t>(prepared.runs_as[i])];
    ++merged;
  }
  return merged;
}

}  // namespace parsim::sim
