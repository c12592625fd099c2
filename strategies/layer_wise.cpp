// Layer-wise parallelism (Jia, Lin, Qi, Aiken 2018): every layer gets the configuration with which
// the sum of computing, synchronising and resharding is least, found exactly by eliminating nodes
// and edges of the graph.
//
// In the paper's costs that sum is equation 1. In this project's, gradients travel while the
// backward pass still runs, so a second of synchronisation is worth less than one of anything else:
// how much less depends on the whole plan, so the search is done for several exchange rates, and
// simulation chooses among the plans, and among data, owt and model-even.
#include "strategies/layer_wise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/errors.hpp"
#include "strategies/layer_wise/tables.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

namespace {

using layer_wise::ClusterModel;
using layer_wise::Exchanges;
using layer_wise::Solution;
using layer_wise::Tables;
using layer_wise::TransferRule;

/// Gives the layers of a node one of its configurations.
void assign(const StrategyInput& input, const ClusterModel& model, const Tables& tables,
            std::size_t node, std::size_t choice, Plan& plan) {
  const layer_wise::Configuration& configuration = tables.nodes[node].configurations[choice];
  const std::vector<LayerId>& layers = tables.nodes[node].layers;
  const SharedList<DeviceId> devices(std::vector<DeviceId>(
      model.devices().begin(), model.devices().begin() + configuration.parts()));
  for (const LayerId layer : layers) {
    LayerPlan& chosen = plan.layers[layer.index()];
    chosen.cuts = cuts(input.network, layers[0], configuration, input.batch, model.speeds());
    chosen.devices = devices;
    chosen.sync = chosen_sync(input);
  }
}

Plan plan_of(const StrategyInput& input, const ClusterModel& model, const Tables& tables,
             const Solution& solution) {
  const std::vector<DeviceId> all = workers(input);
  Plan plan = empty_plan(input, "layer-wise", all);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    // Training data: every device reads its own; the cut does not matter.
    if (input.network.layers[l].kind.as<Input>() != nullptr) {
      plan.layers[l] = by_sample(input.batch, {all[0]});
    }
  }
  for (std::size_t n = 0; n < tables.nodes.size(); ++n)
    assign(input, model, tables, n, solution.choice[n], plan);
  plan.buckets = gradient_buckets(input);
  return plan;
}

/// "n=4: 21 layers, c=4: 5 layers", most frequent first; layers with parameters only.
std::string summary(const Network& network, const Plan& plan) {
  std::map<std::string, std::size_t> counts;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (!network.layers[l].parameters.empty()) ++counts[configuration_text(plan.layers[l])];
  }
  std::vector<std::pair<std::string, std::size_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> texts;
  for (const auto& [text, count] : sorted) texts.push_back(fmt::format("{} x {}", count, text));
  return join(texts);
}

/// Adds notes on the chosen configurations and on the search.
void note_search(Plan& plan, const Network& network, const Tables& tables,
                 const Solution& solution) {
  plan.notes.push_back(
      fmt::format("layers with parameters (n sample, c channel, h height, w width, d depth): {}",
                  summary(network, plan)));
  if (solution.exact) {
    plan.notes.push_back(fmt::format(
        "optimal for the search's costs: {} nodes, {} after elimination, largest table over {}",
        tables.nodes.size(), solution.kernel, solution.widest));
  } else {
    plan.notes.push_back(fmt::format(
        "NOT proven optimal: a table over {} nodes would be too large, so a local search started "
        "from uniform choices",
        solution.widest));
  }
  if (tables.pruned) {
    plan.notes.emplace_back("the search was limited to the cheapest configurations of each layer");
  }
}

Plan plan_by_paper(const StrategyInput& input) {
  ClusterModel model(input, SearchCosts::paper);
  constexpr std::array weights{1.0};
  const bool total = input.search_costs == SearchCosts::paper_total;
  const Tables tables = make_tables(
      input, model, total ? TransferRule::total : TransferRule::slowest_receiver, weights);
  const Solution solution = solve(tables.problem(weights[0], 0));
  Plan plan = plan_of(input, model, tables, solution);
  note_search(plan, input.network, tables, solution);
  const PaperPrice price = paper_price(input, plan);
  plan.notes.push_back(fmt::format(
      "cost in the paper's model: {} = computing {} + synchronising {} + resharding {}; "
      "reconstructed: part k on device k, {}, the factor 2 of resharding{}",
      to_text(price.step()), to_text(price.compute), to_text(price.sync), to_text(price.transfer),
      total ? "one transfer after another" : "the slowest receiver",
      input.sync == Sync::Kind::server ? "" : ", rings instead of the paper's server"));
  return plan;
}

