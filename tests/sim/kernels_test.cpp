#include "sim/kernels.hpp"

#include <doctest/doctest.h>

#include "core/layers.hpp"
#include "core/network.hpp"

namespace parsim::sim {
namespace {

struct OneLayer {
  Network network;
  LayerId layer;
};

OneLayer one(const Shape& in, LayerKind kind, std::size_t inputs = 1) {
  OneLayer made;
  const LayerId image = add_input(made.network, "in", in);
  made.layer = add_layer(made.network, "layer", std::move(kind), std::vector(inputs, image));
  return made;
}

std::vector<std::int64_t> sizes(const Kernel& kernel) {
  return {kernel.m, kernel.n, kernel.k, kernel.batches};
}

/// The only kernel of a pass, but for the addition of a convolution's bias.
Kernel only(const OneLayer& made, const Part& part, Pass pass) {
  const Kernels kernels = kernels_of(made.network, made.layer, part, pass);
  REQUIRE(kernels.count >= 1);
  REQUIRE((kernels.count == 1 || (kernels.count == 2 && kernels.list[1].op == Operator::bias)));
  return kernels.list[0];
}

Part all_of(const OneLayer& made, std::int64_t samples) {
  return {whole(made.network[made.layer].out, samples), {}};
}

using List = std::vector<std::int64_t>;

TEST_CASE("kernels: a convolution's products by hand") {
  // 8 samples, 3 to 64 channels, 224 x 224 to 112 x 112, 7 x 7 of stride 2.
  const OneLayer made = one(image_shape(3, 224, 224), Conv{64, {{7, 2, 3, 3}, {7, 2, 3, 3}}});
  const Part part = all_of(made, 8);
  CHECK(sizes(only(made, part, Pass::forward)) == List{8 * 112 * 112, 64, 3 * 49, 1});
  CHECK(sizes(only(made, part, Pass::recompute)) == List{8 * 112 * 112, 64, 3 * 49, 1});
  CHECK(sizes(only(made, part, Pass::backward_data)) == List{8 * 224 * 224, 3, 64 * 49 / 4, 1});
  const Kernels weights = kernels_of(made.network, made.layer, part, Pass::backward_weights);
  REQUIRE(weights.count == 2);
  CHECK(sizes(weights.list[0]) == List{3 * 49, 64, 8 * 112 * 112, 1});
  // The gradient of the bias reads that of the output once.
  CHECK(weights.list[1].kind == KernelClass::memory);
  CHECK(weights.list[1].elements == 8.0 * 64 * 112 * 112);
  CHECK(kernels_of(made.network, made.layer, part, Pass::backward).count == 3);
  const Kernel forward = only(made, part, Pass::forward);
  CHECK(forward.flops == 2.0 * 8 * 112 * 112 * 64 * 147);
  CHECK(forward.elements == 8.0 * 3 * 224 * 224 + 8.0 * 64 * 112 * 112 + 64 * 147 + 64);
  CHECK(forward.winograd == 0);
}

TEST_CASE("kernels: shapes that libraries run by other kernels") {
  const auto shape = [](std::int64_t channels, std::int64_t filters, Window window,
                        std::int64_t groups = 1) {
    const OneLayer made =
        one(image_shape(channels, 32, 32), Conv{filters, {window, window}, groups, false});
    return only(made, all_of(made, 4), Pass::forward).shape;
  };
  CHECK(shape(64, 128, {3, 1, 1, 1}) == KernelShape::plain);
  CHECK(shape(64, 96, {3, 1, 1, 1}) == KernelShape::ragged);
  CHECK(shape(64, 96, {3, 2, 1, 1}) == KernelShape::strided);
  CHECK(shape(64, 96, {1}) == KernelShape::pointwise);
  CHECK(shape(64, 96, {1, 2}) == KernelShape::strided_pointwise);
  CHECK(shape(3, 64, {7, 2, 3, 3}) == KernelShape::few_channels);
  CHECK(shape(64, 64, {7, 1, 3, 3}) == KernelShape::many_taps);
  CHECK(shape(64, 64, {3, 1, 1, 1}, 4) == KernelShape::even_groups);
  CHECK(shape(64, 128, {3, 1, 1, 1}, 4) == KernelShape::grouped);
  CHECK(shape(96, 96, {3, 1, 1, 1}, 4) == KernelShape::grouped);
  // Parts of a layer run the kernels of the layer.
  const OneLayer made = one(image_shape(64, 32, 32), Conv{128, {{3, 1, 1, 1}, {3, 1, 1, 1}}});
  Part part = all_of(made, 4);
  part.out[1] = {0, 24};
  CHECK(only(made, part, Pass::forward).shape == KernelShape::plain);
}

TEST_CASE("kernels: a filter for each channel is an operator of as many steps as taps") {
  const OneLayer made =
      one(image_shape(32, 16, 16), Conv{32, {{3, 1, 1, 1}, {3, 1, 1, 1}}, 32, false});
  const Part part = all_of(made, 2);
  for (const auto& [pass, op] : {std::pair{Pass::forward, Operator::depthwise_forward},
                                 {Pass::backward_data, Operator::depthwise_data},
                                 {Pass::backward_weights, Operator::depthwise_weights}}) {
    const Kernel kernel = only(made, part, pass);
    CHECK(kernel.kind == KernelClass::memory);
    CHECK(kernel.op == op);
    CHECK(kernel.steps == 2.0 * 32 * 16 * 16 * 9);
  }
  const OneLayer wide =
      one(image_shape(32, 16, 16), Conv{32, {{7, 1, 3, 3}, {7, 1, 3, 3}}, 32, false});
  CHECK(only(wide, part, Pass::forward).op == Operator::depthwise_other_forward);
}

TEST_CASE("kernels: operators of PyTorch, of one kernel for each layer only") {
  const auto kernel = [](LayerKind kind, Pass pass, Fusion fusion) {
    const OneLayer made = one(image_shape(8, 16, 16), std::move(kind));
    const Kernels kernels = kernels_of(made.network, made.layer, all_of(made, 2), pass, fusion);
    REQUIRE(kernels.count == 1);
    return kernels.list[0];
  };
  const Pool pool{PoolKind::max, {{3, 2, 1, 1}, {3, 2, 1, 1}}};
  CHECK(kernel(pool, Pass::forward, Fusion::none).op == Operator::max_pool);
  CHECK(kernel(pool, Pass::forward, Fusion::none).steps == 2.0 * 8 * 8 * 8 * 9);
  CHECK(kernel(pool, Pass::forward, Fusion::compiled).op == Operator::other);
  const Pool global{PoolKind::average, {{16}, {16}}};
  CHECK(kernel(global, Pass::backward, Fusion::none).op == Operator::global_avg_pool);
  CHECK(kernel(Norm{}, Pass::backward, Fusion::none).op == Operator::batch_norm);
  CHECK(kernel(Norm{}, Pass::backward, Fusion::none).backwards);
  CHECK(kernel(Norm{}, Pass::forward, Fusion::megatron).op == Operator::other);
}

TEST_CASE("kernels: spectra of wide convolutions by hand") {
  // AlexNet's second convolution, 128 samples: a map of 27 x 27 is one tile of 32 - 5 + 1.
  const OneLayer made =
      one(image_shape(64, 27, 27), Conv{192, {{5, 1, 2, 2}, {5, 1, 2, 2}}, 1, false});
  const Part part = all_of(made, 128);
  const auto spectrum = [&](Pass pass) { return only(made, part, pass).spectrum.value(); };
  const auto list = [](const Spectrum& s) { return List{s.m, s.n, s.k}; };
  CHECK(list(spectrum(Pass::forward)) == List{128, 192, 64});
  CHECK(list(spectrum(Pass::backward_data)) == List{128, 64, 192});
  CHECK(list(spectrum(Pass::backward_weights)) == List{64, 192, 128});
  Part rows = part;
  rows.out[2] = {0, 10};  // still one tile high
  CHECK(list(only(made, rows, Pass::forward).spectrum.value()) == List{128, 192, 64});
  // 57 x 57 are 3 x 3 tiles of 28.
  const OneLayer wide = one(image_shape(16, 57, 57), Conv{16, {{5, 1, 2, 2}, {5, 1, 2, 2}}});
  CHECK(only(wide, all_of(wide, 2), Pass::forward).spectrum.value().m == 2 * 9);
  // None: a kernel of 3, strides, groups, one side of 1.
  for (const Conv& conv :
       {Conv{64, {{3, 1, 1, 1}, {3, 1, 1, 1}}}, Conv{64, {{5, 2, 2, 2}, {5, 2, 2, 2}}},
        Conv{64, {{5, 1, 2, 2}, {5, 1, 2, 2}}, 2}, Conv{64, {{7, 1, 3, 3}, {1, 1, 0, 0}}}}) {
    const OneLayer other = one(image_shape(32, 28, 28), conv);
    CHECK(!only(other, all_of(other, 8), Pass::forward).spectrum);
  }
}

TEST_CASE("kernels: parts of a convolution are products of their own") {
  const OneLayer made = one(image_shape(32, 28, 28), Conv{64, {{3, 1, 1, 1}, {3, 1, 1, 1}}});
  Part part = all_of(made, 8);
  CHECK(only(made, part, Pass::forward).winograd == 3);
  part.out[1] = {0, 24};  // filters
  CHECK(sizes(only(made, part, Pass::forward)) == List{8 * 784, 24, 288, 1});
  part.out[1] = {0, 12};  // too few for Winograd
  CHECK(only(made, part, Pass::forward).winograd == 0);
  part = all_of(made, 8);
  part.out[2] = {0, 14};  // height: one row of halo
  CHECK(sizes(only(made, part, Pass::forward)) == List{8 * 14 * 28, 64, 288, 1});
  CHECK(sizes(only(made, part, Pass::backward_data)) == List{8 * 15 * 28, 32, 576, 1});
  part = all_of(made, 8);
  part.contraction = {0, 16};
  CHECK(sizes(only(made, part, Pass::forward)) == List{8 * 784, 64, 144, 1});
}

TEST_CASE("kernels: groups are products side by side, a filter per channel is a walk") {
  const OneLayer grouped =
      one(image_shape(128, 14, 14), Conv{256, {{3, 1, 1, 1}, {3, 1, 1, 1}}, 32, false});
  Part part = all_of(grouped, 4);
  CHECK(sizes(only(grouped, part, Pass::forward)) == List{4 * 196, 8, 36, 32});
  CHECK(only(grouped, part, Pass::forward).winograd == 0);
  part.out[1] = {4, 20};  // half of group 0, groups 1 and 2 up to half: 16 filters of three groups
  CHECK(sizes(only(grouped, part, Pass::forward)) == List{4 * 196, 6, 36, 3});
  const OneLayer depthwise =
      one(image_shape(128, 14, 14), Conv{128, {{3, 1, 1, 1}, {3, 1, 1, 1}}, 128, false});
  CHECK(only(depthwise, all_of(depthwise, 4), Pass::forward).kind == KernelClass::memory);
}

TEST_CASE("kernels: dense layers and products of activations by hand") {
  const OneLayer dense = one(vector_shape(9216), Dense{4096, false});
  const Part part = all_of(dense, 64);
  // The longer side of the result comes first.
  CHECK(sizes(only(dense, part, Pass::forward)) == List{4096, 64, 9216, 1});
  CHECK(sizes(only(dense, part, Pass::backward_data)) == List{9216, 64, 4096, 1});
  CHECK(sizes(only(dense, part, Pass::backward_weights)) == List{9216, 4096, 64, 1});
  // Rows of 4096 and 9216 elements; GPT-2's vocabulary is odd, and 1000 = 8 · 125, 1004 = 4 · 251.
  CHECK(only(dense, part, Pass::forward).row_alignment == 8);
  for (const auto& [units, alignment] : {std::pair{50257, 1}, {1000, 8}, {1004, 4}}) {
    const OneLayer other = one(vector_shape(768), Dense{units, false});
    for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
      CHECK(only(other, all_of(other, 64), pass).row_alignment == alignment);
    }
  }

