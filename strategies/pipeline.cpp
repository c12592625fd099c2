// Pipeline parallelism: contiguous layers on each device, micro-batches through them in the order
// of GPipe (Huang et al. 2019) or one-forward-one-backward (PipeDream-Flush, Narayanan et al. 2021,
// section 2.2).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lowering/estimate.hpp"
#include "strategies/blocks.hpp"
#include "strategies/device_order.hpp"
#include "strategies/move_borders.hpp"
#include "strategies/pipeline_cut.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies {

namespace {

/// Devices in pipeline order with the layers at which their stages begin.
struct Pipeline {
  std::vector<DeviceId> devices;
  PipelineCut cut;
};

/// Times of layers and of what crosses between them, for micro-batches of one size.
class Chains {
 public:
  Chains(const StrategyInput& input, std::int32_t micro_batches)
      : input_(input),
        micro_batches_(micro_batches),
        flow_(lowering::gradient_flow(input.network)),
        boundary_(boundary_bytes(input.network, input.precision)),
        units_(units_of(input.network, input.granularity)) {}

  [[nodiscard]] Pipeline cut(const std::vector<DeviceId>& devices) {
    return {devices, pipeline_cut(costs_of(devices), micro_batches_, units_)};
  }
  /// By the closed form, with stages that begin at any layer.
  [[nodiscard]] double finest_step(const std::vector<DeviceId>& devices) {
    return pipeline_cut(costs_of(devices), micro_batches_).step;
  }
  /// The whole network.
  [[nodiscard]] double time_on(DeviceId device) { return until(device).back(); }

 private:
  [[nodiscard]] ChainCosts costs_of(const std::vector<DeviceId>& devices) {
    ChainCosts costs;
    for (std::size_t s = 0; s < devices.size(); ++s) {
      costs.until.push_back(until(devices[s]));
      std::vector<double>& handed = costs.hand_over.emplace_back();
      if (s > 0) handed = hand_over(devices[s - 1], devices[s]);
    }
    return costs;
  }
  /// A layer's update is once a step, so a share of it comes with every micro-batch.
  const std::vector<double>& until(DeviceId device) {
    const auto model = input_.cluster.devices[device.index()].model;
    const auto [entry, fresh] = until_.try_emplace(model);
    if (!fresh) return entry->second;
    std::vector<double>& times = entry->second;
    times.push_back(0);
    const Network& network = input_.network;
    const std::vector<Seconds> updates = update_times(input_, device);
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      const Part part{whole(network.layers[l].out, input_.batch / micro_batches_), {}};
      const Seconds time = layer_time(input_, flow_, LayerId{l}, part, device);
      times.push_back(times.back() + (time + updates[l] / micro_batches_).count());
    }
    return times;
  }
  /// Where nothing crosses there is nothing before but the data: a stage without work, only if
  /// there are more stages than layers.
  [[nodiscard]] std::vector<double> hand_over(DeviceId from, DeviceId to) {
    const double dear = 10 * (until(from).back() + until(to).back());
    std::vector<double> times;
    const auto samples = static_cast<double>(input_.batch / micro_batches_);
    for (const double bytes : boundary_) {
      const Bytes payload{static_cast<std::int64_t>(bytes * samples)};
      times.push_back(bytes > 0 ? input_.cost.transfer(from, to, payload).count() : dear);
    }
    return times;
  }

  const StrategyInput& input_;
  std::int32_t micro_batches_;
  lowering::GradientFlow flow_;
  std::vector<double> boundary_;  ///< by layer: a sample's bytes that cross from before it
  std::vector<std::size_t> units_;
  std::map<std::int32_t, std::vector<double>> until_;  ///< by model
};

/// Numbers of stages worth a look: of few devices all, of many the largest and every half of them.
std::vector<std::size_t> numbers_of_stages(const StrategyInput& input, std::size_t devices) {
  constexpr std::size_t few = 8;
  const std::size_t most = std::min(devices, units_of(input.network, input.granularity).size());
  if (const auto asked = parts_asked(input.pipeline_parallel, input, devices, "pipeline", "stages"))
    return {*asked};
  std::vector<std::size_t> numbers;
  for (std::size_t stages = most; stages > 0; stages = stages <= few ? stages - 1 : stages / 2) {
    numbers.push_back(stages);
  }
  return numbers;
}

