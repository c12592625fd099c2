// Context parallelism of mixtures of experts: every part of the tokens routes its own.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/dag_traffic.hpp"
#include "lowering/estimate.hpp"
#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "strategies/degrees.hpp"
#include "strategies/experts.hpp"
#include "strategies/tensor/degrees.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/contexts.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/mixtures.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

using strategies::ContextExchange;

const std::string eight_experts =
    "gpt:layers=2,hidden=64,heads=8,seq_length=32,vocab_size=96,experts=8,top_k=2";
/// Numbers in the weights of their experts.
constexpr std::int64_t of_experts = 2 * 8 * (2 * 64 * 256 + 256 + 64);

}  // namespace

TEST_CASE("context and experts: divided in any way they compute what the unsplit network does") {
  // Slots for all tokens, for those of a router in balance, of five experts.
  const char* networks[] = {"experts=4,capacity=2", "experts=4,capacity=1,shared_ffn_hidden=4",
                            "experts=5,capacity=1.25,bias=no"};
  const TokenDegrees all[] = {
      // All experts on each device, or divided by parts of the tokens, of some, of replicas, too.
      {1, 2, 1, 1, 1},
      {1, 2, 1, 1, 2},
      {1, 4, 1, 1, 2},
      {1, 4, 1, 1, 4},
      {1, 2, 2, 1, 2},
      {1, 2, 2, 1, 4},
      {1, 2, 4, 1, 4},
      {1, 2, 1, 2, 2},
      // Experts split in tensor groups, or whole.
      {2, 2, 1, 1, 1},
      {2, 2, 1, 1, 2},
      {2, 2, 2, 1, 4},
      {2, 2, 1, 2, 2},
      {2, 2, 1, 1, 1, true},
      {2, 2, 1, 1, 2, true},
      {2, 2, 1, 1, 4, true},
      {2, 2, 2, 1, 2, true},
      {2, 2, 1, 2, 4, true},
      {1, 2, 1, 2, 2, false, 2}};
  std::mt19937_64 random(11);
  const auto one_of = [&](auto... choices) {
    const auto list = std::array{choices...};
    return list.at(random() % list.size());
  };
  const ContextExchange exchanges[] = {ContextExchange::p2p, ContextExchange::all_gather,
                                       ContextExchange::a2a};
  const int rounds = long_tests() ? 6 : 1;
  std::size_t number = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const char* options : networks) {
      for (const TokenDegrees& degrees : all) {
        if (++number % 3 != 0 && !long_tests()) continue;  // of each network others
        const std::size_t layers = 2 * static_cast<std::size_t>(degrees.chunks);
        const World world(eight_tokens(options, layers), star_of(16, "10 GB/s", "1us"));
        strategies::StrategyInput input =
            world.input(static_cast<std::int64_t>(degrees.data) * one_of(2, 4));
        input.context_exchange = exchanges[number / 3 % 3];
        input.micro_batches = degrees.chunks > 1 ? 2 : one_of(1, 2);
        input.zero_stage = one_of(0, 1, 2, 3);
        input.sequence_parallel = degrees.tensor > 1 && (degrees.whole || one_of(false, true));
        input.recompute = one_of(strategies::Recompute::none, strategies::Recompute::full);
        const Plan plan = token_plan(input, degrees);
        const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
        CAPTURE(options);
        CAPTURE(degrees.text());
        CAPTURE(fmt::format("{}, zero {}, sequence {}, {} micro-batches",
                            to_text(input.context_exchange), *input.zero_stage,
                            input.sequence_parallel, *input.micro_batches));
        CHECK(difference(plan, dag, random()) == "");
        const strategies::Degrees found = strategies::degrees_of(world.network, plan);
        CHECK(found.tp == static_cast<std::int64_t>(degrees.tensor));
        CHECK(found.cp == static_cast<std::int64_t>(degrees.context));
        CHECK(found.dp == static_cast<std::int64_t>(degrees.data));
        CHECK(found.ep == static_cast<std::int64_t>(degrees.experts));
        CHECK(found.etp == static_cast<std::int64_t>(degrees.whole ? 1 : degrees.tensor));
        lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
        double makespan = 0;
        for (const Span& span : list_schedule(dag, durations_alone(dag, *world.cost)))
          makespan = std::max(makespan, span.end.count());
        CHECK(estimator.step_time(plan).count() == testing::approx(makespan).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("context and experts: networks like DeepSeek-V3 and Qwen-MoE, as trainers divide them") {
  const TemporaryFolder folder;
  const std::string common = R"("vocab_size": 5, "hidden_size": 8, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 6,
      "moe_intermediate_size": 6, "num_experts_per_tok": 2, "max_position_embeddings": 8,
      "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, )";
  const std::string deepseek = R"({"model_type": "deepseek_v3", )" + common +
                               R"("q_lora_rank": 6, "kv_lora_rank": 4, "qk_nope_head_dim": 2,
      "qk_rope_head_dim": 2, "v_head_dim": 2, "n_routed_experts": 4, "n_shared_experts": 1,
      "first_k_dense_replace": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
      "norm_topk_prob": true, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0})";
  const std::string qwen = R"({"model_type": "qwen2_moe", )" + common +
                           R"("num_experts": 6, "shared_expert_intermediate_size": 4,
      "norm_topk_prob": false, "decoder_sparse_step": 1})";
  std::uint64_t seed = 0;
  for (const std::string& config : {deepseek, qwen}) {
    Network network = networks::load_network(folder.write("config.json", config), {}, "test");
    strategies::route_in_parts(network, 2);  // Qwen's 3 slots of each of 6 experts
    const World world(network, star_of(8, "10 GB/s", "1us"));
    for (const TokenDegrees& degrees :
         {TokenDegrees{1, 2, 2, 1, 4}, {2, 2, 1, 1, 2}, {1, 2, 1, 2, 2}}) {
      for (const ContextExchange exchange : {ContextExchange::p2p, ContextExchange::a2a}) {
        strategies::StrategyInput input = world.input(4);
        input.context_exchange = exchange;
        input.sequence_parallel = degrees.tensor > 1;
        input.micro_batches = degrees.pipeline > 1 ? 2 : 1;
        input.zero_stage = 1;
        const Plan plan = token_plan(input, degrees);
        CAPTURE(config);
        CAPTURE(degrees.text());
        CHECK(difference(plan, lowering::lower(world.network, world.cluster, plan), ++seed) == "");
      }
    }
  }
}

