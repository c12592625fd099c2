// Tensor, pipeline and data parallelism together: how layers are shared, what that moves, and what
// the search finds.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "lowering/lower.hpp"
#include "strategies/degrees.hpp"
#include "strategies/layout.hpp"
#include "strategies/tensor/split.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

namespace {

constexpr const char* gpt = "gpt:layers=2,hidden=64,heads=8,seq_length=32,vocab_size=96";

/// How a network of one block is shared: the cut dimension of every layer by name.
std::map<std::string, std::string> dims_of(const Network& network, std::size_t degrees) {
  std::map<std::string, std::string> dims;
  const auto cuts = tensor::split(network, degrees);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    dims[network.layers[l].name] = to_text(cuts[l].at(0).dim);
  }
  return dims;
}

StrategyInput asked(const World& world, std::int64_t batch, int degrees, int parts, int number) {
  StrategyInput input = world.input(batch);
  input.tensor_parallel = degrees;
  input.pipeline_parallel = parts;
  input.micro_batches = number;
  return input;
}

double step_of(const World& world, const Plan& plan) {
  return simulated_price(world.simulated(plan.batch), plan).step.count();
}

}  // namespace

TEST_CASE("tensor: a transformer is shared as Shoeybi et al. 2019 share it") {
  for (const bool fused : {true, false}) {
    CAPTURE(fused);
    const auto dims = dims_of(
        networks::load_network(std::string(gpt) + (fused ? "" : ",attention=eager"), {}, "test"),
        4);
    const std::string block = "block1.";
    // Section 3: columns, heads, rows; columns, the function, rows; norms and sums by all.
    for (const std::string name :
         {"attention.query", "attention.key", "attention.value", "mlp.up", "mlp.act"}) {
      CAPTURE(name);
      CHECK(dims.at(block + name) == "channel");
    }
    CHECK(dims.at(block + "attention.output") == "in_channel");
    CHECK(dims.at(block + "mlp.down") == "in_channel");
    for (const std::string name : {"norm1", "attention.sum", "norm2", "mlp.sum"}) {
      CAPTURE(name);
      CHECK(dims.at(block + name) == "replica");
    }
    if (fused) {
      CHECK(dims.at(block + "attention.fused") == "channel");
    } else {
      for (const std::string name : {"query.heads", "scores", "softmax", "dropout", "context"}) {
        CAPTURE(name);
        CHECK(dims.at(block + "attention." + name) == "head");
      }
      CHECK(dims.at(block + "attention.joined") == "channel");
    }
    CHECK(dims.at("lm_head") == "channel");
    CHECK(dims.at("wte") == "in_channel");
  }
}

TEST_CASE("tensor: latent attention is shared by heads, what it is narrowed to is made by all") {
  for (const bool fused : {true, false}) {
    CAPTURE(fused);
    const auto dims = dims_of(networks::load_network("deepseek-v3", {{"seq_length", 64}}, "test",
                                                     {.fused_attention = fused}),
                              8);
    const std::string block = "block5.attention.";
    for (const std::string name : {"query", "query.rotary", "key.own", "key", "value"}) {
      CAPTURE(name);
      CHECK(dims.at(block + name) == "channel");
    }
    for (const std::string name : {"query.latent", "query.latent.norm", "latent", "latent.norm",
                                   "key.shared", "key.rotary"}) {
      CAPTURE(name);
      CHECK(dims.at(block + name) == "replica");
    }
    CHECK(dims.at(block + (fused ? "fused" : "context")) == (fused ? "channel" : "head"));
    CHECK(dims.at(block + "output") == "in_channel");
  }
}

