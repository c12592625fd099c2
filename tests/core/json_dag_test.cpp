// Execution DAGs as JSON.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "core/json.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

using namespace parsim;

namespace {

std::string dag_refusal(const std::string& text) {
  return testing::refusal_of([&] { return dag_from_json(text, "d.json"); });
}

/// Every kind of operation, pass, stream, local kind and collective.
ExecDag every_op() {
  ExecDag dag(testing::network_of("x: vector 6; fc: dense 4; loss: loss"), 8, Precision::bf16,
              Optimizer::adam, Precision::fp32);
  dag.strategy = "by hand";
  dag.cluster = "star";
  const RegionId half = dag.intern(Region{{0, 4}, {0, 4}}),
                 rest = dag.intern(Region{{4, 8}, {0, 4}});
  const RegionId all = dag.intern(Region{{0, 8}, {0, 4}}),
                 none = dag.intern(Region{{0, 0}, {0, 0}});
  const TensorId output = dag.intern(Tensor{Tensor::Kind::output, 1, -1});
  const TensorId edge = dag.intern(Tensor{Tensor::Kind::edge, 2, 0});
  const TensorId weights = dag.intern(Tensor{Tensor::Kind::parameter, 0, -1});
  const TensorId bucket = dag.add_bucket({{ParameterId{0}, dag.intern(Region{{0, 4}, {0, 6}})},
                                          {ParameterId{1}, dag.intern(Region{{1, 3}})}});
  const Slice values{output, Role::activation, 1, all}, sums{edge, Role::partial_sum, 0, half};
  const Slice gradients{bucket, Role::weight_gradient, 0, {}};
  const GroupId pair = dag.intern(std::vector{DeviceId{1}, DeviceId{0}});
  const WorkId work = dag.intern(Work{LayerId{1}, half, 2, 6, 1});

  std::vector<OpId> after;
  for (std::uint8_t pass = 0; pass < 5; ++pass) {
    after.push_back(dag.add(Compute{work, static_cast<Pass>(pass), DeviceId{1}, 1}, after));
  }
  dag.add(Update{DeviceId{0}, {weights, Role::weight, 0, dag.intern(Region{{0, 4}, {3, 6}})}}, {});
  for (std::uint8_t kind = 0; kind < 3; ++kind) {
    dag.add(Local{static_cast<LocalKind>(kind), DeviceId{2}, sums, values}, after);
  }
  for (std::size_t stream = 0; stream < stream_count; ++stream) {
    dag.add(Transfer{DeviceId{0}, DeviceId{2}, values, values, stream % 2 == 0},
            static_cast<Stream>(stream), after);
  }
  const Shares halves{{half, rest}, {}}, swapped{{half, rest}, {rest, none}};
  dag.add(Collective{CollectiveKind::all_reduce, pair, gradients, gradients}, {}, Stream::gradient,
          after);
  dag.add(Collective{CollectiveKind::broadcast, pair, values, values}, {}, Stream::tensor, {});
  dag.add(Collective{CollectiveKind::all_gather, pair, values, values}, halves, Stream::tensor, {});
  dag.add(Collective{CollectiveKind::reduce_scatter, pair, values, values}, halves, Stream::tensor,
          {});
  dag.add(Collective{CollectiveKind::all_to_all, pair, values, values}, swapped, Stream::tensor,
          {});
  dag.add(Delay{DeviceId{0}, Seconds{3.5e-6}}, after);
  return dag;
}

}  // namespace

TEST_CASE("json dag: an operation says in words what it is") {
  const std::string text = to_json(every_op());
  for (
      const char* line :
      {R"({"op": "compute", "pass": "backward-data", "device": 1, "work": 0, "micro_batch": 1, "after": [0, 1]})",
       R"({"op": "update", "device": 0, "slice": 0, "after": []})",
       R"({"op": "transfer", "from": 0, "to": 2, "slice": 2, "target": 2, "add": true, "stream": "tensor", "bytes": 64, "after": [0, 1, 2, 3, 4]})",
       R"({"op": "collective", "does": "all-gather", "group": 0, "slice": 2, "target": 2, "shares": 0, "stream": "tensor", "bytes": 64, "after": []})",
       R"({"op": "delay", "device": 0, "time_ps": 3500000, "after": [0, 1, 2, 3, 4]})",
       R"({"layer": 1, "out": 0, "contraction": [2, 6], "edges_to_partial_sum": [0]})",
       R"({"tensor": 2, "role": "weight", "micro_batch": 0, "region": 6})"}) {
    CAPTURE(line);
    CHECK(text.find(line) != std::string::npos);
  }
}

