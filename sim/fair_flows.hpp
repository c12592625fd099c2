// The own engine behind the same three verbs as sim/flow_engine.hpp: flows that share links max-min
// fairly, without SimGrid. A cross-check of it, and many times faster.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "core/routes.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::sim {

/// What a simulation of flows had to do, whichever engine does it.
struct FlowWork {
  double flows = 0;    ///< that ended
  double live = 0;     ///< sum over the ends: flows that were under way
  double reached = 0;  ///< sum over the sharings: flows that got a rate
};

/// Flows that share the links of a cluster max-min fairly: no flow's rate can rise without lowering
/// that of a flow that is no faster. A flow whose route crosses a link k times uses k times its
/// rate of that link.
///
/// Two facts make it fast. Links that their flows cannot fill are no constraint, so most flows run
/// at the rate of their slowest link and affect no other flow. Where links are contended, only
/// flows that a change can reach get new rates: those connected by contended links, and of them
/// those at least as fast as the slowest flow that started or ended (progressive filling is the
/// same up to that rate). Checked: tests/sim/fair_flows_test.cpp, against filling all flows from
/// zero at every event, and against SimGrid.
///
/// Deterministic: wake-ups at equal dates happen in the order of the calls, ends in the order of
/// the flows. Ends within 1e-12 of the clock are one.
class FairFlows {
 public:
  /// Receives the caller's token.
  using Handler = std::function<void(std::int64_t token)>;

  /// As FlowEngine's.
  FairFlows(const Cluster& cluster, std::span<const Route* const> routes, Handler on_date,
            Handler on_end, std::span<const RateChange> changes = {});

  [[nodiscard]] Seconds now() const { return Seconds{now_}; }
  /// Calls on_date(token) at `date`, or as soon as possible if that is past.
  void wake_at(Seconds date, std::int64_t token);
  /// Starts a flow now; on_end(token) follows, never from within this call. Nothing at all to carry
  /// takes no time.
  void start(std::size_t route, Bytes payload, std::int64_t token);
  /// Returns when no date and no flow is left.
  void run();
  [[nodiscard]] const FlowWork& work() const { return work_; }

 private:
  using Index = std::uint32_t;

  /// A link on a route, and how often the route crosses it.
  struct Use {
    Index link = 0;
    double weight = 1;
  };
  /// A flow on a link, and which of the flow's uses this is.
  struct Member {
    Index flow = 0, use = 0;
  };
  struct Link {
    double rate = 0;
    double wanted = 0;  ///< what its flows would take at their caps
    double weight = 0;  ///< sum over its flows
    std::vector<Member> flows;
    Index seen = 0;  ///< last sharing that reached it
    bool changed = false;
    // While sharing:
    double left = 0;         ///< rate that is not given away yet
    double left_weight = 0;  ///< of flows without a rate
    Index waiting = 0;       ///< flows without a rate

    /// Its flows can fill it. Rounding must not make a link of its own flow's rate contended.
    [[nodiscard]] bool contended() const { return wanted > rate * (1 + 1e-12); }
  };
  struct Flow {
    Index route = 0;
    Index version = 0;  ///< of its rate; ends of older ones are void
    Index seen = 0;     ///< last sharing that reached it
    bool settled = false;
    double remaining = 0, rate = 0, since = 0;  ///< bytes at date `since`
    double next_rate = 0;
    std::int64_t token = 0;
    std::vector<Index> positions;  ///< by use: its index in the link's list
  };
  struct End {
    double date = 0;
    Index flow = 0, version = 0;
    bool operator>(const End& b) const { return date != b.date ? date > b.date : flow > b.flow; }
  };
  struct Date {
    double date = 0;
    std::uint64_t order = 0;
    std::int64_t token = 0;
    bool operator>(const Date& b) const { return date != b.date ? date > b.date : order > b.order; }
  };
  /// A contended link's rate per weight if its unfixed flows share it.
  struct Level {
    double rate = 0;
    Index link = 0;
    bool operator>(const Level& b) const { return rate != b.rate ? rate > b.rate : link > b.link; }
  };

  [[nodiscard]] std::span<const Use> uses(Index route) const {
    return std::span(uses_).subspan(first_use_[route], first_use_[route + 1] - first_use_[route]);
  }
  void find_cap(Index route);
  void change_rates();
  void change(Index link);
  void remove(Index flow);
  void share();
  void reach(Index link);
  void fill();
  void settle(Index flow, double rate);
  void set_rate(Index flow, double rate);
  void forget_void_ends();

  Handler on_date_, on_end_;
  FlowWork work_;
  double now_ = 0;
  std::uint64_t order_ = 0;
  std::vector<Index> first_use_;
  std::vector<Use> uses_;             ///< by route
  std::vector<double> caps_;          ///< by route: what it could carry alone
  std::vector<Index> slowest_links_;  ///< by route: its slowest link
  std::vector<Link> links_;
  std::vector<Index> link_of_hop_;   ///< by Hop::index(); none if no route crosses it
  std::vector<RateChange> changes_;  ///< of links, the next one last
  std::vector<Flow> flows_;
  std::vector<Index> free_flows_;
  std::vector<End> ends_;  // heaps, earliest first
  std::vector<Date> dates_;
  std::vector<std::int64_t> at_once_;  ///< tokens of flows with nothing to carry
  std::vector<std::int64_t> ended_;
  // Of the sharing to come:
  std::vector<Index> fresh_;    ///< flows without a rate
  std::vector<Index> changed_;  ///< contended links that flows have joined or left
  double slowest_change_ = std::numeric_limits<double>::infinity();
  // Of one sharing:
  Index sharing_ = 0;
  std::vector<Index> reached_links_, reached_flows_, capped_;
  std::vector<Level> levels_;
};

}  // namespace parsim::sim
