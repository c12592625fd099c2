#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/errors.hpp"
#include "sim/sim.hpp"

namespace parsim {

namespace {

/// Another model with some times changed.
class Changed : public CostModel {
 public:
  explicit Changed(const CostModel& base) : base_(base) {}

  [[nodiscard]] Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    return base_.compute(network, layer, part, pass, device, precision);
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
  [[nodiscard]] std::optional<Seconds> communication(const ExecDag& dag, OpId id) const override {
    return base_.communication(dag, id);
  }
  [[nodiscard]] std::string summary() const override { return base_.summary(); }
  [[nodiscard]] std::string accuracy(Precision precision) const override {
    return base_.accuracy(precision);
  }

 protected:
  const CostModel& base_;
};

class Scaled final : public Changed {
 public:
  Scaled(const CostModel& base, double factor) : Changed(base), factor_(factor) {
    ensure(factor > 0, "a factor of times is positive");
  }

  [[nodiscard]] Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    Cost cost = base_.compute(network, layer, part, pass, device, precision);
    cost.time *= factor_;
    return cost;
  }
  [[nodiscard]] std::string summary() const override {
    return fmt::format("{}; kernels x {:.3g}", base_.summary(), factor_);
  }

 private:
  double factor_;
};

class Slowed final : public Changed {
 public:
  Slowed(const CostModel& base, std::vector<double> factors)
      : Changed(base), factors_(std::move(factors)) {
    ensure(std::all_of(factors_.begin(), factors_.end(), [](double f) { return f > 0; }),
           "a factor of times is positive");
  }

  [[nodiscard]] Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    return slowed(base_.compute(network, layer, part, pass, device, precision), device);
  }
  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    return slowed(base_.memory(device, touched), device);
  }
  [[nodiscard]] std::string summary() const override {
    const auto others =
        std::count_if(factors_.begin(), factors_.end(), [](double factor) { return factor != 1; });
    return fmt::format("{}; stragglers: {} of {} devices", base_.summary(), others,
                       factors_.size());
  }

 private:
  [[nodiscard]] Cost slowed(Cost cost, DeviceId device) const {
    cost.time *= factors_.at(device.index());
    return cost;
  }

  std::vector<double> factors_;
};

}  // namespace

std::unique_ptr<CostModel> make_scaled(const CostModel& base, double factor) {
  return std::make_unique<Scaled>(base, factor);
}

std::unique_ptr<CostModel> make_slowed(const CostModel& base, std::vector<double> factors) {
  return std::make_unique<Slowed>(base, std::move(factors));
}

}  // namespace parsim
