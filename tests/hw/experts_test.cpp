// Mixtures of experts on every engine: routing, dispatch, grouped products, weighted sums, and what
// travels where experts are divided.
#include "strategies/experts.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hw/cpu_executor.hpp"
#include "hw/cuda_executor.hpp"
#include "hw/host.hpp"
#include "hw/layout.hpp"
#include "hw/math/experts.hpp"
#include "lowering/lower.hpp"
#include "tests/hw/emulated/settings.hpp"
#include "tests/hw/host_difference.hpp"
#include "tests/support/contexts.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/mixtures.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

std::string text_of(const ExpertDegrees& degrees) {
  return fmt::format("tp {} dp {} pp {} ep {}{}", degrees.tensor, degrees.data, degrees.pipeline,
                     degrees.experts, degrees.whole ? " etp 1" : "");
}

/// A step with experts divided so, if there are slots for all devices; `seed` chooses the rest of
/// the plan.
std::optional<ExecDag> divided(const World& world, const ExpertDegrees& degrees,
                               std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... choices) {
    const auto list = std::array{choices...};
    return list.at(random() % list.size());
  };
  strategies::StrategyInput input =
      world.input(static_cast<std::int64_t>(degrees.data) * one_of(2, 4));
  input.micro_batches = one_of(1, 2);
  input.zero_stage = one_of(0, 1, 2, 3);
  input.sequence_parallel = degrees.tensor > 1 && (degrees.whole || one_of(false, true));
  input.recompute = one_of(strategies::Recompute::none, strategies::Recompute::full);
  input.expert_tensor_parallel = degrees.whole ? 1 : static_cast<std::int32_t>(degrees.tensor);
  if (!strategies::splits_experts_as_asked(input, degrees.tensor)) return std::nullopt;
  return lowering::lower(world.network, world.cluster, mixture_plan(input, degrees));
}

/// Slots for all tokens (4 of 4 experts of 2), for those of a router in balance, and for fewer; all
/// experts for every token.
const std::vector<std::string> mixtures{
    "experts=4,capacity=2", "experts=4,top_k=1,shared_ffn_hidden=4",
    "experts=5,capacity=0.7,bias=no", "experts=4,top_k=4,capacity=0.6"};

/// Two groups of 75 tokens, so that several threads count a group's choices; each expert has fewer
/// slots than tokens come. What experts make is read twice, so that its gradient is a sum.
Network long_groups(bool normalized) {
  Network net{"long groups", {}, {}, {}};
  const LayerId x = add_input(net, "vectors", Shape{{{Dim::token, 150}, {Dim::channel, 4}}});
  LayerId router = add_layer(net, "router", Dense{3, false}, {x});
  router = add_layer(net, "probabilities", Softmax{1}, {router});
  LayerId y = add_layer(net, "dispatch", ExpertDispatch{2, 80, 2}, {x, router});
  y = add_layer(net, "inner", ExpertDense{4, true}, {y});
  y = add_layer(net, "act", Activation{"silu"}, {y});
  y = add_layer(net, "outer", ExpertDense{4, true}, {y});
  const LayerId made = y;
  y = add_layer(net, "combine", ExpertCombine{2, normalized, 2}, {made, router});
  const LayerId other = add_layer(net, "again", ExpertCombine{1, !normalized, 2}, {made, router});
  y = add_layer(net, "sum", Combine{"add"}, {y, other});
  y = add_layer(net, "flatten", Flatten{}, {y});
  y = add_layer(net, "classifier", Dense{3}, {y});
  add_layer(net, "loss", Loss{}, {y});
  return net;
}

/// The executor's difference with the host's numbers, on parts of an emulated GPU or on several.
std::string emulated_difference(ExecDag dag, Precision precision, bool parts, unsigned seed) {
  const int devices = hw::stores(dag).devices;
  emulated::settings() = {.gpus = parts ? 1 : devices, .seed = seed};
  emulated::restart();
  dag.precision = precision;
  dag.reduce_precision = storage_of(precision);
  std::vector<int> sizes{16, 16, 16, 8, 8, 8, 8, 8};
  sizes.resize(parts ? static_cast<std::size_t>(devices) : 0);
  const std::string found = hw::CudaExecutor(sizes).check(dag);
  emulated::settings() = {};
  return found;
}

}  // namespace

TEST_CASE("experts on hardware: divided in any way the host has the interpreter's numbers") {
  const ExpertDegrees all[] = {{1, 1, 1, 1},       {1, 2, 1, 2},      {1, 4, 1, 2},
                               {1, 4, 1, 4},       {2, 2, 1, 2},      {2, 2, 2, 2},
                               {1, 2, 2, 2},       {3, 1, 1, 1},      {2, 2, 1, 4, true},
                               {2, 2, 1, 2, true}, {2, 1, 2, 2, true}};
  std::uint64_t seed = 0;
  for (const std::string& options : mixtures) {
    for (const ExpertDegrees& degrees : all) {
      if (++seed % 2 == 0 && !long_tests()) continue;  // of each mixture others
      const World world(tiny_moe(options), star_of(8, "10 GB/s", "1us"));
      CAPTURE(options);
      CAPTURE(text_of(degrees));
      const std::optional<ExecDag> dag = divided(world, degrees, seed);
      if (dag) CHECK(host_difference(*dag) == "");
    }
  }
}

