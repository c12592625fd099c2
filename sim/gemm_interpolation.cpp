#include "sim/gemm_interpolation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "sim/embedded_table.hpp"

namespace parsim::sim {

namespace {

// As in fit_gemms.py, chosen by cross-validation within the rows of the fit.
constexpr double cells_an_octave = 2, reach = 0.5, trust = 1, largest = 0.3;
/// Half of a correction is what measurements say, where their weights sum up to this.
constexpr double near_weight = 1;
constexpr double farthest = 40;  // of d squared: e^-20 of a row's weight
constexpr double rounding = 1e-9;

const CsvTable& measured_rows(bool fp8) {
  if (fp8) {
    static const CsvTable table = embedded_table("sim/fp8_gemm_rows.csv");
    return table;
  }
  static const CsvTable table = embedded_table("sim/gemm_rows.csv");
  return table;
}

double logarithm(std::int64_t extent) { return std::log2(static_cast<double>(extent)); }

}  // namespace

GemmInterpolation::GemmInterpolation(GemmModel model) : model_(std::move(model)) {
  // The model of the card that was measured, not with this device's rates.
  const auto measured =
      std::find_if(gemm_models().begin(), gemm_models().end(), [&](const GemmModel& one) {
        return one.device == model_.device && one.format == model_.format;
      });
  ensure(measured != gemm_models().end(), "only measured cards interpolate");
  const bool fp8 = model_.format != "bf16";
  const CsvTable& table = measured_rows(fp8);
  for (const CsvTable::Row& row : table.rows) {
    if (table.at(row, "gpu") != model_.device || table.at(row, "held_out") == "1") continue;
    if (fp8 && table.at(row, "dtype") != model_.format) continue;
    const auto extent = [&](std::string_view column) {
      return static_cast<std::int64_t>(table.number(row, column));
    };
    const std::int64_t m = extent("m"), n = extent("n"), k = extent("k");
    const double modelled = gemm_time(*measured, m, n, k, 1, measured->burst).count();
    const double product =
        table.number(row, "median_us") * 1e-6 - measured_cast(*measured, m, k).count();
    const double rest = std::log(std::max(product, modelled * std::exp(-largest)) / modelled);
    rows_.push_back(
        {logarithm(m), logarithm(n), logarithm(k), std::clamp(rest, -largest, largest)});
  }
}

int GemmInterpolation::cell_of(std::int64_t extent) {
  return static_cast<int>(std::floor(cells_an_octave * logarithm(extent) + rounding));
}

std::int64_t GemmInterpolation::last_of(int cell) {
  return static_cast<std::int64_t>(std::ceil(std::exp2((cell + 1) / cells_an_octave) - rounding)) -
         1;
}

GemmInterpolation::Correction GemmInterpolation::correction(int rows, int columns,
                                                            std::int64_t k) const {
  const double at_m = (rows + 0.5) / cells_an_octave, at_n = (columns + 0.5) / cells_an_octave;
  const double at_k = logarithm(k);
  double sum = 0, weights = 0;
  for (const Row& row : rows_) {
    const double a = at_m - row.m, b = at_n - row.n, c = at_k - row.k;
    const double distance = (a * a + b * b + c * c) / (reach * reach);
    if (distance > farthest) continue;
    const double weight = std::exp(-distance / 2);
    sum += weight * row.rest;
    weights += weight;
  }
  return {sum / (weights + trust), weights};
}

void GemmInterpolation::find_near(int rows, int columns, std::vector<NearRow>& near) const {
  const double at_m = (rows + 0.5) / cells_an_octave, at_n = (columns + 0.5) / cells_an_octave;
  near.clear();
  for (const Row& row : rows_) {
    const double a = at_m - row.m, b = at_n - row.n;
    const double aside = (a * a + b * b) / (reach * reach);
    if (aside <= farthest) near.push_back({aside, row.k, row.rest});
  }
}

double GemmInterpolation::least_correction(int rows, int columns, std::int64_t least_k,
                                           std::int64_t most_k) const {
  std::vector<NearRow> near;
  find_near(rows, columns, near);
  return least_correction(near, least_k, most_k);
}

double GemmInterpolation::least_correction(const std::vector<NearRow>& near_rows,
                                           std::int64_t least_k, std::int64_t most_k) {
  const double from = logarithm(least_k), to = logarithm(most_k);
  double sum = 0, least_weights = 0, most_weights = 0;
  for (const NearRow& row : near_rows) {
    const double aside = row.aside;
    const double near = std::clamp(row.k, from, to) - row.k;
    const double far = std::max(std::abs(from - row.k), std::abs(to - row.k));
    const double nearest = aside + near * near / (reach * reach);
    if (nearest > farthest) continue;
    const double most = std::exp(-nearest / 2);
    // A row that counts for nothing at the far end has no weight there.
    const double distance = aside + far * far / (reach * reach);
    const double least = distance > farthest ? 0 : std::exp(-distance / 2);
    sum += row.rest > 0 ? least * row.rest : most * row.rest;
    least_weights += least;
    most_weights += most;
  }
  return sum / ((sum > 0 ? most_weights : least_weights) + trust);
}

Seconds GemmInterpolation::least_flop_time(std::int64_t m, std::int64_t n, std::int64_t k,
                                           std::int64_t batches, const PowerLimit& power) const {
  // Several products at once are not corrected.
  if (batches > 1) return sim::least_flop_time(model_, m, n, k, batches, 1);
  const Key key{m, n, k, power.share, power.flops};
  const auto known = known_least_.find(key);
  if (known != known_least_.end()) return known->second;
  constexpr int intervals_an_octave = 8;
  const double ratio = std::exp2(-1.0 / intervals_an_octave);
  const auto lower_end = [&](std::int64_t upper) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(upper) * ratio));
  };
  const double least_factor = std::exp(-largest);
  std::vector<NearRow> near;
  double best = std::numeric_limits<double>::infinity();
  for (int i = cell_of(m); i >= 0; --i) {
    const std::int64_t upper_m = std::min(m, last_of(i)), lower_m = i == 0 ? 1 : last_of(i - 1) + 1;
    if (upper_m < lower_m) continue;  // no whole number is in the cell
    bool any = false;
    for (int j = cell_of(n); j >= 0; --j) {
      const std::int64_t upper_n = std::min(n, last_of(j)),
                         lower_n = j == 0 ? 1 : last_of(j - 1) + 1;
      if (upper_n < lower_n) continue;
      bool some = false, found = false;
      const auto least_factor_of = [&](std::int64_t least_k, std::int64_t most_k) {
        const auto [at, fresh] = least_factors_.try_emplace({i, j, least_k, most_k}, 0);
        if (!fresh) return at->second;
        if (!std::exchange(found, true)) find_near(i, j, near);
        return at->second = std::exp(least_correction(near, least_k, most_k));
      };
      std::int64_t octave_end = k + 1;  // intervals from here on belong to octaves looked at
      for (std::int64_t upper = k, lower = 0; upper >= 1; upper = lower - 1) {
        lower = lower_end(upper);
        const double flop = sim::least_flop_time(model_, upper_m, upper_n, upper, 1, 1).count();
        if (flop * least_factor >= best) break;  // and so are all smaller ones
        some = true;
        // An octave is skipped where not even its least correction and its largest k are better.
        if (upper < octave_end) {
          octave_end = lower;
          for (int more = 1; more < intervals_an_octave && octave_end > 1; ++more)
            octave_end = lower_end(octave_end - 1);
          if (flop * least_factor_of(octave_end, upper) * (1 - rounding) >= best) {
            lower = octave_end;
            continue;
          }
        }
        const double flops = 2 * static_cast<double>(lower_m) * static_cast<double>(lower_n) *
                             static_cast<double>(lower);
        const double corrected =
            sim::least_flop_time(model_, upper_m, upper_n, upper, 1, throttling(power, flops))
                .count() *
            least_factor_of(lower, upper);
        best = std::min(best, corrected);
      }
      if (!some) break;
      any = true;
    }
    if (!any) break;
  }
  return known_least_.emplace(key, Seconds{best}).first->second;
}