  // 12 heads, 128 x 64 times 64 x 128.
  Network network;
  const LayerId left =
      add_input(network, "q", Shape{{{Dim::head, 12}, {Dim::token, 128}, {Dim::other, 64}}});
  const LayerId right =
      add_input(network, "k", Shape{{{Dim::head, 12}, {Dim::other, 64}, {Dim::token, 100}}});
  const LayerId layer = add_layer(network, "scores", MatMul{}, {left, right});
  const Part both{whole(network[layer].out, 2), {}};
  const Kernels forward = kernels_of(network, layer, both, Pass::forward);
  CHECK(sizes(forward.list[0]) == List{128, 100, 64, 24});
  const Kernels backward = kernels_of(network, layer, both, Pass::backward);
  REQUIRE(backward.count == 2);
  CHECK(sizes(backward.list[0]) == List{128, 64, 100, 24});
  CHECK(sizes(backward.list[1]) == List{100, 64, 128, 24});
}

TEST_CASE("kernels: the loss is computed in fp32, by hand") {
  const OneLayer loss = one(vector_shape(1000), Loss{});
  const Part part = all_of(loss, 32);
  const double logits = 32 * 1000;
  const auto bytes = [&](Pass pass, std::int64_t element) {
    return only(loss, part, pass).bytes(element);
  };
  // Log-softmax reads and writes; backward it writes once, reads twice and writes.
  CHECK(bytes(Pass::forward, 4) == 8 * logits);
  CHECK(bytes(Pass::backward, 4) == 16 * logits);
  // Conversions read two bytes and write four, or the reverse.
  CHECK(bytes(Pass::forward, 2) == (6 + 8) * logits);
  CHECK(bytes(Pass::backward, 2) == (16 + 6) * logits);
}

TEST_CASE("kernels: attention in one kernel by hand") {
  // 6 heads of 64 channels share 2 keys and values; 128 tokens, 2 samples.
  Network network;
  const LayerId q = add_input(network, "q", Shape{{{Dim::token, 128}, {Dim::channel, 384}}});
  const LayerId k = add_input(network, "k", Shape{{{Dim::token, 128}, {Dim::channel, 128}}});
  const LayerId all = add_layer(network, "all", Attention{6, 2, false}, {q, k, k});
  const LayerId past = add_layer(network, "past", Attention{6, 2, true}, {q, k, k});
  Part part{whole(network[all].out, 2), {}};
  constexpr double moved = 2 * 128.0 * (384 + 128 + 128 + 384);
  const auto only_one = [&](LayerId layer, Pass pass) {
    const Kernels kernels = kernels_of(network, layer, part, pass);
    REQUIRE(kernels.count == 1);
    CHECK(kernels.list[0].attends);
    return kernels.list[0];
  };
  // Two products along 128 keys forward, five backward.
  const Kernel forward = only_one(all, Pass::forward), backward = only_one(all, Pass::backward);
  CHECK(sizes(forward) == List{128, 64, 2 * 128, 12});
  CHECK(forward.flops == 2.0 * 2 * 2 * 6 * 128 * 128 * 64);
  CHECK(forward.elements == moved);
  CHECK(forward.keys == 128);
  CHECK_FALSE(forward.backwards);
  CHECK_FALSE(forward.masked);
  CHECK(sizes(backward) == List{128, 64, 5 * 128, 12});
  CHECK(backward.keys == 128);
  CHECK(backward.backwards);
  CHECK(backward.flops == 2.5 * forward.flops);
  CHECK(backward.elements == 2 * moved);
  // Token t attends to t + 1 keys: 64.5 of 128 on average.
  CHECK(only_one(past, Pass::forward).flops == forward.flops * 64.5 / 128);
  CHECK(only_one(past, Pass::forward).keys == 64.5);
  CHECK(only_one(past, Pass::forward).masked);
  // With a window of 32, tokens see 1 to 32 keys, then 32.
  const LayerId near = add_layer(network, "near", Attention{6, 2, true, 32}, {q, k, k});
  const Kernel windowed = only_one(near, Pass::forward);
  CHECK(windowed.keys == (32 * 33 / 2 + 96 * 32) / 128.0);
  CHECK(windowed.flops == forward.flops * windowed.keys / 128);
  CHECK(windowed.elements == moved);
  CHECK(windowed.masked);
  CHECK(windowed.windowed);
  CHECK_FALSE(only_one(past, Pass::forward).windowed);
  // The first tokens see no end of it.
  part.out[1] = {0, 32};
  CHECK_FALSE(only_one(near, Pass::forward).windowed);
  part.out[1] = {32, 64};
  CHECK(only_one(near, Pass::forward).windowed);
  CHECK(only_one(near, Pass::forward).keys == 32);
  part.out[1] = {0, 128};
  // Values of 32 channels a head: of seven products four sum over 64, or make them.
  const LayerId v = add_input(network, "v", Shape{{{Dim::token, 128}, {Dim::channel, 64}}});
  const LayerId narrow = add_layer(network, "narrow", Attention{6, 2, false}, {q, k, v});
  const Part whole_narrow{whole(network[narrow].out, 2), {}};
  const auto narrow_one = [&](Pass pass) {
    return kernels_of(network, narrow, whole_narrow, pass).list[0];
  };
  CHECK(narrow_one(Pass::forward).flops == 2.0 * 2 * 6 * 128 * 128 * (64 + 32));
  CHECK(narrow_one(Pass::backward).flops == 2.0 * 2 * 6 * 128 * 128 * (3 * 64 + 2 * 32));
  CHECK(narrow_one(Pass::forward).keys == 128);
  CHECK(narrow_one(Pass::backward).n == 32);
  // Half of a head's channels: all of its scores.
  part.out[2] = {0, 32};
  CHECK(only_one(all, Pass::forward).flops == 2.0 * 2 * 128 * 128 * (64 + 32));
  // Heads 3 and 4, which have a key each; tokens 32 to 96 attend to 33 to 96 keys.
  part.out = {{0, 2}, {32, 96}, {128, 256}};
  CHECK(sizes(only_one(past, Pass::forward)) == List{64, 64, 2 * 33 + 63, 4});
}

TEST_CASE("kernels: walks through memory by hand") {
  const Shape shape = image_shape(64, 56, 56);
  const double tensor = 8.0 * 64 * 56 * 56;
  const auto memory_bound = [&](LayerKind kind, std::size_t inputs, double forward,
                                double backward) {
    const OneLayer made = one(shape, std::move(kind), inputs);
    CAPTURE(kind_name(made.network[made.layer].kind));
    const Kernel there = only(made, all_of(made, 8), Pass::forward);
    CHECK(there.kind == KernelClass::memory);
    CHECK(there.elements == forward);
    CHECK(only(made, all_of(made, 8), Pass::backward).elements == backward);
  };
  memory_bound(Activation{"relu", 0}, 1, 2 * tensor, 3 * tensor);
  memory_bound(Combine{"add"}, 2, 3 * tensor, 3 * tensor);
  memory_bound(Combine{"mul"}, 2, 3 * tensor, 5 * tensor);
  // Sums first: scale and shift are 128 numbers.
  memory_bound(Norm{NormKind::batch, true, 0}, 1, 3 * tensor + 128, 5 * tensor + 128);
  const OneLayer flat = one(shape, Flatten{});
  CHECK(kernels_of(flat.network, flat.layer, all_of(flat, 8), Pass::forward).count == 0);
}

}  // namespace
}  // namespace parsim::sim
