// SimGrid behind three verbs: wake me at a date, move bytes along a route, run until nothing is
// left. The only file that includes SimGrid is simgrid/library.cpp, a library of its own
// (sim/simgrid_library.hpp); differences between its releases end there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/routes.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::sim {

/// Where SimGrid runs: here, or in a process that is started for it (sim/simgrid_process.hpp).
enum class SimgridIn { this_process, own_process };

/// Flows that share the links of a cluster max-min fairly. Links have SimGrid latency zero; the
/// caller waits for a flow's latency before it starts it (wake_at), because SimGrid's TCP models
/// share a link inversely to latency: of two flows of 1 and 5 us, one would get five times the
/// rate.
///
/// SimGrid's clock outlives its engine, so make one per process (see sim/child.hpp), or one with a
/// process of its own.
class FlowEngine {
 public:
  /// Receives the caller's token. Must not throw: SimGrid's C code is on the stack.
  using Handler = std::function<void(std::int64_t token)>;

  /// routes   of the flows, by index; at least one hop each. Not kept.
  /// on_date  called at a date given to wake_at
  /// on_end   called when a flow has carried its last byte
  /// changes  of the links' rates, by date
  FlowEngine(const Cluster& cluster, std::span<const Route* const> routes, Handler on_date,
             Handler on_end, std::span<const RateChange> changes = {},
             SimgridIn where = SimgridIn::this_process);
  ~FlowEngine();
  FlowEngine(const FlowEngine&) = delete;
  FlowEngine& operator=(const FlowEngine&) = delete;

  [[nodiscard]] Seconds now() const;
  /// Calls on_date(token) at `date`, or as soon as possible if that is past.
  void wake_at(Seconds date, std::int64_t token);
  /// Starts a flow now; on_end(token) follows, never from within this call. Nothing at all to carry
  /// takes no time.
  void start(std::size_t route, Bytes payload, std::int64_t token);
  /// Returns when no date and no flow is left.
  void run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace parsim::sim
