#include "core/exec_dag.hpp"

#include <doctest/doctest.h>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "tests/support/notation.hpp"

using namespace parsim;
using parsim::testing::dag_of;
using parsim::testing::network_of;

namespace {

ExecDag dense_dag(Precision precision = Precision::fp32) {
  return ExecDag(network_of("x: vector 6; fc: dense 4; loss: loss"), 8, precision, Optimizer::sgd);
}

Slice output_slice(ExecDag& dag, const Region& region) {
  return {dag.intern(Tensor{Tensor::Kind::output, 1, -1}), Role::activation, 0, dag.intern(region)};
}

Shares shares(ExecDag& dag, const std::vector<Region>& regions,
              const std::vector<Region>& needs = {}) {
  Shares all;
  for (const Region& region : regions) all.regions.push_back(dag.intern(region));
  for (const Region& region : needs) all.needs.push_back(dag.intern(region));
  return all;
}

}  // namespace

TEST_CASE("exec dag: equal entries are interned once") {
  ExecDag dag;
  const RegionId a = dag.intern(Region{{0, 4}});
  const RegionId b = dag.intern(Region{{0, 5}});
  CHECK(a == RegionId{0});
  CHECK(b == RegionId{1});
  CHECK(dag.intern(Region{{0, 4}}) == a);
  CHECK(dag.region(b) == Region{{0, 5}});
  const std::vector group{DeviceId{2}, DeviceId{0}};
  CHECK(dag.intern(group) == dag.intern(group));
  CHECK(dag.group(dag.intern(group)) == group);
  // The order of a group matters: member i holds share i.
  CHECK(dag.intern(std::vector{DeviceId{0}, DeviceId{2}}) != dag.intern(group));
}

TEST_CASE("exec dag: equal works that stand close together are one") {
  ExecDag dag = dense_dag();
  const RegionId all = dag.intern(Region{{0, 8}, {0, 4}});
  const Work plain{LayerId{1}, all, 0, 0, 0}, summed{LayerId{1}, all, 2, 6, 1};
  CHECK(dag.intern(plain) == WorkId{0});
  CHECK(dag.intern(summed) == WorkId{1});
  CHECK(dag.intern(plain) == WorkId{0});
  CHECK(dag.intern(summed) == WorkId{1});
  CHECK(dag.work(WorkId{0}) == plain);
  CHECK(dag.work(WorkId{1}) == summed);
}

TEST_CASE("exec dag: gradients of weights travel in the precision of their sums") {
  // 24 weights of a dense layer, in bf16: gradients take 4 bytes each if they are summed in fp32.
  for (const auto& [reduce, each] :
       {std::pair{Precision::fp32, 4}, {Precision::fp16, 2}, {Precision::bf16, 2}}) {
    ExecDag dag(network_of("x: vector 6; fc: dense 4; loss: loss"), 8, Precision::bf16,
                Optimizer::sgd, reduce);
    const RegionId all = dag.intern(Region{{0, 4}, {0, 6}});
    const TensorId tensor = dag.intern(Tensor{Tensor::Kind::parameter, 0, -1});
    const Slice gradient{tensor, Role::weight_gradient, 0, all},
        weight{tensor, Role::weight, 0, all};
    const GroupId pair = dag.intern(std::vector{DeviceId{0}, DeviceId{1}});
    const auto payload = [&](OpId id) { return dag.payload(id).value; };
    CHECK(payload(dag.add(Collective{CollectiveKind::all_reduce, pair, gradient, gradient}, {},
                          Stream::gradient, {})) == 24 * each);
    CHECK(payload(dag.add(Collective{CollectiveKind::broadcast, pair, weight, weight}, {},
                          Stream::gradient, {})) == 24 * 2);
    CHECK(payload(dag.add(Transfer{DeviceId{0}, DeviceId{1}, gradient, gradient, true},
                          Stream::gradient, {})) == 24 * each);
    CHECK(payload(dag.add(Local{LocalKind::add, DeviceId{0}, gradient, gradient}, {})) ==
          3 * 24 * each);
  }
  CHECK(dense_dag(Precision::bf16).reduce_precision == Precision::bf16);
  CHECK(dense_dag(Precision::tf32).reduce_precision == Precision::fp32);
}

