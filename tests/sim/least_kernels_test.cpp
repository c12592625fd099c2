// Lower bounds of kernels against the prices of all cells of random plans.
#include "sim/least_kernels.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "core/random.hpp"
#include "lowering/gradient_flow.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

/// A part's share of the work of a pass: of its FLOPs, where queries attend to whole heads; else of
/// its elements and of the contraction.
double share_of(const Network& network, LayerId id, const Part& part, std::int64_t samples) {
  const Layer& layer = network[id];
  const std::vector<Shape> in = input_shapes(network, id);
  const Part all{whole(layer.out, samples), {}};
  const double flops = forward_flops(layer.kind, in, layer.out, all).value;
  const double elements =
      static_cast<double>(part.out.volume()) / static_cast<double>(all.out.volume());
  if (const auto* attention = layer.kind.as<Attention>()) {
    if (!attention->causal) return elements;
    const auto keys = [](Interval tokens) {
      return static_cast<double>(tokens.begin + tokens.end);
    };
    return elements * (keys(part.out[1]) + 1) / (keys(all.out[1]) + 1);
  }
  if (flops > 0) return forward_flops(layer.kind, in, layer.out, part).value / flops;
  if (part.contraction.empty()) return elements;
  return elements * static_cast<double>(part.contraction.size()) /
         static_cast<double>(contraction_extent(layer.kind, in));
}

/// Checks all cells of all passes; returns the cells seen.
int check_cells(const Network& network, const Cluster& cluster, const CostModel& cost,
                const Plan& plan, Precision precision) {
  constexpr double rounding = 1e-9;
  const lowering::GradientFlow flow = lowering::gradient_flow(network);
  int seen = 0;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
    for (const Pass pass : lowering::passes_of(network, flow, id)) {
      for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
        const auto least = cost.least_time(network, id, plan.batch, pass, DeviceId{d}, precision);
        REQUIRE(least.has_value());
        double shares = 0;
        for (const Cell& cell : cells(network, id, plan.layers[l], samples)) {
          const double share = share_of(network, id, cell.part, plan.batch);
          shares += share;
          const Seconds bound = least->fixed + least->whole * share;
          const Seconds time =
              cost.compute(network, id, cell.part, pass, DeviceId{d}, precision).time;
          CHECK_MESSAGE(time * (1 + rounding) >= bound,
                        fmt::format("{} {} pass {} on {}: {} of {}: {} < {}", network.name,
                                    network.layers[l].name, static_cast<int>(pass),
                                    cluster.model(DeviceId{d}).name, share, to_text(cell.part.out),
                                    time.count(), bound.count()));
          ++seen;
        }
        CHECK(shares * plan.schedule.micro_batches >= 1 - rounding);
      }
    }
  }
  return seen;
}

/// Cells of random plans, of two in some layers at most: grids of more cells are like them.
void check_random_plans(const Network& network, const Cluster& cluster, std::int64_t batch,
                        int plans, Fusion fusion) {
  SimOptions options;
  options.fusion = fusion;
  for (const CostSource& source : cost_sources()) {
    const auto cost = source.make(cluster, options);
    for (int seed = 1; seed <= plans; ++seed) {
      const Plan plan = testing::random_plan(network, 4, batch, static_cast<std::uint64_t>(seed));
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        CHECK(check_cells(network, cluster, *cost, plan, precision) > 0);
      }
    }
  }
}

Cluster one_of_each() {
  return topologies::load_cluster(
      "star:5,device=p100-sxm2*1+v100-sxm2*1+a100-sxm4-80*1+h100-sxm5*1+l40s*1,rate=10GB/"
      "s,latency=1us",
      "test");
}

}  // namespace

TEST_CASE("least kernels: no cell of a random plan is faster, tiny networks") {
  const Cluster cluster = one_of_each();
  for (const Network& network : testing::tiny_networks()) {
    for (const Fusion fusion : {Fusion::none, Fusion::compiled, Fusion::megatron}) {
      check_random_plans(network, cluster, 8, 3, fusion);
    }
  }
}

TEST_CASE("least kernels: no cell of a random plan is faster, published networks") {
  const Cluster cluster = one_of_each();
  for (const char* name : {"alexnet", "resnet50", "inception_v3", "mobilenet_v2", "r3d_18",
                           "gpt:layers=1,hidden=1024,heads=16,seq_length=512",
                           "gpt:layers=1,hidden=1024,heads=16,seq_length=256,attention=eager",
                           "gpt:layers=1,hidden=512,heads=8,experts=8,seq_length=128"}) {
    check_random_plans(networks::load_network(name, {}, "test"), cluster, 16, 2, Fusion::none);
  }
}

