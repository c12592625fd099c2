#include "experiment/utilization.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "lowering/lower.hpp"
#include "lowering/recompute.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"
#include "tests/support/world.hpp"

namespace parsim::experiment {
namespace {

using testing::World;

constexpr double layers = 2, hidden = 64, heads = 4, tokens = 32, vocab = 96, batch = 8;
const std::string gpt = "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=96";

/// Korthikanti et al. 2022, appendix A: 24 B s h² + 4 B s² h a layer and 2 B s h v for the logits,
/// forward, and twice as many backward.
double by_hand() {
  return 72 * batch * layers * tokens * hidden * hidden *
         (1 + tokens / (6 * hidden) + vocab / (12 * layers * hidden));
}

ExecDag dag_of(const World& world, const Plan& plan) {
  return lowering::lower(world.network, world.cluster, plan);
}

double sum(const Waterfall& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double so_far, Seconds time) { return so_far + time.count(); });
}

double at(const Waterfall& parts, StepPart part) {
  return parts[static_cast<std::size_t>(part)].count();
}

}  // namespace

TEST_CASE(
    "utilization: model FLOPs of a GPT are those of the papers, masked or not, fused or not") {
  CHECK(by_hand() == testing::approx(72 * 8.0 * 2 * 32 * 4096 * (1 + 1.0 / 12 + 1.0 / 16)));
  for (const std::string attention : {"fused", "eager"}) {
    CAPTURE(attention);
    const World world(gpt + ",attention=" + attention,
                      "nvswitch:4,device=a100-sxm4-80,rate=300GB/s");
    const strategies::StrategyInput input = world.simulated(8);
    for (const Plan& plan : {strategies::plan_data(input), strategies::plan_tensor(input)}) {
      const StepFlops flops = step_flops(dag_of(world, plan), world.cluster);
      CHECK(flops.model.value == testing::approx(by_hand()).epsilon(1e-12));
      CHECK(flops.recomputed.value == 0);
    }
  }
  // PaLM, appendix B: per token 6 N + 12 L H Q T; N without the tables, but with the logits' one.
  const double weights = layers * 12 * hidden * hidden + vocab * hidden;
  CHECK(by_hand() ==
        testing::approx(batch * tokens * (6 * weights + 12 * layers * hidden * tokens)));
}

TEST_CASE("utilization: recomputation counts for the hardware, not for the model") {
  const World world(gpt + ",attention=eager,dropout=0",
                    "nvswitch:2,device=a100-sxm4-80,rate=300GB/s");
  Plan plan = strategies::plan_data(world.input(8));
  lowering::recompute_attention(world.network, plan);
  // The products of queries and keys, 2 B s² h a layer: their result is kept by none.
  CHECK(step_flops(dag_of(world, plan), world.cluster).recomputed.value ==
        2 * batch * tokens * tokens * hidden * layers);
  for (LayerPlan& layer : plan.layers) layer.recompute = true;
  const StepFlops all = step_flops(dag_of(world, plan), world.cluster);
  CHECK(all.recomputed.value > 0.8 * by_hand() / 3);
  CHECK(all.recomputed.value <= by_hand() / 3);
  const Seconds step{1e-3};
  // Two A100s of 19.5 TFLOP/s in FP32.
  CHECK(all.peak.value == 2 * world.cluster.model(DeviceId{0}).peak_at(Precision::fp32).value);
  CHECK(all.mfu(step) == testing::approx(by_hand() / (all.peak.value * 1e-3)));
  CHECK(all.hfu(step) ==
        testing::approx((by_hand() + all.recomputed.value) / (all.peak.value * 1e-3)));
  CHECK(all.mfu(Seconds{}) == 0);
}

TEST_CASE("utilization: an expert counts the tokens that go to it, not its slots") {
  // 32 tokens to 2 of 4 experts each: 16 of 16 slots, or of 20, of each expert.
  const std::string experts = gpt + ",experts=4,top_k=2,capacity=";
  const double balanced =
      model_forward_flops(networks::load_network(experts + "1", {}, "test")).value;
  CHECK(model_forward_flops(networks::load_network(experts + "1.25", {}, "test")).value ==
        testing::approx(balanced).epsilon(1e-12));
  // Dropped tokens are not computed.
  CHECK(model_forward_flops(networks::load_network(experts + "0.5", {}, "test")).value < balanced);
  // A block: 8 h² of attention's products, 4 s h of scores, a router of h x 4 and 2 x 8 h² of
  // products in experts; two operations each.
  CHECK(balanced == tokens * (layers * (8 * hidden * hidden + 4 * tokens * hidden + 2 * hidden * 4 +
                                        2 * 16 * hidden * hidden) +
                              2 * vocab * hidden));
}

