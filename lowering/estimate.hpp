// What a plan costs without making its DAG: for searches that try thousands of plans.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "core/cost_model.hpp"
#include "core/plan.hpp"
#include "lowering/memory.hpp"

namespace parsim::lowering {

/// How an estimate treats communications that share a link.
enum class LinkSharing : std::uint8_t {
  ignored,  ///< each is as fast as alone: the list schedule of the lowered plan, exactly
  queued,   ///< links are shared as link_queue.hpp says
};

class PriceCache;

/// What the steps of plans are made of and priced by; refers to what its maker keeps.
struct StepInput {
  const Network& network;
  const Cluster& cluster;
  const CostModel& cost;
  Precision precision = Precision::fp32;
  Precision reduce_precision = Precision::fp32;
  Optimizer optimizer = Optimizer::momentum;
  PriceCache* prices = nullptr;  ///< of this very input, to share with other estimators
  /// Called before each estimate, of time or memory; throws when the plan is no longer wanted. May
  /// be empty.
  std::function<void()> poll{};
  /// Makes the plan that is priced from the one that is asked for; may be empty.
  std::function<Plan(const Plan&)> as_run{};
  /// Of replicas that are alike only one is priced; the step is the same. False: all of them are.
  bool folds = true;
};

/// Prices that the estimators of one search share: of layers, of tensors with their readers, of
/// buckets, of whole plans.
class PriceCache {
 public:
  struct Counts {
    std::int64_t plans = 0;   ///< whose price was asked for
    std::int64_t known = 0;   ///< of them those that had been asked for before
    std::int64_t needed = 0;  ///< fragments of the others
    std::int64_t made = 0;    ///< of them those that no cache had
  };
  explicit PriceCache(const StepInput& input);
  ~PriceCache();
  PriceCache(const PriceCache&) = delete;
  PriceCache& operator=(const PriceCache&) = delete;
  [[nodiscard]] const Counts& counts() const;
  /// memory_use() of a plan for the input's network and cluster, without any prices.
  [[nodiscard]] std::vector<MemoryUse> memory(const Plan& plan);
  /// What a micro-batch runs of a part of a layer, forward and backward (passes_of), which is
  /// remembered for all layers like it. Nothing where these are few: kernels' models take no longer
  /// than a look-up.
  [[nodiscard]] std::optional<Seconds> layer_time(LayerId layer, const Part& part, DeviceId device);

 private:
  friend class Estimator;
  struct State;
  std::unique_ptr<State> state_;
};

/// Step times of plans for one network, cluster and cost model.
///
/// Walks through the step as lower() does, but computes times instead of emitting operations. Costs
/// of single layers, of a tensor with its readers, and of a bucket are computed once and cached, so
/// a plan that differs from an earlier one in one layer costs one walk: about ten microseconds for
/// a hundred layers on eight devices.
///
/// With LinkSharing::ignored the result is the list schedule of lower(plan) with every operation at
/// its time on an otherwise idle cluster (checked: tests/lowering/estimate_test.cpp). With
/// ::queued it is the same where no two communications meet, and close to the simulator elsewhere.
class Estimator {
 public:
  static constexpr Seconds unlimited{std::numeric_limits<double>::infinity()};
  explicit Estimator(const StepInput& input, LinkSharing sharing = LinkSharing::queued);
  ~Estimator();
  Estimator(const Estimator&) = delete;
  Estimator& operator=(const Estimator&) = delete;

  /// Time of one step. The plan must be valid for the network and cluster; its precisions
  /// and optimizer are taken to be the input's. Throws InputError for a plan that cannot be
  /// lowered. Of a plan that takes `limit` or longer, any time from `limit` on: a search that looks
  /// for shorter ones need not wait for it.
  [[nodiscard]] Seconds step_time(const Plan& plan, Seconds limit = unlimited);
  /// memory_use() of a plan at the plan's own precisions, as quick.
  [[nodiscard]] std::vector<MemoryUse> memory(const Plan& plan);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace parsim::lowering
