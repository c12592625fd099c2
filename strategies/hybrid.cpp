// Hybrid parallelism with GABRA (Akintoye, Han, Zhang, Chen, Zhang 2021/2022): the network in
// contiguous parts of equal load, a genetic allocation of the parts to devices, replicas of the
// whole for data parallelism on top, micro-batches through the parts. What the abstracts say is
// kept; encoding, operators, constants and closed form are a RECONSTRUCTION (see
// hybrid/allocation.hpp). Beyond the paper: the cut is fitted to the allocation found, replicas of
// unequal speed get unequal shares, and finalists are simulated.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/blocks.hpp"
#include "strategies/device_order.hpp"
#include "strategies/hybrid/chain.hpp"
#include "strategies/move_borders.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies {

namespace {

using hybrid::Chain;
using hybrid::Choice;
using hybrid::Fitness;
using hybrid::Problem;

/// More devices than this: allocations by speed and by id only, and one finalist.
constexpr std::size_t most_devices_to_search = 256;
constexpr std::size_t finalists = 4;  ///< that use all devices, and as many that do not

/// Numbers of parts that are tried: all up to eight, then doubling, and one for each device.
std::vector<std::size_t> numbers_of_parts(const StrategyInput& input, std::size_t devices) {
  const std::size_t most = std::min(devices, units_of(input.network, input.granularity).size());
  if (const auto asked = parts_asked(input.parts, input, devices, "hybrid", "parts"))
    return {*asked};
  std::set<std::size_t> numbers;
  for (std::size_t parts = 1; parts <= std::min<std::size_t>(most, 8); ++parts) {
    numbers.insert(parts);
  }
  if (devices <= most_devices_to_search) {
    for (std::size_t parts = 16; parts <= most; parts *= 2) numbers.insert(parts);
    numbers.insert(most);
  }
  return {numbers.begin(), numbers.end()};
}

/// Numbers of replicas worth a look: as many as there are devices for, half of that and so on, and
/// as many as fit on the first nodes together or on the fastest kinds of devices.
std::vector<std::size_t> numbers_of_replicas(const StrategyInput& input, const Chain& chain,
                                             std::size_t parts) {
  const std::size_t full = chain.devices.size() / parts;
  std::set<std::size_t> numbers;
  for (std::size_t n = full; n > 0; n /= 2) numbers.insert(n);
  std::map<NodeId, std::size_t> of_node;
  std::map<std::size_t, std::size_t> of_kind;
  for (std::size_t d = 0; d < chain.devices.size(); ++d) {
    ++of_node[input.cluster[chain.devices[d]].node];
    ++of_kind[chain.kinds[d]];
  }
  for (const auto& [node, count] : of_node) numbers.insert(count / parts);
  std::vector<std::pair<double, std::size_t>> kinds;  // time of the network, devices
  for (const auto& [kind, count] : of_kind) {
    double time = 0;
    for (const hybrid::Affine& layer : chain.times(1, 1)[kind]) time += layer.at(1);
    kinds.emplace_back(time, count);
  }
  std::sort(kinds.begin(), kinds.end());
  std::size_t fastest = 0;
  for (const auto& [time, count] : kinds) numbers.insert((fastest += count) / parts);
  numbers.erase(0);
  return {numbers.rbegin(), numbers.rend()};  // most first
}

/// Numbers of micro-batches worth a look: divisors of the batch up to sixteen for each part.
std::set<std::int32_t> numbers_of_micro_batches(const StrategyInput& input, std::size_t parts) {
  if (input.micro_batches) return {*input.micro_batches};
  std::set<std::int32_t> numbers;
  const auto stages = static_cast<std::int64_t>(parts);
  for (const std::int64_t most :
       {std::int64_t{1}, stages, 2 * stages, 4 * stages, 8 * stages, 16 * stages}) {
    std::int64_t divisor = std::min(most, input.batch);
    while (input.batch % divisor != 0) --divisor;
    numbers.insert(static_cast<std::int32_t>(divisor));
  }
  return numbers;
}

/// Replicas' shares such that they finish together, if that is better than by speed.
void refine_shares(const Problem& problem, Choice& choice) {
  if (choice.shares.size() < 2) return;
  std::vector<std::size_t> each(choice.shares.size());
  for (std::size_t r = 0; r < each.size(); ++r) each[r] = r;
  const auto time = [&](std::size_t replica, std::int64_t samples) {
    double slowest = 0;
    for (std::size_t i = 0; i < problem.parts; ++i) {
      const std::size_t device = choice.genes[replica * problem.parts + i];
      slowest = std::max(slowest, problem.time_s[i][problem.kinds[device]].at(samples));
    }
    return Seconds{slowest};
  };
  std::vector<std::int64_t> shares = finish_together(problem.samples, each, time);
  const Fitness value = hybrid::fitness(problem, choice.genes, shares);
  if (!value.better_than(choice.fitness)) return;
  choice.fitness = value;
  choice.shares = std::move(shares);
}

/// Gene after gene on the devices in `order`, replica by replica.
hybrid::Genes in_order(const Problem& problem, const std::vector<std::size_t>& order) {
  return {order.begin(),
          order.begin() + static_cast<std::ptrdiff_t>(problem.parts * problem.replicas)};
}

/// What a strategy run spends: orders of devices to begin with, fitness evaluations left.
struct Means {
  std::vector<std::vector<std::size_t>> orders;
  std::int64_t evaluations = 0;
};

/// Where the search begins: the fastest devices, and neighbours.
std::vector<hybrid::Genes> simple_allocations(const Problem& problem, const Means& means) {
  std::vector<hybrid::Genes> all{hybrid::greedy(problem)};
  for (const std::vector<std::size_t>& order : means.orders)
    all.push_back(in_order(problem, order));
  return all;
}

Fitness best_simple(const Problem& problem, const Means& means) {
  std::optional<Fitness> best;
  for (const hybrid::Genes& genes : simple_allocations(problem, means)) {
    const Fitness value = hybrid::fitness(problem, genes);
    if (!best || value.better_than(*best)) best = value;
  }
  return *best;
}

Choice allocate(const StrategyInput& input, const Problem& problem, std::vector<std::size_t> first,
                std::vector<hybrid::Genes> seeds, Means& means) {
  Choice choice{std::move(first), static_cast<std::int32_t>(problem.micro_batches), {}, {}, {}};
  // All devices have the whole network: nothing to choose.
  const bool trivial = problem.parts == 1 && problem.replicas == problem.devices();
  if (trivial || problem.devices() > most_devices_to_search) {
    choice.genes = hybrid::greedy(problem);
  } else {
    for (hybrid::Genes& genes : simple_allocations(problem, means))
      seeds.push_back(std::move(genes));
    choice.genes = hybrid::search(problem, std::move(seeds), input.seed, &means.evaluations).genes;
  }
  choice.shares = hybrid::replica_shares(problem, choice.genes);
  choice.fitness = hybrid::fitness(problem, choice.genes, choice.shares);
  refine_shares(problem, choice);
  return choice;
}

/// How much longer than the least the longest part may be for the sake of what crosses between
/// parts.
constexpr double slacks[] = {0, 0.02, 0.05};

/// The best choice found for a number of parts: equal load, with the slack and the micro-batches
/// that suit the greedy allocation, GABRA; then the cut fitted to the allocation, as long as that
/// helps.
Choice choose(const StrategyInput& input, const Chain& chain, std::size_t parts,
              std::size_t replicas, Means& means) {
  std::vector<std::size_t> first;
  std::int32_t micro_batches = 0;
  Fitness least;
  const auto attempt = [&](std::int32_t number) {
    const std::int64_t samples = hybrid::usual_samples(input, replicas, number);
    std::set<std::vector<std::size_t>> cuts;
    for (const double slack : slacks) {
      const auto [cut, fresh] = cuts.insert(equal_load(chain, parts, samples, number, slack));
      if (!fresh) continue;
      const Problem problem = make_problem(input, chain, *cut, replicas, number);
      const Fitness value = best_simple(problem, means);
      if (micro_batches != 0 && !value.better_than(least)) continue;
      least = value;
      micro_batches = number;
      first = *cut;
    }
  };
  const std::set<std::int32_t> numbers = numbers_of_micro_batches(input, parts);
  for (const std::int32_t number : numbers) attempt(number);
  // Smaller micro-batches need less memory.
  for (std::int64_t more = 2 * *numbers.rbegin();
       least.lacking_bytes > 0 && !input.micro_batches && parts > 1 &&
       more <= std::min(input.batch, most_micro_batches);
       more *= 2) {
    if (input.batch % more == 0) attempt(static_cast<std::int32_t>(more));
  }
  Choice best =
      allocate(input, make_problem(input, chain, first, replicas, micro_batches), first, {}, means);
  constexpr int most_rounds = 3;
  for (int round = 0; round < most_rounds && parts > 1; ++round) {
    std::optional<Problem> fitted;
    for (const double slack : slacks) {
      std::vector<std::size_t> cut = fitted_load(chain, best, slack);
      if (cut == best.first || (fitted && cut == first)) continue;
      Problem problem = make_problem(input, chain, cut, replicas, micro_batches);
      const Fitness value = hybrid::fitness(problem, best.genes);
      if (fitted && !value.better_than(least)) continue;
      least = value;
      first = std::move(cut);
      fitted = std::move(problem);
    }
    if (!fitted) break;
    Choice next = allocate(input, *fitted, first, {best.genes}, means);
    if (!next.fitness.better_than(best.fitness)) break;
    best = std::move(next);
  }
  return best;
}

/// Devices in the given order, and in the order with the fastest neighbours: indices in `devices`.
std::vector<std::vector<std::size_t>> orders_of(const StrategyInput& input,
                                                const std::vector<DeviceId>& devices) {
  std::vector<std::size_t> as_given, in_chain;
  for (const DeviceId device : in_chain_order(input, devices)) {
    const auto found = std::find(devices.begin(), devices.end(), device);
    in_chain.push_back(static_cast<std::size_t>(found - devices.begin()));
    as_given.push_back(as_given.size());
  }
  // From both ends: a chain may have its fast devices last.
  std::vector<std::vector<std::size_t>> orders{as_given, in_chain};
  orders.emplace_back(in_chain.rbegin(), in_chain.rend());
  return orders;
}

/// All devices, and the number of replicas on fewer that looks best without a search, where that
/// looks better.
std::vector<std::size_t> promising_replicas(const StrategyInput& input, const Chain& chain,
                                            std::size_t parts, const Means& means) {
  std::vector<std::size_t> kept;
  std::optional<Fitness> least;
  const std::set<std::int32_t> numbers = numbers_of_micro_batches(input, parts);
  const std::int32_t number = parts == 1 ? *numbers.begin() : *numbers.rbegin();
  for (const std::size_t replicas : numbers_of_replicas(input, chain, parts)) {
    const std::vector<std::size_t> first =
        equal_load(chain, parts, hybrid::usual_samples(input, replicas, number), number, 0);
    const Fitness value = best_simple(make_problem(input, chain, first, replicas, number), means);
    if (least && !value.better_than(*least)) continue;
    least = value;
    if (kept.size() > 1) kept.pop_back();
    kept.push_back(replicas);
  }
  return kept;
}

Plan describe(const StrategyInput& input, const Chain& chain, const Choice& choice) {
  Plan plan = make_plan(input, chain.devices, choice);
  const std::size_t parts = choice.first.size();
  std::vector<std::string> replicas, shares;
  for (std::size_t r = 0; r < choice.shares.size(); ++r) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < parts; ++i) {
      names.push_back(input.cluster[chain.devices[choice.genes[r * parts + i]]].name);
    }
    replicas.push_back(join(names, " - "));
    shares.push_back(fmt::format("{}", choice.shares[r]));
  }
  const bool even = std::all_of(choice.shares.begin(), choice.shares.end(),
                                [&](std::int64_t share) { return share == choice.shares[0]; });
  plan.notes.push_back(
      fmt::format("{}{}-way data parallel, {}{}; devices by replica: {}",
                  parts == 1 ? "" : counted(static_cast<std::int64_t>(parts), "part") + ", ",
                  choice.shares.size(), even ? "" : "uneven batch, ",
                  counted(choice.micro_batches, "micro-batch"), join(replicas)));
  plan.notes.push_back(fmt::format("samples per micro-batch by replica: {}; closed-form step {}",
                                   join(shares), to_text(choice.fitness.step)));
  plan.notes.emplace_back(
      "reconstruction: GABRA's encoding, operators and constants are not published");
  return plan;
}

}  // namespace

