// Plans as JSON, and the networks of DAG files; the rest of DAGs is in json_dag_test.cpp.
#include "core/json.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "core/errors.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/refusal.hpp"

using namespace parsim;

namespace {

template <class Read>
std::string json_refusal(Read read, const std::string& text) {
  return testing::refusal_of([&] { return read(text, "f.json"); });
}

/// A network is read and written as part of a DAG.
std::string network_text(const Network& network) {
  return to_json(ExecDag(network, 1, Precision::fp32, Optimizer::sgd));
}
Network read_network(const std::string& text, const std::string& where) {
  return dag_from_json(text, where).network;
}

/// One layer of every kind, no member left at its default.
Network every_kind() {
  Network network;
  network.name = "every \"kind\" \\ µ\n";
  network.warnings = {"made up", ""};
  const auto add = [&](const char* name, LayerKind kind, std::vector<LayerId> inputs) {
    return add_layer(network, name, std::move(kind), std::move(inputs));
  };
  const LayerId x = add_input(network, "x", image_shape(6, 9, 9));
  const LayerId conv = add("conv", Conv{4, {{3, 2, 1, 0, 2}, {3, 2, 0, 1, 1}}, 2, false}, {x});
  const LayerId pool =
      add("pool", Pool{PoolKind::average, {2, {2, 1, 0, 1, 1}}, true, false}, {conv});
  const LayerId norm = add("norm", Norm{NormKind::group, false, 2}, {pool});
  const LayerId prelu = add("prelu", Activation{"prelu", 4}, {norm});
  const LayerId drop = add("drop", Dropout{0.1}, {prelu});
  const LayerId sum = add("sum", Combine{"mul"}, {drop, prelu});
  const LayerId joined = add("joined", Concat{1}, {sum, sum});
  const LayerId slice = add("slice", Slicing{1, 1, 5, 2}, {joined});
  const LayerId moved = add("moved", Rearrange{"transpose", image_shape(3, 2, 4), false}, {slice});
  const LayerId mean = add("mean", Reduce{"max", {1, 2}, true}, {moved});
  const LayerId flat = add("flat", Flatten{}, {mean});
  const LayerId table = add("table", Embedding{100, 5}, {flat});
  const LayerId learned = add("learned", Learned{{{{Dim::token, 5}, {Dim::other, 7}}}}, {});
  const LayerId product = add("product", MatMul{}, {table, learned});
  const LayerId query = add("query", Learned{{{{Dim::token, 3}, {Dim::channel, 8}}}}, {});
  const LayerId key = add("key", Learned{{{{Dim::token, 3}, {Dim::channel, 4}}}}, {});
  add("attention", Attention{4, 2, true}, {query, key, key});
  add("windowed", Attention{4, 2, true, 3}, {query, key, key});
  const LayerId soft = add("soft", Softmax{1}, {product});
  const LayerId fc = add("fc", Dense{3, true}, {soft});
  add_layer(network, "tied", Dense{3, false}, {soft}, {network[fc].parameters[0]});
  add("loss", Loss{}, {fc});
  const LayerId sent = add("dispatch", ExpertDispatch{2, 3, 3}, {query, key});
  const LayerId experts = add("experts", ExpertDense{6, true, 1.25}, {sent});
  add("joined heads", HeadConcat{4}, {query, key});
  add("combine", ExpertCombine{2, true, 3}, {experts, key});
  return network;
}

template <class Enum>
Enum any_of(std::int32_t count) {
  return static_cast<Enum>(*rc::gen::inRange(0, count));
}

std::int32_t any_number() { return *rc::gen::inRange(0, 1000); }

template <class Make>
auto any_list(Make make) {
  std::vector<decltype(make())> list;
  const int size = *rc::gen::inRange(0, 4);
  for (int i = 0; i < size; ++i) list.push_back(make());
  return list;
}

std::string any_text() { return *rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127)); }

