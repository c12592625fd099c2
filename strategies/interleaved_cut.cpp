#include "strategies/interleaved_cut.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "core/errors.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies {

namespace {

using First = std::vector<std::size_t>;  ///< by stage: its first unit, or layer

constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

/// A pass of a stage, as a device comes to it. A search walks through thousands of them a thousand
/// times.
struct StagePass {
  std::uint32_t device = 0;
  std::uint32_t load = 0;      ///< three times the stage, and its direction
  std::uint32_t after = none;  ///< the pass whose output it needs
  std::uint32_t handed = 0;    ///< the stage that another stage hands it to, or gets it from; or 0
};

/// All passes of a step, each after those that it waits for.
std::vector<StagePass> passes_of(const Interleaving& pipeline, std::int32_t micro_batches) {
  const std::size_t stages = pipeline.devices * pipeline.chunks;
  const auto number = static_cast<std::size_t>(micro_batches);
  std::vector<std::vector<Slot>> slots;
  for (std::size_t d = 0; d < pipeline.devices; ++d) {
    slots.push_back(device_slots(pipeline.schedule, static_cast<std::int32_t>(d),
                                 static_cast<std::int32_t>(pipeline.devices),
                                 static_cast<std::int32_t>(pipeline.chunks), micro_batches));
  }
  std::vector<StagePass> passes;
  std::vector<std::uint32_t> done(3 * stages * number, none);
  const auto of = [&](std::size_t stage, std::int32_t micro_batch, Direction direction) -> auto& {
    return done[3 * (stage * number + static_cast<std::size_t>(micro_batch)) +
                static_cast<std::size_t>(direction)];
  };
  std::vector<std::size_t> next(pipeline.devices, 0);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (std::size_t d = 0; d < pipeline.devices; ++d) {
      for (; next[d] < slots[d].size(); ++next[d]) {
        const Slot& slot = slots[d][next[d]];
        const auto stage = static_cast<std::size_t>(slot.stage);
        const bool forward = slot.direction == Direction::forward;
        StagePass pass{
            static_cast<std::uint32_t>(d),
            static_cast<std::uint32_t>(3 * stage) + static_cast<std::uint32_t>(slot.direction)};
        if (slot.direction == Direction::weights) {
          pass.after = of(stage, slot.micro_batch, Direction::backward);
        } else if (!forward || stage > 0) {
          const bool handed = forward || stage + 1 < stages;
          if (handed) pass.handed = static_cast<std::uint32_t>(forward ? stage : stage + 1);
          pass.after = forward  ? of(stage - 1, slot.micro_batch, Direction::forward)
                       : handed ? of(stage + 1, slot.micro_batch, Direction::backward)
                                : of(stage, slot.micro_batch, Direction::forward);
          if (pass.after == none) break;
        }
        of(stage, slot.micro_batch, slot.direction) = static_cast<std::uint32_t>(passes.size());
        passes.push_back(pass);
        goes_on = true;
      }
    }
  }
  std::size_t all = 0;
  for (const std::vector<Slot>& of_device : slots) all += of_device.size();
  ensure(passes.size() == all, "the order of a pipeline leads to its end");
  return passes;
}

class Steps {
 public:
  explicit Steps(const Interleaving& pipeline) : pipeline_(pipeline), busy_(pipeline.devices) {
    const auto devices = static_cast<std::int32_t>(pipeline.devices);
    const std::int32_t few = 4 * devices, more = 8 * devices;  // until rounds take as long
    if (pipeline.micro_batches > few + more) {
      others_ = (pipeline.micro_batches - more) / static_cast<double>(more - few);
      shorter_ = passes_of(pipeline, few);
      longer_ = passes_of(pipeline, more);
    } else {
      longer_ = passes_of(pipeline, pipeline.micro_batches);
    }
  }

  [[nodiscard]] double step(const ChainCosts& costs, const First& first) {
    const std::size_t layers = costs.until[0].size() - 1;
    loads_.clear();
    of_passes_.clear();
    handed_.clear();
    for (std::size_t s = 0; s < first.size(); ++s) {
      const std::size_t end = s + 1 < first.size() ? first[s + 1] : layers;
      loads_.push_back(costs.until[s][end] - costs.until[s][first[s]]);
      const bool split = splits_backward(pipeline_.schedule, pipeline_.devices);
      for (const double share : {1.0 / 3, (split ? 1.0 : 2.0) / 3, 1.0 / 3}) {
        of_passes_.push_back(loads_.back() * share);
      }
      handed_.push_back(s > 0 ? costs.hand_over[s][first[s]] : 0);
    }
    const double longer = time_of(longer_);
    return shorter_.empty() ? longer : longer + (longer - time_of(shorter_)) * others_;
  }

  /// The step, and a little more the less even the cut is: uneven stages keep more, and the step
  /// errs by some thousandths.
  ///
  /// costs   always the same
  [[nodiscard]] double rating(const ChainCosts& costs, const First& first) {
    constexpr double unevenness = 0.02;
    const auto [known, fresh] = ratings_.try_emplace(first);
    if (!fresh) return known->second;
    const double time = step(costs, first);
    double sum = 0, squares = 0;
    for (const double load : loads_) {
      sum += load;
      squares += load * load;
    }
    const double least = sum * sum / static_cast<double>(loads_.size());
    return known->second = time * (1 + unevenness * (squares / least - 1));
  }

