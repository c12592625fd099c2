// The simplest cost model of kernels that is of use: every class of operation reaches a constant
// part of the device's peak, memory a constant part of its rate, and every kernel costs a constant
// on top.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "core/errors.hpp"
#include "sim/collectives.hpp"
#include "sim/sim.hpp"

namespace parsim {

namespace {

/// Parts of the peak (of the memory rate for `memory`) that kernels reach on one device and
/// precision. Above 1 is possible: Winograd's convolutions multiply less than is counted.
struct Efficiency {
  std::string_view family;  ///< device models whose name begins so
  bool half = false;        ///< 16-bit operands
  double architecture = 0;  ///< compute capability
  double memory_rate = 0;   ///< of the measured card, bytes/s; tells relatives apart
  double gemm = 0, forward = 0, backward_data = 0, backward_weights = 0;
  double memory = 0;
  double overhead_us = 0;
};

// Fitted to DeepBench's published training kernels (github.com/baidu-research/DeepBench,
// results/train: 4,793 GEMMs and convolutions on these cards, cuDNN 5 to 7.6), half of the rows to
// fit and half to test: median error 12 to 26 % per kernel. Some bounds of the fit were reached
// (memory 0.45, overhead 40 us).
constexpr std::array measured_efficiency{
    Efficiency{"m40", false, 5.2, 288e9, 0.65, 0.53, 0.45, 0.40, 0.45, 40.0},
    Efficiency{"titanx-maxwell", false, 5.2, 336e9, 0.70, 0.57, 0.49, 0.44, 0.45, 40.0},
    Efficiency{"titanx-pascal", false, 6.1, 480e9, 0.89, 0.84, 0.87, 0.56, 0.45, 40.0},
    Efficiency{"titanxp", false, 6.1, 548e9, 0.82, 0.82, 0.78, 0.51, 0.45, 31.04},
    Efficiency{"gtx-1080ti", false, 6.1, 484e9, 0.97, 1.02, 0.98, 0.61, 0.61, 40.0},
    Efficiency{"p100", false, 6.0, 732e9, 0.97, 0.84, 0.71, 0.64, 0.45, 40.0},
    Efficiency{"v100", false, 7.0, 900e9, 0.87, 0.93, 0.86, 0.60, 0.85, 25.61},
    Efficiency{"v100", true, 7.0, 900e9, 0.81, 0.59, 0.41, 0.48, 0.77, 13.12},
    Efficiency{"t4", false, 7.5, 320e9, 0.50, 0.52, 0.46, 0.34, 0.45, 11.81},
    Efficiency{"t4", true, 7.5, 320e9, 0.60, 0.51, 0.40, 0.30, 0.92, 19.83},
};

/// A CPU's: a good matrix library, convolutions somewhat worse. A guess.
constexpr Efficiency cpu_efficiency{"", false, 0, 0, 0.6, 0.5, 0.4, 0.4, 0.6, 2.0};

/// Cards without a compute capability (AMD's) are of the years after Volta.
constexpr double architecture_of_others = 8.0;

double architecture(const DeviceModel& model) {
  double number = 0;
  const char* const end = model.architecture.data() + model.architecture.size();
  const auto [stop, error] = std::from_chars(model.architecture.data(), end, number);
  return error == std::errc{} && stop == end ? number : architecture_of_others;
}

struct Borrowed {
  const Efficiency* row = nullptr;
  Origin origin = Origin::guessed;
};

/// The row of the card itself, else of its nearest relative: of the nearest generation (whole
/// number of the compute capability), among those of the nearest memory rate, because that is what
/// separates big cards from small ones of one generation. Equal distances: the earlier row.
Borrowed efficiency_of(const DeviceModel& model, Precision precision) {
  if (model.kind == DeviceKind::cpu) return {&cpu_efficiency, Origin::guessed};
  const bool half = precision == Precision::fp16 || precision == Precision::bf16;
  for (const Efficiency& row : measured_efficiency) {
    // tf32 runs on tensor cores, which only the rows for 16 bits know.
    const bool same = half == row.half && precision != Precision::tf32 &&
                      precision != Precision::bf16 && model.name.starts_with(row.family);
    if (same) return {&row, Origin::modelled};
  }
  const bool tensor_cores =
      precision != Precision::fp32 &&
      model.peak_at(precision).value > 2.5 * model.peak_at(Precision::fp32).value;
  Borrowed nearest;
  std::pair<double, double> least{std::numeric_limits<double>::infinity(), 0};
  for (const Efficiency& row : measured_efficiency) {
    if (row.half != tensor_cores) continue;
    const std::pair distance{
        std::abs(std::floor(architecture(model)) - std::floor(row.architecture)),
        std::abs(std::log(std::max(model.memory_rate.value, 1.0) / row.memory_rate))};
    if (distance < least) {
      least = distance;
      nearest.row = &row;
    }
  }
  return nearest;
}

/// What a pass of a part reads and writes, in elements, and multiplies.
struct Volume {
  double in = 0, out = 0, parameters = 0;
  double flops = 0;
};

Volume volume_of(const Network& network, LayerId id, const Part& part) {
  const Layer& layer = network[id];
  const std::vector<Shape> shapes = input_shapes(network, id);
  Volume volume;
  volume.out = static_cast<double>(part.out.volume());
  const bool looks_up = layer.kind.as<Embedding>() != nullptr;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Region in = input_region(layer.kind, shapes, layer.out, i, part);
    volume.in += static_cast<double>(in.volume());
  }
  for (std::size_t i = 0; i < layer.parameters.size() && !looks_up; ++i) {
    const Region box = parameter_region(layer.kind, shapes, layer.out, i, part);
    volume.parameters += static_cast<double>(box.volume());
  }
  // A look-up touches the rows it needs, as many elements as it writes.
  if (looks_up) volume.parameters = volume.out;
  volume.flops = forward_flops(layer.kind, shapes, layer.out, part).value;
  return volume;
}

class ConstantEfficiency final : public CostModel {
 public:
  explicit ConstantEfficiency(const Cluster& cluster) : cluster_(cluster), ways_(cluster) {
    for (const DeviceModel& model : cluster.models) {
      for (std::size_t p = 0; p < precisions; ++p) {
        rates_.push_back(rates_of(model, static_cast<Precision>(p)));
      }
    }
  }