Plan plan_hybrid(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  if (input.micro_batches) {
    expect_whole_micro_batches(input.batch, *input.micro_batches, "hybrid");
  }
  const Chain chain(input, devices);
  Means means{orders_of(input, devices),
              input.budget.value_or(std::numeric_limits<std::int64_t>::max())};
  std::vector<Choice> choices;
  for (const std::size_t parts : numbers_of_parts(input, devices.size())) {
    for (const std::size_t replicas : promising_replicas(input, chain, parts, means))
      choices.push_back(choose(input, chain, parts, replicas, means));
  }
  // Best by the closed form first; plain data parallelism stays in, because the closed form does
  // not see that its all-reduce overlaps the backward pass.
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.fitness.better_than(b.fitness);
  });
  std::vector<Plan> plans;
  const std::size_t most = devices.size() > most_devices_to_search ? 1 : finalists;
  std::size_t on_all = 0, on_fewer = 0;
  lowering::Estimator estimator(
      input.step(),
      lowering::LinkSharing::ignored);  // shared links are left to the simulator
  for (Choice& choice : choices) {
    const std::size_t parts = choice.first.size();
    const bool fewer = choice.shares.size() < devices.size() / parts;
    if (++(fewer ? on_fewer : on_all) > most && parts > 1) continue;
    const auto make = [&](const std::vector<std::size_t>& first) {
      Choice other = choice;
      other.first = first;
      return make_plan(input, devices, other);
    };
    choice.first = move_borders(input, estimator, {choice.first, make(choice.first)}, make).first;
    choice.fitness = hybrid::fitness(
        make_problem(input, chain, choice.first, choice.shares.size(), choice.micro_batches),
        choice.genes, choice.shares);
    plans.push_back(describe(input, chain, choice));
  }
  if (input.simulate) {
    // One replica, cut differently; one part per device, unless fewer are given.
    StrategyInput staged = input;
    staged.pipeline_parallel = input.parts;
    const bool asked = staged.pipeline_parallel == input.pipeline_parallel;  // as its own row is
    Plan pipeline = asked ? plan_of(staged, strategy("pipeline", "hybrid")) : plan_pipeline(staged);
    pipeline.strategy = "hybrid";
    pipeline.notes.insert(pipeline.notes.begin(),
                          "the plan of 'pipeline', which is faster in simulation than the others");
    plans.push_back(std::move(pipeline));
  }
  Plan best = std::move(plans[best_by_simulation(input, plans)]);
  if (means.evaluations <= 0) {
    best.notes.push_back(fmt::format("the genetic search used its budget of {}",
                                     counted(*input.budget, "evaluation")));
  }
  return best;
}

}  // namespace parsim::strategies
