#include "report/sweep_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "report/document.hpp"

namespace parsim::report {

namespace {

constexpr std::string_view input_prefix = "input_";
constexpr double no_cost = std::numeric_limits<double>::quiet_NaN();

constexpr std::array<std::pair<std::string_view, std::string_view>, 12> titles = {{
    {"step_time_s", "step time"},
    {"throughput_samples_per_s", "samples per second"},
    {"cost_per_million_samples", "cost of a million samples"},
    {"peak_memory_bytes", "peak memory"},
    {"energy_per_step_j", "energy of a step"},
    {"energy_per_million_samples_j", "energy of a million samples"},
    {"mfu", "MFU"},
    {"hfu", "HFU"},
    {"mean_idle_s", "idle time"},
    {"mean_compute_s", "compute"},
    {"mean_exposed_communication_s", "exposed communication"},
    {"probability_fastest", "probability of being the fastest"},
}};

/// Counts rows, and finds what they have in common.
class Collector {
 public:
  Collector(const SweepRows& rows, const std::vector<RowCondition>& where,
            std::vector<SummaryColumn> columns)
      : where_(where) {
    summary_.columns = std::move(columns);
    for (std::size_t c = 0; c < rows.columns().size(); ++c) {
      const std::string& name = rows.columns()[c];
      if (name.starts_with(input_prefix)) {
        input_columns_.push_back(c);
        inputs_.push_back({name.substr(input_prefix.size()), {}});
      }
    }
    if (rows.has_results()) {
      fits_ = column_index(rows, "fits", "--report");
      strategy_ = column_index(rows, "strategy", "--report");
    }
  }

  void see(std::size_t point, const SweepRow& row, std::size_t place) {
    if (place == 0) {
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        inputs_[i].of_point.push_back(row[input_columns_[i]].text);
      }
      place_of_[point] = inputs_.empty() ? 0 : inputs_.front().of_point.size() - 1;
    }
    SummaryRow made{point, place, RowState::good, 0, {}};
    if (row.back().kind == SweepCell::Kind::text) {
      made.state = RowState::failed;
      summary_.failed[row.back().text].push_back(point);
    } else {
      made.strategy = index_of(row[strategy_].text);
      several_ = several_ || place > 0;
      for (const SummaryColumn& column : summary_.columns) {
        made.costs.push_back(column.criterion.cost(row).value_or(no_cost));
      }
      made.state = state_of(row, made.costs.front());
    }
    summary_.unfit += made.state == RowState::unfit ? 1 : 0;
    summary_.unmet += made.state == RowState::unmet ? 1 : 0;
    summary_.lacking += made.state == RowState::lacks_value ? 1 : 0;
    summary_.rows.push_back(std::move(made));
  }

  SweepSummary finish() && {
    summary_.axes = axes_of(inputs_);
    for (SweepInput& input : inputs_) {
      const bool same = std::all_of(input.of_point.begin(), input.of_point.end(),
                                    [&](const auto& text) { return text == input.of_point[0]; });
      if (same && !input.of_point.empty()) {
        summary_.constant.push_back({input.name, {input.of_point[0]}});
      }
    }
    // Points that are missing have no value.
    for (SweepAxis& axis : summary_.axes) {
      std::vector<std::uint32_t> all;
      for (const auto& [point, place] : place_of_) {
        all.resize(point, 0);
        all.push_back(axis.of_point[place]);
      }
      axis.of_point = std::move(all);
    }
    summary_.strategy_axis = several_ && summary_.strategies.size() > 1;
    if (summary_.strategy_axis) {
      summary_.axes.push_back({{"strategy"}, summary_.strategies, summary_.strategies, {}});
    }
    const std::vector<std::size_t> ranked = summary_.ranked();
    if (!ranked.empty()) summary_.best = ranked.front();
    return std::move(summary_);
  }

 private:
  std::uint32_t index_of(const std::string& strategy) {
    std::vector<std::string>& known = summary_.strategies;
    const auto at = std::find(known.begin(), known.end(), strategy);
    const auto index = static_cast<std::uint32_t>(at - known.begin());
    if (at == known.end()) known.push_back(strategy);
    return index;
  }

