// The mathematics behind the proof of meaning: by hand, by finite differences, and in parts.
#include "tests/support/numeric.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"
#include "core/network.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

Block block(const Region& box, std::vector<double> values) {
  Block result(box);
  result.values() = std::move(values);
  return result;
}

/// Operands of a layer over the regions that `part` needs, filled with noise.
PartInput noisy_input(const Network& net, LayerId id, const std::vector<Shape>& shapes,
                      const Part& part) {
  const Layer& layer = net[id];
  PartInput input{layer.kind, shapes, layer.out, part, {}, {}, 0, 2};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Region region = input_region(layer.kind, shapes, layer.out, i, part);
    input.activations.push_back(
        data_block(100 + static_cast<std::int64_t>(i), shapes[i], region, 0));
  }
  for (std::size_t p = 0; p < layer.parameters.size(); ++p) {
    input.parameters.push_back(
        initial_parameter(static_cast<std::int64_t>(p), net[layer.parameters[p]].extents)
            .piece(parameter_region(layer.kind, shapes, layer.out, p, part)));
  }
  return input;
}

/// Noise over the output of a layer.
Block noisy_gradient(const Layer& layer, const Region& box) {
  return data_block(200, layer.out, box, 0);
}

double weighted_sum(const PartInput& input, const Block& weights) {
  const Block out = forward(input);
  double sum = 0;
  for (std::size_t i = 0; i < out.values().size(); ++i) {
    sum += out.values()[i] * weights.values()[i];
  }
  return sum;
}

/// `exact` with some ten of its elements replaced by the measured slope of weighted_sum along
/// `moved`, a block of `input`.
Block slopes(const PartInput& input, Block& moved, const Block& weights, const Block& exact) {
  constexpr double step = 1e-5;
  Block result = exact;
  const std::size_t stride = moved.values().size() / 10 + 1;
  for (std::size_t i = 0; i < moved.values().size(); i += stride) {
    const double at = moved.values()[i];
    moved.values()[i] = at + step;
    const double above = weighted_sum(input, weights);
    moved.values()[i] = at - step;
    const double below = weighted_sum(input, weights);
    moved.values()[i] = at;
    result.values()[i] = (above - below) / (2 * step);
  }
  return result;
}

bool is_batch_norm(const LayerKind& kind) {
  const auto* norm = kind.as<Norm>();
  return norm != nullptr && norm->kind == NormKind::batch;
}

std::vector<Network> all_networks() {
  std::vector<Network> networks = tiny_networks();
  for (const bool eager : {true, false}) networks.push_back(tiny_llama(eager));
  return networks;
}

/// Two uneven parts of the layer along a dimension; one if it cannot be cut there.
std::vector<Part> two_parts(const Network& net, LayerId id, Dim dim, std::int64_t samples) {
  const Part all{whole(net[id].out, samples), {}};
  std::vector<Part> parts{all, all};
  if (dim == Dim::in_channel) {
    const std::int64_t channels = contraction_extent(net[id].kind, input_shapes(net, id));
    parts[0].contraction = {0, channels / 2};
    parts[1].contraction = {channels / 2, channels};
    return parts;
  }
  const std::size_t axis = dim == Dim::sample ? 0 : net[id].out.region_axis(dim);
  const std::int64_t extent = all.out[axis].end;
  if (extent < 2) return {all};
  parts[0].out[axis].end = extent / 3 + 1;
  parts[1].out[axis].begin = extent / 3 + 1;
  return parts;
}

}  // namespace

TEST_CASE("numeric: a convolution by hand") {
  // 1 x 3 image, kernel 2, padding 1 in front, stride 2: outputs 0·1 + 5·2 and 6·1 + 7·2, plus 100.
  const LayerKind kind = Conv{1, {{2, 2, 1, 0, 1}}, 1, true};
  const std::vector<Shape> in{{{{Dim::channel, 1}, {Dim::width, 3}}}};
  const Shape out = output_shape(kind, in, "test");
  const Region all{{0, 1}, {0, 1}, {0, 2}};
  REQUIRE(whole(out, 1) == all);
  const PartInput input{kind,
                        in,
                        out,
                        {all, {}},
                        {block({{0, 1}, {0, 1}, {0, 3}}, {5, 6, 7})},
                        {block({{0, 1}, {0, 1}, {0, 2}}, {1, 2}), block({{0, 1}}, {100})},
                        0,
                        1};
  CHECK(forward(input) == block(all, {110, 120}));
  const PartGradients gradients = backward(input, block(all, {3, 10}));
  CHECK(gradients.activations[0] == block({{0, 1}, {0, 1}, {0, 3}}, {2 * 3, 10, 2 * 10}));
  CHECK(gradients.parameters[0] == block({{0, 1}, {0, 1}, {0, 2}}, {6 * 10, 5 * 3 + 7 * 10}));
  CHECK(gradients.parameters[1] == block({{0, 1}}, {13}));
}

