#include "core/dag_algorithms.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "core/errors.hpp"
#include "tests/support/notation.hpp"

using namespace parsim;
using parsim::testing::dag_of;

namespace {

std::vector<OpId> ops(std::vector<std::int32_t> ids) {
  std::vector<OpId> all;
  for (const std::int32_t id : ids) all.emplace_back(id);
  return all;
}

std::vector<Seconds> seconds(std::vector<int> times) {
  std::vector<Seconds> all;
  for (const int time : times) all.emplace_back(time);
  return all;
}

/// A DAG of delays in which every operation waits for some earlier ones.
ExecDag any_dag() {
  ExecDag dag;
  const int size = *rc::gen::inRange(1, 12);
  for (int i = 0; i < size; ++i) {
    std::vector<OpId> after;
    for (int before = 0; before < i; ++before) {
      if (*rc::gen::inRange(0, 3) == 0) after.emplace_back(before);
    }
    dag.add(Delay{DeviceId{0}, Seconds{1}}, after);
  }
  return dag;
}

/// Longest chain that ends with `id`, by trying every one.
Seconds longest(const ExecDag& dag, const std::vector<Seconds>& durations, OpId id) {
  Seconds before{};
  for (const OpId p : dag.predecessors(id)) before = std::max(before, longest(dag, durations, p));
  return before + durations[id.index()];
}

}  // namespace

TEST_CASE("dag algorithms: the critical path of a diamond by hand") {
  //   a 2 -> b 3 -> d 1      2 + 3 + 1 = 6
  //     \--> c 5 --/         2 + 5 + 1 = 8
  const auto noted = dag_of(R"(
    a: compute d0 2 s
    b: compute d0 3 s after a
    c: compute d1 5 s after a
    d: compute d0 1 s after b c)");
  const CriticalPath path = critical_path(noted.dag, seconds({2, 3, 5, 1}));
  CHECK(path.length == Seconds{8});
  CHECK(path.ops == ops({0, 2, 3}));
}

TEST_CASE("dag algorithms: of equally long paths, the one through smaller ids") {
  const auto noted = dag_of(R"(
    a: compute d0 2 s
    b: compute d1 2 s
    c: compute d0 1 s after b a
    compute d1 3 s)");
  const CriticalPath path = critical_path(noted.dag, seconds({2, 2, 1, 3}));
  CHECK(path.length == Seconds{3});
  CHECK(path.ops == ops({0, 2}));
}

TEST_CASE("dag algorithms: the critical path of nothing, and of operations that take no time") {
  CHECK(critical_path(ExecDag{}, {}).ops.empty());
  const auto noted = dag_of("a: compute d0 0 s; b: compute d0 0 s after a");
  const CriticalPath path = critical_path(noted.dag, seconds({0, 0}));
  CHECK(path.length == Seconds{0});
  CHECK(path.ops == ops({0}));
  CHECK_THROWS_AS(static_cast<void>(critical_path(noted.dag, {})), BrokenInvariant);
}

TEST_CASE("dag algorithms: no chain is longer than the critical path, and it is one") {
  CHECK(rc::check([] {
    const ExecDag dag = any_dag();
    std::vector<Seconds> durations;
    for (std::size_t i = 0; i < dag.size(); ++i) durations.emplace_back(*rc::gen::inRange(0, 5));
    Seconds best{};
    for (std::size_t i = 0; i < dag.size(); ++i) {
      best = std::max(best, longest(dag, durations, OpId{i}));
    }
    const CriticalPath path = critical_path(dag, durations);
    RC_ASSERT(path.length == best);
    Seconds sum{};
    for (std::size_t k = 0; k < path.ops.size(); ++k) {
      sum += durations[path.ops[k].index()];
      if (k == 0) continue;
      const auto before = dag.predecessors(path.ops[k]);
      RC_ASSERT(std::find(before.begin(), before.end(), path.ops[k - 1]) != before.end());
    }
    RC_ASSERT(sum == best);
  }));
}
