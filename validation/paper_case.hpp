// The case of a paper's claim: its network on the first GPUs of its cluster.
#pragma once

#include <memory>
#include <string_view>

#include "strategies/strategies.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// A whole number from 1 on among the claim's parameters. Throws InputError naming the claim.
[[nodiscard]] std::int64_t whole_number(const Claim& claim, std::string_view key);

/// Network, cluster and costs of a claim. `samples_per_device` is one of its parameters.
class PaperCase {
 public:
  PaperCase(const Claim& claim, std::int64_t devices);

  /// Multiplies the times of all kernels.
  void calibrate(double factor);
  /// Valid as long as this is; the batch is all devices' samples, gradients travel by rings.
  [[nodiscard]] strategies::StrategyInput input() const;

  [[nodiscard]] const Network& network() const { return network_; }
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  [[nodiscard]] const CostModel& cost() const { return *cost_; }

 private:
  Network network_;
  Cluster cluster_;
  std::unique_ptr<CostModel> base_, cost_;
  std::int64_t batch_ = 0;
};

}  // namespace parsim::validation
