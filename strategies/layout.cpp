#include "strategies/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "lowering/gradient_flow.hpp"
#include "strategies/buckets.hpp"
#include "strategies/experts.hpp"
#include "strategies/group_splits.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/context.hpp"
#include "strategies/tensor/split.hpp"

namespace parsim::strategies {

namespace {

using DeviceGroup = std::vector<DeviceId>;

[[noreturn]] void refuse(std::size_t stage, const std::string& found, const std::string& accepted) {
  throw InputError(fmt::format("layout: stage {}", stage), found, accepted);
}

class LayoutPlanner {
 public:
  LayoutPlanner(const StrategyInput& input, const Layout& layout)
      : input_(input),
        layout_(layout),
        micro_batches_(input.micro_batches.value_or(1)),
        pipeline_(layout.stages.size() / static_cast<std::size_t>(layout.chunks)),
        context_(static_cast<std::size_t>(input.context_parallel.value_or(1))),
        splits_(input) {}

  Plan run() {
    expect_whole_micro_batches(input_.batch, micro_batches_, "layout");
    check();
    tensor::expect_context(input_);
    Plan plan = empty_plan(input_, "layout", {});
    plan.schedule.micro_batches = micro_batches_;
    plan.schedule.rank_lists.clear();
    plan.schedule.split_backward = splits_backward(input_.schedule_or_default(), pipeline_);
    const std::vector<std::vector<std::int64_t>> shares = all_shares();
    const auto stages = static_cast<std::int32_t>(layout_.stages.size());
    for (std::int32_t s = 0; s < stages; ++s) {
      const auto stage = static_cast<std::size_t>(s);
      const std::vector<DeviceGroup>& groups = layout_.stages[stage].groups;
      if (context_ > 1) {
        tensor::divide_tokens(input_, {layout_.stages[stage].first, end_of(stage)}, groups,
                              shares[stage], fmt::format("layout: stage {}", s), plan.layers);
      } else {
        const std::vector<tensor::DeviceUnits> units = units_of(stage);
        const std::vector<GroupCuts>& cuts = splits_.of({units.begin(), units.end()});
        for (std::size_t l = layout_.stages[stage].first; l < end_of(stage); ++l)
          plan.layers[l] = layer_plan(LayerId{l}, groups, units, shares[stage], cuts[l]);
      }
      for (std::size_t l = layout_.stages[stage].first; l < end_of(stage); ++l)
        plan.schedule.stage_of_layer[l] = s;
      if (stage < pipeline_) {
        RankList list{
            {},
            device_slots(input_.schedule_or_default(), s, static_cast<std::int32_t>(pipeline_),
                         layout_.chunks, micro_batches_)};
        for (const DeviceGroup& group : groups) {
          list.devices.insert(list.devices.end(), group.begin(), group.end());
        }
        plan.schedule.rank_lists.push_back(std::move(list));
      }
      note_idle_replicas(plan, stage, shares[stage]);
    }
    plan.notes.insert(plan.notes.end(), splits_.notes().begin(), splits_.notes().end());
    note_unused_gpus(plan);
    divide_experts(plan);
    overlap_products(input_, plan);
    note_sequence_parallel(input_, plan);
    plan.buckets = gradient_buckets(input_);
    return plan;
  }

 private:
  [[nodiscard]] std::size_t end_of(std::size_t stage) const {
    return stage + 1 < layout_.stages.size() ? layout_.stages[stage + 1].first
                                             : input_.network.layers.size();
  }
  [[nodiscard]] std::int64_t samples() const { return input_.batch / micro_batches_; }

  void check() const {
    if (layout_.stages.empty()) {
      throw InputError("layout", "no stage", "one stage or more");
    }
    check_chunks();
    std::set<DeviceId> seen;
    for (std::size_t s = 0; s < layout_.stages.size(); ++s) {
      const LayoutStage& stage = layout_.stages[s];
      if (stage.first >= end_of(s) || (s == 0 && stage.first != 0)) {
        refuse(s, fmt::format("begins with layer {}", stage.first),
               "stages in the order of the network, the first from its first layer on");
      }
      if (stage.groups.empty()) refuse(s, "no groups", "one group or more");
      check_samples(s);
      check_parts(s);
      if (s >= pipeline_) continue;  // the devices of an earlier stage
      for (const DeviceGroup& group : stage.groups) {
        if (group.empty()) refuse(s, "a group without devices", "one device or more");
        for (const DeviceId device : group) {
          if (!device.valid() || device.index() >= input_.cluster.devices.size()) {
            refuse(s, fmt::format("device {}", device.value), "a device of the cluster");
          }
          if (!seen.insert(device).second) {
            refuse(s, fmt::format("device '{}' a second time", input_.cluster[device].name),
                   "each device in one group");
          }
        }
      }
    }
  }

