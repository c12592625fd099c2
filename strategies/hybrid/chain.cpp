#include "strategies/hybrid/chain.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "strategies/blocks.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies::hybrid {

namespace {

/// Exact for m samples, neither falling nor negative.
Affine line_through(std::int64_t n, double at_n, std::int64_t m, double at_m) {
  const auto of_m = static_cast<double>(m);
  const double slope = std::clamp((at_m - at_n) / static_cast<double>(m - n), 0.0, at_m / of_m);
  return {at_m - slope * of_m, slope};
}

/// Part of a layer: between the first layers of two parts.
std::pair<std::size_t, std::size_t> layers_of(const std::vector<std::size_t>& first,
                                              std::size_t part, std::size_t layers) {
  return {first[part], part + 1 < first.size() ? first[part + 1] : layers};
}

/// Bytes of the buckets that a part's replicas exchange: what memory_use() counts for them.
double bucket_bytes(const StrategyInput& input, std::size_t begin, std::size_t end) {
  std::set<ParameterId> own;
  for (std::size_t l = begin; l < end; ++l) {
    own.insert(input.network.layers[l].parameters.begin(),
               input.network.layers[l].parameters.end());
  }
  std::vector<double> sizes{0, 0};
  for (const std::vector<ParameterId>& bucket : gradient_buckets(input)) {
    std::int64_t elements = 0;
    for (const ParameterId id : bucket) {
      if (own.contains(id)) elements += input.network[id].elements();
    }
    sizes.push_back(static_cast<double>(elements * element_bytes(input.reduce_precision)));
  }
  std::sort(sizes.rbegin(), sizes.rend());
  if (of_megatron(input.framework)) return 0;
  const std::int64_t travelling = element_bytes(input.reduce_precision);
  const bool stay = input.zero_stage.value_or(0) == 0 && input.sync != Sync::Kind::server;
  if (sizes[1] == 0 &&
      travelling == lowering::gradient_bytes(input.precision, input.reduce_precision)) {
    return stay ? std::min(sizes[0], static_cast<double>(lowering::most_flattened * travelling))
                : 0;
  }
  return stay ? std::accumulate(sizes.begin(), sizes.end(), 0.0) : sizes[0] + sizes[1];
}

/// Caches link costs between devices, unless there are very many; computed when first needed.
class LinkCosts {
 public:
  LinkCosts(const CostModel& cost, std::vector<DeviceId> devices)
      : cost_(cost), devices_(std::move(devices)) {
    constexpr std::size_t many = 512;
    if (devices_.size() <= many) known_.resize(devices_.size() * devices_.size());
  }
  LinkCost operator()(std::size_t a, std::size_t b) {
    if (known_.empty()) return ask(a, b);
    std::optional<LinkCost>& link = known_[a * devices_.size() + b];
    if (!link) link = ask(a, b);
    return *link;
  }

 private:
  [[nodiscard]] LinkCost ask(std::size_t a, std::size_t b) const {
    constexpr std::int64_t large = 1'000'000;
    const double latency = cost_.transfer(devices_[a], devices_[b], Bytes{0}).count();
    const double time = cost_.transfer(devices_[a], devices_[b], Bytes{large}).count();
    return {latency, (time - latency) / static_cast<double>(large)};
  }

  const CostModel& cost_;
  std::vector<DeviceId> devices_;
  std::vector<std::optional<LinkCost>> known_;  ///< by a · devices + b
};

}  // namespace

Chain::Chain(const StrategyInput& input, const std::vector<DeviceId>& devices_)
    : devices(devices_),
      kinds(device_kinds(input.cluster, devices)),
      boundary_bytes(parsim::strategies::boundary_bytes(input.network, input.precision)),
      units(units_of(input.network, input.granularity)),
      input_(&input),
      flow_(lowering::gradient_flow(input.network)) {
  const Network& network = input.network;
  const std::size_t count = *std::max_element(kinds.begin(), kinds.end()) + 1;
  for (std::size_t kind = 0; kind < count; ++kind) {
    const auto like = std::find(kinds.begin(), kinds.end(), kind) - kinds.begin();
    like_.push_back(devices[static_cast<std::size_t>(like)]);
    updates_.push_back(update_times(input, like_.back()));
  }
  std::set<ParameterId> seen;
  for (const Layer& layer : network.layers) {
    double bytes = 0;
    for (const ParameterId id : layer.parameters) {
      if (!seen.insert(id).second) continue;
      bytes += static_cast<double>(network[id].elements() * element_bytes(input.reduce_precision));
    }
    weight_bytes.push_back(bytes);
  }
}

