// The simplest cost model of kernels that is of use: every class of operation reaches a constant
// part of the device's peak, memory a constant part of its rate, and every kernel costs a constant
// on top.
#include <algorithm>

#include "sim/coefficients.hpp"
#include "sim/host_launches.hpp"
#include "sim/least_kernels.hpp"
#include "sim/network_costs.hpp"
#include "sim/sim.hpp"

namespace parsim::sim {

namespace {

class ConstantEfficiency final : public NetworkCosts {
 public:
  ConstantEfficiency(const Cluster& cluster, const SimOptions& options)
      : NetworkCosts(cluster, options), rates_(by_model(rates_of)) {}

  [[nodiscard]] Cost compute(const Network& network, LayerId id, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    const Rates& rates = rates_[at(device, precision)];
    double time = 0, launches = 0;
    Origin origin = rates.origin;
    const double gain = fp8_gain(device, precision);
    for (const Kernel& kernel :
         kernels_of(network, id, part, pass, fusion(), multiplies_in_fp8(precision))) {
      if (kernel.casts > 0) {
        const CastWork cast = cast_work(device, precision, kernel.casts);
        time +=
            static_cast<double>(cast.touched.value) / rates.memory + cast.launches * rates.overhead;
        launches += cast.launches;
        continue;
      }
      double gemms =
          kernel.flops > 0 ? kernel.flops / rates.flops[static_cast<std::size_t>(kernel.kind)] : 0;
      if (kernel.in_fp8) gemms /= gain;
      time += std::max(gemms, kernel.bytes(element_bytes(precision)) / rates.memory) +
              kernel.launches * rates.overhead;
      launches += host_launches(kernel, element_bytes(precision));
      if (is_convolution(kernel) && !rates.own_convolutions) origin = Origin::guessed;
    }
    return {Seconds{time}, origin, launches};
  }

  [[nodiscard]] std::optional<LeastTime> least_time(const Network& network, LayerId id,
                                                    std::int64_t samples, Pass pass,
                                                    DeviceId device,
                                                    Precision precision) const override {
    const Rates& rates = rates_[at(device, precision)];
    LeastTime all;
    const double gain = fp8_gain(device, precision);
    for (const LeastKernel& least :
         least_kernels(network, id, samples, pass, fusion(), multiplies_in_fp8(precision))) {
      const Kernel& kernel = least.whole;
      double gemms =
          kernel.flops > 0 ? kernel.flops / rates.flops[static_cast<std::size_t>(kernel.kind)] : 0;
      if (kernel.in_fp8) gemms /= gain;
      all.fixed += Seconds{kernel.launches * rates.overhead};
      all.whole += Seconds{std::max(gemms, kernel.bytes(element_bytes(precision)) / rates.memory)};
    }
    return all;
  }

  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    const Rates& rates = rates_[at(device, Precision::fp32)];
    return {touched / BytesPerSecond{rates.memory} + Seconds{rates.overhead}, rates.origin};
  }

  [[nodiscard]] std::string summary() const override {
    return "a constant fraction of the peak per device and kernel class (GEMM, convolution forward "
           "and backward, memory-bound), fitted to kernels measured on the card or its family; "
           "devices without data are scaled from the most similar one (guessed)";
  }

  [[nodiscard]] std::string accuracy(Precision precision) const override {
    return kernel_accuracy(cluster(), without_fp8(precision), &Coefficients::constant);
  }

 private:
  /// FLOP/s (by class of kernel) and bytes/s that are reached, seconds on top of each kernel.
  struct Rates {
    std::array<double, 5> flops{};
    double memory = 0, overhead = 0;
    bool own_convolutions = true;
    Origin origin = Origin::guessed;
  };

  /// How many times faster than in bf16 products in FP8 are: by the peaks.
  [[nodiscard]] double fp8_gain(DeviceId device, Precision precision) const {
    if (!multiplies_in_fp8(precision)) return 1;
    const DeviceModel& model = cluster().model(device);
    return std::max(1.0, model.fp8_peak.value / peak_of(model, Precision::bf16));
  }

  static Rates rates_of(const DeviceModel& model, Precision precision) {
    const bool cpu = model.kind == DeviceKind::cpu;
    const Borrowed borrowed = cpu ? Borrowed{} : coefficients_of(model, precision);
    const Efficiency& efficiency = cpu ? cpu_efficiency : borrowed.row->constant;
    Rates rates;
    for (std::size_t kind = 0; kind < rates.flops.size(); ++kind) {
      const auto of = static_cast<KernelClass>(kind);
      // A memory-bound kernel with FLOPs is a depthwise convolution: never limited by the peak.
      rates.flops[kind] =
          peak_of(model, precision) * (of == KernelClass::memory ? 1.0 : efficiency.of(of));
      if (!cpu) rates.flops[kind] /= borrowed.row->sustained;
    }
    rates.memory = model.memory_rate.value * efficiency.memory;
    rates.overhead = efficiency.overhead;
    rates.origin = borrowed.origin;
    if (!cpu) rates.own_convolutions = borrowed.row->own_convolutions;
    return rates;
  }

  std::vector<Rates> rates_;  ///< by model, then precision
};

}  // namespace

std::unique_ptr<CostModel> make_constant_efficiency(const Cluster& cluster,
                                                    const SimOptions& options) {
  return std::make_unique<ConstantEfficiency>(cluster, options);
}

}  // namespace parsim::sim
