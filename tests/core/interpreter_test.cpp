// The interpreter on DAGs built by hand: it must see what is missing, not only what is right.
#include "tests/support/interpreter.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/errors.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/reference.hpp"

namespace parsim::testing {
namespace {

/// A dense layer and its loss, data parallel over two devices with a sample each.
struct TwoDevices {
  Network network = network_of("vector 3; dense 2; loss");
  ExecDag dag{network, 2, Precision::fp32, Optimizer::sgd};
  LayerId dense{std::size_t{1}}, loss{std::size_t{2}};
  TensorId bucket = dag.add_bucket({{ParameterId{0}, dag.intern(Region{{0, 2}, {0, 3}})},
                                    {ParameterId{1}, dag.intern(Region{{0, 2}})}});
  Slice gradients{bucket, Role::weight_gradient, 0, {}};
  Slice weights{bucket, Role::weight, 0, {}};
  std::vector<OpId> last;  ///< weight gradient kernel of each device

  OpId kernel(LayerId layer, std::int32_t device, Pass pass, const std::vector<OpId>& after) {
    Region out{{device, device + 1}};
    if (layer == dense) out.push_back({0, 2});
    const WorkId work = dag.intern(Work{layer, dag.intern(out), 0, 0, 0});
    return dag.add(Compute{work, pass, DeviceId{device}, 0}, after);
  }
  void backward_on_both() {
    for (const std::int32_t device : {0, 1}) {
      const OpId forward = kernel(dense, device, Pass::forward, {});
      const OpId start = kernel(loss, device, Pass::backward, {forward});
      last.push_back(kernel(dense, device, Pass::backward_weights, {start}));
    }
  }
  OpId all_reduce(const std::vector<OpId>& after) {
    const GroupId both = dag.intern(std::vector{DeviceId{0}, DeviceId{1}});
    return dag.add(Collective{CollectiveKind::all_reduce, both, gradients, gradients}, {},
                   Stream::gradient, after);
  }
  void updates(const std::vector<OpId>& after) {
    dag.add(Update{DeviceId{0}, weights}, after);
    dag.add(Update{DeviceId{1}, weights}, after);
  }
};

StoreKey weight_of(std::int32_t device) {
  return {DeviceId{device}, {Tensor::Kind::parameter, 0, -1}, Role::weight, 0};
}

}  // namespace

TEST_CASE("interpreter: two devices that sum their gradients end with the reference's weights") {
  TwoDevices two;
  two.backward_on_both();
  two.updates({two.all_reduce(two.last)});
  const Step reference = train_step(two.network, 2, {}, initial_parameters(two.network));
  Memory memory = interpret(two.dag, issue_order(two.dag));
  for (const std::int32_t device : {0, 1}) {
    const Block weights = memory.read(weight_of(device), Region{{0, 2}, {0, 3}});
    CHECK(relative_error(weights, reference.weights[0]) < 1e-12);
  }
  CHECK(races(two.dag, memory).empty());
}

TEST_CASE("interpreter: without the sum the weights are wrong") {
  TwoDevices two;
  two.backward_on_both();
  two.updates(two.last);
  const Step reference = train_step(two.network, 2, {}, initial_parameters(two.network));
  Memory memory = interpret(two.dag, issue_order(two.dag));
  const Block weights = memory.read(weight_of(0), Region{{0, 2}, {0, 3}});
  CHECK(relative_error(weights, reference.weights[0]) > 1e-3);
}

TEST_CASE("interpreter: an update that does not wait for the sum is a race") {
  TwoDevices two;
  two.backward_on_both();
  two.all_reduce(two.last);
  two.updates({});
  const std::vector<std::string> found = races(two.dag, interpret(two.dag, issue_order(two.dag)));
  // Each update reads two gradients that the sum may be writing.
  REQUIRE(found.size() == 4);
  CHECK(found[0] ==
        "op 6 (all-reduce to weight gradient of 'bucket 0', micro-batch 0, on device 0 and others) "
        "and op 7 (update of weight of 'bucket 0', micro-batch 0, on device 0) touch weight "
        "gradient of 'dense1.weights', micro-batch 0, on device 0 over [0:2, 0:3] and [0:2, 0:3] "
        "in no order");
}

TEST_CASE("interpreter: a device that reads what never reached it is found") {
  TwoDevices two;
  two.kernel(two.dense, 0, Pass::forward, {});
  const WorkId work = two.dag.intern(Work{two.loss, two.dag.intern(Region{{0, 1}}), 0, 0, 0});
  two.dag.add(Compute{work, Pass::forward, DeviceId{1}, 0}, std::vector<OpId>{});
  CHECK_THROWS_WITH_AS(
      (void)interpret(two.dag, issue_order(two.dag)),
      "op 1 (forward of 'loss2' [0:1] m0 on device 1) reads activation of 'dense1', micro-batch 0, "
      "on device 1 over [0:1, 0:2], which was never written there",
      BrokenInvariant);
}

TEST_CASE("interpreter: a kernel that does not wait for its transfer is found") {
  for (const bool waits : {true, false}) {
    TwoDevices two;
    const OpId forward = two.kernel(two.dense, 0, Pass::forward, {});
    const TensorId out = two.dag.intern(Tensor{Tensor::Kind::output, two.dense.value, -1});
    const Slice slice{out, Role::activation, 0, two.dag.intern(Region{{0, 1}, {0, 2}})};
    const OpId moved = two.dag.add(Transfer{DeviceId{0}, DeviceId{1}, slice, slice, false},
                                   Stream::tensor, std::vector<OpId>{forward});
    const WorkId work = two.dag.intern(Work{two.loss, two.dag.intern(Region{{0, 1}}), 0, 0, 0});
    two.dag.add(Compute{work, Pass::forward, DeviceId{1}, 0},
                waits ? std::vector<OpId>{moved} : std::vector<OpId>{});
    const auto found = races(two.dag, interpret(two.dag, issue_order(two.dag)));
    CHECK(found.size() == (waits ? 0 : 1));
  }
}

TEST_CASE("interpreter: random orders keep dependencies and queues, and differ") {
  TwoDevices two;
  two.backward_on_both();
  two.updates({two.all_reduce(two.last)});
  const std::vector<OpId> first = random_order(two.dag, 1);
  bool differs = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<OpId> order = random_order(two.dag, seed);
    differs = differs || order != first;
    std::vector<std::size_t> position(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) position[order[i].index()] = i;
    for (const OpId id : order) {
      for (const OpId before : two.dag.predecessors(id)) {
        CHECK(position[before.index()] < position[id.index()]);
      }
    }
    // The kernels of one device share a queue.
    CHECK(std::is_sorted(position.begin(), position.begin() + 3));
    CHECK(std::is_sorted(position.begin() + 3, position.begin() + 6));
  }
  CHECK(differs);
}

}  // namespace parsim::testing
