#include "report/gained.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/text.hpp"
#include "experiment/upkeep.hpp"

namespace parsim::report {

namespace {

using R = const experiment::RunResult&;

/// What --objective makes as small as possible.
double goal_of_row(R result, strategies::Objective objective) {
  return experiment::goal_of(objective, result.step_time, result.upkeep);
}

/// "18.3 s -> 8.71 s, 2.11 times as fast", or "1.23 % less" of a small gain; of costs and energies
/// their unit, too.
std::string change(R mine, R other, double ratio, strategies::Objective objective) {
  const std::string steps =
      fmt::format("{} -> {}", to_text(mine.step_time), to_text(other.step_time));
  if (objective == strategies::Objective::time) {
    constexpr double small = 1.1;
    return ratio < small ? fmt::format("{}, {} % less", steps, three_digits(100 * (1 - 1 / ratio)))
                         : fmt::format("{}, {} times as fast", steps, three_digits(ratio));
  }
  const bool cost = objective == strategies::Objective::cost;
  return fmt::format("{} % of the {} (step {})", three_digits(100 / ratio),
                     cost ? "cost" : "energy", steps);
}

/// "computing 9.33 s less", "waiting for other GPUs 310 ms less": differences between the means
/// of the GPUs that compute, the largest first. They add up to that of the steps.
std::vector<std::string> time_reasons(R mine, R best) {
  const DeviceUse before = experiment::mean_use_of_working(mine),
                  after = experiment::mean_use_of_working(best);
  const bool pipeline = mine.stages.size() > 1 || best.stages.size() > 1;
  std::array<std::pair<std::string, Seconds>, 3> parts = {{
      {"computing", before.compute - after.compute},
      {"communication that no kernel hides",
       before.exposed_communication - after.exposed_communication},
      {pipeline ? "waiting for other stages and GPUs" : "waiting for other GPUs",
       before.idle - after.idle},
  }};
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return std::abs(a.second.count()) > std::abs(b.second.count());
  });
  constexpr double counts = 0.05;  // of the largest
  std::vector<std::string> reasons;
  for (const auto& [name, less] : parts) {
    const double size = std::abs(less.count());
    if (size <= 0 || size < counts * std::abs(parts[0].second.count())) {
      continue;
    }
    reasons.push_back(
        fmt::format("{} {} {}", name, to_text(Seconds{size}), less > Seconds{} ? "less" : "more"));
  }
  return reasons;
}

std::size_t working_devices(R result) {
  std::size_t count = 0;
  for (const experiment::DeviceResult& device : result.devices) {
    count += device.kind == DeviceKind::gpu && device.use.compute > Seconds{} ? 1 : 0;
  }
  return count;
}

bool shares_equal(R result) {
  return std::all_of(result.stages.begin(), result.stages.end(), [](const auto& stage) {
    return stage.micro_batch.has_value() || !stage.dp.has_value();
  });
}

/// "tp 1 instead of 4", "recomputation none instead of full": what differs between the plans.
std::vector<std::string> changes_of(R mine, R best) {
  std::vector<std::string> changes;
  const auto differ = [&](std::string_view name, const auto& before, const auto& after) {
    if (before != after) changes.push_back(fmt::format("{} {} instead of {}", name, after, before));
  };
  differ("GPUs", working_devices(mine), working_devices(best));
  const strategies::Degrees &before = mine.degrees, &after = best.degrees;
  const auto number = [&](std::string_view name, const auto& old, const auto& now) {
    if (old && now) differ(name, *old, *now);
  };
  const auto varies = [](const strategies::Degrees& of) { return !of.tp || !of.pp || !of.dp; };
  if (varies(before) != varies(after)) {
    changes.emplace_back(varies(after) ? "degrees that differ between layers or stages"
                                       : "the same degrees in all layers");
  }
  number("tp", before.tp, after.tp);
  number("pp", before.pp, after.pp);
  number("dp", before.dp, after.dp);
  number("cp", before.cp, after.cp);
  number("ep", before.ep, after.ep);
  number("etp", before.etp, after.etp);
  number("vp", before.vp, after.vp);
  differ("micro-batches", before.micro_batches, after.micro_batches);
  number("zero", before.zero, after.zero);
  const auto word = [&](std::string_view name, const auto& old, const auto& now) {
    if (old && now) differ(name, to_text(*old), to_text(*now));
  };
  word("schedule", before.schedule, after.schedule);
  word("recomputation", before.recompute, after.recompute);
  const auto on = [&](std::string_view name, const std::optional<bool>& old,
                      const std::optional<bool>& now) {
    // A plan without tensor parallelism has no use for either.
    if (before.tp.value_or(2) > 1 && after.tp.value_or(2) > 1) {
      differ(name, old.value_or(false) ? "on" : "off", now.value_or(false) ? "on" : "off");
    }
  };
  on("sequence parallelism", before.sequence_parallel, after.sequence_parallel);
  on("tp-overlap", before.tensor_overlap, after.tensor_overlap);
  for (const experiment::Choice& choice : mine.choices) {
    const auto other =
        std::find_if(best.choices.begin(), best.choices.end(),
                     [&](const experiment::Choice& one) { return one.name == choice.name; });
    if (other != best.choices.end()) differ(choice.name, choice.value, other->value);
  }
  if (shares_equal(mine) && !shares_equal(best)) {
    changes.emplace_back("more samples on faster GPUs");
  }
  if (changes.empty()) changes.emplace_back("other blocks, GPUs or samples of its stages");
  return changes;
}

