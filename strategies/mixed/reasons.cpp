#include "strategies/mixed/reasons.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/degrees.hpp"
#include "strategies/mixed/layouts.hpp"
#include "strategies/tensor/split.hpp"

namespace parsim::strategies::mixed {

namespace {

/// The groups and samples of a stage's layer that has the most devices. False if replicas overlap
/// or a group has devices of several classes.
bool read_groups(const StrategyInput& input, const std::vector<DeviceClass>& classes,
                 const Plan& plan, LayerId id, LayoutStage& stage) {
  std::map<Interval, std::set<DeviceId>> groups;
  const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
  for (const Cell& cell : cells(input.network, id, plan.layers[id.index()], samples)) {
    groups[cell.part.out[0]].insert(cell.device);
  }
  std::int64_t end = 0;
  for (const auto& [interval, devices] : groups) {
    if (interval.begin != end) return false;
    end = interval.end;
    const std::size_t of_class = class_of(classes, *devices.begin());
    const auto other = [&](DeviceId device) { return class_of(classes, device) != of_class; };
    if (std::any_of(devices.begin(), devices.end(), other)) return false;
    stage.groups.emplace_back(devices.begin(), devices.end());
    stage.samples.push_back(interval.size());
  }
  return true;
}

class Reasons {
 public:
  Reasons(const StrategyInput& input, const std::vector<DeviceClass>& classes, StageCosts& costs,
          const Layout& layout, const Plan& plan)
      : input_(input),
        classes_(classes),
        costs_(costs),
        layout_(layout),
        micro_batches_(plan.schedule.micro_batches),
        kept_(layout.stages.size()) {
    for (const RankList& list : plan.schedule.rank_lists) {
      if (list.slots.empty()) continue;
      kept_[static_cast<std::size_t>(list.slots.front().stage)] =
          most_in_flight(list, plan.schedule.split_backward);
    }
    for (std::size_t s = 0; s < layout.stages.size(); ++s) {
      shapes_.push_back(shape_of(classes, layout.stages[s]));
      slowest_ = std::max(slowest_, time(shapes_[s], block(s), block(s + 1)));
    }
  }

  std::vector<std::string> all() {
    std::vector<std::string> lines;
    for (std::size_t s = 0; s < shapes_.size(); ++s) lines.push_back(line(s));
    return lines;
  }

  /// See idle_class. `samples`: of a micro-batch.
  IdleClass of_idle(std::size_t of_class, std::size_t free, std::int64_t samples) {
    constexpr double unknown = std::numeric_limits<double>::infinity();
    double least_time = unknown, least_send = unknown;
    Member fastest{of_class};
    Bytes least_need{std::numeric_limits<std::int64_t>::max()};
    const Bytes room = usable({of_class});
    const std::size_t most = std::min(free, classes_[of_class].of_machine());
    for (std::size_t tensor = 1; tensor <= most; tensor *= 2) {
      const std::size_t count = std::min(free / tensor, static_cast<std::size_t>(samples));
      const StageShape shape{{{of_class, tensor, count, even_split(samples, count)}}};
      const std::vector<double> times = costs_.times(shape);
      for (std::size_t b = 0; b < costs_.blocks(); ++b) {
        const StageCosts::Need need =
            costs_.need(shape, shape.members[0], b, b + 1, micro_batches_);
        const Bytes needed{static_cast<std::int64_t>(need.once + need.each)};
        least_need = std::min(least_need, needed);
        if (needed > room) continue;
        const double time = times[b * (costs_.blocks() + 1) + b + 1];
        if (time >= least_time) continue;
        least_time = time;
        fastest = shape.members[0];
      }
      for (std::size_t s = 0; s < shapes_.size(); ++s) {
        const std::size_t first = std::max<std::size_t>(1, block(s));
        least_send = std::min(least_send, costs_.send(shapes_[s], shape, first).time);
      }
    }
    const std::string slowest = to_text(Seconds{slowest_});
    if (least_need > room) {
      return {
          fmt::format("a block needs at least {} of {} there", to_text(least_need), to_text(room)),
          {}};
    }
    if (least_time > slowest_) {
      return {fmt::format("a block takes at least {} for a micro-batch there, the slowest stage {}",
                          to_text(Seconds{least_time}), slowest),
              {}};
    }
    if (least_send > slowest_) {
      return {fmt::format("handing a micro-batch over to them takes at least {}, the slowest stage "
                          "{}",
                          to_text(Seconds{least_send}), slowest),
              {}};
    }
    return {"", fastest};
  }

