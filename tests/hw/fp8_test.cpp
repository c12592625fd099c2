// Linear layers and experts in FP8 on emulated GPUs: which products, what they are worth, what is
// refused.
#include "core/fp8.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "hw/cuda_executor.hpp"
#include "hw/hardware.hpp"
#include "hw/host.hpp"
#include "hw/memory_plan.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/hw/emulated/blocks.hpp"
#include "tests/hw/emulated/fp8.hpp"
#include "tests/hw/emulated/settings.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/mixtures.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

using emulated::e4m3;
using emulated::e5m2;

/// The machine of a test; afterwards it is the usual one.
class EmulatedGpus {
 public:
  explicit EmulatedGpus(const emulated::Settings& settings) {
    emulated::settings() = settings;
    emulated::restart();
  }
  ~EmulatedGpus() { emulated::settings() = {}; }
  EmulatedGpus(const EmulatedGpus&) = delete;
  EmulatedGpus& operator=(const EmulatedGpus&) = delete;
};

/// Pre-norm blocks as tiny_transformer's, of widths that FP8 can, halved, too. Its head stays bf16.
Network wide_transformer(int blocks) {
  constexpr std::int64_t width = 32;
  Network net{"wide transformer", {}, {}, {}};
  LayerId x = add_input(net, "ids", Shape{{{Dim::token, 5}}});
  x = add_layer(net, "embedding", Embedding{12, width}, {x});
  for (int b = 0; b < blocks; ++b) {
    const std::string block = "block" + std::to_string(b) + ".";
    LayerId y = add_layer(net, block + "norm1", Norm{NormKind::layer, true, 0}, {x});
    const LayerId query = add_layer(net, block + "query", Dense{width}, {y});
    const LayerId key = add_layer(net, block + "key", Dense{width}, {y});
    const LayerId value = add_layer(net, block + "value", Dense{width}, {y});
    y = add_layer(net, block + "attention", Attention{4, 4, true}, {query, key, value});
    y = add_layer(net, block + "output", Dense{width}, {y});
    x = add_layer(net, block + "sum1", Combine{"add"}, {x, y});
    y = add_layer(net, block + "norm2", Norm{NormKind::layer, true, 0}, {x});
    y = add_layer(net, block + "up", Dense{2 * width}, {y});
    y = add_layer(net, block + "gelu", Activation{"gelu"}, {y});
    y = add_layer(net, block + "down", Dense{width}, {y});
    x = add_layer(net, block + "sum2", Combine{"add"}, {x, y});
  }
  x = add_layer(net, "norm", Norm{NormKind::layer, true, 0}, {x});
  x = add_layer(net, "classes", Dense{5}, {x});
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

ExecDag in_precision(ExecDag dag, Precision precision) {
  dag.precision = precision;
  dag.reduce_precision = storage_of(precision);
  return dag;
}

ExecDag on_one_gpu(const Network& network, Precision precision) {
  return in_precision(
      lowering::lower(network, star_of(1, "10 GB/s", "1us"), single_device_plan(network, 8)),
      precision);
}

/// Products of so many steps, as operations have them: one forward, one for the input's gradient
/// and one for the weights'.
std::string products_of(const ExecDag& dag, int steps) {
  int forward = 0, backward = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) != OpKind::compute) continue;
    const Compute op = std::get<Compute>(dag.op(OpId{i}));
    if (!multiplies_in_fp8(dag.network, dag.work(op.work).layer)) continue;
    const bool back = op.pass != Pass::forward && op.pass != Pass::recompute;
    (back ? backward : forward) += steps * (op.pass == Pass::backward ? 2 : 1);
  }
  return fmt::format("{} forward, {} backward", forward, backward);
}
std::string executed_products() {
  const std::map<std::string, int>& all = emulated::fp8_products();
  CHECK(all.size() <= 2);
  return fmt::format("{} forward, {} backward", all.at("3 3"), all.at("3 2"));
}
int steps_of_check(Precision recipe) { return recipe == Precision::fp8_delayed ? 4 : 2; }

/// Experts of widths that FP8 can, halved, too. Every token goes to all of them, so that no rounded
/// probability decides which.
const std::string wide_experts = "hidden=32,ffn_hidden=64";
const std::string all_experts = "experts=4,top_k=4,capacity=0.6";

}  // namespace