TEST_CASE("utilization: above 100 % a note says why") {
  const auto says = [](const std::string& tokens_of_sample) {
    const testing::Finished run = testing::run_program(
        PARSIM_PROGRAM,
        {"simulate", "--network",
         "gpt:layers=2,hidden=512,heads=4,attention=fused,vocab_size=100,seq_length=" +
             tokens_of_sample,
         "--cluster", "star:1,device=a100-sxm4-80,rate=10GB/s", "--batch", "1", "--precision",
         "bf16", "--strategy", "data", "--json"});
    REQUIRE(run.exit_code == 0);
    const bool above = nlohmann::json::parse(run.out)["mfu"].get<double>() > 1;
    CHECK(above == (run.out.find("attention scores that the mask hides") != std::string::npos));
    return above;
  };
  CHECK(says("131072"));
  CHECK_FALSE(says("1024"));
  const World images("lenet5", "star:1,device=t4,rate=10GB/s");
  CHECK(mfu_above_peak(images.network).find("Winograd") != std::string::npos);
}

TEST_CASE("utilization: the highest MFU, by hand") {
  // 3x3: 2 · 9 · 8 · 8 · 14² FLOPs, of which Winograd's algorithm needs a quarter; 1x1: a ninth of
  // the FLOPs, all needed. Rectified linear units have none.
  const Network images =
      testing::network_of("x: image 8x14x14; conv 8 k3 p1; relu; conv 8 k1; flatten; loss");
  CHECK(highest_mfu(images, Precision::fp32) == testing::approx((9.0 + 1) / (9.0 / 4 + 1)));
  CHECK(highest_mfu(images, Precision::fp16) == 1);
  CHECK(highest_mfu(testing::network_of("x: vector 64; a: dense 64; loss"), Precision::fp32) == 1);
}

TEST_CASE("waterfall: by hand") {
  // A device computes a product for 4 s, sends for 2 s, of which 1 s overlaps with the product, and
  // updates for 1 s; the other one computes for 1 s.
  const Network network = testing::network_of("x: vector 64; a: dense 64; b: relu; loss");
  const World world(
      network, topologies::load_cluster("star:2,device=v100-sxm2,rate=1GB/s,latency=1us", "test"));
  const Plan plan = strategies::plan_data(world.input(2));
  const ExecDag dag = dag_of(world, plan);
  Timeline timeline;
  timeline.spans.resize(dag.size());
  bool product[2] = {false, false}, sent = false, updated = false;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    if (dag.kind(OpId{i}) == OpKind::compute &&
        dag.network[dag.work(WorkId{record.what}).layer].name == "a") {
      const auto device = static_cast<std::size_t>(record.device);
      if (std::exchange(product[device], true)) continue;
      timeline.spans[i] = {Seconds{0}, Seconds{device == 0 ? 4.0 : 1.0}};
    } else if (dag.kind(OpId{i}) == OpKind::collective && !std::exchange(sent, true)) {
      timeline.spans[i] = {Seconds{4}, Seconds{5}};
    } else if (dag.kind(OpId{i}) == OpKind::update && record.device == 0 &&
               !std::exchange(updated, true)) {
      timeline.spans[i] = {Seconds{6}, Seconds{7}};
    }
  }
  REQUIRE(sent);
  REQUIRE(updated);
  const Waterfall parts = waterfall(dag, timeline, world.cluster);
  const StepFlops flops = step_flops(dag, world.cluster);
  const double ideal = (flops.model / flops.peak).count();
  CHECK(at(parts, StepPart::peak) == ideal);
  CHECK(at(parts, StepPart::products) == testing::approx((4 + 1) / 2.0 - ideal));
  CHECK(at(parts, StepPart::optimizer) == 0.5);
  CHECK(at(parts, StepPart::exposed_sends) == 1);
  // No operation explains why the first one's update begins at 6 and not at 5, nor why the sum
  // begins at 4: the second could do so at 1. Then it has 2 s less to compute and to wait for its
  // host.
  CHECK(at(parts, StepPart::delays) == 2);
  CHECK(at(parts, StepPart::bubbles) == 0);
  CHECK(at(parts, StepPart::imbalance) == 1);
  CHECK(sum(parts) == testing::approx(7));
}