Chain::Times Chain::measure(std::int64_t samples, std::int32_t micro_batches) const {
  const Network& network = input_->network;
  Times times;
  for (std::size_t kind = 0; kind < like_.size(); ++kind) {
    std::vector<Affine>& lines = times.emplace_back();
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      const auto time = [&](std::int64_t number) {
        const Part part{whole(network.layers[l].out, number), {}};
        return layer_time(*input_, flow_, LayerId{l}, part, like_[kind]).count();
      };
      lines.push_back(samples == 1
                          ? line_through(2, time(2), 1, time(1))
                          : line_through(samples / 2, time(samples / 2), samples, time(samples)));
      lines.back().fixed += updates_[kind][l].count() / micro_batches;
    }
  }
  return times;
}

const Chain::Times& Chain::times(std::int64_t samples, std::int32_t micro_batches) const {
  const auto [at, fresh] = known_.try_emplace({samples, micro_batches});
  if (fresh) at->second = measure(samples, micro_batches);
  return at->second;
}

std::int64_t usual_samples(const StrategyInput& input, std::size_t replicas,
                           std::int32_t micro_batches) {
  return std::max<std::int64_t>(1,
                                input.batch / micro_batches / static_cast<std::int64_t>(replicas));
}

std::vector<std::size_t> equal_load(const Chain& chain, std::size_t parts, std::int64_t samples,
                                    std::int32_t micro_batches, double slack) {
  const Chain::Times& times = chain.times(samples, micro_batches);
  std::vector<double> until{0};
  for (std::size_t l = 0; l < chain.weight_bytes.size(); ++l) {
    double sum = 0;
    for (const std::size_t kind : chain.kinds) sum += times[kind][l].at(samples);
    until.push_back(until.back() + sum / static_cast<double>(chain.kinds.size()));
  }
  return chain_split(std::vector(parts, until), chain.boundary_bytes, slack, chain.units);
}

std::vector<std::size_t> fitted_load(const Chain& chain, const Choice& choice, double slack) {
  const std::size_t parts = choice.first.size();
  const std::int64_t samples =
      std::accumulate(choice.shares.begin(), choice.shares.end(), std::int64_t{0});
  const Chain::Times& times = chain.times(
      std::max<std::int64_t>(1, samples / std::ssize(choice.shares)), choice.micro_batches);
  std::vector<std::vector<double>> until;
  for (std::size_t i = 0; i < parts; ++i) {
    std::vector<double>& loads = until.emplace_back(1, 0.0);
    for (std::size_t l = 0; l < chain.weight_bytes.size(); ++l) {
      double slowest = 0;
      for (std::size_t r = 0; r < choice.shares.size(); ++r) {
        if (choice.shares[r] == 0) continue;
        const std::size_t kind = chain.kinds[choice.genes[r * parts + i]];
        slowest = std::max(slowest, times[kind][l].at(choice.shares[r]));
      }
      loads.push_back(loads.back() + slowest);
    }
  }
  return chain_split(until, chain.boundary_bytes, slack, chain.units);
}