TEST_CASE("fp8: the emulated GPUs' numbers, by hand and by search") {
  // Micikevicius et al. 2022, table 1: largest, smallest normal and smallest number.
  CHECK(emulated::from_fp8(e4m3, 0x7e) == 448);
  CHECK(emulated::from_fp8(e4m3, 0x08) == std::ldexp(1.0F, -6));
  CHECK(emulated::from_fp8(e4m3, 0x01) == std::ldexp(1.0F, -9));
  CHECK(std::isnan(emulated::from_fp8(e4m3, 0x7f)));
  CHECK(emulated::from_fp8(e5m2, 0x7b) == 57344);
  CHECK(emulated::from_fp8(e5m2, 0x04) == std::ldexp(1.0F, -14));
  CHECK(emulated::from_fp8(e5m2, 0x01) == std::ldexp(1.0F, -16));
  CHECK(std::isinf(emulated::from_fp8(e5m2, 0x7c)));
  CHECK(emulated::to_fp8(e4m3, 1) == 0x38);
  CHECK(emulated::to_fp8(e5m2, -1) == 0xbc);
  CHECK(emulated::to_fp8(e4m3, 1e9F) == 0x7e);
  CHECK(emulated::to_fp8(e5m2, -INFINITY) == 0xfb);
  for (const auto& format : {e4m3, e5m2}) {
    for (int code = 0; code <= format.largest; ++code) {
      const auto here = static_cast<std::uint8_t>(code);
      const float value = emulated::from_fp8(format, here);
      CHECK(emulated::to_fp8(format, value) == here);
      CHECK(emulated::to_fp8(format, -value) == (here | 0x80));
      if (code == format.largest) continue;
      // Halfway to the next one the even code wins, a little off it the nearer one.
      const auto next = static_cast<std::uint8_t>(code + 1);
      const float middle = (value + emulated::from_fp8(format, next)) / 2;
      CHECK(emulated::to_fp8(format, middle) == (code % 2 == 0 ? here : next));
      CHECK(emulated::to_fp8(format, std::nextafter(middle, 0.0F)) == here);
      CHECK(emulated::to_fp8(format, std::nextafter(middle, 1e9F)) == next);
    }
  }
}

TEST_CASE("fp8: rounding leaves the error that the tolerance is made of, at most") {
  for (const auto& [format, mantissa] : {std::pair{e4m3, 3}, std::pair{e5m2, 2}}) {
    double errors = 0, numbers = 0;
    for (int i = 0; i < 4000; ++i) {
      const double x = std::exp2(-3 + i * 1e-3);  // every mantissa as often as in logarithms
      const double off =
          double{emulated::from_fp8(format, emulated::to_fp8(format, static_cast<float>(x)))} - x;
      errors += off * off;
      numbers += x * x;
    }
    const double found = std::sqrt(errors / numbers);
    CHECK(found < hw::rounding_error(mantissa));
    CHECK(found > hw::rounding_error(mantissa) / 2);
  }
  // One block: query, output, up and down follow each other.
  const ExecDag dag = on_one_gpu(wide_transformer(1), Precision::fp8);
  const double e3 = hw::rounding_error(3), e2 = hw::rounding_error(2);
  CHECK(hw::tolerance(dag) ==
        testing::approx(0.08 + std::sqrt(4 * (e3 * e3 + e3 * e3 + e3 * e3 + e2 * e2))));
  CHECK(hw::tolerance(in_precision(dag, Precision::bf16)) == hw::tolerance(Precision::bf16));
}

TEST_CASE("fp8: a step on one GPU computes the host's numbers in the formats of the recipe") {
  const Network network = wide_transformer(1);
  for (const Precision recipe :
       {Precision::fp8, Precision::fp8_delayed, Precision::fp8_blockwise}) {
    const EmulatedGpus machine({});
    CAPTURE(to_text(recipe));
    emulated::fp8_products().clear();
    const ExecDag dag = on_one_gpu(network, recipe);
    CHECK(hw::CudaExecutor({}).check(dag) == "");
    if (recipe == Precision::fp8_blockwise) {  // whose gradients are E4M3
      CHECK(emulated::fp8_products() == std::map<std::string, int>{{"3 3", 2 * 6 * 3}});
      continue;
    }
    // Six layers, whose gradients are E5M2. Twice, and with delayed scaling again after the step
    // that finds the scales.
    const int steps = recipe == Precision::fp8_delayed ? 4 : 2;
    CHECK(emulated::fp8_products() ==
          std::map<std::string, int>{{"3 2", steps * 6 * 2}, {"3 3", steps * 6}});
  }
}

