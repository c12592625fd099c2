#include "sim/gemm_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "sim/coefficients.hpp"
#include "sim/embedded_table.hpp"

namespace parsim::sim {

namespace {

/// Rows × columns of the result, and which relative efficiency: 0 is the largest tile's.
struct GemmTile {
  std::int64_t rows = 0, columns = 0;
  std::size_t size = 0;
};
constexpr std::array<GemmTile, 8> gemm_tiles{GemmTile{256, 128, 0}, {128, 256, 0}, {128, 128, 1},
                                             {128, 64, 2},          {64, 128, 2},  {64, 64, 3},
                                             {64, 32, 4},           {32, 64, 4}};
/// Cards and the measured one whose chip they have, or whose next edition they are. Numbers of
/// multiprocessors, clocks and rates are their own.
struct Kin {
  std::string_view card, measured;
  bool same_chip = true;
};
constexpr Kin kin[] = {{"a100-sxm4-40", "a100-sxm4-80"}, {"a100-pcie", "a100-sxm4-80"},
                       {"a100-pcie-40", "a100-sxm4-80"}, {"rtx-6000-ada", "l40s"},
                       {"h100-pcie", "h100-sxm5"},       {"h100-nvl", "h100-sxm5"},
                       {"gh200", "h100-sxm5"},           {"b300", "b200-sxm", false},
                       {"gb300", "gb200", false}};
/// Cards whose products others borrow, and of their data sheets compute capability and power.
struct Lender {
  std::string_view card;
  double generation = 0, watts = 0;
};
constexpr double ampere = 8.0, ada = 8.9, hopper_generation = 9.0, small_blackwell = 12.0;
constexpr Lender lenders[] = {{"a100-sxm4-80", ampere, 400},
                              {"l40s", ada, 350},
                              {"h100-sxm5", hopper_generation, 700},
                              {"b200-sxm", 10.0, 1000},
                              {"gb200", 10.0, 1200}};
constexpr std::int64_t most_splits = 64, least_depth = 64;
constexpr double result_bytes = 2, partial_sum_bytes = 4;
constexpr double measured_copies = 6;

std::vector<GemmModel> read_gemm_models() {
  const CsvTable table = embedded_table("sim/gemm_models.csv");
  std::vector<GemmModel> all;
  for (const CsvTable::Row& row : table.rows) {
    const auto number = [&](std::string_view column) { return table.number(row, column); };
    GemmModel model;
    model.device = table.at(row, "gpu");
    model.format = table.at(row, "dtype");
    model.operand_bytes = model.format == "bf16" ? 2 : 1;
    model.multiprocessors = static_cast<std::int64_t>(number("multiprocessors"));
    model.peak = number("peak");
    model.memory_rate = number("memory_rate");
    model.efficiency = number("efficiency");
    model.relative = {number("tile_128x128"), number("tile_128x64"), number("tile_64x64"),
                      number("tile_64x32")};
    model.prologue = number("prologue");
    model.memory = number("memory");
    model.overhead = number("overhead");
    model.smooth = number("smooth");
    model.exponent = number("exponent");
    model.split_memory = number("split_memory");
    model.split_overhead = number("split_overhead");
    model.cache = number("cache");
    model.cache_gain = number("cache_gain");
    model.cast = number("cast");
    model.cast_overhead = number("cast_overhead");
    model.burst = {number("power"), number("power_flops")};
    model.sustained = {number("sustained_power"), number("sustained_flops")};
    model.sustained_from = table.at(row, "sustained_from");
    model.rows = static_cast<int>(number("rows"));
    model.held_out_rows = static_cast<int>(number("held_out_rows"));
    model.held_out_mean = number("held_out_mean_percent") / 100;
    model.held_out_p90 = number("held_out_p90_percent") / 100;
    model.spread = number("spread_percent") / 100;
    all.push_back(std::move(model));
  }
  return all;
}

/// The lenders' generation that is the device's. Cards without a capability (AMD's) have Hopper's.
double generation_of(const DeviceModel& model) {
  const double own = to_number<double>(model.architecture).value_or(hopper_generation);
  if (own >= ampere && own < ada) return ampere;
  // They multiply by the instructions of Ada, not by those of tensor memory (tcgen05: 10.x only).
  return own >= small_blackwell ? ada : own;
}

/// Throttling of a card with `ratio` of the lender's FLOP/s per watt, but not more than the
/// lender's: what it draws goes with FLOPs and with the cube of its clock, as in
/// topologies::limit_power.
PowerLimit lent(const PowerLimit& power, double ratio) {
  const double slower = (1 + power.share) * std::cbrt(ratio) - 1;
  return {std::clamp(slower, 0.0, power.share), power.flops};
}

double rounded_up(std::int64_t a, std::int64_t b) { return static_cast<double>((a + b - 1) / b); }

double eighth_power(double x) {
  const double square = x * x, fourth = square * square;
  return fourth * fourth;
}

}  // namespace

const std::vector<GemmModel>& gemm_models() {
  static const std::vector<GemmModel> all = read_gemm_models();
  return all;
}

std::optional<GemmModel> gemm_model_of(const DeviceModel& model, Precision precision) {
  const bool fp8 = multiplies_in_fp8(precision);
  if (!fp8 && precision != Precision::fp16 && precision != Precision::bf16) return std::nullopt;
  if (model.peak_at(precision).value <= 0) return std::nullopt;
  const std::string_view format = !fp8                                    ? "bf16"
                                  : precision == Precision::fp8_blockwise ? "fp8_block"
                                                                          : "fp8";
  const std::vector<GemmModel>& all = gemm_models();
  const auto row_of = [&](std::string_view device) {
    return std::find_if(all.begin(), all.end(), [&](const GemmModel& one) {
      return one.device == device && one.format == format;
    });
  };
  const std::string& type = model.measured_type();
  auto found = row_of(type);
  bool borrowed = false;
  if (found == all.end()) {
    const auto close = std::find_if(std::begin(kin), std::end(kin),
                                    [&](const Kin& one) { return one.card == type; });
    if (close != std::end(kin)) {
      found = row_of(close->measured);
      borrowed = !close->same_chip;
    }
  }
  if (found == all.end()) {
    // Other models price 16 bits on cards before Ampere and AMD's.
    if (!fp8 && to_number<double>(model.architecture).value_or(0) < ampere) return std::nullopt;
    borrowed = true;
    double least = std::numeric_limits<double>::infinity();
    for (const Lender& one : lenders) {
      const double distance = std::abs(one.generation - generation_of(model));
      const auto row = row_of(one.card);
      if (row == all.end() || distance >= least) continue;
      least = distance;
      found = row;
    }
  }
  GemmModel own = *found;
  const double faster = std::max(model.peak_at(precision).value / found->peak,
                                 model.memory_rate.value / found->memory_rate);
  own.borrowed = borrowed || (!model.base.empty() && faster > same_card);
  // A device described anew, for a what-if, has rates of its own.
  own.multiprocessors = std::max(1, model.multiprocessors);
  own.peak = model.peak_at(precision).value;
  own.memory_rate = model.memory_rate.value;
  if (found->device == type) return own;
  // Filling a pipeline is waiting for memory: no more steps of a slower multiprocessor.
  const double each = own.peak / static_cast<double>(own.multiprocessors);
  own.prologue *= std::min(1.0, each / (found->peak / static_cast<double>(found->multiprocessors)));
  const auto lender = std::find_if(std::begin(lenders), std::end(lenders),
                                   [&](const Lender& one) { return one.card == found->device; });
  if (model.upkeep.power && lender != std::end(lenders)) {
    const double ratio = own.peak / found->peak * lender->watts / model.upkeep.power->value;
    own.burst = lent(own.burst, ratio);
    own.sustained = lent(own.sustained, ratio);
  }
  return own;
}

Seconds measured_cast(const GemmModel& model, std::int64_t m, std::int64_t k) {
  if (model.format == "bf16") return Seconds{0};
  // Read for the largest element, read and written; with a scale a block one pass does both.
  const double each = model.format == "fp8" ? 2 + 2 + 1 : 2 + 1;
  return Seconds{model.cast_overhead + each * static_cast<double>(m) * static_cast<double>(k) /
                                           (model.memory_rate * model.cast)};
}

Seconds gemm_time(const GemmModel& model, std::int64_t m, std::int64_t n, std::int64_t k,
                  std::int64_t batches, const PowerLimit& power) {
  ensure(m > 0 && n > 0 && k > 0 && batches > 0, "a GEMM has extents");
  const auto all = static_cast<double>(batches),
             multiprocessors = static_cast<double>(model.multiprocessors);
  const double left = static_cast<double>(m) * static_cast<double>(k) * all,
               right = static_cast<double>(n) * static_cast<double>(k) * all,
               result = static_cast<double>(m) * static_cast<double>(n) * all;
  const double used = eighth_power(
      (model.operand_bytes * (left + measured_copies * right) + result_bytes * result) /
      model.cache);
  const double by_memory = (model.operand_bytes * (left + right) + result_bytes * result) /
                           (model.memory_rate * model.memory) * (1 + used) /
                           (model.cache_gain + used);
  const double memory_power = std::pow(by_memory, model.exponent);
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t split = 1; split <= most_splits && (split == 1 || k >= least_depth * split);
       split *= 2) {
    double per_step = std::numeric_limits<double>::infinity();
    for (const GemmTile& tile : gemm_tiles) {
      const double waves = rounded_up(m, tile.rows) * rounded_up(n, tile.columns) * all *
                           static_cast<double>(split) / multiprocessors;
      const double filled =
          (1 - model.smooth) * std::ceil(waves) + model.smooth * std::max(waves, 1.0);
      const double rate = model.peak / multiprocessors * model.efficiency *
                          (tile.size == 0 ? 1.0 : model.relative[tile.size - 1]);
      per_step =
          std::min(per_step, filled * 2 * static_cast<double>(tile.rows * tile.columns) / rate);
    }
    const double by_flops = per_step * (rounded_up(k, split) + model.prologue);
    const auto parts = static_cast<double>(split);
    const double added = split == 1
                             ? 0
                             : model.split_overhead + (parts + 1) * result * partial_sum_bytes /
                                                          (model.memory_rate * model.split_memory);
    if (std::max(by_flops, by_memory) + added >= best) continue;
    best = std::min(
        best,
        std::pow(std::pow(by_flops, model.exponent) + memory_power, 1 / model.exponent) + added);
  }
  return Seconds{model.overhead + throttling(power, 2 * result * static_cast<double>(k)) * best};
}

