// Kernel times from measured times of layers: what plans' kernels add up to is what the file says.
#include "experiment/layer_costs.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/random.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

using What = LayerTime::What;
/// Seconds by part (before, block, after) and by whether it is forward.
using Sums = std::array<std::array<double, 2>, 3>;

/// By the names of layers alone.
std::size_t part_of(const Network& network, LayerId layer) {
  if (strategies::block_of(network, layer)) return 1;
  for (std::size_t l = 0; l < layer.index(); ++l) {
    if (strategies::block_of(network, LayerId{l})) return 2;
  }
  return 0;
}

struct Case {
  Network network;
  Cluster cluster;
  Precision precision = Precision::fp32, reduce = Precision::fp32;

  [[nodiscard]] std::unique_ptr<CostModel> cost(const std::vector<LayerTime>& times) const {
    const sim::SimOptions options;
    return make_layer_costs(times, network, cluster, sim::make_tile_costs(cluster, options), reduce,
                            options, "t.csv");
  }
  [[nodiscard]] ExecDag dag(const CostModel& cost, std::int64_t samples,
                            std::vector<DeviceId> group = {DeviceId{0}}) const {
    strategies::StrategyInput input{network, cluster, cost};
    input.batch = samples;
    input.precision = precision;
    input.reduce_precision = reduce;
    return lowering::lower(network, cluster,
                           strategies::plan_layout(input, {{{0, {std::move(group)}, {}}}}));
  }
  [[nodiscard]] Sums sums(const CostModel& cost, std::int64_t samples) const {
    Sums sums{};
    const ExecDag step = dag(cost, samples);
    for (std::size_t i = 0; i < step.size(); ++i) {
      if (step.kind(OpId{i}) != OpKind::compute) continue;
      const Compute op = std::get<Compute>(step.op(OpId{i}));
      sums[part_of(network, step.work(op.work).layer)][op.pass == Pass::forward ? 1 : 0] +=
          device_time(step, OpId{i}, cost).time.count();
    }
    return sums;
  }
};

Case case_of(const std::string& network, const std::string& cluster = "star:1,device=t4") {
  return {networks::load_network(network, {}, "test"), topologies::load_cluster(cluster, "test")};
}

std::vector<LayerTime> rows(std::int64_t samples, const Sums& of_parts, Precision precision,
                            std::size_t group = 1) {
  std::vector<LayerTime> times;
  for (const What what : {What::before, What::block, What::after}) {
    const auto& of = of_parts[static_cast<std::size_t>(what)];
    times.push_back({"t4", precision, samples, group, what, Seconds{of[1]}, Seconds{of[0]}});
  }
  return times;
}

bool near(double one, double other) { return std::abs(one - other) <= 1e-9 * other; }