TEST_CASE("json dag: every kind of operation is read back equal") {
  const ExecDag dag = every_op();
  const ExecDag again = dag_from_json(to_json(dag), "");
  CHECK(again == dag);
  CHECK(bytes_moved(again) == bytes_moved(dag));
  CHECK(dag_from_json(to_json(ExecDag{}), "") == ExecDag{});
}

TEST_CASE("json dag: a DAG that was read can be continued as the one that was written") {
  ExecDag dag = every_op();
  ExecDag again = dag_from_json(to_json(dag), "");
  for (ExecDag* either : {&dag, &again}) {
    const Slice slice{either->intern(Tensor{Tensor::Kind::output, 1, -1}), Role::gradient, 0,
                      either->intern(Region{{0, 8}, {0, 4}})};
    either->add(Transfer{DeviceId{0}, DeviceId{1}, slice, slice, false}, Stream::tensor, {});
  }
  CHECK(again == dag);
}

TEST_CASE("json dag: notation round trips") {
  const auto noted = testing::dag_of(R"(
    a: compute d0 3us
    b: transfer d0->d1 1MB after a
    c: all-reduce d0,d1,d2 4MiB on tensor after a b
    d: reduce-scatter d0,d1,d2 4MiB after c)");
  CHECK(dag_from_json(to_json(noted.dag), "") == noted.dag);
}

TEST_CASE("json dag: what refers to nothing is refused with its place") {
  const std::string text = to_json(every_op());
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return dag_refusal(testing::with(text, from, to));
  };
  CHECK(dag_refusal(text) == "accepted");
  CHECK(refusal("\"after\": [0, 1]", "\"after\": [0, 2]") ==
        "d.json:/ops/2/after/1: 2; accepted: a whole number from 0 to 1");
  CHECK(refusal("\"after\": []", "\"after\": [0]") ==
        "d.json:/ops/0/after/0: 0; accepted: nothing, there is none to choose from");
  CHECK(refusal("\"after\": [0]", "\"after\": [-1]") ==
        "d.json:/ops/1/after/0: -1; accepted: a whole number from 0 to 0");
  CHECK(refusal("\"work\": 0", "\"work\": 1") ==
        "d.json:/ops/0/work: 1; accepted: a whole number from 0 to 0");
  CHECK(refusal("\"device\": 1", "\"device\": -1") ==
        "d.json:/ops/0/device: -1; accepted: a whole number from 0 to 16777215");
  CHECK(refusal("\"group\": 0", "\"group\": 7") ==
        "d.json:/ops/15/group: 7; accepted: a whole number from 0 to 0");
  CHECK(refusal("\"shares\": 0", "\"shares\": 2") ==
        "d.json:/ops/17/shares: 2; accepted: a whole number from 0 to 1");
  CHECK(refusal("\"region\": 2", "\"region\": 99") ==
        "d.json:/slices/2/region: 99; accepted: a whole number from 0 to 6");
  CHECK(refusal("{\"layer\": 1, \"out\": 0", "{\"layer\": 3, \"out\": 0") ==
        "d.json:/works/0/layer: 3; accepted: a whole number from 0 to 2");
  CHECK(refusal("\"kind\": \"edge\", \"layer\": 2, \"input\": 0",
                "\"kind\": \"edge\", \"layer\": 2, \"input\": 1") ==
        "d.json:/tensors/1/input: 1; accepted: a whole number from 0 to 0");
  CHECK(refusal("\"pass\": \"forward\"", "\"pass\": \"foward\"") ==
        "d.json:/ops/0/pass: 'foward'; accepted: forward, backward, backward-data, "
        "backward-weights, recompute; did you mean 'forward'?");
  CHECK(refusal("\"version\": 2", "\"version\": 1") == "d.json:/version: 1; accepted: version 2");
}