  /// How many passes one step looks at.
  [[nodiscard]] std::size_t work() const { return shorter_.size() + longer_.size(); }

 private:
  [[nodiscard]] double time_of(const std::vector<StagePass>& passes) {
    return pipeline_.sends == PipelineSends::blocking ? time_of<true>(passes)
                                                      : time_of<false>(passes);
  }
  template <bool blocking>
  [[nodiscard]] double time_of(const std::vector<StagePass>& passes) {
    std::fill(busy_.begin(), busy_.end(), 0);
    end_.resize(passes.size());
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const StagePass& pass = passes[i];
      double& time = busy_[pass.device];
      if (pass.after != none) {
        const double arrived = end_[pass.after] + handed_[pass.handed];
        if (blocking && pass.handed > 0) {
          double& sender = busy_[passes[pass.after].device];
          sender = std::max(sender, arrived);
        }
        time = std::max(time, arrived);
      }
      end_[i] = time += of_passes_[pass.load];
    }
    return *std::max_element(busy_.begin(), busy_.end());
  }

  Interleaving pipeline_;
  std::vector<StagePass> shorter_, longer_;
  double others_ = 0;  ///< micro-batches beyond those of `longer_`, in differences of the two
  std::vector<double> busy_, end_, loads_, handed_;
  std::vector<double> of_passes_;    ///< by stage and direction: of its load
  std::map<First, double> ratings_;  ///< a search comes to many cuts more than once
};

/// The cut with the least sum of squares of loads: the most even one. With a tilt above 0 later
/// stages may be larger.
First evenest_cut(const ChainCosts& costs, double tilt) {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  const std::size_t stages = costs.until.size(), units = costs.until[0].size() - 1;
  std::vector<double> best(units + 1, unbounded), next;
  std::vector<First> begins(stages, First(units + 1));
  best[0] = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    const double weight = 1 - tilt * static_cast<double>(s) / static_cast<double>(stages);
    next.assign(units + 1, unbounded);
    for (std::size_t end = s + 1; end <= units; ++end) {
      for (std::size_t begin = end; begin-- > s;) {
        const double load = costs.until[s][end] - costs.until[s][begin];
        const double square = weight * load * load;
        if (square >= next[end]) break;  // and more so for those that begin earlier
        if (best[begin] + square >= next[end]) continue;
        next[end] = best[begin] + square;
        begins[s][end] = begin;
      }
    }
    best.swap(next);
  }
  First first(stages);
  std::size_t end = units;
  for (std::size_t s = stages; s-- > 0;) end = first[s] = begins[s][end];
  return first;
}

/// Stages from, from + 1, … hand a unit each to stages to, to + 1, …: those between pass it on.
/// Nothing if that leaves one empty.
std::optional<First> handed_on(First first, std::size_t from, std::size_t to, std::size_t count,
                               std::size_t units) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t s = from + 1 + i; s <= to + i; ++s) --first[s];
    for (std::size_t s = to + 1 + i; s <= from + i; ++s) ++first[s];
  }
  for (std::size_t s = 0; s < first.size(); ++s) {
    if (first[s] >= (s + 1 < first.size() ? first[s + 1] : units)) return std::nullopt;
  }
  return first;
}

}  // namespace

double interleaved_step(const ChainCosts& costs, const Interleaving& pipeline,
                        const std::vector<std::size_t>& first) {
  return Steps(pipeline).step(costs, first);
}

PipelineCut interleaved_cut(const ChainCosts& costs, const Interleaving& pipeline,
                            const std::vector<std::size_t>& units) {
  constexpr std::size_t most_work = 10'000'000;  // passes: some hundredths of a second
  constexpr double rounding_noise = 1e-9;
  const ChainCosts of_units = costs_of_units(costs, units);
  const std::size_t stages = costs.until.size();
  Steps steps(pipeline);
  std::vector<PipelineCut> starts;
  for (const double tilt : {-0.01, 0.01, 0.25, 0.5}) {
    First first = evenest_cut(of_units, tilt);
    const double step = steps.rating(of_units, first);
    starts.push_back({std::move(first), step});
  }
  const auto faster = [](const PipelineCut& a, const PipelineCut& b) { return a.step < b.step; };
  std::stable_sort(starts.begin(), starts.end(), faster);
  const auto same = [](const PipelineCut& a, const PipelineCut& b) { return a.first == b.first; };
  starts.erase(std::unique(starts.begin(), starts.end(), same), starts.end());
  const std::size_t most_tries = most_work / steps.work() / starts.size();
  for (PipelineCut& cut : starts) {
    std::size_t tries = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (const std::size_t count : {1, 2}) {
        for (std::size_t from = 0; from + count <= stages; ++from) {
          for (std::size_t to = 0; to + count <= stages; ++to) {
            if (from == to || tries == most_tries) continue;
            std::optional<First> first = handed_on(cut.first, from, to, count, units.size());
            if (!first) continue;
            ++tries;
            const double step = steps.rating(of_units, *first);
            if (step >= cut.step * (1 - rounding_noise)) continue;
            cut = {*std::move(first), step};
            moved = true;
          }
        }
      }
    }
  }
  PipelineCut best = *std::min_element(starts.begin(), starts.end(), faster);
  best.step = steps.step(of_units, best.first);
  for (std::size_t& first : best.first) first = units[first];
  return best;
}

}  // namespace parsim::strategies
