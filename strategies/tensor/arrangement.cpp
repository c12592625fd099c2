#include "strategies/tensor/arrangement.hpp"

#include <algorithm>
#include <set>

#include "lowering/sync.hpp"
#include "strategies/blocks.hpp"
#include "strategies/buckets.hpp"
#include "strategies/experts.hpp"
#include "strategies/interleaved_cut.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/group_work.hpp"
#include "strategies/tensor/split.hpp"

namespace parsim::strategies::tensor {

namespace {

std::span<const DeviceId> devices_of_stage(const Arrangement& a, std::size_t stage) {
  const std::size_t each = a.degrees.data * a.degrees.group();
  return std::span(a.devices).subspan(stage % a.degrees.pipeline * each, each);
}

/// The devices of one replica: its tensor-parallel groups.
std::span<const DeviceId> group_of(const Arrangement& a, std::size_t stage, std::size_t replica) {
  return devices_of_stage(a, stage).subspan(replica * a.degrees.group(), a.degrees.group());
}

/// Where the stage after this one begins.
std::size_t end_of(const Arrangement& a, std::size_t stage, std::size_t layers) {
  return stage + 1 < a.degrees.stages() ? a.cut.first[stage + 1] : layers;
}

}  // namespace

Arranging::Arranging(const StrategyInput& input)
    : input_(input),
      flow_(lowering::gradient_flow(input.network)),
      readers_(consumers(input.network)),
      boundary_(boundary_bytes(input.network, input.precision)),
      units_(units_of(input.network, input.granularity)) {}

const std::vector<std::vector<Cut>>& Arranging::cuts(std::size_t degree) {
  const auto [at, fresh] = cuts_.try_emplace(degree);
  if (fresh) at->second = split(input_, degree);
  return at->second;
}

const std::vector<LayerShare>& Arranging::shares_of_tokens(const ParallelDegrees& degrees) {
  const auto [at, fresh] = token_shares_.try_emplace({degrees.tensor, degrees.context});
  if (fresh) at->second = share_tokens(input_, degrees.tensor, degrees.context);
  return at->second;
}

const std::vector<double>& Arranging::gathered(std::size_t degree) {
  const auto [at, fresh] = gathered_.try_emplace(degree);
  if (fresh) {
    const std::vector<std::vector<Cut>>& split = cuts(degree);
    at->second = boundary_bytes(input_.network, input_.precision,
                                [&](LayerId id) { return held_whole(split[id.index()]); });
  }
  return at->second;
}

Seconds Arranging::time_on(DeviceId device, std::int64_t samples) {
  const auto [at, fresh] = time_on_.try_emplace({input_.cluster[device].model, samples});
  if (!fresh) return at->second;
  for (std::size_t l = 0; l < input_.network.layers.size(); ++l) {
    const Part part{whole(input_.network.layers[l].out, samples), {}};
    at->second += layer_time(input_, flow_, LayerId{l}, part, device);
  }
  return at->second;
}

std::vector<std::int64_t> Arranging::shares(const ParallelDegrees& degrees,
                                            const std::vector<DeviceId>& devices) {
  const std::int64_t samples = input_.batch / degrees.micro_batches;
  std::vector<DeviceId> slowest(degrees.data, devices[0]);
  for (std::size_t r = 0; r < degrees.data; ++r) {
    for (std::size_t s = 0; s < degrees.pipeline; ++s) {
      for (std::size_t k = 0; k < degrees.group(); ++k) {
        const DeviceId device = devices[(s * degrees.data + r) * degrees.group() + k];
        const bool first = s == 0 && k == 0;
        if (first || time_on(device, 1) > time_on(slowest[r], 1)) slowest[r] = device;
      }
    }
  }
  const std::vector<std::size_t> kinds = device_kinds(input_.cluster, slowest);
  const bool alike = std::all_of(kinds.begin(), kinds.end(), [](auto kind) { return kind == 0; });
  if (alike) return even_split(samples, degrees.data);
  const auto time_of = [&](std::size_t kind, std::int64_t units) {
    const auto like = std::find(kinds.begin(), kinds.end(), kind) - kinds.begin();
    return time_on(slowest[static_cast<std::size_t>(like)], units);
  };
  return finish_together(samples, kinds, time_of, least_samples(input_));
}

Arranging::Loads Arranging::loads(const Arrangement& a, std::size_t stage) const {
  std::map<std::int32_t, std::pair<DeviceId, std::int64_t>> by_model;
  for (std::size_t r = 0; r < a.degrees.data; ++r) {
    for (const DeviceId device : group_of(a, stage, r)) {
      auto& [one, most] =
          by_model.try_emplace(input_.cluster[device].model, device, 0).first->second;
      most = std::max(most, a.shares[r]);
    }
  }
  Loads all;
  for (const auto& [model, load] : by_model) all.push_back(load);
  return all;
}

/// Seconds of the all-to-alls with a micro-batch that bring tokens to their experts, or back, and
/// their gradients the other way.
double Arranging::expert_exchange(const Arrangement& a, std::size_t stage, LayerId id,
                                  std::int64_t samples) {
  const Layer& layer = input_.network[id];
  const bool routes =
      layer.kind.as<ExpertDispatch>() != nullptr || layer.kind.as<ExpertCombine>() != nullptr;
  if (a.degrees.experts < 2 || !routes) return 0;
  const std::size_t members = a.degrees.experts;
  const Layer& slots =
      layer.kind.as<ExpertDispatch>() != nullptr ? layer : input_.network[layer.inputs[0]];
  const auto others = static_cast<std::int64_t>(members - 1);
  const Bytes payload{slots.out.elements() * samples * others /
                      static_cast<std::int64_t>(a.degrees.group()) *
                      element_bytes(input_.precision)};
  // A device exchanges its part of the channels with the same one of other groups.
  const std::size_t apart = whole_experts(input_, a.degrees.tensor) ? 1 : a.degrees.tensor;
  const std::span<const DeviceId> all = devices_of_stage(a, stage);
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < members; ++i) devices.push_back(all[i * apart]);
  const auto [known, fresh] = all_to_alls_.try_emplace({devices, payload});
  if (fresh) {
    known->second = input_.cost.collective(CollectiveKind::all_to_all, devices, payload);
  }
  return 2 * known->second.count();
}

