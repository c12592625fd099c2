#include "experiment/lower_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "core/errors.hpp"
#include "experiment/dependent_passes.hpp"
#include "lowering/gradient_flow.hpp"

namespace parsim::experiment {

namespace {

/// A choice that gives a bound.
struct Weights {
  double theta = 1;  ///< of loads; the rest is the chain's
  std::vector<double> lambda;
};

/// The least time of what is done once, over types and shares 0 < x <= 1: load · all / x, and what
/// the chain has of it.
double least_weighted(const Divided& one, const Weights& weights) {
  const double forward = (1 - weights.theta) * one.forward;
  const double backward = (1 - weights.theta) * one.backward;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t k = 0; k < weights.lambda.size(); ++k) {
    const double load = weights.theta * weights.lambda[k];
    const DividedWork& work = one.work;
    const double few = load * work.all[k].fixed;  // divided by x
    const double many = forward * work.forward[k].whole + backward * work.backward[k].whole;  // · x
    const double either = load * work.all[k].whole + forward * work.forward[k].fixed +
                          backward * work.backward[k].fixed;
    least = std::min(least, either + (few < many ? 2 * std::sqrt(few * many) : few + many));
  }
  return least;
}

double bound_with(const std::vector<Divided>& work, const Weights& weights) {
  double sum = 0;
  for (const Divided& one : work) sum += one.times * least_weighted(one, weights);
  return sum;
}

/// The largest value of a concave function of 0 to 1, and where.
template <class Function>
std::pair<double, double> largest(const Function& function) {
  constexpr int steps = 40;
  double low = 0, high = 1;
  for (int step = 0; step < steps; ++step) {
    const double left = low + (high - low) / 3, right = high - (high - low) / 3;
    (function(left) < function(right) ? low : high) =
        function(left) < function(right) ? left : right;
  }
  const double at = (low + high) / 2;
  return {at, function(at)};
}

/// Moves weight between two types to where the bound, a concave function, is largest.
double balance(const std::vector<Divided>& work, const std::vector<std::int64_t>& counts,
               Weights& weights, std::size_t a, std::size_t b) {
  const auto of_a = static_cast<double>(counts[a]), of_b = static_cast<double>(counts[b]);
  const double both = weights.lambda[a] * of_a + weights.lambda[b] * of_b;
  const auto set = [&](double part) {
    weights.lambda[a] = both * part / of_a;
    weights.lambda[b] = both * (1 - part) / of_b;
  };
  const auto [part, bound] = largest([&](double at) {
    set(at);
    return bound_with(work, weights);
  });
  set(part);
  return bound;
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

/// The passes over all layers.
class Passes {
 public:
  Passes(const strategies::StrategyInput& input, const std::vector<DeviceId>& types)
      : input_(input), types_(types) {}

  /// False if what they take is unknown.
  bool add(LayerId layer, const std::vector<Pass>& passes) {
    DividedWork& work = layers_.emplace_back();
    for (auto* times : {&work.all, &work.forward, &work.backward}) times->resize(types_.size());
    for (const Pass pass : passes) {
      for (std::size_t k = 0; k < types_.size(); ++k) {
        const auto least = least_of(input_, layer, pass, types_[k]);
        if (!least) return false;
        const PartTime time{least->fixed.count(), least->whole.count()};
        work.all[k] += time;
        if (pass == Pass::backward_weights) continue;
        (pass == Pass::forward ? work.forward : work.backward)[k] += time;
      }
    }
    return true;
  }

  /// All work, of which what leads through the layers is on the chain that is worth most with these
  /// weights.
  [[nodiscard]] std::vector<Divided> with_chain(const lowering::GradientFlow& flow,
                                                const Weights& weights) const {
    std::vector<double> forward, backward;
    for (const DividedWork& work : layers_) {
      const double none = least_weighted({work}, weights);
      const double one = least_weighted({work, 1, 1, 0}, weights);
      forward.push_back(one - none);
      backward.push_back(least_weighted({work, 1, 1, 1}, weights) - one);
    }
    const Chain chain = longest_chain(input_.network, flow, forward, backward);
    std::map<std::tuple<DividedWork, double, double>, double> equal;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      equal[{layers_[l], chain.forward[l], chain.backward[l]}] += 1;
    }
    std::vector<Divided> all;
    for (const auto& [key, times] : equal) {
      all.push_back({std::get<0>(key), times, std::get<1>(key), std::get<2>(key)});
    }
    return all;
  }

 private:
  const strategies::StrategyInput& input_;
  const std::vector<DeviceId>& types_;
  std::vector<DividedWork> layers_;
};

}  // namespace