TEST_CASE("layer costs: on one device the kernels of each part add up to the file's times") {
  // Parts have kernels of equal shape: norms, dropout, sums, and the head where the vocabulary is
  // the feed-forward's width.
  constexpr std::array networks = {
      "gpt:layers=3,hidden=64,heads=4,seq_length=32,vocab_size=256",
      "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=128,attention=eager",
      "llama-3-8b:layers=1",
      "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=64,experts=4",
  };
  Random random(7);
  for (int round = 0; round < 12; ++round) {
    Case one = case_of(networks[random.below(networks.size())]);
    if (random.below(2) == 0) one.precision = Precision::bf16;
    const double blocks =
        static_cast<double>(strategies::first_layers_of_blocks(one.network).size());
    std::map<std::int64_t, Sums> file;  // grows with the samples
    Sums times{};
    std::int64_t samples = 0;
    std::vector<LayerTime> all;
    for (std::size_t points = 1 + random.below(4); points > 0; --points) {
      samples += 1 + static_cast<std::int64_t>(random.below(8));
      for (auto& part : times) {
        for (double& time : part) time += 1e-3 * static_cast<double>(1 + random.below(10'000));
      }
      file[samples] = times;
      const auto more = rows(samples, times, one.precision);
      all.insert(all.end(), more.begin(), more.end());
    }
    random.shuffle(all);
    const auto cost = one.cost(all);
    Sums last{};
    for (std::int64_t b = 1; b <= samples + 3; ++b) {
      CAPTURE(b);
      const Sums sums = one.sums(*cost, b);
      const auto above = file.lower_bound(b);
      for (std::size_t part = 0; part < 3; ++part) {
        for (std::size_t pass = 0; pass < 2; ++pass) {
          const double number = part == 1 ? blocks : 1;
          const double sum = sums[part][pass] / number;
          // Within the file more samples take no less time, as its times have it.
          if (b > file.begin()->first && b <= samples) {
            CHECK(sum >= last[part][pass] * (1 - 1e-9));
          }
          last[part][pass] = sum;
          if (above == file.end()) continue;
          if (above->first == b) CHECK(near(sum, above->second[part][pass]));
          if (above == file.begin()) continue;
          const auto below = std::prev(above);
          const double share = static_cast<double>(b - below->first) /
                               static_cast<double>(above->first - below->first);
          CHECK(near(sum,
                     (1 - share) * below->second[part][pass] + share * above->second[part][pass]));
        }
      }
    }
  }
}

TEST_CASE("layer costs: beyond the file's samples a part changes as the model's kernels do") {
  const Case one = case_of("gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=256");
  const Sums times{{{0.02, 0.01}, {0.2, 0.1}, {0.07, 0.05}}};
  const auto cost = one.cost(rows(8, times, Precision::fp32));
  const auto model = sim::make_tile_costs(one.cluster, {});
  for (const std::int64_t b : {2, 16}) {
    const Sums sums = one.sums(*cost, b), base = one.sums(*model, b), at = one.sums(*model, 8);
    for (std::size_t part = 0; part < 3; ++part) {
      for (std::size_t pass = 0; pass < 2; ++pass) {
        const double number = part == 1 ? 2 : 1;
        CHECK(
            near(sums[part][pass], number * times[part][pass] * base[part][pass] / at[part][pass]));
      }
    }
  }
}

TEST_CASE("layer costs: a part without a row has the model's times, others theirs") {
  const Case one = case_of("gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=256");
  const auto model = sim::make_tile_costs(one.cluster, {});
  const Sums base = one.sums(*model, 4);
  std::vector<LayerTime> times = rows(4, {{{1, 2}, {3, 4}, {0, 0}}}, Precision::fp32);
  times.erase(times.begin());
  Sums sums = one.sums(*one.cost(times), 4);
  CHECK(near(sums[0][0], base[0][0]));
  CHECK(near(sums[1][1], 2 * 4));
  CHECK(sums[2][0] == 0);  // measured as 0
  for (LayerTime& time : times) time.precision = Precision::bf16;
  sums = one.sums(*one.cost(times), 4);
  CHECK(sums == base);
  times = {{"t4", Precision::fp32, 4, 1, What::around, Seconds{5}, Seconds{6}}};
  sums = one.sums(*one.cost(times), 4);
  CHECK(near(sums[0][1] + sums[2][1], 5));
  CHECK(near(sums[0][0] + sums[2][0], 6));
  CHECK(near(sums[1][0], base[1][0]));
}

TEST_CASE("layer costs: sums of gradients in another precision are part of what was measured") {
  Case one = case_of("gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=256");
  one.precision = Precision::bf16;
  const auto times = rows(4, {{{1, 2}, {3, 4}, {5, 6}}}, Precision::bf16);
  const Sums fp32 = one.sums(*one.cost(times), 4);
  one.reduce = Precision::bf16;
  const Sums bf16 = one.sums(*one.cost(times), 4);
  for (const Sums& sums : {fp32, bf16}) {
    CHECK(near(sums[1][0], 2 * 3));
    CHECK(near(sums[2][0], 5));
  }
}

TEST_CASE("layer costs: a group's simulated step takes as long as was measured") {
  const Case two = case_of("gpt:layers=6,hidden=64,heads=4,seq_length=32,vocab_size=128",
                           "nodes:2x4,device=t4*4+p100-sxm2*4,intra=50GB/s,inter=10GB/s");
  const std::string table =
      "device,precision,samples,tp,layers,forward_s,backward_s\n"
      "t4,fp32,2,2,before,0.001,0.002\n"
      "t4,fp32,2,2,block,0.010,0.020\n"
      "t4,fp32,2,2,after,0.003,0.005\n"
      "k80,fp32,2,2,block,0.1,0.2\n";  // not in the cluster: left out
  // Kernels that a group does not divide take what they take on one device.
  const std::string alone =
      "t4,fp32,2,1,before,0.0011,0.0021\n"
      "t4,fp32,2,1,block,0.015,0.030\n"
      "t4,fp32,2,1,after,0.004,0.007\n";
  for (const std::string& text : {table, table + alone}) {
    const auto cost = two.cost(read_layer_times(text, "t.csv"));
    const ExecDag dag = two.dag(*cost, 2, {DeviceId{0}, DeviceId{1}});
    sim::SimOptions options;
    options.engine = sim::Engine::fast;
    const Timeline timeline = sim::make_simulator(two.cluster, *cost, options)->run(dag);
    double end = 0;  // of the last kernel: the update comes after it
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (dag.kind(OpId{i}) == OpKind::compute) end = std::max(end, timeline.spans[i].end.count());
    }
    CHECK(std::abs(end / (0.003 + 6 * 0.030 + 0.008) - 1) < 0.01);
    if (text != table) CHECK(near(two.sums(*cost, 2)[2][0], 0.007));
  }
}

TEST_CASE("layer times: a setting has one row, and no row is left out without a word") {
  const std::string head = "device,precision,samples,tp,layers,forward_s,backward_s\n",
                    row = "a100-sxm4-40,bf16,1,1,block,0.001,0.002\n";
  // Before, the last of them counted.
  CHECK(testing::refusal_of([&] {
          return read_layer_times(head + row + "a100-sxm4-40,bf16,1,1,block,0.010,0.020\n",
                                  "t.csv");
        }) ==
        "t.csv:3: the same device, precision, samples, tp and layers as in line 2; accepted: "
        "one row for each setting");
  const auto warnings = [&](const std::string& device) {
    const auto times =
        read_layer_times(head + row + device + ",bf16,1,1,after,0.001,0.002\n", "t.csv");
    return layer_times_warnings(
        times, "t.csv",
        topologies::load_cluster("star:1,device=a100-sxm4-40,rate=1GB/s,latency=1us", "--cluster"),
        Precision::bf16);
  };
  CHECK(warnings("a100-sxm4-40").empty());
  CHECK(warnings("h100-sxm5").empty());  // of another cluster
  CHECK(warnings("a100-sxm4-4O") ==
        std::vector<std::string>{"t.csv: times of 'a100-sxm4-4O' are left out: no such type of "
                                 "device; did you mean 'a100-sxm4-40'?"});
}

TEST_CASE("layer times: a table without the columns, a network without blocks are refused") {
  CHECK(testing::refusal_of([] {
          return read_layer_times("device\nt4\n", "t.csv");
        }).starts_with("t.csv: no column 'precision'; accepted: device, precision"));
  CHECK(testing::refusal_of([] { return case_of("lenet5").cost({}); }) ==
        "t.csv: times of blocks for network 'lenet5', which has none; accepted: with a network "
        "made of blocks");
}

}  // namespace
}  // namespace parsim::experiment
