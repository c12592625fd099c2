// Tensors of a graph file that are known before training: small ones with their numbers (shapes are
// computed from them), large ones and weights by their extents only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace parsim::networks::onnx_reader {

using Extents = std::vector<std::int64_t>;

/// Tensors beyond this are refused: 2^40 elements are 4 TiB in fp32.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 40;
/// The elements of larger constants are not kept; only masks and tables are that large.
inline constexpr std::int64_t most_known_elements = 4096;
/// Axes of a tensor, the sample axis included (Region::max_rank).
inline constexpr std::size_t most_axes = 8;

/// Product of the extents; nothing if one is negative or the product exceeds `most_elements`.
[[nodiscard]] std::optional<std::int64_t> elements(std::span<const std::int64_t> dims);
/// "[2, 3]".
[[nodiscard]] std::string to_text(std::span<const std::int64_t> dims);

/// What the elements are, as far as a plan is concerned.
enum class Element : std::uint8_t { real, integer, boolean };

/// Extents, and the numbers if they are known.
struct Tensor {
  Element element = Element::real;
  Extents dims;
  bool known = false;                  ///< the numbers below are there, row-major
  std::vector<std::int64_t> integers;  ///< of integer and boolean tensors
  std::vector<double> reals;           ///< of real tensors
  bool mask = false;                   ///< real, and all zero or so low that a softmax drops them
  friend bool operator==(const Tensor&, const Tensor&) = default;

  static Tensor of(Extents dims, std::vector<std::int64_t> numbers,
                   Element element = Element::integer);
  static Tensor of_reals(Extents dims, std::vector<double> numbers);
  static Tensor unknown(Element element, Extents dims);
  [[nodiscard]] std::size_t count() const {
    return element == Element::real ? reals.size() : integers.size();
  }
  /// Element `i` as a real number. The tensor must be known.
  [[nodiscard]] double real(std::size_t i) const {
    return element == Element::real ? reals[i] : static_cast<double>(integers[i]);
  }
};

using AttributeValue = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>,
                                    std::vector<double>, Tensor>;
struct Attribute {
  std::string name;
  AttributeValue value;
};

/// One operator of the graph. An empty input or output name means "left out".
struct Node {
  std::string op;  ///< "Conv"; with its domain if it is not ONNX's own: "com.microsoft::FusedConv"
  std::string name;  ///< the file's name, or "Conv_7" (operator and position) if it has none
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> attributes;

  /// The attribute if the node has it with this type.
  template <class Type>
  [[nodiscard]] const Type* find(std::string_view attribute) const {
    for (const Attribute& a : attributes) {
      if (a.name == attribute) return std::get_if<Type>(&a.value);
    }
    return nullptr;
  }
  [[nodiscard]] std::int64_t integer(std::string_view attribute, std::int64_t otherwise) const {
    const auto* value = find<std::int64_t>(attribute);
    return value == nullptr ? otherwise : *value;
  }
  [[nodiscard]] std::string text(std::string_view attribute, std::string_view otherwise) const {
    const auto* value = find<std::string>(attribute);
    return value == nullptr ? std::string(otherwise) : *value;
  }
};

}  // namespace parsim::networks::onnx_reader