/// Among how many times as many devices as a tensor group has a layer's weights are divided.
double Arranging::owners(const Arrangement& a, const Layer& layer) const {
  if (!is_of_experts(layer)) return 1;
  const bool whole = whole_experts(input_, a.degrees.tensor);
  return static_cast<double>(a.degrees.experts) / static_cast<double>(whole ? a.degrees.tensor : 1);
}

/// Seconds of what attention exchanges between the parts of the tokens with a micro-batch: keys and
/// values gathered twice and their gradients scattered, nothing if they go round a ring, or four
/// all-to-alls and their gradients'.
double Arranging::context_exchange(const Arrangement& a, std::size_t stage, LayerId id,
                                   std::int64_t samples) const {
  const Layer& layer = input_.network[id];
  const std::size_t context = a.degrees.context;
  if (context < 2 || layer.kind.as<Attention>() == nullptr) return 0;
  std::vector<DeviceId> ring;
  for (std::size_t c = 0; c < context; ++c) {
    ring.push_back(group_of(a, stage, 0)[c * a.degrees.tensor]);
  }
  const auto time = [&](CollectiveKind kind, LayerId of) {
    std::int64_t elements =
        input_.network[of].out.elements() * samples / static_cast<std::int64_t>(a.degrees.tensor);
    if (kind == CollectiveKind::all_to_all)
      elements -= elements / static_cast<std::int64_t>(context);
    const Bytes payload{elements * element_bytes(input_.precision)};
    return input_.cost.collective(kind, ring, payload).count();
  };
  double all = 0;
  if (input_.context_exchange == ContextExchange::a2a) {
    for (const LayerId operand : layer.inputs) all += time(CollectiveKind::all_to_all, operand);
    return 2 * (all + time(CollectiveKind::all_to_all, id));
  }
  if (input_.context_exchange == ContextExchange::p2p) return 0;  // behind the kernels
  for (const LayerId operand : {layer.inputs[1], layer.inputs[2]}) {
    all += 2 * time(CollectiveKind::all_gather, operand) +
           time(CollectiveKind::reduce_scatter, operand);
  }
  return all;
}

const std::vector<double>& Arranging::kernels(const Arrangement& a, DeviceId device,
                                              std::int64_t samples) {
  const auto [known, fresh] = kernels_.try_emplace(Key{static_cast<std::int64_t>(a.degrees.tensor),
                                                       static_cast<std::int64_t>(a.degrees.context),
                                                       input_.cluster[device].model, samples});
  if (!fresh) return known->second;
  const Network& network = input_.network;
  const bool by_tokens = a.degrees.context > 1;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const LayerShare* share = by_tokens ? &shares_of_tokens(a.degrees)[l] : nullptr;
    const Part part = by_tokens ? part_of(network, id, share->cuts, samples, share->zigzag)
                                : part_of(network, id, cuts(a.degrees.tensor)[l], samples);
    known->second.push_back(layer_time(input_, flow_, id, part, device).count());
  }
  return known->second;
}