/// Any plan that a file can say, whether it makes sense or not.
Plan any_plan() {
  const auto device = [] { return DeviceId{any_number()}; };
  Plan plan;
  plan.strategy = any_text();
  plan.network = any_text();
  plan.cluster = any_text();
  plan.batch = any_number();
  plan.precision = any_of<Precision>(4);
  plan.optimizer = any_of<Optimizer>(3);
  plan.layers = any_list([&] {
    LayerPlan layer;
    layer.cuts = any_list([] {
      return Cut{any_of<Dim>(11), any_list([] { return std::int64_t{any_number()}; })};
    });
    layer.devices = any_list(device);
    layer.zero = {*rc::gen::inRange(0, 4), any_list([] { return std::int64_t{any_number()}; })};
    layer.zero.group = *rc::gen::element(ZeroGroup{}, ZeroGroup{0, true}, ZeroGroup{4, false});
    layer.recompute = *rc::gen::arbitrary<bool>();
    layer.sync.kind = any_of<Sync::Kind>(3);
    if (*rc::gen::arbitrary<bool>()) layer.sync.server = device();
    return layer;
  });
  plan.schedule.micro_batches = 1 + any_number();
  plan.reduce_precision = std::array{Precision::fp32, Precision::fp16,
                                     Precision::bf16}[static_cast<std::size_t>(any_number()) % 3];
  plan.schedule.stage_of_layer = any_list(any_number);
  plan.schedule.rank_lists = any_list([&] {
    return RankList{any_list(device), any_list([] {
                      return Slot{any_number(), any_number(), any_of<Direction>(2)};
                    })};
  });
  plan.buckets = any_list([] { return any_list([] { return ParameterId{any_number()}; }); });
  plan.notes = any_list(any_text);
  return plan;
}

/// A small plan as text, to be broken in tests.
std::string plan_text() {
  Plan plan;
  plan.strategy = "data";
  plan.network = "tiny";
  plan.cluster = "star";
  plan.batch = 8;
  LayerPlan layer;
  layer.cuts = {{Dim::height, {5, 3}}};
  layer.devices = {DeviceId{0}, DeviceId{1}};
  layer.recompute = true;
  plan.layers = {layer};
  plan.schedule = {1, {0}, {}};
  return to_json(plan);
}

}  // namespace

TEST_CASE("json: a plan file by hand") {
  CHECK(plan_text() == R"({
"format": "parsim-plan",
"version": 3,
"strategy": "data",
"network": "tiny",
"cluster": "star",
"batch": 8,
"precision": "fp32",
"optimizer": "momentum",
"layers": [
{"cuts": [{"dim": "height", "sizes": [5, 3]}], "devices": [0, 1], "recompute": true}
],
"schedule": {
"micro_batches": 1,
"stage_of_layer": [0],
"rank_lists": []
},
"buckets": [],
"notes": []
}
)");
}

TEST_CASE("json: a plan that says nothing of its sums has them in the type of its weights") {
  const auto with = [](const std::string& precision, const std::string& more) {
    std::string text = plan_text();
    text.replace(text.find("\"fp32\""), 6, "\"" + precision + "\"" + more);
    return text;
  };
  CHECK(plan_from_json(with("bf16", ""), "").reduce_precision == Precision::bf16);
  CHECK(plan_from_json(with("tf32", ""), "").reduce_precision == Precision::fp32);
  const Plan sums = plan_from_json(with("bf16", ",\n\"reduce_precision\": \"fp32\""), "");
  CHECK(sums.reduce_precision == Precision::fp32);
  CHECK(plan_from_json(to_json(sums), "") == sums);
  CHECK(testing::refusal_of([&] {
          static_cast<void>(plan_from_json(with("bf16", ",\"reduce_precision\": \"tf32\""), "p"));
        }) == "p:/reduce_precision: 'tf32'; accepted: fp32, fp16, bf16");
}

TEST_CASE("json: any plan is read back equal") {
  CHECK(rc::check([] {
    const Plan plan = any_plan();
    RC_ASSERT(plan_from_json(to_json(plan), "") == plan);
  }));
}

TEST_CASE("json: a network with every kind of layer is read back equal") {
  const Network network = every_kind();
  REQUIRE(network.layers.size() ==
          std::variant_size_v<LayerKind::Variant> + 4);  // two Dense, three Learned
  CHECK(read_network(network_text(network), "") == network);
  CHECK(read_network(network_text({}), "") == Network{});
}

TEST_CASE("json: words of the enums") {
  CHECK(to_text(Precision::bf16) == "bf16");
  CHECK(to_text(Precision::fp32) == "fp32");
  CHECK(to_text(Optimizer::sgd) == "sgd");
  CHECK(to_text(Optimizer::adam) == "adam");
}