  void check_chunks() const {
    const std::size_t stages = layout_.stages.size();
    if (stages % static_cast<std::size_t>(layout_.chunks) != 0) {
      throw InputError("layout", fmt::format("{} stages in chunks of {}", stages, layout_.chunks),
                       fmt::format("a multiple of {} stages", layout_.chunks));
    }
    StrategyInput interleaved = input_;
    interleaved.virtual_pipeline = layout_.chunks;
    interleaved.micro_batches = micro_batches_;
    expect_interleavable(interleaved, static_cast<std::int32_t>(pipeline_), "layout");
    for (std::size_t s = pipeline_; s < stages; ++s) {
      if (layout_.stages[s].groups == layout_.stages[s - pipeline_].groups) continue;
      refuse(s, fmt::format("other groups than stage {}", s - pipeline_),
             fmt::format("the same: {} a device", counted(layout_.chunks, "model chunk")));
    }
  }

  void check_samples(std::size_t s) const {
    const LayoutStage& stage = layout_.stages[s];
    if (stage.samples.empty()) return;
    if (stage.samples.size() != stage.groups.size()) {
      refuse(
          s,
          fmt::format("samples of {} for {} replicas", stage.samples.size(), stage.groups.size()),
          "one number for each group");
    }
    std::int64_t sum = 0;
    for (const std::int64_t share : stage.samples) {
      if (share < 0) refuse(s, fmt::format("{} samples", share), "none or more");
      sum += share;
    }
    if (sum != samples()) {
      refuse(s, fmt::format("{} samples of a micro-batch", sum),
             fmt::format("{}: a batch of {} in {}", samples(), input_.batch,
                         counted(micro_batches_, "micro-batch")));
    }
  }

  void check_parts(std::size_t s) const {
    const LayoutStage& stage = layout_.stages[s];
    if (stage.parts.empty()) return;
    if (stage.parts.size() != stage.groups.size()) {
      refuse(s, fmt::format("parts of {} for {} replicas", stage.parts.size(), stage.groups.size()),
             "a list for each group");
    }
    bool unequal = false;
    for (std::size_t g = 0; g < stage.parts.size(); ++g) {
      const tensor::DeviceUnits& parts = stage.parts[g];
      const bool whole =
          std::all_of(parts.begin(), parts.end(), [](std::int64_t part) { return part > 0; });
      if (parts.size() != stage.groups[g].size() || !whole) {
        refuse(s,
               fmt::format("parts {} of {}", fmt::join(parts, ", "),
                           counted(std::ssize(stage.groups[g]), "device")),
               "a number of 1 or more for each device");
      }
      unequal = unequal || !tensor::are_equal(parts);
    }
    const bool alone = context_ == 1 && !input_.tensor_overlap &&
                       input_.expert_parallel.value_or(1) == 1 &&
                       input_.expert_tensor_parallel != 1;
    if (unequal && !alone) {
      refuse(s, "unequal parts", "without --cp, --tp-overlap, --ep and --etp 1");
    }
  }

  /// By group. Equal parts are ones.
  [[nodiscard]] std::vector<tensor::DeviceUnits> units_of(std::size_t s) const {
    const LayoutStage& stage = layout_.stages[s];
    std::vector<tensor::DeviceUnits> units;
    for (std::size_t g = 0; g < stage.groups.size(); ++g) {
      const bool given = !stage.parts.empty() && !tensor::are_equal(stage.parts[g]);
      units.push_back(given ? stage.parts[g] : tensor::DeviceUnits(stage.groups[g].size(), 1));
    }
    return units;
  }

  static std::set<std::size_t> sizes_of(const std::vector<DeviceGroup>& groups) {
    std::set<std::size_t> sizes;
    for (const DeviceGroup& group : groups) sizes.insert(group.size());
    return sizes;
  }

