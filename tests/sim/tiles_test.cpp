#include "sim/tiles.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "core/layers.hpp"
#include "networks/networks.hpp"
#include "sim/least_kernels.hpp"
#include "sim/sim.hpp"
#include "tests/sim/small_dags.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

using namespace testing;

/// Ten multiprocessors that make one 256 x 128 tile of depth 1000 in 1 ms, no overhead.
TileRates simple_rates(double area_exponent, double memory = 1e18) {
  Coefficients row;
  row.tiles = {1, 1, 1, 1, 1, 0};
  row.area_exponent = area_exponent;
  return tile_rates(row, 10, FlopsPerSecond{10 * 65.536e9}, BytesPerSecond{memory});
}

Kernel gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto fm = static_cast<double>(m), fn = static_cast<double>(n), fk = static_cast<double>(k);
  return {KernelClass::gemm, fm * fk + fk * fn + fm * fn, 2 * fm * fn * fk, m, n, k};
}

double milliseconds(const Kernel& kernel, const TileRates& rates) {
  return gemm_time(kernel, rates, 4).count() * 1e3;
}

TEST_CASE("tiles: waves and splits by hand") {
  // With exponent 1 every tile, whatever its size, takes 1 us per step: the largest is best.
  // 10 tiles are one wave of depth 1000.
  CHECK(milliseconds(gemm(2560, 128, 1000), simple_rates(1)) == testing::approx(1.0));
  // 11 tiles are two waves; split by 2, 4, 8 they are 22, 44, 88 tiles of depth 500, 250, 125: 3,
  // 5, 9 waves. By 16 the depth would be under 64.
  CHECK(milliseconds(gemm(2561, 128, 1000), simple_rates(1)) == testing::approx(1.125));
  // Partial sums of 2561 x 128 x 2 B take 0.1 ms each, and one more to add: 1.5 + 0.3, 1.25 + 0.5,
  // 1.125 + 0.9 ms.
  Kernel in_cache = gemm(2561, 128, 1000);
  in_cache.elements = 0;
  CHECK(milliseconds(in_cache, simple_rates(1, 2561 * 128 * 2 / 1e-4)) == testing::approx(1.75));
}

TEST_CASE("tiles: small products, the inner dimension, Winograd and memory by hand") {
  // With exponent 0 a 32 x 32 tile of depth 64 takes 2 * 1024 * 64 / 65.536e9 s = 2 us.
  TileRates rates = simple_rates(0);
  CHECK(milliseconds(gemm(32, 32, 64), rates) == testing::approx(2e-3));
  rates.step = 5e-6;  // 64 / 32 steps of 5 us
  CHECK(milliseconds(gemm(32, 32, 64), rates) == testing::approx(10e-3));
  rates.winograd3 = 2;
  rates.overhead = 1e-6;
  Kernel kernel = gemm(32, 32, 64);
  kernel.winograd = 3;
  CHECK(milliseconds(kernel, rates) == testing::approx(6e-3));
  rates.memory = 1e9;
  kernel.elements = 1e6;
  CHECK(milliseconds(kernel, rates) == testing::approx(4.001));
}

TEST_CASE("tiles: small tiles of batched products by hand") {
  // Ten 32 x 32 tiles of depth 64 are one wave of 2 us. If 1/32 of the area has 1/32 of the
  // rate, 64.
  Coefficients row;
  row.tiles = {1, 1, 1, 1, 1, 0};
  row.batched_exponent = 1;
  const TileRates rates = tile_rates(row, 10, FlopsPerSecond{10 * 65.536e9}, BytesPerSecond{1e18});
  Kernel ten = gemm(32, 32, 64);
  CHECK(milliseconds(ten, rates) == testing::approx(2e-3));
  ten.batches = 10;
  CHECK(milliseconds(ten, rates) == testing::approx(64e-3));
  ten.kind = KernelClass::forward;
  CHECK(milliseconds(ten, rates) == testing::approx(2e-3));
}

