#include "core/region.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "core/errors.hpp"

using namespace parsim;

namespace {

Interval any_interval() {
  const std::int64_t begin = *rc::gen::inRange<std::int64_t>(0, 8);
  return {begin, begin + *rc::gen::inRange<std::int64_t>(0, 6)};
}

Region any_region(std::size_t rank) {
  Region region;
  for (std::size_t axis = 0; axis < rank; ++axis) region.push_back(any_interval());
  return region;
}

bool holds(const Region& region, std::int64_t x, std::int64_t y) {
  return x >= region[0].begin && x < region[0].end && y >= region[1].begin && y < region[1].end;
}

}  // namespace

TEST_CASE("region: volume is the product of the sides") {
  CHECK(Region{{0, 2}, {1, 4}, {5, 6}}.volume() == 6);
  CHECK(Region{}.volume() == 1);
  CHECK(Region{{0, 2}, {4, 4}}.volume() == 0);
  CHECK(Region{{0, 2}, {4, 1}}.volume() == 0);
}

TEST_CASE("region: at most eight axes") {
  Region region;
  for (std::size_t axis = 0; axis < Region::max_rank; ++axis) region.push_back({0, 1});
  CHECK_THROWS_AS(region.push_back({0, 1}), BrokenInvariant);
}

TEST_CASE("region: common part and hull by hand") {
  const Region a{{0, 4}, {0, 4}}, b{{2, 6}, {3, 9}};
  CHECK(intersect(a, b) == Region{{2, 4}, {3, 4}});
  CHECK(hull(a, b) == Region{{0, 6}, {0, 9}});
  CHECK(intersect(a, Region{{4, 5}, {0, 4}}) == Region{{0, 0}, {0, 0}});
  CHECK(hull(a, Region{{9, 9}, {20, 30}}) == a);
  CHECK(hull(Region{{9, 9}, {20, 30}}, a) == a);
  CHECK(hull(Region{}, a) == a);
  CHECK(hull(a, Region{}) == a);
  CHECK_THROWS_AS(static_cast<void>(intersect(a, Region{{0, 1}})), BrokenInvariant);
}

TEST_CASE("region: boxes hold what lies inside, and every empty box") {
  const Region outer{{0, 4}, {2, 6}};
  CHECK(outer.contains(Region{{1, 4}, {2, 3}}));
  CHECK(outer.contains(outer));
  CHECK_FALSE(outer.contains(Region{{1, 5}, {2, 3}}));
  CHECK_FALSE(outer.contains(Region{{1, 4}, {1, 3}}));
  CHECK(outer.contains(Region{{9, 9}, {0, 3}}));
  const Interval whole{0, 2}, part{0, 1};  // of as many axes as a region can have
  const Region full{whole, whole, whole, whole, whole, whole, whole, whole};
  CHECK(full.contains(Region{whole, whole, whole, whole, whole, whole, whole, part}));
  CHECK_FALSE(Region{whole, whole, whole, whole, whole, whole, whole, part}.contains(full));
}

TEST_CASE("region: printed as half-open ranges") {
  CHECK(to_text(Region{{0, 16}, {3, 64}}) == "[0:16, 3:64]");
  CHECK(to_text(Region{}) == "[]");
}

TEST_CASE("region: an element is in the common part iff it is in both") {
  CHECK(rc::check([] {
    const Region a = any_region(2), b = any_region(2), both = intersect(a, b);
    std::int64_t count = 0;
    for (std::int64_t x = 0; x < 14; ++x) {
      for (std::int64_t y = 0; y < 14; ++y) {
        const bool in_both = holds(a, x, y) && holds(b, x, y);
        RC_ASSERT(holds(both, x, y) == in_both);
        if (in_both) ++count;
      }
    }
    RC_ASSERT(both.volume() == count);
  }));
}

TEST_CASE("region: laws of the common part") {
  CHECK(rc::check([] {
    const Region a = any_region(3), b = any_region(3), c = any_region(3);
    RC_ASSERT(intersect(a, b) == intersect(b, a));
    RC_ASSERT(intersect(intersect(a, b), c) == intersect(a, intersect(b, c)));
    RC_ASSERT(intersect(a, b).empty() || intersect(intersect(a, b), a) == intersect(a, b));
    RC_ASSERT(a.contains(intersect(a, b)));
    RC_ASSERT(b.contains(intersect(a, b)));
  }));
}

TEST_CASE("region: the hull is the smallest box that holds both") {
  CHECK(rc::check([] {
    const Region a = any_region(3), b = any_region(3), both = hull(a, b);
    RC_ASSERT(both.contains(a));
    RC_ASSERT(both.contains(b));
    if (a.empty() || b.empty()) return;
    RC_ASSERT(both == hull(b, a));
    // Every face touches one of the two, so no smaller box would do.
    for (std::size_t axis = 0; axis < 3; ++axis) {
      RC_ASSERT(both[axis].begin == a[axis].begin || both[axis].begin == b[axis].begin);
      RC_ASSERT(both[axis].end == a[axis].end || both[axis].end == b[axis].end);
    }
  }));
}

TEST_CASE("region: equal boxes hash alike") {
  CHECK(rc::check([] {
    const Region a = any_region(3);
    const Region copy = a;
    RC_ASSERT(std::hash<Region>{}(a) == std::hash<Region>{}(copy));
  }));
  CHECK(std::hash<Region>{}(Region{{0, 1}, {0, 2}}) != std::hash<Region>{}(Region{{0, 2}, {0, 1}}));
}

TEST_CASE("region: pieces of a box are its elements in row-major order") {
  CHECK(rc::check([] {
    const auto rank = *rc::gen::inRange<std::size_t>(1, 5);
    Region box;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      const std::int64_t begin = *rc::gen::inRange<std::int64_t>(0, 4);
      box.push_back({begin, begin + *rc::gen::inRange<std::int64_t>(1, 5)});
    }
    const auto begin = *rc::gen::inRange<std::int64_t>(0, box.volume());
    const Interval which{begin, *rc::gen::inRange<std::int64_t>(begin, box.volume() + 1)};
    const std::vector<Region> pieces = row_major_pieces(box, which);
    RC_ASSERT(pieces.size() < 2 * rank);
    std::int64_t next = which.begin;
    for (const Region& piece : pieces) {
      RC_ASSERT(box.contains(piece));
      Region at = piece;  // one element of it after the other
      for (std::int64_t e = 0; e < piece.volume(); ++e) {
        std::int64_t rest = e, number = 0;
        for (std::size_t axis = rank; axis-- > 0;) {
          at[axis].begin = piece[axis].begin + rest % piece[axis].size();
          rest /= piece[axis].size();
        }
        for (std::size_t axis = 0; axis < rank; ++axis) {
          number = number * box[axis].size() + at[axis].begin - box[axis].begin;
        }
        RC_ASSERT(number == next++);
      }
    }
    RC_ASSERT(next == which.end);
  }));
}