  [[nodiscard]] LayerPlan layer_plan(LayerId id, const std::vector<DeviceGroup>& groups,
                                     const std::vector<tensor::DeviceUnits>& units,
                                     const std::vector<std::int64_t>& shares,
                                     const GroupCuts& cuts) const {
    LayerPlan layer;
    layer.sync = chosen_sync(input_);
    layer.joined = std::set(units.begin(), units.end()).size() > 1;
    layer.regather =
        input_.sequence_parallel && cuts.dim == Dim::token && !is_in_mixture(input_.network[id]);
    if (groups.size() > 1) layer.cuts.push_back({Dim::sample, shares});
    if (cuts.sizes.empty()) {
      for (const DeviceGroup& group : groups) layer.devices.push_back(group[0]);
      return layer;
    }
    layer.cuts.push_back(cuts.finest());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (const std::size_t member : cuts.members(units[g])) {
        layer.devices.push_back(groups[g][member]);
      }
    }
    return layer;
  }

  /// Seconds that a group takes for a stage's layers, its slowest device, without what it
  /// exchanges.
  double time_of(std::size_t stage, std::size_t replica, std::int64_t samples) {
    const DeviceGroup& group = layout_.stages[stage].groups[replica];
    const tensor::DeviceUnits units = units_of(stage)[replica];
    const std::vector<GroupCuts>& cuts = splits_.of({units});
    std::map<std::pair<std::int32_t, std::int64_t>, std::size_t> kinds;
    for (std::size_t d = 0; d < group.size(); ++d) {
      kinds.try_emplace({input_.cluster[group[d]].model, units[d]}, d);
    }
    double slowest = 0;
    for (const auto& [kind, d] : kinds) {
      double time = 0;
      for (std::size_t l = layout_.stages[stage].first; l < end_of(stage); ++l) {
        const LayerPlan plan = layer_plan(LayerId{l}, {group}, {units}, {samples}, cuts[l]);
        const std::vector<Cell> parts = cells(input_.network, LayerId{l}, plan, samples);
        // Of equal parts the first is the largest.
        const std::size_t part = tensor::are_equal(units) ? 0 : d;
        if (part < parts.size())
          time += layer_time(input_, flow_, LayerId{l}, parts[part].part, group[d]).count();
      }
      slowest = std::max(slowest, time);
    }
    return slowest;
  }

  /// Replicas of all given stages, each stage's r-th the same pipeline: by the slowest of them.
  std::vector<std::int64_t> by_speed(const std::vector<std::size_t>& stages) {
    std::map<std::vector<std::int64_t>, std::size_t> known;
    std::vector<std::size_t> kinds, like;
    for (std::size_t r = 0; r < layout_.stages[stages[0]].groups.size(); ++r) {
      std::vector<std::int64_t> signature;
      for (const std::size_t s : stages) {
        const tensor::DeviceUnits units = units_of(s)[r];
        signature.insert(signature.end(), units.begin(), units.end());
        for (const DeviceId device : layout_.stages[s].groups[r]) {
          signature.push_back(input_.cluster[device].model);
        }
        signature.push_back(-1);
      }
      const auto [at, fresh] = known.try_emplace(std::move(signature), known.size());
      if (fresh) like.push_back(r);
      kinds.push_back(at->second);
    }
    if (known.size() == 1) return even_split(samples(), kinds.size());
    return finish_together(samples(), kinds, [&](std::size_t kind, std::int64_t units) {
      double slowest = 0;
      for (const std::size_t s : stages) {
        slowest = std::max(slowest, time_of(s, like[kind], units));
      }
      return Seconds{slowest};
    });
  }

  std::vector<std::vector<std::int64_t>> all_shares() {
    std::map<std::size_t, std::vector<std::size_t>> stages_of;  // by number of replicas
    for (std::size_t s = 0; s < layout_.stages.size(); ++s) {
      if (layout_.stages[s].samples.empty()) {
        stages_of[layout_.stages[s].groups.size()].push_back(s);
      }
    }
    std::vector<std::vector<std::int64_t>> shares;
    for (const LayoutStage& stage : layout_.stages) shares.push_back(stage.samples);
    for (const auto& [replicas, stages] : stages_of) {
      const std::vector<std::int64_t> share = input_.shares == ShareRule::proportional
                                                  ? by_speed(stages)
                                                  : even_split(samples(), replicas);
      for (const std::size_t s : stages) shares[s] = share;
    }
    return shares;
  }

