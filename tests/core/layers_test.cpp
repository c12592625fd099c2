#include "core/layers.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "core/errors.hpp"
#include "core/plan.hpp"
#include "tests/support/refusal.hpp"

using namespace parsim;

namespace {

Window window(std::int64_t kernel, std::int64_t stride = 1, std::int64_t padding = 0) {
  return {kernel, stride, padding, padding, 1};
}
std::vector<Window> square(std::int64_t kernel, std::int64_t stride = 1, std::int64_t padding = 0) {
  return {2, window(kernel, stride, padding)};
}

/// A layer with its surroundings: what the functions of core/layers.hpp take.
struct Sample {
  LayerKind kind;
  std::vector<Shape> inputs;

  [[nodiscard]] Shape out() const { return output_shape(kind, inputs, "sample"); }
  [[nodiscard]] Region input(std::size_t which, const Part& part) const {
    return input_region(kind, inputs, out(), which, part);
  }
  [[nodiscard]] Region parameter(std::size_t which, const Part& part) const {
    return parameter_region(kind, inputs, out(), which, part);
  }
  [[nodiscard]] Flops flops(const Part& part) const {
    return forward_flops(kind, inputs, out(), part);
  }
};

/// Every kind that may be cut, with sizes that do not divide evenly.
std::vector<Sample> samples() {
  const Shape image = image_shape(6, 11, 9), tokens{{{Dim::token, 7}, {Dim::channel, 6}}},
              slots{{{Dim::expert, 5}, {Dim::token, 3}, {Dim::channel, 6}}},
              nine{{{Dim::token, 9}, {Dim::channel, 6}}},
              grouped{{{Dim::expert, 5}, {Dim::token, 6}, {Dim::channel, 6}}},
              routes{{{Dim::token, 9}, {Dim::channel, 5}}};
  return {
      {Conv{8, square(3, 2, 1), 1, true}, {image}},
      {Conv{6, square(3, 1, 1), 3, false}, {image}},
      {Dense{10, true}, {tokens}},
      {Dense{10, false}, {vector_shape(13)}},
      {Pool{PoolKind::max, square(3, 2, 0), true, true}, {image}},
      {Pool{PoolKind::average, square(2, 2, 0), false, true}, {image}},
      {Norm{}, {image}},
      {Norm{NormKind::layer, true, 0}, {tokens}},
      {Norm{NormKind::group, true, 3}, {image}},
      {Norm{NormKind::local_response, true, 5}, {image}},
      {Activation{}, {image}},
      {Dropout{}, {image}},
      {Combine{}, {image, image_shape(6, 1, 1)}},
      {Concat{0}, {image, image_shape(3, 11, 9)}},
      {Slicing{1, 2, 10, 3}, {image}},
      {Flatten{}, {image}},
      {Rearrange{"transpose", image_shape(9, 11, 6), true}, {image}},
      {Reduce{"mean", {1, 2}, false}, {image}},
      {Rearrange{"split heads",
                 Shape{{{Dim::head, 3}, {Dim::other, 1}, {Dim::token, 7}, {Dim::channel, 2}}},
                 true},
       {tokens}},
      {Rearrange{"split heads, transposed",
                 Shape{{{Dim::head, 3}, {Dim::other, 2}, {Dim::other, 7}}}, true},
       {tokens}},
      {Rearrange{"join heads", Shape{{{Dim::token, 7}, {Dim::channel, 12}}}, true},
       {Shape{{{Dim::head, 3}, {Dim::other, 2}, {Dim::token, 7}, {Dim::channel, 2}}}}},
      {MatMul{}, {tokens, Shape{{{Dim::other, 6}, {Dim::other, 5}}}}},
      {Attention{3, 3, false}, {tokens, tokens, tokens}},
      {Attention{6, 2, true},
       {tokens, Shape{{{Dim::token, 7}, {Dim::channel, 2}}},
        Shape{{{Dim::token, 7}, {Dim::channel, 2}}}}},
      {Attention{3, 1, true},
       {tokens, Shape{{{Dim::token, 7}, {Dim::channel, 2}}},
        Shape{{{Dim::token, 7}, {Dim::channel, 3}}}}},
      {Attention{6, 2, true, 3},
       {tokens, Shape{{{Dim::token, 7}, {Dim::channel, 2}}},
        Shape{{{Dim::token, 7}, {Dim::channel, 2}}}}},
      {HeadConcat{3}, {tokens, Shape{{{Dim::token, 7}, {Dim::channel, 3}}}}},
      {Embedding{100, 12}, {Shape{{{Dim::token, 7}}}}},
      {Learned{image}, {}},
      {Softmax{1}, {tokens}},
      {Loss{}, {vector_shape(10)}},
      {ExpertDispatch{2, 3}, {tokens, Shape{{{Dim::token, 7}, {Dim::channel, 5}}}}},
      {ExpertDense{10, true}, {slots}},
      {ExpertDispatch{2, 6, 3}, {nine, routes}},
      {ExpertCombine{2, true, 3}, {grouped, routes}},
      {ExpertCombine{2, true}, {slots, Shape{{{Dim::token, 7}, {Dim::channel, 5}}}}},
  };
}

std::int64_t extent_of(const Sample& sample, Dim dim, std::int64_t batch) {
  if (dim == Dim::sample) return batch;
  if (dim != Dim::in_channel) return sample.out().extent(dim);
  return contraction_extent(sample.kind, sample.inputs);
}

/// The layer's work for `batch` samples in parts of these sizes.
std::vector<Part> parts_of(const Sample& sample, Dim dim, const std::vector<std::int64_t>& sizes,
                           std::int64_t batch) {
  std::vector<Part> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    Part part{whole(sample.out(), batch), {}};
    const Interval share{begin, begin + size};
    if (dim == Dim::in_channel) {
      part.contraction = share;
    } else {
      part.out[dim == Dim::sample ? 0 : sample.out().region_axis(dim)] = share;
    }
    begin += size;
    if (size > 0) parts.push_back(part);
  }
  return parts;
}

