// Element-wise operators, casts and reductions on constants.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "networks/onnx_fold.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Integer = std::int64_t;
/// A function of integers that has no result where it would overflow or divide by zero.
using IntegerFunction = std::optional<Integer> (*)(Integer, Integer);
using RealFunction = double (*)(double, double);

struct Binary {
  IntegerFunction integer;
  RealFunction real;
  bool truth = false;  ///< the result is a boolean
};

std::optional<Integer> to_integer(double x) {
  // 2^63 is exact in a double; anything inside fits.
  constexpr double limit = 9223372036854775808.0;
  if (!(x >= -limit && x < limit)) return std::nullopt;
  return static_cast<Integer>(x);
}

bool divides(Integer a, Integer b) {
  return b != 0 && !(a == std::numeric_limits<Integer>::min() && b == -1);
}

std::optional<Integer> add(Integer a, Integer b) {
  Integer out = 0;
  return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional(out);
}
std::optional<Integer> subtract(Integer a, Integer b) {
  Integer out = 0;
  return __builtin_sub_overflow(a, b, &out) ? std::nullopt : std::optional(out);
}
std::optional<Integer> multiply(Integer a, Integer b) {
  Integer out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
}
std::optional<Integer> modulo(Integer a, Integer b) {  // the sign of the divisor, as in Python
  if (!divides(a, b)) return std::nullopt;
  const Integer rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

const std::map<std::string, Binary>& binaries() {
  using I = Integer;
  static const std::map<std::string, Binary> table{
      {"Add", {add, [](double a, double b) { return a + b; }}},
      {"Sub", {subtract, [](double a, double b) { return a - b; }}},
      {"Mul", {multiply, [](double a, double b) { return a * b; }}},
      {"Div",
       {[](I a, I b) { return divides(a, b) ? std::optional(a / b) : std::nullopt; },
        [](double a, double b) { return a / b; }}},
      {"Mod", {modulo, [](double a, double b) { return std::fmod(a, b); }}},
      {"Pow",
       {[](I a, I b) {
          return to_integer(std::pow(static_cast<double>(a), static_cast<double>(b)));
        },
        [](double a, double b) { return std::pow(a, b); }}},
      {"Max",
       {[](I a, I b) { return std::optional(std::max(a, b)); },
        [](double a, double b) { return std::max(a, b); }}},
      {"Min",
       {[](I a, I b) { return std::optional(std::min(a, b)); },
        [](double a, double b) { return std::min(a, b); }}},
      {"And", {[](I a, I b) { return std::optional<I>(a != 0 && b != 0); }, nullptr, true}},
      {"Or", {[](I a, I b) { return std::optional<I>(a != 0 || b != 0); }, nullptr, true}},
      {"Xor", {[](I a, I b) { return std::optional<I>((a != 0) != (b != 0)); }, nullptr, true}},
      {"Equal",
       {[](I a, I b) { return std::optional<I>(a == b); },
        [](double a, double b) { return a == b ? 1.0 : 0.0; }, true}},
      {"Less",
       {[](I a, I b) { return std::optional<I>(a < b); },
        [](double a, double b) { return a < b ? 1.0 : 0.0; }, true}},
      {"LessOrEqual",
       {[](I a, I b) { return std::optional<I>(a <= b); },
        [](double a, double b) { return a <= b ? 1.0 : 0.0; }, true}},
      {"Greater",
       {[](I a, I b) { return std::optional<I>(a > b); },
        [](double a, double b) { return a > b ? 1.0 : 0.0; }, true}},
      {"GreaterOrEqual",
       {[](I a, I b) { return std::optional<I>(a >= b); },
        [](double a, double b) { return a >= b ? 1.0 : 0.0; }, true}},
  };
  return table;
}

const std::map<std::string, RealFunction>& unaries() {  // the second argument is not used
  static const std::map<std::string, RealFunction> table{
      {"Abs", [](double x, double) { return std::abs(x); }},
      {"Neg", [](double x, double) { return -x; }},
      {"Sqrt", [](double x, double) { return std::sqrt(x); }},
      {"Exp", [](double x, double) { return std::exp(x); }},
      {"Log", [](double x, double) { return std::log(x); }},
      {"Sin", [](double x, double) { return std::sin(x); }},
      {"Cos", [](double x, double) { return std::cos(x); }},
      {"Tanh", [](double x, double) { return std::tanh(x); }},
      {"Floor", [](double x, double) { return std::floor(x); }},
      {"Ceil", [](double x, double) { return std::ceil(x); }},
      {"Round", [](double x, double) { return std::nearbyint(x); }},
      {"Sign", [](double x, double) { return x > 0   ? 1.0
                                             : x < 0 ? -1.0
                                                     : 0.0; }},
      {"Reciprocal", [](double x, double) { return 1 / x; }},
      {"Relu", [](double x, double) { return std::max(x, 0.0); }},
      {"Sigmoid", [](double x, double) { return 1 / (1 + std::exp(-x)); }},
      {"IsNaN", [](double x, double) { return std::isnan(x) ? 1.0 : 0.0; }},
      {"IsInf", [](double x, double) { return std::isinf(x) ? 1.0 : 0.0; }},
  };
  return table;
}

/// For every element of a broadcast result, in order, the index into an operand of extents `from`.
std::vector<std::size_t> broadcast_indices(const Extents& to, const Extents& from) {
  std::vector<std::size_t> out;
  const auto count = static_cast<std::size_t>(elements(to).value_or(0));
  out.reserve(count);
  std::vector<std::size_t> stride(to.size(), 0);
  std::size_t step = 1;
  for (std::size_t i = from.size(); i-- > 0;) {
    if (from[i] != 1) stride[to.size() - from.size() + i] = step;
    step *= static_cast<std::size_t>(from[i]);
  }
  std::vector<std::int64_t> at(to.size(), 0);
  std::size_t index = 0;
  for (std::size_t n = 0; n < count; ++n) {
    out.push_back(index);
    for (std::size_t axis = to.size(); axis-- > 0;) {
      index += stride[axis];
      if (++at[axis] < to[axis]) break;
      index -= stride[axis] * static_cast<std::size_t>(to[axis]);
      at[axis] = 0;
    }
  }
  return out;
}

bool small(const Extents& dims) {
  const auto count = elements(dims);
  return count && *count <= most_known_elements;
}

Tensor apply(const Binary& function, const Tensor& a, const Tensor& b) {
  const bool real = a.element == Element::real || b.element == Element::real;
  Tensor out = Tensor::unknown(function.truth ? Element::boolean
                               : real         ? Element::real
                                              : a.element,
                               broadcast(a.dims, b.dims));
  if (!a.known || !b.known || !small(out.dims)) return out;
  const auto ia = broadcast_indices(out.dims, a.dims), ib = broadcast_indices(out.dims, b.dims);
  for (std::size_t i = 0; i < ia.size(); ++i) {
    if (real) {
      if (function.real == nullptr) return out;
      const double value = function.real(a.real(ia[i]), b.real(ib[i]));
      if (function.truth) {
        out.integers.push_back(value != 0 ? 1 : 0);
      } else {
        out.reals.push_back(value);
      }
    } else {
      const auto value = function.integer(a.integers[ia[i]], b.integers[ib[i]]);
      if (!value) return Tensor::unknown(out.element, out.dims);
      out.integers.push_back(*value);
    }
  }
  out.known = true;
  return out;
}

Tensor cast(const Tensor& from, Element element) {
  Tensor out = Tensor::unknown(element, from.dims);
  if (!from.known) return out;
  for (std::size_t i = 0; i < from.count(); ++i) {
    if (element == Element::real) {
      out.reals.push_back(from.real(i));
      continue;
    }
    const auto value =
        from.element == Element::real ? to_integer(from.reals[i]) : std::optional(from.integers[i]);
    if (!value) return Tensor::unknown(element, from.dims);
    const bool truth = from.element == Element::real ? from.reals[i] != 0 : *value != 0;
    out.integers.push_back(element == Element::boolean ? (truth ? 1 : 0) : *value);
  }
  out.known = true;
  return out;
}

Tensor unary(RealFunction function, const std::string& op, const Tensor& in) {
  const bool truth = op == "IsNaN" || op == "IsInf";
  const Element element = truth ? Element::boolean : in.element;
  Tensor out = Tensor::unknown(element, in.dims);
  if (!in.known) return out;
  for (std::size_t i = 0; i < in.count(); ++i) {
    const double value = function(in.real(i), 0);
    if (element == Element::real) {
      out.reals.push_back(value);
    } else if (const auto integer = to_integer(value)) {
      out.integers.push_back(*integer);
    } else {
      return Tensor::unknown(element, in.dims);
    }
  }
  out.known = true;
  return out;
}

Tensor where(const Tensor& condition, const Tensor& yes, const Tensor& no) {
  Tensor out =
      Tensor::unknown(yes.element, broadcast(condition.dims, broadcast(yes.dims, no.dims)));
  if (!condition.known || !yes.known || !no.known || !small(out.dims)) return out;
  if (yes.element != no.element || condition.element == Element::real) return out;
  const auto ic = broadcast_indices(out.dims, condition.dims);
  const auto iy = broadcast_indices(out.dims, yes.dims);
  const auto in = broadcast_indices(out.dims, no.dims);
  for (std::size_t i = 0; i < ic.size(); ++i) {
    const bool chosen = condition.integers[ic[i]] != 0;
    if (out.element == Element::real) {
      out.reals.push_back(chosen ? yes.reals[iy[i]] : no.reals[in[i]]);
    } else {
      out.integers.push_back(chosen ? yes.integers[iy[i]] : no.integers[in[i]]);
    }
  }
  out.known = true;
  return out;
}

/// Sum, product, minimum, maximum or mean over all elements, or extents only over some axes.
Tensor reduce(const Node& node, Operands in) {
  const Tensor& data = operand(in, 0);
  const auto axes = axes_of(node, in.size() > 1 ? in[1] : nullptr, data.dims.size());
  if (axes.empty() && node.integer("noop_with_empty_axes", 0) != 0) return data;
  const bool keep = node.integer("keepdims", 1) != 0;
  Tensor out = Tensor::unknown(data.element, {});
  bool whole = true;
  for (std::size_t i = 0; i < data.dims.size(); ++i) {
    const bool reduced = axes.empty() || std::binary_search(axes.begin(), axes.end(), i);
    whole = whole && (reduced || data.dims[i] == 1);
    if (!reduced) out.dims.push_back(data.dims[i]);
    if (reduced && keep) out.dims.push_back(1);
  }
  const std::map<std::string, std::string> steps{
      {"ReduceSum", "Add"}, {"ReduceProd", "Mul"}, {"ReduceMin", "Min"}, {"ReduceMax", "Max"}};
  const auto step = steps.find(node.op);
  if (!data.known || !whole || data.count() == 0 || step == steps.end()) return out;
  const auto element = [&](std::size_t i) {
    return data.element == Element::real ? Tensor::of_reals({}, {data.reals[i]})
                                         : Tensor::of({}, {data.integers[i]}, data.element);
  };
  Tensor sum = element(0);
  for (std::size_t i = 1; i < data.count(); ++i) {
    sum = apply(binaries().at(step->second), sum, element(i));
  }
  sum.dims = out.dims;
  return sum;
}

Element cast_target(const Node& node) {
  // TensorProto's numbers: 1 float, 9 bool, 10 float16, 11 double, 16 bfloat16, the rest integers.
  switch (node.integer("to", 1)) {
    case 1:
    case 10:
    case 11:
    case 16:
      return Element::real;
    case 9:
      return Element::boolean;
    default:
      return Element::integer;
  }
}

}  // namespace