TEST_CASE("numeric: a rotary embedding by hand") {
  // Token 2, four channels: pairs turn by 2 · 10000^0 and 2 · 10000^(-2/4) = 0.02.
  const LayerKind kind = Activation{"rotary"};
  const std::vector<Shape> in{{{{Dim::token, 3}, {Dim::channel, 4}}}};
  const Region third{{0, 1}, {2, 3}, {0, 4}};
  const PartInput input{kind, in, in[0], {third, {}}, {block(third, {1, 0, 0, 10})}, {}, 0, 1};
  CHECK(relative_error(forward(input), block(third, {std::cos(2.0), std::sin(2.0),
                                                     -10 * std::sin(0.02), 10 * std::cos(0.02)})) <
        1e-12);
  // A part that begins within a pair reads all of it.
  const Region cut{{0, 1}, {0, 3}, {1, 3}};
  CHECK(input_region(kind, in, in[0], 0, {cut, {}}) == Region{{0, 1}, {0, 3}, {0, 4}});
}

TEST_CASE("numeric: dropout keeps its share of the elements, and scales them") {
  const LayerKind kind = Dropout{0.3};
  const std::vector<Shape> in{vector_shape(10000)};
  const Region all{{0, 1}, {0, 10000}};
  const Block ones = block(all, std::vector<double>(10000, 1.0));
  PartInput input{kind, in, in[0], {all, {}}, {ones}, {}, 5, 8, {}, 1};
  const Block first = forward(input);
  const auto zeros = std::count(first.values().begin(), first.values().end(), 0.0);
  CHECK(std::abs(zeros - 3000) < 4 * 46);  // sqrt(10000 · 0.3 · 0.7) = 46
  CHECK(*std::max_element(first.values().begin(), first.values().end()) ==
        testing::approx(1 / 0.7));
  CHECK(backward(input, ones).activations[0] == first);
  input.layer = 2;
  CHECK(forward(input) != first);
  input.layer = 1;
  input.first_sample = 6;
  CHECK(forward(input) != first);
}

TEST_CASE("numeric: average pooling divides by what its padding rule counts") {
  // Extent 3, kernel 2, stride 2, padding 1 in front, ceil mode: windows {pad, 4}, {6, 8}.
  const std::vector<Shape> in{{{{Dim::channel, 1}, {Dim::width, 3}}}};
  const Region all{{0, 1}, {0, 1}, {0, 2}};
  for (const bool count_padding : {true, false}) {
    const LayerKind kind = Pool{PoolKind::average, {{2, 2, 1, 0, 1}}, true, count_padding};
    const Shape out = output_shape(kind, in, "test");
    const PartInput input{kind, in, out, {all, {}}, {block({{0, 1}, {0, 1}, {0, 3}}, {4, 6, 8})},
                          {},   0,  1};
    CHECK(forward(input) == block(all, {count_padding ? 2.0 : 4.0, 7}));
  }
}

TEST_CASE("numeric: reading outside the block of a part is an error") {
  const Block small({{2, 4}});
  CHECK(small.at({3}) == 0);
  CHECK_THROWS_AS((void)small.at({4}), BrokenInvariant);
  CHECK_THROWS_AS((void)small.at({1}), BrokenInvariant);
}

TEST_CASE("numeric: the gradient of every layer equals its finite difference") {
  for (const Network& net : all_networks()) {
    for (std::size_t l = 0; l < net.layers.size(); ++l) {
      const Layer& layer = net.layers[l];
      if (layer.kind.as<Input>() != nullptr) continue;
      CAPTURE(net.name);
      CAPTURE(layer.name);
      const std::vector<Shape> shapes = input_shapes(net, LayerId{l});
      PartInput input = noisy_input(net, LayerId{l}, shapes, {whole(layer.out, 2), {}});
      // The gradient of the loss is that of its mean.
      Block weights = noisy_gradient(layer, input.part.out);
      if (layer.kind.as<Loss>() != nullptr) {
        std::fill(weights.values().begin(), weights.values().end(),
                  1 / static_cast<double>(weights.values().size()));
      }
      const PartGradients gradients = backward(input, weights);
      for (std::size_t i = 0; i < input.activations.size(); ++i) {
        const Block expected =
            slopes(input, input.activations[i], weights, gradients.activations[i]);
        CHECK(relative_error(gradients.activations[i], expected) < 1e-6);
      }
      for (std::size_t p = 0; p < input.parameters.size(); ++p) {
        const Block expected = slopes(input, input.parameters[p], weights, gradients.parameters[p]);
        CHECK(relative_error(gradients.parameters[p], expected) < 1e-6);
      }
    }
  }
}

