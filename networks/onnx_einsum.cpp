// Einsum of two operands, as a batched matmul between transposes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "networks/onnx_operators.hpp"

namespace parsim::networks::onnx_reader {

namespace {

struct Equation {
  std::string left, right, out;
};

bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

Equation parse(const Builder& builder, const Node& node) {
  std::string text = node.text("equation", "");
  std::erase(text, ' ');
  const std::size_t comma = text.find(','), arrow = text.find("->");
  const auto refuse = [&] {
    builder.refuse(node, fmt::format("the equation '{}'", text),
                   "two operands with named axes, as in bhid,bhjd->bhij");
  };
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) refuse();
  Equation equation{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
                    text.substr(arrow + 2)};
  for (const std::string* part : {&equation.left, &equation.right, &equation.out}) {
    const std::set<char> letters(part->begin(), part->end());
    const bool named = std::all_of(part->begin(), part->end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    });
    if (!named || letters.size() != part->size()) refuse();
  }
  for (const char c : equation.out) {
    if (!has(equation.left, c) && !has(equation.right, c)) refuse();
  }
  return equation;
}

/// The letters of `from` for which `keep` holds.
template <class Predicate>
std::string only(const std::string& from, Predicate keep) {
  std::string out;
  std::copy_if(from.begin(), from.end(), std::back_inserter(out), keep);
  return out;
}

/// The value with its axes, named `from`, in the order `to`.
Value ordered(Builder& builder, const Node& node, const Value& value, const std::string& from,
              const std::string& to) {
  std::vector<std::size_t> order;
  for (const char c : to) order.push_back(from.find(c));
  return permuted(builder, node, value, order);
}

}  // namespace

void einsum(Builder& builder, const Node& node) {
  const Equation eq = parse(builder, node);
  Value left = builder.activation(node, builder.operand(node, 0));
  Value right = builder.activation(node, builder.operand(node, 1));
  if (left.rank() != eq.left.size() || right.rank() != eq.right.size()) {
    builder.refuse(node, "the equation and its operands differ in rank", "one letter per axis");
  }
  // Letters by where they occur: shared ones lead, rows are the left's own, columns the right's.
  const std::string shared =
      only(eq.out, [&](char c) { return has(eq.left, c) && has(eq.right, c); });
  const std::string rows = only(eq.out, [&](char c) { return !has(eq.right, c); });
  const std::string columns = only(eq.out, [&](char c) { return !has(eq.left, c); });
  const std::string summed =
      only(eq.left, [&](char c) { return has(eq.right, c) && !has(eq.out, c); });
  if (shared.size() + rows.size() + summed.size() != eq.left.size() ||
      shared.size() + columns.size() + summed.size() != eq.right.size()) {
    builder.refuse(node,
                   fmt::format("the equation '{},{}->{}' sums over an axis of one operand only",
                               eq.left, eq.right, eq.out),
                   "sums over axes that both operands have");
  }
  std::map<char, std::int64_t> extent;
  for (std::size_t i = 0; i < eq.left.size(); ++i) extent[eq.left[i]] = left.dims()[i];
  for (std::size_t i = 0; i < eq.right.size(); ++i) {
    const auto [axis, fresh] = extent.try_emplace(eq.right[i], right.dims()[i]);
    if (axis->second != right.dims()[i]) {
      builder.refuse(node,
                     fmt::format("axis '{}' of the equation has sizes {} and {}", eq.right[i],
                                 axis->second, right.dims()[i]),
                     "equal sizes");
    }
  }
  const auto joined = [&](const std::string& letters) {
    std::int64_t count = 1;
    for (const char c : letters) count *= extent.at(c);
    return count;
  };
  Extents leading;
  for (const char c : shared) leading.push_back(extent.at(c));
  const auto matrix = [&](std::int64_t m, std::int64_t n) {
    Extents dims = leading;
    dims.insert(dims.end(), {m, n});
    return dims;
  };
  left = ordered(builder, node, left, eq.left, shared + rows + summed);
  left = builder.reshape(node, left, matrix(joined(rows), joined(summed)));
  right = ordered(builder, node, right, eq.right, shared + summed + columns);
  right = builder.reshape(node, right, matrix(joined(summed), joined(columns)));
  Value out = batched_matmul(builder, node, left, right);
  Extents apart = leading;
  for (const char c : rows + columns) apart.push_back(extent.at(c));
  out = builder.reshape(node, out, apart);
  builder.output(node, 0, ordered(builder, node, out, shared + rows + columns, eq.out));
}

}  // namespace parsim::networks::onnx_reader