TEST_CASE("tensor: Qwen3's norms of heads are shared by heads") {
  const Network network = networks::load_network(
      std::string(PARSIM_SOURCE_DIR) + "/tests/networks/data/hugging_face/qwen3-0.6b.json",
      {{"seq_length", 64}}, "test");
  const auto dims = dims_of(network, 8);
  for (const std::string name : {"query.norm.norm", "query.norm", "key.norm.norm", "key.norm"}) {
    CAPTURE(name);
    CHECK(dims.at("block5.attention." + name) == "head");
  }
  CHECK(dims.at("block5.attention.fused") == "channel");
  CHECK(dims.at("block5.attention.output") == "in_channel");
}

TEST_CASE("tensor: shared latent attention computes what the unsplit network computes") {
  const World world(testing::tiny_network("latent"), testing::star_of(4, "10 GB/s", "1us"));
  for (const int degrees : {2, 4}) {
    for (const bool sequence : {false, true}) {
      StrategyInput input = asked(world, 4, degrees, 1, 2);
      input.sequence_parallel = sequence;
      const Plan plan = plan_tensor(input);
      CAPTURE(degrees);
      for (std::size_t l = 0; l < world.network.layers.size(); ++l) {
        const std::string& name = world.network.layers[l].name;
        CAPTURE(name);
        if (name != "key" && name != "attention" && !name.ends_with(".up")) continue;
        const std::vector<Cut>& cuts = plan.layers[l].cuts;
        CHECK(std::any_of(cuts.begin(), cuts.end(),
                          [](const Cut& cut) { return cut.dim == Dim::channel; }));
      }
      CHECK(testing::difference(plan, lowering::lower(world.network, world.cluster, plan), 1) ==
            "");
    }
  }
}

TEST_CASE("tensor: sequence parallelism scatters and gathers what were all-reduces") {
  // Korthikanti et al. 2022, section 4.2.2: of each block four all-gathers and four
  // reduce-scatters where there were four all-reduces, of the same bytes, and two all-gathers more:
  // backward gathers again what the products have read.
  const World world(gpt, "nvswitch:4,device=v100-sxm2,rate=130GB/s");
  struct Sums {
    std::map<CollectiveKind, int> count;
    std::int64_t bytes = 0;
  };
  const auto sums = [&](bool sequence, Recompute recompute, Framework framework) {
    StrategyInput input = asked(world, 4, 4, 1, 1);
    input.sequence_parallel = sequence;
    input.recompute = recompute;
    input.framework = framework;
    const Plan plan = with_memory_options(input, plan_tensor(input));
    const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
    Sums all;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const Op op = dag.op(OpId{i});
      const auto* collective = std::get_if<Collective>(&op);
      if (collective == nullptr || dag.stream(OpId{i}) != Stream::tensor) continue;
      const std::string& name =
          world.network.layers[static_cast<std::size_t>(dag.tensor(collective->slice.tensor).index)]
              .name;
      if (!name.starts_with("block0")) continue;
      ++all.count[collective->kind];
      all.bytes += bytes_received(dag, OpId{i}).value;
    }
    return all;
  };
  const Sums reduced = sums(false, Recompute::none, Framework::pytorch);
  CHECK(reduced.count == std::map<CollectiveKind, int>{{CollectiveKind::all_reduce, 4}});
  for (const Framework framework : {Framework::pytorch, Framework::megatron}) {
    const Sums shared = sums(true, Recompute::none, framework);
    CHECK(shared.count == std::map<CollectiveKind, int>{{CollectiveKind::all_gather, 6},
                                                        {CollectiveKind::reduce_scatter, 4}});
    CHECK(shared.bytes == reduced.bytes / 8 * 10);
    // The forward pass that is repeated gathers and scatters, too. PyTorch's backward pass has what
    // it gathered, Megatron-LM's does not.
    const int more = framework == Framework::megatron ? 2 : 0;
    CHECK(sums(true, Recompute::full, framework).count ==
          std::map<CollectiveKind, int>{{CollectiveKind::all_gather, 6 + more},
                                        {CollectiveKind::reduce_scatter, 6}});
  }
}