TEST_CASE("exec dag: operations are read as they were added") {
  ExecDag dag = dense_dag();
  const Slice slice = output_slice(dag, {{0, 8}, {0, 4}});
  const WorkId work = dag.intern(Work{LayerId{1}, slice.region, 0, 3, 1});
  const OpId a = dag.add(Compute{work, Pass::backward_data, DeviceId{1}, 5}, {});
  const OpId b = dag.add(Transfer{DeviceId{1}, DeviceId{0}, slice, slice, true}, Stream::tensor,
                         std::vector{a});
  const OpId c = dag.add(Delay{DeviceId{1}, Seconds{3e-6}}, std::vector{a, b});
  CHECK(dag.size() == 3);
  const Compute compute = std::get<Compute>(dag.op(a));
  CHECK(compute.work == work);
  CHECK(compute.pass == Pass::backward_data);
  CHECK(compute.device == DeviceId{1});
  CHECK(compute.micro_batch == 5);
  CHECK(dag.part(work) == Part{{{0, 8}, {0, 4}}, {0, 3}});
  const Transfer transfer = std::get<Transfer>(dag.op(b));
  CHECK(transfer.from == DeviceId{1});
  CHECK(transfer.to == DeviceId{0});
  CHECK(transfer.slice == slice);
  CHECK(transfer.add);
  CHECK(dag.stream(b) == Stream::tensor);
  CHECK(std::get<Delay>(dag.op(c)).time == Seconds{3e-6});
  CHECK(dag.predecessors(a).empty());
  CHECK(std::vector(dag.predecessors(c).begin(), dag.predecessors(c).end()) == std::vector{a, b});
}

TEST_CASE("exec dag: an operation waits only for earlier ones") {
  ExecDag dag;
  CHECK_THROWS_AS(dag.add(Delay{DeviceId{0}, Seconds{1}}, std::vector{OpId{0}}), BrokenInvariant);
  CHECK_THROWS_AS(dag.add(Delay{DeviceId{0}, Seconds{1}}, std::vector{OpId{}}), BrokenInvariant);
  CHECK_THROWS_AS(dag.add(Compute{WorkId{0}, Pass::forward, DeviceId{0}, 0}, {}), BrokenInvariant);
}

TEST_CASE("exec dag: payloads follow from the slices and the precision") {
  for (const auto& [precision, bytes] :
       {std::pair{Precision::fp32, 4}, {Precision::tf32, 4}, {Precision::bf16, 2}}) {
    ExecDag dag = dense_dag(precision);
    const Slice slice = output_slice(dag, {{2, 8}, {0, 4}});
    const OpId id =
        dag.add(Transfer{DeviceId{0}, DeviceId{1}, slice, slice, false}, Stream::tensor, {});
    CHECK(dag.payload(id) == Bytes{6 * 4 * bytes});
  }
}

TEST_CASE("exec dag: a bucket holds the sum of its regions") {
  ExecDag dag = dense_dag();
  const TensorId bucket = dag.add_bucket({{ParameterId{0}, dag.intern(Region{{0, 4}, {0, 6}})},
                                          {ParameterId{1}, dag.intern(Region{{1, 3}})}});
  const Slice slice{bucket, Role::weight_gradient, 0, {}};
  CHECK(dag.elements(slice) == 26);
  const GroupId group = dag.intern(std::vector{DeviceId{0}, DeviceId{1}, DeviceId{2}});
  const OpId id = dag.add(Collective{CollectiveKind::all_reduce, group, slice, slice}, {},
                          Stream::gradient, {});
  CHECK(dag.payload(id) == Bytes{104});
  CHECK(bytes_received(dag, id) == Bytes{2 * 2 * 104});
}

TEST_CASE("exec dag: bytes and messages of every kind of communication by hand") {
  ExecDag dag = dense_dag();
  const Slice all = output_slice(dag, {{0, 8}, {0, 4}});  // 128 bytes
  const GroupId group = dag.intern(std::vector{DeviceId{0}, DeviceId{1}, DeviceId{2}});
  const Shares thirds = shares(dag, {{{0, 4}, {0, 4}}, {{4, 6}, {0, 4}}, {{6, 8}, {0, 4}}});
  const auto added = [&](CollectiveKind kind, const Shares& used) {
    return dag.add(Collective{kind, group, all, all}, used, Stream::tensor, {});
  };
  // n = 3 members: a ring all-reduce moves 2(n-1)S in 2n(n-1) messages.
  const OpId reduce = added(CollectiveKind::all_reduce, {});
  CHECK(bytes_received(dag, reduce) == Bytes{2 * 2 * 128});
  const OpId gather = added(CollectiveKind::all_gather, thirds);
  CHECK(dag.payload(gather) == Bytes{128});
  CHECK(bytes_received(dag, gather) == Bytes{2 * 128});
  const OpId scatter = added(CollectiveKind::reduce_scatter, thirds);
  CHECK(bytes_received(dag, scatter) == Bytes{2 * 128});
  const OpId broadcast = added(CollectiveKind::broadcast, {});
  CHECK(bytes_received(dag, broadcast) == Bytes{2 * 128});
  // Member 0 needs samples 3..5: has 3, gets 4 of member 1 (one sample, 16 bytes).
  // Member 1 needs 0..1 of member 0 (32 bytes). Member 2 needs what it has.
  const OpId exchange = added(CollectiveKind::all_to_all,
                              shares(dag, {{{0, 4}, {0, 4}}, {{4, 6}, {0, 4}}, {{6, 8}, {0, 4}}},
                                     {{{3, 5}, {0, 4}}, {{0, 2}, {0, 4}}, {{6, 8}, {0, 4}}}));
  CHECK(bytes_received(dag, exchange) == Bytes{16 + 32});
  const OpId transfer =
      dag.add(Transfer{DeviceId{0}, DeviceId{1}, all, all, false}, Stream::tensor, {});
  CHECK(bytes_received(dag, transfer) == Bytes{128});
  const OpId delay = dag.add(Delay{DeviceId{0}, Seconds{1}}, {});
  CHECK(bytes_received(dag, delay) == Bytes{0});
  CHECK(bytes_moved(dag) == Bytes{(4 + 2 + 2 + 2 + 1) * 128 + 48});
  CHECK(messages(dag) == 12 + 6 + 6 + 2 + 2 + 1);
}

