#include "strategies/mixed/stage_costs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "core/fp8.hpp"
#include "lowering/kept_activations.hpp"
#include "lowering/memory.hpp"
#include "lowering/recompute.hpp"
#include "lowering/sync.hpp"
#include "strategies/blocks.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/group_work.hpp"
#include "strategies/tensor/split.hpp"

namespace parsim::strategies::mixed {

StageCosts::StageCosts(const StrategyInput& input, const std::vector<DeviceClass>& classes)
    : input_(input),
      classes_(classes),
      structure_(input.network),
      first_(first_layers_of_blocks(input.network)),
      boundary_(boundary_bytes(input.network, input.precision)),
      bytes_(lowering::kept_bytes(input.network, input.precision)) {
  const std::size_t layers = input.network.layers.size();
  for (std::size_t b = 0; b < first_.size(); ++b) {
    block_.resize(b + 1 < first_.size() ? first_[b + 1] : layers, b);
  }
  Plan alone = empty_plan(input, "tensor", {workers(input)[0]});
  for (LayerPlan& layer : alone.layers) layer.devices = {workers(input)[0]};
  dropped_ = lowering::dropped_outputs(input.network, with_memory_options(input, alone));
  stays_ = bytes_;
  if (!of_megatron(input.framework)) return;
  stays_ = lowering::kept_bytes(input.network, input.precision, [&](LayerId made, LayerId reader) {
    return block_[made.index()] == block_[reader.index()];
  });
}

const std::vector<std::vector<Cut>>& StageCosts::cuts(std::size_t tensor) {
  const auto [at, fresh] = cuts_.try_emplace(tensor);
  if (fresh) at->second = tensor::split(input_, tensor);
  return at->second;
}

/// A tensor-parallel group: within a machine if it fits into one.
std::vector<DeviceId> StageCosts::group(std::size_t of_class, std::size_t tensor) const {
  std::vector<DeviceId> devices;
  for (const std::vector<DeviceId>& machine : classes_[of_class].machines) {
    for (const DeviceId device : machine) {
      if (devices.size() < tensor) devices.push_back(device);
    }
  }
  return devices;
}

double StageCosts::machines_of(const Member& member) const {
  return std::ceil(static_cast<double>(member.devices()) /
                   static_cast<double>(classes_[member.of_class].of_machine()));
}

const std::vector<double>& StageCosts::until(std::size_t of_class, std::size_t tensor,
                                             std::int64_t samples) {
  return passes(of_class, tensor, samples).all;
}

bool StageCosts::repeats(std::size_t layer, const std::vector<std::vector<Cut>>& split) const {
  const std::size_t first = structure_.like[layer].index();
  if (first == layer || split[first] != split[layer] || dropped_[first] != dropped_[layer]) {
    return false;
  }
  const std::vector<Consumer>&own = structure_.readers[layer], &others = structure_.readers[first];
  return std::equal(own.begin(), own.end(), others.begin(), others.end(),
                    [&](const Consumer& a, const Consumer& b) {
                      return split[a.layer.index()] == split[b.layer.index()];
                    });
}

const StageCosts::Passes& StageCosts::passes(std::size_t of_class, std::size_t tensor,
                                             std::int64_t samples) {
  const auto [at, fresh] = passes_.try_emplace({of_class, tensor, samples});
  if (!fresh) return at->second;
  std::vector<double>& times = at->second.all;
  std::vector<double>& weights = at->second.weights;
  const Network& network = input_.network;
  const std::vector<std::vector<Cut>>& split = cuts(tensor);
  const std::vector<DeviceId> devices = group(of_class, tensor);
  times.assign(blocks() + 1, 0);
  weights.assign(blocks() + 1, 0);
  const auto price = [&](LayerId id) {
    const Part part = tensor::part_of(network, id, split[id.index()], samples);
    const auto kernel = [&](Pass pass) {
      return kernel_time(input_.cost, network, id, part, pass, devices[0], input_.precision,
                         input_.reduce_precision)
          .time.count();
    };
    LayerTimes layer;
    layer.both = layer_time(input_, structure_.flow, id, part, devices[0]).count();
    layer.exchanged =
        tensor::exchange_time(input_, structure_.readers, split, id, samples, devices);
    if (dropped_[id.index()]) layer.forward = kernel(Pass::forward);
    const Layer& own = network[id];
    const bool product = own.kind.as<Dense>() != nullptr;
    if (product && !own.parameters.empty()) layer.weights = kernel(Pass::backward_weights);
    return layer;
  };
  tensor::ExposedExchange exposed(input_, tensor);
  std::vector<LayerTimes> priced;  // by layer
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerTimes layer =
        repeats(l, split) ? priced[structure_.like[l].index()] : price(LayerId{l});
    priced.push_back(layer);
    const bool product = network.layers[l].kind.as<Dense>() != nullptr;
    double& sum = times[block_[l] + 1];
    sum += layer.both +
           exposed.next_to(layer.both, layer.exchanged, product, tensor::held_whole(split[l]));
    weights[block_[l] + 1] += layer.weights;
    if (!dropped_[l]) continue;
    sum += layer.forward;
    const bool sums = tensor > 1 && split[l][0].dim == Dim::in_channel;
    if (sums) sum += layer.exchanged / 2;  // that of forward
  }
  for (std::size_t b = 0; b < blocks(); ++b) {
    times[b + 1] += times[b];
    weights[b + 1] += weights[b];
  }
  return at->second;
}