 private:
  [[nodiscard]] std::size_t block(std::size_t stage) const {
    if (stage == layout_.stages.size()) return costs_.blocks();
    const std::vector<std::size_t>& first = costs_.first_layers();
    return static_cast<std::size_t>(
        std::lower_bound(first.begin(), first.end(), layout_.stages[stage].first) - first.begin());
  }
  [[nodiscard]] std::string model(const Member& member) const {
    return input_.cluster.model(classes_[member.of_class].machines[0][0]).name;
  }
  double time(const StageShape& shape, std::size_t begin, std::size_t end) {
    return costs_.times(shape)[begin * (costs_.blocks() + 1) + end];
  }
  [[nodiscard]] Bytes usable(const Member& member) const {
    return input_.usable_memory(classes_[member.of_class].machines[0][0]);
  }
  /// Of the stage's place in the pipeline.
  Bytes memory(const StageShape& shape, const Member& member, std::size_t stage, std::size_t begin,
               std::size_t end) {
    const StageCosts::Need need = costs_.need(shape, member, begin, end, micro_batches_);
    return Bytes{static_cast<std::int64_t>(need.once + need.each * kept_[stage])};
  }
  /// "12.1 GiB of 14.1 GiB" if that is too much, else the time, with that of handing a micro-batch
  /// over where it is longer.
  std::string outcome(const StageShape& shape, std::size_t stage, std::size_t begin,
                      std::size_t end) {
    for (const Member& member : shape.members) {
      const Bytes needed = memory(shape, member, stage, begin, end);
      if (needed > usable(member)) {
        return fmt::format("{} of {}", to_text(needed), to_text(usable(member)));
      }
    }
    const double load = time(shape, begin, end);
    double handed = 0;
    if (stage > 0) handed = costs_.send(shapes_[stage - 1], shape, begin).time;
    if (end < costs_.blocks() && stage + 1 < shapes_.size()) {
      handed = std::max(handed, costs_.send(shape, shapes_[stage + 1], end).time);
    }
    if (handed <= load) return to_text(Seconds{load});
    return fmt::format("{}, but {} to hand over", to_text(Seconds{load}), to_text(Seconds{handed}));
  }
  /// The same samples by so many groups.
  static std::optional<Member> regrouped(const Member& member, std::size_t of_class,
                                         std::size_t tensor, std::size_t count) {
    const std::int64_t samples =
        std::accumulate(member.samples.begin(), member.samples.end(), std::int64_t{0});
    if (count == 0 || static_cast<std::int64_t>(count) > samples) return std::nullopt;
    return Member{of_class, tensor, count, even_split(samples, count)};
  }

  std::string line(std::size_t s) {
    const StageShape& shape = shapes_[s];
    const std::size_t begin = block(s), end = block(s + 1);
    std::vector<std::string> devices, memories, others;
    for (const Member& member : shape.members) {
      devices.push_back(fmt::format("{} {}, tp {} x dp {}", member.devices(), model(member),
                                    member.tensor, member.count));
      memories.push_back(fmt::format("{} of {}", to_text(memory(shape, member, s, begin, end)),
                                     to_text(usable(member))));
    }
    const auto add = [&](const std::string& what, const StageShape& other, std::size_t to) {
      others.push_back(fmt::format("{}: {}", what, outcome(other, s, begin, to)));
    };
    if (end < costs_.blocks()) add("one block more", shape, end + 1);
    if (shape.members.size() == 1) {
      const Member& own = shape.members[0];
      const auto degrees = [&](std::size_t tensor, std::size_t count) {
        if (const auto other = regrouped(own, own.of_class, tensor, count)) {
          add(fmt::format("tp {} x dp {}", tensor, count), {{*other}}, end);
        }
      };
      if (own.tensor % 2 == 0) degrees(own.tensor / 2, 2 * own.count);
      const bool within = 2 * own.tensor <= classes_[own.of_class].of_machine();
      if (within && own.count % 2 == 0) degrees(2 * own.tensor, own.count / 2);
      for (std::size_t c = 0; c < classes_.size(); ++c) {
        const bool enough =
            classes_[c].size() >= own.devices() && classes_[c].of_machine() >= own.tensor;
        if (c == own.of_class || !enough) continue;
        const Member other{c, own.tensor, own.count, own.samples};
        add(fmt::format("on as many {}", model(other)), {{other}}, end);
      }
    }
    return fmt::format(
        "stage {}: {} on {}: {}, {} of the slowest stage's {} for a micro-batch{}", s,
        end - begin == 1 ? fmt::format("block {}", begin)
                         : fmt::format("blocks {}-{}", begin, end - 1),
        join(devices, " and "), join(memories), to_text(Seconds{time(shape, begin, end)}),
        to_text(Seconds{slowest_}), others.empty() ? "" : "; " + join(others));
  }

