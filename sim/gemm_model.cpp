#include "sim/gemm_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
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
/// Cards and the measured one that has the same chip, with as many multiprocessors at the same
/// clock; memory rates are their own.
constexpr std::pair<std::string_view, std::string_view> same_chips[] = {
    {"a100-sxm4-40", "a100-sxm4-80"},
    {"a100-pcie", "a100-sxm4-80"},
    {"a100-pcie-40", "a100-sxm4-80"},
    {"gh200", "h100-sxm5"}};
/// Cards whose products in FP8 others borrow, and their compute capability.
constexpr std::pair<std::string_view, double> lenders[] = {
    {"l40s", 8.9}, {"h100-sxm5", 9.0}, {"b200-sxm", 10.0}};
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

/// The lender of a card's products in FP8. Cards without a capability (AMD's) take Hopper's.
std::string_view nearest_generation(const DeviceModel& model) {
  const double own = to_number<double>(model.architecture).value_or(9.0);
  return std::min_element(std::begin(lenders), std::end(lenders),
                          [&](const auto& a, const auto& b) {
                            return std::abs(a.second - own) < std::abs(b.second - own);
                          })
      ->first;
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
  const auto same =
      std::find_if(std::begin(same_chips), std::end(same_chips),
                   [&](const auto& entry) { return entry.first == model.measured_type(); });
  const std::string_view measured =
      same == std::end(same_chips) ? model.measured_type() : same->second;
  const std::vector<GemmModel>& all = gemm_models();
  const auto row_of = [&](std::string_view device) {
    return std::find_if(all.begin(), all.end(), [&](const GemmModel& one) {
      return one.device == device && one.format == format;
    });
  };
  auto found = row_of(measured);
  const bool borrowed = fp8 && found == all.end();
  if (borrowed) found = row_of(nearest_generation(model));
  if (found == all.end()) return std::nullopt;
  GemmModel own = *found;
  own.borrowed = borrowed;
  // A device described anew, for a what-if, has rates of its own.
  own.multiprocessors = std::max(1, model.multiprocessors);
  own.peak = model.peak_at(precision).value;
  own.memory_rate = model.memory_rate.value;
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