TEST_CASE("tiles: thin single products measured on an A100 do not fall as batched ones do") {
  // Held-out rows of sim/fp32_gemm_rows.csv. With one exponent for all of its rows, most of them
  // batched, they took 2.4 to 3.3 times as long as measured.
  const Cluster cluster = topologies::load_cluster("star:1,device=a100-pcie-40", "test");
  const DeviceModel& a100 = cluster.models[0];
  const TileRates rates =
      tile_rates(*coefficients_of(a100, Precision::fp32).row, a100.multiprocessors,
                 a100.peak_at(Precision::fp32), a100.memory_rate);
  CHECK(milliseconds(gemm(33397, 28, 7038), rates) == testing::approx(1.369).epsilon(0.1));
  CHECK(milliseconds(gemm(17834, 25, 3051), rates) == testing::approx(0.361).epsilon(0.1));
  CHECK(milliseconds(gemm(2064, 24, 53856), rates) == testing::approx(0.632).epsilon(0.1));
}

TEST_CASE("tiles: a convolution by FFT by hand") {
  // 128 x 64 by 64 x 192 complex numbers at 544 frequencies are 544 real products of 128 x 128 by
  // 128 x 384, three tiles of 128 x 128 each: on eight multiprocessors 204 waves of 64 us.
  constexpr double gemms = 204 * 0.064;
  TileRates rates = simple_rates(0);
  rates.multiprocessors = 8;
  Kernel direct = gemm(128 * 27 * 27, 192, 64 * 25);
  direct.elements = 0;
  Kernel conv = direct;
  conv.spectrum = Spectrum{128, 192, 64};
  CHECK(milliseconds(conv, rates) == testing::approx(gemms));
  CHECK(milliseconds(direct, rates) > 6 * gemms);
  // 544 * 2 * (128 * 64 + 64 * 192 + 128 * 192) reals of 4 B, and the tensors of 2 B each, 1 ms
  // each.
  rates.memory = 4.0 * 544 * 2 * (128 * 64 + 64 * 192 + 128 * 192) / 1e-3;
  conv.elements = direct.elements = 1e-3 * rates.memory / 2;
  CHECK(gemm_time(conv, rates, 2).count() * 1e3 == testing::approx(gemms + 1 + 1));
  // All of it at once is full tiles in full waves, as fast as any part can be.
  const LeastTime least = least_gemm_time({conv, conv.flops}, rates, 2);
  CHECK(least.whole.count() * 1e3 == testing::approx(gemms + 1 + 1));
  // Whatever is faster, and the card does not do without.
  rates.memory = 1e6;
  CHECK(gemm_time(conv, rates, 2) == gemm_time(direct, rates, 2));
  rates = simple_rates(0);
  rates.spectral = false;
  CHECK(gemm_time(conv, rates, 2) == gemm_time(direct, rates, 2));
}

TEST_CASE("tiles: only convolutions with a form of their own beat the peak of the card") {
  const Cluster cluster = topologies::load_cluster("star:1,device=titanx-maxwell", "test");
  const auto cost = make_tile_costs(cluster);
  const Network network = networks::load_network("alexnet", {}, "test");
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    const auto* conv = layer.kind.as<Conv>();
    if (conv == nullptr) continue;
    const Part part{whole(layer.out, 128), {}};
    const auto time = [&](Precision precision) {
      return cost->compute(network, LayerId{i}, part, Pass::backward, DeviceId{0}, precision).time;
    };
    // Direct convolution cannot beat the card's peak.
    const double peak =
        2 * forward_flops(layer.kind, input_shapes(network, LayerId{i}), layer.out, part).value /
        peak_of(cluster.models[0], Precision::fp32);
    CAPTURE(layer.name);
    const bool by_fft = conv->windows[0].kernel == 5;
    const bool direct = conv->windows[0].stride > 1;
    if (by_fft) CHECK(time(Precision::fp32).count() < 0.6 * peak);
    if (direct) CHECK(time(Precision::fp32).count() > peak);
  }
}

