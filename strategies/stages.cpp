#include "strategies/stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/blocks.hpp"

namespace parsim::strategies {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// First elements of the stages whose costs combine to the least total; among equals the earlier
/// cut. `cost(stage, begin, end)` of a stage, `combine` of two costs.
template <class Cost, class Combine>
std::vector<std::size_t> best_cut(std::size_t stages, std::size_t elements, Cost cost,
                                  Combine combine) {
  ensure(stages > 0 && elements >= stages, "every stage of a chain gets an element");
  // By stages and elements used: the least total, and where the last stage begins.
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(elements + 1, never));
  std::vector<std::vector<std::size_t>> cut(stages + 1, std::vector<std::size_t>(elements + 1, 0));
  best[0][0] = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    for (std::size_t end = s + 1; end <= elements; ++end) {
      for (std::size_t begin = s; begin < end; ++begin) {
        const double total = combine(best[s][begin], cost(s, begin, end));
        if (total < best[s + 1][end]) {
          best[s + 1][end] = total;
          cut[s + 1][end] = begin;
        }
      }
    }
  }
  std::vector<std::size_t> first(stages);
  std::size_t end = elements;
  for (std::size_t s = stages; s-- > 0;) end = first[s] = cut[s + 1][end];
  return first;
}

/// Forward slots of a stage before forward and backward ones alternate; with gpipe, all.
std::int32_t warm_up_slots(PipelineSchedule schedule, std::int32_t stage, std::int32_t stages,
                           std::int32_t micro_batches) {
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return micro_batches;
    case PipelineSchedule::one_f_one_b:
    case PipelineSchedule::zero_bubble:
      return std::min(micro_batches, stages - stage - 1);
    case PipelineSchedule::zero_bubble_h2:
      return std::min(micro_batches, 2 * (stages - stage - 1));
  }
  throw BrokenInvariant("a pipeline schedule outside its enum");
}

/// `passes` forward and backward ones, which alternate after `warm_up` forward ones.
template <class Pass>
std::vector<Slot> alternating(std::int32_t warm_up, std::int32_t passes, Pass pass) {
  std::vector<Slot> order;
  for (std::int32_t n = 0; n < warm_up; ++n) order.push_back(pass(n, Direction::forward));
  for (std::int32_t n = warm_up; n < passes; ++n) {
    order.push_back(pass(n, Direction::forward));
    order.push_back(pass(n - warm_up, Direction::backward));
  }
  for (std::int32_t n = passes - warm_up; n < passes; ++n) {
    order.push_back(pass(n, Direction::backward));
  }
  return order;
}

/// What stages are made of: "34 blocks, embeddings and head among them", or "50 layers".
std::string units_text(const StrategyInput& input) {
  const std::size_t units = units_of(input.network, input.granularity).size();
  const bool blocks = units != input.network.layers.size();
  return counted(static_cast<std::int64_t>(units), blocks ? "block" : "layer") +
         (blocks ? ", embeddings and head among them" : "");
}

/// The order with the weight gradients of each micro-batch after the backward slot `delay` later;
/// those that are left, at the end.
std::vector<Slot> with_weight_slots(const std::vector<Slot>& order, std::int32_t delay) {
  std::vector<Slot> result;
  std::vector<Slot> waiting;  // first to last
  for (const Slot& slot : order) {
    result.push_back(slot);
    if (slot.direction != Direction::backward) continue;
    waiting.push_back({slot.stage, slot.micro_batch, Direction::weights});
    if (waiting.size() <= static_cast<std::size_t>(delay)) continue;
    result.push_back(waiting.front());
    waiting.erase(waiting.begin());
  }
  result.insert(result.end(), waiting.begin(), waiting.end());
  return result;
}

}  // namespace

std::vector<std::size_t> chain_split(const std::vector<std::vector<double>>& until) {
  return best_cut(
      until.size(), until.at(0).size() - 1,
      [&](std::size_t s, std::size_t begin, std::size_t end) {
        return until[s][end] - until[s][begin];
      },
      [](double a, double b) { return std::max(a, b); });
}

