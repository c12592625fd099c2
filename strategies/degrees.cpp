#include "strategies/degrees.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/errors.hpp"
#include "core/hash.hpp"
#include "core/text.hpp"
#include "strategies/blocks.hpp"
#include "strategies/experts.hpp"
#include "strategies/price.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies {

namespace {

std::int64_t samples_of(const Plan& plan) { return plan.batch / plan.schedule.micro_batches; }

template <class Value>
void sort_if_needed(std::vector<Value>& values) {
  if (!std::is_sorted(values.begin(), values.end())) std::sort(values.begin(), values.end());
}

/// By device its samples of a micro-batch, in the order of devices; nothing if a device has gaps
/// between them.
using SamplesOf = std::vector<std::pair<DeviceId, Interval>>;
std::optional<SamplesOf> samples_by_device(const std::vector<Cell>& cells) {
  SamplesOf all;
  for (const Cell& cell : cells) all.emplace_back(cell.device, cell.part.out[0]);
  sort_if_needed(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  SamplesOf samples;
  for (auto begin = all.begin(); begin != all.end();) {
    auto [device, hull] = *begin;
    std::int64_t count = 0;
    for (; begin != all.end() && begin->first == device; ++begin) {
      hull.end = std::max(hull.end, begin->second.end);
      count += begin->second.size();
    }
    if (count != hull.size()) return std::nullopt;
    samples.emplace_back(device, hull);
  }
  return samples;
}

bool is_spatial(Dim dim) { return dim == Dim::depth || dim == Dim::height || dim == Dim::width; }

std::size_t parts_along(const LayerPlan& layer, Dim dim) {
  std::size_t parts = 1;
  for (const Cut& cut : layer.cuts) {
    if (cut.dim != dim) continue;
    parts *= static_cast<std::size_t>(
        std::count_if(cut.sizes.begin(), cut.sizes.end(), [](auto size) { return size > 0; }));
  }
  return parts;
}

/// Whether both give the same devices the same parts, of layers of any shape.
bool same_cells(const LayerPlan& a, const LayerPlan& b) {
  return a.cuts == b.cuts && a.devices == b.devices && a.joined == b.joined;
}

/// What replicas of a stage are: the samples of each device, equal for all layers with weights.
std::optional<SamplesOf> replicas_of(const Network& network, const Plan& plan,
                                     const std::vector<LayerId>& layers) {
  // Divided experts work for the samples of several replicas.
  const auto weighs = [&](LayerId id) {
    return !network[id].parameters.empty() &&
           parts_along(plan.layers[id.index()], Dim::expert) == 1;
  };
  const bool any = std::any_of(layers.begin(), layers.end(), weighs);
  std::optional<SamplesOf> replicas;
  const LayerPlan* before = nullptr;
  for (const LayerId id : layers) {
    if (any && !weighs(id)) continue;
    const LayerPlan& layer = plan.layers[id.index()];
    if (before != nullptr && same_cells(*before, layer)) continue;
    before = &layer;
    for (const Cut& cut : layer.cuts) {
      if (is_spatial(cut.dim) && parts_along(layer, cut.dim) > 1) return std::nullopt;
    }
    const auto samples = samples_by_device(cells(network, id, layer, samples_of(plan)));
    if (!samples || (replicas && *replicas != *samples)) return std::nullopt;
    replicas = samples;
  }
  return replicas;
}

/// Parts of the tokens, the same of all dense layers that have tokens (sequence parallelism leaves
/// those whole, but for routers of whole experts).
std::optional<std::int64_t> token_parts(const Network& network, const Plan& plan,
                                        const std::vector<LayerId>& layers) {
  std::optional<std::int64_t> parts;
  const std::vector<bool> routing = routers(network);
  for (const LayerId id : layers) {
    const Layer& layer = network[id];
    const bool product = layer.kind.as<Dense>() != nullptr && !routing[id.index()];
    if (!product || layer.out.region_axis(Dim::token) == 0) continue;
    const auto own = static_cast<std::int64_t>(parts_along(plan.layers[id.index()], Dim::token));
    if (parts && *parts != own) return std::nullopt;
    parts = own;
  }
  return parts.value_or(1);
}

/// The degrees of a stage whose replicas are known and of one size.
void find_degrees(const SamplesOf& replicas, std::optional<std::int64_t> context,
                  StageSummary& stage) {
  std::vector<Interval> all;
  for (const auto& [device, samples] : replicas) all.push_back(samples);
  sort_if_needed(all);
  std::vector<std::pair<Interval, std::int64_t>> sizes;
  for (const Interval& samples : all) {
    if (sizes.empty() || sizes.back().first != samples) sizes.emplace_back(samples, 0);
    ++sizes.back().second;
  }
  if (sizes.empty()) return;
  std::int64_t end = 0;
  for (const auto& [samples, size] : sizes) {
    if (samples.begin != end) return;  // they overlap
    end = samples.end;
  }
  stage.dp = std::ssize(sizes);
  const auto other = [&](const auto& entry) { return entry.second != sizes.begin()->second; };
  if (std::any_of(sizes.begin(), sizes.end(), other)) return;
  const std::int64_t devices = sizes.begin()->second;
  if (!context || devices % *context != 0) return;
  stage.cp = context;
  stage.tp = devices / *context;
}

std::optional<std::vector<Interval>> blocks_of_stage(
    const std::vector<std::int64_t>& block_of_layer, std::int64_t count, std::size_t stage,
    const std::vector<std::int32_t>& stage_of_layer) {
  // What is before the first block belongs to it, and what is after the last one to that.
  std::set<std::int64_t> whole, cut;
  for (std::size_t l = 0; l < block_of_layer.size(); ++l) {
    const std::int64_t block = std::clamp<std::int64_t>(block_of_layer[l], 0, count - 1);
    const bool own = static_cast<std::size_t>(stage_of_layer[l]) == stage;
    (own ? whole : cut).insert(block);
  }
  std::vector<Interval> ranges;
  for (const std::int64_t block : whole) {
    if (cut.contains(block)) return std::nullopt;
    if (!ranges.empty() && ranges.back().end == block) {
      ++ranges.back().end;
    } else {
      ranges.push_back({block, block + 1});
    }
  }
  return ranges;
}

/// The number that all stages have.
template <class Member>
std::optional<std::int64_t> common(const std::vector<StageSummary>& stages, Member member) {
  const std::optional<std::int64_t> first = stages.front().*member;
  const auto other = [&](const StageSummary& stage) { return stage.*member != first; };
  return std::any_of(stages.begin(), stages.end(), other) ? std::nullopt : first;
}

/// Groups of devices that have different stages, and the stages of each, if groups take turns.
void find_pipeline(const std::vector<StageSummary>& stages, Degrees& degrees) {
  std::vector<std::vector<DeviceId>> groups;
  std::vector<std::size_t> group_of;
  std::vector<bool> seen;  // by device
  for (const StageSummary& stage : stages) {
    std::vector<DeviceId> own = stage.devices;
    sort_if_needed(own);
    const auto known = std::find(groups.begin(), groups.end(), own);
    group_of.push_back(static_cast<std::size_t>(known - groups.begin()));
    if (known != groups.end()) continue;
    if (!own.empty()) seen.resize(std::max(seen.size(), own.back().index() + 1));
    for (const DeviceId device : own) {
      if (seen[device.index()]) return;  // in two groups
      seen[device.index()] = true;
    }
    groups.push_back(std::move(own));
  }
  degrees.pp = std::ssize(groups);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (group_of[s] != s % groups.size()) return;
  }
  if (stages.size() % groups.size() == 0) {
    degrees.vp = static_cast<std::int64_t>(stages.size() / groups.size());
  }
}

std::optional<PipelineSchedule> schedule_of(const Schedule& schedule, const Degrees& degrees) {
  if (degrees.pp.value_or(1) == 1 || !degrees.vp) return std::nullopt;
  // One micro-batch has the same order in all; then it is called the default.
  std::vector<PipelineSchedule> kinds{PipelineSchedule::one_f_one_b};
  for (const std::string_view word : spellings_of<PipelineSchedule>()) {
    kinds.push_back(*from_text<PipelineSchedule>(word));
  }
  for (const PipelineSchedule kind : kinds) {
    if (*degrees.vp > 1 && kind == PipelineSchedule::gpipe) continue;
    const bool same = std::all_of(
        schedule.rank_lists.begin(), schedule.rank_lists.end(), [&](const RankList& list) {
          if (list.slots.empty()) return true;
          std::int32_t first = list.slots.front().stage;
          for (const Slot& slot : list.slots) first = std::min(first, slot.stage);
          return list.slots == device_slots(kind, first, static_cast<std::int32_t>(*degrees.pp),
                                            static_cast<std::int32_t>(*degrees.vp),
                                            schedule.micro_batches);
        });
    if (same) return kind;
  }
  return std::nullopt;
}

/// Which rule marks just what the plan recomputes.
std::optional<Recompute> recompute_of(const Network& network, const Plan& plan) {
  const auto drops = [](const LayerPlan& layer) { return layer.recompute; };
  if (std::none_of(plan.layers.begin(), plan.layers.end(), drops)) return Recompute::none;
  for (const Recompute rule : {Recompute::selective, Recompute::pointwise, Recompute::op,
                               Recompute::full, Recompute::optimal}) {
    Plan marked = plan;
    recompute(network, rule, marked);
    if (marked.layers == plan.layers) return rule;
  }
  return std::nullopt;
}

}  // namespace

