// Products in chunks (LayerPlan::overlap): what they compute, move and wait for.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/timeline.hpp"
#include "lowering/estimate.hpp"
#include "lowering/lower.hpp"
#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

struct OverlapDegrees {
  std::size_t tensor = 2, context = 1, data = 1, pipeline = 1;
};

Plan overlap_plan(strategies::StrategyInput& input, const OverlapDegrees& degrees) {
  input.context_parallel = static_cast<std::int32_t>(degrees.context);
  input.sequence_parallel = true;
  std::vector<std::size_t> first = strategies::first_layers_of_blocks(input.network);
  first.resize(degrees.pipeline);
  first[0] = 0;
  const std::size_t group = degrees.tensor * degrees.context;
  std::vector<DeviceId> devices;
  for (std::size_t d = 0; d < group * degrees.data * degrees.pipeline; ++d) devices.emplace_back(d);
  const strategies::Layout layout = strategies::even_layout(first, group, degrees.data, devices);
  return strategies::with_memory_options(input, strategies::plan_layout(input, layout));
}

/// A chunk of the feed-forward products takes a second, forward and where gradients come in parts;
/// a message of a chunk takes `message`, everything else nothing.
class ChunkCost final : public CostModel {
 public:
  ChunkCost(Seconds message, std::int64_t chunk_tokens, Bytes chunk)
      : message_(message), chunk_tokens_(chunk_tokens), chunk_(chunk) {}

  Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass, DeviceId,
               Precision) const override {
    const std::string& name = network[layer].name;
    const bool down = name.ends_with(".down");
    const bool counts = (pass == Pass::forward && (down || name.ends_with(".up"))) ||
                        (pass == Pass::backward_data && down);
    const double chunks =
        static_cast<double>(part.out[1].size()) / static_cast<double>(chunk_tokens_);
    return {Seconds{counts ? chunks : 0.0}, Origin::guessed};
  }
  Cost memory(DeviceId, Bytes) const override { return {Seconds{0}, Origin::guessed}; }
  Seconds transfer(DeviceId, DeviceId, Bytes payload) const override {
    return payload == chunk_ ? message_ : Seconds{0};
  }
  Seconds collective(CollectiveKind, std::span<const DeviceId>, Bytes) const override {
    return Seconds{0};
  }
  std::string summary() const override { return "chunks"; }

 private:
  Seconds message_;
  std::int64_t chunk_tokens_;
  Bytes chunk_;
};

}  // namespace

TEST_CASE("overlap: the longer of four chunks and of three messages and a chunk, by hand") {
  // Three messages of the attention part's gather, of its sum, of its sum's gradient and of the
  // scores' gather have no kernels here. The feed-forward part gathers, sums, and gathers
  // gradients.
  constexpr std::int64_t tokens = 16, width = 8, parts = 4;
  const World world("gpt:layers=1,hidden=8,heads=4,seq_length=16,vocab_size=12,ffn_hidden=8",
                    star_of(parts, "10 GB/s", "1us"));
  for (const auto& [message, expected] :
       {std::pair{0.5, 4 * 1.5 + 3 * 4}, {2.0, 4 * 6.0 + 3 * 7}}) {
    const ChunkCost cost(Seconds{message}, tokens / parts, Bytes{tokens / parts * width * 4});
    strategies::StrategyInput input{world.network, world.cluster, cost};
    input.batch = input.micro_batches.emplace(1);
    input.tensor_parallel = parts;
    input.pipeline_parallel = input.data_parallel = 1;
    input.sequence_parallel = input.tensor_overlap = true;
    const Plan plan = strategies::plan_tensor(input);
    lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
    CAPTURE(message);
    CHECK(estimator.step_time(plan).count() == testing::approx(expected).epsilon(1e-9));
  }
}

TEST_CASE("overlap: a layout is said to change nothing only where it does not") {
  const World world("gpt:layers=2,hidden=64,heads=4,seq_length=64,vocab_size=96,ffn_hidden=256",
                    "nvswitch:2,device=v100-sxm2,rate=130GB/s");
  strategies::StrategyInput input = world.input(4);
  input.sequence_parallel = input.tensor_overlap = true;
  const DeviceId a{0}, b{1};
  const auto notes = [&](const strategies::Layout& layout) {
    std::size_t count = 0;
    for (const std::string& note : plan_layout(input, layout).notes) {
      count += note.find("changes nothing") != std::string::npos ? 1 : 0;
    }
    return count;
  };
  CHECK(notes({{{0, {{a, b}}, {}}}}) == 0);
  CHECK(notes({{{0, {{a}, {b}}, {}}}}) == 2);
}

TEST_CASE("overlap: moves what the collectives move, in messages") {
  const World world("gpt:layers=2,hidden=64,heads=4,seq_length=64,vocab_size=96,ffn_hidden=256",
                    "nvswitch:4,device=v100-sxm2,rate=130GB/s");
  strategies::StrategyInput input = world.input(4);
  input.tensor_parallel = 4;
  input.pipeline_parallel = input.data_parallel = input.micro_batches = 1;
  input.sequence_parallel = true;
  const ExecDag whole =
      lowering::lower(world.network, world.cluster, strategies::plan_tensor(input));
  input.tensor_overlap = true;
  const ExecDag chunks =
      lowering::lower(world.network, world.cluster, strategies::plan_tensor(input));
  CHECK(bytes_moved(chunks) == bytes_moved(whole));
  std::map<std::pair<CollectiveKind, Role>, int> less;
  int transfers = 0;
  for (const auto& [dag, sign] : {std::pair{&whole, 1}, {&chunks, -1}}) {
    for (std::size_t i = 0; i < dag->size(); ++i) {
      const Op op = dag->op(OpId{i});
      if (const auto* one = std::get_if<Collective>(&op)) {
        less[{one->kind, one->slice.role}] += sign;
      }
      transfers -= std::holds_alternative<Transfer>(op) ? sign : 0;
    }
  }
  // Of each block the two gathers before products, the two sums and the two gathers of their
  // gradients; and the gather before the scores. In each, four devices send to three others.
  std::erase_if(less, [](const auto& entry) { return entry.second == 0; });
  const decltype(less) expected = {{{CollectiveKind::all_gather, Role::activation}, 5},
                                   {{CollectiveKind::reduce_scatter, Role::partial_sum}, 4},
                                   {{CollectiveKind::all_gather, Role::partial_sum}, 4}};
  CHECK(less == expected);
  CHECK(transfers == (5 + 4 + 4) * 4 * 3);
}

