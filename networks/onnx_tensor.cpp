#include "networks/onnx_tensor.hpp"

#include <fmt/format.h>

#include <utility>

namespace parsim::networks::onnx_reader {

std::optional<std::int64_t> elements(std::span<const std::int64_t> dims) {
  bool empty = false;
  for (const std::int64_t extent : dims) {
    if (extent < 0 || extent > most_elements) return std::nullopt;
    empty = empty || extent == 0;
  }
  if (empty) return 0;
  std::int64_t product = 1;
  for (const std::int64_t extent : dims) {
    if (product > most_elements / extent) return std::nullopt;
    product *= extent;
  }
  return product;
}

std::string to_text(std::span<const std::int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

Tensor Tensor::of(Extents dims, std::vector<std::int64_t> numbers, Element element) {
  return {element, std::move(dims), true, std::move(numbers), {}, false};
}

Tensor Tensor::of_reals(Extents dims, std::vector<double> numbers) {
  return {Element::real, std::move(dims), true, {}, std::move(numbers), false};
}

Tensor Tensor::unknown(Element element, Extents dims) {
  return {element, std::move(dims), false, {}, {}, false};
}

}  // namespace parsim::networks::onnx_reader