std::vector<std::size_t> chain_split(const std::vector<std::vector<double>>& until,
                                     const std::vector<double>& begin_cost, double slack) {
  const std::size_t stages = until.size(), elements = until.at(0).size() - 1;
  const auto load = [&](std::size_t s, std::size_t begin, std::size_t end) {
    return until[s][end] - until[s][begin];
  };
  const std::vector<std::size_t> even = chain_split(until);
  double most = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    most = std::max(most, load(s, even[s], s + 1 < stages ? even[s + 1] : elements));
  }
  most *= 1 + slack;
  return best_cut(
      stages, elements,
      [&](std::size_t s, std::size_t begin, std::size_t end) {
        if (load(s, begin, end) > most) return never;
        return begin == 0 ? 0.0 : begin_cost[begin];
      },
      [](double a, double b) { return a + b; });
}

std::vector<std::size_t> chain_split(const std::vector<std::vector<double>>& until,
                                     const std::vector<double>& begin_cost, double slack,
                                     const std::vector<std::size_t>& units) {
  const std::size_t layers = until.at(0).size() - 1;
  if (units.size() == layers) return chain_split(until, begin_cost, slack);
  std::vector<std::vector<double>> of_units;
  for (const std::vector<double>& loads : until) {
    std::vector<double>& own = of_units.emplace_back();
    for (const std::size_t layer : units) own.push_back(loads[layer]);
    own.push_back(loads[layers]);
  }
  std::vector<double> costs;
  for (const std::size_t layer : units) costs.push_back(begin_cost[layer]);
  std::vector<std::size_t> first = chain_split(of_units, costs, slack);
  for (std::size_t& layer : first) layer = units[layer];
  return first;
}

std::vector<double> boundary_bytes(const Network& network, Precision precision,
                                   const std::function<bool(LayerId)>& counts) {
  std::vector<double> bytes(network.layers.size(), 0);
  const auto readers = consumers(network);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (network.layers[l].kind.as<Input>() != nullptr || !counts(LayerId{l})) continue;
    std::size_t last = l;
    for (const Consumer& reader : readers[l]) last = std::max(last, reader.layer.index());
    for (std::size_t at = l + 1; at <= last; ++at) {
      bytes[at] += static_cast<double>(network.layers[l].out.elements() * element_bytes(precision));
    }
  }
  return bytes;
}

std::vector<Slot> stage_slots(PipelineSchedule schedule, std::int32_t stage, std::int32_t stages,
                              std::int32_t micro_batches) {
  const std::int32_t warm_up = warm_up_slots(schedule, stage, stages, micro_batches);
  std::vector<Slot> order =
      alternating(warm_up, micro_batches, [&](std::int32_t m, Direction direction) {
        return Slot{stage, m, direction};
      });
  const bool splits = splits_backward(schedule, static_cast<std::size_t>(stages));
  return splits ? with_weight_slots(order, stage) : order;
}

std::int32_t most_in_flight(const RankList& list, bool splits) {
  const Direction last = splits ? Direction::weights : Direction::backward;
  std::int32_t now = 0, most = 0;
  for (const Slot& slot : list.slots) {
    if (slot.direction == Direction::forward) most = std::max(most, ++now);
    if (slot.direction == last) --now;
  }
  return most;
}

std::vector<Slot> device_slots(PipelineSchedule schedule, std::int32_t device, std::int32_t devices,
                               std::int32_t chunks, std::int32_t micro_batches) {
  if (chunks == 1) return stage_slots(schedule, device, devices, micro_batches);
  ensure(schedule != PipelineSchedule::gpipe && micro_batches % devices == 0,
         "model chunks are interleaved in whole groups of micro-batches");
  const std::int32_t passes = chunks * micro_batches, group = chunks * devices;
  const std::int32_t filling = schedule == PipelineSchedule::zero_bubble ? 1 : 2;
  const std::int32_t warm_up =
      std::min(passes, filling * (devices - device - 1) + (chunks - 1) * devices);
  const std::vector<Slot> order =
      alternating(warm_up, passes, [&](std::int32_t n, Direction direction) {
        const std::int32_t turn = n % group / devices;
        const std::int32_t chunk = direction == Direction::forward ? turn : chunks - 1 - turn;
        return Slot{chunk * devices + device, n / group * devices + n % devices, direction};
      });
  const bool splits = splits_backward(schedule, static_cast<std::size_t>(devices));
  return splits ? with_weight_slots(order, device) : order;
}

