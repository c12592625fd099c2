// ONNX graphs at the edges of what the reader takes: constants at their limit, axes other than the
// batch.
#include <doctest/doctest.h>

#include <string>

#include "core/errors.hpp"
#include "tests/networks/onnx_writer.hpp"

using namespace parsim;
using namespace parsim::networks;
using test::Numbers;
using test::OnnxWriter;
using test::Reals;

namespace {

std::string refusal(const OnnxWriter& graph) {
  try {
    (void)graph.read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// What one sample of the last layer before the loss looks like.
std::string sample(const OnnxWriter& graph) {
  const Network network = graph.read();
  return to_text(network.layers[network.layers.size() - 2].out);
}

}  // namespace

TEST_CASE("onnx: numbers of constants are kept up to 4,194,304 of them, and not one more") {
  constexpr std::int64_t limit = 4'194'304, most_of_one = 4'096;
  for (const std::int64_t beyond : {0, 1}) {
    CAPTURE(beyond);
    OnnxWriter g;
    g.input("x", {2, 3, 4});
    const std::string large = g.integers({most_of_one});
    std::int64_t left = limit - 1;
    for (; left > most_of_one; left -= most_of_one) g.filled(large, 7);
    // Then a table whose extent is a constant as well, and the two numbers of a shape.
    g.filled(g.integers({left - 3 + beyond}), 7);
    g.output(g.node("Reshape", {"x", g.integers({2, 12})}));
    if (beyond == 0) {
      CHECK(sample(g) == "12");
    } else {
      CHECK(refusal(g).ends_with("(Reshape): its sizes are not constant"));
    }
  }
}

TEST_CASE("onnx: an axis of one may come before the batch") {
  OnnxWriter g;
  g.input("x", {2, 4, 6});
  const std::string wider = g.node("Unsqueeze", {"x", g.integers({0})});
  // Now 1 x 2 x 4 x 6: axis 2 is the first of a sample.
  g.output(g.node("ReduceMax", {wider}, {{"axes", Numbers{2}}, {"keepdims", std::int64_t{0}}}));
  CHECK(sample(g) == "1x6");
}

TEST_CASE("onnx: images are scaled by numbers in an attribute, in a constant, or by sizes") {
  OnnxWriter attribute(7);
  attribute.input("x", {2, 3, 4, 5});
  attribute.output(attribute.node("Upsample", {"x"}, {{"scales", Reals{1, 1, 2, 3}}}));
  CHECK(sample(attribute) == "3x8x15");

  OnnxWriter wrong(7);
  wrong.input("x", {2, 3, 4, 5});
  wrong.output(wrong.node("Upsample", {"x"}, {{"scales", Reals{2, 3}}}));
  CHECK(refusal(wrong).ends_with(
      "neither sizes nor scales are constant; accepted: constants, one per axis"));

  OnnxWriter batch(7);
  batch.input("x", {2, 3, 4, 5});
  batch.output(batch.node("Upsample", {"x"}, {{"scales", Reals{2, 1, 1, 1}}}));
  CHECK(refusal(batch).ends_with("it resizes the batch axis; accepted: sizes of other axes"));
}

TEST_CASE("onnx: a softmax over samples is refused, also where it joins all axes after them") {
  for (const std::int64_t opset : {11, 13}) {
    CAPTURE(opset);
    OnnxWriter g(opset);
    g.input("x", {2, 3, 4});
    g.output(g.node("Softmax", {"x"}, {{"axis", std::int64_t{0}}}));
    CHECK(refusal(g).ends_with(
        "it works across samples of the batch; accepted: operators that work on each sample"));
  }
}