/// What the parts violate: together they read what the whole reads, no more, and work as much.
std::string violation(const Sample& sample, Dim dim, const std::vector<std::int64_t>& sizes,
                      std::int64_t batch) {
  const Part all{whole(sample.out(), batch), {}};
  const std::vector<Part> parts = parts_of(sample, dim, sizes, batch);
  Flops flops;
  for (const Part& part : parts) flops += sample.flops(part);
  // Parts of a head make all of its scores.
  const bool heads_cut = sample.kind.as<Attention>() != nullptr && dim == Dim::channel;
  if (heads_cut ? flops < sample.flops(all) : flops != sample.flops(all)) return "work";
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    Region read = sample.input(i, parts[0]);
    for (const Part& part : parts) {
      if (!sample.input(i, all).contains(sample.input(i, part))) return "a part reads too much";
      read = hull(read, sample.input(i, part));
    }
    if (read != sample.input(i, all)) return "inputs";
  }
  for (std::size_t p = 0; p < parameter_shapes(sample.kind, sample.inputs).size(); ++p) {
    Region read = sample.parameter(p, parts[0]);
    for (const Part& part : parts) read = hull(read, sample.parameter(p, part));
    if (read != sample.parameter(p, all)) return "parameters";
  }
  return "";
}

std::string refusal(const LayerKind& kind, const std::vector<Shape>& inputs) {
  return testing::refusal_of([&] { return output_shape(kind, inputs, "net: layer 'x'"); });
}

}  // namespace

TEST_CASE("layers: shapes say extents, elements and axes") {
  const Shape shape = volume_shape(3, 16, 112, 96);
  CHECK(to_text(shape) == "3x16x112x96");
  CHECK(to_text(Shape{}) == "scalar");
  CHECK(shape.elements() == 3 * 16 * 112 * 96);
  CHECK(shape.region_axis(Dim::height) == 3);
  CHECK(shape.region_axis(Dim::token) == 0);
  CHECK(shape.extent(Dim::width) == 96);
  CHECK(shape.extent(Dim::token) == 0);
  CHECK(whole(image_shape(3, 4, 5), 2) == Region{{0, 2}, {0, 3}, {0, 4}, {0, 5}});
}