Plan plan_of(const StrategyInput& input, const Pipeline& pipeline, std::int32_t micro_batches) {
  const std::vector<DeviceId>& devices = pipeline.devices;
  const std::vector<std::size_t>& first = pipeline.cut.first;
  Plan plan = empty_plan(input, "pipeline", {});
  plan.schedule.micro_batches = micro_batches;
  plan.schedule.rank_lists.clear();
  plan.schedule.split_backward = splits_backward(input.schedule_or_default(), devices.size());
  const auto stages = static_cast<std::int32_t>(devices.size());
  for (std::int32_t s = 0; s < stages; ++s) {
    const auto index = static_cast<std::size_t>(s);
    const std::size_t end = index + 1 < first.size() ? first[index + 1] : plan.layers.size();
    for (std::size_t l = first[index]; l < end; ++l) {
      plan.schedule.stage_of_layer[l] = s;
      plan.layers[l].devices = {devices[index]};
      plan.layers[l].sync = chosen_sync(input);
    }
    plan.schedule.rank_lists.push_back(
        {{devices[index]}, stage_slots(input.schedule_or_default(), s, stages, micro_batches)});
  }
  plan.buckets = gradient_buckets(input);
  return plan;
}

/// Of each number of stages the fastest devices, those that are near each other as neighbours, both
/// ways round where devices differ.
std::vector<std::vector<DeviceId>> orders(const StrategyInput& input) {
  std::vector<DeviceId> devices = workers(input);
  Chains whole_batch(input, 1);
  const auto faster = [&](DeviceId a, DeviceId b) {
    return whole_batch.time_on(a) < whole_batch.time_on(b);
  };
  std::stable_sort(devices.begin(), devices.end(), faster);
  const std::vector<DeviceId> chain = in_chain_order(input, devices);
  std::vector<std::vector<DeviceId>> all;
  for (const std::size_t stages : numbers_of_stages(input, devices.size())) {
    const std::set<DeviceId> chosen(devices.begin(),
                                    devices.begin() + static_cast<std::ptrdiff_t>(stages));
    std::vector<DeviceId>& order = all.emplace_back();
    for (const DeviceId device : chain) {
      if (chosen.contains(device)) order.push_back(device);
    }
    if (faster(devices.front(), devices[stages - 1])) {
      all.emplace_back(order.rbegin(), order.rend());
    }
  }
  return all;
}

struct Candidate {
  Pipeline pipeline;
  Plan plan;
  Price price;
};

/// Of all orders the fastest few by the closed form; if none of them fits, one that does. Among
/// equals those of fewer devices.
std::vector<Candidate> fastest_of(const StrategyInput& input,
                                  const std::vector<std::vector<DeviceId>>& orders,
                                  std::int32_t micro_batches) {
  // An estimate of many operations takes long.
  constexpr std::size_t many = 50'000;
  const std::size_t work = input.network.layers.size() * static_cast<std::size_t>(micro_batches);
  const std::size_t few = work > many ? 2 : 8;
  Chains chains(input, micro_batches);
  std::vector<Pipeline> pipelines;
  for (const std::vector<DeviceId>& devices : orders) pipelines.push_back(chains.cut(devices));
  // In single precision: what adds up in another order is not another time.
  const auto rank = [](const Pipeline& one) {
    return std::pair(static_cast<float>(one.cut.step), one.devices.size());
  };
  std::stable_sort(pipelines.begin(), pipelines.end(),
                   [&](const Pipeline& a, const Pipeline& b) { return rank(a) < rank(b); });
  if (pipelines.size() > few) {  // more devices have more memory
    std::stable_sort(
        pipelines.begin() + static_cast<std::ptrdiff_t>(few), pipelines.end(),
        [](const Pipeline& a, const Pipeline& b) { return a.devices.size() > b.devices.size(); });
  }
  std::vector<Candidate> candidates;
  bool some_fits = false;
  for (const Pipeline& pipeline : pipelines) {
    if (candidates.size() >= few && (some_fits || candidates.size() == 2 * few)) break;
    Candidate& one =
        candidates.emplace_back(Candidate{pipeline, plan_of(input, pipeline, micro_batches), {}});
    one.price.overcommit = overcommit(input, one.plan);
    some_fits = some_fits || one.price.fits();
  }
  return candidates;
}