TEST_CASE("fp8: delayed scaling goes by the largest element of the step before") {
  // Activations of thousands: E4M3 ends at 448. So the first step looks before it casts.
  Network net{"loud", {}, {}, {}};
  LayerId x = add_input(net, "in", vector_shape(32));
  for (int i = 0; i < 14; ++i) {
    x = add_layer(net, "double" + std::to_string(i), Combine{"add"}, {x, x});
  }
  // Gradients of ten-millionths: E5M2 begins at 2^-16.
  for (const char* name : {"first", "second", "third"}) x = add_layer(net, name, Dense{16}, {x});
  x = add_layer(net, "norm", Norm{NormKind::layer, true, 0}, {x});
  x = add_layer(net, "classes", Dense{5}, {x});
  add_layer(net, "loss", Loss{}, {x});
  const EmulatedGpus machine({});
  CHECK(hw::CudaExecutor({}).check(on_one_gpu(net, Precision::fp8_delayed)) == "");
}

TEST_CASE("fp8: data, tensor and pipeline parallelism compute the host's numbers") {
  const Network network = wide_transformer(2);
  const Cluster cluster = star_of(8, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  unsigned seed = 0;
  std::vector<std::array<int, 3>> degrees{{2, 2, 2}};
  if (long_tests()) degrees.insert(degrees.end(), {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}});
  for (const auto& [tp, pp, dp] : degrees) {
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = 8;
    input.tensor_parallel = tp;
    input.pipeline_parallel = pp;
    input.data_parallel = dp;
    input.micro_batches = pp == 1 ? 1 : 2;
    const Precision recipe = seed % 2 == 0 ? Precision::fp8 : Precision::fp8_delayed;
    const ExecDag dag =
        in_precision(lowering::lower(network, cluster, strategies::plan_tensor(input)), recipe);
    const EmulatedGpus machine({.gpus = 8, .seed = seed++});
    CAPTURE(tp);
    CAPTURE(pp);
    CAPTURE(dp);
    emulated::fp8_products().clear();
    CHECK(hw::CudaExecutor({}).check(dag) == "");
    // Each device of a stage multiplies its part, each replica and micro-batch by itself.
    const int steps = recipe == Precision::fp8_delayed ? 4 : 2;
    const int forward = steps * 12 * tp * dp * (pp == 1 ? 1 : 2);
    CHECK(emulated::fp8_products() ==
          std::map<std::string, int>{{"3 2", 2 * forward}, {"3 3", forward}});
  }
}

TEST_CASE("fp8: experts on one GPU are one product with one scale for each tensor") {
  for (const Precision recipe : {Precision::fp8, Precision::fp8_delayed}) {
    const EmulatedGpus machine({});
    CAPTURE(to_text(recipe));
    const Network network = tiny_moe(all_experts, 1, wide_experts);
    // Queries, keys and values, the output, and experts up and down; not the router.
    const ExecDag dag = on_one_gpu(network, recipe);
    const int steps = steps_of_check(recipe);
    CHECK(products_of(dag, 1) == "6 forward, 12 backward");
    emulated::fp8_products().clear();
    CHECK(hw::CudaExecutor({}).check(dag) == "");
    CHECK(executed_products() == products_of(dag, steps));
  }
}

TEST_CASE("fp8: experts by blocks are a product each") {
  const EmulatedGpus machine({});
  const ExecDag dag = on_one_gpu(tiny_moe(all_experts, 1, wide_experts), Precision::fp8_blockwise);
  emulated::fp8_products().clear();
  CHECK(hw::CudaExecutor({}).check(dag) == "");
  // Queries, keys, values and output, and four experts up and down.
  CHECK(emulated::fp8_products() == std::map<std::string, int>{{"3 3", 2 * (4 + 4 * 2) * 3}});
}