TEST_CASE("tiles: an eighth of a wide convolution's filters never takes longer than all of them") {
  const Cluster cluster = topologies::load_cluster("star:1,device=v100-sxm2", "test");
  const auto cost = make_tile_costs(cluster);
  for (const std::int64_t kernel : {5, 7, 11}) {
    Network network;
    const LayerId image = add_input(network, "in", image_shape(256, 56, 56));
    const Window window{kernel, 1, kernel / 2, kernel / 2};
    const LayerId layer = add_layer(network, "conv", Conv{128, {window, window}}, {image});
    for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
      const auto time = [&](std::int64_t filters) {
        Part part{whole(network[layer].out, 32), {}};
        part.out[1] = {0, filters};
        return cost->compute(network, layer, part, pass, DeviceId{0}, Precision::fp32).time;
      };
      CAPTURE(kernel);
      CAPTURE(pass);
      for (const std::int64_t filters : {8, 15, 16}) CHECK(time(filters) <= time(128));
    }
  }
}

Kernel any_gemm() {
  Kernel kernel =
      gemm(*rc::gen::inRange<std::int64_t>(1, 20000), *rc::gen::inRange<std::int64_t>(1, 4000),
           *rc::gen::inRange<std::int64_t>(1, 20000));
  kernel.kind = static_cast<KernelClass>(*rc::gen::inRange(0, 4));
  kernel.winograd = *rc::gen::element<std::int64_t>(0, 3, 5);
  return kernel;
}

TileRates any_rates() {
  const Coefficients& row =
      coefficients()[*rc::gen::inRange<std::size_t>(0, coefficients().size())];
  return tile_rates(row, *rc::gen::inRange<std::int64_t>(1, 150), FlopsPerSecond{1e13},
                    BytesPerSecond{7e11});
}

TEST_CASE("tiles: no product beats its bounds, and more rows or columns never take less time") {
  CHECK(rc::check([] {
    const TileRates rates = any_rates();
    const Kernel small = any_gemm();
    const double time = gemm_time(small, rates, 4).count();
    const double gain = std::max({1.0, rates.winograd3, rates.winograd5});
    const double peak = rates.rate[static_cast<std::size_t>(small.kind)][0] *
                        static_cast<double>(rates.multiprocessors);
    RC_ASSERT(time >= rates.overhead + small.elements * 4 / rates.memory);
    RC_ASSERT(time >= (rates.overhead + small.flops / peak / gain) * (1 - 1e-12));

    Kernel tall = gemm(small.m + *rc::gen::inRange<std::int64_t>(0, 5000), small.n, small.k);
    Kernel wide = gemm(small.m, small.n + *rc::gen::inRange<std::int64_t>(0, 500), small.k);
    for (Kernel* larger : {&tall, &wide}) {
      larger->kind = small.kind;
      larger->winograd = small.winograd;
      RC_ASSERT(gemm_time(*larger, rates, 4).count() >= time);
    }
  }));
}

TEST_CASE("tiles: two halves never take less time than the whole, but for a wave's rounding") {
  CHECK(rc::check([] {
    const TileRates rates = any_rates();
    const Kernel half = any_gemm();
    Kernel twice = gemm(2 * half.m, half.n, half.k);
    twice.kind = half.kind;
    twice.winograd = half.winograd;
    const double one = gemm_time(half, rates, 4).count();
    const double both = gemm_time(twice, rates, 4).count();
    RC_ASSERT(both <= (2 * one - rates.overhead) * (1 + 1e-12));
  }));
}

TEST_CASE("tiles: a deeper product may take less time, because it may be split") {
  // One tile on ten multiprocessors: of depth 127 one works; of depth 128 two halves may.
  const TileRates rates = simple_rates(1);
  CHECK(milliseconds(gemm(256, 128, 127), rates) == testing::approx(0.127));
  CHECK(milliseconds(gemm(256, 128, 128), rates) == testing::approx(0.064));
}