TEST_CASE("tensor: sequence parallelism that shares nothing is noted") {
  const auto noted = [](const char* network, int degrees) {
    const World world(network, "nvswitch:4,device=v100-sxm2,rate=130GB/s");
    StrategyInput input = asked(world, 4, degrees, 1, 1);
    input.sequence_parallel = true;
    const std::vector<std::string> notes = plan_tensor(input).notes;
    return std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
      return note.starts_with("--sequence-parallel changes nothing");
    });
  };
  CHECK(noted(gpt, 1));
  CHECK(noted("alexnet", 4));
  CHECK_FALSE(noted(gpt, 4));
}

TEST_CASE("tensor: sequence parallelism shares norms and sums by token, and their memory") {
  const Network network = networks::load_network(std::string(gpt) + ",attention=eager", {}, "test");
  const auto cuts = tensor::split(network, 4, true);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    CAPTURE(layer.name);
    const bool between =
        layer.kind.as<Norm>() != nullptr || layer.kind.as<Combine>() != nullptr ||
        (layer.kind.as<Dropout>() != nullptr && !layer.name.ends_with("attention.dropout"));
    CHECK((cuts[l].at(0).dim == Dim::token) == between);
  }
}

TEST_CASE("tensor: heads that cannot be shared evenly are done by all, after a gather") {
  const auto dims =
      dims_of(networks::load_network("gpt:layers=1,hidden=96,heads=3,seq_length=8,vocab_size=500",
                                     {}, "test"),
              2);
  CHECK(dims.at("block0.attention.query") == "channel");
  CHECK(dims.at("block0.attention.fused") == "replica");
  CHECK(dims.at("block0.mlp.down") == "in_channel");
}

TEST_CASE("tensor: keys and values of fewer heads than devices are made by all") {
  const auto dims = dims_of(
      networks::load_network(
          "gpt:layers=1,hidden=64,heads=8,kv_heads=2,seq_length=8,vocab_size=500", {}, "test"),
      4);
  CHECK(dims.at("block0.attention.query") == "channel");
  CHECK(dims.at("block0.attention.key") == "replica");
  CHECK(dims.at("block0.attention.value") == "replica");
  CHECK(dims.at("block0.attention.fused") == "channel");
  CHECK(dims.at("block0.attention.output") == "in_channel");
}

TEST_CASE("tensor: a shared table is cut by words, however few") {
  const auto dims =
      dims_of(networks::load_network("gpt:layers=1,hidden=64,heads=8,seq_length=512,vocab_size=100",
                                     {}, "test"),
              4);
  CHECK(dims.at("wte") == "in_channel");
  CHECK(dims.at("lm_head") == "channel");
}

