#include "experiment/candidate_workers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "experiment/packed_result.hpp"
#include "experiment/progress.hpp"
#include "experiment/workers.hpp"
#include "strategies/out_of_time.hpp"

namespace parsim::experiment {

namespace {

/// What a worker hands back.
enum class Sent : std::uint8_t { planned, no_plan, input_error, simulation_error, refused, bug };

template <class... Parts>
std::string sent(Sent kind, const Parts&... parts) {
  Packer packer;
  packer.put(kind);
  (packer.put(parts), ...);
  return std::move(packer).text();
}

std::string sent_input_error(Sent kind, const InputError& error) {
  return sent(kind, error.where, error.found, error.accepted);
}

using Clock = std::chrono::steady_clock;

/// Of all time: when a search that has a limit pauses for its best plan so far to be simulated, the
/// more so as it may end with a plan that takes too long to simulate; and when it ends.
constexpr double early_ends[] = {1.0 / 8, 1.0 / 3}, search_share = 2.0 / 3;

/// What a search with a limit of time asks to be kept.
using Keep = std::function<void(const Plan&)>;

bool stopped(const Plan& plan) {
  return std::any_of(plan.notes.begin(), plan.notes.end(), [](const std::string& note) {
    return note.starts_with(strategies::search_stopped);
  });
}

/// The strategy, which is asked to end its search at `search_share` of the limit from now on. What
/// it has found earlier is kept; a search that begins again knows all prices.
strategies::Strategy ending(const strategies::Strategy& strategy, Seconds limit, const Keep& keep) {
  strategies::Strategy limited = strategy;
  limited.callback = [plan = strategy.plan, limit, keep](const strategies::StrategyInput& input) {
    const Clock::time_point start = Clock::now();
    const auto search = [&](double share) {
      const Clock::time_point end =
          start + std::chrono::duration_cast<Clock::duration>(share * limit);
      strategies::StrategyInput asked = input;
      asked.poll = [&] {
        if (input.poll) input.poll();
        if (Clock::now() >= end) throw strategies::OutOfTime();
      };
      asked.simulate = [&](const Plan& candidate) {
        asked.poll();
        return input.simulate(candidate);
      };
      return plan(asked);
    };
    std::optional<Plan> last;
    for (const double share : early_ends) {
      try {
        Plan early = search(share);
        if (!stopped(early)) return early;
        if (last && last->layers == early.layers && last->schedule == early.schedule) continue;
        keep(early);
        last = std::move(early);
      } catch (const strategies::OutOfTime&) {  // nothing yet
      }
    }
    try {
      return search(search_share);
    } catch (const strategies::OutOfTime&) {
      if (last) return *std::move(last);
      throw;
    }
  };
  return limited;
}

/// The row that a user would take.
bool better(const RunResult& a, const RunResult& b) {
  return std::pair(!a.fits(), a.step_time) < std::pair(!b.fits(), b.step_time);
}

/// Runs in a worker. `limit`: of a search that answers with the best plan so far.
std::string plan_and_run(const Experiment& experiment, Planner& planner,
                         const strategies::Strategy& strategy, Progress& progress,
                         const RowMaker& row, const std::optional<Seconds>& limit,
                         const SendEarly& send_early) {
  try {
    Candidate candidate;
    candidate.strategy = &strategy;
    std::string kept;
    std::optional<RunResult> kept_row;
    const auto planned_text = [](const Planned& planned, const std::optional<RunResult>& result) {
      return sent(Sent::planned, to_json(planned.plan), planned.search_time,
                  planned.simulation_time, result);
    };
    const Clock::time_point start = Clock::now();
    const Keep keep = [&](const Plan& plan) {
      Candidate early{&strategy, {plan, Clock::now() - start, {}}, {}, {}};
      early.planned.plan.dims = dim_texts(experiment.request.dims);
      std::optional<RunResult> result;
      if (row) result = row(early, progress);
      if (kept_row && result && !better(*result, *kept_row)) return;
      kept = planned_text(early.planned, result);
      kept_row = std::move(result);
      send_early(kept);
    };
    try {
      candidate.planned = planner.plan(limit ? ending(strategy, *limit, keep) : strategy);
    } catch (const InputError& error) {
      return sent_input_error(Sent::no_plan, error);
    } catch (const strategies::OutOfTime&) {
      return sent(Sent::refused, std::string("no plan within the time limit"));
    }
    std::optional<RunResult> result;
    if (row) result = row(candidate, progress);
    if (kept_row && result && better(*kept_row, *result)) return kept;
    return planned_text(candidate.planned, result);
  } catch (const InputError& error) {
    return sent_input_error(Sent::input_error, error);
  } catch (const RefusedByMachine& error) {
    return sent(Sent::refused, std::string(error.what()));
  } catch (const SimulationError& error) {
    return sent(Sent::simulation_error, std::string(error.what()));
  } catch (const std::bad_alloc&) {
    return sent(Sent::refused, std::string("out of memory"));
  } catch (const std::exception& error) {
    return sent(Sent::bug, std::string(error.what()));
  }
}

void refuse(Candidate& candidate, std::exception_ptr refusal, std::string error) {
  candidate.refusal = std::move(refusal);
  candidate.error = std::move(error);
}

/// What became of a task; throws what concerns all rows.
std::optional<RunResult> receive(const TaskEnd& end, Candidate& candidate) {
  if (!end.failure.empty()) {
    const RefusedByMachine died("not finished: " + end.failure);
    refuse(candidate, std::make_exception_ptr(died), died.what());
    return std::nullopt;
  }
  Unpacker unpacker(end.text);
  const Sent kind = unpacker.get<Sent>();
  if (kind == Sent::planned) {
    candidate.planned.plan = plan_from_json(unpacker.get<std::string>(),
                                            fmt::format("strategy {}", candidate.strategy->name));
    unpacker.get(candidate.planned.search_time);
    unpacker.get(candidate.planned.simulation_time);
    return unpacker.get<std::optional<RunResult>>();
  }
  const auto text = unpacker.get<std::string>();
  if (kind == Sent::no_plan || kind == Sent::input_error) {
    const auto found = unpacker.get<std::string>();
    const InputError error(text, found, unpacker.get<std::string>());
    // The user's own plan, or what is wrong with all rows.
    if (kind == Sent::input_error || candidate.strategy == &layout_strategy()) throw error;
    refuse(candidate, std::make_exception_ptr(error), error.what());
  } else if (kind == Sent::refused) {
    refuse(candidate, std::make_exception_ptr(RefusedByMachine(text)), text);
  } else if (kind == Sent::simulation_error) {
    throw SimulationError(text);
  } else {
    throw BrokenInvariant(text);
  }
  return std::nullopt;
}

/// Strategies that may run at once, and after these the next ones: those that start from the plans
/// of others come alone.
std::vector<std::vector<std::size_t>> rounds_of(
    const std::vector<const strategies::Strategy*>& strategies) {
  std::vector<std::vector<std::size_t>> rounds{{}};
  for (std::size_t s = 0; s < strategies.size(); ++s) {
    const strategies::Strategy& strategy = *strategies[s];
    if (!strategy.starts_from_others) {
      rounds.front().push_back(s);
    } else {
      rounds.push_back({s});
    }
  }
  return rounds;
}

}  // namespace

std::vector<std::optional<Candidate>> plan_in_workers(
    const Experiment& experiment, const std::vector<const strategies::Strategy*>& strategies,
    const CompareWork& work, bool quiet, const RowMaker& row,
    const std::function<void(std::size_t, const Candidate&, std::optional<RunResult>, Progress&)>&
        known) {
  Planner planner(experiment);  // workers have copies, which learn in their own way
  std::vector<double> weights;
  for (const strategies::Strategy* strategy : strategies) {
    weights.push_back(weight_of(*strategy));
  }
  Progress progress(weights, quiet, experiment.request.poll);
  std::vector<std::optional<Candidate>> candidates(strategies.size());
  std::vector<std::size_t> under_way;
  std::vector<bool> ended(strategies.size(), false);
  const auto show = [&] {
    std::vector<std::string> names;
    for (const std::size_t s : under_way) names.push_back(strategies[s]->name);
    progress.at_once(ended, join(names));
  };
  const auto searches_all = [](const strategies::Strategy* strategy) {
    return strategy->plan == strategies::plan_best;
  };
  const bool best = std::any_of(strategies.begin(), strategies.end(), searches_all);
  for (const std::vector<std::size_t>& round : rounds_of(strategies)) {
    WorkLimits limits;
    limits.processes = work.jobs;
    limits.stops = true;
    limits.poll = [&] { progress.poll(); };
    std::optional<Seconds> search_limit;  // of a search that answers with the best so far
    if (work.limit) {
      // `best` comes last, and is most of the answer: half of the time is its own.
      constexpr double own = 0.5;
      const bool now = !round.empty() && searches_all(strategies[round.front()]);
      const Seconds spent = Clock::now() - work.start;
      limits.all = (best && !now ? own : 1) * *work.limit - spent;
      if (now) search_limit = limits.all;
    }
    // One would leave the others idle. With a limit, parts that end at once would end too late.
    if (round.size() == 1 && work.jobs > 1 && !search_limit) {
      planner.divide_searches(std::bind_front(results_at_once, work.jobs));
    }
    const auto plan = [&](std::size_t s, const SendEarly& send_early) {
      return plan_and_run(experiment, planner, *strategies[s], progress, row, search_limit,
                          send_early);
    };
    (void)run_in_workers(
        round, limits, plan,
        [&](const TaskEnd& end) {
          std::erase(under_way, end.task);
          ended[end.task] = true;
          Candidate candidate;
          candidate.strategy = strategies[end.task];
          std::optional<RunResult> result = receive(end, candidate);
          known(end.task, candidate, std::move(result), progress);
          candidates[end.task] = std::move(candidate);
          show();
        },
        [&](std::size_t task) {
          under_way.push_back(task);
          show();
        });
    for (const std::size_t s : round) {
      if (candidates[s] && candidates[s]->error.empty()) {
        planner.remember(candidates[s]->planned.plan);
      }
    }
  }
  const auto has_plan = [](const std::optional<Candidate>& one) {
    return one && one->error.empty();
  };
  const bool all = std::all_of(candidates.begin(), candidates.end(),
                               [](const std::optional<Candidate>& one) { return one.has_value(); });
  if (!all && std::none_of(candidates.begin(), candidates.end(), has_plan)) {
    throw SimulationError(
        fmt::format("no strategy has a plan within --time-limit {}", to_text(*work.limit)));
  }
  if (all) check_candidates(experiment, candidates);
  return candidates;
}

}  // namespace parsim::experiment