TEST_CASE("json: what is not JSON is refused with line and column") {
  CHECK(json_refusal(plan_from_json, "").find("f.json:1:1: not JSON: ") == 0);
  CHECK(json_refusal(plan_from_json, "{\n  \"format\": \"parsim-plan\",\n  version: 2}")
            .find("f.json:3:3: not JSON: ") == 0);
  CHECK(json_refusal(plan_from_json, "{\"a\": 1} {").find("f.json:1:10: not JSON: ") == 0);
  CHECK(json_refusal(plan_from_json, "{\"a\": \"\xff\"}").find("f.json:1:8: not JSON: ") == 0);
  CHECK(json_refusal(plan_from_json, "{\"a\": 1e999}").find("not JSON: ") != std::string::npos);
}

TEST_CASE("json: another format or version is refused") {
  CHECK(json_refusal(plan_from_json, to_json(ExecDag{})) ==
        "f.json:/format: 'parsim-dag'; accepted: 'parsim-plan'");
  CHECK(json_refusal(plan_from_json,
                     testing::with(plan_text(), "\"version\": 3", "\"version\": 2")) ==
        "f.json:/version: 2; accepted: version 3");
  CHECK(json_refusal(plan_from_json, "{}") == "f.json: key 'format' is missing");
  CHECK(json_refusal(plan_from_json, "[1]") == "f.json: an array of 1 items; accepted: an object");
  CHECK(json_refusal(plan_from_json, "17") == "f.json: 17; accepted: an object");
}

TEST_CASE("json: unknown, missing and repeated keys are refused") {
  CHECK(json_refusal(plan_from_json, testing::with(plan_text(), "\"batch\"", "\"bacth\"")) ==
        "f.json: unknown key 'bacth'; accepted: format, version, strategy, network, dims, "
        "network_fingerprint, cluster, "
        "batch, "
        "precision, reduce_precision, optimizer, framework, layers, schedule, buckets, notes; did "
        "you mean "
        "'batch'?");
  CHECK(json_refusal(plan_from_json, testing::with(plan_text(), "\"batch\": 8,\n", "")) ==
        "f.json: key 'batch' is missing");
  CHECK(
      json_refusal(plan_from_json, testing::with(plan_text(), "\"recompute\"", "\"recomptue\"")) ==
      "f.json:/layers/0: unknown key 'recomptue'; accepted: cuts, devices, zero, recompute, "
      "sync, joined, regather, zigzag, ring, overlap, apart, token_parts; did you mean "
      "'recompute'?");
  CHECK(json_refusal(plan_from_json,
                     testing::with(plan_text(), "\"batch\": 8", "\"batch\": 8, \"batch\": 9")) ==
        "f.json:7: key 'batch' twice in an object; every key once");
}

TEST_CASE("json: values of the wrong type or out of range are refused with their place") {
  const auto refusal = [](const std::string& from, const std::string& to) {
    return json_refusal(plan_from_json, testing::with(plan_text(), from, to));
  };
  CHECK(refusal("\"height\"", "\"heigth\"") ==
        "f.json:/layers/0/cuts/0/dim: 'heigth'; accepted: sample, channel, depth, height, "
        "width, "
        "token, head, expert, in_channel, replica, other; did you mean 'height'?");
  CHECK(refusal("[5, 3]", "[5, -3]") ==
        "f.json:/layers/0/cuts/0/sizes/1: -3; accepted: a whole number from 0 to 2147483647");
  CHECK(refusal("[5, 3]", "[5, 3.0]") ==
        "f.json:/layers/0/cuts/0/sizes/1: 3.0; accepted: a whole number from 0 to 2147483647");
  CHECK(refusal("[5, 3]", "[5, 18446744073709551615]") ==
        "f.json:/layers/0/cuts/0/sizes/1: 1.8446744073709552e+19; accepted: a whole number "
        "from 0 to "
        "2147483647");
  CHECK(refusal("[5, 3]", "{}") ==
        "f.json:/layers/0/cuts/0/sizes: an object of 0 members; accepted: an array");
  CHECK(refusal("[0, 1]", "[0, null]") ==
        "f.json:/layers/0/devices/1: null; accepted: a whole number from 0 to 2147483647");
  CHECK(refusal("\"recompute\": true", "\"recompute\": \"yes\"") ==
        "f.json:/layers/0/recompute: 'yes'; accepted: true or false");
  CHECK(refusal("\"data\"", "[\"data\"]") ==
        "f.json:/strategy: an array of 1 items; accepted: a text");
  CHECK(refusal("\"micro_batches\": 1", "\"micro_batches\": 0") ==
        "f.json:/schedule/micro_batches: 0; accepted: a whole number from 1 to 2147483647");
  CHECK(refusal("\"fp32\"", "\"fp23\"") ==
        "f.json:/precision: 'fp23'; accepted: fp32, tf32, fp16, bf16, fp8, fp8-delayed, "
        "fp8-blockwise; did "
        "you mean 'fp32'?");
}