std::vector<StageSummary> stages_of(const Network& network, const Plan& plan) {
  std::vector<StageSummary> stages;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const auto stage = static_cast<std::size_t>(plan.schedule.stage_of_layer[l]);
    if (stage >= stages.size()) stages.resize(stage + 1);
    stages[stage].layers.emplace_back(l);
  }
  const std::vector<std::int64_t> blocks = blocks_of(network);
  const auto count = std::ssize(first_layers_of_blocks(network));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    StageSummary& stage = stages[s];
    std::vector<bool> seen;  // by device
    const LayerPlan* before = nullptr;
    for (const LayerId id : stage.layers) {
      const LayerPlan& layer = plan.layers[id.index()];
      if (before != nullptr && same_cells(*before, layer)) continue;
      before = &layer;
      for (const Cell& cell : cells(network, id, layer, samples_of(plan))) {
        if (seen.size() <= cell.device.index()) seen.resize(cell.device.index() + 1);
        if (seen[cell.device.index()]) continue;
        seen[cell.device.index()] = true;
        stage.devices.push_back(cell.device);
      }
    }
    if (count > 0) stage.blocks = blocks_of_stage(blocks, count, s, plan.schedule.stage_of_layer);
    if (const auto replicas = replicas_of(network, plan, stage.layers)) {
      find_degrees(*replicas, token_parts(network, plan, stage.layers), stage);
      std::set<std::int64_t> sizes;
      for (const auto& [device, samples] : *replicas) sizes.insert(samples.size());
      if (sizes.size() == 1) stage.micro_batch = *sizes.begin();
    }
    stage.sequence_parallel =
        stage.tp.value_or(1) > 1 &&
        std::any_of(stage.layers.begin(), stage.layers.end(), [&](LayerId id) {
          return static_cast<std::int64_t>(parts_along(plan.layers[id.index()], Dim::token)) >
                 stage.cp.value_or(1);
        });
  }
  return stages;
}

