#include "report/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/text.hpp"

namespace parsim::report {

namespace {

std::string title_of(const experiment::Scaling& scaling) {
  const std::int64_t gpus = scaling.reference_gpus;
  std::string title = "weak scaling: speed-up over ";
  if (gpus > 1) title += "one GPU's share of ";
  title += "the fastest strategy on ";
  title += gpus > 1 ? fmt::format("{} GPUs", gpus) : "one GPU";
  if (gpus > 0 && !scaling.reference_fits) title += ", which does not fit in memory";
  return title;
}

}  // namespace

Table scaling_table(const experiment::Scaling& scaling) {
  Table table;
  table.title = title_of(scaling);
  std::vector<std::string> strategies;
  std::vector<double> counts, batches;
  for (const experiment::ScalingPoint& point : scaling.points) {
    if (std::find(strategies.begin(), strategies.end(), point.strategy) == strategies.end()) {
      strategies.push_back(point.strategy);
    }
    if (counts.empty() || counts.back() != static_cast<double>(point.gpus)) {
      counts.push_back(static_cast<double>(point.gpus));
      batches.push_back(static_cast<double>(point.batch));
    }
  }
  std::vector<TableCell> gpus, batch;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    gpus.push_back(TableCell::word(fmt::format("{}", counts[i])));
    batch.push_back(TableCell::word(fmt::format("{}", batches[i])));
  }
  add_column(table, {"GPUs", "gpus"}, std::move(gpus));
  add_column(table, {"batch", "batch"}, std::move(batch));
  for (const std::string& strategy : strategies) {
    std::vector<TableCell> cells;
    for (const experiment::ScalingPoint& point : scaling.points) {
      if (point.strategy != strategy) continue;
      if (!point.speedup) {
        cells.push_back({"-", ""});
        continue;
      }
      cells.push_back({fmt::format("{}{}", three_digits(*point.speedup), point.fits ? "" : " over"),
                       fmt::format("{}", *point.speedup)});
    }
    add_column(table, {strategy, strategy + "_speedup"}, std::move(cells));
  }
  return table;
}

std::vector<std::string> scaling_notes(const experiment::Scaling& scaling) {
  std::vector<std::string> notes;
  std::vector<std::pair<std::string, std::string>> known;  // strategy, reason
  for (const experiment::ScalingPoint& point : scaling.points) {
    const std::pair reason(point.strategy, point.reason);
    if (point.reason.empty() || std::find(known.begin(), known.end(), reason) != known.end())
      continue;
    known.push_back(reason);
    std::vector<std::string> counts;
    for (const experiment::ScalingPoint& other : scaling.points) {
      if (std::pair(other.strategy, other.reason) == reason)
        counts.push_back(fmt::format("{}", other.gpus));
    }
    notes.push_back(fmt::format("no plan of {} on {} GPU{}: {}", point.strategy, join(counts),
                                counts == std::vector<std::string>{"1"} ? "" : "s", point.reason));
  }
  return notes;
}

}  // namespace parsim::report