/// What a choice would take if as much synchronisation as possible hid behind the backward pass,
/// about two thirds of the computing.
double estimate(const Tables& tables, const Solution& solution) {
  double compute = 0, sync = 0;
  for (std::size_t n = 0; n < tables.nodes.size(); ++n) {
    compute += tables.costs[n].compute[solution.choice[n]];
    sync += tables.costs[n].sync[solution.choice[n]];
  }
  constexpr double backward = 2.0 / 3.0;
  return cost_of(tables.problem(0, 0), solution.choice) + std::max(0.0, sync - backward * compute);
}

/// Exchange rates between exposed and hidden synchronisation; 1: nothing is hidden.
constexpr std::array sync_weights{1.0, 0.5, 0.2, 0.0};

struct Searched {
  Plan plan;
  Solution solution;
  Price price;  ///< by the estimate
};

/// Distinct plans, those that fit first, then by estimate. `memory_weight` is a price in seconds
/// per byte.
std::vector<Searched> search(const StrategyInput& input, const ClusterModel& model,
                             const Tables& tables, double memory_weight) {
  constexpr std::size_t finalists = 3;
  std::vector<Searched> candidates;
  for (const double sync_weight : sync_weights) {
    const Solution solution = solve(tables.problem(sync_weight, memory_weight));
    const auto same = [&](const Searched& c) { return c.solution.choice == solution.choice; };
    if (std::any_of(candidates.begin(), candidates.end(), same)) continue;
    candidates.push_back({plan_of(input, model, tables, solution), solution, {}});
    Searched& candidate = candidates.back();
    candidate.price = {overcommit(input, candidate.plan), Seconds{estimate(tables, solution)}};
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Searched& a, const Searched& b) {
    return a.price.better_than(b.price);
  });
  if (candidates.size() > finalists) candidates.resize(finalists);
  for (Searched& candidate : candidates) {
    note_search(candidate.plan, input.network, tables, candidate.solution);
    if (model.exchanges() == Exchanges::collectives) {
      candidate.plan.notes.emplace_back("the search was limited to cuts along one dimension");
    }
  }
  return candidates;
}

/// Changes of one node's configuration, each to what lacks least and then costs least, until every
/// device can hold its part; false if none helps or the bound is reached.
bool repair(const StrategyInput& input, const ClusterModel& model, const Tables& tables,
            Searched& candidate) {
  // Plans whose memory is looked at: a look costs as the layers do.
  const std::size_t most = 500'000 / std::max<std::size_t>(1, input.network.layers.size());
  const auto lacking = [&](const Plan& plan) {
    const std::vector<lowering::MemoryUse> uses = memory_use(input, plan);
    std::int64_t bytes = 0;
    for (std::size_t d = 0; d < uses.size(); ++d) {
      const std::int64_t over = uses[d].total().value - input.usable_memory(DeviceId{d}).value;
      bytes += std::max<std::int64_t>(0, over);
    }
    return bytes;
  };
  // These are the smallest configurations already: what repair can do is spread them. Where all
  // devices together lack much there is nothing to spread, and looking takes minutes.
  constexpr double hopeless = 1.5;
  double used = 0, there = 0;
  const std::vector<lowering::MemoryUse> now = memory_use(input, candidate.plan);
  for (std::size_t d = 0; d < now.size(); ++d) {
    if (input.cluster.model(DeviceId{d}).kind != DeviceKind::gpu) continue;
    used += static_cast<double>(now[d].total().value);
    there += static_cast<double>(input.usable_memory(DeviceId{d}).value);
  }
  if (used > hopeless * there) return false;
  const layer_wise::Problem problem = tables.problem(1, 0);
  std::vector<std::size_t>& choice = candidate.solution.choice;
  std::int64_t least = lacking(candidate.plan);
  std::size_t looked = 0;
  for (bool better = true; better && least > 0;) {
    better = false;
    for (std::size_t n = 0; n < tables.nodes.size() && least > 0; ++n) {
      const std::size_t old = choice[n];
      std::size_t chosen = old;
      std::pair<std::int64_t, double> best{least, 0};
      for (std::size_t c = 0; c < tables.nodes[n].configurations.size(); ++c) {
        if (c == old) continue;
        if (++looked > most) return false;
        choice[n] = c;
        assign(input, model, tables, n, c, candidate.plan);
        const std::pair price{lacking(candidate.plan), cost_of(problem, choice)};
        if (price.first >= least || (chosen != old && price >= best)) continue;
        best = price;
        chosen = c;
      }
      better = better || chosen != old;
      least = best.first;
      choice[n] = chosen;
      assign(input, model, tables, n, chosen, candidate.plan);
    }
  }
  if (least > 0) return false;
  candidate.plan.notes = {
      fmt::format("layers with parameters: {}", summary(input.network, candidate.plan)),
      "layers were changed one by one until the plan fitted: NOT proven optimal"};
  return true;
}