TEST_CASE("overlap: products in chunks compute what the unsplit network computes") {
  const OverlapDegrees all[] = {{2, 1, 1, 1}, {4, 1, 1, 1}, {3, 1, 1, 1}, {2, 1, 2, 1},
                                {2, 1, 1, 2}, {2, 2, 1, 1}, {4, 1, 2, 2}};
  std::mt19937_64 random(11);
  const auto one_of = [&](auto... choices) {
    const auto list = std::array{choices...};
    return list.at(random() % list.size());
  };
  const int rounds = long_tests() ? 20 : 2;
  for (int round = 0; round < rounds; ++round) {
    for (const OverlapDegrees& degrees : all) {
      const bool three = degrees.tensor == 3;
      const World world(
          fmt::format("gpt:layers=2,hidden={},heads={},seq_length={},vocab_size=12,"
                      "ffn_hidden={}{}",
                      three ? 12 : 8, three ? 3 : 4, degrees.context > 1 ? 8 : one_of(8, 9),
                      three ? 9 : 8, one_of("", ",bias=no,dropout=0")),
          star_of(16, "10 GB/s", "1us"));
      strategies::StrategyInput input =
          world.input(static_cast<std::int64_t>(degrees.data) * one_of(2, 4));
      input.tensor_overlap = true;
      input.micro_batches = one_of(1, 2);
      input.zero_stage = one_of(0, 1, 2, 3);
      input.recompute = one_of(strategies::Recompute::none, strategies::Recompute::full,
                               strategies::Recompute::selective, strategies::Recompute::pointwise);
      const Plan plan = overlap_plan(input, degrees);
      const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
      CAPTURE(fmt::format("tp {} cp {} dp {} pp {}, zero {}, recompute {}", degrees.tensor,
                          degrees.context, degrees.data, degrees.pipeline, *input.zero_stage,
                          to_text(*input.recompute)));
      CHECK(std::any_of(plan.layers.begin(), plan.layers.end(),
                        [](const LayerPlan& layer) { return layer.overlap; }));
      CHECK(difference(plan, dag, random()) == "");
      lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
      double last = 0;
      for (const Span& span : list_schedule(dag, durations_alone(dag, *world.cost))) {
        last = std::max(last, span.end.count());
      }
      CHECK(estimator.step_time(plan).count() == testing::approx(last).epsilon(1e-9));
    }
  }
}

TEST_CASE("overlap: gradients that come in parts to some devices of a product, whole to others") {
  const World world("gpt:layers=2,hidden=8,heads=4,seq_length=8,vocab_size=12,ffn_hidden=8",
                    star_of(6, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(12);
  input.tensor_overlap = true;
  input.micro_batches = 1;
  Plan plan = overlap_plan(input, {2, 1, 3, 1});
  int changed = 0;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (!world.network.layers[l].name.ends_with("attention.out.dropout")) continue;
    // The product's groups have four samples each: those of the second and third do not end there.
    plan.layers[l].cuts = {{Dim::sample, {2, 2, 3, 2, 1, 2}}};
    plan.layers[l].regather = false;
    ++changed;
  }
  REQUIRE(changed == 2);
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  CHECK(difference(plan, dag, 3) == "");
  lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
  double last = 0;
  for (const Span& span : list_schedule(dag, durations_alone(dag, *world.cost)))
    last = std::max(last, span.end.count());
  CHECK(estimator.step_time(plan).count() == testing::approx(last).epsilon(1e-9));
}

TEST_CASE("overlap: products that read the same tokens in different chunks") {
  // Two chunks in queries where keys and values have four, and the other way round. No strategy
  // cut them so when products were first joined; local search of 'best' does.
  const World world("gpt:layers=2,hidden=8,heads=4,seq_length=8,vocab_size=12,ffn_hidden=8",
                    star_of(4, "10 GB/s", "1us"));
  for (const std::string name : {"attention.query", "attention.key", "attention.value"}) {
    strategies::StrategyInput input = world.input(4);
    input.tensor_overlap = true;
    input.micro_batches = 1;
    Plan plan = overlap_plan(input, {4, 1, 1, 1});
    int changed = 0;
    for (std::size_t l = 0; l < plan.layers.size(); ++l) {
      if (!world.network.layers[l].name.ends_with(name)) continue;
      REQUIRE(plan.layers[l].overlap);
      plan.layers[l].cuts = {{Dim::sample, {2, 2}}, {Dim::channel, {4, 4}}};
      ++changed;
    }
    REQUIRE(changed == 2);
    const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
    CAPTURE(name);
    CHECK(difference(plan, dag, 5) == "");
    lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
    double last = 0;
    for (const Span& span : list_schedule(dag, durations_alone(dag, *world.cost)))
      last = std::max(last, span.end.count());
    CHECK(estimator.step_time(plan).count() == testing::approx(last).epsilon(1e-9));
  }
}

}  // namespace parsim::testing