std::optional<std::vector<Tensor>> fold_arithmetic(const Node& node, Operands in) {
  const auto one = [](Tensor tensor) {
    return std::optional(std::vector<Tensor>{std::move(tensor)});
  };
  if (const auto binary = binaries().find(node.op); binary != binaries().end()) {
    Tensor out = operand(in, 0);
    if (in.size() < 2 && node.op != "Max" && node.op != "Min") {
      throw FoldError("it has one operand instead of two");
    }
    for (std::size_t i = 1; i < in.size(); ++i) out = apply(binary->second, out, operand(in, i));
    return one(std::move(out));
  }
  if (const auto function = unaries().find(node.op); function != unaries().end()) {
    return one(unary(function->second, node.op, operand(in, 0)));
  }
  if (node.op == "Not") {
    return one(apply(binaries().at("Equal"), operand(in, 0), Tensor::of({}, {0})));
  }
  if (node.op == "Cast") return one(cast(operand(in, 0), cast_target(node)));
  if (node.op == "CastLike") return one(cast(operand(in, 0), operand(in, 1).element));
  if (node.op == "Where") return one(where(operand(in, 0), operand(in, 1), operand(in, 2)));
  if (node.op == "Clip") {
    Tensor out = operand(in, 0);
    if (in.size() > 1 && in[1] != nullptr) out = apply(binaries().at("Max"), out, *in[1]);
    if (in.size() > 2 && in[2] != nullptr) out = apply(binaries().at("Min"), out, *in[2]);
    return one(std::move(out));
  }
  if (node.op.starts_with("Reduce")) return one(reduce(node, in));
  return std::nullopt;
}

}  // namespace parsim::networks::onnx_reader