// This is what makes plans possible at all: a part sees only its input_region and parameter_region,
// and the parts' results put together are the layer's.
TEST_CASE("numeric: the parts of every layer, along every dimension it may be cut, add up to it") {
  constexpr std::int64_t samples = 3;
  for (const Network& net : all_networks()) {
    for (std::size_t l = 0; l < net.layers.size(); ++l) {
      const LayerId id{l};
      const Layer& layer = net.layers[l];
      // Batch normalisation means something else in parts.
      if (layer.kind.as<Input>() != nullptr || is_batch_norm(layer.kind)) continue;
      const std::vector<Shape> shapes = input_shapes(net, id);
      const PartInput all = noisy_input(net, id, shapes, {whole(layer.out, samples), {}});
      const Block out = forward(all);
      const Block gradient = noisy_gradient(layer, out.box());
      const PartGradients expected = backward(all, gradient);
      for (const Dim dim : cuttable_dims(layer.kind, shapes, layer.out)) {
        if (dim == Dim::replica) continue;
        CAPTURE(net.name);
        CAPTURE(layer.name);
        CAPTURE(to_text(dim));
        Block joined(out.box());
        PartGradients sum;
        for (const Block& b : expected.activations) sum.activations.emplace_back(b.box());
        for (const Block& b : expected.parameters) sum.parameters.emplace_back(b.box());
        // Parts of a loss's classes give their statistics, which both then have.
        const bool classes = layer.kind.as<Loss>() != nullptr && dim == Dim::in_channel;
        const std::vector<Part> parts = two_parts(net, id, dim, samples);
        Block statistics;
        if (classes) statistics = Block(loss_statistics(shapes[0], all.part, {0, 2}));
        for (std::size_t part = 0; classes && part < parts.size(); ++part) {
          statistics.paste(loss_share(noisy_input(net, id, shapes, parts[part]),
                                      static_cast<std::int64_t>(part)));
        }
        for (const Part& part : parts) {
          PartInput input = noisy_input(net, id, shapes, part);
          input.statistics = statistics;
          if (!classes) joined.add(forward(input));
          if (classes) joined = forward(input);
          const PartGradients own = backward(input, gradient.piece(part.out));
          for (std::size_t i = 0; i < own.activations.size(); ++i) {
            sum.activations[i].add(own.activations[i]);
          }
          for (std::size_t p = 0; p < own.parameters.size(); ++p) {
            sum.parameters[p].add(own.parameters[p]);
          }
        }
        CHECK(relative_error(joined, out) < 1e-12);
        for (std::size_t i = 0; i < sum.activations.size(); ++i) {
          CHECK(relative_error(sum.activations[i], expected.activations[i]) < 1e-12);
        }
        for (std::size_t p = 0; p < sum.parameters.size(); ++p) {
          CHECK(relative_error(sum.parameters[p], expected.parameters[p]) < 1e-12);
        }
      }
    }
  }
}

TEST_CASE("reference: weight gradients equal finite differences of the loss") {
  constexpr std::int64_t batch = 4;
  constexpr double step = 1e-5;
  for (const Network& net : tiny_networks()) {
    CAPTURE(net.name);
    std::vector<Block> parameters = initial_parameters(net);
    const Step exact = train_step(net, batch, {}, parameters);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      CAPTURE(net.parameters[p].name);
      // One element of each parameter; every layer's own gradient is checked above.
      const std::size_t e = parameters[p].values().size() / 2;
      const double at = parameters[p].values()[e];
      parameters[p].values()[e] = at + step;
      const double above = train_step(net, batch, {}, parameters).loss;
      parameters[p].values()[e] = at - step;
      const double below = train_step(net, batch, {}, parameters).loss;
      parameters[p].values()[e] = at;
      CHECK(exact.weight_gradients[p].values()[e] ==
            testing::approx((above - below) / (2 * step)).epsilon(1e-5).scale(0.01));
      CHECK(exact.weights[p].values()[e] ==
            testing::approx(at - 0.1 * exact.weight_gradients[p].values()[e]));
    }
  }
}

TEST_CASE("reference: groups of batch normalisation change the result, one whole group does not") {
  const Network net = tiny_network("residual");
  const std::vector<Block> parameters = initial_parameters(net);
  const double whole_loss = train_step(net, 4, {}, parameters).loss;
  StatisticGroups groups(net.layers.size());
  const std::size_t norm = 2;
  REQUIRE(net.layers[norm].name == "stem_norm");
  groups[norm] = {whole(net.layers[norm].out, 4)};
  CHECK(train_step(net, 4, groups, parameters).loss == whole_loss);
  Region first = groups[norm][0];
  Region second = first;
  first[0].end = second[0].begin = 1;
  groups[norm] = {first, second};
  CHECK(train_step(net, 4, groups, parameters).loss != testing::approx(whole_loss).epsilon(1e-6));
}

}  // namespace parsim::testing
