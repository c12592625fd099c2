// Operators on constants, by hand.
#include "networks/onnx_fold.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

using namespace parsim::networks::onnx_reader;

namespace {

using Integers = std::vector<std::int64_t>;

Node node(const std::string& op, std::vector<Attribute> attributes = {},
          std::vector<std::string> outputs = {"y"}) {
  return {op, op, {}, std::move(outputs), std::move(attributes)};
}

std::vector<Tensor> all(const Node& of, const std::vector<Tensor>& operands) {
  std::vector<const Tensor*> in;
  for (const Tensor& tensor : operands) in.push_back(&tensor);
  return fold(of, in, 17).value();
}

Tensor one(const Node& of, const std::vector<Tensor>& operands) { return all(of, operands).at(0); }

Tensor vector(Integers numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  return Tensor::of({count}, std::move(numbers));
}
Tensor scalar(std::int64_t number) { return Tensor::of({}, {number}); }
Tensor truth(Integers numbers) {
  Tensor out = vector(std::move(numbers));
  out.element = Element::boolean;
  return out;
}

}  // namespace

TEST_CASE("onnx fold: arithmetic and comparisons broadcast") {
  const Tensor a = vector({7, -7, 3}), b = scalar(2);
  CHECK(one(node("Add"), {a, b}) == vector({9, -5, 5}));
  CHECK(one(node("Sub"), {a, b}) == vector({5, -9, 1}));
  CHECK(one(node("Mul"), {a, b}) == vector({14, -14, 6}));
  CHECK(one(node("Div"), {a, b}) == vector({3, -3, 1}));  // towards zero, as ONNX's integers
  CHECK(one(node("Mod"), {a, b}) == vector({1, 1, 1}));   // the divisor's sign
  CHECK(one(node("Max"), {a, b, scalar(5)}) == vector({7, 5, 5}));
  CHECK(one(node("Min"), {a, b}) == vector({2, -7, 2}));
  CHECK(one(node("Less"), {a, b}) == truth({0, 1, 0}));
  CHECK(one(node("GreaterOrEqual"), {a, scalar(3)}) == truth({1, 0, 1}));
  CHECK(one(node("Equal"), {a, scalar(3)}) == truth({0, 0, 1}));
  CHECK(one(node("Not"), {truth({0, 1})}) == truth({1, 0}));
  CHECK(one(node("And"), {truth({0, 1}), truth({1, 1})}) == truth({0, 1}));
  CHECK(one(node("Where"), {truth({0, 1, 0}), a, b}) == vector({2, -7, 2}));
  CHECK(one(node("Neg"), {a}) == vector({-7, 7, -3}));
  CHECK(one(node("Sqrt"), {Tensor::of_reals({}, {64})}) == Tensor::of_reals({}, {8}));
  CHECK(one(node("Cast", {{"to", std::int64_t{7}}}), {Tensor::of_reals({2}, {2.9, -2.9})}) ==
        vector({2, -2}));
  CHECK(one(node("Cast", {{"to", std::int64_t{9}}}), {Tensor::of_reals({2}, {0.5, 0})}) ==
        truth({1, 0}));
  CHECK(one(node("ReduceProd", {{"keepdims", std::int64_t{0}}}), {a}) == scalar(-147));
  CHECK(one(node("ReduceMax"), {a}) == vector({7}));
}

TEST_CASE("onnx fold: what would overflow or divide by zero is not known, its extents are") {
  const Tensor most = scalar(std::numeric_limits<std::int64_t>::max());
  const Tensor least = scalar(std::numeric_limits<std::int64_t>::min());
  const Tensor unknown = Tensor::unknown(Element::integer, {});
  CHECK(one(node("Add"), {most, scalar(1)}) == unknown);
  CHECK(one(node("Mul"), {most, scalar(2)}) == unknown);
  CHECK(one(node("Div"), {most, scalar(0)}) == unknown);
  CHECK(one(node("Div"), {least, scalar(-1)}) == unknown);
  CHECK(one(node("Mod"), {least, scalar(-1)}) == unknown);
  CHECK(one(node("Cast", {{"to", std::int64_t{7}}}), {Tensor::of_reals({}, {1e30})}) == unknown);
}