  RowState state_of(const SweepRow& row, double cost) const {
    if (row[fits_].text != "true") return RowState::unfit;
    if (std::isnan(cost)) return RowState::lacks_value;
    const bool meets = std::all_of(where_.begin(), where_.end(),
                                   [&](const RowCondition& one) { return one.holds(row); });
    return meets ? RowState::good : RowState::unmet;
  }

  const std::vector<RowCondition>& where_;
  SweepSummary summary_;
  std::vector<std::size_t> input_columns_;
  std::vector<SweepInput> inputs_;
  std::map<std::size_t, std::size_t> place_of_;  ///< of a point in the inputs' lists
  std::size_t fits_ = 0, strategy_ = 0;
  bool several_ = false;
};

}  // namespace

std::string SummaryColumn::title() const {
  for (const auto& [key, title] : titles) {
    if (key == name) return std::string(title);
  }
  return name;
}

std::string SummaryColumn::unit() const {
  if (name.ends_with("_per_s")) return "";
  if (name.ends_with("_s")) return "s";
  if (name.ends_with("_bytes") || name.starts_with("bytes_")) return "B";
  if (name.ends_with("_j")) return "J";
  if (name == "mfu" || name == "hfu" || name == "probability_fastest") return "%";
  return "";
}

std::string SummaryColumn::text(double value) const {
  const std::string of = unit();
  if (of == "s") return to_text(Seconds{value});
  if (of == "%") return three_digits(100 * value) + " %";
  const Scale scale = of.empty() ? Scale{} : scale_for(value, of);
  const std::string number = three_digits(value / scale.factor);
  return of.empty() ? number : fmt::format("{} {}{}", number, scale.prefix, of);
}

std::optional<std::uint32_t> SweepSummary::at(const SummaryRow& row, std::size_t axis) const {
  if (!strategy_axis || axis + 1 < axes.size()) return axes[axis].of_point[row.point];
  if (row.state == RowState::failed) return std::nullopt;
  return row.strategy;
}

std::string SweepSummary::words_of(const SummaryRow& row) const {
  std::vector<std::string> parts;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const auto value = at(row, a);
    if (value) parts.push_back(join(axes[a].names) + " " + axes[a].headings[*value]);
  }
  return join(parts);
}

std::vector<std::size_t> SweepSummary::ranked() const {
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].state == RowState::good) order.push_back(r);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rows[a].costs.front() < rows[b].costs.front();
  });
  return order;
}

std::vector<std::size_t> SweepSummary::front(std::size_t a, std::size_t b) const {
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const SummaryRow& row = rows[r];
    if (row.state != RowState::good || std::isnan(row.costs[a]) || std::isnan(row.costs[b])) {
      continue;
    }
    order.push_back(r);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    return std::pair(rows[i].costs[a], rows[i].costs[b]) <
           std::pair(rows[j].costs[a], rows[j].costs[b]);
  });
  std::vector<std::size_t> kept;
  for (const std::size_t r : order) {
    if (kept.empty() || rows[r].costs[b] < rows[kept.back()].costs[b]) kept.push_back(r);
  }
  return kept;
}

SweepSummary summary_of(SweepRows& rows, const std::string& by,
                        const std::vector<std::string>& more,
                        const std::vector<RowCondition>& where) {
  std::vector<SummaryColumn> columns;
  if (rows.has_results()) {
    columns.push_back({criterion(rows, by, "--by"), by});
    for (const std::string& name : more) {
      const std::vector<std::string>& known = rows.columns();
      const bool twice = std::any_of(columns.begin(), columns.end(),
                                     [&](const auto& column) { return column.name == name; });
      if (twice || std::find(known.begin(), known.end(), name) == known.end()) continue;
      columns.push_back({criterion(rows, name, "--report"), name});
    }
  }
  Collector collector(rows, where, std::move(columns));
  std::size_t before = std::numeric_limits<std::size_t>::max(), place = 0;
  for (std::size_t p = 0; p < rows.header().points; ++p) {
    rows.each_row_of(p, [&](const SweepRow& row) {
      place = p == before ? place + 1 : 0;
      before = p;
      collector.see(p, row, place);
    });
  }
  return std::move(collector).finish();
}

}  // namespace parsim::report