const std::vector<double>& StageCosts::updates(std::size_t of_class, std::size_t tensor) {
  const auto [at, fresh] = updates_.try_emplace({of_class, tensor});
  std::vector<double>& times = at->second;
  if (!fresh) return times;
  times.assign(blocks() + 1, 0);
  const std::vector<Seconds> each =
      update_times(input_, group(of_class, tensor)[0], static_cast<std::int64_t>(tensor));
  for (std::size_t l = 0; l < each.size(); ++l) times[block_[l] + 1] += each[l].count();
  for (std::size_t b = 0; b < blocks(); ++b) times[b + 1] += times[b];
  return times;
}

const StageCosts::Parameters& StageCosts::parameters(std::size_t tensor) {
  const auto [at, fresh] = parameters_.try_emplace(tensor);
  Parameters& all = at->second;
  if (!fresh) return all;
  const Network& network = input_.network;
  all.elements.assign(blocks() + 1, 0);
  std::set<std::pair<ParameterId, std::size_t>> counted;  // once a block
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    const std::vector<Shape> inputs = input_shapes(network, LayerId{l});
    const Part part = tensor::part_of(network, LayerId{l}, cuts(tensor)[l], 1);
    for (std::size_t p = 0; p < layer.parameters.size(); ++p) {
      const ParameterId id = layer.parameters[p];
      if (!counted.insert({id, block_[l]}).second) continue;
      const auto elements =
          static_cast<double>(parameter_region(layer.kind, inputs, layer.out, p, part).volume());
      all.elements[block_[l] + 1] += elements;
      all.largest = std::max(all.largest, elements);
      if (block_[l] > 0 && counted.contains({id, 0})) all.twice += elements;
    }
  }
  all.largest_block = *std::max_element(all.elements.begin(), all.elements.end());
  for (std::size_t b = 0; b < blocks(); ++b) all.elements[b + 1] += all.elements[b];
  return all;
}

const StageCosts::Activations& StageCosts::activations(std::size_t tensor, std::int64_t samples) {
  const auto [at, fresh] = activations_.try_emplace({tensor, samples});
  Activations& all = at->second;
  if (!fresh) return all;
  const Network& network = input_.network;
  all.kept.assign(blocks() + 1, 0);
  all.dropped.assign(blocks(), 0);
  all.sent.assign(blocks(), 0);
  all.gradient.assign(blocks(), 0);
  const std::vector<std::vector<Cut>>& split = cuts(tensor);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    if (structure_.flow.source[l]) continue;
    const std::size_t b = block_[l];
    const auto elements =
        static_cast<double>(tensor::part_of(network, LayerId{l}, split[l], samples).out.volume());
    all.gradient[b] = std::max(all.gradient[b],
                               2 * elements * static_cast<double>(element_bytes(input_.precision)));
    if (lowering::works_in_place(layer.kind)) continue;
    const double bytes = elements * static_cast<double>(bytes_[l]);
    if (dropped_[l]) {
      all.dropped[b] += bytes;
    } else {
      all.kept[b + 1] += bytes;
      all.sent[b] += elements * static_cast<double>(bytes_[l] - stays_[l]);
    }
  }
  for (std::size_t b = 0; b < blocks(); ++b) all.kept[b + 1] += all.kept[b];
  return all;
}

