#include "report/waterfall.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace parsim::report {

namespace {

/// The parts in words, peak first.
constexpr std::array<std::string_view, experiment::step_part_count> part_names{
    "model FLOPs at the peak",
    "matrix products, beyond that",
    "attention, beyond that",
    "element-wise, norms, additions",
    "optimizer",
    "waiting for the host",
    "exposed communication",
    "imbalance",
    "bubbles"};

}  // namespace

std::string_view part_words(experiment::StepPart part) {
  return part_names[static_cast<std::size_t>(part)];
}

Table waterfall_table(const experiment::Waterfall& parts, Seconds step) {
  std::vector<std::string> names;
  std::vector<double> times, until;
  std::vector<TableCell> shares;
  double sum = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    sum += parts[p].count();
    if (std::abs(parts[p] / step) < 1e-12) continue;
    names.emplace_back(part_names[p]);
    times.push_back(parts[p].count());
    until.push_back(sum);
    const double share = parts[p] / step;
    shares.push_back({fmt::format("{:.1f} %", 100 * share), exact(share)});
  }
  Table table;
  table.title = "from the peak to the step: means over the devices that compute";
  add_words(table, "part", "part", names);
  add_numbers(table, "s", {{"time", "time_s", times}, {"until here", "until_s", until}});
  add_column(table, {"share", "share"}, std::move(shares));
  return table;
}

}  // namespace parsim::report
