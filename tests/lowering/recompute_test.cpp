// Recomputation: segments against all cuts, turns and memory against what a device holds at every
// moment.
#include "lowering/recompute.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "lowering/estimate.hpp"
#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "networks/networks.hpp"
#include "strategies/stages.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

double peak_of(const std::vector<lowering::Checkpoint>& chain,
               const std::vector<std::size_t>& begins, double in_flight) {
  double kept = 0, peak = 0;
  for (std::size_t b = 0; b < begins.size(); ++b) {
    const std::size_t end = b + 1 < begins.size() ? begins[b + 1] : chain.size();
    double all = 0, stays = 0;
    for (std::size_t p = begins[b]; p < end; ++p) {
      const bool crosses = chain[p].last_reader >= end;
      all += crosses ? chain[p].whole : chain[p].bytes;
      if (crosses) stays += chain[p].whole;
    }
    peak = std::max(peak, kept + all);
    kept += stays;
  }
  return peak + (in_flight - 1) * kept;
}

TEST_CASE("recompute: no other segments have a lower peak") {
  CHECK(rc::check([] {
    const auto count = *rc::gen::inRange<std::size_t>(1, 11);
    const auto in_flight = *rc::gen::inRange(1, 5);
    std::vector<lowering::Checkpoint> chain(count);
    for (std::size_t p = 0; p < count; ++p) {
      chain[p].whole = *rc::gen::inRange(0, 100);
      chain[p].bytes = *rc::gen::arbitrary<bool>() ? chain[p].whole : 0;
      chain[p].last_reader = *rc::gen::inRange(p + 1, count + 1);
    }
    double least = peak_of(chain, {0}, in_flight);
    for (unsigned cuts = 1; cuts < 1U << (count - 1); ++cuts) {
      std::vector<std::size_t> begins{0};
      for (std::size_t p = 1; p < count; ++p) {
        if ((cuts >> (p - 1) & 1U) != 0) begins.push_back(p);
      }
      least = std::min(least, peak_of(chain, begins, in_flight));
    }
    const double found = peak_of(chain, lowering::checkpoint_segments(chain, in_flight), in_flight);
    RC_ASSERT(found <= (in_flight == 1 ? least : 1.05 * least));
  }));
}

TEST_CASE("recompute: a chain of n equal layers needs about 2 sqrt(n) of them (Chen et al. 2016)") {
  for (const std::size_t count : {16U, 100U, 400U}) {
    std::vector<lowering::Checkpoint> chain(count);
    for (std::size_t p = 0; p < count; ++p) chain[p] = {1, 1, p + 1};
    const double root = std::sqrt(static_cast<double>(count));
    const double peak = peak_of(chain, lowering::checkpoint_segments(chain), 1);
    CHECK(peak <= 2 * root);
    CHECK(peak >= root);
  }
}

TEST_CASE("recompute: layers come back right before the backward that reads them") {
  const Network network = tiny_network("residual");
  const lowering::GradientFlow flow = lowering::gradient_flow(network);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Plan plan = random_plan(network, 3, 8, seed);
    const std::vector<bool> dropped = lowering::dropped_outputs(network, plan);
    std::vector<LayerId> members;
    for (std::size_t l = 0; l < network.layers.size(); ++l) members.emplace_back(l);
    std::set<LayerId> there, done;
    for (const lowering::LayerVisit& visit :
         lowering::backward_visits(network, flow, dropped, members)) {
      for (const LayerId producer : network[visit.layer].inputs) {
        const bool has = !dropped[producer.index()] || there.contains(producer);
        CHECK(has);
      }
      const bool first = (visit.forward ? there : done).insert(visit.layer).second;
      CHECK(first);
      if (visit.forward) CHECK(dropped[visit.layer.index()]);
    }
    for (const LayerId layer : members) CHECK(done.contains(layer) == flow.wants[layer.index()]);
  }
}

