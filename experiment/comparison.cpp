#include "experiment/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/communication.hpp"
#include "experiment/lower_bound.hpp"
#include "experiment/progress.hpp"
#include "experiment/step_interval.hpp"

namespace parsim::experiment {

double weight_of(const strategies::Strategy& strategy) {
  // MEASURED for resnet50 on mixed-p100-v100, of `model`'s.
  constexpr std::pair<std::string_view, double> measured[] = {
      {"model", 1},      {"hybrid", 10},     {"tensor", 8}, {"pipeline", 9},
      {"layer-wise", 2}, {"hypergraph", 11}, {"best", 24}};
  for (const auto& [name, weight] : measured) {
    if (name == strategy.name) return weight;
  }
  return 0.5;
}

const strategies::Strategy& named_strategy(const Request& request, std::string_view name) {
  for (const strategies::Strategy& own : request.own_strategies) {
    if (own.name == name) return own;
  }
  return strategies::strategy(name, "--strategy");
}

std::vector<const strategies::Strategy*> chosen_strategies(const Request& request) {
  std::vector<const strategies::Strategy*> named;
  for (const std::string& name : request.strategies) {
    named.push_back(&named_strategy(request, name));
  }
  std::vector<const strategies::Strategy*> chosen;
  const auto choose = [&](const strategies::Strategy& entry, bool unnamed) {
    const auto times = std::count(named.begin(), named.end(), &entry);
    if (times > 1) {
      throw InputError("--strategy", "'" + entry.name + "' given twice", "accepted: once each");
    }
    if (times == 1 || unnamed) chosen.push_back(&entry);
  };
  for (const strategies::Strategy& entry : strategies::all()) choose(entry, named.empty());
  for (const strategies::Strategy& own : request.own_strategies) choose(own, false);
  if (!request.layout_file.empty()) chosen.push_back(&layout_strategy());
  return chosen;
}

std::vector<Candidate> plan_all(const Experiment& experiment,
                                const std::vector<const strategies::Strategy*>& strategies,
                                bool quiet,
                                const std::function<void(const Candidate&, Progress&)>& known) {
  std::vector<std::optional<Candidate>> candidates;
  Planner planner(experiment);
  std::vector<double> weights;
  for (const strategies::Strategy* strategy : strategies) weights.push_back(weight_of(*strategy));
  Progress progress(std::move(weights), quiet, experiment.request.poll);
  for (const strategies::Strategy* strategy : strategies) {
    progress.next(strategy->name);
    Candidate& candidate = candidates.emplace_back().emplace();
    candidate.strategy = strategy;
    try {
      candidate.planned = planner.plan(*strategy, &progress);
    } catch (const InputError& error) {
      if (strategy == &layout_strategy()) throw;  // the user's own plan
      candidate.error = error.what();
      candidate.refusal = std::current_exception();
    }
    if (known) known(candidate, progress);
  }
  check_candidates(experiment, candidates);
  std::vector<Candidate> all;
  for (std::optional<Candidate>& candidate : candidates) all.push_back(*std::move(candidate));
  return all;
}

void check_candidates(const Experiment& experiment,
                      std::span<const std::optional<Candidate>> candidates) {
  std::vector<Plan> plans;
  std::exception_ptr first;
  for (const std::optional<Candidate>& candidate : candidates) {
    if (!candidate) continue;
    if (candidate->error.empty()) plans.push_back(candidate->planned.plan);
    if (!first) first = candidate->refusal;
  }
  if (plans.empty() && first) std::rethrow_exception(first);
  // A strategy without a plan may be the one that the options were for; its row says what it wants.
  if (!first) check_used(experiment.request, experiment.network, plans);
}

RunResult refused(const Candidate& candidate) {
  RunResult result;
  result.strategy = candidate.strategy->name;
  result.error = candidate.error;
  return result;
}

std::string unfollowed_degrees(const Request& request, const RunResult& row) {
  if (!row.error.empty() || row.strategy == layout_strategy().name) return {};
  const strategies::Degrees& has = row.degrees;
  std::vector<std::string> flags;
  const auto compare = [&](std::string_view flag, const std::optional<std::int32_t>& asked,
                           const std::optional<std::int64_t>& own) {
    if (!request.given.contains(flag) || !asked || own == std::int64_t{*asked}) return;
    flags.push_back(fmt::format("{} {}", flag, *asked));
  };
  compare("--tp", request.tensor_parallel, has.tp);
  compare("--pp", request.pipeline_parallel, has.pp);
  compare("--dp", request.data_parallel, has.dp);
  compare("--vp", request.virtual_pipeline, has.vp);
  compare("--cp", request.context_parallel, has.cp);
  compare("--ep", request.expert_parallel, has.ep);
  compare("--etp", request.expert_tensor_parallel, has.etp);
  compare("--micro-batches", request.micro_batches, row.micro_batches);
  return join(flags, " ");
}

void note_unfollowed(const Experiment& experiment, const Plan& plan, RunResult& row) {
  if (const std::string asked = unfollowed_degrees(experiment.request, row); !asked.empty()) {
    row.notes.push_back("does not follow " + asked);
  }
  const auto divides_experts = [](const LayerPlan& layer) {
    return std::any_of(layer.cuts.begin(), layer.cuts.end(), [](const Cut& cut) {
      return cut.dim == Dim::expert && cut.sizes.size() > 1;
    });
  };
  if (experiment.request.expert_imbalance > 1 &&
      std::none_of(plan.layers.begin(), plan.layers.end(), divides_experts)) {
    row.notes.emplace_back(
        "--expert-imbalance changes nothing where every GPU has all experts, or a part of each "
        "(--ep divides them)");
  }
}

namespace {

/// Tells rows whose plan equals that of an earlier row.
void find_equal_plans(std::vector<RunResult>& results) {
  std::map<std::string, std::string> owners;  // of plans, by id
  for (RunResult& result : results) {
    if (!result.error.empty()) continue;
    const auto [owner, fresh] = owners.try_emplace(result.plan_id, result.strategy);
    if (!fresh) result.same_plan_as = owner->second;
  }
}

/// Sets `probability_fastest` of the plans that fit.
void compare_steps(const Experiment& experiment, std::vector<RunResult>& results) {
  std::vector<Contender> plans;
  for (const RunResult& result : results) {
    if (result.fits()) plans.push_back({result.step_time, result.parts, result.by_model});
  }
  const std::vector<double> probabilities =
      probabilities_of_fastest(plans, experiment.spreads(), experiment.request.seed);
  std::size_t next = 0;
  for (RunResult& result : results) {
    if (result.fits()) result.probability_fastest = probabilities[next++];
  }
}

}  // namespace

void complete_rows(const Experiment& experiment, std::vector<RunResult>& results) {
  find_equal_plans(results);
  const auto goal = [&](const RunResult& result) {
    return goal_of(experiment.request.objective, result.step_time, result.upkeep);
  };
  std::stable_sort(results.begin(), results.end(), [&](const RunResult& a, const RunResult& b) {
    if (a.error.empty() != b.error.empty()) return a.error.empty();
    if (a.fits() != b.fits()) return a.fits();
    return goal(a) < goal(b);
  });
  compare_steps(experiment, results);
  bound_steps(experiment, results);
}

std::vector<RunResult> compare(const Experiment& experiment) {
  std::vector<RunResult> results;
  for (const Candidate& candidate :
       plan_all(experiment, chosen_strategies(experiment.request), true)) {
    results.push_back(candidate.error.empty()
                          ? run_plan(experiment, candidate.planned, Operations::folded).result
                          : refused(candidate));
    results.back().strategy = candidate.strategy->name;
  }
  check_algorithm_used(experiment.request, results);
  complete_rows(experiment, results);
  return results;
}

}  // namespace parsim::experiment