std::vector<DeviceId> StageCosts::a_device_each(const StageShape& shape,
                                                std::map<std::size_t, std::size_t>& used) const {
  std::vector<DeviceId> devices;
  for (const Member& member : shape.members) {
    std::vector<DeviceId> all;
    for (const std::vector<DeviceId>& machine : classes_[member.of_class].machines) {
      all.insert(all.end(), machine.begin(), machine.end());
    }
    std::size_t& next = used[member.of_class];
    for (std::size_t g = 0; g < member.count; ++g) {
      devices.push_back(all[next % all.size()]);
      next += member.tensor;
    }
  }
  return devices;
}

double StageCosts::rings_at_once(const StageShape& shape,
                                 const std::vector<DeviceId>& devices) const {
  std::set<NodeId> machines;
  for (const DeviceId device : devices) machines.insert(input_.cluster[device].node);
  std::size_t most = 1;
  for (const Member& member : shape.members) most = std::max(most, member.tensor);
  return machines.size() < 2 ? 1 : static_cast<double>(most);
}

std::pair<double, double> StageCosts::sums(const StageShape& shape) {
  if (shape.replicas() < 2) return {0, 0};
  std::map<std::size_t, std::size_t> used;
  std::vector<DeviceId> devices = a_device_each(shape, used);
  std::sort(devices.begin(), devices.end());
  constexpr Bytes few{1'000'000}, many{101'000'000};
  const double little = input_.cost.collective(CollectiveKind::all_reduce, devices, few).count();
  const double much = input_.cost.collective(CollectiveKind::all_reduce, devices, many).count();
  const double per_byte = (much - little) / static_cast<double>(many.value - few.value);
  const auto bytes = static_cast<double>(element_bytes(input_.reduce_precision));
  return {std::max(0.0, little - per_byte * static_cast<double>(few.value)),
          per_byte * bytes * rings_at_once(shape, devices)};
}

double StageCosts::shared_sum(const StageShape& first, const StageShape& last) {
  std::size_t tensor = 1;
  for (const StageShape* shape : {&first, &last}) {
    for (const Member& member : shape->members) tensor = std::max(tensor, member.tensor);
  }
  const double elements = parameters(tensor).twice;
  if (elements == 0) return 0;
  std::map<std::size_t, std::size_t> used;
  std::vector<DeviceId> devices = a_device_each(first, used);
  for (const DeviceId device : a_device_each(last, used)) devices.push_back(device);
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  if (devices.size() < 2) return 0;
  const double at_once = std::max(rings_at_once(first, devices), rings_at_once(last, devices));
  const Bytes payload{static_cast<std::int64_t>(
      elements * at_once * static_cast<double>(element_bytes(input_.reduce_precision)))};
  return input_.cost.collective(CollectiveKind::all_reduce, devices, payload).count();
}

std::vector<double> StageCosts::times(const StageShape& shape) {
  return by_range(shape, &Passes::all);
}

std::vector<double> StageCosts::weights(const StageShape& shape) {
  return by_range(shape, &Passes::weights);
}

std::vector<double> StageCosts::by_range(const StageShape& shape,
                                         std::vector<double> Passes::*kind) {
  const std::size_t ends = blocks() + 1;
  std::vector<double> all(ends * ends, 0);
  for (const Member& member : shape.members) {
    const std::vector<double>& sums =
        passes(member.of_class, member.tensor, member.most_samples()).*kind;
    for (std::size_t b = 0; b < blocks(); ++b) {
      for (std::size_t e = b + 1; e < ends; ++e) {
        double& time = all[b * ends + e];
        time = std::max(time, sums[e] - sums[b]);
      }
    }
  }
  return all;
}

