#include "experiment/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "experiment/what_would_fit.hpp"
#include "report/context.hpp"
#include "report/gained.hpp"
#include "report/result_table.hpp"
#include "report/runs.hpp"
#include "report/scaling.hpp"
#include "strategies/idle_devices.hpp"

namespace parsim::report {

namespace {

using R = const experiment::RunResult&;

/// "hybrid 41 %", "tensor 47 % (the same stages without ZeRO)": who may be the fastest besides the
/// winner. Equal plans are one, with the name of the first.
std::vector<std::string> rivals(const std::vector<experiment::RunResult>& sorted) {
  constexpr double may_be = 0.05;  // 90 % intervals leave as much on either side
  std::vector<std::string> names;
  const experiment::RunResult* last = &sorted.front();
  for (R result : sorted) {
    if (result.probability_fastest.value_or(0) < may_be) continue;
    const bool again = last->step_time == result.step_time && last->parts == result.parts;
    last = &result;
    if (again) continue;
    names.push_back(fmt::format("{} {:.0f} %{}", result.strategy, 100 * *result.probability_fastest,
                                same_stages(sorted.front(), result)));
  }
  return names;
}

/// The fastest plan that fits and what it takes. `sorted`: rows in their order; `table`: theirs.
std::vector<std::string> answer_lines(const std::vector<experiment::RunResult>& sorted,
                                      const Table& table, const std::string& advice,
                                      strategies::Objective objective, const Missing& missing) {
  if (!sorted.front().fits()) {
    const bool any = std::any_of(sorted.begin(), sorted.end(), [](R r) { return r.error.empty(); });
    const std::string more = advice.empty() ? "" : " " + advice;
    if (!missing.strategies.empty()) {
      return {fmt::format("No plan so far {}; without an answer yet: {}.{}",
                          any ? "fits in memory" : "was found", join(missing.strategies), more)};
    }
    if (!any) return {"No strategy has a plan."};
    return {"No plan fits in memory." + more};
  }
  R best = sorted.front();
  const auto [step, use] = plan_lines(best, table);
  // The strategy 'best' gives the best plan its name, which does not say where it came from.
  std::vector<std::string> lines = {
      fmt::format("Best: {}{}", best.strategy == "best" ? "" : best.strategy + ", ", step)};
  std::string second = "      " + use;
  const std::vector<std::string> others = rivals(sorted);
  if (best.probability_fastest && sorted.size() > 1) {
    second += fmt::format(", {:.0f} % likely to be the fastest", 100 * *best.probability_fastest);
  }
  lines.push_back(std::move(second));
  if (!others.empty()) lines.push_back("      may be as fast: " + join(others));
  if (const auto cost = best.cost_per_million_samples()) {
    lines.push_back(fmt::format("      costs {} per million samples", three_digits(*cost)));
  }
  if (const auto energy = best.energy_per_million_samples();
      energy && objective == strategies::Objective::energy) {
    lines.push_back(
        fmt::format("      takes {} kWh per million samples", three_digits(*energy / 3.6e6)));
  }
  return lines;
}

/// "equal plans: hybrid = tensor, layer-wise = tensor"; "" if all differ.
std::string equal_plans(const std::vector<experiment::RunResult>& results) {
  std::vector<std::string> pairs;
  for (R result : results) {
    if (result.same_plan_as.empty()) continue;
    pairs.push_back(fmt::format("{} = {}", result.strategy, result.same_plan_as));
  }
  return pairs.empty() ? "" : "equal plans: " + join(pairs);
}

/// "do not follow --cp 4: data, hybrid; --cp 4 --tp 2: owt"; "" if all rows have the degrees that
/// were given.
std::string unfollowed_line(const experiment::Request& request,
                            const std::vector<experiment::RunResult>& results) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;  // degrees, strategies
  for (R result : results) {
    const std::string degrees = experiment::unfollowed_degrees(request, result);
    if (degrees.empty()) continue;
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.first == degrees; });
    auto& group =
        same == groups.end() ? groups.emplace_back(degrees, std::vector<std::string>{}) : *same;
    group.second.push_back(result.strategy);
  }
  std::vector<std::string> texts;
  for (const auto& [degrees, names] : groups) {
    texts.push_back(fmt::format("{}: {}", degrees, join(names)));
  }
  return texts.empty() ? "" : "do not follow " + join(texts, "; ");
}

/// That the best plan does not have the degrees that were given, and which one is the best with
/// them; "" if it has.
std::string answer_on_degrees(const experiment::Request& request,
                              const std::vector<experiment::RunResult>& sorted) {
  if (!sorted.front().fits()) return "";
  const std::string degrees = experiment::unfollowed_degrees(request, sorted.front());
  if (degrees.empty()) return "";
  const auto follows = std::find_if(sorted.begin(), sorted.end(), [&](R result) {
    return result.fits() && experiment::unfollowed_degrees(request, result).empty();
  });
  return fmt::format("{} does not follow {}; {}", sorted.front().strategy, degrees,
                     follows == sorted.end()
                         ? std::string("nor does any plan that fits")
                         : fmt::format("the best that does: {}, {}", follows->strategy,
                                       to_text(follows->step_time)));
}