TEST_CASE("context and experts: every device sends the tokens that it has, by hand") {
  // 3 samples of 32 tokens for every replica, 2 of 8 experts, hidden size 64, 2 blocks.
  const World world(eight_experts, "star:16,device=v100-sxm2,rate=25GB/s");
  for (const TokenDegrees& degrees : {TokenDegrees{1, 4, 1, 1, 4},
                                      {1, 2, 2, 1, 4},
                                      {1, 2, 4, 1, 4},
                                      {1, 2, 4, 1, 8},
                                      {1, 8, 2, 1, 4},
                                      {2, 2, 1, 1, 4, true},
                                      {2, 4, 1, 1, 4, true},
                                      {2, 2, 2, 1, 8, true}}) {
    CAPTURE(degrees.text());
    const auto ep = static_cast<std::int64_t>(degrees.experts);
    const auto parts = static_cast<std::int64_t>(degrees.context * degrees.tensor);
    const std::int64_t devices = parts * static_cast<std::int64_t>(degrees.data);
    const auto planned = [&](TokenDegrees own) {
      strategies::StrategyInput input = world.input(static_cast<std::int64_t>(3 * own.data));
      input.sequence_parallel = own.tensor > 1;
      return lowering::lower(world.network, world.cluster, token_plan(input, own));
    };
    const ExecDag dag = planned(degrees);
    // Dispatch, combine, and both backward, in each group of `ep` devices: (ep - 1) / ep of a
    // device's tokens · top_k · hidden.
    const auto [count, bytes] = all_to_alls(dag);
    CHECK(count == 2 * 4 * devices / ep);
    CHECK(bytes == 2 * 4 * devices * (3 * 32 / parts * 2 * 64 * (ep - 1) / ep * 4));
    // The same with all experts on each device: their gradients alone move, in rings of all devices
    // instead of devices / ep.
    TokenDegrees undivided = degrees;
    undivided.experts = 1;
    CHECK(bytes_moved(planned(undivided)).value - bytes_moved(dag).value ==
          2 * (devices - 1) * of_experts * 4 - bytes -
              ep * 2 * (devices / ep - 1) * of_experts / ep * 4);
  }
}

