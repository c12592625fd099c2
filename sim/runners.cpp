#include "sim/runners.hpp"

#include <algorithm>
#include <bit>

namespace parsim::sim {

namespace {

/// Calls visit(source, successor) for operations that run, seldom more than once for a pair: an
/// operation often waits for many equal ones.
template <class Visit>
void visit_waits(const Successors& all, std::span<const std::int32_t> runs_as, Visit visit) {
  std::vector<std::int32_t> last(runs_as.size(), -1);
  for (std::size_t i = 0; i < runs_as.size(); ++i) {
    for (const std::int32_t successor : all.of(i)) {
      const auto s = static_cast<std::size_t>(successor);
      if (runs_as[s] != successor || last[s] == runs_as[i]) continue;
      last[s] = runs_as[i];
      visit(static_cast<std::size_t>(runs_as[i]), successor);
    }
  }
}

}  // namespace

std::vector<std::int32_t> first_of_colors(std::span<const Color> colors) {
  // A table with room for twice as many: colours are hashes.
  const std::size_t places = std::bit_ceil(2 * colors.size() + 1);
  std::vector<std::int32_t> table(places, -1), first(colors.size());
  for (std::size_t i = 0; i < colors.size(); ++i) {
    if (i > 0 && colors[i] == colors[i - 1]) {  // often
      first[i] = first[i - 1];
      continue;
    }
    std::size_t place = colors[i] & (places - 1);
    while (table[place] >= 0 && colors[static_cast<std::size_t>(table[place])] != colors[i])
      place = (place + 1) & (places - 1);
    if (table[place] < 0) table[place] = static_cast<std::int32_t>(i);
    first[i] = table[place];
  }
  return first;
}

Successors waits_of_runners(const Successors& all, std::span<const std::int32_t> runs_as) {
  const std::size_t count = runs_as.size();
  std::vector<std::uint32_t> end(count + 1, 0);  // of each one's list; first, one place later, size
  visit_waits(all, runs_as, [&](std::size_t source, std::int32_t) { ++end[source + 1]; });
  for (std::size_t i = 1; i <= count; ++i) end[i] += end[i - 1];
  Successors waits;
  waits.list.resize(end[count]);
  const std::vector<std::uint32_t> begin = end;
  visit_waits(all, runs_as, [&](std::size_t source, std::int32_t successor) {
    waits.list[end[source]++] = successor;
  });
  waits.first.assign(count + 1, 0);
  waits.waiting.assign(count, 0);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t place) {
      return waits.list.begin() + static_cast<std::ptrdiff_t>(place);
    };
    if (!std::is_sorted(at(begin[i]), at(end[i]))) std::sort(at(begin[i]), at(end[i]));
    const auto last = std::unique(at(begin[i]), at(end[i]));
    for (auto one = at(begin[i]); one != last; ++one) {
      ++waits.waiting[static_cast<std::size_t>(*one)];
      waits.list[kept++] = *one;
    }
    waits.first[i + 1] = static_cast<std::uint32_t>(kept);
  }
  waits.list.resize(kept);
  return waits;
}

}  // namespace parsim::sim
