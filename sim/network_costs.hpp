// What every cost model of kernels has in common: the costs of links.
#pragma once

#include <span>

#include "core/cost_model.hpp"
#include "sim/collectives.hpp"

namespace parsim::sim {

/// Times of messages and collectives on an otherwise idle cluster. Holds a reference to it.
class NetworkCosts {
 public:
  NetworkCosts(const Cluster& cluster, const SimOptions& options)
      : options_(options), paths_(cluster) {}

  /// Between different devices.
  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const;
  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const;
  [[nodiscard]] const Cluster& cluster() const { return paths_.cluster(); }

 private:
  SimOptions options_;
  mutable PathCache paths_;  ///< found on demand; not part of the value
};

}  // namespace parsim::sim
