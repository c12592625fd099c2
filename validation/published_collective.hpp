// A published row of a collective: its cluster, its library, and its time by model or simulation.
#pragma once

#include <optional>
#include <vector>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"
#include "experiment/step_parts.hpp"
#include "sim/sim.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// Of the row's column `collective`; nothing for `send_receive`, a message. Throws InputError for
/// an unknown one.
[[nodiscard]] std::optional<CollectiveKind> collective_of(const Claim& claim);

/// Collectives of 64 MiB and more that are to be predicted once more, as a set of their own,
/// without what is fitted on their system.
[[nodiscard]] std::vector<Claim> uncalibrated_collectives(const std::vector<Claim>& claims);

/// NCCL with the environment variables of the row's `settings`: "NCCL_ALGO=RING NCCL_PROTO=Simple".
/// Throws InputError for other variables.
[[nodiscard]] sim::SimOptions library_options(const Claim& claim);

/// The collective of a row, in seconds.
class PublishedCollective {
 public:
  /// Throws InputError for a row that cannot be expressed.
  explicit PublishedCollective(const Claim& claim);

  /// By the cost model, on an otherwise idle cluster.
  [[nodiscard]] double estimated(const sim::SimOptions& options) const;
  /// Bytes over links, without the latency of library and network.
  [[nodiscard]] double naive() const;
  [[nodiscard]] double simulated(const sim::SimOptions& options) const;
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  [[nodiscard]] std::int64_t gpus() const { return std::ssize(devices_); }
  /// Whether its devices are on several machines.
  [[nodiscard]] bool between() const;
  /// The same with links between machines at the share `part` of their rate.
  [[nodiscard]] PublishedCollective with_links(double part) const;
  /// What a time of so many seconds is made of: the launch, the rest of class `between` if its
  /// devices are on several machines, else of class `inside`.
  [[nodiscard]] experiment::StepParts parts(const sim::SimOptions& options, double seconds) const;

 private:
  std::optional<CollectiveKind> kind_;  ///< nothing: a message from each device to the next
  Cluster cluster_;
  std::vector<DeviceId> devices_;
  Bytes size_;
};

/// A measured row as the fit of a library's terms sees it: seconds by the library's own model, the
/// seconds that a root term of 1 s/√byte adds to them, and measured seconds.
struct TermPoint {
  double modelled = 0, root = 0, measured = 0;
};
/// The terms with the least sum of squared relative errors, neither below zero.
[[nodiscard]] sim::LibraryTerms fitted_terms(const std::vector<TermPoint>& points);

}  // namespace parsim::validation
