// A cost model that changes some of another's costs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/cost_model.hpp"

namespace parsim::experiment {

/// Costs what `base` does, but for what a class derived from it changes.
class ChangedCosts : public CostModel {
 public:
  explicit ChangedCosts(std::unique_ptr<CostModel> base) : base_(std::move(base)) {}

  [[nodiscard]] std::int32_t alike(DeviceId device) const override { return base_->alike(device); }
  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    return base_->memory(device, touched);
  }
  [[nodiscard]] Cost update(DeviceId device, const OptimizerStep& step) const override {
    return base_->update(device, step);
  }
  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const override {
    return base_->transfer(from, to, payload);
  }
  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const override {
    return base_->collective(kind, group, payload);
  }
  [[nodiscard]] std::optional<Seconds> communication(const ExecDag& dag, OpId id) const override {
    return base_->communication(dag, id);
  }

 protected:
  std::unique_ptr<CostModel> base_;
};

}  // namespace parsim::experiment