TEST_CASE("json dag: what contradicts itself is refused") {
  const std::string text = to_json(every_op());
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return dag_refusal(testing::with(text, from, to));
  };
  CHECK(refusal("\"bytes\": 64", "\"bytes\": 65") == "d.json:/ops/9/bytes: 65; its slices make 64");
  CHECK(refusal("\"groups\": [\n[1, 0]", "\"groups\": [\n[1, 1]") ==
        "d.json:/groups/0: an array of 2 items; accepted: one device or more, each once");
  CHECK(refusal("[[4, 8], [0, 4]]", "[[0, 4], [0, 4]]") ==
        "d.json:/regions/1: the same as entry 0; accepted: entries that differ");
  CHECK(refusal("[[4, 8], [0, 4]]", "[[8, 4], [0, 4]]") ==
        "d.json:/regions/1/0: ends before it begins; begin <= end");
  CHECK(refusal("[[0, 8], [0, 4]]", "[[0, 9], [0, 4]]") ==
        "d.json:/slices/2/region: region [0:9, 0:4]; accepted: a region inside [0:8, 0:4]");
  CHECK(refusal("\"role\": \"weight\"", "\"role\": \"gradient\"") ==
        "d.json:/slices/0/role: 'gradient'; accepted for parameters and buckets: weight, "
        "weight-gradient, optimizer-state");
  CHECK(refusal("\"role\": \"weight\"", "\"role\": \"optimizer-state\"") ==
        "d.json:/ops/5/slice: 0; accepted: a slice of weights");
  CHECK(refusal("\"does\": \"all-gather\"", "\"does\": \"all-reduce\"") ==
        "d.json:/ops/17/shares: 0; accepted: none for all-reduce");
  CHECK(
      refusal("\"does\": \"all-gather\"", "\"does\": \"all-to-all\"") ==
      "d.json:/ops/17/shares: shares with 2 regions and 0 needs; 2 and 2 for all-to-all in a group "
      "of 2");
  CHECK(refusal("\"slice\": 2, \"target\": 2, \"add\"", "\"slice\": 2, \"target\": 1, \"add\"") ==
        "d.json:/ops/9/target: 1; accepted: a slice of the same region");
  CHECK(refusal("\"contraction\": [2, 6]", "\"contraction\": [6, 2]") ==
        "d.json:/works/0/contraction: ends before it begins; begin <= end");
  CHECK(refusal("\"time_ps\": 3500000", "\"time_ps\": 1000000000000001") ==
        "d.json:/ops/20/time_ps: 1000000000000001; accepted: a whole number from 0 to "
        "1000000000000000");
}

TEST_CASE("json dag: a changed digit is refused or gives a DAG that is read back equal") {
  const std::string original = to_json(every_op());
  std::vector<std::size_t> digits;
  for (std::size_t i = 0; i < original.size(); ++i) {
    if (original[i] >= '0' && original[i] <= '9') digits.push_back(i);
  }
  CHECK(rc::check([&] {
    std::string text = original;
    text[*rc::gen::elementOf(digits)] = *rc::gen::inRange('0', ':');
    text.insert(*rc::gen::elementOf(digits), *rc::gen::elementOf(std::vector<std::string>{
                                                 "", "", "1", "0000000000", "-", "9999999999"}));
    try {
      const ExecDag dag = dag_from_json(text, "");
      RC_ASSERT(dag_from_json(to_json(dag), "") == dag);
    } catch (const InputError&) {
    }
  }));
}