const std::vector<double>& Arranging::exchanges(const Arrangement& a, std::size_t stage,
                                                std::int64_t samples) {
  Key key{static_cast<std::int64_t>(a.degrees.tensor), samples};
  const std::span<const DeviceId> group = group_of(a, stage, 0);
  for (const DeviceId device : group) key.push_back(device.value);
  const auto [known, fresh] = exchanges_.try_emplace(std::move(key));
  if (!fresh) return known->second;
  for (std::size_t l = 0; l < input_.network.layers.size(); ++l) {
    known->second.push_back(exchange_time(input_, readers_, cuts(a.degrees.tensor), LayerId{l},
                                          samples, group.first(a.degrees.tensor),
                                          static_cast<std::int64_t>(a.degrees.context)));
  }
  return known->second;
}

/// A layer's update is once a step, so a share of it comes with every micro-batch.
const std::vector<double>& Arranging::until(const Arrangement& a, std::size_t stage) {
  const Network& network = input_.network;
  const std::vector<std::vector<Cut>>& split = cuts(a.degrees.tensor);
  const Loads busy = loads(a, stage);
  // Stages of like devices with like shares take as long.
  const std::span<const DeviceId> group = group_of(a, stage, 0);
  const bool together = std::all_of(group.begin(), group.end(), [&](DeviceId device) {
    return input_.cluster[device].node == input_.cluster[group[0]].node;
  });
  Key key{static_cast<std::int64_t>(a.degrees.tensor), a.degrees.micro_batches, together ? 1 : 0,
          static_cast<std::int64_t>(a.degrees.experts),
          static_cast<std::int64_t>(a.degrees.context)};
  for (const auto& [device, samples] : busy) {
    key.insert(key.end(), {std::int64_t{input_.cluster[device].model}, samples});
  }
  const auto [known, fresh] = until_.try_emplace(std::move(key));
  if (!fresh) return known->second;
  std::int64_t most = 0;
  for (const auto& [device, samples] : busy) most = std::max(most, samples);
  std::vector<double>& times = known->second;
  times.push_back(0);
  ExposedExchange exposed(input_, a.degrees.tensor);
  std::vector<Seconds> updates(network.layers.size());
  std::vector<double> longest(network.layers.size(), 0);
  for (const auto& [device, samples] : busy) {
    const std::vector<Seconds> times_of_one =
        update_times(input_, device, static_cast<std::int64_t>(a.degrees.tensor));
    for (std::size_t l = 0; l < updates.size(); ++l)
      updates[l] = std::max(updates[l], times_of_one[l]);
    if (samples == 0) continue;
    const std::vector<double>& own = kernels(a, device, samples);
    for (std::size_t l = 0; l < own.size(); ++l) longest[l] = std::max(longest[l], own[l]);
  }
  const std::vector<double>& exchanged = exchanges(a, stage, most);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    double time = longest[l];
    const bool product = network.layers[l].kind.as<Dense>() != nullptr;
    time += exposed.next_to(time, exchanged[l], product, held_whole(split[l]));
    time += context_exchange(a, stage, id, most);
    time += updates[l].count() / owners(a, network.layers[l]) / a.degrees.micro_batches;
    time += expert_exchange(a, stage, id, most);
    times.push_back(times.back() + time);
  }
  return times;
}

/// Gradients of a device are summed while the last micro-batch goes backward, two thirds of its
/// time; this is what remains of the stage with most to sum.
double Arranging::sums_left_over(const Arrangement& a,
                                 const std::vector<std::vector<double>>& until) {
  if (a.degrees.data * a.degrees.context < 2) return 0;
  const Network& network = input_.network;
  double most = 0;
  for (std::size_t device = 0; device < a.degrees.pipeline; ++device) {
    std::set<ParameterId> parameters;
    double elements = 0, load = 0;
    for (std::size_t s = device; s < a.degrees.stages(); s += a.degrees.pipeline) {
      const std::size_t first = a.cut.first[s], end = end_of(a, s, network.layers.size());
      for (std::size_t l = first; l < end; ++l) {
        for (const ParameterId id : network.layers[l].parameters) {
          if (!parameters.insert(id).second) continue;
          elements += static_cast<double>(network[id].elements()) / owners(a, network.layers[l]);
        }
      }
      load += until[s][end] - until[s][first];
    }
    std::vector<DeviceId> group;
    const std::span<const DeviceId> all = devices_of_stage(a, device);
    for (std::size_t d = 0; d < all.size(); d += a.degrees.tensor) group.push_back(all[d]);
    const Bytes payload{static_cast<std::int64_t>(elements) /
                        static_cast<std::int64_t>(a.degrees.tensor) *
                        element_bytes(input_.reduce_precision)};
    const double sums = input_.cost.collective(CollectiveKind::all_reduce, group, payload).count();
    most = std::max(most, sums - 2.0 / 3 * load);
  }
  return most;
}

