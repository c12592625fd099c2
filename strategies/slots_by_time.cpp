#include "strategies/slots_by_time.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "core/errors.hpp"

namespace parsim::strategies {

namespace {

/// A pipeline while it works. Micro-batches go through a stage in their order, so that of each
/// direction only their number is known.
class OrderByTime {
 public:
  OrderByTime(std::span<const StageTimes> times, std::int32_t micro_batches)
      : times_(times), micro_batches_(micro_batches), stages_(times.size()), slots_(times.size()) {
    for (std::size_t s = 0; s < stages_.size(); ++s) looks_.emplace(Seconds{0}, s);
  }

  std::vector<std::vector<Slot>> run() {
    while (!looks_.empty()) {
      const auto [now, stage] = looks_.top();
      looks_.pop();
      if (stages_[stage].free > now) continue;
      if (const std::optional<Direction> next = choice(stage, now)) begin(stage, *next, now);
    }
    for (const std::vector<Slot>& slots : slots_) {
      ensure(slots.size() == 3 * static_cast<std::size_t>(micro_batches_),
             "a pipeline gets to the end of its step");
    }
    return std::move(slots_);
  }

 private:
  struct Stage {
    Seconds free{0};
    std::int32_t forward = 0, backward = 0, weights = 0;  ///< micro-batches that have begun
    bool forward_next = true;  ///< of forward and backward, if it may choose
    /// When what it works on comes, in the order of micro-batches.
    std::queue<Seconds> inputs, gradients;
  };

  [[nodiscard]] std::optional<Direction> choice(std::size_t at, Seconds now) const {
    const Stage& stage = stages_[at];
    const bool has_gradient = !stage.gradients.empty() && stage.gradients.front() <= now;
    const bool has_input = at == 0 ? stage.forward < micro_batches_
                                   : !stage.inputs.empty() && stage.inputs.front() <= now;
    const bool has_memory = stage.forward - stage.weights < times_[at].most_kept;
    if (has_input && has_memory && (stage.forward_next || !has_gradient)) return Direction::forward;
    if (has_gradient) return Direction::backward;
    if (stage.weights < stage.backward) return Direction::weights;
    return std::nullopt;
  }

  void begin(std::size_t at, Direction direction, Seconds now) {
    Stage& stage = stages_[at];
    const auto slot = [&](std::int32_t& micro_batch) {
      slots_[at].push_back({static_cast<std::int32_t>(at), micro_batch++, direction});
    };
    const auto send = [&](std::size_t to, std::queue<Seconds>& arrivals, Seconds takes) {
      arrivals.push(stage.free + takes);
      looks_.emplace(stage.free + takes, to);
    };
    if (direction != Direction::weights) {
      stage.forward_next = direction == Direction::backward;
    }
    if (direction == Direction::forward) {
      slot(stage.forward);
      stage.free = now + times_[at].forward;
      if (at > 0) stage.inputs.pop();
      const bool last = at + 1 == stages_.size();
      if (last) send(at, stage.gradients, Seconds{0});
      if (!last) send(at + 1, stages_[at + 1].inputs, times_[at].send);
    } else if (direction == Direction::backward) {
      slot(stage.backward);
      stage.free = now + times_[at].backward;
      stage.gradients.pop();
      if (at > 0) send(at - 1, stages_[at - 1].gradients, times_[at - 1].send);
    } else {
      slot(stage.weights);
      stage.free = now + times_[at].weights;
    }
    looks_.emplace(stage.free, at);
  }

  using Look = std::pair<Seconds, std::size_t>;  ///< when a stage may find something to do
  std::span<const StageTimes> times_;
  std::int32_t micro_batches_;
  std::vector<Stage> stages_;
  std::vector<std::vector<Slot>> slots_;
  std::priority_queue<Look, std::vector<Look>, std::greater<>> looks_;
};

}  // namespace

std::vector<std::vector<Slot>> slots_by_time(std::span<const StageTimes> stages,
                                             std::int32_t micro_batches) {
  return OrderByTime(stages, micro_batches).run();
}

}  // namespace parsim::strategies