TEST_CASE("fp8: products by blocks have the numbers of blocks of any size") {
  const EmulatedGpus machine({});
  std::mt19937 random(7);
  const auto one_of = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  // Of matrices whose blocks are of different magnitudes: as wide and as high as a block, or one
  // line or column of that.
  const auto numbers = [&](std::int64_t rows, std::int64_t columns, std::int64_t height,
                           std::int64_t width) {
    std::map<std::pair<std::int64_t, std::int64_t>, int> magnitudes;
    std::vector<float> all;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::pair at(i / columns / height, i % columns / width);
      if (!magnitudes.contains(at)) magnitudes[at] = one_of(-6, 6);
      const auto digits = static_cast<float>(one_of(-255, 255));  // bf16 has eight bits
      all.push_back(std::ldexp(digits, magnitudes[at]));
    }
    return all;
  };
  for (const hw::Product product :
       {hw::Product::forward, hw::Product::data, hw::Product::weights}) {
    const bool weights = product == hw::Product::weights;
    for (const auto& [rows, columns, inner] :
         {std::array<std::int64_t, 3>{4, 16, 16}, {132, 144, 272}, {132, 528, 16}, {8, 16, 528}}) {
      CAPTURE(static_cast<int>(product));
      CAPTURE(rows);
      CAPTURE(columns);
      CAPTURE(inner);
      BlockProduct of{product, rows, columns, inner, {}, {}, {}};
      of.x = weights ? numbers(rows, inner, 128, 1) : numbers(rows, inner, 1, 128);
      of.w = numbers(columns, inner, 128, 128);
      of.y = weights ? numbers(rows, columns, 128, 1) : numbers(rows, columns, 1, 128);
      const std::vector<float> found = by_blocks(of);
      const bool forward = product == hw::Product::forward;
      const std::int64_t down = weights ? columns : rows, across = forward ? columns : inner;
      REQUIRE(found.size() == static_cast<std::size_t>(down * across));
      // Errors over the root of the sum of squares that they are of, each line's mean square.
      std::vector<double> lines(static_cast<std::size_t>(down));
      std::vector<double> others(static_cast<std::size_t>(across));
      const auto element = [](const std::vector<float>& of_all, std::int64_t i) {
        return double{of_all[static_cast<std::size_t>(i)]};
      };
      for (std::int64_t i = 0; i < down * across; ++i) {
        const std::int64_t r = i / across, c = i % across;
        double sum = 0, squares = 0;
        for (std::int64_t k = 0; k < (forward ? inner : weights ? rows : columns); ++k) {
          const double term = forward ? element(of.x, r * inner + k) * element(of.w, c * inner + k)
                              : weights
                                  ? element(of.y, k * columns + r) * element(of.x, k * inner + c)
                                  : element(of.y, r * columns + k) * element(of.w, k * inner + c);
          sum += term;
          squares += term * term;
        }
        const double error = element(found, i) - sum;
        const double share = error * error / std::max(squares, 1e-9);
        lines[static_cast<std::size_t>(r)] += share / static_cast<double>(across);
        others[static_cast<std::size_t>(c)] += share / static_cast<double>(down);
      }
      const double most = 2 * hw::rounding_error(3);  // of two operands √2 times
      CHECK(std::sqrt(*std::max_element(lines.begin(), lines.end())) < most);
      CHECK(std::sqrt(*std::max_element(others.begin(), others.end())) < most);
    }
  }
  // As cuBLASLt wants it; the engine then multiplies in bf16.
  CHECK(by_blocks(
            {hw::Product::forward, 6, 16, 16, std::vector<float>(96), std::vector<float>(256), {}})
            .empty());
}

TEST_CASE("fp8: divided experts compute the host's numbers") {
  std::vector<ExpertDegrees> all{{1, 2, 1, 2}, {2, 2, 1, 2}};
  if (long_tests()) {
    const std::initializer_list<ExpertDegrees> more{{1, 4, 1, 4}, {2, 2, 2, 2}, {2, 2, 1, 4, true}};
    all.insert(all.end(), more);
  }
  unsigned seed = 0;
  for (const ExpertDegrees& degrees : all) {
    const World world(tiny_moe(all_experts, degrees.pipeline, wide_experts),
                      star_of(8, "10 GB/s", "1us"));
    strategies::StrategyInput input = world.input(4);
    input.micro_batches = degrees.pipeline == 1 ? 1 : 2;
    if (!degrees.whole) input.expert_tensor_parallel = static_cast<std::int32_t>(degrees.tensor);
    const Precision recipe = seed % 2 == 0 ? Precision::fp8_delayed : Precision::fp8;
    const ExecDag dag = in_precision(
        lowering::lower(world.network, world.cluster, mixture_plan(input, degrees)), recipe);
    const EmulatedGpus machine({.gpus = 8, .seed = seed++});
    CAPTURE(degrees.tensor);
    CAPTURE(degrees.pipeline);
    CAPTURE(degrees.experts);
    emulated::fp8_products().clear();
    CHECK(hw::CudaExecutor({}).check(dag) == "");
    CHECK(executed_products() == products_of(dag, steps_of_check(recipe)));
  }
}