TEST_CASE("json dag: ranges of buckets are read back, and checked") {
  Network network;
  const LayerId input = add_input(network, "in", Shape{{{Dim::channel, 3}}});
  const LayerId dense = add_layer(network, "fc", Dense{4, true}, {input});
  add_layer(network, "loss", Loss{}, {dense});
  ExecDag dag(network, 2, Precision::fp32, Optimizer::adam);
  const RegionId matrix = dag.intern(Region{{0, 4}, {0, 3}}), vector = dag.intern(Region{{0, 4}});
  const TensorId both = dag.add_bucket({{ParameterId{0}, matrix}, {ParameterId{1}, vector}});
  const TensorId one = dag.add_bucket({{ParameterId{1}, vector}});
  const RegionId first = dag.intern(Region{{0, 11}}), rest = dag.intern(Region{{11, 16}});
  const GroupId pair = dag.intern({DeviceId{0}, DeviceId{1}});
  const Slice gradient{both, Role::weight_gradient, 0, {}}, weight{both, Role::weight, 0, {}};
  const Shares shares{{first, rest}, {}};
  dag.add(Collective{CollectiveKind::reduce_scatter, pair, gradient, gradient}, shares,
          Stream::gradient, {});
  dag.add(Update{DeviceId{1}, {both, Role::weight, 0, rest}}, {});
  dag.add(Collective{CollectiveKind::all_gather, pair, weight, weight}, shares, Stream::gradient,
          {});
  const std::string text = to_json(dag);
  const ExecDag again = dag_from_json(text, "d.json");
  CHECK(again == dag);
  CHECK(again.payload(OpId{0}) == Bytes{16 * 4});
  using Parts = std::vector<std::pair<ParameterId, Region>>;
  CHECK(again.bucket_parts(0, rest) ==
        Parts{{ParameterId{0}, Region{{3, 4}, {2, 3}}}, {ParameterId{1}, Region{{0, 4}}}});
  CHECK(again.elements({both, Role::weight, 0, rest}) == 5);

  const auto refusal = [&](auto change) {
    ExecDag other = dag;
    change(other);
    try {
      static_cast<void>(dag_from_json(to_json(other), "d.json"));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(refusal([&](ExecDag& d) {
          const RegionId beyond = d.intern(Region{{11, 17}});
          d.add(Update{DeviceId{1}, {both, Role::weight, 0, beyond}}, {});
        }).ends_with("region [11:17]; accepted: a region inside [0:16]"));
  CHECK(refusal([&](ExecDag& d) {
          const Slice part{both, Role::weight, 0, rest}, other{both, Role::weight, 0, first};
          d.add(Collective{CollectiveKind::broadcast, pair, part, other}, {}, Stream::gradient, {});
        }).ends_with("accepted: a slice of the same region"));
  CHECK(refusal([&](ExecDag& d) {
          const Slice bias{one, Role::weight, 0, {}};
          d.add(Local{LocalKind::copy, DeviceId{0}, weight, bias}, {});
        }).ends_with("accepted: a slice of the same contents"));
  CHECK(refusal([&](ExecDag& d) {
          const Slice bias{one, Role::weight, 0, {}};
          d.add(Collective{CollectiveKind::all_gather, pair, weight, bias}, shares,
                Stream::gradient, {});
        }).ends_with("a bucket is gathered or scattered in its place"));
}

TEST_CASE("json dag: sizes whose sums would overflow are refused") {
  // A parameter of 2^43 numbers in a bucket four times, and a batch that makes 2^45 elements.
  ExecDag dag(testing::network_of("x: vector 6; fc: dense 4; loss: loss"), 8, Precision::fp32,
              Optimizer::sgd);
  dag.network.parameters.push_back({"huge", {std::int64_t{1} << 43}});
  const RegionId all = dag.intern(Region{{0, std::int64_t{1} << 43}});
  static_cast<void>(dag.add_bucket(std::vector(4, std::pair{ParameterId{2}, all})));
  CHECK(dag_refusal(to_json(dag)) ==
        "d.json:/buckets/0: a bucket of 3.52e+13 elements; accepted: at most 1.76e+13");
  ExecDag wide(testing::network_of("x: vector 1048576; loss: loss"), 1 << 25, Precision::fp32,
               Optimizer::sgd);
  wide.intern(Region{{0, 1 << 25}, {0, 1 << 20}});
  wide.intern(
      Slice{wide.intern(Tensor{Tensor::Kind::output, 0, -1}), Role::activation, 0, RegionId{0}});
  CHECK(dag_refusal(to_json(wide)) ==
        "d.json:/slices/0/region: a region of 3.52e+13 elements; accepted: at most 1.76e+13");
}

TEST_CASE("json: which part of a loss's classes a kernel has is below the number of parts") {
  const std::string text = testing::read_text(PARSIM_SOURCE_DIR "/tests/hw/data/transformer.json");
  const std::string first = R"("edges_to_partial_sum": [], "class_parts": 3})";
  const auto said = [&](const std::string& part) {
    return dag_refusal(testing::with(
        text, first, first.substr(0, first.size() - 1) + ", \"class_part\": " + part + "}"));
  };
  CHECK(said("0") == "accepted");
  CHECK(said("2") == "accepted");
  CHECK(said("3").ends_with("class_part: 3; less than class_parts"));
  // Kernels of other layers have no part of it.
  const std::string other = R"("edges_to_partial_sum": [0]})";
  CHECK(dag_refusal(testing::with(text, other, R"("edges_to_partial_sum": [0], "class_part": 1})"))
            .ends_with("class_part: 1; less than class_parts"));
}