std::vector<double> StageCosts::afterwards(const StageShape& shape) {
  const std::size_t ends = blocks() + 1;
  std::vector<double> all(ends * ends, 0);
  const auto [constant, each] = sums(shape);
  for (const Member& member : shape.members) {
    const std::vector<double>& passes =
        until(member.of_class, member.tensor, member.most_samples());
    const std::vector<double>& update = updates(member.of_class, member.tensor);
    const std::vector<double>& elements = parameters(member.tensor).elements;
    for (std::size_t b = 0; b < blocks(); ++b) {
      for (std::size_t e = b + 1; e < ends; ++e) {
        const double sum = each > 0 ? constant + each * (elements[e] - elements[b]) : 0;
        const double left = std::max(0.0, sum - 2.0 / 3 * (passes[e] - passes[b]));
        double& time = all[b * ends + e];
        time = std::max(time, update[e] - update[b] + left);
      }
    }
  }
  return all;
}

StageCosts::Need StageCosts::need(const StageShape& shape, const Member& member, std::size_t begin,
                                  std::size_t end, std::int32_t micro_batches) {
  const auto replicas = static_cast<double>(shape.replicas());
  double shards = replicas;
  if (input_.zero_group.ranks > 0) shards = std::min<double>(replicas, input_.zero_group.ranks);
  if (input_.zero_group.node) {
    const std::size_t of_machine = classes_[member.of_class].of_machine() / member.tensor;
    shards = std::min(replicas, static_cast<double>(std::max<std::size_t>(1, of_machine)));
  }
  // Copies in FP8: of nearly all weights.
  const DeviceId device = classes_[member.of_class].machines[0][0];
  const bool copied = multiplies_in_fp8(input_.precision) && input_.zero_stage < 3;
  const double copies =
      copied ? static_cast<double>(fp8_cast(input_.precision, input_.cluster.model(device)).copies)
             : 0;
  const double weight =
      static_cast<double>(element_bytes(input_.precision)) / (input_.zero_stage == 3 ? shards : 1) +
      copies;
  const double gradient =
      static_cast<double>(lowering::gradient_bytes(input_.precision, input_.reduce_precision)) /
      (input_.zero_stage >= 2 && micro_batches == 1 ? shards : 1);
  const double state =
      static_cast<double>(lowering::optimizer_bytes(input_.precision, input_.optimizer)) /
      (input_.zero_stage >= 1 ? shards : 1);
  const Parameters& weights = parameters(member.tensor);
  const std::int64_t samples = member.most_samples();
  const Activations& acts = activations(member.tensor, samples);
  const auto summed = static_cast<double>(element_bytes(input_.reduce_precision));
  const double arrives = begin > 0 ? bytes_across(begin) * static_cast<double>(samples) : 0;
  const double leaves = end < blocks() ? acts.sent[end - 1] : 0;
  const auto most = [&](const std::vector<double>& by_block) {
    return *std::max_element(by_block.begin() + static_cast<std::ptrdiff_t>(begin),
                             by_block.begin() + static_cast<std::ptrdiff_t>(end));
  };
  double held = weights.elements[end] - weights.elements[begin];
  if (begin == 0 && end == blocks()) held -= weights.twice;
  const bool gathers = input_.zero_stage == 3;
  const double size =
      gathers && gathers_blocks(input_)
          ? weights.largest_block
          : std::max(static_cast<double>(input_.bucket.value_or(ddp_bucket).value) / summed,
                     weights.largest);
  const double two = replicas < 2 ? 0 : std::min(held, 2 * size);  // elements of two buckets
  const double gathered = gathers ? two * static_cast<double>(element_bytes(input_.precision)) : 0;
  const bool whole_gradients = gathers || input_.framework == Framework::pytorch;
  const double bucket = whole_gradients ? two * summed : 0;
  return {held * (weight + gradient + state) + most(acts.dropped) + most(acts.gradient) + gathered +
              std::max(bucket, arrives),
          acts.kept[end] - acts.kept[begin] - leaves + arrives};
}

