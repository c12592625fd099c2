#include "hw/dispatch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "core/errors.hpp"
#include "lowering/lower.hpp"
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

  void wait(std::int32_t stream, std::uint32_t stream_op) {
    REQUIRE(recorded_.contains(stream_op));  // else a stream would wait for nothing
    REQUIRE(order_.stream_ops[stream_op].stream != stream);
    behind_[stream].push_back(order_.stream_ops[stream_op].op);
  }
  void run(OpId op, std::span<const hw::StreamOp> stream_ops) {
    std::vector<OpId>& before = before_[op];
    for (const hw::StreamOp& stream_op : stream_ops) {
      const std::vector<OpId>& stream = behind_[stream_op.stream];
      before.insert(before.end(), stream.begin(), stream.end());
    }
    for (const hw::StreamOp& stream_op : stream_ops) {
      behind_[stream_op.stream].push_back(op);
      if (dag_.kind(op) == OpKind::collective) collectives_[stream_op.stream].push_back(op);
    }
  }
  void record(std::uint32_t stream_op) { recorded_[stream_op] = true; }

  [[nodiscard]] const std::map<OpId, std::vector<OpId>>& before() const { return before_; }
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
  return lowering::lower(network, star_of(gpus + 1, "10 GB/s", "1us"),
                         with_split_states(random_plan(network, gpus, 8, seed), seed));
}

/// What must have ended before an operation starts, directly or not, where each of `orders` is
/// issued by a process of its own and an operation begins when all that take part have come to it.
std::vector<std::vector<bool>> closure(const ExecDag& dag,
                                       const std::vector<hw::Dispatch>& orders) {
  std::vector<std::vector<bool>> all(dag.size(), std::vector<bool>(dag.size()));
  std::vector<std::vector<OpId>> direct(dag.size());
  for (const hw::Dispatch& order : orders) {
    Recording recording(dag, order);
    hw::issue(dag, order, recording);
    for (const auto& [op, before] : recording.before()) {
      direct[op.index()].insert(direct[op.index()].end(), before.begin(), before.end());
    }
  }
  for (std::size_t op = 0; op < dag.size(); ++op) {
    for (const OpId earlier : direct[op]) {
      all[op][earlier.index()] = true;
      for (std::size_t i = 0; i < dag.size(); ++i) {
        if (all[earlier.index()][i]) all[op][i] = true;
      }
    }
  }
  return all;
}

/// The first pair of operations that the DAG orders and the streams do not, or "".
std::string uncovered(const ExecDag& dag, const std::vector<hw::Dispatch>& orders) {
  const auto before = closure(dag, orders);
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

TEST_CASE("dispatch: a kernel and what follows on its stream need no event, a transfer does") {
  const NotedDag noted = dag_of(
      "a: compute d0 3us; b: compute d0 2us after a; c: transfer d0->d1 1MB after b;"
      "d: compute d1 1us after c");
  const hw::Dispatch order = hw::dispatch(noted.dag);
  CHECK(order.streams.size() == 3);  // two devices compute, one sends
  const auto waits = [&](std::string_view name) {
    return order.stream_ops_of(noted[name])[0].waits;
  };
  CHECK(waits("b") == 0);
  CHECK(waits("c") == 1);
  CHECK(waits("d") == 1);
  CHECK(order.stream_ops_of(noted["a"])[0].recorded == false);
  CHECK(order.stream_ops_of(noted["b"])[0].recorded == true);
}

TEST_CASE("dispatch: a wait that an earlier one implies is not repeated") {
  const NotedDag noted = dag_of(
      "a: compute d0 1us; b: compute d0 1us; x: compute d1 1us after b; y: compute d1 1us after a");
  const hw::Dispatch order = hw::dispatch(noted.dag);
  CHECK(order.stream_ops_of(noted["x"])[0].waits == 1);
  CHECK(order.stream_ops_of(noted["y"])[0].waits == 0);
}

TEST_CASE("dispatch: waits and streams cover every edge and every queue of random plans") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const ExecDag dag = random_dag(seed);
    const hw::Dispatch order = hw::dispatch(dag);
    CAPTURE(seed);
    CHECK(uncovered(dag, {order}) == "");
    if (seed < 4) CHECK(uncovered(dag, {hw::dispatch(dag, hw::TransferEnds::both)}) == "");
    // Without its events the order would not be covered, so the check can fail.
    hw::Dispatch bare = order;
    for (hw::StreamOp& stream_op : bare.stream_ops) stream_op.waits = 0;
    if (!order.waits.empty()) CHECK(uncovered(dag, {bare}) != "");
  }
}