TEST_CASE("fp8: random plans compute the host's numbers on parts of a GPU") {
  const Network network = wide_transformer(1);
  const Cluster cluster = star_of(4, "10 GB/s", "1us");
  for (std::uint64_t seed = 0; seed < (long_tests() ? 12 : 2); ++seed) {
    const Plan plan = with_split_states(random_plan(network, 3, 8, seed), seed);
    const ExecDag dag = in_precision(lowering::lower(network, cluster, plan),
                                     seed % 2 == 0 ? Precision::fp8_delayed : Precision::fp8);
    const EmulatedGpus machine({.seed = static_cast<unsigned>(seed)});
    CAPTURE(seed);
    CHECK(hw::CudaExecutor({32, 16, 16, 8}).check(dag) == "");
  }
}

TEST_CASE("fp8: a step in FP8 is measured, as a graph, and takes more memory than in bf16") {
  const Network network = wide_transformer(1);
  const EmulatedGpus machine({.numbers = false});
  const auto measured = [&](Precision precision) {
    return hw::CudaExecutor({}).step(on_one_gpu(network, precision), 3);
  };
  const Measurement delayed = measured(Precision::fp8_delayed);
  const Measurement own = measured(Precision::fp8);
  const Measurement bf16 = measured(Precision::bf16);
  CHECK(delayed.step.samples == 3);
  // A kernel less for each cast.
  CHECK(delayed.step.median < own.step.median);
  CHECK(delayed.device_bytes[0] > bf16.device_bytes[0]);
}

TEST_CASE("fp8: the copies of an operation count among what must fit") {
  const Network network = wide_transformer(1);
  const EmulatedGpus machine({});
  Machine gpu = hw::CudaExecutor({}).hardware().machine;
  const ExecDag dag = on_one_gpu(network, Precision::fp8);
  const auto fits = [&](const ExecDag& one, std::int64_t bytes) {
    gpu.cluster.devices[0].memory = {bytes};
    try {
      hw::check_fits(one, gpu);
      return true;
    } catch (const hw::MemoryError&) {
      return false;
    }
  };
  const std::int64_t tensors = static_cast<std::int64_t>(
      hw::plan_memory(dag, hw::dispatch(dag), hw::stores(dag), 2, 1, {}).devices[0].total);
  // By hand, the backward pass of `up`: 40 tokens of 32 channels, 64 × 32 weights, and twice 40
  // gradients of 64.
  const std::int64_t copies = 40 * 32 + 64 * 32 + 2 * 40 * 64;
  CHECK(fits(in_precision(dag, Precision::bf16), tensors));
  CHECK(fits(dag, tensors + copies));
  CHECK_FALSE(fits(dag, tensors + copies - 1));
}

TEST_CASE("fp8: what cannot multiply in FP8 is a sentence") {
  const Network network = wide_transformer(1);
  {
    const EmulatedGpus machine({.capability = 80});
    hw::CudaExecutor gpu({});
    CHECK(
        refusal_of([&] { static_cast<void>(gpu.check(on_one_gpu(network, Precision::fp8))); }) ==
        "--precision: fp8 on Emulated GPU, whose compute capability is 8.0; accepted there: fp32; "
        "bf16 and tf32 from compute capability 8.0, FP8 from 8.9");
  }
  const auto blocks = [&] { return on_one_gpu(network, Precision::fp8_blockwise); };
  {
    const EmulatedGpus machine({.blas = 120800});
    hw::CudaExecutor gpu({});
    CHECK_THROWS_WITH(static_cast<void>(gpu.check(blocks())),
                      "--precision: fp8-blockwise needs cuBLASLt 12.9 or newer");
  }
  const EmulatedGpus machine({.capability = 89});
  hw::CudaExecutor gpu({});
  CHECK(gpu.check(on_one_gpu(network, Precision::fp8)) == "");
  CHECK(refusal_of([&] { static_cast<void>(gpu.check(blocks())); }) ==
        "--precision: fp8-blockwise on Emulated GPU, whose compute capability is 8.9; accepted "
        "there: fp8, fp8-delayed, fp32, tf32, bf16, fp16; cuBLASLt scales by blocks on compute "
        "capability 9.0 only");
}

}  // namespace parsim::testing