TEST_CASE("layers: output of a convolution by hand") {
  // ResNet's first layer: (224 + 2*3 - 7) / 2 + 1 = 112.
  CHECK(output_shape(Conv{64, square(7, 2, 3), 1, false}, std::vector{image_shape(3, 224, 224)},
                     "") == image_shape(64, 112, 112));
  // Dilation 2 makes a kernel of 3 reach over 5: (10 - 5) / 1 + 1 = 6.
  const Window dilated{3, 1, 0, 0, 2};
  CHECK(output_shape(Conv{4, {dilated, dilated}, 1, false}, std::vector{image_shape(3, 10, 10)},
                     "") == image_shape(4, 6, 6));
  // One axis padded on one side: (8 + 1 - 2) / 2 + 1 = 4.
  CHECK(output_shape(Conv{4, {{2, 2, 0, 1, 1}}, 1, false},
                     std::vector{Shape{{{Dim::channel, 3}, {Dim::width, 8}}}},
                     "") == Shape{{{Dim::channel, 4}, {Dim::width, 4}}});
}

TEST_CASE("layers: ceil mode lets the last window hang over but not begin outside") {
  // (8 - 3) / 2 = 2.5: 3 windows, or 4 with ceil_mode (the last begins at 6 < 8).
  const std::vector in{image_shape(1, 8, 8)};
  CHECK(output_shape(Pool{PoolKind::max, square(3, 2), false, true}, in, "") ==
        image_shape(1, 3, 3));
  CHECK(output_shape(Pool{PoolKind::max, square(3, 2), true, true}, in, "") ==
        image_shape(1, 4, 4));
  // (2 - 1) / 3 rounds up to a second window, but that would begin at 3, outside.
  CHECK(output_shape(Pool{PoolKind::max, square(1, 3), true, true},
                     std::vector{image_shape(1, 2, 2)}, "") == image_shape(1, 1, 1));
}

TEST_CASE("layers: parameters of a grouped convolution and of a dense layer by hand") {
  // groups 2: every filter sees 6/2 channels.
  CHECK(parameter_shapes(Conv{8, square(3), 2, true}, std::vector{image_shape(6, 5, 5)}) ==
        std::vector<ParameterShape>{{"weights", {8, 3, 3, 3}}, {"bias", {8}}});
  CHECK(parameter_shapes(Dense{10, false}, std::vector{vector_shape(13)}) ==
        std::vector<ParameterShape>{{"weights", {10, 13}}});
  CHECK(parameter_shapes(Activation{}, std::vector{vector_shape(13)}).empty());
}

TEST_CASE("layers: the halo of a convolution by hand") {
  // Kernel 3, stride 2, padding 1: output rows 2..3 read input rows 2*2-1 = 3 to 3*2-1+2 = 7.
  const Sample conv{Conv{8, square(3, 2, 1), 1, true}, {image_shape(6, 11, 9)}};
  CHECK(conv.out() == image_shape(8, 6, 5));
  const Part rows{{{0, 4}, {0, 8}, {2, 4}, {0, 5}}, {}};
  CHECK(conv.input(0, rows) == Region{{0, 4}, {0, 6}, {3, 8}, {0, 9}});
  // The first and last rows would read padding: clipped.
  CHECK(conv.input(0, {{{0, 4}, {0, 8}, {0, 1}, {0, 5}}, {}})[2] == Interval{0, 2});
  CHECK(conv.input(0, {{{0, 4}, {0, 8}, {5, 6}, {0, 5}}, {}})[2] == Interval{9, 11});
}

TEST_CASE("layers: filters of a grouped convolution read their groups' channels") {
  // 6 filters in 3 groups over 6 channels: filter 2..3 is group 1, channels 2..3.
  const Sample conv{Conv{6, square(3, 1, 1), 3, false}, {image_shape(6, 11, 9)}};
  CHECK(conv.input(0, {{{0, 1}, {2, 4}, {0, 11}, {0, 9}}, {}})[1] == Interval{2, 4});
  CHECK(conv.input(0, {{{0, 1}, {1, 3}, {0, 11}, {0, 9}}, {}})[1] == Interval{0, 4});
}

