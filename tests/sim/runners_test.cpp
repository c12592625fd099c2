// Which operations of classes run, and what waits for them, against sets.
#include "sim/runners.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "core/random.hpp"

namespace parsim::sim {
namespace {

TEST_CASE("runners: the first of each colour runs, and waits for those that run, by sets") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::size_t count = 1 + random.below(60), kinds = 1 + random.below(80);
    std::vector<Color> colors;  // of which many begin at one place of a table
    for (std::size_t i = 0; i < count; ++i) colors.push_back(random.below(kinds) * 1024 + 7);
    std::map<Color, std::int32_t> first;
    for (std::size_t i = 0; i < count; ++i)
      first.try_emplace(colors[i], static_cast<std::int32_t>(i));
    const std::vector<std::int32_t> runs_as = first_of_colors(colors);
    REQUIRE(runs_as.size() == count);
    for (std::size_t i = 0; i < count; ++i) CHECK(runs_as[i] == first.at(colors[i]));

    Successors all;
    std::vector<std::set<std::int32_t>> wanted(count);
    std::vector<std::uint32_t> waiting(count, 0);
    all.first.push_back(0);
    all.waiting.assign(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t s = i + 1; s < count; ++s) {
        if (random.below(4) > 0) continue;
        all.list.push_back(static_cast<std::int32_t>(s));
        ++all.waiting[s];
        if (runs_as[s] == static_cast<std::int32_t>(s))
          wanted[static_cast<std::size_t>(runs_as[i])].insert(static_cast<std::int32_t>(s));
      }
      all.first.push_back(static_cast<std::uint32_t>(all.list.size()));
    }
    const Successors waits = waits_of_runners(all, runs_as);
    for (std::size_t i = 0; i < count; ++i) {
      const auto of = waits.of(i);
      CHECK(std::vector<std::int32_t>(of.begin(), of.end()) ==
            std::vector<std::int32_t>(wanted[i].begin(), wanted[i].end()));
      for (const std::int32_t s : wanted[i]) ++waiting[static_cast<std::size_t>(s)];
    }
    CHECK(waits.waiting == waiting);
  }
}

}  // namespace
}  // namespace parsim::sim
