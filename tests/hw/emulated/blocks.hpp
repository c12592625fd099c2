// Single products in FP8 with scales by blocks, on the emulated GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "hw/kernels_products.hpp"

namespace parsim::testing {

/// x rows × inner, w columns × inner, y rows × columns, row-major; bf16 numbers.
struct BlockProduct {
  hw::Product product = hw::Product::forward;
  std::int64_t rows = 0, columns = 0, inner = 0;
  std::vector<float> x, w, y;
};
/// The result, whose own numbers are not read: cast and multiplied as CudaEngine does.
[[nodiscard]] std::vector<float> by_blocks(const BlockProduct& of);

}  // namespace parsim::testing