TEST_CASE("experts on hardware: groups of many tokens fill their slots in the order of tokens") {
  for (const bool normalized : {true, false}) {
    const Network network = long_groups(normalized);
    CAPTURE(normalized);
    const Cluster cluster = star_of(4, "10 GB/s", "1us");
    CHECK(host_difference(lowering::lower(network, cluster, single_device_plan(network, 2))) == "");
    const ExecDag dag =
        lowering::lower(network, cluster, random_plan(network, 2, 2, normalized ? 1 : 2));
    CHECK(host_difference(dag) == "");
    if (normalized) CHECK(emulated_difference(dag, Precision::fp32, true, 1) == "");
  }
}

TEST_CASE("experts on hardware: of equally probable experts the first, by hand, and no NaN's") {
  // Three tokens, one slot of each of three experts, two experts a token.
  const double none = std::nan("");
  std::vector<double> probabilities{0.4, 0.2, 0.4, 0.3, 0.3, 0.3, none, 1, none};
  std::vector<double> expert(6), slot(6), weight(6), counts(3);
  hw::Routing<double> r;
  r.probabilities = hw::dense_view(probabilities.data(), Region{{0, 1}, {0, 3}, {0, 3}}, false);
  r.samples = 1;
  r.tokens = r.group_tokens = r.experts = 3;
  r.top_k = 2;
  r.expert = expert.data();
  r.slot = slot.data();
  r.weight = weight.data();
  r.counts = counts.data();
  for (std::uint32_t i = 0; i < 3; ++i) hw::ChooseExperts<double>{r}(i);
  for (std::uint32_t i = 0; i < 3; ++i) hw::CountChoices<double>{r}(i);
  for (std::uint32_t i = 0; i < 6; ++i) hw::AssignSlots<double>{r}(i);
  CHECK(expert == std::vector<double>{0, 2, 0, 1, 1, -1});
  CHECK(counts == std::vector<double>{2, 2, 1});
  CHECK(slot == std::vector<double>{0, 0, -1, 0, -1, -1});
}

TEST_CASE("experts on hardware: on emulated GPUs every way to divide them has the host's numbers") {
  const ExpertDegrees all[] = {{1, 1, 1, 1}, {1, 2, 1, 2}, {1, 4, 1, 4},       {2, 2, 1, 2},
                               {2, 2, 2, 2}, {1, 2, 2, 2}, {2, 2, 1, 4, true}, {2, 1, 2, 2, true}};
  unsigned seed = 40;
  int messages = 0;
  for (std::size_t m = 0; m < mixtures.size(); ++m) {
    for (std::size_t way = 0; way < std::size(all); ++way) {
      ++seed;
      const bool two_devices = way == 1 && m >= 2, tensor_groups = way == 7 && m == 0;
      if (!long_tests() && !two_devices && !tensor_groups) continue;
      const ExpertDegrees& degrees = all[way];
      const World world(tiny_moe(mixtures[m], degrees.pipeline), star_of(8, "10 GB/s", "1us"));
      const bool parts = (m + way) % 2 == 0;
      CAPTURE(mixtures[m]);
      CAPTURE(text_of(degrees));
      CAPTURE(parts);
      const std::optional<ExecDag> dag = divided(world, degrees, seed);
      if (!dag) continue;
      emulated::nccl_calls().clear();
      CHECK(emulated_difference(*dag, Precision::fp32, parts, seed) == "");
      messages += emulated::nccl_calls().contains("ncclSend") ? 1 : 0;
      // Also where a rounded number chooses another of two experts of nearly the same probability.
      CHECK(emulated_difference(*dag, Precision::bf16, parts, seed) == "");
    }
  }
  CHECK(messages > 1);
}

TEST_CASE("experts on hardware: parts of the tokens route their own, on hosts and emulated GPUs") {
  const TokenDegrees all[] = {{1, 2, 1, 1, 2},       {1, 4, 1, 1, 2}, {1, 2, 2, 1, 4},
                              {2, 2, 1, 1, 4, true}, {2, 2, 1, 1, 2}, {1, 2, 1, 2, 2, false}};
  unsigned seed = 0;
  for (const char* options : {"experts=4,capacity=2", "experts=4,capacity=1,top_k=3,bias=no"}) {
    for (const TokenDegrees& degrees : all) {
      if (++seed % 2 == 0 && !long_tests()) continue;  // of each mixture others
      CAPTURE(options);
      CAPTURE(degrees.text());
      const World world(eight_tokens(options), star_of(8, "10 GB/s", "1us"));
      strategies::StrategyInput input = world.input(static_cast<std::int64_t>(2 * degrees.data));
      input.context_exchange = strategies::ContextExchange::a2a;
      input.sequence_parallel = degrees.tensor > 1;
      input.zero_stage = static_cast<std::int32_t>(seed % 4);
      const ExecDag dag = lowering::lower(world.network, world.cluster, token_plan(input, degrees));
      hw::check_runnable(dag, "test");
      CHECK(host_difference(dag) == "");
      if (seed % 8 == 1 || long_tests())
        CHECK(emulated_difference(dag, Precision::fp32, seed % 3 == 0, seed) == "");
    }
  }
}

