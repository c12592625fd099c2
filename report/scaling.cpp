#include "report/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace parsim::report {

Table scaling_table(const experiment::Scaling& scaling) {
  Table table;
  table.title = "weak scaling: speed-up over the fastest strategy on one GPU";
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
    std::vector<double> values;
    for (const experiment::ScalingPoint& point : scaling.points) {
      if (point.strategy == strategy) {
        values.push_back(point.speedup.value_or(std::numeric_limits<double>::quiet_NaN()));
      }
    }
    add_numbers(table, "", {{strategy, strategy + "_speedup", values}});
  }
  return table;
}

}  // namespace parsim::report
