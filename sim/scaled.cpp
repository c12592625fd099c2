#include <fmt/format.h>

#include "core/errors.hpp"
#include "sim/sim.hpp"

namespace parsim {

namespace {

class Scaled final : public CostModel {
 public:
  Scaled(const CostModel& base, double factor) : base_(base), factor_(factor) {
    ensure(factor > 0, "a factor of times is positive");
  }

  [[nodiscard]] Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    Cost cost = base_.compute(network, layer, part, pass, device, precision);
    cost.time *= factor_;
    return cost;
  }
  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    return base_.memory(device, touched);
  }
  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const override {
    return base_.transfer(from, to, payload);
  }
  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const override {
    return base_.collective(kind, group, payload);
  }
  [[nodiscard]] std::string summary() const override {
    return fmt::format("{}; kernels x {:.3g}", base_.summary(), factor_);
  }

 private:
  const CostModel& base_;
  double factor_;
};

}  // namespace

std::unique_ptr<CostModel> make_scaled(const CostModel& base, double factor) {
  return std::make_unique<Scaled>(base, factor);
}

}  // namespace parsim