Cluster one_gpu(const std::string& type) {
  return topologies::load_cluster("star:1,device=" + type + ",rate=10GB/s,latency=1us", "test");
}

/// Forward and backward of a network as cost models price it, without an input gradient.
Seconds pass_times(const Network& network, const CostModel& cost, std::int64_t samples) {
  Seconds all{};
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const Part part{whole(network[id].out, samples), {}};
    const auto time = [&](Pass pass) {
      return cost.compute(network, id, part, pass, DeviceId{0}, Precision::fp32).time;
    };
    const std::vector<LayerId>& inputs = network[id].inputs;
    const bool first = !inputs.empty() && network[inputs[0]].kind.as<Input>() != nullptr;
    all += time(Pass::forward) + time(first ? Pass::backward_weights : Pass::backward);
  }
  return all;
}

TEST_CASE("tiles: VGG-16 on a P100 takes what was published, less than direct convolution can") {
  const Network vgg = networks::load_network("vgg16", {}, "test");
  const Cluster cluster = one_gpu("p100-sxm2");
  const double time = pass_times(vgg, *make_tile_costs(cluster), 64).count();
  // 154 images/s on one GPU of a DGX-1, 64 images (TensorFlow's benchmarks of May 2017).
  CHECK(std::abs(time / (64.0 / 154) - 1) < 0.08);
  const double floor = 3 * 64 * forward_flops_per_sample(vgg).value / 10.6e12;
  CHECK(time < 0.85 * floor);
  CHECK(pass_times(vgg, *make_constant_efficiency(cluster), 64).count() > 1.4 * floor);
}

TEST_CASE("tiles: normalisation is slower than other walks through memory before Volta, by hand") {
  // Two passes read, one writes: three times 256 x 64 x 56 x 56 numbers of four bytes; a function
  // reads and writes. 0.35 and 0.75 of the memory's rate.
  Network net;
  const LayerId in = add_input(net, "in", image_shape(64, 56, 56));
  const LayerId norm = add_layer(net, "norm", Norm{NormKind::batch, true, 0}, {in});
  const LayerId relu = add_layer(net, "relu", Activation{"relu"}, {norm});
  const double tensor = 256.0 * 64 * 56 * 56 * 4;
  for (const auto& [device, rate, reached] :
       {std::tuple{"p100-sxm2", 732e9, 0.35}, {"v100-sxm2", 900e9, 0.75}}) {
    CAPTURE(device);
    const Cluster cluster = one_gpu(device);
    const auto cost = make_tile_costs(cluster);
    const auto time = [&](LayerId layer) {
      return cost
          ->compute(net, layer, {whole(net[layer].out, 256), {}}, Pass::forward, DeviceId{0},
                    Precision::fp32)
          .time.count();
    };
    CHECK(std::abs(time(norm) / (3 * tensor / (reached * rate)) - 1) < 0.01);
    CHECK(std::abs(time(relu) / (2 * tensor / (0.75 * rate)) - 1) < 0.01);
  }
}

TEST_CASE("tiles: on Hopper matmuls of 16 bits need rows of whole 16 bytes, by hand") {
  // Of the generation, not only cards with a row of their own: GH200's and H20's head of a GPT were
  // a quarter of an H100's.
  for (const auto& [device, measured] : {std::pair{"h100-sxm5", true},
                                         {"gh200", true},
                                         {"h20", true},
                                         {"a100-sxm4-80", false},
                                         {"b300", false}}) {
    CAPTURE(device);
    const Cluster cluster = one_gpu(device);
    const auto cost = make_tile_costs(cluster);
    const auto time = [&](std::int64_t units, Precision precision) {
      Network net;
      const LayerId in = add_input(net, "in", Shape{{{Dim::channel, 768}}});
      const LayerId dense = add_layer(net, "dense", Dense{units, false}, {in});
      return cost
          ->compute(net, dense, {whole(net[dense].out, 8192), {}}, Pass::forward, DeviceId{0},
                    precision)
          .time.count();
    };
    const double aligned = time(50264, Precision::bf16);
    if (measured) {  // kernel_factors.csv: rows of a multiple of 2, and of 8 bytes
      CHECK(time(50257, Precision::bf16) / aligned == testing::approx(4.69).epsilon(0.01));
      CHECK(time(50260, Precision::bf16) / aligned == testing::approx(2.92).epsilon(0.01));
    } else {  // not measured: as before
      CHECK(time(50257, Precision::bf16) < 1.01 * time(50264, Precision::bf16));
    }
    CHECK(time(50257, Precision::fp32) < 1.02 * time(50264, Precision::fp32));
  }
}

