#include "experiment/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "core/errors.hpp"
#include "lowering/estimate.hpp"
#include "lowering/gradient_flow.hpp"

namespace parsim::experiment {

namespace {

struct Alternative {
  std::string name;
  LayerPlan plan;
  std::int32_t stage = 0;
};

bool only_samples(const LayerPlan& layer) {
  return std::all_of(layer.cuts.begin(), layer.cuts.end(), [](const Cut& cut) {
    return cut.dim == Dim::sample || cut.dim == Dim::replica;
  });
}

bool one_stage(const Plan& plan) {
  const std::vector<std::int32_t>& stages = plan.schedule.stage_of_layer;
  return std::all_of(stages.begin(), stages.end(), [](std::int32_t s) { return s == 0; });
}

/// Whether the layer's operands would still come from no later and its readers be in no earlier
/// stage, if it moved to a neighbouring one.
bool may_move(const Network& network, const Plan& plan, LayerId layer, std::int32_t to,
              const std::vector<std::vector<Consumer>>& readers) {
  const std::vector<std::int32_t>& stage = plan.schedule.stage_of_layer;
  for (const LayerId from : network[layer].inputs) {
    if (network[from].kind.as<Input>() == nullptr && stage[from.index()] > to) return false;
  }
  for (const Consumer& reader : readers[layer.index()]) {
    if (stage[reader.layer.index()] < to) return false;
  }
  return std::abs(to - stage[layer.index()]) == 1;
}

/// Whether the devices of a layer have other layers of its stage, whose slots they list.
bool replaceable(const Network& network, const Plan& plan, LayerId layer) {
  std::set<DeviceId> others;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const bool same_stage =
        plan.schedule.stage_of_layer[l] == plan.schedule.stage_of_layer[layer.index()];
    if (l != layer.index() && same_stage && network.layers[l].kind.as<Input>() == nullptr)
      others.insert(plan.layers[l].devices.begin(), plan.layers[l].devices.end());
  }
  const std::vector<DeviceId>& own = plan.layers[layer.index()].devices;
  return std::all_of(own.begin(), own.end(),
                     [&](DeviceId device) { return others.contains(device); });
}

bool usable(const Plan& other, const Plan& plan) {
  const auto single = [&](const Plan& p) {
    return p.schedule.rank_lists.size() == 1 && one_stage(p);
  };
  return single(other) && single(plan) && other.layers.size() == plan.layers.size() &&
         other.schedule.micro_batches == plan.schedule.micro_batches;
}

/// The devices that work on a layer's stage, ascending.
std::vector<DeviceId> devices_of_stage(const Network& network, const Plan& plan,
                                       std::int32_t stage) {
  std::set<DeviceId> devices;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const bool source = network.layers[l].kind.as<Input>() != nullptr;
    if (!source && plan.schedule.stage_of_layer[l] == stage)
      devices.insert(plan.layers[l].devices.begin(), plan.layers[l].devices.end());
  }
  return {devices.begin(), devices.end()};
}

