// The shape-aware cost model: GEMMs and convolutions by whole tiles in waves (sim/tiles.hpp; 16-bit
// GEMMs of cards with measurements of their own: sim/gemm_interpolation.hpp), other kernels by the
// bytes that they read and write.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "sim/attention_model.hpp"
#include "sim/coefficients.hpp"
#include "sim/gemm_interpolation.hpp"
#include "sim/host_launches.hpp"
#include "sim/least_kernels.hpp"
#include "sim/network_costs.hpp"
#include "sim/operator_rates.hpp"
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
/// From here on, operators of PyTorch are priced as they were timed on Hopper
/// (sim/operator_rates.hpp). Older cards run other kernels, and frameworks of their time.
constexpr double first_with_operators = 8.0;
constexpr std::int64_t aligned_bytes = 16, fp32_bytes = 4;
/// Launch overhead of a tiny kernel. Guessed: a few microseconds on all GPUs. The fitted overheads
/// of GEMMs contain more than that (up to 40 us), which small memory-bound kernels do not pay.
constexpr double memory_bound_overhead = 5e-6;
/// The same where it was measured: element-wise kernels of Hopper take 1.1 to 1.7 us more than
/// their bytes (operator_rates.csv), and steps 1.2 us more than each of their kernels
/// (validation/records, pytorch.txt: step, kernels and launches).
constexpr double measured_overhead = 2.5e-6;

class TileCosts final : public NetworkCosts {
 public:
  TileCosts(const Cluster& cluster, const SimOptions& options)
      : NetworkCosts(cluster, options),
        devices_(by_model([&](const DeviceModel& model, Precision precision) {
          return device_of(model, precision, options.attention_kernel);
        })) {
    for (const DeviceModel& model : cluster.models) {
      for (const Precision recipe : {Precision::fp8, Precision::fp8_blockwise}) {
        auto gemms = gemm_model_of(model, recipe);
        auto& one = fp8_.emplace_back();
        if (!gemms) continue;
        const bool own = gemms->device == model.name;
        one.emplace(Fp8Gemms{GemmInterpolation(*std::move(gemms)), own});
      }
    }
  }

  [[nodiscard]] Cost compute(const Network& network, LayerId id, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    const OneDevice& rates = devices_[at(device, precision)];
    Cost cost{Seconds{}, rates.origin, 0};
    bool near = true;
    const Fp8Gemms* fp8 = fp8_gemms(device, precision);
    bool borrows = false;
    for (const Kernel& kernel : kernels_of(network, id, part, pass, fusion(), fp8 != nullptr)) {
      if (kernel.casts > 0) {
        const CastWork cast = cast_work(device, precision, kernel.casts);
        cost.time += Seconds{static_cast<double>(cast.touched.value) / rates.memory_bound +
                             cast.launches * rates.memory_bound_overhead};
        cost.launches += cast.launches;
        continue;
      }
      cost.launches += host_launches(kernel, element_bytes(precision));
      if (kernel.in_fp8) {
        const GemmTime gemm = time_of(fp8->gemms, kernel);
        cost.time += gemm.time;
        near &= gemm.near && fp8->own;
        borrows |= fp8->gemms.model().borrowed;
        cost.origin = borrows ? Origin::guessed : near ? Origin::published : Origin::modelled;
      } else if (rates.gemms && is_gemm(kernel)) {
        const GemmTime gemm = time_of(*rates.gemms, kernel);
        const std::int64_t row_bytes = kernel.row_alignment * element_bytes(precision);
        if (row_bytes < aligned_bytes) {
          cost.time += gemm.time * rates.tiles->factors.of(kernel, row_bytes);
          near = false;
        } else {
          cost.time += gemm.time;
          // Rows of another card with the same chip are not this card's.
          near &= gemm.near && rates.own_gemms;
        }
        // A layer has GEMMs only, or none.
        cost.origin = rates.gemms->model().borrowed ? Origin::guessed
                      : near                        ? Origin::published
                                                    : Origin::modelled;
      } else {
        cost.time += kernel_time(kernel, rates, element_bytes(precision));
        if (is_convolution(kernel) && (!rates.own_convolutions || guesses_groups(kernel, rates))) {
          cost.origin = Origin::guessed;
        }
        if (kernel.attends && rates.attention.model) cost.origin = rates.attention.origin;
      }
    }
    return cost;
  }