TEST_CASE("dispatch: processes with a device each cover every edge and queue among them") {
  for (std::uint64_t seed = 16; seed < 24; ++seed) {
    const ExecDag dag = random_dag(seed);
    std::vector<hw::Dispatch> own;
    std::size_t stream_ops = 0;
    for (std::size_t d = 0; d < 2 + seed % 4 + 1; ++d) {
      own.push_back(hw::dispatch(dag, DeviceId{d}));
      stream_ops += own.back().stream_ops.size();
      for (const Queue& stream : own.back().streams) CHECK(stream.device == DeviceId{d});
    }
    CAPTURE(seed);
    CHECK(stream_ops >= dag.size());
    CHECK(uncovered(dag, own) == "");
    for (hw::Dispatch& order : own) {
      for (hw::StreamOp& stream_op : order.stream_ops) stream_op.waits = 0;
    }
    CHECK(uncovered(dag, own) != "");
  }
}

TEST_CASE("dispatch: a process is not told what happens on devices that are not its own") {
  const NotedDag noted = dag_of(
      "a: compute d0 1us; b: transfer d0->d1 1MB after a; c: compute d1 1us after b;"
      "d: compute d0 1us after a");
  const hw::Dispatch sender = hw::dispatch(noted.dag, DeviceId{0});
  const hw::Dispatch receiver = hw::dispatch(noted.dag, DeviceId{1});
  CHECK(sender.stream_ops.size() == 3);
  CHECK(receiver.stream_ops.size() == 2);
  CHECK(sender.stream_ops_of(noted["b"]).size() == 1);
  CHECK(receiver.stream_ops_of(noted["b"]).size() == 1);
  CHECK(receiver.stream_ops_of(noted["a"]).empty());
  CHECK(receiver.stream_ops_of(noted["c"])[0].waits == 1);  // for its own end of the transfer
  const NotedDag blind = dag_of("a: compute d0 1us; b: compute d1 1us after a");
  CHECK_THROWS_WITH_AS((void)hw::dispatch(blind.dag, DeviceId{1}),
                       doctest::Contains("operation 1 comes after 0, which is other devices' "),
                       InputError);
}

TEST_CASE("dispatch: collectives meet in one order on all streams that share two of them") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const ExecDag dag = random_dag(seed);
    const hw::Dispatch order = hw::dispatch(dag);
    Recording recording(dag, order);
    hw::issue(dag, order, recording);
    for (const auto& [stream, ops] : recording.collectives()) {
      CAPTURE(seed);
      CAPTURE(stream);
      CHECK(std::is_sorted(ops.begin(), ops.end()));
    }
  }
}

TEST_CASE("dispatch: with both ends, the least operation stands first wherever it is awaited") {
  int both = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const ExecDag dag = random_dag(seed);
    const hw::Dispatch order = hw::dispatch(dag, hw::TransferEnds::both);
    std::map<std::int32_t, OpId> last;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const auto stream_ops = order.stream_ops_of(OpId{i});
      // Every device that takes part waits on a stream of its own.
      std::vector<DeviceId> devices;
      for (const hw::StreamOp& stream_op : stream_ops) {
        devices.push_back(order.streams[static_cast<std::size_t>(stream_op.stream)].device);
        const auto before = last.find(stream_op.stream);
        if (before != last.end()) CHECK(before->second < stream_op.op);
        last.insert_or_assign(stream_op.stream, stream_op.op);
        for (const std::uint32_t wait : order.waits_of(stream_op)) {
          CHECK(order.stream_ops[wait].op < stream_op.op);
        }
      }
      CHECK(devices == hw::devices_of(dag, OpId{i}));
      both += dag.kind(OpId{i}) == OpKind::transfer && devices.size() == 2 ? 1 : 0;
    }
  }
  CHECK(both > 100);
}

}  // namespace parsim::testing
