// The shape-aware cost model: GEMMs and convolutions by whole tiles in waves (sim/tiles.hpp), other
// kernels by the bytes that they read and write.
#include <algorithm>
#include <optional>

#include "sim/coefficients.hpp"
#include "sim/network_costs.hpp"
#include "sim/sim.hpp"
#include "sim/tiles.hpp"

namespace parsim::sim {

namespace {

/// Part of the memory rate that element-wise kernels, normalisation, pooling and copies reach.
/// Guessed once for all GPUs.
constexpr double memory_bound_efficiency = 0.75;
/// Normalisation before Volta: libraries of the time give a channel to one thread block, which
/// reads memory with a stride. Fitted to the rows of TensorFlow's benchmarks on one P100 that are
/// marked for calibration (validation/measurements).
constexpr double old_norm_efficiency = 0.35;
constexpr double first_fast_norms = 7.0;
/// Fraction of the peak that fused attention reaches, because of the softmax between its matmuls.
/// Guessed for all GPUs from FlashAttention-2: 50 to 73 % of an A100 (Dao 2023, abstract); 35 % of
/// an H100, whose wgmma and TMA instructions it does not use (Shah et al. 2024, "FlashAttention-3",
/// abstract, which reaches up to 75 % with them).
constexpr double attention_efficiency = 0.55, attention_efficiency_on_hopper = 0.35;
constexpr double hopper = 9.0;
/// Launch overhead of a tiny kernel. Guessed: a few microseconds on all GPUs. The fitted overheads
/// of GEMMs contain more than that (up to 40 us), which small memory-bound kernels do not pay.
constexpr double memory_bound_overhead = 5e-6;

class TileCosts final : public NetworkCosts {
 public:
  TileCosts(const Cluster& cluster, const SimOptions& options)
      : NetworkCosts(cluster, options), devices_(by_model(device_of)) {}

  [[nodiscard]] Cost compute(const Network& network, LayerId id, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    const OneDevice& rates = devices_[at(device, precision)];
    Seconds time{};
    for (const Kernel& kernel : kernels_of(network, id, part, pass)) {
      time += kernel_time(kernel, rates, element_bytes(precision));
    }
    return {time, rates.origin};
  }

  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    const OneDevice& rates = devices_[at(device, Precision::fp32)];
    return {Seconds{static_cast<double>(touched.value) / rates.memory_bound +
                    rates.memory_bound_overhead},
            rates.origin};
  }

  [[nodiscard]] std::string summary() const override {
    return "GEMMs and convolutions by a tile model fitted to DeepBench, other kernels by memory "
           "bandwidth; devices without data are scaled from the most similar one (guessed)";
  }

  [[nodiscard]] std::string accuracy(Precision precision) const override {
    return kernel_accuracy(cluster(), precision, &Coefficients::tiles);
  }

 private:
  struct OneDevice {
    std::optional<TileRates> tiles;    ///< nothing for CPUs
    std::array<double, 4> by_class{};  ///< CPUs: FLOP/s
    double peak = 1, memory_bound = 1, norm = 1, attention = 1, memory_bound_overhead = 0;
    Origin origin = Origin::guessed;
  };

  static OneDevice device_of(const DeviceModel& model, Precision precision) {
    OneDevice device;
    device.peak = peak_of(model, precision);
    if (model.kind == DeviceKind::cpu) {
      for (std::size_t kind = 0; kind < device.by_class.size(); ++kind) {
        device.by_class[kind] = device.peak * cpu_efficiency.of(static_cast<KernelClass>(kind));
      }
      device.memory_bound = model.memory_rate.value * cpu_efficiency.memory;
      device.norm = device.memory_bound;
      device.memory_bound_overhead = cpu_efficiency.overhead;
      return device;
    }
    const auto [row, origin] = coefficients_of(model, precision);
    device.tiles = tile_rates(*row, std::max(1, model.multiprocessors), FlopsPerSecond{device.peak},
                              model.memory_rate);
    device.tiles->spectral = device.peak == peak_of(model, Precision::fp32);
    device.memory_bound = model.memory_rate.value * memory_bound_efficiency;
    device.norm = row->architecture < first_fast_norms
                      ? model.memory_rate.value * old_norm_efficiency
                      : device.memory_bound;
    device.memory_bound_overhead = std::min(memory_bound_overhead, row->tiles.overhead);
    device.attention =
        device.peak * (compute_capability(model) >= hopper ? attention_efficiency_on_hopper
                                                           : attention_efficiency);
    device.origin = origin;
    return device;
  }

  static Seconds kernel_time(const Kernel& kernel, const OneDevice& device, std::int64_t bytes) {
    const double rate = kernel.normalises ? device.norm : device.memory_bound;
    const double memory_bound = kernel.elements * static_cast<double>(bytes) / rate;
    if (kernel.kind == KernelClass::memory) {
      return Seconds{std::max(memory_bound, kernel.flops / device.peak) +
                     device.memory_bound_overhead};
    }
    if (device.tiles) {
      const Seconds gemms = gemm_time(kernel, *device.tiles, bytes);
      if (!kernel.attends) return gemms;
      return std::max(gemms,
                      Seconds{kernel.flops / device.attention + device.memory_bound_overhead});
    }
    const double gemms = kernel.flops / device.by_class[static_cast<std::size_t>(kernel.kind)];
    return Seconds{std::max(memory_bound, gemms) + device.memory_bound_overhead};
  }

  std::vector<OneDevice> devices_;  ///< by model, then precision
};

}  // namespace

std::unique_ptr<CostModel> make_tile_costs(const Cluster& cluster, const SimOptions& options) {
  return std::make_unique<TileCosts>(cluster, options);
}

}  // namespace parsim::sim