Degrees degrees_of(const Network& network, const Plan& plan) {
  return degrees_of(network, plan, stages_of(network, plan));
}

Degrees degrees_of(const Network& network, const Plan& plan,
                   const std::vector<StageSummary>& stages) {
  Degrees degrees;
  degrees.micro_batches = plan.schedule.micro_batches;
  degrees.tp = common(stages, &StageSummary::tp);
  degrees.dp = common(stages, &StageSummary::dp);
  degrees.cp = common(stages, &StageSummary::cp);
  find_pipeline(stages, degrees);
  degrees.schedule = schedule_of(plan.schedule, degrees);
  degrees.ordered_by_time =
      plan.schedule.split_backward && degrees.pp.value_or(1) > 1 && !degrees.schedule;
  degrees.recompute = recompute_of(network, plan);
  degrees.bucket = bucket_size_of(network, plan);
  const ZeroSharding& zero = plan.layers.front().zero;
  const auto has = [&](auto member) {
    return std::all_of(plan.layers.begin(), plan.layers.end(),
                       [&](const LayerPlan& layer) { return layer.zero.*member == zero.*member; });
  };
  if (has(&ZeroSharding::stage)) degrees.zero = zero.stage;
  const bool shards = degrees.zero.value_or(0) > 0;
  if (shards && !zero.group.all() && has(&ZeroSharding::group)) degrees.zero_group = zero.group;
  if (std::all_of(stages.begin(), stages.end(), [](const auto& stage) { return stage.tp; })) {
    degrees.sequence_parallel =
        std::any_of(stages.begin(), stages.end(),
                    [](const StageSummary& stage) { return stage.sequence_parallel; });
    degrees.tensor_overlap = std::any_of(plan.layers.begin(), plan.layers.end(),
                                         [](const LayerPlan& layer) { return layer.overlap; });
  }
  if (!degrees.tp || !degrees.dp) return degrees;
  degrees.micro_batch = common(stages, &StageSummary::micro_batch);
  degrees.ep = 1;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (network.layers[l].kind.as<ExpertDense>() == nullptr) continue;
    const auto parts = [&](Dim dim) {
      return static_cast<std::int64_t>(parts_along(plan.layers[l], dim));
    };
    degrees.ep = std::max(*degrees.ep, parts(Dim::expert));
    degrees.etp = std::max(degrees.etp.value_or(1), parts(Dim::channel) * parts(Dim::in_channel));
  }
  return degrees;
}

std::optional<std::string> zero_group_text(const Degrees& degrees) {
  if (!degrees.zero_group) return std::nullopt;
  return degrees.zero_group->node ? "node" : std::to_string(degrees.zero_group->ranks);
}