std::vector<std::int32_t> StageCosts::most_in_flight(const StageShape& shape,
                                                     std::int32_t micro_batches) {
  constexpr std::int32_t any = std::numeric_limits<std::int32_t>::max();
  const std::size_t ends = blocks() + 1;
  std::vector<std::int32_t> all(ends * ends, any);
  for (const Member& member : shape.members) {
    const DeviceId device = classes_[member.of_class].machines[0][0];
    const auto usable = static_cast<double>(input_.usable_memory(device).value);
    for (std::size_t b = 0; b < blocks(); ++b) {
      for (std::size_t e = b + 1; e < ends; ++e) {
        const Need bytes = need(shape, member, b, e, micro_batches);
        const double room = usable - bytes.once;
        const double most = room < 0 ? 0 : bytes.each > 0 ? room / bytes.each : any;
        std::int32_t& count = all[b * ends + e];
        count = std::min(count, most >= any ? any : static_cast<std::int32_t>(most));
      }
    }
  }
  return all;
}

StageCosts::Send StageCosts::send(const StageShape& from, const StageShape& to, std::size_t block,
                                  std::optional<bool> neighbours) {
  const double bytes = bytes_across(block);
  const Member &a = from.members[0], &b = to.members[0];
  const DeviceClass &of_a = classes_[a.of_class], &of_b = classes_[b.of_class];
  const bool alone = from.members.size() == 1 && to.members.size() == 1;
  const bool same_class = a.of_class == b.of_class;
  const bool together =
      alone && (same_class ? neighbours.value_or(a.devices() + b.devices() <= of_a.of_machine())
                           : of_a.machines.size() == 1 && of_b.machines.size() == 1 &&
                                 input_.cluster[of_a.machines[0][0]].node ==
                                     input_.cluster[of_b.machines[0][0]].node);
  const auto other = [&](std::size_t sender, std::size_t receiver) {
    const DeviceClass& of = classes_[receiver];
    if (sender != receiver) return of.machines[0][0];
    return together || of.machines.size() == 1
               ? of.machines[0][std::min(a.devices(), of.of_machine() - 1)]
               : of.machines.back()[0];
  };
  Send result;
  const auto ways_of = [&](const std::vector<Member>& members) {
    double ways = 0;
    for (const Member& one : members) ways += machines_of(one);
    return ways;
  };
  const double ways_from = ways_of(from.members), ways_to = ways_of(to.members);
  // Where one side is on fewer machines than the other, its own links carry more than the path.
  const auto carry = [&](const Member& member, DeviceId source, DeviceId target, bool fewer) {
    std::int64_t samples = 0;
    for (const std::int64_t share : member.samples) samples += share;
    const double ways = together ? static_cast<double>(member.devices()) : machines_of(member);
    const Bytes payload{static_cast<std::int64_t>(bytes * static_cast<double>(samples) / ways)};
    const DeviceClass& of = classes_[member.of_class];
    if (!together && fewer && of.machines.size() > 1) {
      source = of.machines[0][0];
      target = of.machines.back()[0];
    }
    if (payload.value <= 0 || source == target) return;
    result.time = std::max(result.time, input_.cost.transfer(source, target, payload).count());
  };
  for (const Member& one : from.members) {
    carry(one, classes_[one.of_class].machines[0][0], other(one.of_class, b.of_class),
          ways_from < ways_to);
  }
  for (const Member& one : to.members) {
    carry(one, of_a.machines[0][0], other(a.of_class, one.of_class), ways_to < ways_from);
  }
  if (!together) result.on_links = result.time;
  double gathered = 0;
  for (const Member& one : to.members) {
    if (one.tensor < 2) continue;
    const Bytes payload{static_cast<std::int64_t>(bytes * static_cast<double>(one.most_samples()))};
    const std::vector<DeviceId> devices = group(one.of_class, one.tensor);
    if (payload.value > 0) {
      gathered = std::max(
          gathered, input_.cost.collective(CollectiveKind::all_gather, devices, payload).count());
    }
  }
  result.time += gathered;
  return result;
}

}  // namespace parsim::strategies::mixed