ChainCosts Arranging::costs_of(const Arrangement& a) {
  const ParallelDegrees& degrees = a.degrees;
  ChainCosts costs;
  const std::int64_t most = *std::max_element(a.shares.begin(), a.shares.end());
  for (std::size_t s = 0; s < degrees.stages(); ++s) {
    costs.until.push_back(until(a, s));
    std::vector<double>& handed = costs.hand_over.emplace_back();
    if (s == 0) continue;
    // Every device of a group hands over its share, the next group gathers the shares, and the
    // devices of a machine share its ways to others.
    const std::span<const DeviceId> next = group_of(a, s, 0);
    const DeviceId from = group_of(a, s - 1, 0)[0], to = next[0];
    const NodeId machine = input_.cluster[from].node;
    std::int64_t together = 1;
    if (input_.cluster[to].node != machine) {
      const auto stage = devices_of_stage(a, s - 1);
      together = std::count_if(stage.begin(), stage.end(), [&](DeviceId device) {
        return input_.cluster[device].node == machine;
      });
    }
    const double dear = 10 * (costs.until[s - 1].back() + costs.until[s].back());
    const auto ways_across = static_cast<std::int64_t>(degrees.group());
    const auto parts = static_cast<std::int64_t>(degrees.context);
    std::map<std::pair<std::int64_t, std::int64_t>, double> known;  // blocks hand over the same
    for (std::size_t l = 0; l < boundary_.size(); ++l) {
      const auto bytes = [&](double of_sample) {
        return static_cast<std::int64_t>(of_sample) * most;
      };
      const Bytes shares{bytes(boundary_[l]) * together / ways_across};
      const Bytes whole{bytes(gathered(degrees.tensor)[l]) / parts};
      const auto [at, fresh] = known.try_emplace({shares.value, whole.value});
      double& time = at->second;
      if (fresh) time = shares.value > 0 ? input_.cost.transfer(from, to, shares).count() : dear;
      if (fresh && shares.value > 0 && whole.value > 0 && degrees.tensor > 1) {
        time +=
            input_.cost.collective(CollectiveKind::all_gather, next.first(degrees.tensor), whole)
                .count();
      }
      handed.push_back(time);
    }
  }
  return costs;
}

/// With as many blocks in each stage, as Megatron-LM cuts unless it is given a layout, where no
/// other cut is clearly faster.
PipelineCut Arranging::interleaved(const ParallelDegrees& degrees, const ChainCosts& costs,
                                   PipelineSchedule schedule) const {
  constexpr double clearly = 1e-3;
  const Interleaving pipeline{degrees.pipeline, degrees.chunks, degrees.micro_batches,
                              input_.pipeline_sends, schedule};
  std::vector<std::size_t> units = units_;
  // No stage holds inputs alone.
  const std::vector<Layer>& chain = input_.network.layers;
  const auto computes = [](const Layer& layer) { return layer.kind.as<Input>() == nullptr; };
  const auto first_kernel =
      static_cast<std::size_t>(std::find_if(chain.begin(), chain.end(), computes) - chain.begin());
  const auto inputs = [&](std::size_t unit) { return unit > 0 && unit <= first_kernel; };
  if (units.size() > degrees.stages()) std::erase_if(units, inputs);
  PipelineCut cut = interleaved_cut(costs, pipeline, units);
  const std::vector<std::size_t> blocks = first_layers_of_blocks(input_.network);
  if (blocks.empty() || blocks.size() % degrees.stages() != 0) return cut;
  PipelineCut equal;
  for (std::size_t b = 0; b < blocks.size(); b += blocks.size() / degrees.stages()) {
    equal.first.push_back(blocks[b]);
  }
  equal.step = interleaved_step(costs, pipeline, equal.first);
  return equal.step <= (1 + clearly) * cut.step ? equal : cut;
}

