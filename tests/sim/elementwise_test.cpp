#include "sim/elementwise.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "core/network.hpp"
#include "core/random.hpp"
#include "sim/optimizer_step.hpp"

namespace parsim::sim {
namespace {

constexpr std::int64_t tokens = 16, channels = 64, samples = 4;
constexpr double n = samples * tokens * channels;

struct Sketch {
  Network network;

  LayerId input() {
    return add_input(network, "in" + std::to_string(network.layers.size()),
                     {{{Dim::token, tokens}, {Dim::channel, channels}}});
  }
  LayerId add(LayerKind kind, std::vector<LayerId> inputs) {
    return add_layer(network, "layer" + std::to_string(network.layers.size()), std::move(kind),
                     std::move(inputs));
  }
  [[nodiscard]] Kernel of(LayerId layer, Pass pass, Fusion fusion) const {
    const Kernels kernels =
        kernels_of(network, layer, Part{whole(network[layer].out, samples), {}}, pass, fusion);
    REQUIRE(kernels.count == 1);
    return kernels.list[0];
  }
  [[nodiscard]] std::size_t count(LayerId layer, Pass pass, Fusion fusion) const {
    return kernels_of(network, layer, Part{whole(network[layer].out, samples), {}}, pass, fusion)
        .count;
  }
};

TEST_CASE("elementwise: stored scores are scaled and masked in kernels of their own") {
  Sketch sketch;
  const Shape heads = {{{Dim::head, 2}, {Dim::token, tokens}, {Dim::other, 8}}};
  const Shape keys = {{{Dim::head, 2}, {Dim::other, 8}, {Dim::other, tokens}}};
  const LayerId query = add_input(sketch.network, "query", heads);
  const LayerId key = add_input(sketch.network, "key", keys);
  const LayerId scores = sketch.add(MatMul{}, {query, key});
  const LayerId weights = sketch.add(Softmax{2}, {scores});
  const double size = samples * 2.0 * tokens * tokens;
  const auto elements = [&](LayerId layer, Pass pass, Fusion fusion) {
    const Kernels kernels = kernels_of(
        sketch.network, layer, Part{whole(sketch.network[layer].out, samples), {}}, pass, fusion);
    double sum = 0;
    for (const Kernel& kernel : kernels) sum += kernel.elements;
    return sum / size;
  };
  // Scale, mask and softmax read and write; backward the softmax reads two and writes, the scale
  // reads and writes, the mask has no gradient.
  CHECK(sketch.count(weights, Pass::forward, Fusion::none) == 3);
  CHECK(elements(weights, Pass::forward, Fusion::none) == 6);
  CHECK(elements(weights, Pass::recompute, Fusion::none) == 6);
  CHECK(sketch.count(weights, Pass::backward, Fusion::none) == 2);
  CHECK(elements(weights, Pass::backward, Fusion::none) == 5);
  // Megatron-LM and Inductor fuse the three.
  for (const Fusion fused : {Fusion::megatron, Fusion::compiled}) {
    CHECK(sketch.count(weights, Pass::forward, fused) == 1);
    CHECK(elements(weights, Pass::forward, fused) == 2);
  }
  // A router's softmax, or one that a layer of its own scales, as in networks from ONNX, is alone.
  const LayerId scaled = sketch.add(Activation{"scale"}, {scores});
  const LayerId other = sketch.add(Softmax{2}, {scaled});
  CHECK(elements(other, Pass::forward, Fusion::none) == 2);
}

TEST_CASE("elementwise: residual sum after dropout by hand") {
  Sketch sketch;
  const LayerId x = sketch.input(), y = sketch.input();
  const LayerId dropped = sketch.add(Dropout{0.1}, {y});
  const LayerId sum = sketch.add(Combine{"add"}, {x, dropped});
  const LayerId norm = sketch.add(Norm{NormKind::layer, true, 0}, {sum});
  const LayerId next = sketch.add(Dense{8, false}, {norm});
  const LayerId last = sketch.add(Combine{"add"}, {sum, norm});
  const double scale = 2 * channels;

  // A kernel for each layer; the gradient of the sum stands for that of both readers of x.
  CHECK(sketch.of(dropped, Pass::forward, Fusion::none).elements == 2 * n);
  CHECK(sketch.of(sum, Pass::forward, Fusion::none).elements == 3 * n);
  CHECK(sketch.of(sum, Pass::backward, Fusion::none).elements == 3 * n);
  CHECK(sketch.of(norm, Pass::backward, Fusion::none).elements == 5 * n + scale);

  // Megatron-LM: one kernel reads x, y and writes the sum and a mask; the norm is another one,
  // whose backward pass reads gradient and activation once.
  CHECK(sketch.of(dropped, Pass::forward, Fusion::megatron).elements == n);
  CHECK(sketch.of(dropped, Pass::forward, Fusion::megatron).masks == n);
  CHECK(sketch.of(dropped, Pass::forward, Fusion::megatron).launches == 0);
  CHECK(sketch.of(sum, Pass::forward, Fusion::megatron).elements == 2 * n);
  CHECK(sketch.of(sum, Pass::forward, Fusion::megatron).launches == 1);
  CHECK(sketch.of(norm, Pass::forward, Fusion::megatron).elements == 2 * n + scale);
  CHECK(sketch.of(norm, Pass::backward, Fusion::megatron).elements == 3 * n + 3 * n + scale);
  CHECK(sketch.of(dropped, Pass::backward, Fusion::megatron).elements == 2 * n);
  // The sum hands its gradient on, which is that of its two readers, added by autograd.
  CHECK(sketch.of(sum, Pass::backward, Fusion::megatron).elements == 3 * n);
  CHECK(sketch.count(last, Pass::backward, Fusion::megatron) == 0);

  // Inductor: the norm computes in the kernel of the sum, which others read, too.
  CHECK(sketch.of(dropped, Pass::forward, Fusion::compiled).bytes(2) == 2 * n);
  CHECK(sketch.of(sum, Pass::forward, Fusion::compiled).elements == 2 * n);
  CHECK(sketch.of(sum, Pass::forward, Fusion::compiled).launches == 0);
  CHECK(sketch.of(norm, Pass::forward, Fusion::compiled).elements == n + scale);
  CHECK(sketch.of(norm, Pass::forward, Fusion::compiled).launches == 1);
  // The norm's gradient needs the sum, which is in memory; it and the next one's are added.
  CHECK(sketch.of(norm, Pass::backward, Fusion::compiled).elements == 6 * n + scale);
  CHECK(sketch.of(sum, Pass::backward, Fusion::compiled).elements == n);
  CHECK_FALSE(joined_reader(sketch.network, norm, Fusion::compiled));
  CHECK(sketch.network[next].inputs.front() == norm);
}

TEST_CASE("elementwise: gated activation by hand") {
  Sketch sketch;
  const LayerId gate = sketch.input(), up = sketch.input();
  const LayerId active = sketch.add(Activation{"silu", 0}, {gate});
  const LayerId gated = sketch.add(Combine{"mul"}, {active, up});
  sketch.add(Dense{8, false}, {gated});
  const auto both = [&](Pass pass, Fusion fusion) {
    return sketch.of(active, pass, fusion).elements + sketch.of(gated, pass, fusion).elements;
  };
  CHECK(both(Pass::forward, Fusion::none) == 5 * n);
  CHECK(both(Pass::backward, Fusion::none) == 8 * n);
  for (const Fusion fusion : {Fusion::compiled, Fusion::megatron}) {
    // Reads both and writes one; reads gradient and both and writes both gradients.
    CHECK(both(Pass::forward, fusion) == 3 * n);
    CHECK(both(Pass::backward, fusion) == 5 * n);
    CHECK(sketch.of(active, Pass::backward, fusion).launches == 0);
    CHECK(sketch.of(gated, Pass::backward, fusion).launches == 1);
  }
}

TEST_CASE("elementwise: RMS norm, rotary embedding and softmax by hand") {
  Sketch sketch;
  const LayerId x = sketch.input();
  const LayerId normed = sketch.add(Norm{NormKind::layer, false, 0}, {x});
  const LayerId weights = sketch.add(Learned{vector_shape(channels)}, {});
  const LayerId scaled = sketch.add(Combine{"mul"}, {normed, weights});
  const LayerId rotated = sketch.add(Activation{"rotary", 0}, {scaled});
  const double w = samples * channels;  // regions have samples, also of what is the same for all
  CHECK(sketch.of(rotated, Pass::forward, Fusion::megatron).elements == 2 * n);
  CHECK(sketch.of(rotated, Pass::backward, Fusion::megatron).elements == 2 * n);
  const auto norm = [&](Pass pass) {
    return sketch.of(normed, pass, Fusion::megatron).elements +
           sketch.of(scaled, pass, Fusion::megatron).elements;
  };
  CHECK(norm(Pass::forward) == 2 * n + w);
  CHECK(norm(Pass::backward) == 3 * n + 2 * w);

  Sketch scores;
  const LayerId q = add_input(scores.network, "q", {{{Dim::token, 8}, {Dim::other, 4}}});
  const LayerId k = add_input(scores.network, "k", {{{Dim::other, 4}, {Dim::other, 8}}});
  const LayerId product = scores.add(MatMul{}, {q, k});
  const LayerId softmax = scores.add(Softmax{1}, {product});
  constexpr double all = samples * 8 * 8;
  CHECK(scores.of(softmax, Pass::forward, Fusion::megatron).bytes(2) == 4 * all);
  CHECK(scores.of(softmax, Pass::backward, Fusion::megatron).bytes(2) == 6 * all);
}

TEST_CASE("elementwise: a chain reads and writes what crosses its border, on random networks") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Sketch sketch;
    std::vector<LayerId> made{sketch.input(), sketch.input()};
    for (int i = 0; i < 25; ++i) {
      const LayerId a = made[random.below(made.size())], b = made[random.below(made.size())];
      switch (random.below(7)) {
        case 0:
          made.push_back(sketch.add(Activation{"gelu", 0}, {a}));
          break;
        case 1:
          made.push_back(sketch.add(Combine{"add"}, {a, b}));
          break;
        case 2:
          made.push_back(sketch.add(Combine{"mul"}, {a, b}));
          break;
        case 3:
          made.push_back(sketch.add(Norm{NormKind::layer, false, 0}, {a}));
          break;
        case 4:
          made.push_back(sketch.add(Dropout{0.1}, {a}));
          break;
        case 5:
          made.push_back(sketch.add(Softmax{1}, {a}));
          break;
        default:
          made.push_back(sketch.add(Dense{channels, false}, {a}));
      }
    }
    const Network& network = sketch.network;
    for (const Fusion fusion : {Fusion::compiled, Fusion::megatron}) {
      // Chains by merging, from the last layer.
      std::vector<std::size_t> chain(network.layers.size());
      std::iota(chain.begin(), chain.end(), std::size_t{0});
      for (std::size_t l = chain.size(); l-- > 0;) {
        if (const auto reader = joined_reader(network, LayerId{l}, fusion)) {
          chain[l] = chain[reader->index()];
        }
      }
      std::map<std::size_t, double> expected, elements, launches;
      const auto readers = consumers(network);
      for (std::size_t l = 0; l < chain.size(); ++l) {
        if (!is_elementwise(network.layers[l].kind)) continue;
        const auto next = joined_reader(network, LayerId{l}, fusion);
        for (const LayerId from : network.layers[l].inputs) {
          const bool inside = joined_reader(network, from, fusion) == LayerId{l};
          expected[chain[l]] += inside ? 0 : n;
        }
        const bool kept =
            next && std::all_of(readers[l].begin(), readers[l].end(),
                                [&](const Consumer& reader) { return reader.layer == *next; });
        expected[chain[l]] += kept ? 0 : n;
        const Kernel kernel = sketch.of(LayerId{l}, Pass::forward, fusion);
        elements[chain[l]] += kernel.elements;
        launches[chain[l]] += kernel.launches;
      }
      CAPTURE(seed);
      for (const auto& [head, moved] : elements) {
        CHECK(launches[head] == 1);
        CHECK(moved == expected[head]);
      }
    }
  }
}