/// Forward and backward of a quarter of a layer, cut along an axis of its output.
double quarter_time(const Network& network, LayerId layer, std::size_t axis, std::int64_t samples,
                    const CostModel& cost) {
  Region out = whole(network[layer].out, samples);
  out[axis] = {0, out[axis].size() / 4};
  double time = 0;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    time +=
        cost.compute(network, layer, {out, {}}, pass, DeviceId{0}, Precision::fp32).time.count();
  }
  return time;
}

TEST_CASE("tiles: splitting a layer by sample, channel or height costs differently") {
  // The lesson of figure 1 of Jia et al. 2018, at the same FLOPs: other products, other waves. (The
  // figure's own layer, VGG's eighth, is large enough to come out within 2 % whichever way it is
  // cut; there a channel split took twice a height split, for reasons that a product's shape does
  // not show.)
  const Network resnet = networks::load_network("resnet50", {}, "test");
  const Cluster cluster = one_gpu("p100-sxm2");
  const auto cost = make_tile_costs(cluster);
  double widest = 1;
  std::size_t different = 0, convolutions = 0;
  for (std::size_t l = 0; l < resnet.layers.size(); ++l) {
    if (resnet.layers[l].kind.as<Conv>() == nullptr) continue;
    const double sample = quarter_time(resnet, LayerId{l}, 0, 16, *cost);
    const double channel = quarter_time(resnet, LayerId{l}, 1, 16, *cost);
    const double spread = std::max(sample / channel, channel / sample);
    ++convolutions;
    if (spread > 1.05) ++different;
    widest = std::max(widest, spread);
  }
  CHECK(different > convolutions / 4);
  CHECK(widest > 1.3);
}

TEST_CASE("tiles: every device has a cost, and more samples never take less time forwards") {
  std::vector<std::string> types;
  Cluster cluster =
      star(std::vector<double>(topologies::device_models().size(), 10e9), Seconds{1e-6});
  cluster.models = topologies::device_models();
  for (std::size_t i = 0; i < cluster.models.size(); ++i) {
    cluster.devices[i].model = static_cast<std::int32_t>(i);
  }
  const Network network = networks::load_network("lenet5", {}, "test");
  const auto cost = make_tile_costs(cluster);
  CHECK(rc::check([&] {
    const DeviceId device{*rc::gen::inRange<std::size_t>(0, cluster.devices.size())};
    const LayerId layer{*rc::gen::inRange<std::size_t>(0, network.layers.size())};
    const auto precision = static_cast<Precision>(*rc::gen::inRange(0, 4));
    const Pass pass =
        *rc::gen::element(Pass::forward, Pass::backward_data, Pass::recompute, Pass::backward);
    const std::int64_t less = *rc::gen::inRange(1, 50), more = less + *rc::gen::inRange(0, 50);
    const auto time = [&](std::int64_t samples) {
      return cost
          ->compute(network, layer, {whole(network[layer].out, samples), {}}, pass, device,
                    precision)
          .time;
    };
    RC_ASSERT(time(less) >= Seconds{0});
    if (pass != Pass::backward) RC_ASSERT(time(more) >= time(less));
  }));
}

