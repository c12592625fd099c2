#include "lowering/link_queue.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

using parsim::lowering::LinkQueue;
using parsim::lowering::MessageQueue;

TEST_CASE("message queue: a message that is ready earlier takes a gap it fits into, by hand") {
  MessageQueue link;
  CHECK(link.carry(0, 1) == 1);
  CHECK(link.carry(5, 1) == 6);  // leaves 1 to 5
  CHECK(link.carry(2, 1) == 3);  // in it; 3 to 5 are left
  CHECK(link.carry(2, 1.5) == 4.5);
  CHECK(link.carry(2, 1) == 7);  // does not fit: after the last one
  CHECK(link.carry(6.5, 1) == 8);
}

TEST_CASE("message queue: messages wait until they are ready and never overlap") {
  std::mt19937_64 random(4);
  const auto below = [&](int end) {
    return static_cast<double>(random() % static_cast<unsigned>(end));
  };
  for (int round = 0; round < 50; ++round) {
    MessageQueue link;
    std::vector<std::pair<double, double>> carried;
    double in_order = 0;
    for (int message = 0; message < 60; ++message) {
      const double start = std::max(0.0, message + below(20) - 10), seconds = 0.25 * below(8);
      const double end = link.carry(start, seconds);
      CHECK(end - seconds >= start);
      in_order = std::max(in_order, start) + seconds;
      CHECK(end <= in_order);  // gaps delay nothing
      if (seconds > 0) carried.emplace_back(end - seconds, end);
    }
    std::sort(carried.begin(), carried.end());
    for (std::size_t i = 1; i < carried.size(); ++i) {
      CHECK(carried[i - 1].second <= carried[i].first);
    }
  }
}

TEST_CASE("message queue: the same as with a list of all gaps, as long as there are few enough") {
  constexpr std::size_t some = 200;
  static_assert(some < MessageQueue::remembered);
  struct Unlimited {
    double busy = 0;
    std::vector<std::pair<double, double>> gaps;
    double carry(double start, double seconds) {
      for (auto& [begin, end] : gaps) {
        const double at = std::max(start, begin);
        if (start < end && at + seconds <= end) return begin = at + seconds;
      }
      if (start > busy) gaps.emplace_back(busy, start);
      return busy = std::max(busy, start) + seconds;
    }
  };
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    MessageQueue link;
    Unlimited all;
    // Every message may be ready long before the one before it, in any gap so far.
    for (std::size_t message = 0; all.gaps.size() < some; ++message) {
      const auto drawn = static_cast<double>(random() % (message + 1));
      const double start = random() % 2 == 0 ? static_cast<double>(message) : drawn;
      const double seconds = 0.125 * static_cast<double>(1 + random() % 8);
      CHECK(link.carry(start, seconds) == all.carry(start, seconds));
    }
  }
}

TEST_CASE("message queue: the same as by looking at each of the gaps that are remembered") {
  struct OneByOne {
    double busy = 0;
    std::vector<std::pair<double, double>> gaps;
    double carry(double start, double seconds) {
      const auto known = std::min(gaps.size(), MessageQueue::remembered);
      for (auto gap = gaps.end() - static_cast<std::ptrdiff_t>(known); gap != gaps.end(); ++gap) {
        const double at = std::max(start, gap->first);
        if (start + seconds <= gap->second && at + seconds <= gap->second) {
          return gap->first = at + seconds;
        }
      }
      if (start > busy) gaps.emplace_back(busy, start);
      return busy = std::max(busy, start) + seconds;
    }
  };
  std::mt19937_64 random(7);
  for (const std::uint64_t farthest : {3U, 200U, 100'000U}) {
    MessageQueue link;
    OneByOne all;
    std::size_t different = 0;
    // Gaps of 0.3 to 0.9 that fill up, so that most of those that end late enough are too short.
    for (std::uint64_t message = 1; message <= 12'000; ++message) {
      const auto now = static_cast<double>(message);
      const bool late = random() % 4 == 0;
      const double start =
          late ? std::max(0.0, now - 0.1 * static_cast<double>(random() % farthest)) : now;
      const double seconds = 0.1 * static_cast<double>(late ? 1 + random() % 9 : 1 + random() % 7);
      if (link.carry(start, seconds) != all.carry(start, seconds)) ++different;
    }
    CHECK(different == 0);
    CHECK(all.gaps.size() > MessageQueue::remembered);
  }
}

TEST_CASE("link queue: a message and the sums that it meets get equal parts, by hand") {
  LinkQueue link;
  CHECK(link.carry(0, 1) == 1);
  double sum = 1;
  for (int i = 0; i < 10; ++i) sum = link.carry_sum(sum, 2);  // of one group
  CHECK(sum == 21);
  CHECK(link.carry(2, 1) == 4);  // with half of the link
  CHECK(link.carry(2, 1) == 5);  // after the one before, which had the other half
  CHECK(link.busy() == 23);      // when the sums have really ended
  CHECK(link.carry_sum(sum, 2) == 25);
  CHECK(link.carry(30, 1) == 31);  // nothing is left to meet
  link.clear();
  CHECK(link.busy() == 0);
  for (int group = 1; group <= 3; ++group) CHECK(link.carry_sum(0, 2) == 2 * group);
  for (int group = 1; group <= 3; ++group) link.carry_sum(2 * group, 2);
  CHECK(link.carry(3, 1) == 3 + 4);  // with a quarter of it
  link.clear();
  CHECK(link.carry(0, 1) == 1);
  CHECK(link.carry_sum(0, 1) == 2);
}

TEST_CASE("link queue: no message is later than in order, nor waits for more than its share") {
  std::mt19937_64 random(6);
  for (int round = 0; round < 50; ++round) {
    LinkQueue link;
    MessageQueue all, awaited;
    int sums = 0;
    for (int message = 0; message < 60; ++message) {
      const double start = 0.25 * static_cast<double>(random() % 100);
      const double seconds = 0.25 * static_cast<double>(random() % 8);
      const bool sum = random() % 3 == 0;
      const double in_order = all.carry(start, seconds);
      CHECK(all.busy() >= in_order);
      if (sum) {
        CHECK(link.carry_sum(start, seconds) == in_order);
        ++sums;
      } else {
        const double alone = awaited.carry(start, seconds);
        const double end = link.carry(start, seconds);
        CHECK(end >= start + seconds);
        CHECK(end <= in_order);
        CHECK(end <= alone + sums * seconds);
      }
      CHECK(link.busy() == all.busy());
    }
  }
}