TEST_CASE("layers: a part of the contraction reads its channels, and the first adds the bias") {
  const Sample conv{Conv{8, square(3, 1, 1), 1, true}, {image_shape(6, 11, 9)}};
  const Region all = whole(conv.out(), 2);
  CHECK(conv.input(0, {all, {4, 6}})[1] == Interval{4, 6});
  CHECK(conv.parameter(0, {all, {4, 6}}) == Region{{0, 8}, {4, 6}, {0, 3}, {0, 3}});
  CHECK(conv.parameter(1, {all, {0, 4}}) == Region{{0, 8}});
  CHECK(conv.parameter(1, {all, {4, 6}}).empty());
}

TEST_CASE("layers: work of convolution, dense and matrix product by hand") {
  // 2 * samples * filters * rows * columns * channels/groups * kernel^2
  const Sample conv{Conv{8, square(3, 2, 1), 2, true}, {image_shape(6, 11, 9)}};
  CHECK(conv.flops({whole(conv.out(), 4), {}}) == Flops{2.0 * 4 * 8 * 6 * 5 * 3 * 9});
  const Sample dense{Dense{10, true}, {vector_shape(13)}};
  CHECK(dense.flops({whole(dense.out(), 4), {}}) == Flops{2.0 * 4 * 10 * 13});
  const Sample product{
      MatMul{},
      {Shape{{{Dim::token, 7}, {Dim::channel, 6}}}, Shape{{{Dim::other, 6}, {Dim::other, 5}}}}};
  CHECK(product.flops({whole(product.out(), 4), {}}) == Flops{2.0 * 4 * 7 * 6 * 5});
  const Sample norm{Norm{}, {image_shape(6, 11, 9)}};
  CHECK(norm.flops({whole(norm.out(), 4), {}}) == Flops{0});
}

TEST_CASE("layers: operands are broadcast as NumPy does") {
  const Sample add{Combine{}, {image_shape(6, 11, 9), image_shape(6, 1, 1)}};
  CHECK(add.out() == image_shape(6, 11, 9));
  CHECK(add.input(1, {{{0, 4}, {2, 5}, {3, 7}, {0, 9}}, {}}) ==
        Region{{0, 4}, {2, 5}, {0, 1}, {0, 1}});
  CHECK(
      output_shape(Combine{}, std::vector{vector_shape(9), image_shape(6, 11, 1)}, "").elements() ==
      6 * 11 * 9);
}

TEST_CASE("layers: a joined axis is read from the operand that holds it") {
  const Sample concat{Concat{0}, {image_shape(6, 2, 2), image_shape(3, 2, 2)}};
  CHECK(concat.out() == image_shape(9, 2, 2));
  const Part part{{{0, 1}, {4, 8}, {0, 2}, {0, 2}}, {}};
  CHECK(concat.input(0, part)[1] == Interval{4, 6});
  CHECK(concat.input(1, part)[1] == Interval{0, 2});
  CHECK(concat.input(1, {{{0, 1}, {0, 6}, {0, 2}, {0, 2}}, {}}).empty());
}

TEST_CASE("layers: heads are read with the channels that they share") {
  // 3 heads of 2 channels, then 3 shared ones: head h has channels 5h to 5h + 5 of the output.
  const Shape own{{{Dim::token, 7}, {Dim::channel, 6}}},
      shared{{{Dim::token, 7}, {Dim::channel, 3}}};
  const Sample concat{HeadConcat{3}, {own, shared}};
  CHECK(to_text(concat.out()) == "7x15");
  const auto channels = [&](std::size_t input, Interval made) {
    return concat.input(input, {{{0, 1}, {2, 4}, made}, {}});
  };
  CHECK(channels(0, {5, 10}) == Region{{0, 1}, {2, 4}, {2, 4}});
  CHECK(channels(1, {5, 10}) == Region{{0, 1}, {2, 4}, {0, 3}});
  CHECK(channels(0, {1, 6})[2] == Interval{1, 3});
  CHECK(channels(1, {1, 6})[2] == Interval{0, 3});
  CHECK(channels(0, {2, 4}).empty());
  CHECK(channels(1, {2, 4})[2] == Interval{0, 2});
  CHECK(channels(1, {5, 7}).empty());
  // From the last shared channel of a head to the next one's own.
  CHECK(channels(1, {4, 6})[2] == Interval{2, 3});
  CHECK(channels(1, {4, 7})[2] == Interval{2, 3});
  CHECK(refusal(HeadConcat{4}, {own, shared}) ==
        "net: layer 'x': 4 heads of shapes 7x6 and 7x3; inputs are tokens × (heads · width) and "
        "tokens × shared channels");
}