TEST_CASE("context and experts: a device keeps its tokens, and the weights of its experts") {
  const auto use = [](const TokenDegrees& degrees, std::int32_t zero) {
    const World world(eight_experts, "star:16,device=v100-sxm2,rate=25GB/s");
    strategies::StrategyInput input = world.input(static_cast<std::int64_t>(2 * degrees.data));
    input.optimizer = Optimizer::adam;
    input.zero_stage = zero;
    input.context_exchange = ContextExchange::all_gather;
    return strategies::memory_use(input, token_plan(input, degrees)).at(1);
  };
  const auto undivided = use({1, 4, 2, 1, 1}, 0);
  for (const std::size_t ways : {2UL, 4UL, 8UL}) {
    CAPTURE(ways);
    const auto ep = static_cast<std::int64_t>(ways);
    const auto divided = use({1, 4, 2, 1, ways}, 0);
    CHECK(undivided.weights.value - divided.weights.value == (of_experts - of_experts / ep) * 4);
    CHECK(undivided.gradients.value - divided.gradients.value ==
          (of_experts - of_experts / ep) * 4);
    // ZeRO's first stage splits the moments of experts among the devices that have them, the
    // others' among all.
    const std::int64_t moments = use({1, 4, 2, 1, 1}, 1).optimizer_state.value;
    CHECK(use({1, 4, 2, 1, ways}, 1).optimizer_state.value == moments);
    CHECK(undivided.optimizer_state.value - divided.optimizer_state.value ==
          2 * (of_experts - of_experts / ep) * 4);
  }
}