GemmTime GemmInterpolation::time(std::int64_t m, std::int64_t n, std::int64_t k,
                                 const PowerLimit& power) const {
  const Key key{m, n, k, power.share, power.flops};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  const int rows = cell_of(m), columns = cell_of(n);
  const Correction own = correction(rows, columns, k);
  double best = gemm_time(model_, m, n, k, 1, power).count() * std::exp(own.logarithm);
  // What no correction lifts above the best is decided for all cells below it, too.
  for (int i = rows; i >= 0; --i) {
    const std::int64_t upper_m = std::min(m, last_of(i));
    if (cell_of(upper_m) != i) continue;  // no whole number is in the cell
    bool any = false;
    for (int j = columns; j >= 0; --j) {
      const std::int64_t upper_n = std::min(n, last_of(j));
      if (cell_of(upper_n) != j) continue;
      const double modelled = gemm_time(model_, upper_m, upper_n, k, 1, power).count();
      if (modelled * std::exp(largest) <= best) break;
      any = true;
      if (i == rows && j == columns) continue;
      best = std::max(best, modelled * std::exp(correction(i, j, k).logarithm));
    }
    // In its first column a row takes longest.
    if (!any && i < rows) break;
  }
  return known_.emplace(key, GemmTime{Seconds{best}, own.weight >= near_weight}).first->second;
}

}  // namespace parsim::sim
