#include "strategies/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/errors.hpp"
#include "strategies/estimate.hpp"

namespace parsim {

namespace {

struct Alternative {
  std::string name;
  LayerPlan plan;
};

bool only_samples(const LayerPlan& layer) {
  return std::all_of(layer.cuts.begin(), layer.cuts.end(), [](const Cut& cut) {
    return cut.dim == Dim::sample || cut.dim == Dim::replica;
  });
}

bool usable(const Plan& other, const Plan& plan) {
  const auto first_stage = [](std::int32_t stage) { return stage == 0; };
  const auto single = [&](const Plan& p) {
    return p.schedule.lanes.size() == 1 &&
           std::all_of(p.schedule.stage_of_layer.begin(), p.schedule.stage_of_layer.end(),
                       first_stage);
  };
  return single(other) && single(plan) && other.layers.size() == plan.layers.size() &&
         other.schedule.micro_batches == plan.schedule.micro_batches;
}

std::vector<Alternative> alternatives(const StrategyInput& input, const Plan& plan, LayerId layer,
                                      std::span<const Plan> others,
                                      const std::vector<std::vector<Consumer>>& readers) {
  const LayerPlan& chosen = plan.layers[layer.index()];
  std::vector<Alternative> list;
  const auto add = [&](std::string name, LayerPlan wanted) {
    const auto same = [&](const LayerPlan& known) {
      return known.cuts == wanted.cuts && known.devices == wanted.devices;
    };
    if (same(chosen)) return;
    for (const Alternative& known : list) {
      if (same(known.plan)) return;
    }
    list.push_back({std::move(name), std::move(wanted)});
  };
  for (const Plan& other : others) {
    if (usable(other, plan)) {
      const LayerPlan& split = other.layers[layer.index()];
      add(fmt::format("{} as in {}", split_text(split), other.strategy), split);
    }
  }
  std::vector<LayerId> neighbours = input.network[layer].inputs;
  for (const Consumer& reader : readers[layer.index()]) neighbours.push_back(reader.layer);
  const auto& stage = plan.schedule.stage_of_layer;
  for (const LayerId neighbour : neighbours) {
    const LayerPlan& split = plan.layers[neighbour.index()];
    if (only_samples(split) && stage[neighbour.index()] == stage[layer.index()]) {
      add(fmt::format("{} like {}", split_text(split), input.network[neighbour].name), split);
    }
  }
  if (chosen.devices.size() > 1) {
    LayerPlan alone = chosen;
    alone.cuts.clear();
    alone.devices.resize(1);
    add("whole on one device", std::move(alone));
  }
  return list;
}

Seconds work_of(const StrategyInput& input, const Plan& plan, LayerId layer) {
  if (input.network[layer].kind.as<Input>() != nullptr) return {};
  const std::int64_t micro = plan.schedule.micro_batches;
  std::map<DeviceId, Seconds> by_device;
  for (const Cell& cell :
       cells(input.network, layer, plan.layers[layer.index()], plan.batch / micro)) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      by_device[cell.device] +=
          input.cost.compute(input.network, layer, cell.part, pass, cell.device, plan.precision)
              .time;
    }
  }
  Seconds most{};
  for (const auto& [device, time] : by_device) most = std::max(most, time);
  return static_cast<double>(micro) * most;
}

}  // namespace

std::string split_text(const LayerPlan& layer) {
  std::vector<std::string> words;
  for (const Cut& cut : layer.cuts) {
    const auto [least, most] = std::minmax_element(cut.sizes.begin(), cut.sizes.end());
    constexpr std::size_t listed = 16;
    // Nearly even parts are counted, uneven ones listed.
    const bool even = *most - *least <= 1 || cut.sizes.size() > listed || cut.dim == Dim::replica;
    words.push_back(even ? fmt::format("{} {}", to_text(cut.dim), cut.sizes.size())
                         : fmt::format("{} {}", to_text(cut.dim), fmt::join(cut.sizes, ",")));
  }
  return words.empty() ? "whole" : join(words, " x ");
}

Explanation explain(const StrategyInput& input, const Plan& plan, std::span<const Plan> others) {
  StrategyInput same = input;
  same.precision = plan.precision;
  same.optimizer = plan.optimizer;
  Estimator estimator(same);
  const auto readers = consumers(input.network);
  Explanation explanation{estimator.step_time(plan), {}};
  Plan changed = plan;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const LayerId layer{l};
    LayerReason reason{layer, work_of(same, plan, layer), {}, {}};
    if (input.network[layer].kind.as<Input>() == nullptr) {
      for (const Alternative& option : alternatives(same, plan, layer, others, readers)) {
        changed.layers[l] = option.plan;
        try {
          const Seconds step = estimator.step_time(changed);
          if (reason.alternative.empty() || step < reason.alternative_step) {
            reason.alternative = option.name;
            reason.alternative_step = step;
          }
        } catch (const InputError&) {  // this split cannot be lowered here
        }
      }
      changed.layers[l] = plan.layers[l];
    }
    explanation.layers.push_back(std::move(reason));
  }
  return explanation;
}

}  // namespace parsim