TEST_CASE("exec dag: collectives with shares need one for each member") {
  ExecDag dag = dense_dag();
  const Slice all = output_slice(dag, {{0, 8}, {0, 4}});
  const GroupId group = dag.intern(std::vector{DeviceId{0}, DeviceId{1}});
  CHECK_THROWS_AS(dag.add(Collective{CollectiveKind::all_gather, group, all, all},
                          shares(dag, {{{0, 8}, {0, 4}}}), Stream::tensor, {}),
                  BrokenInvariant);
  CHECK_THROWS_AS(
      dag.add(Collective{CollectiveKind::all_reduce, GroupId{1}, all, all}, {}, Stream::tensor, {}),
      BrokenInvariant);
}

TEST_CASE("exec dag: collectives that reshard alike share one table entry") {
  ExecDag dag = dense_dag();
  const Slice all = output_slice(dag, {{0, 8}, {0, 4}});
  const GroupId group = dag.intern(std::vector{DeviceId{0}, DeviceId{1}});
  const Shares halves = shares(dag, {{{0, 4}, {0, 4}}, {{4, 8}, {0, 4}}});
  for (int i = 0; i < 3; ++i) {
    dag.add(Collective{CollectiveKind::all_gather, group, all, all}, halves, Stream::tensor, {});
  }
  CHECK(dag.tables().shares.size() == 1);
  CHECK(dag.shares(OpId{2}) == halves);
}

TEST_CASE("exec dag: operations occupy the queues of their ends") {
  const auto noted = dag_of(R"(
    a: compute d3 1us
    b: transfer d0->d1 1MB on tensor
    c: all-reduce d0,d2 1MB on gradient)");
  std::vector<Queue> out;
  queues(noted.dag, noted["a"], out);
  CHECK(out == std::vector<Queue>{{DeviceId{3}, 0}});
  queues(noted.dag, noted["b"], out);  // stream 2: queues 4 and 5
  CHECK(out == std::vector<Queue>{{DeviceId{0}, 4}, {DeviceId{1}, 5}});
  queues(noted.dag, noted["c"], out);  // stream 1: queues 2 and 3
  CHECK(out ==
        std::vector<Queue>{{DeviceId{0}, 2}, {DeviceId{0}, 3}, {DeviceId{2}, 2}, {DeviceId{2}, 3}});
}

TEST_CASE("exec dag: tables make the same DAG again, which interns on") {
  const auto noted = dag_of(R"(
    a: compute d0 3us
    b: transfer d0->d1 1MB after a
    c: all-gather d0,d1,d2 1MB after a b)");
  ExecDag again = ExecDag::from_tables(noted.dag.tables());
  CHECK(again == noted.dag);
  CHECK(again.intern(std::vector{DeviceId{0}, DeviceId{1}, DeviceId{2}}) == GroupId{0});
  again.add(Delay{DeviceId{0}, Seconds{1}}, {});
  CHECK_FALSE(again == noted.dag);
}

TEST_CASE("exec dag: an operation takes at most 48 bytes") {
  ExecDag dag;
  for (int i = 0; i < 1000; ++i) dag.add(Delay{DeviceId{0}, Seconds{1}}, {});
  CHECK(dag.bytes_in_memory() <= 48 * 1000);
}

TEST_CASE("dag traffic: bus factors of nccl-tests") {
  CHECK(bus_factor(CollectiveKind::all_reduce, 4) == 1.5);
  CHECK(bus_factor(CollectiveKind::all_gather, 4) == 0.75);
  CHECK(bus_factor(CollectiveKind::reduce_scatter, 4) == 0.75);
  CHECK(bus_factor(CollectiveKind::all_to_all, 4) == 0.75);
  CHECK(bus_factor(CollectiveKind::broadcast, 4) == 1.0);
}
