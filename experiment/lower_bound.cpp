#include "experiment/lower_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/errors.hpp"
#include "lowering/gradient_flow.hpp"

namespace parsim::experiment {

namespace {

double bound_with(const std::vector<WorkCosts>& work, const std::vector<double>& weights) {
  double sum = 0;
  for (const WorkCosts& costs : work) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < weights.size(); ++k) {
      least = std::min(least, weights[k] * costs[k]);
    }
    sum += least;
  }
  return sum;
}

/// Moves weight between two types to where the bound, a concave function, is largest.
double balance(const std::vector<WorkCosts>& work, const std::vector<std::int64_t>& counts,
               std::vector<double>& weights, std::size_t a, std::size_t b) {
  constexpr int steps = 60;
  const auto of_a = static_cast<double>(counts[a]), of_b = static_cast<double>(counts[b]);
  const double both = weights[a] * of_a + weights[b] * of_b;
  const auto at = [&](double part) {
    weights[a] = both * part / of_a;
    weights[b] = both * (1 - part) / of_b;
    return bound_with(work, weights);
  };
  double low = 0, high = 1;
  for (int step = 0; step < steps; ++step) {
    const double left = low + (high - low) / 3, right = high - (high - low) / 3;
    (at(left) < at(right) ? low : high) = at(left) < at(right) ? left : right;
  }
  return at((low + high) / 2);
}

/// What a pass takes at least; nothing if that is unknown.
std::optional<LeastTime> least_of(const strategies::StrategyInput& input, LayerId layer, Pass pass,
                                  DeviceId device) {
  auto least =
      input.cost.least_time(input.network, layer, input.batch, pass, device, input.precision);
  if (!least) return std::nullopt;
  const Part all{whole(input.network[layer].out, input.batch), {}};
  const Bytes sums =
      sum_traffic(input.network, layer, all, pass, input.precision, input.reduce_precision);
  if (sums.value > 0) {
    least->whole += input.cost.memory(device, sums).time - input.cost.memory(device, {}).time;
  }
  return least;
}

/// Parameters that get gradients.
std::int64_t updated_parameters(const Network& network, const lowering::GradientFlow& flow) {
  std::vector<bool> updated(network.parameters.size(), false);
  std::int64_t elements = 0;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (!flow.wants[l]) continue;
    for (const ParameterId id : network.layers[l].parameters) {
      if (updated[id.index()]) continue;
      updated[id.index()] = true;
      elements += network[id].elements();
    }
  }
  return elements;
}

/// The first device of each type, by what things cost.
std::vector<DeviceId> types_of(const CostModel& cost, const std::vector<DeviceId>& devices,
                               std::vector<std::int64_t>& counts) {
  std::map<std::int32_t, std::size_t> known;
  std::vector<DeviceId> types;
  for (const DeviceId device : devices) {
    const auto [type, fresh] = known.try_emplace(cost.alike(device), types.size());
    if (fresh) {
      types.push_back(device);
      counts.push_back(0);
    }
    ++counts[type->second];
  }
  return types;
}

bool runs_before_gradients_leave(Pass pass) { return pass != Pass::backward_weights; }

}  // namespace

double least_makespan(const std::vector<WorkCosts>& work, const std::vector<std::int64_t>& counts) {
  ensure(!counts.empty(), "work without devices");
  // Types that are equally good for the sum of all work.
  std::vector<double> weights(counts.size(), 0);
  double sum = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    for (const WorkCosts& costs : work) weights[k] += costs[k];
    weights[k] = 1 / std::max(weights[k], std::numeric_limits<double>::min());
    sum += static_cast<double>(counts[k]) * weights[k];
  }
  for (double& weight : weights) weight /= sum;
  double bound = bound_with(work, weights);
  // Every pair of types is tried, each with all work and all types.
  constexpr std::size_t most_balanced = 16;
  if (counts.size() > most_balanced) return bound;
  constexpr int rounds = 20;
  constexpr double worth_it = 1e-6;
  for (int round = 0; round < rounds; ++round) {
    const double before = bound;
    for (std::size_t a = 0; a < counts.size(); ++a) {
      for (std::size_t b = a + 1; b < counts.size(); ++b) {
        std::vector<double> other = weights;
        const double moved = balance(work, counts, other, a, b);
        if (moved <= bound) continue;
        bound = moved;
        weights = std::move(other);
      }
    }
    if (bound <= before * (1 + worth_it)) break;
  }
  return bound;
}

std::optional<Seconds> least_step(const strategies::StrategyInput& input,
                                  const std::vector<DeviceId>& devices) {
  const Network& network = input.network;
  const lowering::GradientFlow flow = lowering::gradient_flow(network);
  std::vector<std::int64_t> counts;
  const std::vector<DeviceId> types = types_of(input.cost, devices, counts);
  std::map<WorkCosts, double> work;                     // equal layers together
  std::vector<double> chain(network.layers.size(), 0);  // up to a layer and back from it
  double longest = 0;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const Layer& layer = network[id];
    WorkCosts costs(types.size(), 0);
    double fixed = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < types.size(); ++k) {
      double on_chain = 0;
      for (const Pass pass : lowering::passes_of(network, flow, id)) {
        const auto least = least_of(input, id, pass, types[k]);
        if (!least) return std::nullopt;
        costs[k] += (least->fixed + least->whole).count();
        if (runs_before_gradients_leave(pass)) on_chain += least->fixed.count();
      }
      fixed = std::min(fixed, on_chain);
    }
    work[costs] += 1;
    // A part of a concatenation may read one of its inputs only, any part of another layer all.
    const bool reads_all = layer.kind.as<Concat>() == nullptr;
    double before = layer.inputs.empty() || reads_all ? 0 : std::numeric_limits<double>::infinity();
    for (const LayerId producer : layer.inputs) {
      const double until = chain[producer.index()];
      before = reads_all ? std::max(before, until) : std::min(before, until);
    }
    chain[l] = before + fixed;
    if (flow.reaches_loss[l]) longest = std::max(longest, chain[l]);
  }
  std::vector<WorkCosts> all;
  for (const auto& [costs, times] : work) {
    all.push_back(costs);
    for (double& cost : all.back()) cost *= times;
  }
  const Bytes touched =
      update_traffic(updated_parameters(network, flow), input.optimizer, input.reduce_precision);
  WorkCosts updates;
  for (const DeviceId device : types) {
    updates.push_back(
        (input.cost.memory(device, touched).time - input.cost.memory(device, {}).time).count());
  }
  all.push_back(std::move(updates));
  return Seconds{std::max(longest, least_makespan(all, counts))};
}

void bound_steps(const Experiment& experiment, std::span<RunResult> results) {
  strategies::StrategyInput input{experiment.network, experiment.cluster, experiment.step_cost(),
                                  experiment.request};
  input.batch = experiment.batch;
  std::map<std::vector<DeviceId>, std::optional<Seconds>> known;
  for (RunResult& result : results) {
    std::vector<DeviceId> devices;
    for (std::size_t d = 0; d < result.devices.size(); ++d) {
      const DeviceResult& device = result.devices[d];
      const bool works = device.kind == DeviceKind::gpu || device.use.compute > Seconds{0};
      if (works) devices.emplace_back(d);
    }
    if (devices.empty()) continue;
    const auto [bound, fresh] = known.try_emplace(devices);
    if (fresh) bound->second = least_step(input, devices);
    result.lower_bound = bound->second;
  }
}

}  // namespace parsim::experiment