TEST_CASE("layers: attention's values may be wider or narrower than its keys") {
  // 6 heads of 1 channel share 2 keys; values of 4 channels a head.
  const Shape queries{{{Dim::token, 7}, {Dim::channel, 6}}},
      keys{{{Dim::token, 7}, {Dim::channel, 2}}}, values{{{Dim::token, 7}, {Dim::channel, 8}}};
  const Sample attention{Attention{6, 2, false}, {queries, keys, values}};
  CHECK(to_text(attention.out()) == "7x24");
  // Heads 3 and 4 use the second key.
  const Part part{{{0, 1}, {0, 7}, {12, 20}}, {}};
  CHECK(attention.input(0, part)[2] == Interval{3, 5});
  CHECK(attention.input(1, part)[2] == Interval{1, 2});
  CHECK(attention.input(2, part)[2] == Interval{4, 8});
  // 7 · 7 scores for 2 heads: over 1 channel, then to 4.
  CHECK(attention.flops(part) == Flops{2.0 * 49 * 2 * (1 + 4)});
}

TEST_CASE("layers: attention with a window reads the last tokens, by hand") {
  const Shape shape{{{Dim::token, 7}, {Dim::channel, 4}}};
  const Sample attention{Attention{2, 2, true, 3}, {shape, shape, shape}};
  const auto tokens = [](std::int64_t begin, std::int64_t end) {
    return Part{{{0, 1}, {begin, end}, {0, 4}}, {}};
  };
  const auto pairs = [&](const Part& part) { return attention.flops(part).value / (2 * 2 * 4); };
  // Tokens see 1, 2, 3, 3, ... tokens.
  CHECK(pairs(tokens(0, 7)) == 1 + 2 + 5 * 3);
  CHECK(pairs(tokens(0, 2)) == 3);
  CHECK(pairs(tokens(1, 4)) == 2 + 3 + 3);
  CHECK(pairs(tokens(4, 6)) == 6);
  CHECK(attention.input(1, tokens(4, 6))[1] == Interval{2, 6});
  CHECK(attention.input(2, tokens(1, 2))[1] == Interval{0, 2});
  CHECK(attention.input(0, tokens(4, 6))[1] == Interval{4, 6});
  CHECK(refusal(Attention{2, 2, false, 3}, {shape, shape, shape})
            .ends_with("only causal attention has a window"));
}

TEST_CASE("layers: flattened indices are read as whole channels") {
  // 6 channels of 11*9 = 99: flat 100..200 touches channels 1 and 2.
  const Sample flatten{Flatten{}, {image_shape(6, 11, 9)}};
  CHECK(flatten.out() == vector_shape(594));
  CHECK(flatten.input(0, {{{0, 4}, {100, 200}}, {}}) == Region{{0, 4}, {1, 3}, {0, 11}, {0, 9}});
}