TEST_CASE("tiles: no layer takes longer in TF32 or 16 bits than in FP32 on the same card") {
  Cluster cluster =
      star(std::vector<double>(topologies::device_models().size(), 10e9), Seconds{1e-6});
  cluster.models = topologies::device_models();
  for (std::size_t i = 0; i < cluster.models.size(); ++i) {
    cluster.devices[i].model = static_cast<std::int32_t>(i);
  }
  const auto cost = make_tile_costs(cluster);
  for (const char* name : {"alexnet", "resnet18", "mobilenet_v2"}) {
    const Network network = networks::load_network(name, {}, "test");
    for (std::size_t i = 0; i < network.layers.size(); ++i) {
      const LayerId id{i};
      if (!network[id].kind.as<Conv>() && !network[id].kind.as<Dense>()) continue;
      const Part part{whole(network[id].out, 32), {}};
      for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
        CAPTURE(cluster.models[d].name);
        CAPTURE(network[id].name);
        for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
          const auto time = [&](Precision precision) {
            return cost->compute(network, id, part, pass, DeviceId{d}, precision).time;
          };
          for (const Precision low : {Precision::tf32, Precision::fp16, Precision::bf16}) {
            CHECK(time(low) <= time(Precision::fp32));
          }
        }
      }
    }
  }
}

TEST_CASE("tiles: convolutions in groups are guessed where no table has them") {
  // Only Hopper's rows have groups (kernel_factors.csv), none of even ones in FP32.
  const auto origin = [](const std::string& type, std::int64_t filters, Precision precision) {
    Network network;
    const LayerId image = add_input(network, "in", image_shape(128, 28, 28));
    const Window window{3, 1, 1, 1};
    const LayerId conv =
        add_layer(network, "conv", Conv{filters, {window, window}, 32, false}, {image});
    const Part part{whole(network[conv].out, 8), {}};
    return make_tile_costs(one_gpu(type))
        ->compute(network, conv, part, Pass::forward, DeviceId{0}, precision)
        .origin;
  };
  for (const char* type : {"p100-pcie", "v100-sxm2", "t4"}) {
    CHECK(origin(type, 128, Precision::fp32) == Origin::guessed);
    CHECK(origin(type, 256, Precision::fp32) == Origin::guessed);
  }
  CHECK(origin("h100-sxm5", 256, Precision::tf32) == Origin::modelled);
  CHECK(origin("h100-sxm5", 128, Precision::tf32) == Origin::modelled);
  CHECK(origin("h100-sxm5", 128, Precision::fp32) == Origin::guessed);
  CHECK(origin("h100-sxm5", 256, Precision::fp32) == Origin::modelled);
}