TEST_CASE("experts on hardware: threads ask for another run's probabilities one at a time") {
  const World world(tiny_moe("experts=4,capacity=2"), star_of(8, "10 GB/s", "1us"));
  const std::optional<ExecDag> dag = divided(world, {1, 4, 1, 2}, 1);
  REQUIRE(dag);
  hw::HostNumbers own(*dag);
  static_cast<void>(own.run(hw::dispatch(*dag)));
  std::atomic<int> inside = 0, most = 0, asked = 0;
  const hw::FoundNumbers found = [&](const hw::StoreKey& key, const Region& region) {
    most = std::max(most.load(), ++inside);
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    --inside;
    return own.values(key, region);
  };
  hw::HostNumbers other(*dag);
  static_cast<void>(other.run(hw::dispatch(*dag), found));
  CHECK(asked >= 4);
  CHECK(most == 1);
  CHECK(other.routers_error() == 0);
}

TEST_CASE("experts on hardware: a core of this machine has the host's numbers") {
  for (const std::string& options : mixtures) {
    const World world(tiny_moe(options), star_of(1, "10 GB/s", "1us"));
    CAPTURE(options);
    CHECK(hw::CpuExecutor({1}).check(divided(world, {}, 3).value()) == "");
  }
}

TEST_CASE("experts on hardware: another expert's numbers, a lost weight, other slots are seen") {
  const Network network = tiny_moe("experts=4,capacity=0.7");
  const Cluster cluster = star_of(1, "10 GB/s", "1us");
  const auto lowered = [&](const Network& net) {
    return lowering::lower(net, cluster, single_device_plan(net, 4));
  };
  const ExecDag dag = lowered(network);
  hw::HostNumbers expected(dag);
  static_cast<void>(expected.run(hw::dispatch(dag)));
  /// Which precisions see the difference of what `found` says.
  const auto seen = [&](const auto& found) {
    int precisions = 0;
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const bool differs = !hw::worst_difference(expected, expected.stores(), precision,
                                                 hw::tolerance(precision), found)
                                .empty();
      precisions += differs ? 1 : 0;
    }
    return precisions;
  };
  const auto difference_of = [&](const Network& net) {
    const ExecDag mutant = lowered(net);
    hw::HostNumbers numbers(mutant);
    static_cast<void>(numbers.run(hw::dispatch(mutant)));
    return seen(
        [&](const hw::StoreKey& key, const Region& box) { return numbers.values(key, box); });
  };
  CHECK(difference_of(network) == 0);
  const auto changed = [&](const auto& change) {
    Network net = network;
    for (Layer& layer : net.layers) change(layer.kind);
    return difference_of(net);
  };
  CHECK(changed([](LayerKind& kind) {
          if (auto* combine = kind.as<ExpertCombine>()) {
            ExpertCombine other = *combine;
            other.normalized = !other.normalized;
            kind = other;
          }
        }) == 2);
  CHECK(changed([](LayerKind& kind) {
          if (auto* combine = kind.as<ExpertCombine>()) {
            ExpertCombine other = *combine;
            other.top_k = 1;
            kind = other;
          }
        }) == 2);
  // Two experts change places, in what they make and in the gradients of their weights.
  CHECK(seen([&](const hw::StoreKey& key, const Region& box) {
          std::vector<double> values = expected.values(key, box);
          const bool weights = key.role == Role::weight_gradient && box.rank() == 3;
          if (!weights && box.rank() != 4) return values;
          const std::size_t axis = weights ? 0 : 1;
          if (box[axis].size() != 4) return values;
          std::size_t inner = 1;
          for (std::size_t a = axis + 1; a < box.rank(); ++a) {
            inner *= static_cast<std::size_t>(box[a].size());
          }
          for (std::size_t at = 0; at < values.size(); at += 4 * inner) {
            const auto begin = values.begin() + static_cast<std::ptrdiff_t>(at);
            std::swap_ranges(begin, begin + static_cast<std::ptrdiff_t>(inner),
                             begin + static_cast<std::ptrdiff_t>(inner));
          }
          return values;
        }) == 2);
}

TEST_CASE("experts on hardware: busier experts than others are refused by the layer's name") {
  const Network network = tiny_moe("experts=4,capacity=2");
  Network busy = network;
  for (Layer& layer : busy.layers) {
    if (const auto* dense = layer.kind.as<ExpertDense>()) {
      ExpertDense other = *dense;
      other.imbalance = 1.5;
      layer.kind = other;
    }
  }
  hw::check_runnable(network, "test");
  CHECK(refusal_of([&] { hw::check_runnable(busy, "test"); }) ==
        "test: layer 'block0.mlp.experts.up' (experts that are busier than others); real hardware "
        "cannot run this yet; simulate it without --hw");
}

}  // namespace parsim::testing