/// Of the candidates, the fastest by estimate first, those that simulation is to choose among: the
/// fastest few and the fastest of each number of stages, as long as that does not take long.
std::vector<Candidate> finalists_of(const StrategyInput& input,
                                    const std::vector<Candidate>& candidates) {
  constexpr double hopeless = 2;  // times the fastest estimate: borders are moved later
  constexpr std::size_t few = 4, most = 10;
  constexpr std::size_t most_work = 400'000;  // layers x micro-batches
  std::vector<Candidate> finalists;
  std::set<std::size_t> stages;
  std::size_t work = 0;
  for (const Candidate& one : candidates) {
    const bool late = one.price.fits() != candidates[0].price.fits() ||
                      one.price.step > hopeless * candidates[0].price.step;
    const std::size_t own =
        input.network.layers.size() * static_cast<std::size_t>(one.plan.schedule.micro_batches);
    const bool fresh = stages.insert(one.plan.schedule.rank_lists.size()).second;
    const bool wanted = finalists.size() < few || (fresh && finalists.size() < most);
    if (late || !wanted || (!finalists.empty() && work + own > most_work)) continue;
    finalists.push_back(one);
    work += own;
  }
  return finalists;
}

}  // namespace

Plan plan_pipeline(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  if (input.micro_batches) {
    expect_whole_micro_batches(input.batch, *input.micro_batches, "pipeline");
  }
  const std::vector<std::vector<DeviceId>> chains = orders(input);
  std::vector<Candidate> candidates;
  // Links that several neighbours cross are left to the simulator.
  lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
  const auto attempt = [&](std::int32_t number) {
    for (Candidate& candidate : fastest_of(input, chains, number)) {
      candidate.price.step = estimated_step(estimator, with_memory_options(input, candidate.plan));
      candidates.push_back(std::move(candidate));
    }
  };
  if (input.micro_batches) {
    attempt(*input.micro_batches);
  } else {
    const std::set<std::int32_t> numbers = numbers_of_micro_batches(
        input.batch, std::min(devices.size(), input.network.layers.size()));
    for (const std::int32_t number : numbers) attempt(number);
    // Smaller micro-batches need less memory.
    const auto some_fits = [&] {
      return std::any_of(candidates.begin(), candidates.end(),
                         [](const Candidate& one) { return one.price.fits(); });
    };
    for (std::int64_t more = 2 * *numbers.rbegin(); !some_fits() && more <= input.batch;
         more *= 2) {
      if (more <= most_micro_batches && input.batch % more == 0) {
        attempt(static_cast<std::int32_t>(more));
      }
    }
  }
  // Ties go to fewer micro-batches.
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.price.better_than(b.price); });
  std::vector<Plan> plans;
  const std::vector<Candidate> finalists = finalists_of(input, candidates);
  for (const Candidate& one : finalists) {
    const auto make = [&](const std::vector<std::size_t>& first) {
      return plan_of(input, {one.pipeline.devices, {first, 0}}, one.plan.schedule.micro_batches);
    };
    plans.push_back(move_borders(input, estimator, {one.pipeline.cut.first, one.plan}, make).plan);
  }
  const std::size_t chosen = best_by_simulation(input, plans);
  Plan best = std::move(plans[chosen]);
  if (const Pipeline& pipeline = finalists[chosen].pipeline; pipeline.devices.size() > 1) {
    Chains fine(input, best.schedule.micro_batches);
    std::string note = finer_cut_note(input, pipeline.cut.step, fine.finest_step(pipeline.devices));
    if (!note.empty()) best.notes.push_back(std::move(note));
  }
  const std::size_t used = best.schedule.rank_lists.size();
  if (used < devices.size()) {
    best.notes.push_back(fmt::format(
        "{} of {} devices: {}", used, devices.size(),
        input.pipeline_parallel ? "one for each stage" : "more stages would not be faster"));
  }
  return best;
}

}  // namespace parsim::strategies