  [[nodiscard]] std::optional<LeastTime> least_time(const Network& network, LayerId id,
                                                    std::int64_t samples, Pass pass,
                                                    DeviceId device,
                                                    Precision precision) const override {
    const OneDevice& rates = devices_[at(device, precision)];
    LeastTime all;
    const Fp8Gemms* fp8 = fp8_gemms(device, precision);
    for (const LeastKernel& kernel :
         least_kernels(network, id, samples, pass, fusion(), fp8 != nullptr)) {
      LeastTime one = least_kernel_time(kernel, rates, element_bytes(precision));
      if (kernel.whole.in_fp8) {
        const LeastTime in_fp8 = least_gemm_time(kernel, fp8->gemms);
        one = {std::min(one.fixed, in_fp8.fixed), std::min(one.whole, in_fp8.whole)};
      }
      all.fixed += one.fixed;
      all.whole += one.whole;
    }
    return all;
  }

  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    const OneDevice& rates = devices_[at(device, Precision::fp32)];
    return {Seconds{static_cast<double>(touched.value) / rates.memory_bound +
                    rates.memory_bound_overhead},
            rates.origin};
  }

 protected:
  [[nodiscard]] Cost moved(DeviceId device, Bytes touched, Operator op) const override {
    const OneDevice& rates = devices_[at(device, Precision::fp32)];
    Kernel kernel;
    kernel.op = op;
    const OperatorRate* rate = rate_of(kernel, rates);
    if (rate == nullptr) return memory(device, touched);
    kernel.elements = static_cast<double>(touched.value);
    return {operator_time(*rate, kernel, 1, rates.memory_rate, rates.multiprocessors),
            rates.origin};
  }

 public:
  [[nodiscard]] std::string summary() const override {
    std::vector<std::string> own;
    for (const DeviceModel& model : cluster().models) {
      const auto gemms = gemm_model_of(model, Precision::bf16);
      if (gemms && !gemms->borrowed) own.push_back(model.name);
    }
    const std::string others =
        "GEMMs and convolutions by a tile model fitted to kernels measured on the card or its "
        "family (DeepBench up to Turing, NeuSight on A100, our own on Hopper), other kernels by "
        "memory bandwidth, from Ampere on by PyTorch operators timed on Hopper; devices without "
        "data are scaled from the most similar one (guessed)";
    if (own.empty()) return others;
    return fmt::format(
        "16-bit GEMMs on {} by a tile model fitted to aiconfigurator's measurements of that card, "
        "under sustained load; other {}",
        join(own), others);
  }

  [[nodiscard]] std::string accuracy(Precision precision) const override {
    std::vector<std::string> gemms_of;
    bool known = false;
    for (const DeviceModel& model : cluster().models) {
      const auto gemms = gemm_model_of(model, precision);
      if (!gemms) continue;
      const bool scaled = gemms->borrowed || gemms->device != model.name;
      known |= !scaled;
      gemms_of.push_back(
          scaled ? fmt::format("{} unknown (scaled from {} data)", model.name, gemms->device)
                 : fmt::format("{} {:.3g} % (90 % of shapes within {:.3g} %)", model.name,
                               100 * gemms->held_out_mean, 100 * gemms->held_out_p90));
    }
    const std::string others =
        kernel_accuracy(cluster(), without_fp8(precision), &Coefficients::tiles);
    if (gemms_of.empty()) return others;
    return fmt::format("GEMMs: {}{}; other kernels: {}", join(gemms_of),
                       known ? ", mean over held-out shapes" : "", others);
  }

 private:
  struct OneDevice {
    std::optional<TileRates> tiles;          ///< nothing for CPUs
    std::optional<TileRates> fp32;           ///< what libraries may take in other precisions
    std::optional<GemmInterpolation> gemms;  ///< of cards whose GEMMs were measured
    bool own_gemms = false;                  ///< on this card, not on one with the same chip
    AttentionRates attention;                ///< without a model for CPUs
    int multiprocessors = 1;
    std::array<double, 4> by_class{};  ///< CPUs: FLOP/s
    double peak = 1, memory_bound = 1, norm = 1, memory_bound_overhead = 0;
    double memory_rate = 1;  ///< bytes/s of the data sheet
    bool times_operators = false;
    bool own_convolutions = true;
    Origin origin = Origin::guessed;
  };

  /// Products in FP8 of a type of device.
  struct Fp8Gemms {
    GemmInterpolation gemms;
    bool own = false;  ///< measured on this card
  };
  /// Null without FP8.
  [[nodiscard]] const Fp8Gemms* fp8_gemms(DeviceId device, Precision precision) const {
    if (!multiplies_in_fp8(precision)) return nullptr;
    const auto model = static_cast<std::size_t>(cluster()[device].model);
    const auto& found = fp8_[2 * model + (precision == Precision::fp8_blockwise ? 1 : 0)];
    return found ? &*found : nullptr;
  }

  static TileRates tiles_of(const DeviceModel& model, Precision precision) {
    const Coefficients& row = *coefficients_of(model, precision).row;
    const double peak = peak_of(model, precision);
    TileRates rates = tile_rates(row, std::max(1, model.multiprocessors), FlopsPerSecond{peak},
                                 model.memory_rate);
    // Alignment was measured on this generation only; another's card may borrow its row.
    if (to_number<double>(model.architecture).value_or(0) != row.architecture) {
      rates.factors.unaligned.fill(1);
    }
    rates.spectral = peak == peak_of(model, Precision::fp32);
    return rates;
  }

  static OneDevice device_of(const DeviceModel& model, Precision precision,
                             AttentionKernel attention) {
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
    if (auto gemms = gemm_model_of(model, precision)) {
      device.own_gemms = gemms->device == model.name;
      device.gemms.emplace(*std::move(gemms));
    }
    const auto [row, origin] = coefficients_of(model, precision);
    device.tiles = tiles_of(model, precision);
    if (precision != Precision::fp32) device.fp32 = tiles_of(model, Precision::fp32);
    device.memory_bound = model.memory_rate.value * memory_bound_efficiency;
    device.norm = row->architecture < first_fast_norms
                      ? model.memory_rate.value * old_norm_efficiency
                      : device.memory_bound;
    // AMD's cards have no compute capability, and other libraries.
    device.times_operators =
        to_number<double>(model.architecture).value_or(0) >= first_with_operators;
    device.memory_bound_overhead =
        device.times_operators ? measured_overhead : memory_bound_overhead;
    device.attention = attention_rates(model, attention);
    // Measured in 16 bits only; in others the same part of their peaks is a guess.
    if (precision != Precision::fp16 && precision != Precision::bf16) {
      device.attention.origin = Origin::guessed;
    }
    device.multiprocessors = std::max(1, model.multiprocessors);
    device.memory_rate = model.memory_rate.value;
    device.own_convolutions = row->own_convolutions;
    device.origin = origin;
    return device;
  }

  /// No table of kernels has convolutions in groups but Hopper's, and that none of even ones in
  /// FP32.
  static bool guesses_groups(const Kernel& kernel, const OneDevice& device) {
    const bool grouped =
        kernel.shape == KernelShape::grouped || kernel.shape == KernelShape::even_groups;
    return grouped && device.tiles && device.tiles->factors.of(kernel, aligned_bytes) == 1;
  }

  static bool is_gemm(const Kernel& kernel) {
    return kernel.kind == KernelClass::gemm && !kernel.attends;
  }

  /// A training step launches one kernel after another: the load is sustained.
  static GemmTime time_of(const GemmInterpolation& gemms, const Kernel& kernel) {
    const std::int64_t m = kernel.exchanged ? kernel.n : kernel.m;
    const std::int64_t n = kernel.exchanged ? kernel.m : kernel.n;
    const PowerLimit& power = gemms.model().sustained;
    if (kernel.batches == 1) return gemms.time(m, n, kernel.k, power);
    return {gemm_time(gemms.model(), m, n, kernel.k, kernel.batches, power)};
  }

  static const OperatorRate* rate_of(const Kernel& kernel, const OneDevice& device) {
    return device.times_operators ? operator_rate(kernel.op, kernel.backwards) : nullptr;
  }

  static Seconds kernel_time(const Kernel& kernel, const OneDevice& device, std::int64_t bytes) {
    if (const OperatorRate* rate = rate_of(kernel, device)) {
      return operator_time(*rate, kernel, bytes, device.memory_rate, device.multiprocessors);
    }
    const double rate = kernel.normalises ? device.norm : device.memory_bound;
    const double memory_bound = kernel.bytes(bytes) / rate;
    if (kernel.kind == KernelClass::memory) {
      return Seconds{std::max(memory_bound, kernel.flops / device.peak) +
                     kernel.launches * device.memory_bound_overhead};
    }
    if (device.tiles) {
      if (!kernel.attends) {
        const Seconds own = gemm_time(kernel, *device.tiles, bytes);
        return device.fp32 ? std::min(own, gemm_time(kernel, *device.fp32, fp32_bytes)) : own;
      }
      const Seconds attention =
          attention_time(*device.attention.model, kernel, device.peak, device.multiprocessors);
      return std::max(attention, Seconds{memory_bound}) + Seconds{device.memory_bound_overhead};
    }
    const double gemms = kernel.flops / device.by_class[static_cast<std::size_t>(kernel.kind)];
    return Seconds{std::max(memory_bound, gemms) + device.memory_bound_overhead};
  }

  static LeastTime least_kernel_time(const LeastKernel& least, const OneDevice& device,
                                     std::int64_t bytes) {
    const Kernel& kernel = least.whole;
    if (device.gemms && is_gemm(kernel)) return least_gemm_time(least, *device.gemms);
    if (const OperatorRate* operators = rate_of(kernel, device)) {
      const Seconds all =
          operator_time(*operators, kernel, bytes, device.memory_rate, device.multiprocessors);
      const Seconds fixed{operators->overhead * kernel.launches};
      return {fixed, all - fixed};
    }
    const double rate = kernel.normalises ? device.norm : device.memory_bound;
    const double memory_bound = kernel.bytes(bytes) / rate;
    if (kernel.kind == KernelClass::memory) {
      return {Seconds{kernel.launches * device.memory_bound_overhead},
              Seconds{std::max(memory_bound, kernel.flops / device.peak)}};
    }
    if (device.tiles && !kernel.attends) {
      const LeastTime own = least_gemm_time(least, *device.tiles, bytes);
      if (!device.fp32) return own;
      const LeastTime in_fp32 = least_gemm_time(least, *device.fp32, fp32_bytes);
      return {std::min(own.fixed, in_fp32.fixed), std::min(own.whole, in_fp32.whole)};
    }
    const double flops =
        device.tiles
            ? least_attention_time(*device.attention.model, kernel, least.most_keys, device.peak)
                  .count()
            : kernel.flops / device.by_class[static_cast<std::size_t>(kernel.kind)];
    return {Seconds{device.memory_bound_overhead}, Seconds{std::max(memory_bound, flops)}};
  }

  std::vector<OneDevice> devices_;            ///< by model, then precision without FP8
  std::vector<std::optional<Fp8Gemms>> fp8_;  ///< by model: scaled by tensor, by block
};

}  // namespace

std::unique_ptr<CostModel> make_tile_costs(const Cluster& cluster, const SimOptions& options) {
  return std::make_unique<TileCosts>(cluster, options);
}

}  // namespace parsim::sim