std::vector<Alternative> alternatives(const strategies::StrategyInput& input, const Plan& plan,
                                      LayerId layer, std::span<const Plan> others,
                                      const std::vector<std::vector<Consumer>>& readers) {
  const LayerPlan& chosen = plan.layers[layer.index()];
  std::vector<Alternative> list;
  const auto& stage = plan.schedule.stage_of_layer;
  const std::int32_t own = stage[layer.index()];
  const auto add_to = [&](std::int32_t to, std::string name, LayerPlan wanted) {
    const auto same = [&](const LayerPlan& known, std::int32_t at) {
      return at == to && known.cuts == wanted.cuts && known.devices == wanted.devices;
    };
    if (same(chosen, own)) return;
    for (const Alternative& known : list) {
      if (same(known.plan, known.stage)) return;
    }
    list.push_back({std::move(name), std::move(wanted), to});
  };
  const auto add = [&](std::string name, LayerPlan wanted) {
    add_to(own, std::move(name), std::move(wanted));
  };
  for (const Plan& other : others) {
    if (usable(other, plan)) {
      const LayerPlan& split = other.layers[layer.index()];
      add(fmt::format("{} as in {}", split_text(split), other.strategy), split);
    }
  }
  std::vector<LayerId> neighbours = input.network[layer].inputs;
  for (const Consumer& reader : readers[layer.index()]) neighbours.push_back(reader.layer);
  for (const LayerId neighbour : neighbours) {
    const LayerPlan& split = plan.layers[neighbour.index()];
    const std::int32_t there = stage[neighbour.index()];
    if (!only_samples(split)) continue;
    if (there == own) {
      add(fmt::format("{} like {}", split_text(split), input.network[neighbour].name), split);
    } else if (may_move(input.network, plan, layer, there, readers)) {
      add_to(there,
             fmt::format("{} in stage {}, with {}", split_text(split), there,
                         input.network[neighbour].name),
             split);
    }
  }
  // Other cuts over the devices that the stage has; a plan of one stage has them from the others.
  const std::vector<DeviceId> devices = devices_of_stage(input.network, plan, own);
  if (!one_stage(plan) && devices.size() > 1) {
    const Shape& out = input.network[layer].out;
    const std::vector<Dim> dims =
        cuttable_dims(input.network[layer].kind, input_shapes(input.network, layer), out);
    for (const Dim dim : {Dim::sample, Dim::channel}) {
      if (dim != Dim::sample && std::find(dims.begin(), dims.end(), dim) == dims.end()) continue;
      const std::int64_t extent =
          dim == Dim::sample ? plan.batch / plan.schedule.micro_batches : out.extent(dim);
      LayerPlan wanted = chosen;
      wanted.cuts = {{dim, even_split(extent, devices.size())}};
      wanted.devices = devices;
      const std::string name = fmt::format("{} over its stage", split_text(wanted));
      add(name, std::move(wanted));
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

Seconds work_of(const strategies::StrategyInput& input, const Plan& plan,
                const lowering::GradientFlow& flow, LayerId layer) {
  const std::vector<Pass> passes = lowering::passes_of(input.network, flow, layer);
  const std::int64_t micro = plan.schedule.micro_batches;
  std::map<DeviceId, Seconds> by_device;
  for (const Cell& cell :
       cells(input.network, layer, plan.layers[layer.index()], plan.batch / micro)) {
    for (const Pass pass : passes) {
      by_device[cell.device] += kernel_time(input.cost, input.network, layer, cell.part, pass,
                                            cell.device, plan.precision, plan.reduce_precision)
                                    .time;
    }
  }
  Seconds most{};
  for (const auto& [device, time] : by_device) most = std::max(most, time);
  return static_cast<double>(micro) * most;
}

std::vector<bool> most_work(const std::vector<LayerReason>& reasons, std::size_t count) {
  std::vector<const LayerReason*> order;
  for (const LayerReason& reason : reasons) order.push_back(&reason);
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->work > b->work; });
  order.resize(std::min(order.size(), count));
  std::vector<bool> chosen(reasons.size(), false);
  for (const LayerReason* reason : order) chosen[reason->layer.index()] = true;
  return chosen;
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

Explanation explain(const strategies::StrategyInput& input, const Plan& plan,
                    std::span<const Plan> others, std::size_t layers) {
  strategies::StrategyInput same = input;
  same.precision = plan.precision;
  same.reduce_precision = plan.reduce_precision;
  same.optimizer = plan.optimizer;
  lowering::Estimator estimator(same.step());
  const auto readers = consumers(input.network);
  const lowering::GradientFlow flow = lowering::gradient_flow(input.network);
  Explanation explanation{estimator.step_time(plan), {}};
  std::vector<LayerReason>& reasons = explanation.layers;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    reasons.push_back({LayerId{l}, work_of(same, plan, flow, LayerId{l}), {}, {}});
  }
  const std::vector<bool> tried = most_work(reasons, layers);
  Plan changed = plan;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const LayerId layer{l};
    LayerReason& reason = reasons[l];
    const bool source = input.network[layer].kind.as<Input>() != nullptr;
    if (tried[l] && !source && (one_stage(plan) || replaceable(input.network, plan, layer))) {
      for (const Alternative& option : alternatives(same, plan, layer, others, readers)) {
        changed.layers[l] = option.plan;
        changed.schedule.stage_of_layer[l] = option.stage;
        try {
          validate(changed, input.network, input.cluster, "--plan");
          const Seconds limit =
              reason.alternative.empty() ? lowering::Estimator::unlimited : reason.alternative_step;
          const Seconds step = estimator.step_time(changed, limit);
          if (reason.alternative.empty() || step < reason.alternative_step) {
            reason.alternative = option.name;
            reason.alternative_step = step;
          }
        } catch (const InputError&) {  // this split cannot be lowered here
        }
      }
      changed.layers[l] = plan.layers[l];
      changed.schedule.stage_of_layer[l] = plan.schedule.stage_of_layer[l];
    }
  }
  return explanation;
}

}  // namespace parsim::experiment
