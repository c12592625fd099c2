#include "strategies/weight_gathers.hpp"

#include <algorithm>

namespace parsim {

namespace {

struct InMemory {
  std::size_t unit = 0;
  std::size_t free_from = 0;  ///< the turn after its last use so far
};

}  // namespace

std::vector<WeightGather> weight_gathers(const std::vector<std::vector<std::size_t>>& needs,
                                         std::vector<std::size_t>& there) {
  constexpr std::size_t usual = 2;
  std::vector<InMemory> memory;  // least recently used first
  for (const std::size_t unit : there) memory.push_back({unit, 0});
  std::vector<WeightGather> gathers;
  for (std::size_t turn = 0; turn < needs.size(); ++turn) {
    const std::vector<std::size_t>& wanted = needs[turn];
    const std::size_t room = std::max(usual, wanted.size());
    for (const std::size_t unit : wanted) {
      const auto found = std::find_if(memory.begin(), memory.end(),
                                      [&](const InMemory& held) { return held.unit == unit; });
      if (found != memory.end()) {
        memory.erase(found);
      } else {
        WeightGather gather{gathers.empty() ? 0 : gathers.back().turn, unit, {}};
        while (memory.size() >= room) {
          const auto idle = std::find_if(memory.begin(), memory.end(), [&](const InMemory& held) {
            return std::find(wanted.begin(), wanted.end(), held.unit) == wanted.end();
          });
          gather.turn = std::max(gather.turn, idle->free_from);
          gather.instead.push_back(idle->unit);
          memory.erase(idle);
        }
        gathers.push_back(std::move(gather));
      }
      memory.push_back({unit, turn + 1});
    }
  }
  there.clear();
  for (const InMemory& held : memory) there.push_back(held.unit);
  return gathers;
}

}  // namespace parsim
