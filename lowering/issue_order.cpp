#include "lowering/issue_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>

#include "core/errors.hpp"

namespace parsim::lowering {

namespace {

/// Which stages a stage reads, and which read it.
struct Neighbours {
  std::set<std::int32_t> before, after;
};

std::vector<Neighbours> neighbours(const Network& network, const std::vector<std::int32_t>& stage) {
  std::vector<Neighbours> all(
      static_cast<std::size_t>(*std::max_element(stage.begin(), stage.end())) + 1);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    for (const LayerId input : network.layers[l].inputs) {
      const std::int32_t from = stage[input.index()], to = stage[l];
      if (from == to) continue;
      all[static_cast<std::size_t>(to)].before.insert(from);
      all[static_cast<std::size_t>(from)].after.insert(to);
    }
  }
  return all;
}

constexpr std::size_t directions = spellings_of<Direction>().size();

/// The slots of a schedule, numbered.
class Numbers {
 public:
  explicit Numbers(std::int32_t micro_batches) : micro_batches_(micro_batches) {}
  [[nodiscard]] std::size_t of(std::int32_t stage, std::int32_t micro_batch,
                               Direction direction) const {
    return directions *
               (static_cast<std::size_t>(stage) * static_cast<std::size_t>(micro_batches_) +
                static_cast<std::size_t>(micro_batch)) +
           static_cast<std::size_t>(direction);
  }
  [[nodiscard]] std::size_t of(const Slot& slot) const {
    return of(slot.stage, slot.micro_batch, slot.direction);
  }

 private:
  std::int32_t micro_batches_;
};

void refuse_unknown_slots(const Schedule& schedule, std::size_t stages) {
  for (const RankList& list : schedule.rank_lists) {
    for (const Slot& slot : list.slots) {
      if (slot.stage < 0 || static_cast<std::size_t>(slot.stage) >= stages) {
        throw InputError("plan: schedule", fmt::format("a slot of stage {}", slot.stage),
                         fmt::format("0 to {}: the last stage with a layer", stages - 1));
      }
      if (slot.micro_batch < 0 || slot.micro_batch >= schedule.micro_batches) {
        throw InputError("plan: schedule",
                         fmt::format("a slot of micro-batch {}", slot.micro_batch),
                         fmt::format("0 to {}", schedule.micro_batches - 1));
      }
    }
  }
}

bool can_run(const Slot& slot, const std::vector<bool>& done, const Numbers& number,
             const Neighbours& stage) {
  const auto ran = [&](std::int32_t other, Direction direction) {
    return static_cast<bool>(done[number.of(other, slot.micro_batch, direction)]);
  };
  if (slot.direction == Direction::forward) {
    return std::all_of(stage.before.begin(), stage.before.end(),
                       [&](std::int32_t s) { return ran(s, Direction::forward); });
  }
  if (slot.direction == Direction::weights) return ran(slot.stage, Direction::backward);
  return ran(slot.stage, Direction::forward) &&
         std::all_of(stage.after.begin(), stage.after.end(),
                     [&](std::int32_t s) { return ran(s, Direction::backward); });
}

}  // namespace

std::vector<std::vector<Slot>> issue_order(const Network& network, const Schedule& schedule) {
  const std::vector<Neighbours> stages = neighbours(network, schedule.stage_of_layer);
  refuse_unknown_slots(schedule, stages.size());
  const std::vector<RankList>& rank_lists = schedule.rank_lists;
  const Numbers number(schedule.micro_batches);
  const std::size_t slots =
      directions * stages.size() * static_cast<std::size_t>(schedule.micro_batches);
  // Rank lists by slot, one after another: most slots have one.
  std::vector<std::uint32_t> begin(slots + 1, 0), lists;
  for (const RankList& list : rank_lists) {
    for (const Slot& slot : list.slots) ++begin[number.of(slot) + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  lists.resize(begin.back());
  for (std::vector<std::uint32_t> at = begin; const RankList& list : rank_lists) {
    for (const Slot& slot : list.slots) {
      lists[at[number.of(slot)]++] = static_cast<std::uint32_t>(&list - rank_lists.data());
    }
  }
  std::vector<std::vector<Slot>> rounds;
  std::vector<bool> done(slots, false), issued(slots, false);
  std::vector<std::size_t> next(rank_lists.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    std::vector<Slot>& round = rounds.emplace_back();
    for (std::size_t list = 0; list < rank_lists.size(); ++list) {
      if (next[list] == rank_lists[list].slots.size()) continue;
      const Slot slot = rank_lists[list].slots[next[list]];
      const std::size_t id = number.of(slot);
      if (!issued[id]) {
        // Rank lists advance past a slot together: a list that has it and is not at it is before
        // it.
        const bool all_ready =
            std::all_of(lists.data() + begin[id], lists.data() + begin[id + 1], [&](auto other) {
              const std::vector<Slot>& theirs = rank_lists[other].slots;
              return next[other] < theirs.size() && theirs[next[other]] == slot;
            });
        if (!all_ready ||
            !can_run(slot, done, number, stages[static_cast<std::size_t>(slot.stage)]))
          continue;
        round.push_back(slot);
        issued[id] = true;
      }
      progress = true;
    }
    for (std::size_t list = 0; list < rank_lists.size(); ++list) {
      if (next[list] < rank_lists[list].slots.size() &&
          issued[number.of(rank_lists[list].slots[next[list]])])
        ++next[list];
    }
    for (const Slot& slot : round) done[number.of(slot)] = true;
    if (round.empty()) rounds.pop_back();
  }
  for (std::size_t list = 0; list < rank_lists.size(); ++list) {
    if (next[list] == rank_lists[list].slots.size()) continue;
    const Slot slot = rank_lists[list].slots[next[list]];
    throw InputError("plan: schedule",
                     fmt::format("rank list {} waits for ever at {} of stage {}, micro-batch {}",
                                 list, to_text(slot.direction), slot.stage, slot.micro_batch),
                     "an order in which every slot comes after the slots it depends on");
  }
  return rounds;
}

}  // namespace parsim::lowering