TEST_CASE("onnx fold: numbers are moved, selected and made") {
  const Tensor m = Tensor::of({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(one(node("Transpose"), {m}) == Tensor::of({3, 2}, {1, 4, 2, 5, 3, 6}));
  CHECK(one(node("Reshape"), {m, vector({0, -1, 1})}) == Tensor::of({2, 3, 1}, m.integers));
  CHECK(one(node("Flatten"), {Tensor::of({1, 2, 3}, m.integers)}) ==
        Tensor::of({1, 6}, m.integers));
  CHECK(one(node("Squeeze"), {Tensor::of({1, 2, 1, 3}, m.integers)}) == m);
  CHECK(one(node("Unsqueeze"), {m, vector({0, -1})}) == Tensor::of({1, 2, 3, 1}, m.integers));
  CHECK(one(node("Slice"), {m, vector({-1}), vector({-100}), vector({1}), vector({-2})}) ==
        Tensor::of({2, 2}, {3, 1, 6, 4}));
  CHECK(one(node("Gather", {{"axis", std::int64_t{1}}}), {m, vector({-1, 0})}) ==
        Tensor::of({2, 2}, {3, 1, 6, 4}));
  CHECK(one(node("Gather"), {vector({8, 9}), scalar(1)}) == scalar(9));
  CHECK(one(node("GatherElements", {{"axis", std::int64_t{1}}}),
            {m, Tensor::of({2, 2}, {2, 0, -1, 1})}) == Tensor::of({2, 2}, {3, 1, 6, 5}));
  CHECK(one(node("GatherElements"), {m, Tensor::of({1, 2}, {1, 0})}) == Tensor::of({1, 2}, {4, 2}));
  CHECK(one(node("Concat", {{"axis", std::int64_t{1}}}), {m, Tensor::of({2, 1}, {7, 8})}) ==
        Tensor::of({2, 4}, {1, 2, 3, 7, 4, 5, 6, 8}));
  CHECK(one(node("Expand"), {vector({1, 2}), vector({2, 1})}) == Tensor::of({2, 2}, {1, 2, 1, 2}));
  CHECK(one(node("Tile"), {vector({1, 2}), vector({2})}) == vector({1, 2, 1, 2}));
  CHECK(one(node("Range"), {scalar(5), scalar(0), scalar(-2)}) == vector({5, 3, 1}));
  CHECK(one(node("ConstantOfShape", {{"value", vector({7})}}), {vector({2, 1})}) ==
        Tensor::of({2, 1}, {7, 7}));
  CHECK(one(node("Trilu", {{"upper", std::int64_t{0}}}), {m}) ==
        Tensor::of({2, 3}, {1, 0, 0, 4, 5, 0}));
  CHECK(one(node("Trilu"), {m, scalar(1)}) == Tensor::of({2, 3}, {0, 2, 3, 0, 0, 6}));
  CHECK(one(node("NonZero"), {Tensor::of({2, 3}, {0, 1, 0, 4, 0, 6})}) ==
        Tensor::of({2, 3}, {0, 1, 1, 1, 0, 2}));
  CHECK(all(node("Split", {}, {"a", "b"}), {vector({1, 2, 3}), vector({1, 2})}) ==
        std::vector{vector({1}), vector({2, 3})});
}

TEST_CASE("onnx fold: large tensors keep their extents and drop their numbers") {
  const Tensor line = one(node("Range"), {scalar(0), scalar(1'000'000), scalar(1)});
  CHECK(line == Tensor::unknown(Element::integer, {1'000'000}));
  const Tensor square = one(node("Less"), {line, one(node("Unsqueeze"), {line, vector({1})})});
  CHECK(square == Tensor::unknown(Element::boolean, {1'000'000, 1'000'000}));
}

TEST_CASE("onnx fold: what cannot be is refused") {
  const auto says = [](const Node& of, const std::vector<Tensor>& operands) -> std::string {
    try {
      (void)all(of, operands);
    } catch (const FoldError& error) {
      return error.what();
    }
    return "nothing";
  };
  CHECK(says(node("Add"), {vector({1, 2}), vector({1, 2, 3})}) ==
        "shapes [2] and [3] cannot be broadcast");
  CHECK(says(node("Reshape"), {vector({1, 2, 3}), vector({2, -1})}) ==
        "shape [3] cannot become [2, -1]");
  CHECK(says(node("Gather"), {vector({1, 2}), scalar(2)}) ==
        "index 2 is outside an axis of size 2");
  CHECK(says(node("ConstantOfShape"), {vector({1LL << 40, 2})}) ==
        "its output has shape [1099511627776, 2]");
  CHECK(says(node("Expand"), {scalar(1), vector({1LL << 40, 1LL << 40})}) ==
        "its output of shape [1099511627776, 1099511627776] is too large");
  CHECK(says(node("Range"), {scalar(0), scalar(1), scalar(0)}) == "its range is too long");
  CHECK(says(node("Tile"), {vector({1, 2}), vector({1LL << 62})}) ==
        "4611686018427387904 repeats of an axis of size 2");
  CHECK(says(node("Slice"), {vector({1, 2}), vector({0}), vector({2}), vector({0}), vector({0})}) ==
        "step 0");
  CHECK(says(node("Split", {}, {"a", "b"}), {vector({1, 2, 3}), vector({2, 2})}) ==
        "its parts exceed the axis");
  CHECK(says(node("Unsqueeze"), {vector({1}), vector({0, 5})}) == "axis 5 of a tensor with 3 axes");
}
