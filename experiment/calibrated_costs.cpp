#include <utility>

#include "experiment/calibration.hpp"
#include "experiment/changed_costs.hpp"

namespace parsim::experiment {

namespace {

class Calibrated final : public ChangedCosts {
 public:
  Calibrated(std::unique_ptr<CostModel> base, std::vector<double> kernels)
      : ChangedCosts(std::move(base)), kernels_(std::move(kernels)) {}

  [[nodiscard]] Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    Cost cost = base_->compute(network, layer, part, pass, device, precision);
    cost.time *= kernels_.at(device.index());
    return cost;
  }
  [[nodiscard]] std::optional<LeastTime> least_time(const Network& network, LayerId layer,
                                                    std::int64_t samples, Pass pass,
                                                    DeviceId device,
                                                    Precision precision) const override {
    const auto least = base_->least_time(network, layer, samples, pass, device, precision);
    if (!least) return std::nullopt;
    const double factor = kernels_.at(device.index());
    return LeastTime{least->fixed * factor, least->whole * factor};
  }
  [[nodiscard]] std::string summary() const override {
    return base_->summary() + "; calibrated by measured steps";
  }
  [[nodiscard]] std::string accuracy(Precision precision) const override {
    return base_->accuracy(precision);
  }

 private:
  std::vector<double> kernels_;
};

}  // namespace

std::unique_ptr<CostModel> make_calibrated(std::unique_ptr<CostModel> base,
                                           std::vector<double> kernels) {
  return std::make_unique<Calibrated>(std::move(base), std::move(kernels));
}

}  // namespace parsim::experiment