std::optional<Plan> reordered(const Plan& plan, PipelineSchedule schedule) {
  const Schedule& own = plan.schedule;
  const auto devices = static_cast<std::int32_t>(own.rank_lists.size());
  if (devices < 2 || own.micro_batches < 2) return std::nullopt;
  const std::int32_t stages =
      1 + *std::max_element(own.stage_of_layer.begin(), own.stage_of_layer.end());
  const std::int32_t chunks = stages / devices;
  const bool whole = stages % devices == 0 && (chunks == 1 || own.micro_batches % devices == 0);
  if (!whole || (chunks > 1 && schedule == PipelineSchedule::gpipe)) return std::nullopt;
  const auto slots = [&](PipelineSchedule kind, const RankList& list) {
    return device_slots(kind, list.slots.front().stage, devices, chunks, own.micro_batches);
  };
  std::vector<PipelineSchedule> kinds{PipelineSchedule::one_f_one_b};
  if (own.split_backward) {
    kinds = {PipelineSchedule::zero_bubble, PipelineSchedule::zero_bubble_h2};
  }
  const bool known = std::any_of(kinds.begin(), kinds.end(), [&](PipelineSchedule kind) {
    return std::all_of(own.rank_lists.begin(), own.rank_lists.end(), [&](const RankList& list) {
      return !list.slots.empty() && list.slots.front().stage < devices &&
             list.slots == slots(kind, list);
    });
  });
  if (!known) return std::nullopt;
  Plan other = plan;
  other.schedule.split_backward = splits_backward(schedule, own.rank_lists.size());
  for (RankList& list : other.schedule.rank_lists) {
    list.slots = slots(schedule, list);
  }
  return other;
}

void expect_interleavable(const StrategyInput& input, std::optional<std::int32_t> devices,
                          std::string_view where) {
  const std::int32_t chunks = input.virtual_pipeline;
  if (chunks == 1) return;
  const auto refuse = [&](const std::string& with, const std::string& accepted) {
    throw InputError(std::string(where),
                     fmt::format("{} a device with {}", counted(chunks, "model chunk"), with),
                     "accepted: " + accepted);
  };
  if (input.schedule_or_default() == PipelineSchedule::gpipe) {
    refuse("schedule gpipe", "schedule 1f1b, zero-bubble or zero-bubble-h2");
  }
  if (!devices) return;
  if (*devices < 2) {
    refuse(counted(*devices, "pipeline stage"), "a pipeline of two devices or more");
  }
  const auto units = static_cast<std::int64_t>(units_of(input.network, input.granularity).size());
  if (std::int64_t{chunks} * *devices > units) {
    const bool blocks = static_cast<std::size_t>(units) != input.network.layers.size();
    refuse(fmt::format("{} and {}", counted(*devices, "pipeline stage"), units_text(input)),
           fmt::format("up to {}, each with {}", units / *devices,
                       blocks ? "a block; more with --granularity layer" : "a layer"));
  }
  if (input.micro_batches && *input.micro_batches % *devices != 0) {
    refuse(fmt::format("{} and {}", counted(*devices, "pipeline stage"),
                       counted(*input.micro_batches, "micro-batch")),
           "micro-batches in a multiple of the pipeline stages");
  }
}