/// Bytes of outputs on one device at the worst moment, by the operations of a DAG in their order.
/// What the backward pass keeps of an output lives from its kernel to its own backward; a dropped
/// one also ends with its last reader before it comes back, and what it is made of stays whole.
std::int64_t most_alive(const ExecDag& dag, const std::vector<bool>& dropped) {
  const lowering::GradientFlow flow = lowering::gradient_flow(dag.network);
  const std::int64_t element = element_bytes(dag.precision);
  std::vector<std::int64_t> bytes = lowering::kept_bytes(dag.network, dag.precision);
  for (std::size_t l = 0; l < dropped.size(); ++l) {
    for (const LayerId producer : dag.network.layers[l].inputs) {
      const bool needed = dropped[l] && !dropped[producer.index()];
      if (needed) bytes[producer.index()] = std::max(bytes[producer.index()], element);
    }
  }
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> alive;  // by layer, micro-batch
  std::int64_t now = 0, peak = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* compute = std::get_if<Compute>(&op);
    if (compute == nullptr) continue;
    const LayerId layer = dag.work(compute->work).layer;
    const auto key = std::pair(layer.value, compute->micro_batch);
    const bool first = compute->pass == Pass::forward && !dropped[layer.index()];
    const bool shares = lowering::works_in_place(dag.network[layer].kind) &&
                        (dropped[layer.index()] || !dropped[dag.network[layer].inputs[0].index()]);
    if ((first || compute->pass == Pass::recompute) && !shares) {
      alive[key] = dag.part(compute->work).out.volume() * bytes[layer.index()];
      now += alive[key];
    }
    peak = std::max(peak, now);
    if (compute->pass == Pass::forward || compute->pass == Pass::recompute) continue;
    now -= alive[key];
    alive[key] = 0;
  }
  return peak;
}

TEST_CASE("recompute: the memory is what the operations hold, and less than without") {
  const Cluster cluster = star_of(1, "10 GB/s", "1us");
  for (const std::string name : {"resnet18", "vgg16", "inception_v3", "densenet121"}) {
    CAPTURE(name);
    const Network network = networks::load_network(name, {}, "test");
    Plan plan = single_device_plan(network, 4);
    const lowering::MemoryUse without = lowering::memory_use(network, cluster, plan)[0];
    const std::vector<bool> none(network.layers.size());
    const std::int64_t others =
        without.activations.value - most_alive(lowering::lower(network, cluster, plan), none);
    lowering::recompute_segments(network, plan);
    const lowering::MemoryUse with = lowering::memory_use(network, cluster, plan)[0];
    const std::vector<bool> dropped = lowering::dropped_outputs(network, plan);
    CHECK(with.activations.value ==
          most_alive(lowering::lower(network, cluster, plan), dropped) + others);
    CHECK(with.activations < without.activations);
    CHECK(with.weights == without.weights);
    MESSAGE(name, ": ", without.activations.value >> 20, " to ", with.activations.value >> 20,
            " MiB");
  }
}

TEST_CASE("recompute: the maps of attention are those between two products, with a softmax") {
  for (const std::string name :
       {"bert_tiny.onnx", "hugging_face/gpt2.json", "hugging_face/llama-2-7b.json",
        "hugging_face/vit-base-patch16-224.json"}) {
    CAPTURE(name);
    const Network network =
        networks::load_network(PARSIM_SOURCE_DIR "/tests/networks/data/" + name, {}, "test");
    const std::vector<LayerId> scores = lowering::attention_scores(network);
    std::size_t softmaxes = 0, products = 0;
    for (const LayerId id : scores) {
      const Layer& layer = network[id];
      softmaxes += layer.kind.as<Softmax>() != nullptr ? 1 : 0;
      products += layer.kind.as<MatMul>() != nullptr ? 1 : 0;
      // Rows and columns are positions.
      CHECK(layer.out.axes.back().extent == layer.out.axes[layer.out.axes.size() - 2].extent);
    }
    const auto all =
        std::count_if(network.layers.begin(), network.layers.end(),
                      [](const Layer& layer) { return layer.kind.as<Softmax>() != nullptr; });
    CHECK(softmaxes == static_cast<std::size_t>(all));
    CHECK(products == softmaxes);
    CHECK(scores.size() <= 5 * softmaxes);
    Plan plan = single_device_plan(network, 4);
    lowering::recompute_attention(network, plan);
    const std::vector<bool> dropped = lowering::dropped_outputs(network, plan);
    CHECK(std::count(dropped.begin(), dropped.end(), true) == static_cast<long>(scores.size()));
  }
  for (const char* name : {"resnet18", "alexnet"}) {  // a softmax only for the loss
    CHECK(lowering::attention_scores(networks::load_network(name, {}, "test")).empty());
  }
}

TEST_CASE("recompute: the numbers stay those of the unsplit network") {
  const Cluster cluster = star_of(4, "10 GB/s", "1us");
  for (const Network& network : tiny_networks()) {
    CAPTURE(network.name);
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      Plan plan = random_plan(network, 3, 8, seed);
      lowering::recompute_segments(network, plan);
      CHECK(difference(plan, lowering::lower(network, cluster, plan), 7) == "");
    }
  }
}