double least_makespan(const std::vector<Divided>& work, const std::vector<std::int64_t>& counts,
                      double* theta, std::vector<double>* lambda) {
  ensure(!counts.empty(), "work without devices");
  // Types that are equally good for the sum of all work.
  Weights weights;
  weights.lambda.assign(counts.size(), 0);
  double sum = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    double all = 0;
    for (const Divided& one : work) {
      all += one.times * (one.work.all[k].fixed + one.work.all[k].whole);
    }
    weights.lambda[k] = 1 / std::max(all, std::numeric_limits<double>::min());
    sum += static_cast<double>(counts[k]) * weights.lambda[k];
  }
  for (double& weight : weights.lambda) weight /= sum;
  const auto with_theta = [&](double value) {
    weights.theta = value;
    return bound_with(work, weights);
  };
  const bool chained = std::any_of(
      work.begin(), work.end(), [](const Divided& one) { return one.forward + one.backward > 0; });
  double bound = bound_with(work, weights);
  const auto balance_chain = [&] {
    if (!chained) return;
    const double before = weights.theta;
    const auto [value, moved] = largest(with_theta);
    weights.theta = moved > bound ? value : before;
    bound = std::max(bound, moved);
  };
  balance_chain();
  // Every pair of types is tried, each with all work and all types.
  constexpr std::size_t most_balanced = 16;
  constexpr int rounds = 20;
  constexpr double worth_it = 1e-6;
  for (int round = 0; round < rounds && counts.size() <= most_balanced; ++round) {
    const double before = bound;
    for (std::size_t a = 0; a < counts.size(); ++a) {
      for (std::size_t b = a + 1; b < counts.size(); ++b) {
        Weights other = weights;
        const double moved = balance(work, counts, other, a, b);
        if (moved <= bound) continue;
        bound = moved;
        weights = std::move(other);
      }
    }
    balance_chain();
    if (bound <= before * (1 + worth_it)) break;
  }
  if (theta != nullptr) *theta = weights.theta;
  if (lambda != nullptr) *lambda = weights.lambda;
  return bound;
}

std::optional<Seconds> least_step(const strategies::StrategyInput& input,
                                  const std::vector<DeviceId>& devices) {
  const Network& network = input.network;
  const lowering::GradientFlow flow = lowering::gradient_flow(network);
  std::vector<std::int64_t> counts;
  const std::vector<DeviceId> types = types_of(input.cost, devices, counts);
  Passes passes(input, types);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (!passes.add(LayerId{l}, lowering::passes_of(network, flow, LayerId{l}))) {
      return std::nullopt;
    }
  }
  const Bytes touched =
      update_traffic(updated_parameters(network, flow), input.optimizer, input.reduce_precision);
  Divided updates;
  for (const DeviceId type : types) {
    const Seconds time = input.cost.memory(type, touched).time - input.cost.memory(type, {}).time;
    updates.work.all.push_back({0, time.count()});
  }
  updates.work.forward = updates.work.backward = std::vector<PartTime>(types.size());
  // Which chain is the best depends on the weights, and these on the chain.
  constexpr int chains = 3;
  Weights weights{0.5, std::vector<double>(types.size(), 1 / static_cast<double>(devices.size()))};
  double bound = 0;
  for (int round = 0; round < chains; ++round) {
    std::vector<Divided> work = passes.with_chain(flow, weights);
    work.push_back(updates);
    const double before = bound;
    bound = std::max(bound, least_makespan(work, counts, &weights.theta, &weights.lambda));
    if (bound <= before) break;
  }
  return Seconds{bound};
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