TEST_CASE("tensor: a table for one reader is cut if it is larger than the embeddings it makes") {
  // 512 tokens: to hold 50,000 rows four times takes more than to sum 512; to hold 100 does not.
  for (const auto& [rows, dim] :
       {std::pair{100, "replica"}, {512, "replica"}, {513, "in_channel"}, {50'000, "in_channel"}}) {
    CAPTURE(rows);
    Network net;
    LayerId x = add_input(net, "ids", Shape{{{Dim::token, 512}}});
    x = add_layer(net, "table", Embedding{rows, 64}, {x});
    x = add_layer(net, "scores", Dense{8}, {x});
    (void)add_layer(net, "loss", Loss{}, {x});
    CHECK(dims_of(net, 4).at("table") == dim);
  }
}

TEST_CASE("tensor: groups stay within machines, batches come in as many parts as memory wants") {
  const World odd(gpt, "nodes:2x6,device=v100-sxm2,intra=130GB/s,inter=1GB/s");
  const Plan plan = plan_tensor(asked(odd, 8, 4, 1, 1));
  for (const LayerPlan& layer : plan.layers) {
    for (const DeviceId device : layer.devices) {
      CHECK(device.index() % 6 < 4);  // four of each machine
    }
  }
  const World full("gpt:layers=4,hidden=1024,heads=8,seq_length=2048,vocab_size=500",
                   "star:2,device=t4,rate=12GB/s");
  StrategyInput input = full.simulated(64);
  input.tensor_parallel = 2;
  input.pipeline_parallel = 1;
  const Plan fitting = plan_tensor(input);
  CHECK(fits(input, fitting));
  CHECK(fitting.schedule.micro_batches > 1);
}

TEST_CASE("tensor: a group moves what Narayanan et al. 2021 count, and no more") {
  // Section 3.2: two all-reduces of b·s·h forward and two backward for every layer; and one for the
  // embedding and one before the scores of words. Of the scores nothing moves but four numbers that
  // every device has of each token.
  constexpr std::int64_t layers = 2, samples = 8, tokens = 32, width = 64, devices = 4;
  const World world(gpt, "star:4,device=v100-sxm2,rate=100GB/s");
  const ExecDag dag =
      lowering::lower(world.network, world.cluster, plan_tensor(asked(world, samples, 4, 1, 1)));
  std::map<CollectiveKind, int> count;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    CHECK(dag.kind(OpId{i}) != OpKind::transfer);
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr) continue;
    ++count[collective->kind];
    if (collective->kind == CollectiveKind::all_reduce) {
      CHECK(dag.payload(OpId{i}).value == samples * tokens * width * 4);
    }
    if (collective->kind == CollectiveKind::all_gather) {
      CHECK(dag.payload(OpId{i}).value == samples * tokens * devices * 4 * 4);
    }
  }
  CHECK(count == std::map<CollectiveKind, int>{{CollectiveKind::all_reduce, 4 * layers + 2},
                                               {CollectiveKind::all_gather, 1}});
}

TEST_CASE("tensor: one way of each is the plan of another strategy") {
  const World world("alexnet", "star:4,device=v100-sxm2,rate=12GB/s");
  const Plan data = plan_tensor(asked(world, 64, 1, 1, 1));
  CHECK(step_of(world, data) ==
        testing::approx(step_of(world, plan_data(world.input(64)))).epsilon(1e-12));
  StrategyInput pipelined = world.input(64);
  pipelined.pipeline_parallel = 4;
  pipelined.micro_batches = 8;
  const double ratio = step_of(world, plan_tensor(asked(world, 64, 1, 4, 8))) /
                       step_of(world, plan_pipeline(pipelined));
  CHECK(std::abs(ratio - 1) < 0.1);
}

TEST_CASE("tensor: a group holds its share of weights") {
  const World world("gpt:layers=4,hidden=256,heads=8,seq_length=32,vocab_size=4096,positions=none",
                    "star:4,device=v100-sxm2,rate=100GB/s");
  const auto weights = [&](int degrees) {
    const StrategyInput input = asked(world, 8, degrees, 1, 1);
    return static_cast<double>(memory_use(input, plan_tensor(input))[0].weights.value);
  };
  CHECK(weights(4) / weights(1) == testing::approx(0.25).epsilon(0.02));
}

TEST_CASE("tensor: no numbers are faster than those it finds") {
  for (const std::string cluster :
       {"nodes:2x4,device=v100-sxm2,intra=130GB/s,inter=6GB/s",
        "nodes:4x2,device=v100-sxm2,intra=20GB/s,inter=1GB/s", "mixed-p100-v100"}) {
    for (const char* name :
         {"gpt:layers=6,hidden=512,heads=8,seq_length=128,vocab_size=8000", "alexnet"}) {
      const bool seldom = name == std::string("alexnet") && cluster.starts_with("nodes");
      if (seldom && !testing::long_tests()) continue;
      const World world(name, topologies::load_cluster(cluster, "test"));
      const double found = step_of(world, plan_tensor(world.simulated(16)));
      const bool every =
          cluster != "mixed-p100-v100";  // searches stages that differ, which takes long
      for (const int degrees : {1, 2, 4, 8}) {
        for (int parts = 1; degrees * parts <= 8; parts *= 2) {
          for (const int number : {1, 2, 4, 8, 16}) {
            if (16 / number < 8 / degrees / parts) continue;
            if (!every && number != 2 && number != 8) continue;
            CAPTURE(cluster);
            CAPTURE(name);
            CAPTURE(degrees);
            CAPTURE(parts);
            CAPTURE(number);
            CHECK(found <=
                  step_of(world, plan_tensor(asked(world, 16, degrees, parts, number))) * 1.01);
          }
        }
      }
    }
  }
}