/// "launch files: megatron, flagscale for tensor, hybrid; deepspeed for data"; "" if none carries
/// any, or it was not asked.
std::string launch_line(const std::vector<experiment::RunResult>& results) {
  std::vector<std::pair<std::string, std::string>> groups;  // trainers, strategies
  for (R result : results) {
    if (!result.trainers || !result.fits()) continue;
    const bool winner = &result == &results.front();
    if (result.trainers->empty() && !winner) continue;
    const std::string trainers = result.trainers->empty() ? "none" : join(*result.trainers);
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.first == trainers; });
    if (same == groups.end()) {
      groups.emplace_back(trainers, result.strategy);
    } else {
      same->second += ", " + result.strategy;
    }
  }
  std::vector<std::string> texts;
  for (const auto& [trainers, strategies] : groups) {
    texts.push_back(fmt::format("{} for {}", trainers, strategies));
  }
  const bool any = std::any_of(groups.begin(), groups.end(),
                               [](const auto& group) { return group.first != "none"; });
  return !any ? "" : "launch files (plan --launch): " + join(texts, "; ");
}

void mark_rows(Table& table, const std::vector<experiment::RunResult>& results) {
  if (!results.empty() && results.front().fits()) table.winner = 0;
  const auto rule = [&](const std::string& words, auto first) {
    const auto at = std::find_if(results.begin(), results.end(), first);
    if (at == results.end()) return;
    table.rules.emplace_back(static_cast<std::size_t>(at - results.begin()), words);
  };
  rule("does not fit in memory", [](R r) { return r.error.empty() && !r.fits(); });
  rule("no plan", [](R r) { return !r.error.empty(); });
}

}  // namespace

std::string known_line(R result) {
  if (!result.error.empty()) return fmt::format("{:<12} no plan", result.strategy);
  return fmt::format("{:<12} {:>10}  {:<5}  {}", result.strategy, to_text(result.step_time),
                     to_text(result.verdict()), strategies::short_text(result.degrees));
}

Document report_comparison(const experiment::Experiment& experiment,
                           const std::vector<experiment::RunResult>& results,
                           const std::string& best, const experiment::Scaling* scaling,
                           const Missing& missing) {
  Document document;
  Table table = result_table(results, experiment.request.wide, experiment.request.objective);
  const std::string advice = advice_for(experiment, results);
  document.answer = answer_lines(results, table, advice, experiment.request.objective, missing);
  if (const std::string line = answer_on_degrees(experiment.request, results); !line.empty()) {
    document.answer.push_back("      " + line);
  }
  const std::optional<GainedRow> gained = gained_row(experiment, results);
  if (gained) {
    for (const std::string& line : gained->lines) document.answer.push_back("      " + line);
  }
  if (!missing.strategies.empty()) {
    document.answer.push_back(
        fmt::format("{} after {} of {} strategies; missing: {}", missing.reason, results.size(),
                    results.size() + missing.strategies.size(), join(missing.strategies)));
  }
  document.head = {question_line(experiment)};
  mark_rows(table, results);
  add_question(table, experiment);
  const std::string& columns = experiment.request.columns;
  document.tables = {columns.empty() ? std::move(table) : chosen_columns(table, columns)};
  if (auto jitter = jitter_table(experiment, results)) {
    document.tables.push_back(std::move(*jitter));
  }
  if (auto goodput = goodput_table(results)) document.tables.push_back(std::move(*goodput));
  if (scaling != nullptr) document.tables.push_back(scaling_table(*scaling));
  const auto note = [&](std::string line) {
    if (!line.empty()) document.notes.push_back(std::move(line));
  };
  if (scaling != nullptr) {
    for (std::string& line : scaling_notes(*scaling)) note(std::move(line));
  }
  const auto does_not_fit = [](R r) {
    return r.strategy == "data" && r.error.empty() && !r.fits();
  };
  if (advice.empty() && std::any_of(results.begin(), results.end(), does_not_fit)) {
    note(experiment::what_would_fit(experiment));
  }
  note(equal_plans(results));
  if (!results.empty()) {
    for (const std::string& line : results.front().notes) {
      if (line.starts_with(strategies::idle_line)) note(results.front().strategy + ": " + line);
    }
  }
  note(unfollowed_line(experiment.request, results));
  note(launch_line(results));
  for (R result : results) {
    if (!result.error.empty()) note(result.strategy + ": no plan: " + result.error);
  }
  for (const std::string& line : experiment.request.notes) note(line);
  for (std::string& line : short_source_lines(experiment, results)) note(std::move(line));
  note(engine_note(experiment.request.sim, results));
  if (results.size() > 1)
    note(
        "why a plan takes what it takes, and how far that may be off: parsim explain --strategy "
        "NAME");
  document.warnings = warnings_of(experiment, results);
  document.json = comparison_json(experiment, results, best, scaling, advice, missing);
  return document;
}

}  // namespace parsim::report