TEST_CASE("tiles: who has no coefficients borrows them and says guessed") {
  const Network network = networks::load_network("lenet5", {}, "test");
  const auto origin = [&](const std::string& type, Precision precision) {
    const Cluster cluster = one_gpu(type);
    return make_tile_costs(cluster)
        ->compute(network, LayerId{1}, {whole(network.layers[1].out, 1), {}}, Pass::forward,
                  DeviceId{0}, precision)
        .origin;
  };
  CHECK(origin("p100-pcie", Precision::fp32) == Origin::modelled);
  CHECK(origin("v100-sxm3", Precision::fp16) == Origin::modelled);
  CHECK(origin("t4", Precision::fp16) == Origin::modelled);
  CHECK(origin("p100-pcie", Precision::fp16) == Origin::guessed);
  CHECK(origin("a100-sxm4-40", Precision::tf32) == Origin::guessed);
  CHECK(origin("h100-sxm5", Precision::tf32) == Origin::modelled);
  CHECK(origin("h200-sxm", Precision::bf16) == Origin::modelled);
  // Of FP32 on A100 only matrix products were measured: LeNet's first layer is a convolution.
  CHECK(origin("a100-pcie-40", Precision::fp32) == Origin::guessed);
  CHECK(origin("k80", Precision::fp32) == Origin::guessed);
  const auto borrowed = [](const std::string& type, Precision precision) {
    return coefficients_of(topologies::device_model(type, "test"), precision).row;
  };
  CHECK(borrowed("k80", Precision::fp32)->family == "m40");
  CHECK(borrowed("gtx-1080", Precision::fp32)->family == "titanx-pascal");
  // V100, T4 and H100 are one generation away: the newest, whichever memory a card of one chip has.
  CHECK(borrowed("a100-sxm4-40", Precision::bf16)->operands == Precision::fp16);
  for (const char* newer : {"a100-sxm4-40", "a100-sxm4-80", "a100-pcie", "a100-pcie-40", "a30"}) {
    CHECK(borrowed(newer, Precision::bf16)->architecture == 9.0);
  }
  CHECK(borrowed("l4", Precision::bf16)->family == "t4");
  CHECK(borrowed("mi100", Precision::bf16)->family == "v100");
  CHECK(borrowed("a100-sxm4-40", Precision::tf32)->family == "a100");
  CHECK(borrowed("a100-sxm4-80", Precision::tf32)->family == "a100");
  CHECK(borrowed("a100-sxm4-80", Precision::tf32)->operands == Precision::tf32);
  // L4 has T4's power limit, RTX 2080 three times as much.
  CHECK(borrowed("l4", Precision::tf32)->family == "t4");
  CHECK(borrowed("rtx-2080", Precision::fp32)->family == "v100");
  CHECK(borrowed("rtx-2080", Precision::fp16)->family == "v100");
  CHECK(borrowed("rtx-3090", Precision::fp16)->operands == Precision::fp16);
  CHECK(borrowed("b200-sxm", Precision::tf32)->family == "h200");
  CHECK(borrowed("h100-sxm5", Precision::fp32)->family == "h100");
}

TEST_CASE("tiles: a T4 computes all the time at a lower clock than for one kernel") {
  const auto rate = [](const std::string& family, Precision operands) {
    for (Coefficients row : coefficients()) {
      if (row.family != family || row.operands != operands) continue;
      const auto of = [&] {
        return tile_rates(row, 40, FlopsPerSecond{8e12}, BytesPerSecond{3e11}).rate[0][0];
      };
      const double sustained = of();
      row.sustained = 1;
      return of() / sustained;
    }
    return 0.0;
  };
  CHECK(rate("t4", Precision::fp32) == testing::approx(1.3));
  CHECK(rate("t4", Precision::fp16) == testing::approx(1.3));
  CHECK(rate("v100", Precision::fp32) == testing::approx(1));
}

TEST_CASE("tiles: a report says how far each device's times were from measurements set aside") {
  const auto accuracy = [](const std::string& type, Precision precision) {
    return make_tile_costs(one_gpu(type))->accuracy(precision);
  };
  CHECK(accuracy("v100-sxm2", Precision::fp32).starts_with("v100-sxm2 11.7 %"));
  CHECK(accuracy("v100-sxm2", Precision::fp16).starts_with("v100-sxm2 12.3 %"));
  CHECK(accuracy("k80", Precision::fp32).starts_with("k80 unknown (scaled from m40 data)"));
  CHECK(
      make_constant_efficiency(one_gpu("t4"))->accuracy(Precision::fp32).starts_with("t4 19.7 %"));
}

}  // namespace
TEST_CASE("tiles: a described card with far faster rates than its base's borrows its kernels") {
  DeviceModel described = topologies::device_model("h100-sxm5", "test");
  described.base = described.name;
  described.name = "mine";
  const auto guessed = [&](double factor) {
    DeviceModel faster = described;
    for (FlopsPerSecond& peak : faster.peak) peak = peak * factor;
    faster.memory_rate = faster.memory_rate * factor;
    const bool gemms = gemm_model_of(faster, Precision::bf16).value().borrowed;
    CHECK(gemms == (coefficients_of(faster, Precision::bf16).origin == Origin::guessed));
    return gemms;
  };
  CHECK_FALSE(guessed(1));
  CHECK_FALSE(guessed(0.7));  // another limit of its power, slower memory
  CHECK_FALSE(guessed(1.2));
  CHECK(guessed(3));
}

}  // namespace parsim::sim
