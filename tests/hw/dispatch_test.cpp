#include "hw/dispatch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "core/errors.hpp"
#include "strategies/lower.hpp"
#include "tests/hw/virtual_clock.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

using namespace std::chrono_literals;

/// A backend that writes down what is issued, as a GPU's streams would see it.
class Recording {
 public:
  Recording(const ExecDag& dag, const hw::Dispatch& order) : dag_(dag), order_(order) {}

  void wait(std::int32_t lane, std::uint32_t turn) {
    REQUIRE(recorded_.contains(turn));  // else a stream would wait for nothing
    REQUIRE(order_.turns[turn].lane != lane);
    behind_[lane].push_back(order_.turns[turn].op);
  }
  void run(OpId op, std::span<const hw::Turn> turns) {
    std::vector<OpId>& before = before_[op];
    for (const hw::Turn& turn : turns) {
      const std::vector<OpId>& lane = behind_[turn.lane];
      before.insert(before.end(), lane.begin(), lane.end());
    }
    for (const hw::Turn& turn : turns) {
      behind_[turn.lane].push_back(op);
      if (dag_.kind(op) == OpKind::collective) collectives_[turn.lane].push_back(op);
    }
  }
  void record(std::uint32_t turn) { recorded_[turn] = true; }

  /// What must have ended before an operation starts, directly or not.
  [[nodiscard]] std::vector<std::vector<bool>> closure() const {
    std::vector<std::vector<bool>> all(dag_.size(), std::vector<bool>(dag_.size()));
    for (const auto& [op, before] : before_) {
      for (const OpId earlier : before) {
        all[op.index()][earlier.index()] = true;
        for (std::size_t i = 0; i < dag_.size(); ++i) {
          if (all[earlier.index()][i]) all[op.index()][i] = true;
        }
      }
    }
    return all;
  }
  [[nodiscard]] const std::map<std::int32_t, std::vector<OpId>>& collectives() const {
    return collectives_;
  }

 private:
  const ExecDag& dag_;
  const hw::Dispatch& order_;
  std::map<std::uint32_t, bool> recorded_;
  std::map<std::int32_t, std::vector<OpId>> behind_, collectives_;
  std::map<OpId, std::vector<OpId>> before_;
};

/// DAGs of all kinds of operations, with collectives over some of the devices.
ExecDag random_dag(std::uint64_t seed) {
  const std::vector<Network> networks = tiny_networks();
  const Network& network = networks[seed % networks.size()];
  const std::size_t gpus = 2 + seed % 4;
  return lower(network, star_of(gpus + 1, "10 GB/s", "1us"), random_plan(network, gpus, 8, seed));
}

/// The first pair of operations that the DAG orders and the lanes do not, or "".
std::string uncovered(const ExecDag& dag, const hw::Dispatch& order) {
  Recording recording(dag, order);
  hw::issue(dag, order, recording);
  const auto before = recording.closure();
  std::map<Queue, OpId> last;
  std::vector<Queue> occupied;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const auto check = [&](OpId source) {
      return source.index() == i || before[i][source.index()];
    };
    for (const OpId source : dag.predecessors(OpId{i})) {
      if (!check(source)) return "edge " + std::to_string(source.value) + "-" + std::to_string(i);
    }
    queues(dag, OpId{i}, occupied);
    for (const Queue& queue : occupied) {
      const auto found = last.find(queue);
      if (found != last.end() && !check(found->second)) return "queue of " + std::to_string(i);
      last[queue] = OpId{i};
    }
  }
  return {};
}

}  // namespace

TEST_CASE("dispatch: a kernel and what follows on its lane need no event, a transfer does") {
  const NotedDag noted = dag_of(
      "a: compute d0 3us; b: compute d0 2us after a; c: transfer d0->d1 1MB after b;"
      "d: compute d1 1us after c");
  const hw::Dispatch order = hw::dispatch(noted.dag);
  CHECK(order.lanes.size() == 3);  // two devices compute, one sends
  const auto waits = [&](std::string_view name) { return order.turns_of(noted[name])[0].waits; };
  CHECK(waits("b") == 0);
  CHECK(waits("c") == 1);
  CHECK(waits("d") == 1);
  CHECK(order.turns_of(noted["a"])[0].recorded == false);
  CHECK(order.turns_of(noted["b"])[0].recorded == true);
}

TEST_CASE("dispatch: a wait that an earlier one implies is not repeated") {
  const NotedDag noted = dag_of(
      "a: compute d0 1us; b: compute d0 1us; x: compute d1 1us after b; y: compute d1 1us after a");
  const hw::Dispatch order = hw::dispatch(noted.dag);
  CHECK(order.turns_of(noted["x"])[0].waits == 1);
  CHECK(order.turns_of(noted["y"])[0].waits == 0);
}

TEST_CASE("dispatch: waits and lanes cover every edge and every queue of random plans") {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const ExecDag dag = random_dag(seed);
    const hw::Dispatch order = hw::dispatch(dag);
    CAPTURE(seed);
    CHECK(uncovered(dag, order) == "");
    // Without its events the order would not be covered, so the check can fail.
    hw::Dispatch bare = order;
    for (hw::Turn& turn : bare.turns) turn.waits = 0;
    if (!order.waits.empty()) CHECK(uncovered(dag, bare) != "");
  }
}

TEST_CASE("dispatch: collectives meet in one order on all lanes that share two of them") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const ExecDag dag = random_dag(seed);
    const hw::Dispatch order = hw::dispatch(dag);
    Recording recording(dag, order);
    hw::issue(dag, order, recording);
    for (const auto& [lane, ops] : recording.collectives()) {
      CAPTURE(seed);
      CAPTURE(lane);
      CHECK(std::is_sorted(ops.begin(), ops.end()));
    }
  }
}

TEST_CASE("dispatch: on a virtual clock lanes keep the list scheduler's times exactly") {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const ExecDag dag = random_dag(seed);
    std::vector<Seconds> durations;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      // Whole microseconds: sums are exact in whatever order.
      durations.push_back(Seconds{static_cast<double>((i * 7919 + seed) % 97 + 1)});
    }
    CAPTURE(seed);
    CHECK(virtual_schedule(dag, durations) == list_schedule(dag, durations));
  }
}

}  // namespace parsim::testing
