#include "report/runs.hpp"

#include <fmt/format.h>

#include <limits>

#include "report/context.hpp"
#include "report/device_classes.hpp"
#include "report/result_table.hpp"

namespace parsim::report {

namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

Table device_table(const experiment::RunResult& result) {
  const std::vector<DeviceClass> listed = listed_devices(result);
  const auto numbers = [&](auto of) {
    std::vector<double> values;
    for (const DeviceClass& one : listed) values.push_back(static_cast<double>(of(one.first)));
    return values;
  };
  const auto words = [&](auto of) {
    std::vector<std::string> texts;
    for (const DeviceClass& one : listed) texts.push_back(of(one.first));
    return texts;
  };
  using D = const experiment::DeviceResult&;
  Table table;
  add_words(table, "device", "name", words([](D d) { return d.name; }));
  if (listed.size() < result.devices.size()) {
    std::vector<std::string> counts;
    for (const DeviceClass& one : listed) counts.push_back(std::to_string(one.count));
    add_words(table, "count", "count", counts);
  }
  add_words(table, "model", "model", words([](D d) { return d.model; }));
  add_numbers(table, "s",
              {{"compute", "compute_s", numbers([](D d) { return d.use.compute.count(); })},
               {"exposed comm.", "exposed_communication_s",
                numbers([](D d) { return d.use.exposed_communication.count(); })},
               {"idle", "idle_s", numbers([](D d) { return d.use.idle.count(); })}});
  add_numbers(
      table, "B",
      {{"weights", "weights_bytes", numbers([](D d) { return d.memory.weights.value; })},
       {"gradients", "gradients_bytes", numbers([](D d) { return d.memory.gradients.value; })},
       {"optimizer", "optimizer_state_bytes",
        numbers([](D d) { return d.memory.optimizer_state.value; })},
       {"activations", "activations_bytes",
        numbers([](D d) { return d.memory.activations.value; })},
       {"buffers", "communication_bytes",
        numbers([](D d) { return d.memory.communication.value; })}});
  add_numbers(table, "B",
              {{"peak", "peak_memory_bytes", numbers([](D d) { return d.peak().value; })}});
  add_numbers(table, "B",
              {{"capacity", "memory_bytes", numbers([](D d) { return d.capacity.value; })}});
  return table;
}

}  // namespace

std::optional<Table> jitter_table(const experiment::Experiment& experiment,
                                  const std::vector<experiment::RunResult>& results) {
  if (experiment.request.jitter <= 0) return std::nullopt;
  std::vector<std::string> names;
  std::vector<double> median, low, high;
  for (const experiment::RunResult& result : results) {
    names.push_back(result.strategy);
    const bool known = result.jittered.has_value();
    median.push_back(known ? result.jittered->median.count() : unknown);
    low.push_back(known ? result.jittered->low.count() : unknown);
    high.push_back(known ? result.jittered->high.count() : unknown);
  }
  Table table;
  table.title = fmt::format("{} steps with random kernel times (log-normal, {} %, seed {})",
                            experiment.request.runs, three_digits(100 * experiment.request.jitter),
                            experiment.request.seed);
  add_words(table, "strategy", "strategy", names);
  add_numbers(table, "s",
              {{"median step", "median_s", std::move(median)},
               {"lower quartile", "lower_quartile_s", std::move(low)},
               {"upper quartile", "upper_quartile_s", std::move(high)}});
  return table;
}

Document report_simulation(const experiment::Experiment& experiment,
                           const experiment::RunResult& result, bool with_json) {
  Document document;
  document.tables = {result_table({result}, true), device_table(result)};
  const auto [step, use] = plan_lines(result, document.tables.front());
  const std::string advice = advice_for(experiment, {result});
  if (result.fits()) {
    document.answer = {result.strategy + ": " + step};
  } else {
    document.answer = {fmt::format("{} does not fit in memory: {}", result.strategy,
                                   experiment::memory_verdict(result)),
                       "      with enough memory: " + step};
    if (!advice.empty()) document.answer.insert(document.answer.begin() + 1, "      " + advice);
  }
  document.answer.push_back("      " + use);
  document.head = source_lines(experiment, {result});
  document.head.insert(document.head.begin(), question_line(experiment));
  if (auto table = jitter_table(experiment, {result})) document.tables.push_back(std::move(*table));
  if (auto table = goodput_table({result})) document.tables.push_back(std::move(*table));
  if (auto table = two_jobs_table(result)) document.tables.push_back(std::move(*table));
  document.notes = {"compute, exposed comm. and idle of a strategy are means over the GPUs",
                    result.checks};
  for (const std::string& note : result.notes) document.notes.push_back(note);
  for (const std::string& note : experiment.request.notes) document.notes.push_back(note);
  if (std::string engine = engine_note(experiment.request.sim, {result}); !engine.empty()) {
    document.notes.push_back(std::move(engine));
  }
  document.warnings = warnings_of(experiment, {result});
  if (with_json) document.json = simulation_json(experiment, result, advice);
  add_question(document.tables.front(), experiment);
  return document;
}

}  // namespace parsim::report