// A stage keeps what its checkpoints hold once for every micro-batch in flight. Narayanan et al.
// 2021, section 2.2.1: of 16, GPipe has all in flight, 1F1B as many as there are stages.
TEST_CASE("recompute: no other layers kept of a stage need 5 % less, in GPipe and in 1F1B") {
  constexpr std::size_t layers = 9;  // of the first stage
  constexpr std::int32_t micro_batches = 16;
  std::string text = "x: vector 64";
  for (std::size_t l = 0; l < layers + 1; ++l) text += "; dense 64";
  const Network network = network_of(text + "; loss");
  const Cluster cluster = star_of(2, "10 GB/s", "1us");
  std::vector<std::int64_t> kept;  // layers
  for (const auto schedule :
       {strategies::PipelineSchedule::gpipe, strategies::PipelineSchedule::one_f_one_b}) {
    Plan plan = single_device_plan(network, 8 * micro_batches);
    plan.schedule.micro_batches = micro_batches;
    plan.schedule.rank_lists.clear();
    for (std::size_t l = layers + 1; l < network.layers.size(); ++l) {
      plan.schedule.stage_of_layer[l] = 1;
      plan.layers[l].devices = {DeviceId{1}};
    }
    for (std::int32_t s = 0; s < 2; ++s) {
      plan.schedule.rank_lists.push_back(
          {{DeviceId{s}}, strategies::stage_slots(schedule, s, 2, micro_batches)});
    }
    const auto activations = [&] {
      return static_cast<double>(lowering::memory_use(network, cluster, plan)[0].activations.value);
    };
    lowering::recompute_segments(network, plan);
    const double found = activations();
    kept.push_back(std::count_if(plan.layers.begin() + 1, plan.layers.begin() + 1 + layers,
                                 [](const LayerPlan& layer) { return !layer.recompute; }));
    double least = found;
    for (unsigned dropped = 0; dropped < 1U << layers; ++dropped) {
      for (std::size_t l = 0; l < layers; ++l) {
        plan.layers[l + 1].recompute = (dropped >> l & 1U) != 0;
      }
      least = std::min(least, activations());
    }
    CHECK(found <= 1.05 * least);
  }
  CHECK(kept[0] < kept[1]);
}

/// Sums over groups of devices of what layers make in parts.
std::int64_t forward_sums(const ExecDag& dag) {
  std::int64_t sums = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || collective->slice.role != Role::partial_sum) continue;
    sums += dag.tensor(collective->slice.tensor).kind == Tensor::Kind::output ? 1 : 0;
  }
  return sums;
}

// Before, layers that sum over a group were kept, which made tensor-parallel groups that recompute
// 19 to 30 % too fast. Megatron-LM runs a block's forward again in its checkpoint
// (megatron/core/tensor_parallel/random.py, CheckpointFunction.backward), all-reduces included.
TEST_CASE("recompute: a block that a group shares makes its two sums again") {
  const World world("gpt:layers=3,hidden=16,heads=4,seq_length=4,vocab_size=12,dropout=0",
                    "star:2,device=v100-sxm2,rate=100GB/s");
  strategies::StrategyInput input = world.simulated(4);
  input.tensor_parallel = 2;
  input.pipeline_parallel = 1;
  input.micro_batches = 2;
  Plan plan = strategies::plan_tensor(input);
  const ExecDag kept = lowering::lower(world.network, world.cluster, plan);
  const std::int64_t blocks = 2 * (2 * 3);  // micro-batches x two of a block x blocks
  CHECK(forward_sums(kept) == blocks + 2);  // and that of the table of words
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const std::string& name = world.network.layers[l].name;
    plan.layers[l].recompute = name.starts_with("block") && !name.ends_with(".mlp.sum");
  }
  const ExecDag again = lowering::lower(world.network, world.cluster, plan);
  CHECK(forward_sums(again) == blocks + 2 + blocks);
  const double expected = input.simulate(plan).count();
  CHECK(lowering::Estimator(input.step()).step_time(plan).count() ==
        testing::approx(expected).epsilon(1e-9));
}

TEST_CASE("recompute: groups that share layers get the numbers of the unsplit network") {
  std::int64_t sums = 0;
  for (const Network& network : tiny_networks()) {
    CAPTURE(network.name);
    const World world(network, star_of(2, "10 GB/s", "1us"));
    strategies::StrategyInput input = world.input(4);
    input.tensor_parallel = 2;
    input.pipeline_parallel = 1;
    input.micro_batches = 1;
    for (const strategies::Recompute recompute :
         {strategies::Recompute::none, strategies::Recompute::optimal}) {
      input.recompute = recompute;
      Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
      // Segments keep the last one; all of it here.
      for (LayerPlan& layer : plan.layers)
        layer.recompute = recompute != strategies::Recompute::none;
      const ExecDag dag = lowering::lower(network, world.cluster, plan);
      CHECK(difference(plan, dag, 3) == "");
      sums += (recompute == strategies::Recompute::none ? -1 : 1) * forward_sums(dag);
    }
  }
  CHECK(sums > 0);
}

}  // namespace
}  // namespace parsim::testing