// Products large enough that the peak, and not what every kernel takes, decides how long they are.
TEST_CASE("tensor: replicas of slower devices get fewer samples") {
  const World world("gpt:layers=2,hidden=512,heads=8,seq_length=256,vocab_size=1024",
                    "nodes:2x2,device=p100-sxm2,intra=50GB/s,inter=10GB/s");
  Cluster mixed = world.cluster;
  mixed.models.push_back(mixed.models[0]);
  mixed.models[1].name = "half";
  for (auto& peak : mixed.models[1].peak) peak.value /= 2;
  for (const std::size_t d : {2U, 3U}) mixed.devices[d].model = 1;
  const World slow(world.network, mixed);
  const Plan plan = plan_tensor(asked(slow, 32, 2, 1, 1));
  const Cut& cut = plan.layers.back().cuts.at(0);
  REQUIRE(cut.dim == Dim::sample);
  CHECK(cut.sizes[0] > cut.sizes[1]);
  const auto shared = [&](std::int64_t fast) {
    const std::vector<std::vector<DeviceId>> groups{{DeviceId{0}, DeviceId{1}},
                                                    {DeviceId{2}, DeviceId{3}}};
    return step_of(slow, plan_layout(slow.input(32), {{{0, groups, {fast, 32 - fast}}}}));
  };
  CHECK(step_of(slow, plan) < 0.95 * shared(16));
  for (std::int64_t fast = 17; fast < 32; ++fast) {
    CHECK(step_of(slow, plan) <= 1.01 * shared(fast));
  }
}

// A slow one takes ten times as long: by speed, the fast ones would share four samples alone.
TEST_CASE("tensor: which type of device a cluster lists first decides nothing") {
  // Stages took devices as listed: 107 ms instead of 70.8 where the T4s came first, and 249 instead
  // of 72.3 with two replicas, which were on these.
  const auto step = [](const char* devices, bool replicas) {
    const World world("vgg16",
                      fmt::format("nodes:2x2,device={},intra=20GB/s,inter=1GB/s", devices));
    StrategyInput input = world.simulated(32);
    if (replicas) {
      input.pipeline_parallel = 1;
      input.data_parallel = 2;
    }
    return step_of(world, plan_tensor(input));
  };
  for (const bool replicas : {false, true}) {
    CAPTURE(replicas);
    CHECK(step("t4*2+v100-sxm2*2", replicas) ==
          testing::approx(step("v100-sxm2*2+t4*2", replicas)));
  }
}

TEST_CASE("tensor: of replicas that are asked for each has a sample") {
  const World world("gpt:layers=2,hidden=512,heads=8,seq_length=256,vocab_size=1024",
                    "star:4,device=p100-sxm2,rate=50GB/s");
  Cluster mixed = world.cluster;
  mixed.models.push_back(mixed.models[0]);
  mixed.models[1].name = "tenth";
  for (auto& peak : mixed.models[1].peak) peak.value /= 10;
  for (const std::size_t d : {2U, 3U}) mixed.devices[d].model = 1;
  const World slow(world.network, mixed);
  StrategyInput input = asked(slow, 32, 1, 1, 8);
  const auto notes = plan_tensor(input).notes;
  CHECK(std::find(notes.begin(), notes.end(),
                  "2 of 4 replicas are idle: of 4 samples in a micro-batch, shared by speed, they "
                  "get none; --dp gives each replica one") != notes.end());
  input.data_parallel = 4;
  const Plan plan = plan_tensor(input);
  CHECK(degrees_of(slow.network, plan).dp == 4);
  CHECK(plan.layers.back().cuts.at(0) == Cut{Dim::sample, {1, 1, 1, 1}});
  input.micro_batches = 16;
  input.data_parallel.reset();
  const auto few = plan_tensor(input).notes;
  CHECK(std::find(few.begin(), few.end(),
                  "2 of 4 replicas are idle: a micro-batch has only 2 samples") != few.end());
}