  const StrategyInput& input_;
  const std::vector<DeviceClass>& classes_;
  StageCosts& costs_;
  const Layout& layout_;
  std::int32_t micro_batches_;
  std::vector<std::int32_t> kept_;  ///< micro-batches in flight, by stage
  std::vector<StageShape> shapes_;
  double slowest_ = 0;
};

}  // namespace

std::optional<Layout> layout_of_plan(const StrategyInput& input,
                                     const std::vector<DeviceClass>& classes, const Plan& plan) {
  Layout layout;
  std::set<DeviceId> seen;
  std::int64_t block = 0;
  for (const StageSummary& summary : stages_of(input.network, plan)) {
    if (!summary.blocks || summary.blocks->size() != 1 || summary.blocks->front().begin != block) {
      return std::nullopt;
    }
    block = summary.blocks->front().end;
    LayoutStage& stage = layout.stages.emplace_back();
    stage.first = summary.layers.front().index();
    const auto spread = [&](LayerId id) {
      const std::vector<DeviceId>& devices = plan.layers[id.index()].devices;
      return std::set<DeviceId>(devices.begin(), devices.end()).size();
    };
    const LayerId widest =
        *std::max_element(summary.layers.begin(), summary.layers.end(),
                          [&](LayerId a, LayerId b) { return spread(a) < spread(b); });
    if (!read_groups(input, classes, plan, widest, stage)) return std::nullopt;
    for (const std::vector<DeviceId>& group : stage.groups) {
      for (const DeviceId device : group) {
        if (!seen.insert(device).second) return std::nullopt;  // of two stages
      }
    }
  }
  return layout;
}

StrategyInput as_planned_in(StrategyInput input, const Plan& plan) {
  const Degrees degrees = degrees_of(input.network, plan);
  input.zero_stage = plan.layers[0].zero.stage;
  input.zero_group = plan.layers[0].zero.group;
  input.recompute = degrees.recompute;
  input.schedule = degrees.schedule;
  input.sequence_parallel = degrees.sequence_parallel.value_or(false);
  input.tensor_overlap = degrees.tensor_overlap.value_or(false);
  return input;
}

std::vector<std::string> stage_reasons(const StrategyInput& input,
                                       const std::vector<DeviceClass>& classes, StageCosts& costs,
                                       const Layout& layout, const Plan& plan) {
  return Reasons(input, classes, costs, layout, plan).all();
}

IdleClass idle_class(const StrategyInput& input, const std::vector<DeviceClass>& classes,
                     StageCosts& costs, const Layout& layout, const Plan& plan,
                     std::size_t of_class, std::size_t free) {
  return Reasons(input, classes, costs, layout, plan)
      .of_idle(of_class, free, plan.batch / plan.schedule.micro_batches);
}

namespace {

/// "2 t4", or "(1 v100-sxm2 and 1 t4 sharing layers 5:3)".
std::string group_note(const StrategyInput& input, const LayoutStage& stage, std::size_t g) {
  const std::vector<DeviceId>& group = stage.groups[g];
  std::vector<std::pair<std::string, std::size_t>> models;
  for (const DeviceId device : group) {
    const std::string& model = input.cluster.model(device).name;
    if (models.empty() || models.back().first != model) models.emplace_back(model, 0);
    ++models.back().second;
  }
  std::vector<std::string> words;
  for (const auto& [model, count] : models) words.push_back(fmt::format("{} {}", count, model));
  std::string text = join(words, " and ");
  if (stage.parts.empty() || tensor::are_equal(stage.parts[g])) return text;
  return fmt::format("({} sharing layers {})", text, fmt::join(stage.parts[g], ":"));
}

}  // namespace

std::string stages_note(const StrategyInput& input, const Layout& layout,
                        std::int32_t micro_batches) {
  std::vector<std::string> words;
  for (const LayoutStage& stage : layout.stages) {
    std::vector<std::string> groups;
    for (std::size_t g = 0; g < stage.groups.size();) {
      const std::string note = group_note(input, stage, g);
      std::size_t end = g;
      while (end < stage.groups.size() && group_note(input, stage, end) == note) ++end;
      groups.push_back(fmt::format("{}x{}", end - g, note));
      g = end;
    }
    std::string word = join(groups, " + ");
    if (words.empty() || words.back() != word) words.push_back(std::move(word));
  }
  return fmt::format("{} of {} in a pipeline, replicas x tensor: {}",
                     counted(static_cast<std::int64_t>(layout.stages.size()), "stage"),
                     counted(micro_batches, "micro-batch"), join(words, ", "));
}

}  // namespace parsim::strategies::mixed