/// Memory is a sum over layers that all must share: a price per byte (a Lagrange multiplier),
/// raised until a plan fits; at last layer by layer.
std::vector<Searched> search_that_fits(const StrategyInput& input, ClusterModel& model) {
  constexpr TransferRule rule = TransferRule::slowest_receiver;
  std::vector<Searched> candidates =
      search(input, model, make_tables(input, model, rule, sync_weights), 0);
  if (candidates[0].price.fits()) return candidates;
  // Configurations that are slow but small count now.
  const Tables tables = make_tables(input, model, rule, {});
  candidates = search(input, model, tables, 0);
  double memory = 0;
  for (std::size_t n = 0; n < tables.nodes.size(); ++n) {
    memory += tables.costs[n].memory[candidates[0].solution.choice[n]];
  }
  const double scale = memory > 0 ? candidates[0].price.step.count() / memory : 0;
  std::vector<Searched> cheaper;
  for (const double raised : {0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e6}) {
    cheaper = search(input, model, tables, scale * raised);
    if (cheaper[0].price.fits()) break;
  }
  if (!cheaper[0].price.fits()) {
    cheaper.resize(1);
    if (!repair(input, model, tables, cheaper[0])) return candidates;
  }
  for (Searched& candidate : cheaper) {
    candidate.plan.notes.emplace_back("chosen for its memory: faster plans do not fit");
  }
  return cheaper;
}

void add_plan(Plan plan, std::vector<Plan>& plans) {
  const auto same = [&](const Plan& other) { return other.layers == plan.layers; };
  if (std::none_of(plans.begin(), plans.end(), same)) plans.push_back(std::move(plan));
}

/// A plan of another strategy, if it has one.
void add_plan_of(const StrategyInput& input, Plan (*make)(const StrategyInput&),
                 std::vector<Plan>& plans) {
  try {
    add_plan(make(input), plans);
  } catch (const InputError&) {  // as many samples as devices, for example
  }
}

Plan plan_by_own(const StrategyInput& input) {
  ClusterModel model(input, SearchCosts::own);
  std::vector<Plan> plans;
  for (Searched& candidate : search_that_fits(input, model)) {
    plans.push_back(std::move(candidate.plan));
  }
  if (input.simulate) {  // nothing else can compare the two kinds
    ClusterModel whole(input, SearchCosts::own, Exchanges::collectives);
    for (Searched& candidate : search_that_fits(input, whole)) {
      add_plan(std::move(candidate.plan), plans);
    }
  }
  const std::size_t searched = plans.size();
  if (input.simulate) {
    for (Plan (*make)(const StrategyInput&) : {plan_data, plan_owt, plan_model_even}) {
      add_plan_of(input, make, plans);
    }
    StrategyInput by_speed = input;
    by_speed.shares = ShareRule::proportional;
    add_plan_of(by_speed, plan_data, plans);
  }
  const std::size_t best = best_by_simulation(input, plans);
  Plan plan = std::move(plans[best]);
  if (input.simulate) {
    plan.notes.push_back(
        best < searched
            ? fmt::format(
                  "fastest of {} simulated plans: {} found by search, the others from data, "
                  "owt and model-even",
                  plans.size(), searched)
            : fmt::format("the plan of '{}', which is faster in simulation than the {} found by "
                          "search",
                          plan.strategy, searched));
  }
  plan.strategy = "layer-wise";
  return plan;
}

}  // namespace

Plan plan_layer_wise(const StrategyInput& input) {
  return input.search_costs == SearchCosts::own ? plan_by_own(input) : plan_by_paper(input);
}

}  // namespace parsim::strategies