TEST_CASE("tensor: impossible degrees are refused by the first condition that they fail") {
  const World world("gpt:layers=2,hidden=64,heads=8,kv_heads=2,seq_length=32,vocab_size=96",
                    "nodes:3x4,device=v100-sxm2,intra=20GB/s,inter=1GB/s");
  const auto refusal = [&](const auto& change) {
    StrategyInput input = world.input(24);
    change(input);
    try {
      static_cast<void>(plan_tensor(input));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const std::string tensor = "strategy 'tensor': ";
  CHECK(refusal([](auto& in) { in.tensor_parallel = 13; }) ==
        tensor + "--tp 13 need 13 of 12 devices; accepted: degrees whose product is at most 12");
  const auto groups = [](auto& in) {
    in.tensor_parallel = 3;
    in.data_parallel = 4;
  };
  CHECK(refusal(groups) == tensor +
                               "--tp 3 --dp 4 need 4 groups of 3 devices of a machine, and there "
                               "are 3; accepted: --pp times --dp of at most 3, or other groups");
  const auto stages = [](auto& in) {
    in.granularity = Granularity::block;
    in.pipeline_parallel = 5;
  };
  CHECK(refusal(stages) == tensor +
                               "--pp 5 make 5 stages of 2 blocks, embedding and head; accepted: "
                               "at most 4 stages, or 36 with --granularity layer");
  const auto heads = [](auto& in) {
    in.context_parallel = 4;
    in.context_exchange = ContextExchange::a2a;
  };
  CHECK(refusal(heads) == tensor +
                              "--cp 4 with --cp-comm a2a: 4 does not divide 2 key/value heads; "
                              "accepted: --tp times --cp divides the key/value heads");
  const auto chunks = [](auto& in) {
    in.granularity = Granularity::layer;
    in.pipeline_parallel = 4;
    in.virtual_pipeline = 2;
    in.batch = 7;
  };
  CHECK(refusal(chunks) == tensor +
                               "--pp 4 --vp 2 on 12 devices with batch 7; accepted: with --vp two "
                               "stages or more, and a batch that divides into a multiple of them "
                               "as micro-batches");
}

TEST_CASE("tensor: impossible degrees are refused, unused devices are noted") {
  const World world("lenet5", "star:6,device=v100-sxm2,rate=12GB/s");
  CHECK_THROWS_WITH_AS(
      static_cast<void>(plan_tensor(asked(world, 24, 4, 2, 1))),
      "strategy 'tensor': --tp 4 --pp 2 need 8 of 6 devices; accepted: degrees whose product is "
      "at most 6",
      InputError);
  StrategyInput replicas = world.input(24);
  replicas.data_parallel = 3;
  CHECK(plan_tensor(replicas).notes.at(0).find(" x data 3, ") != std::string::npos);
  replicas.micro_batches = 12;
  CHECK_THROWS_WITH_AS(static_cast<void>(plan_tensor(replicas)),
                       "strategy 'tensor': --dp 3 and 12 micro-batches of 2 samples; accepted: no "
                       "more replicas than a micro-batch has samples",
                       InputError);
  replicas.micro_batches = 8;
  CHECK_NOTHROW(static_cast<void>(plan_tensor(replicas)));
  const Plan plan = plan_tensor(asked(world, 24, 4, 1, 1));
  CHECK(plan.notes == std::vector<std::string>{"tensor 4 x pipeline 1 x data 1, 1 micro-batch",
                                               "4 of 6 devices are used"});
}