Arrangement Arranging::arrange(const ParallelDegrees& degrees, std::vector<DeviceId> devices) {
  std::vector<std::int64_t> own = shares(degrees, devices);
  return cut_for({degrees, std::move(devices), std::move(own), {}}, input_.schedule_or_default());
}

Arrangement Arranging::cut_for(Arrangement a, PipelineSchedule schedule) {
  const ChainCosts costs = costs_of(a);
  a.cut = a.degrees.chunks > 1 ? interleaved(a.degrees, costs, schedule)
                               : pipeline_cut(costs, a.degrees.micro_batches, units_);
  a.cut.step += sums_left_over(a, costs.until);
  return a;
}

std::string Arranging::note_on_cut(const Arrangement& a) {
  if (a.degrees.pipeline < 2 || a.degrees.chunks > 1) return {};
  const ChainCosts costs = costs_of(a);
  return finer_cut_note(input_, pipeline_cut(costs, a.degrees.micro_batches, units_).step,
                        pipeline_cut(costs, a.degrees.micro_batches).step);
}

double Arranging::least_step(const ParallelDegrees& degrees, const std::vector<DeviceId>& devices) {
  const Arrangement a{degrees, devices, shares(degrees, devices), {}};
  // Stages that work equally long share the layers as their speeds allow.
  double speed = 0;
  for (std::size_t d = 0; d < degrees.pipeline; ++d) {
    const DeviceId device = devices_of_stage(a, d)[0];
    const auto [at, fresh] = updates_.try_emplace(
        {input_.cluster[device].model, degrees.tensor, degrees.micro_batches}, 0);
    if (fresh) {
      for (const Seconds update :
           update_times(input_, device, static_cast<std::int64_t>(degrees.tensor))) {
        at->second += update.count() / degrees.micro_batches;
      }
    }
    const double load = until(a, d).back() - at->second;
    if (load <= 0) return 0;
    speed += 1 / load;
  }
  const auto others = static_cast<double>(degrees.pipeline - 1);
  return (degrees.micro_batches + others / static_cast<double>(degrees.chunks)) / speed;
}

Plan Arranging::plan_of(const Arrangement& a) {
  const std::vector<std::vector<Cut>>& split = cuts(a.degrees.tensor);
  Plan plan = empty_plan(input_, "tensor", {});
  plan.schedule.micro_batches = a.degrees.micro_batches;
  plan.schedule.split_backward = splits_backward(input_.schedule_or_default(), a.degrees.pipeline);
  plan.schedule.rank_lists.clear();
  for (std::size_t s = 0; s < a.degrees.stages(); ++s) {
    const std::span<const DeviceId> of_stage = devices_of_stage(a, s);
    const SharedList<DeviceId> own(std::vector<DeviceId>(of_stage.begin(), of_stage.end()));
    for (std::size_t l = a.cut.first[s], end = end_of(a, s, plan.layers.size()); l < end; ++l) {
      LayerPlan& layer = plan.layers[l];
      plan.schedule.stage_of_layer[l] = static_cast<std::int32_t>(s);
      layer.devices = own;
      layer.sync = chosen_sync(input_);
      if (a.degrees.context > 1) {
        std::vector<std::vector<DeviceId>> groups;
        for (std::size_t r = 0; r < a.degrees.data; ++r) {
          const auto group = group_of(a, s, r);
          groups.emplace_back(group.begin(), group.end());
        }
        divide(shares_of_tokens(a.degrees)[l], groups, a.shares, end, layer);
        continue;
      }
      if (a.degrees.data > 1) layer.cuts.push_back({Dim::sample, a.shares});
      layer.cuts.insert(layer.cuts.end(), split[l].begin(), split[l].end());
      layer.regather = input_.sequence_parallel && by_token(split[l]) &&
                       !is_in_mixture(input_.network.layers[l]);
    }
  }
  for (std::size_t d = 0; d < a.degrees.pipeline; ++d) {
    const auto own = devices_of_stage(a, d);
    plan.schedule.rank_lists.push_back(
        {{own.begin(), own.end()},
         device_slots(input_.schedule_or_default(), static_cast<std::int32_t>(d),
                      static_cast<std::int32_t>(a.degrees.pipeline),
                      static_cast<std::int32_t>(a.degrees.chunks), a.degrees.micro_batches)});
  }
  divide_experts(input_.network, a.degrees.experts,
                 token_parts_of_experts(input_, a.degrees.tensor, a.degrees.context), plan);
  overlap_products(input_, plan);
  plan.buckets = gradient_buckets(input_);
  return plan;
}

}  // namespace parsim::strategies::tensor