TEST_CASE("context and experts: capacity is of the tokens that a device routes, by hand") {
  // 2 of 5 experts for 8 tokens and 0.7 of the slots of a router in balance: 3 = ⌈2.24⌉ slots,
  // which 8 tokens share. Two parts of 4 tokens have 2 = ⌈1.12⌉ each, four parts one.
  const Network whole = eight_tokens("experts=5,capacity=0.7");
  const auto routed = [](const Network& network) {
    std::vector<std::int64_t> found;
    for (const Layer& layer : network.layers) {
      if (const auto* dispatch = layer.kind.as<ExpertDispatch>()) {
        found = {dispatch->slots, dispatch->groups, layer.out.extent(Dim::token)};
      } else if (const auto* combine = layer.kind.as<ExpertCombine>()) {
        found.push_back(combine->groups);
      }
    }
    return found;
  };
  const auto in_parts = [&](std::int64_t parts) {
    Network network = whole;
    strategies::route_in_parts(network, parts);
    return network;
  };
  using Found = std::vector<std::int64_t>;
  CHECK(routed(whole) == Found{3, 1, 3, 1});
  CHECK(in_parts(1) == whole);
  CHECK(in_parts(3) == whole);  // do not divide the tokens
  CHECK(routed(in_parts(2)) == Found{4, 4, 4, 4});
  CHECK(in_parts(4) == in_parts(2));
  CHECK(routed(in_parts(8)) == Found{8, 8, 8, 8});
  // Groups of two parts are of as many tokens as before.
  Network same = eight_tokens("experts=4,capacity=1");
  strategies::route_in_parts(same, 4);
  CHECK(same == eight_tokens("experts=4,capacity=1"));

  const World world(in_parts(2), star_of(4, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(4);
  input.micro_batches = 2;
  const Plan plan = token_plan(input, {1, 2, 2, 1, 4});
  CHECK(strategies::routed_parts(whole, plan) == 2);
  CHECK(strategies::routed_parts(world.network, plan) == 1);
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  CHECK(difference(plan, dag, 1) == "");
}

TEST_CASE("context and experts: degrees of experts are those of parts of the tokens") {
  const World world(eight_experts, "star:16,device=v100-sxm2,rate=25GB/s");
  strategies::StrategyInput input = world.input(8);
  using Found = std::vector<std::size_t>;
  CHECK(strategies::expert_degrees(input, 1, 1, 4) == Found{1, 2, 4});
  CHECK(strategies::expert_degrees(input, 2, 1, 4) == Found{1, 2, 4, 8});
  CHECK(strategies::expert_degrees(input, 4, 2, 2) == Found{1, 2, 4, 8});
  input.expert_tensor_parallel = 1;
  CHECK(strategies::expert_degrees(input, 1, 2, 2) == Found{1, 2, 4});
  input.expert_parallel = 6;
  CHECK(strategies::expert_degrees(input, 4, 1, 4).empty());
  CHECK(refusal_of([&] {
          (void)token_plan(input, {1, 4, 2, 1, 6});
        }) ==
        "layout: stage 0: experts divided among 6 of 2 replicas with --cp 4; --ep "
        "divides --cp, or is a multiple of it that divides the replicas times --cp");
}

TEST_CASE("context and experts: searches try the degrees that counting groups gives") {
  // 8 experts and devices, parts of the tokens of 4,096 or more.
  const World world("gpt:layers=2,hidden=64,heads=8,seq_length=16384,vocab_size=96,experts=8",
                    "nvswitch:8,device=v100-sxm2,rate=130GB/s");
  strategies::StrategyInput input = world.input(8);
  std::vector<DeviceId> devices;
  for (std::size_t d = 0; d < 8; ++d) devices.emplace_back(d);
  using All = std::set<std::array<std::size_t, 5>>;
  for (const std::optional<std::int32_t> whole :
       {std::optional<std::int32_t>{}, std::optional<std::int32_t>{1}}) {
    input.expert_tensor_parallel = whole;
    All expected, found;
    for (const std::size_t tp : {1UL, 2UL, 4UL, 8UL}) {
      for (const std::size_t cp : {1UL, 2UL, 4UL, 8UL}) {
        for (const std::size_t pp : {1UL, 2UL, 4UL}) {  // also embedding and head alone
          if (tp * cp * pp > 8) continue;
          // Groups of `ep` neighbours among those that route tokens of their own.
          const std::size_t routers = 8 / (tp * pp) * (whole ? tp : 1);
          for (std::size_t ep = 1; ep <= routers; ++ep)
            if (routers % ep == 0) expected.insert({tp, cp, pp, 8 / (tp * cp * pp), ep});
        }
      }
    }
    for (const auto& degrees : strategies::tensor::every_degrees(input, devices)) {
      const bool all = degrees.group() * degrees.data * degrees.pipeline == 8;
      if (all && degrees.micro_batches == 1 && degrees.chunks == 1) {
        found.insert(
            {degrees.tensor, degrees.context, degrees.pipeline, degrees.data, degrees.experts});
      }
    }
    CHECK(found == expected);
  }
}

TEST_CASE("context and experts: the degree that is found is the fastest of all") {
  const World world("gpt:layers=2,hidden=256,heads=8,seq_length=8192,vocab_size=96,experts=8",
                    "nodes:2x4,device=v100-sxm2,intra=130GB/s,inter=10GB/s");
  for (const std::size_t context : {2UL, 4UL}) {
    CAPTURE(context);
    strategies::StrategyInput input = world.input(8);
    input.tensor_parallel = input.pipeline_parallel = input.micro_batches = 1;
    input.context_parallel = static_cast<std::int32_t>(context);
    lowering::Estimator estimator(input.step());
    const double chosen = estimator.step_time(strategies::plan_tensor(input)).count();
    for (const std::size_t experts : {1UL, 2UL, 4UL, 8UL}) {
      CAPTURE(experts);
      strategies::StrategyInput same = input;
      const Plan plan = token_plan(same, {1, context, 8 / context, 1, experts});
      CHECK(chosen <= estimator.step_time(plan).count() * (1 + 1e-9));
    }
  }
}

}  // namespace parsim::testing
