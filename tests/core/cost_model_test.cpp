#include "core/cost_model.hpp"

#include <doctest/doctest.h>

#include "tests/support/notation.hpp"

using namespace parsim;

namespace {

/// Says what it was asked: one second for each byte, and for each sample of a part.
class Echo : public CostModel {
 public:
  Cost compute(const Network&, LayerId layer, const Part& part, Pass pass, DeviceId,
               Precision precision) const override {
    CHECK(layer == LayerId{1});
    CHECK(pass == Pass::backward);
    CHECK(precision == Precision::fp16);
    return {Seconds(static_cast<double>(part.out[0].size())), Origin::measured};
  }
  Cost memory(DeviceId device, Bytes touched) const override {
    CHECK(device == DeviceId{3});
    return {Seconds(static_cast<double>(touched.value)), Origin::scaled};
  }
  Seconds transfer(DeviceId, DeviceId, Bytes) const override { return Seconds{-1}; }
  Seconds collective(CollectiveKind, std::span<const DeviceId>, Bytes) const override {
    return Seconds{-1};
  }
  std::string summary() const override { return "echo"; }
};

ExecDag dag_with(Optimizer optimizer, Precision reduce = Precision::fp32) {
  return ExecDag(testing::network_of("x: vector 5; dense 4; loss"), 8, Precision::fp16, optimizer,
                 reduce);
}

/// Weights and gradients of the dense layer's 4 x 5 matrix.
Slice weights(ExecDag& dag) {
  return {dag.intern(Tensor{Tensor::Kind::parameter, 0, -1}), Role::weight, 0,
          dag.intern(Region{{0, 4}, {0, 5}})};
}

}  // namespace

TEST_CASE("cost model: a kernel costs what the model says of its part") {
  ExecDag dag = dag_with(Optimizer::sgd, Precision::fp16);
  const WorkId work = dag.intern(Work{LayerId{1}, dag.intern(Region{{2, 8}, {0, 4}}), 0, 0, 0});
  const OpId id = dag.add(Compute{work, Pass::backward, DeviceId{3}, 0}, {});
  const Cost cost = device_time(dag, id, Echo{});
  CHECK(cost.time == Seconds{6});
  CHECK(cost.origin == Origin::measured);
}

TEST_CASE("cost model: a kernel of fp16 that adds to fp32 sums touches two more bytes twice") {
  // 24 weights and biases, read and written in 4 instead of 2 bytes; one second a byte, in addition
  // to the six seconds of six samples. Sums of fp16 take no time of their own.
  for (const auto& [reduce, more] : {std::pair{Precision::fp32, 2 * 2 * 24},
                                     std::pair{Precision::bf16, 0},
                                     {Precision::fp16, 0}}) {
    ExecDag dag = dag_with(Optimizer::sgd, reduce);
    const WorkId work = dag.intern(Work{LayerId{1}, dag.intern(Region{{2, 8}, {0, 4}}), 0, 0, 0});
    const OpId id = dag.add(Compute{work, Pass::backward, DeviceId{3}, 0}, {});
    CHECK(device_time(dag, id, Echo{}).time == Seconds{6 + more});
  }
  const Network network = testing::network_of("x: vector 5; dense 4; loss");
  const Part part{Region{{2, 8}, {0, 4}}, {}};
  const auto traffic = [&](std::size_t layer, Pass pass) {
    return sum_traffic(network, LayerId{layer}, part, pass, Precision::bf16, Precision::fp32).value;
  };
  CHECK(traffic(1, Pass::backward_weights) == 96);
  CHECK(traffic(1, Pass::backward_data) == 0);
  CHECK(traffic(1, Pass::forward) == 0);
  CHECK(traffic(2, Pass::backward) == 0);  // a loss has no parameters
}

TEST_CASE("cost model: an update reads gradients in the precision of their sums") {
  // 20 numbers: weight read and written in 4 bytes, gradient in 2.
  ExecDag dag = dag_with(Optimizer::sgd, Precision::bf16);
  const OpId id = dag.add(Update{DeviceId{3}, weights(dag)}, {});
  CHECK(device_time(dag, id, Echo{}).time == Seconds{20 * (4 + 4 + 2)});
}

TEST_CASE("cost model: an update touches weight, gradient and states in four bytes each") {
  // 20 numbers of 4 bytes: weight read and written, gradient read, each state read and written.
  for (const auto& [optimizer, accesses] :
       {std::pair{Optimizer::sgd, 3}, {Optimizer::momentum, 5}, {Optimizer::adam, 7}}) {
    ExecDag dag = dag_with(optimizer);
    const OpId id = dag.add(Update{DeviceId{3}, weights(dag)}, {});
    const Cost cost = device_time(dag, id, Echo{});
    CHECK(cost.time == Seconds(20 * 4 * accesses));
    CHECK(cost.origin == Origin::scaled);
  }
}

TEST_CASE("cost model: a local operation touches the bytes it reads and writes") {
  // 20 numbers of 2 bytes (fp16): a copy reads and writes, an addition reads twice, dropping
  // does neither.
  for (const auto& [kind, accesses] :
       {std::pair{LocalKind::copy, 2}, {LocalKind::add, 3}, {LocalKind::drop, 0}}) {
    ExecDag dag = dag_with(Optimizer::sgd);
    const Slice slice = weights(dag);
    const OpId id = dag.add(Local{kind, DeviceId{3}, slice, slice}, {});
    CHECK(device_time(dag, id, Echo{}).time == Seconds(20 * 2 * accesses));
  }
}

TEST_CASE("cost model: a delay takes its time and communication is not the device's") {
  const auto noted =
      testing::dag_of("a: compute d0 3us; b: transfer d0->d1 1MB; c: all-reduce d0,d1 1MB");
  CHECK(device_time(noted.dag, noted["a"], Echo{}).time == Seconds{3e-6});
  CHECK(device_time(noted.dag, noted["b"], Echo{}).time == Seconds{0});
  CHECK(device_time(noted.dag, noted["c"], Echo{}).time == Seconds{0});
}

TEST_CASE("cost model: origins have words") {
  for (std::size_t i = 0; i < origins.size(); ++i) CHECK(origins[i] == static_cast<Origin>(i));
  CHECK(to_text(Origin::measured) == "measured");
  CHECK(to_text(Origin::scaled) == "scaled");
  CHECK(to_text(Origin::published) == "published");
  CHECK(to_text(Origin::modelled) == "modelled");
  CHECK(to_text(Origin::guessed) == "guessed");
}
