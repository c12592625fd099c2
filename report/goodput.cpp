#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "report/runs.hpp"

namespace parsim::report {

namespace {

/// "12.4 min": people read hours and days, not thousands of seconds.
std::string long_time(Seconds time) {
  constexpr double minute = 60, day = 24 * 3600;
  const double seconds = time.count();
  if (seconds < 2 * minute) return to_text(time);
  if (time < 2 * hour) return three_digits(seconds / minute) + " min";
  if (seconds < 2 * day) return three_digits(time / hour) + " h";
  return three_digits(seconds / day) + " days";
}

}  // namespace

std::optional<Table> goodput_table(const std::vector<experiment::RunResult>& results) {
  const auto first = std::find_if(results.begin(), results.end(),
                                  [](const auto& result) { return result.goodput.has_value(); });
  if (first == results.end()) return std::nullopt;
  std::vector<std::string> names;
  std::vector<TableCell> failures, intervals, steps, young, shares;
  std::vector<double> throughput;
  const auto time = [](Seconds value) { return TableCell{long_time(value), exact(value.count())}; };
  for (const experiment::RunResult& result : results) {
    if (!result.goodput) continue;
    const experiment::Goodput& goodput = *result.goodput;
    names.push_back(result.strategy);
    failures.push_back(time(goodput.rates.mtbf));
    intervals.push_back(time(goodput.interval));
    steps.push_back({std::to_string(goodput.steps_between), std::to_string(goodput.steps_between)});
    young.push_back(time(goodput.young));
    shares.push_back({fmt::format("{:.2f} %", 100 * goodput.share), exact(goodput.share)});
    throughput.push_back(goodput.share * result.samples_per_second);
  }
  Table table;
  table.title = fmt::format(
      "failures, in closed form (Daly 2006; not simulated): a checkpoint stops the training for "
      "{}, "
      "a restart takes {}",
      long_time(first->goodput->rates.write), long_time(first->goodput->rates.restart));
  add_words(table, "strategy", "strategy", names);
  add_column(table, {"a failure every", "mtbf_s"}, std::move(failures));
  add_column(table, {"checkpoint every", "checkpoint_interval_s"}, std::move(intervals));
  add_column(table, {"steps", "steps_between_checkpoints"}, std::move(steps));
  add_column(table, {"Young's interval", "young_interval_s"}, std::move(young));
  add_column(table, {"goodput", "goodput"}, std::move(shares));
  add_numbers(table, "", {{"samples/s", "goodput_samples_per_s", std::move(throughput)}});
  return table;
}

std::optional<Table> two_jobs_table(const experiment::RunResult& result) {
  if (!result.two_jobs) return std::nullopt;
  const experiment::SharingJob* jobs[] = {&result.two_jobs->first, &result.two_jobs->second};
  std::vector<std::string> names, strategies, devices, fits;
  Numbers alone{"alone", "alone_s", {}}, together{"together", "together_s", {}};
  std::vector<TableCell> losses;
  for (const experiment::SharingJob* job : jobs) {
    names.push_back(job->network);
    strategies.push_back(job->strategy);
    devices.push_back(std::to_string(job->devices));
    fits.emplace_back(job->fits ? "yes" : "no");
    alone.values.push_back(job->alone.count());
    together.values.push_back(job->together.count());
    losses.push_back({signed_percent(job->loss()), exact(job->loss())});
  }
  Table table;
  table.title = "a step of each job, alone and while the other trains on the same links";
  add_words(table, "network", "network", names);
  add_words(table, "strategy", "strategy", strategies);
  add_words(table, "devices", "devices", devices);
  table.columns.back().is_number = true;
  add_words(table, "fits", "fits", fits);
  add_numbers(table, "s", {alone, together});
  add_column(table, {"loss", "loss"}, std::move(losses));
  return table;
}

}  // namespace parsim::report
