// Timelines of a page: columns, ranks, and what makes them small.
#include "report/page/ranks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "report/page/drawings.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"

namespace parsim::report {
namespace {

constexpr std::uint8_t forward = 0, backward = 1, none = nothing;

Bars bars_with(std::int64_t end, std::vector<Bar> list) {
  Bars bars;
  bars.end = end;
  bars.labels = {{"forward", BarKind::forward}, {"backward", BarKind::backward}};
  bars.tracks.push_back({DeviceId{0}, 0, std::move(list)});
  return bars;
}

/// The same, nanosecond by nanosecond.
std::vector<ColumnFill> fills_by_counting(const Bars& bars, std::int64_t columns) {
  std::vector<ColumnFill> fills;
  for (std::int64_t c = 0; c < columns; ++c) {
    ColumnFill& fill = fills.emplace_back();
    for (std::int64_t t = c * bars.end / columns; t < (c + 1) * bars.end / columns; ++t) {
      for (const Bar& bar : bars.tracks[0].bars) {
        if (t < bar.start || t >= bar.start + bar.length) continue;
        ++fill[static_cast<std::size_t>(bars.labels[static_cast<std::size_t>(bar.label)].kind)];
      }
    }
  }
  return fills;
}

TEST_CASE("ranks: a column has the kind that fills most of it, by hand") {
  const Bars bars = bars_with(100, {{0, 14, 0}, {14, 11, 1}, {45, 1, 0}, {99, 1, 1}});
  // 0-10 forward; 10-20 forward 4, backward 6; 20-30 backward 5, which is half; then 5 too many are
  // shown, so that 1 at 45 and 1 at 99 are not.
  CHECK(columns_of(bars.tracks[0], bars, 10) ==
        std::vector<std::uint8_t>{forward, backward, backward, none, none, none, none, none, none,
                                  none});
  // One of 25 is filled forward 14, backward 11; nothing else is half of 25.
  CHECK(columns_of(bars.tracks[0], bars, 4) ==
        std::vector<std::uint8_t>{forward, none, none, none});
}

TEST_CASE("ranks: a track that is busy for a tenth is shown in a tenth of the columns") {
  std::vector<Bar> list;
  for (std::int64_t i = 0; i < 500; ++i) list.push_back({100 * i, 10, 0});
  const Bars bars = bars_with(50'000, list);
  for (const std::size_t columns : {20U, 100U, 400U}) {
    const std::vector<std::uint8_t> kinds = columns_of(bars.tracks[0], bars, columns);
    const auto shown = static_cast<double>(std::count(kinds.begin(), kinds.end(), forward));
    CHECK(shown == testing::approx(0.1 * static_cast<double>(columns)).epsilon(0.5 / shown));
  }
}

TEST_CASE("ranks: columns equal those counted nanosecond by nanosecond") {
  std::uint32_t state = 1;
  const auto random = [&](std::uint32_t below) {
    state = state * 1'664'525U + 1'013'904'223U;
    return static_cast<std::int64_t>((state >> 8U) % below);
  };
  for (int round = 0; round < 50; ++round) {
    std::vector<Bar> list;
    std::int64_t time = 0;
    for (int i = 0; i < 20; ++i) {
      const std::int64_t gap = random(30), length = 1 + random(40);
      list.push_back({time + gap, length, static_cast<std::int32_t>(random(2))});
      time += gap + length;
    }
    const Bars bars = bars_with(time + random(10), list);
    for (const std::int64_t columns : {1, 7, 32, 100}) {
      const auto whole = static_cast<std::size_t>(columns);
      CHECK(fills_of(bars.tracks[0], bars, whole) == fills_by_counting(bars, columns));
    }
  }
}

TEST_CASE("ranks: many bars become those of columns, few stay") {
  std::vector<Bar> list;
  for (std::int64_t i = 0; i < 1000; ++i) list.push_back({10 * i, 9, static_cast<int>(i % 2)});
  const Bars bars = bars_with(10'000, list);
  CHECK(thinned(bars, 1000).tracks[0].bars.size() == 1000);
  const Bars few = thinned(bars, 300);
  CHECK(few.tracks[0].bars.size() <= 300);
  CHECK(few.end == bars.end);
  std::int64_t end = 0;
  for (const Bar& bar : few.tracks[0].bars) {
    CHECK(bar.start >= end);
    end = bar.start + bar.length;
  }
  CHECK(end <= few.end);
}

TEST_CASE("ranks: devices that do the same at the same times are one, with their number") {
  // d0 and d1 compute 3 us and sum; d2 computes 9 us and is another rank.
  const testing::NotedDag noted = testing::dag_of(
      "a: compute d0 3us; b: compute d1 3us; c: compute d2 9us; "
      "r: all-reduce d0,d1,d2 4MB after a b c");
  Timeline timeline;
  const Span late{Seconds{9e-6}, Seconds{2e-5}};
  timeline.spans = {
      {Seconds{0}, Seconds{3e-6}}, {Seconds{0}, Seconds{3e-6}}, {Seconds{0}, Seconds{9e-6}}, late};
  const Cluster cluster = testing::star_of(3, "1 GB/s", "1 us");
  const Bars bars = ranks_of(noted.dag, timeline, cluster);
  CHECK(bars.end == 20'000);
  REQUIRE(bars.tracks.size() == 4);  // kernels and communication of two ranks
  CHECK(bars.tracks[0].name == cluster.devices[0].name + " ×2");
  CHECK(bars.tracks[1].name == "communication");
  CHECK(bars.tracks[2].name == cluster.devices[2].name + " ×1");
  REQUIRE(bars.tracks[2].bars.size() == 1);
  CHECK(bars.tracks[2].bars[0].length == 9'000);
  REQUIRE(bars.tracks[3].bars.size() == 1);  // sending and receiving are one bar
  CHECK(bars.tracks[3].bars[0].start == 9'000);
  // A later end by 0.1 us of 20 is less than a hundredth: still one rank.
  timeline.spans[1].end = Seconds{3.1e-6};
  CHECK(ranks_of(noted.dag, timeline, cluster).tracks.size() == 4);
  timeline.spans[1].end = Seconds{4e-6};
  CHECK(ranks_of(noted.dag, timeline, cluster).tracks.size() == 6);
}

TEST_CASE("ranks: of many every group is shown, and as many of each as there is space for") {
  using Indices = std::vector<std::size_t>;
  CHECK(shown_of({7, 7, 2}, 3) == Indices{0, 1, 2});
  // One each of 0, 1 and 2, then the second of 0 and of 2, then the third of 0.
  const Indices groups = {0, 0, 0, 0, 1, 2, 2};
  CHECK(shown_of(groups, 3) == Indices{0, 4, 5});
  CHECK(shown_of(groups, 5) == Indices{0, 1, 4, 5, 6});
  CHECK(shown_of(groups, 6) == Indices{0, 1, 2, 4, 5, 6});
  CHECK(shown_of({0, 1, 2, 3, 4, 5, 6}, 3) == Indices{0, 3, 6});
  CHECK(shown_of({0, 0, 0}, 1) == Indices{0});
}

TEST_CASE("ranks: those of a pipeline are in the order of its stages, which have their numbers") {
  // d1 is stage 0, d0 stage 1; d2 and d0 do the same, but d2 works on stage 2.
  const testing::NotedDag noted =
      testing::dag_of("a: compute d1 3us; b: compute d0 3us after a; c: compute d2 3us after a");
  Timeline timeline;
  timeline.spans = {
      {Seconds{0}, Seconds{3e-6}}, {Seconds{3e-6}, Seconds{6e-6}}, {Seconds{3e-6}, Seconds{6e-6}}};
  const Cluster cluster = testing::star_of(3, "1 GB/s", "1 us");
  std::vector<strategies::StageSummary> stages(3);
  stages[0].devices = {DeviceId{1}};
  stages[1].devices = {DeviceId{0}};
  stages[2].devices = {DeviceId{2}};
  const Bars bars = ranks_of(noted.dag, timeline, cluster, stages);
  REQUIRE(bars.tracks.size() == 6);
  for (std::size_t s = 0; s < 3; ++s) {
    CHECK(bars.tracks[2 * s].name == cluster[stages[s].devices[0]].name + " ×1");
    CHECK(bars.tracks[2 * s + 1].name == "stage " + std::to_string(s) + ", communication");
  }
  CHECK(ranks_of(noted.dag, timeline, cluster).tracks.size() == 4);  // b and c
}

TEST_CASE("ranks: the picture of a timeline has at most the strokes that it may have") {
  std::vector<Bar> list;
  for (std::int64_t i = 0; i < 1000; ++i) list.push_back({10 * i, 9, static_cast<int>(i % 2)});
  const Bars bars = bars_with(10'000, list);
  const Cluster cluster = testing::star_of(1, "1 GB/s", "1 us");
  const auto strokes = [&](const TimelineSize& size) {
    const std::string drawn = draw_timeline(bars, cluster, size);
    CHECK((drawn.find("<script") == std::string::npos) == (size.bars == 0));
    return static_cast<std::size_t>(std::count(drawn.begin(), drawn.end(), 'M'));
  };
  CHECK(strokes({100, 0}) <= 100);
  CHECK(strokes({10'000, 1000}) > 100);
}

}  // namespace
}  // namespace parsim::report