std::vector<Slot> all_slots(PipelineSchedule schedule, std::int32_t stages,
                            std::int32_t micro_batches) {
  std::vector<std::vector<Slot>> by_stage;
  for (std::int32_t s = 0; s < stages; ++s) {
    by_stage.push_back(stage_slots(schedule, s, stages, micro_batches));
  }
  std::vector<std::size_t> next(by_stage.size(), 0);
  std::map<Direction, std::vector<bool>> done;  // by stage and micro-batch
  for (const Direction direction : {Direction::forward, Direction::backward, Direction::weights})
    done[direction].resize(by_stage.size() * static_cast<std::size_t>(micro_batches));
  const auto place = [&](std::int32_t stage, std::int32_t micro_batch) {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(micro_batches) +
           static_cast<std::size_t>(micro_batch);
  };
  std::vector<Slot> order;
  const auto can_run = [&](const Slot& slot) {
    const auto ran = [&](std::int32_t stage, Direction direction) -> bool {
      return done[direction][place(stage, slot.micro_batch)];
    };
    if (slot.direction == Direction::forward) {
      return slot.stage == 0 || ran(slot.stage - 1, Direction::forward);
    }
    if (slot.direction == Direction::weights) return ran(slot.stage, Direction::backward);
    return ran(slot.stage, Direction::forward) &&
           (slot.stage == stages - 1 || ran(slot.stage + 1, Direction::backward));
  };
  std::size_t all = 0;
  for (const std::vector<Slot>& slots : by_stage) all += slots.size();
  while (order.size() < all) {  // a slot a stage a round, as if all took the same time
    std::vector<Slot> round;
    for (std::size_t s = 0; s < by_stage.size(); ++s) {
      if (next[s] == by_stage[s].size() || !can_run(by_stage[s][next[s]])) continue;
      round.push_back(by_stage[s][next[s]++]);
    }
    ensure(!round.empty(), "the order of a pipeline leads to its end");
    for (const Slot& slot : round) done[slot.direction][place(slot.stage, slot.micro_batch)] = true;
    order.insert(order.end(), round.begin(), round.end());
  }
  return order;
}

std::set<std::int32_t> numbers_of_micro_batches(std::int64_t batch, std::size_t stages) {
  std::set<std::int32_t> numbers{1};
  const std::int64_t most = stages > 1 ? 16 * static_cast<std::int64_t>(stages) : 1;
  for (std::int64_t number = 2; number <= most; number *= number < 64 ? 2 : 4) {
    std::int64_t divisor = std::min(number, batch);
    while (batch % divisor != 0) --divisor;
    numbers.insert(static_cast<std::int32_t>(divisor));
  }
  return numbers;
}

std::optional<std::size_t> parts_asked(std::optional<std::int32_t> asked,
                                       const StrategyInput& input, std::size_t devices,
                                       std::string_view strategy, std::string_view parts) {
  if (!asked) return std::nullopt;
  const std::size_t layers = input.network.layers.size();
  const std::size_t units = units_of(input.network, input.granularity).size();
  const std::size_t most = std::min(devices, units);
  if (*asked >= 1 && static_cast<std::size_t>(*asked) <= most) {
    return static_cast<std::size_t>(*asked);
  }
  throw InputError(
      fmt::format("strategy '{}'", strategy),
      fmt::format("{} {} for {} devices and {}", *asked, parts, devices, units_text(input)),
      fmt::format("accepted: 1 to {}, each with {} and a device{}", most,
                  units == layers ? "a layer" : "a block",
                  static_cast<std::size_t>(*asked) <= std::min(devices, layers) && *asked > 0
                      ? "; more with --granularity layer"
                      : ""));
}

void expect_whole_micro_batches(std::int64_t batch, std::int32_t micro_batches,
                                std::string_view strategy) {
  if (micro_batches >= 1 && batch % micro_batches == 0) return;
  throw InputError(fmt::format("strategy '{}'", strategy),
                   fmt::format("batch {} in {}", batch, counted(micro_batches, "micro-batch")),
                   "accepted: a number of micro-batches that divides the batch");
}

}  // namespace parsim::strategies