std::string run_text(R mine) {
  return fmt::format("your run ({})", strategies::short_text(mine.degrees));
}

std::string with_changes(const GainedRow& row) { return "with " + join(row.changes); }

/// What is gained and by which changes, without a word on trainers; sets the row's other fields.
std::vector<std::string> gain_lines(R mine, const std::vector<experiment::RunResult>& sorted,
                                    strategies::Objective objective, GainedRow& row) {
  R best = sorted.front();
  if (best.fits()) row.best = best.strategy;
  if (!mine.fits()) {
    const std::string lacks = fmt::format("{} does not fit in memory: {}", run_text(mine),
                                          experiment::memory_verdict(mine));
    if (!best.fits()) return {lacks};
    row.changes = changes_of(mine, best);
    return {fmt::format("{}; {} fits and takes {}", lacks, best.strategy, to_text(best.step_time)),
            with_changes(row)};
  }
  row.ratio = goal_of_row(mine, objective) / goal_of_row(best, objective);
  row.seconds = mine.step_time - best.step_time;
  const bool is_best = &mine == &best || mine.plan_id == best.plan_id || *row.ratio <= 1;
  if (!is_best) {
    row.reasons = time_reasons(mine, best);
    row.changes = changes_of(mine, best);
    return {fmt::format("against {}: {}: {}", run_text(mine),
                        change(mine, best, *row.ratio, objective), join(row.reasons)),
            with_changes(row)};
  }
  row.best = row.against;
  row.ratio = 1;
  row.seconds = Seconds{};
  const std::string superlative = objective == strategies::Objective::time   ? "fastest"
                                  : objective == strategies::Objective::cost ? "cheapest"
                                                                             : "most economical";
  const auto next = std::find_if(sorted.begin(), sorted.end(), [&](R other) {
    return other.fits() && other.plan_id != mine.plan_id;
  });
  std::string text =
      fmt::format("{} is the {} of these plans: nothing to gain", run_text(mine), superlative);
  if (next != sorted.end()) {
    const std::string other = to_text(next->step_time), own = to_text(mine.step_time);
    text += fmt::format("; the next, {}, takes {}", next->strategy,
                        other == own ? "as long" : other + " instead of " + own);
  }
  return {text};
}

/// Whether the trainer of the run can launch the best row, else which row it can.
std::string trainer_text(R mine, const std::vector<experiment::RunResult>& sorted,
                         strategies::Objective objective, GainedRow& row) {
  const auto can = [&](R other) {
    return other.fits() && other.trainers && other.plan_id != mine.plan_id &&
           std::find(other.trainers->begin(), other.trainers->end(), *row.trainer) !=
               other.trainers->end() &&
           (!mine.fits() || goal_of_row(other, objective) < goal_of_row(mine, objective));
  };
  const auto first = std::find_if(sorted.begin(), sorted.end(), can);
  if (first == sorted.end()) {
    return fmt::format(
        "{} can launch none of the better plans here; '--launch {}' names the nearest that it can",
        *row.trainer, *row.trainer);
  }
  const double ratio = goal_of_row(mine, objective) / goal_of_row(*first, objective);
  row.launchable = {first->strategy, first->step_time, ratio};
  if (first == sorted.begin()) {
    return fmt::format("{} can launch it (plan --launch {})", *row.trainer, *row.trainer);
  }
  const std::string gain =
      mine.fits() ? change(mine, *first, ratio, objective) : to_text(first->step_time);
  return fmt::format("{} cannot launch {}, but --strategy {}: {}", *row.trainer,
                     sorted.front().strategy, first->strategy, gain);
}

}  // namespace

std::optional<GainedRow> gained_row(const experiment::Experiment& experiment,
                                    const std::vector<experiment::RunResult>& sorted) {
  const auto mine = std::find_if(sorted.begin(), sorted.end(), [](R result) {
    return result.error.empty() && result.strategy == experiment::layout_strategy().name;
  });
  const auto others =
      std::count_if(sorted.begin(), sorted.end(), [](R result) { return result.error.empty(); });
  if (mine == sorted.end() || others < 2) return std::nullopt;
  const strategies::Objective objective = experiment.request.objective;
  GainedRow row;
  row.against = mine->strategy;
  row.lines = gain_lines(*mine, sorted, objective, row);
  if (experiment.layout && !experiment.layout->trainer.empty()) {
    row.trainer = experiment.layout->trainer;
    if (row.best && row.best != row.against) {
      row.lines.push_back(trainer_text(*mine, sorted, objective, row));
    }
  }
  return row;
}

}  // namespace parsim::report