TEST_CASE("layers: what does not fit is refused by name") {
  CHECK(refusal(Conv{4, square(3), 1, false}, {vector_shape(8)}) ==
        "net: layer 'x': a convolution with 2 windows meets an input of shape 8; its input is "
        "channel × one axis per window");
  CHECK(refusal(Conv{4, square(3), 3, false}, {image_shape(6, 5, 5)}) ==
        "net: layer 'x': 4 filters in 3 groups over 6 channels; groups divide both filters and "
        "channels");
  CHECK(
      refusal(Conv{4, square(7), 1, false}, {image_shape(6, 5, 5)}) ==
      "net: layer 'x': kernel 7, stride 1, padding 0+0, dilation 1 over an extent of 5; the window "
      "is positive and fits into the padded input");
  CHECK(
      refusal(Combine{}, {vector_shape(3), vector_shape(4)}) ==
      "net: layer 'x': 'add' of shapes 3 and 4; extents are equal or 1, aligned at the last axis");
  CHECK(refusal(Dense{4, true}, {vector_shape(3), vector_shape(4)}) ==
        "net: layer 'x': 2 inputs; it takes 1");
  CHECK(refusal(Concat{2}, {vector_shape(3)}) ==
        "net: layer 'x': concat along axis 2 of shape 3; the axis exists");
  CHECK(refusal(Slicing{0, 2, 9, 1}, {vector_shape(4)}) ==
        "net: layer 'x': slice 2:9:1 of an axis of 4; 0 <= begin < end <= extent, step > 0");
  CHECK(refusal(Norm{NormKind::group, true, 4}, {vector_shape(6)}) ==
        "net: layer 'x': 4 groups over 6 channels; groups divide the channels");
  CHECK(refusal(Softmax{1}, {vector_shape(6)}) ==
        "net: layer 'x': softmax over axis 1 of shape 6; the axis exists");
  CHECK(refusal(Embedding{0, 4}, {vector_shape(6)}) ==
        "net: layer 'x': a table of 0 x 4; both are positive");
}

TEST_CASE("layers: every kind may be cut along sample and replica") {
  for (const Sample& sample : samples()) {
    CAPTURE(kind_name(sample.kind));
    const std::vector<Dim> dims = cuttable_dims(sample.kind, sample.inputs, sample.out());
    for (const Dim dim : {Dim::sample, Dim::replica}) {
      CHECK(std::count(dims.begin(), dims.end(), dim) == 1);
    }
    CHECK(std::count(dims.begin(), dims.end(), Dim::other) == 0);
  }
}

TEST_CASE("layers: the whole reads inside its inputs and parameters") {
  for (const Sample& sample : samples()) {
    CAPTURE(kind_name(sample.kind));
    const Part all{whole(sample.out(), 5), {}};
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      CHECK(whole(sample.inputs[i], 5).contains(sample.input(i, all)));
    }
    const std::vector<ParameterShape> parameters = parameter_shapes(sample.kind, sample.inputs);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      Region extents;
      for (const std::int64_t extent : parameters[p].extents) extents.push_back({0, extent});
      CHECK(sample.parameter(p, all) == extents);
    }
  }
}

TEST_CASE("layers: parts of an even cut read what the whole reads, and work as much") {
  for (const Sample& sample : samples()) {
    for (const Dim dim : cuttable_dims(sample.kind, sample.inputs, sample.out())) {
      if (dim == Dim::replica) continue;
      for (const std::size_t count : {1U, 2U, 3U, 5U}) {
        CAPTURE(kind_name(sample.kind));
        CAPTURE(to_text(dim));
        CAPTURE(count);
        CHECK(violation(sample, dim, even_split(extent_of(sample, dim, 5), count), 5) == "");
      }
    }
  }
}

TEST_CASE("layers: so do parts of any cut") {
  CHECK(rc::check([] {
    const Sample sample = *rc::gen::elementOf(samples());
    const Dim dim = *rc::gen::elementOf(cuttable_dims(sample.kind, sample.inputs, sample.out()));
    RC_PRE(dim != Dim::replica);
    std::int64_t left = extent_of(sample, dim, 5);
    std::vector<std::int64_t> sizes;
    while (left > 0) {
      if (*rc::gen::arbitrary<bool>()) sizes.push_back(0);
      sizes.push_back(*rc::gen::inRange<std::int64_t>(1, left + 1));
      left -= sizes.back();
    }
    RC_ASSERT(violation(sample, dim, sizes, 5) == "");
  }));
}

TEST_CASE("layers: an empty part reads nothing of a sliding window") {
  const Sample conv{Conv{8, square(3, 1, 1), 1, true}, {image_shape(6, 11, 9)}};
  CHECK(conv.input(0, {{{0, 4}, {0, 8}, {0, 0}, {0, 9}}, {}}).empty());
}