  /// Which degrees of expert parallelism are accepted.
  [[nodiscard]] std::string expert_groups(bool whole) const {
    if (whole) {
      return "with --etp 1, --ep divides the groups, or is that of several; all groups have one "
             "size";
    }
    if (context_ > 1)
      return "--ep divides --cp, or is a multiple of it that divides the replicas times --cp";
    return "--ep divides the replicas, which have groups of one size";
  }

  void divide_experts(Plan& plan) const {
    const auto ways = static_cast<std::size_t>(input_.expert_parallel.value_or(1));
    expect_experts(input_);
    const std::size_t first = layout_.stages[0].groups[0].size() / context_;
    const bool whole = whole_experts(input_, first);
    for (std::size_t s = 0; s < layout_.stages.size(); ++s) {
      const std::vector<DeviceGroup>& groups = layout_.stages[s].groups;
      const std::size_t size = groups[0].size() / context_;
      if (!splits_experts_as_asked(input_, size, context_)) {
        refuse(s,
               fmt::format("experts split by {} of {}", *input_.expert_tensor_parallel,
                           counted(size, "device")),
               "--etp is the size of the groups, or 1 if each device has slots of every expert");
      }
      if (ways < 2) continue;
      const bool alike = sizes_of(groups).size() == 1 && (!whole || size == first);
      if (alike && !expert_degrees(input_, groups.size(), size, context_).empty()) continue;
      refuse(s,
             fmt::format("experts divided among {} of {} replicas{}", ways, groups.size(),
                         context_ > 1 ? fmt::format(" with --cp {}", context_) : ""),
             expert_groups(whole));
    }
    strategies::divide_experts(input_.network, ways,
                               token_parts_of_experts(input_, first, context_), plan);
  }

  void note_idle_replicas(Plan& plan, std::size_t stage,
                          const std::vector<std::int64_t>& shares) const {
    const auto idle = std::count(shares.begin(), shares.end(), 0);
    if (idle == 0) return;
    const std::string all = counted(samples(), "sample");
    std::string why = fmt::format("of {} in a micro-batch, shared by speed, they get none", all);
    if (!layout_.stages[stage].samples.empty()) {
      why = fmt::format("samples = [{}] in the layout", fmt::join(shares, ", "));
    } else if (samples() < static_cast<std::int64_t>(shares.size())) {
      why = fmt::format("a micro-batch has only {}", all);
    }
    plan.notes.push_back(fmt::format("stage {}: {} of {} replicas {} idle: {}", stage, idle,
                                     shares.size(), idle == 1 ? "is" : "are", why));
  }

  void note_unused_gpus(Plan& plan) const {
    std::set<DeviceId> used;
    for (const LayoutStage& stage : layout_.stages) {
      for (const DeviceGroup& group : stage.groups) used.insert(group.begin(), group.end());
    }
    const std::vector<DeviceId> gpus = devices_of(input_.cluster, DeviceKind::gpu);
    const auto idle =
        std::count_if(gpus.begin(), gpus.end(), [&](DeviceId gpu) { return !used.contains(gpu); });
    if (idle == 0) return;
    plan.notes.push_back(
        fmt::format("{} of {} GPUs idle: in no group of the layout", idle, gpus.size()));
  }

  const StrategyInput& input_;
  const lowering::GradientFlow flow_ = lowering::gradient_flow(input_.network);
  const Layout& layout_;
  std::int32_t micro_batches_;
  std::size_t pipeline_;  ///< stages on different devices
  std::size_t context_;   ///< parts of the tokens
  GroupSplits splits_;
};

}  // namespace

Layout even_layout(const std::vector<std::size_t>& first, std::size_t tensor, std::size_t data,
                   const std::vector<DeviceId>& devices, std::int32_t chunks) {
  const std::size_t pipeline = first.size() / static_cast<std::size_t>(chunks);
  ensure(devices.size() == pipeline * tensor * data, "a layout has its devices");
  Layout layout;
  layout.chunks = chunks;
  auto next = devices.begin();
  for (const std::size_t layer : first) {
    if (layout.stages.size() % pipeline == 0) next = devices.begin();
    LayoutStage& stage = layout.stages.emplace_back(LayoutStage{layer, {}, {}});
    for (std::size_t r = 0; r < data; ++r) {
      const auto end = next + static_cast<std::ptrdiff_t>(tensor);
      stage.groups.emplace_back(next, end);
      next = end;
    }
  }
  return layout;
}

Plan plan_layout(const StrategyInput& input, const Layout& layout) {
  return LayoutPlanner(input, layout).run();
}

}  // namespace parsim::strategies
