// Convolutions, products of matrices and attention by oneDNN, on one device's cores.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "hw/kernels_attention.hpp"
#include "hw/kernels_products.hpp"

namespace parsim::hw {

/// Results go where the request says; what lies otherwise than oneDNN wants it is copied before, or
/// after. Nothing is returned for shapes that oneDNN does not take. Created and called with the
/// same number of threads (CpuCores::count_on). One action at a time: they share the memory of the
/// copies.
class CpuProducts {
 public:
  using Action = std::function<void()>;

  CpuProducts();
  ~CpuProducts();
  CpuProducts(CpuProducts&&) noexcept;

  /// Images with the channel innermost are read and written where they are.
  [[nodiscard]] std::optional<Action> convolve(const ConvRequest<float>& request);
  [[nodiscard]] std::optional<Action> multiply(const DenseRequest<float>& request) {
    return multiply(request, false);
  }
  /// One product for each position of the axes before the last two.
  [[nodiscard]] std::optional<Action> multiply_each(const DenseRequest<float>& request) {
    return multiply(request, true);
  }
  /// Scores are products of whole heads, softmax and backward passes loops of our own; the backward
  /// pass makes scores again.
  [[nodiscard]] std::optional<Action> attend(const AttentionRequest<float>& request);

 private:
  struct Parts;
  [[nodiscard]] std::optional<Action> multiply(const DenseRequest<float>& request, bool batched);

  std::unique_ptr<Parts> parts_;
};

}  // namespace parsim::hw