Problem make_problem(const StrategyInput& input, const Chain& chain,
                     const std::vector<std::size_t>& first, std::size_t replicas,
                     std::int32_t micro_batches) {
  const std::size_t layers = chain.weight_bytes.size(), parts = first.size();
  Problem problem;
  problem.parts = parts;
  problem.replicas = replicas;
  problem.micro_batches = micro_batches;
  problem.samples = input.batch / micro_batches;
  problem.kinds = chain.kinds;
  problem.link = [links = std::make_shared<LinkCosts>(input.cost, chain.devices)](
                     std::size_t a, std::size_t b) { return (*links)(a, b); };
  for (const DeviceId device : chain.devices) {
    problem.capacity_bytes.push_back(static_cast<double>(input.usable_memory(device).value));
  }
  // Memory of a part grows linearly with its samples: two plans of one replica give the line.
  Genes one(parts);
  std::iota(one.begin(), one.end(), std::size_t{0});
  const auto memory = [&](std::int64_t samples) {
    StrategyInput small = input;
    small.batch = samples * micro_batches;
    const Plan plan = make_plan(small, chain.devices, {first, micro_batches, one, {samples}, {}});
    return memory_use(input, plan);
  };
  const std::vector<lowering::MemoryUse> with_one = memory(1), with_two = memory(2);
  const Chain::Times& times =
      chain.times(usual_samples(input, replicas, micro_batches), micro_batches);
  for (std::size_t i = 0; i < parts; ++i) {
    const auto [begin, end] = layers_of(first, i, layers);
    std::vector<Affine>& by_kind = problem.time_s.emplace_back();
    for (const std::vector<Affine>& of_kind : times) {
      Affine& sum = by_kind.emplace_back();
      for (std::size_t l = begin; l < end; ++l) {
        sum.fixed += of_kind[l].fixed;
        sum.per_sample += of_kind[l].per_sample;
      }
    }
    problem.boundary_bytes.push_back(end < layers ? chain.boundary_bytes[end] : 0);
    problem.weight_bytes.push_back(
        std::accumulate(chain.weight_bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                        chain.weight_bytes.begin() + static_cast<std::ptrdiff_t>(end), 0.0));
    const std::size_t device = chain.devices[i].index();
    Affine bytes = line_through(1, static_cast<double>(with_one[device].total().value), 2,
                                static_cast<double>(with_two[device].total().value));
    if (replicas > 1) bytes.fixed += bucket_bytes(input, begin, end);
    problem.memory_bytes.push_back(bytes);
  }
  return problem;
}

Plan make_plan(const StrategyInput& input, const std::vector<DeviceId>& devices,
               const Choice& choice) {
  Plan plan = empty_plan(input, "hybrid", {});
  plan.schedule.micro_batches = choice.micro_batches;
  plan.schedule.rank_lists.clear();
  const std::size_t parts = choice.first.size(), replicas = choice.shares.size();
  plan.schedule.split_backward = splits_backward(input.schedule_or_default(), parts);
  std::map<DeviceId, std::set<std::int32_t>> parts_of;
  for (std::size_t i = 0; i < parts; ++i) {
    LayerPlan stage;
    stage.sync = chosen_sync(input);
    for (std::size_t r = 0; r < replicas; ++r) {
      stage.devices.push_back(devices[choice.genes[r * parts + i]]);
      parts_of[stage.devices.back()].insert(static_cast<std::int32_t>(i));
    }
    if (replicas > 1) stage.cuts = {{Dim::sample, choice.shares}};
    const auto [begin, end] = layers_of(choice.first, i, plan.layers.size());
    for (std::size_t l = begin; l < end; ++l) {
      plan.schedule.stage_of_layer[l] = static_cast<std::int32_t>(i);
      plan.layers[l] = stage;
    }
  }
  // Devices that work on the same parts share a rank list.
  std::map<std::set<std::int32_t>, std::vector<DeviceId>> rank_lists;
  for (const auto& [device, own] : parts_of) rank_lists[own].push_back(device);
  const std::vector<Slot> order = all_slots(input.schedule_or_default(),
                                            static_cast<std::int32_t>(parts), choice.micro_batches);
  std::vector<std::vector<std::size_t>> lists_of(parts);
  for (const auto& [own, members] : rank_lists) {
    for (const std::int32_t part : own) {
      lists_of[static_cast<std::size_t>(part)].push_back(plan.schedule.rank_lists.size());
    }
    plan.schedule.rank_lists.push_back({members, {}});
  }
  for (const Slot& slot : order) {
    for (const std::size_t list : lists_of[static_cast<std::size_t>(slot.stage)]) {
      plan.schedule.rank_lists[list].slots.push_back(slot);
    }
  }
  plan.buckets = gradient_buckets(input);
  return plan;
}

}  // namespace parsim::strategies::hybrid
