// What every cost model of kernels has in common: the costs of links, and rates by type of device.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "core/cost_model.hpp"
#include "core/fp8.hpp"
#include "sim/collectives.hpp"
#include "sim/kernels.hpp"

namespace parsim::sim {

/// Times of messages and collectives on an otherwise idle cluster. Holds a reference to it.
class NetworkCosts : public CostModel {
 public:
  NetworkCosts(const Cluster& cluster, const SimOptions& options)
      : options_(options), paths_(cluster) {}

  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const final;
  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const final;

  /// As the kernels of the fusion (sim/optimizer_step.hpp).
  [[nodiscard]] Cost update(DeviceId device, const OptimizerStep& step) const final;

  /// By model.
  [[nodiscard]] std::int32_t alike(DeviceId device) const final { return cluster()[device].model; }

 protected:
  /// Of an operator over so many bytes.
  [[nodiscard]] virtual Cost moved(DeviceId device, Bytes touched, Operator /*op*/) const {
    return memory(device, touched);
  }
  [[nodiscard]] Fusion fusion() const { return options_.fusion; }
  [[nodiscard]] const Cluster& cluster() const { return paths_.cluster(); }
  /// Bytes that a cast to FP8 of so many elements reads and writes on a device, and its kernels.
  struct CastWork {
    Bytes touched;
    double launches = 1;
  };
  [[nodiscard]] CastWork cast_work(DeviceId device, Precision precision, double elements) const {
    const Fp8Cast cast = fp8_cast(precision, cluster().model(device));
    return {{std::llround(cast.bytes * elements)}, cast.launches};
  }
  /// `rates_of(model, precision)` for every type of device and precision without FP8, as at() finds
  /// them.
  [[nodiscard]] auto by_model(auto rates_of) const {
    std::vector<decltype(rates_of(DeviceModel{}, Precision{}))> rates;
    for (const DeviceModel& model : cluster().models) {
      for (std::size_t p = 0; p < precisions; ++p) {
        rates.push_back(rates_of(model, static_cast<Precision>(p)));
      }
    }
    return rates;
  }
  [[nodiscard]] std::size_t at(DeviceId device, Precision precision) const {
    return static_cast<std::size_t>(cluster()[device].model) * precisions +
           static_cast<std::size_t>(without_fp8(precision));
  }

 private:
  static constexpr std::size_t precisions = 4;
  SimOptions options_;
  mutable PathCache paths_;  ///< found on demand; not part of the value
};

}  // namespace parsim::sim