TEST_CASE("json: hostile texts are refused and never crash") {
  CHECK(json_refusal(plan_from_json, std::string(1'000'000, '[')) ==
        "f.json:1: nested deeper than 32 levels");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  CHECK(json_refusal(plan_from_json, deep) == "f.json:1: nested deeper than 32 levels");
  std::string wide = "{";
  for (int i = 0; i < 100; ++i) wide += "\"k" + std::to_string(i) + "\": 0, ";
  CHECK(json_refusal(plan_from_json, wide) == "f.json: an object with more than 64 members");
  CHECK(json_refusal(plan_from_json,
                     testing::with(plan_text(), "\"tiny\"", "7" + std::string(5000, '0')))
            .size() < 300);
  const std::string long_word(100'000, 'x');
  CHECK(json_refusal(plan_from_json, testing::with(plan_text(), "fp32", long_word)).size() < 300);
  CHECK(json_refusal(plan_from_json, testing::with(plan_text(), "batch", long_word)).size() < 400);
}

TEST_CASE("json: every prefix of a file is refused") {
  const std::string text = network_text(every_kind());
  for (std::size_t length = 0; length + 1 < text.size(); length += 7) {
    CHECK_THROWS_AS(static_cast<void>(read_network(text.substr(0, length), "")), InputError);
  }
}

TEST_CASE("json: a changed byte is refused or gives a network that is read back equal") {
  CHECK(rc::check([] {
    std::string text = network_text(every_kind());
    for (int i = 0; i < 3; ++i) {
      text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::inRange<char>(' ', '~');
    }
    try {
      const Network network = read_network(text, "");
      RC_ASSERT(read_network(network_text(network), "") == network);
    } catch (const InputError&) {
    }
  }));
}

TEST_CASE("json: a network that does not hold together is refused") {
  const std::string text =
      network_text(testing::network_of("x: vector 6; fc: dense 4; loss: loss"));
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return json_refusal(read_network, testing::with(text, from, to));
  };
  CHECK(json_refusal(read_network, text) == "accepted");
  CHECK(refusal("\"inputs\": [0]", "\"inputs\": [1]") ==
        "f.json:/network/layers/1/inputs/0: 1; accepted: a whole number from 0 to 0");
  CHECK(refusal("\"parameters\": [0, 1]", "\"parameters\": [0, 2]") ==
        "f.json:/network/layers/1/parameters/1: 2; accepted: a whole number from 0 to 1");
  CHECK(refusal("\"parameters\": [0, 1]", "\"parameters\": [0]") ==
        "f.json:/network/layers/1/parameters: an array of 1 items; accepted: 2 parameters");
  CHECK(refusal("\"parameters\": [0, 1]", "\"parameters\": [1, 1]") ==
        "f.json:/network/layers/1/parameters: parameter 'fc.bias' of extents [4]; the layer's "
        "weights have "
        "extents [4, 6]");
  CHECK(refusal("\"out\": [[\"channel\", 4]]", "\"out\": [[\"channel\", 5]]") ==
        "f.json:/network/layers/1/out: 5; the layer makes 4");
  CHECK(refusal("\"out\": [[\"channel\", 4]]", "\"out\": [[\"channel\"]]") ==
        "f.json:/network/layers/1/out/0: an array of 1 items; accepted: 2 items");
  CHECK(refusal("\"dense\"", "\"dens\"")
            .find("f.json:/network/layers/1/kind/kind: 'dens'; accepted: ") == 0);
  CHECK(refusal("\"dense\"", "\"dens\"").find("did you mean 'dense'?") != std::string::npos);
  CHECK(refusal("\"units\": 4", "\"units\": 0") ==
        "f.json:/network/layers/1/kind/units: 0; accepted: a whole number from 1 to 2147483647");
  CHECK(refusal("\"inputs\": [0]", "\"inputs\": [0, 0]") ==
        "f.json:/network/layers/1: 2 inputs; it takes 1");
  CHECK(refusal("[\"channel\", 6]", "[\"channel\", 17592186044416], [\"width\", 2]") ==
        "f.json:/network/layers/0/out: 3.52e+13 elements; accepted: at most 1.76e+13");
}
