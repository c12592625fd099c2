#include "sim/coefficients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/profile.hpp"
#include "core/text.hpp"
#include "sim/embedded_table.hpp"

namespace parsim::sim {

namespace {

/// Cards without a compute capability (AMD's) are of the years after Volta.
constexpr double architecture_of_others = 8.0;
/// From here on, a peak well above fp32's means tensor cores.
constexpr double hopper = 9.0;
constexpr double first_with_tensor_cores = 7.0, first_with_bf16 = 8.0;
/// Up to here a power limit, as T4's 70 W, and not the chip decides on the clock.
constexpr Watts low_power{100};

Precision precision_of(const std::string& operands) {
  return operands == "fp16"   ? Precision::fp16
         : operands == "tf32" ? Precision::tf32
                              : Precision::fp32;
}

/// Of Hopper's cards, on which such shapes were timed.
KernelFactors read_kernel_factors(Precision precision) {
  constexpr std::array<std::string_view, 4> classes{"gemm", "forward", "backward_data",
                                                    "backward_weights"};
  constexpr std::array<std::string_view, kernel_shapes> shapes{
      "plain",       "pointwise",    "strided_pointwise", "strided", "grouped",
      "even_groups", "few_channels", "many_taps",         "ragged",  "nn",
      "nt"};
  constexpr std::array<std::string_view, 3> alignments{"unaligned_2", "unaligned_4", "unaligned_8"};
  const auto index = [](const auto& names, const std::string& name) {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const CsvTable table = embedded_table("sim/kernel_factors.csv");
  KernelFactors factors;
  for (const CsvTable::Row& row : table.rows) {
    if (precision_of(table.at(row, "operands")) != precision) continue;
    const std::size_t kind = index(classes, table.at(row, "class"));
    const std::size_t shape = index(shapes, table.at(row, "shape"));
    const std::size_t alignment = index(alignments, table.at(row, "shape"));
    ensure(kind < classes.size() && (shape < shapes.size() || alignment < alignments.size()),
           "sim/kernel_factors.csv names classes and shapes of the enums");
    (shape < shapes.size() ? factors.of_shape[kind][shape] : factors.unaligned[alignment]) =
        table.number(row, "factor");
  }
  return factors;
}

WinogradShares read_winograd(const std::string& family, Precision operands) {
  WinogradShares shares;
  if (operands != Precision::fp32) return shares;
  static const CsvTable table = embedded_table("sim/winograd.csv");
  for (const CsvTable::Row& row : table.rows) {
    if (table.at(row, "family") != family) continue;
    shares = {table.number(row, "fused"), table.number(row, "prologue"),
              table.number(row, "transforms"), table.number(row, "weight_transforms"),
              table.number(row, "direct")};
  }
  return shares;
}

std::vector<Coefficients> read_coefficients() {
  const CsvTable table = embedded_table("sim/coefficients.csv");
  std::vector<Coefficients> all;
  for (const CsvTable::Row& row : table.rows) {
    const auto number = [&](const std::string& column) { return table.number(row, column); };
    const auto efficiency = [&](const std::string& prefix) {
      return Efficiency{number(prefix + "gemm"),
                        number(prefix + "forward"),
                        number(prefix + "backward_data"),
                        number(prefix + "backward_weights"),
                        number(prefix + "memory"),
                        number(prefix + "overhead_us") * 1e-6,
                        number(prefix + "test_error_percent") / 100};
    };
    const Precision operands = precision_of(table.at(row, "operands"));
    all.push_back(
        {table.at(row, "family"), operands, number("architecture"), number("memory_rate") * 1e9,
         efficiency("constant_"), efficiency("tiles_"), number("tiles_area_exponent"),
         number("tiles_step_us") * 1e-6, number("tiles_area_exponent"),
         number("tiles_step_us") * 1e-6, number("tiles_batched_exponent"),
         number("tiles_winograd3"), number("tiles_winograd5"),
         read_winograd(table.at(row, "family"), operands), number("sustained"),
         table.at(row, "convolutions") == "own",
         number("architecture") == hopper ? read_kernel_factors(operands) : KernelFactors{}});
    // Efficiencies hold with what they were fitted with. TF32 has a lender's numbers throughout.
    const std::string& lender = table.at(row, "convolutions");
    const auto lent = std::find_if(all.begin(), all.end(), [&](const Coefficients& other) {
      return other.family == lender && other.operands == operands;
    });
    if (lent == all.end()) continue;
    all.back().convolution_area_exponent = lent->area_exponent;
    all.back().convolution_step = lent->step;
  }
  return all;
}

}  // namespace

double Efficiency::of(KernelClass kind) const {
  switch (kind) {
    case KernelClass::gemm:
      return gemm;
    case KernelClass::forward:
      return forward;
    case KernelClass::backward_data:
      return backward_data;
    case KernelClass::backward_weights:
      return backward_weights;
    case KernelClass::memory:
      return memory;
  }
  throw BrokenInvariant("a class of kernels outside its enum");
}

KernelFactors::KernelFactors() {
  for (auto& shapes : of_shape) shapes.fill(1);
  unaligned.fill(1);
}

double KernelFactors::of(const Kernel& kernel, std::int64_t row_bytes) const {
  if (kernel.kind != KernelClass::gemm || row_bytes > 8) {
    return of_shape[static_cast<std::size_t>(kernel.kind)][static_cast<std::size_t>(kernel.shape)];
  }
  return unaligned[row_bytes > 4 ? 2 : row_bytes > 2 ? 1 : 0];
}

const std::vector<Coefficients>& coefficients() {
  static const std::vector<Coefficients> all = read_coefficients();
  return all;
}

Borrowed coefficients_of(const DeviceModel& model, Precision precision) {
  // BF16 runs as FP16 does, on cards that have it.
  const bool half = precision == Precision::fp16 ||
                    (precision == Precision::bf16 && assumed_capability(model) >= first_with_bf16);
  const Precision operands = half ? Precision::fp16 : precision;
  for (const Coefficients& row : coefficients()) {
    if (row.operands == operands && model.measured_type().starts_with(row.family)) {
      const bool other =
          !model.base.empty() && model.memory_rate.value > same_card * row.memory_rate;
      return {&row, other ? Origin::guessed : Origin::modelled};
    }
  }
  const bool tensor_cores =
      assumed_capability(model) >= first_with_tensor_cores && precision != Precision::fp32 &&
      model.peak_at(precision).value > 1.5 * model.peak_at(Precision::fp32).value;
  Borrowed nearest;
  const auto serves = [&](Precision of_row) {
    if (!tensor_cores) return of_row == Precision::fp32;
    return of_row == Precision::fp16 || (of_row == precision && precision == Precision::tf32);
  };
  const bool slowed_by_power = model.upkeep.power && model.upkeep.power->value <= low_power.value;
  const bool of_nvidia = compute_capability(model).has_value();
  std::tuple<double, bool, double, double, bool> least{std::numeric_limits<double>::infinity(),
                                                       false, 0, 0, false};
  for (const Coefficients& row : coefficients()) {
    // What is itself another card's on tensor cores is not lent on.
    if (!serves(row.operands) || (tensor_cores && !row.own_convolutions)) continue;
    // Nor is what its power limit makes of a card lent to cards without such a limit.
    if (row.sustained > 1 && !slowed_by_power) continue;
    const std::tuple distance{
        std::abs(std::floor(assumed_capability(model)) - std::floor(row.architecture)),
        // Between an older and a newer generation: that of a like power limit, then the newer one.
        slowed_by_power && row.sustained == 1, of_nvidia ? -std::floor(row.architecture) : 0.0,
        std::abs(std::log(std::max(model.memory_rate.value, 1.0) / row.memory_rate)),
        row.operands != precision};
    if (distance < least) {
      least = distance;
      nearest.row = &row;
    }
  }
  ensure(nearest.row != nullptr, "every device has a similar one in the table");
  return nearest;
}

std::string kernel_accuracy(const Cluster& cluster, Precision precision,
                            Efficiency Coefficients::*efficiencies) {
  std::vector<std::string> models;
  bool known = false;
  for (const DeviceModel& model : cluster.models) {
    if (model.kind == DeviceKind::cpu) {
      models.push_back(model.name + " unknown");
      continue;
    }
    const auto [row, origin] = coefficients_of(model, precision);
    const bool scaled = origin == Origin::guessed || !model.base.empty();  // or described anew
    known |= !scaled;
    models.push_back(
        scaled ? fmt::format("{} unknown (scaled from {} data)", model.name, row->family)
               : fmt::format("{} {:.3g} %", model.name, 100 * (row->*efficiencies).test_error));
  }
  return join(models) + (known ? " (median over held-out convolutions and GEMMs)" : "");
}

double assumed_capability(const DeviceModel& model) {
  return compute_capability(model).value_or(architecture_of_others);
}

double peak_of(const DeviceModel& model, Precision precision) {
  return std::max(model.peak_at(precision).value, model.peak_at(Precision::fp32).value);
}

}  // namespace parsim::sim