TEST_CASE("waterfall: the parts of any plan add up to its step") {
  for (const std::string where :
       {"mixed-p100-v100", "nvswitch:4,device=a100-sxm4-80,rate=300GB/s"}) {
    for (const std::string attention : {"fused", "eager"}) {
      if ((where == "mixed-p100-v100") == (attention == "eager") && !testing::long_tests())
        continue;
      const World world(gpt + ",attention=" + attention, where);
      strategies::StrategyInput input = world.simulated(8);
      input.micro_batches = 4;
      for (const strategies::Strategy& strategy : strategies::all()) {
        CAPTURE(strategy.name);
        Plan plan;
        try {
          plan = strategy.plan(input);
        } catch (const InputError&) {
          continue;  // no plan for this input
        }
        const ExecDag dag = dag_of(world, plan);
        const Timeline timeline = world.simulator->run(dag);
        const Waterfall parts = waterfall(dag, timeline, world.cluster);
        const double step = makespan(timeline).count();
        CHECK(sum(parts) == testing::approx(step).epsilon(1e-9));
        CHECK(at(parts, StepPart::delays) == 0);  // hosts keep up
        for (const StepPart part :
             {StepPart::element_wise, StepPart::optimizer, StepPart::exposed_sends,
              StepPart::imbalance, StepPart::bubbles}) {
          CHECK(at(parts, part) >= 0);
        }
        const StepFlops flops = step_flops(dag, world.cluster);
        CHECK(at(parts, StepPart::peak) ==
              testing::approx(step * flops.mfu(Seconds{step})).epsilon(1e-9));
        CHECK(flops.hfu(Seconds{step}) >= flops.mfu(Seconds{step}));
        CHECK(flops.mfu(Seconds{step}) < 1);
      }
    }
  }
}

TEST_CASE("waterfall: what a host is late with is waiting for the host, not a bubble") {
  const World world("resnet50", "dgx-v100");
  const Plan plan = strategies::strategy("data", "test").plan(world.simulated(8));
  const ExecDag dag = dag_of(world, plan);
  const auto parts_with = [&](sim::SimOptions options) {
    options.engine = sim::Engine::fast;
    const auto simulator = sim::make_simulator(world.cluster, *world.cost, options);
    const Timeline timeline = simulator->run(dag);
    return std::pair(waterfall(dag, timeline, world.cluster), makespan(timeline).count());
  };
  const auto [keeps_up, step] = parts_with({});
  CHECK(at(keeps_up, StepPart::delays) == 0);

  // 8 samples at 10 a second: what the step is longer than before is that wait, and nothing else.
  const auto [fed, fed_step] = parts_with({.input_rate = 10});
  CHECK(fed_step == testing::approx(0.8));
  CHECK(at(fed, StepPart::delays) == testing::approx(fed_step - step));
  CHECK(at(fed, StepPart::bubbles) == testing::approx(at(keeps_up, StepPart::bubbles)));

  // Kernels that are fused away take no time, and begin with the one that waits for another stage.
  const World stages("gpt:layers=2,hidden=256,heads=4,seq_length=128,vocab_size=1000",
                     "nvswitch:2,device=h100-sxm5");
  const sim::SimOptions compiled{.engine = sim::Engine::fast, .fusion = sim::Fusion::compiled};
  const auto cost = sim::cost_source("tiles", "test").make(stages.cluster, compiled);
  strategies::StrategyInput input{stages.network, stages.cluster, *cost};
  input.batch = 8;
  input.micro_batches = 2;
  const ExecDag pipeline = dag_of(stages, strategies::strategy("pipeline", "test").plan(input));
  const Timeline fused = sim::make_simulator(stages.cluster, *cost, compiled)->run(pipeline);
  const Waterfall parts = waterfall(pipeline, fused, stages.cluster);
  CHECK(at(parts, StepPart::delays) == 0);
  CHECK(at(parts, StepPart::bubbles) > 0);

  // One image a GPU is launched more slowly than it is computed.
  const auto [launched, launched_step] = parts_with({.launch_interval = Seconds{40e-6}});
  CHECK(at(launched, StepPart::delays) > 0.9 * (launched_step - step));
  CHECK(at(launched, StepPart::bubbles) < 0.01 * launched_step);
}

}  // namespace parsim::experiment