TEST_CASE("least kernels: no cell of a random plan is faster, products in FP8") {
  const Cluster cluster = topologies::load_cluster(
      "star:3,device=h100-sxm5*1+l40s*1+b200-sxm*1,rate=10GB/s,latency=1us", "test");
  for (const char* name : {"gpt:layers=1,hidden=1024,heads=16,seq_length=512",
                           "gpt:layers=1,hidden=512,heads=8,experts=8,seq_length=128"}) {
    const Network network = networks::load_network(name, {}, "test");
    for (const CostSource& source : cost_sources()) {
      const auto cost = source.make(cluster, {});
      for (const Precision precision : {Precision::fp8, Precision::fp8_blockwise}) {
        const Plan plan = testing::random_plan(network, 3, 16, 5);
        CHECK(check_cells(network, cluster, *cost, plan, precision) > 0);
      }
    }
  }
}

TEST_CASE("least kernels: windows read least where trying all lengths and places says") {
  Random random(27);
  for (int i = 0; i < 3000; ++i) {
    const auto upto = [&](std::size_t most) {
      return static_cast<std::int64_t>(1 + random.below(most));
    };
    Window window;
    window.kernel = upto(7);
    window.stride = upto(5);
    window.dilation = upto(3);
    window.pad_begin = upto(9) - 1;
    window.pad_end = upto(9) - 1;
    const std::int64_t in = upto(40), reach = window.dilation * (window.kernel - 1) + 1;
    const std::int64_t room = in + window.pad_begin + window.pad_end - reach;
    if (room < 0) continue;
    const std::int64_t out = room / window.stride + 1;
    double least = 1e9;
    for (std::int64_t begin = 0; begin < out; ++begin) {
      for (std::int64_t end = begin + 1; end <= out; ++end) {
        const std::int64_t first = begin * window.stride - window.pad_begin;
        const std::int64_t last = (end - 1) * window.stride - window.pad_begin + reach;
        const Interval read = intersect({first, last}, {0, in});
        least =
            std::min(least, static_cast<double>(read.size()) / static_cast<double>(end - begin));
      }
    }
    CAPTURE(in);
    CAPTURE(out);
    CHECK(least_reads(window, in, out) == least);
  }
}

TEST_CASE("least kernels: an axis of 2^33 takes no time" * doctest::timeout(5)) {
  const std::int64_t extent = std::int64_t{1} << 33;
  CHECK(least_reads({3, 1, 1, 1, 1}, extent, extent) == 1);
}

TEST_CASE("least kernels: all of a layer at once takes little more than its bound") {
  // Full waves of full tiles: the bound would be of no use if it were far below. Where power
  // throttles long kernels, parts are faster, by a third at most.
  const Cluster cluster = one_of_each();
  const Network network = networks::load_network(
      "gpt:layers=2,hidden=4096,heads=32,seq_length=2048,vocab_size=50304", {}, "test");
  const auto cost = make_tile_costs(cluster, {});
  const lowering::GradientFlow flow = lowering::gradient_flow(network);
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    Seconds bound{}, time{};
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      const LayerId id{l};
      const Part all{whole(network.layers[l].out, 16), {}};
      for (const Pass pass : lowering::passes_of(network, flow, id)) {
        const auto least = cost->least_time(network, id, 16, pass, DeviceId{d}, Precision::bf16);
        REQUIRE(least.has_value());
        bound += least->fixed + least->whole;
        time += cost->compute(network, id, all, pass, DeviceId{d}, Precision::bf16).time;
      }
    }
    MESSAGE(fmt::format("{}: {:.4g} of {:.4g} s", cluster.model(DeviceId{d}).name, bound.count(),
                        time.count()));
    CHECK(bound <= time);
    CHECK(bound >= 0.66 * time);
  }
}

TEST_CASE("least kernels: corrections over a range of k are no less than their bound") {
  Random random(7);
  for (const GemmModel& model : gemm_models()) {
    const GemmInterpolation gemms(model);
    for (int round = 0; round < 200; ++round) {
      const int rows = static_cast<int>(random.below(30)),
                columns = static_cast<int>(random.below(30));
      const auto from = static_cast<std::int64_t>(1 + random.below(8192));
      const auto to =
          from + static_cast<std::int64_t>(random.below(static_cast<std::size_t>(from)));
      const double least = gemms.least_correction(rows, columns, from, to);
      for (int i = 0; i <= 4; ++i) {
        CHECK(gemms.correction(rows, columns, from + (to - from) * i / 4).logarithm >=
              least - 1e-12);
      }
    }
  }
}

}  // namespace parsim::sim