Seconds least_flop_time(const GemmModel& model, std::int64_t m, std::int64_t n, std::int64_t k,
                        std::int64_t batches, double throttled) {
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n),
             depth = static_cast<double>(k), all = static_cast<double>(batches);
  const double flops = 2 * rows * columns * depth * all;
  const double gain = std::max(1.0, model.cache_gain);
  const double by_memory =
      (model.operand_bytes / 2 * (1 / rows + 1 / columns) + result_bytes / 2 * (1 / depth)) /
      (model.memory_rate * model.memory * gain);
  const double memory_power = std::pow(by_memory, model.exponent);
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t split = 1; split <= most_splits; split *= 2) {
    const auto parts = static_cast<double>(split);
    double by_flops = std::numeric_limits<double>::infinity();
    for (const GemmTile& tile : gemm_tiles) {
      const auto high = static_cast<double>(tile.rows), wide = static_cast<double>(tile.columns);
      const double idle = std::max(1.0, high / rows) * std::max(1.0, wide / columns);
      const double one_wave =
          high * wide * static_cast<double>(model.multiprocessors) / (rows * columns * all * parts);
      const double rate =
          model.peak * model.efficiency * (tile.size == 0 ? 1.0 : model.relative[tile.size - 1]);
      by_flops = std::min(by_flops, std::max(idle, one_wave) / rate);
    }
    by_flops *= 1 + parts * model.prologue / depth;
    const double added = split == 1 ? 0
                                    : model.split_overhead / flops +
                                          (parts + 1) * partial_sum_bytes /
                                              (2 * depth * model.memory_rate * model.split_memory);
    best = std::min(
        best,
        std::pow(std::pow(by_flops, model.exponent) + memory_power, 1 / model.exponent) + added);
  }
  return Seconds{model.overhead / flops + throttled * best};
}

double throttling(const PowerLimit& power, double flops) {
  return 1 + power.share / (1 + power.flops / flops);
}

}  // namespace parsim::sim