TEST_CASE("elementwise: RMS norm and rotary positions as Hugging Face's models, by hand") {
  Sketch sketch;
  const LayerId x = sketch.input();
  const LayerId norm = sketch.add(Norm{NormKind::layer, false, 0}, {x});
  const LayerId turned = sketch.add(Activation{"rotary"}, {norm});
  const Kernel forward = sketch.of(norm, Pass::forward, Fusion::none);
  CHECK(forward.launches == 7);
  // Two conversions of 2 and 4 bytes, and five times 4 bytes.
  CHECK(forward.bytes(2) == (2 * (2 + 4) + 5 * 4) * n);
  CHECK(forward.bytes(4) == 5 * 4 * n);
  CHECK(sketch.of(norm, Pass::backward, Fusion::none).bytes(2) == (2 * (2 + 4) + 13 * 4) * n);
  CHECK(sketch.of(turned, Pass::forward, Fusion::none).bytes(2) == 10 * 2 * n);
  CHECK(sketch.of(turned, Pass::backward, Fusion::none).bytes(2) == 15 * 2 * n);
}

TEST_CASE("elementwise: loss by fusion, by hand") {
  // compiled: two reads, or a read and a write, of two bytes.
  CHECK(loss_kernel(1000, false, Fusion::compiled).bytes(2) == 4000);
  CHECK(loss_kernel(1000, true, Fusion::compiled).bytes(2) == 4000);
  // megatron: conversion of 6 bytes, 8 walks of 4; product in place and conversion.
  CHECK(loss_kernel(1000, false, Fusion::megatron).bytes(2) == 38'000);
  CHECK(loss_kernel(1000, true, Fusion::megatron).bytes(2) == 14'000);
}

TEST_CASE("optimizer step: bytes and launches by hand") {
  OptimizerStep step{1000, Optimizer::adam, Precision::fp32, Precision::fp32};
  const auto kernels = [&](Fusion fusion) { return optimizer_kernels(step, fusion); };
  // Weight and two states read and written, gradient read.
  CHECK(kernels(Fusion::compiled).touched == Bytes{28'000});
  // The sum is also zeroed, scaled in place and read for its norm.
  CHECK(kernels(Fusion::megatron).touched == Bytes{28'000 + (4 + 8 + 4) * 1000});
  CHECK(kernels(Fusion::megatron).launches == 1);
  step.optimizer = Optimizer::momentum;
  CHECK(kernels(Fusion::compiled).touched == Bytes{20'000});
  step.optimizer = Optimizer::sgd;
  CHECK(kernels(Fusion::none).touched == Bytes{12'000});
  // A copy in 16 bits, gradients of two bytes.
  step.precision = step.reduce = Precision::bf16;
  CHECK(kernels(Fusion::compiled).touched == Bytes{(8 + 2 + 6) * 1000});
  CHECK(kernels(Fusion::compiled).launches == 2);
  CHECK(kernels(Fusion::none).touched == Bytes{(8 + 2) * 1000});
  step.elements = 2 * 320 * 65'536 + 1;
  CHECK(kernels(Fusion::compiled).launches == 6);
  CHECK(kernels(Fusion::none).launches == 1);
}

}  // namespace
}  // namespace parsim::sim