std::string short_text(const Degrees& degrees) {
  std::vector<std::string> parts;
  const auto add = [&](std::string_view name, const std::optional<std::int64_t>& number) {
    if (number) parts.push_back(fmt::format("{} {}", name, *number));
  };
  if (degrees.tp && degrees.dp) {
    add("tp", degrees.tp);
    if (degrees.cp.value_or(1) > 1) add("cp", degrees.cp);
    add("pp", degrees.pp);
    add("dp", degrees.dp);
  } else {
    if (degrees.pp.value_or(1) > 1) add("pp", degrees.pp);
    parts.emplace_back("mixed");
  }
  std::string text = join(parts, " x ");
  if (degrees.ep.value_or(1) > 1) text += fmt::format(", ep {}", *degrees.ep);
  if (degrees.etp && degrees.etp != degrees.tp) text += fmt::format(", etp {}", *degrees.etp);
  if (degrees.micro_batches > 1) text += fmt::format(", mb {}", degrees.micro_batches);
  if (degrees.vp.value_or(1) > 1) text += fmt::format(", vp {}", *degrees.vp);
  if (degrees.zero.value_or(0) > 0) text += fmt::format(", zero {}", *degrees.zero);
  if (const auto group = zero_group_text(degrees)) text += " by " + *group;
  if (degrees.recompute.value_or(Recompute::none) != Recompute::none) {
    text += fmt::format(", recompute {}", to_text(*degrees.recompute));
  }
  if (degrees.bucket) text += ", bucket " + bucket_text(*degrees.bucket);
  return text;
}

std::string plan_id(const Network& network, const Plan& plan) {
  std::uint64_t hash = hash_combine(
      fnv1a(plan.network), fnv1a(plan.cluster), plan.batch, static_cast<int>(plan.precision),
      static_cast<int>(plan.reduce_precision), static_cast<int>(plan.optimizer),
      plan.schedule.micro_batches,
      (plan.schedule.blocking_sends ? 1 : 0) + 2 * static_cast<int>(plan.schedule.reduce_every) +
          (plan.schedule.late_gathers ? 8 : 0));
  const auto append = [&](auto... values) { hash = hash_combine(hash, values...); };
  // Of layers of one shape that are alike once.
  std::map<std::vector<std::int64_t>, std::pair<const LayerPlan*, std::uint64_t>> known;
  const auto cells_of = [&](LayerId id, const LayerPlan& layer) {
    std::vector<std::int64_t> shape;
    for (const Axis& axis : network[id].out.axes)
      shape.insert(shape.end(), {static_cast<std::int64_t>(axis.dim), axis.extent});
    const auto [at, fresh] = known.try_emplace(std::move(shape), nullptr, 0);
    auto& [same, of_cells] = at->second;
    if (same != nullptr && same_cells(*same, layer)) return of_cells;
    same = &layer;
    of_cells = 0;
    std::vector<Cell> own = cells(network, id, layer, samples_of(plan));
    const auto before = [](const Cell& a, const Cell& b) {
      return a.device != b.device ? a.device < b.device : a.part.out < b.part.out;
    };
    // Cells are large, and mostly in order.
    if (!std::is_sorted(own.begin(), own.end(), before))
      std::stable_sort(own.begin(), own.end(), before);
    const auto add = [&](auto... values) { of_cells = hash_combine(of_cells, values...); };
    for (const Cell& cell : own) {
      add(cell.device.value, cell.part.contraction.begin, cell.part.contraction.end);
      for (std::size_t axis = 0; axis < cell.part.out.rank(); ++axis)
        add(cell.part.out[axis].begin, cell.part.out[axis].end);
    }
    return of_cells;
  };
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const LayerPlan& layer = plan.layers[l];
    append(layer.recompute ? 1 : 0, layer.regather ? 1 : 0, static_cast<int>(layer.sync.kind),
           layer.sync.server.value, plan.schedule.stage_of_layer[l]);
    if (layer.zigzag > 0 || layer.ring) append(layer.zigzag, layer.ring ? 1 : 0);
    if (layer.overlap) append(-1);
    if (layer.apart) append(-2);
    if (layer.token_parts > 0) append(-3, layer.token_parts);
    append(layer.zero.stage, layer.zero.group.ranks, layer.zero.group.node ? 1 : 0);
    for (const std::int64_t share : layer.zero.shares) append(share);
    append(cells_of(LayerId{l}, layer));
  }
  std::map<DeviceId, const RankList*> order;
  for (const RankList& list : plan.schedule.rank_lists) {
    for (const DeviceId device : list.devices) order.emplace(device, &list);
  }
  for (const auto& [device, list] : order) {
    append(device.value);
    for (const Slot& slot : list->slots) {
      append(slot.stage, slot.micro_batch, static_cast<int>(slot.direction));
    }
  }
  for (const std::vector<ParameterId>& bucket : plan.buckets) {
    append(bucket.size());
    for (const ParameterId id : bucket) append(id.value);
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace parsim::strategies