  [[nodiscard]] Cost compute(const Network& network, LayerId id, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    const Rates& rates = rates_on(device, precision);
    const LayerKind& kind = network[id].kind;
    const Rearrange* rearrange = kind.as<Rearrange>();
    const bool free = kind.as<Input>() != nullptr || kind.as<Flatten>() != nullptr ||
                      (rearrange != nullptr && !rearrange->moves_data);
    if (free) return {Seconds{0}, rates.origin};
    const Volume v = volume_of(network, id, part);
    const double bytes = static_cast<double>(element_bytes(precision));
    const auto kernel = [&](double flops, double rate, double elements) {
      return Seconds{std::max(flops / rate, elements * bytes / rates.memory) + rates.overhead};
    };
    const bool backwards = pass != Pass::forward && pass != Pass::recompute;
    const double all = v.in + v.out + v.parameters;
    if (v.flops <= 0) {
      // Backwards reads the arriving gradient and the activation, and writes the leaving one.
      return {kernel(0, 1, backwards ? all + v.in : all), rates.origin};
    }
    const bool convolution = kind.as<Conv>() != nullptr;
    const double forward_rate = convolution ? rates.forward : rates.gemm;
    if (!backwards) return {kernel(v.flops, forward_rate, all), rates.origin};
    // A product of two activations has two input gradients, each as much work as the product.
    const bool two_operands = kind.as<MatMul>() != nullptr;
    Seconds time{};
    if (pass != Pass::backward_weights) {
      const Seconds data = kernel(v.flops, convolution ? rates.backward_data : rates.gemm, all);
      time += two_operands ? 2 * data : data;
    }
    if (pass != Pass::backward_data && !two_operands) {
      time += kernel(v.flops, convolution ? rates.backward_weights : rates.gemm, all);
    }
    return {time, rates.origin};
  }

  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    const Rates& rates = rates_on(device, Precision::fp32);
    return {touched / BytesPerSecond{rates.memory} + Seconds{rates.overhead}, rates.origin};
  }

  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const override {
    if (from == to) return memory(from, 2 * payload).time;
    const Route& route = ways_.between(from, to);
    return route.latency + payload / route.rate;
  }

  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const override {
    return group.size() < 2 ? Seconds{0} : collective_time(kind, group, payload, ways_);
  }

  [[nodiscard]] std::string summary() const override {
    return "constant efficiency per device and class of operation (gemm, convolution forward and "
           "backward, memory), fitted to DeepBench's kernels; other devices borrow from the "
           "nearest relative (guessed)";
  }

 private:
  static constexpr std::size_t precisions = 4;

  /// FLOP/s and bytes/s that are reached, seconds on top of each kernel.
  struct Rates {
    double gemm = 0, forward = 0, backward_data = 0, backward_weights = 0;
    double memory = 0, overhead = 0;
    Origin origin = Origin::guessed;
  };

  static Rates rates_of(const DeviceModel& model, Precision precision) {
    const auto [row, origin] = efficiency_of(model, precision);
    ensure(row != nullptr, "every device has a relative");
    const double emulated = model.peak_at(Precision::fp32).value;
    const double peak = std::max(model.peak_at(precision).value, emulated);
    return {peak * row->gemm,
            peak * row->forward,
            peak * row->backward_data,
            peak * row->backward_weights,
            model.memory_rate.value * row->memory,
            row->overhead_us * 1e-6,
            origin};
  }

  [[nodiscard]] const Rates& rates_on(DeviceId device, Precision precision) const {
    const auto model = static_cast<std::size_t>(cluster_[device].model);
    return rates_[model * precisions + static_cast<std::size_t>(precision)];
  }

  const Cluster& cluster_;
  std::vector<Rates> rates_;  ///< by model, then precision
  mutable Ways ways_;         ///< found on demand; not part of the value
};

}  // namespace

std::unique_ptr<CostModel> make_constant_efficiency(const Cluster& cluster) {
  return std::make_unique<ConstantEfficiency>(cluster);
}

}  // namespace parsim
