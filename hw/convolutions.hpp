// The shape of a convolution as a library is asked for it.
#pragma once

#include <cstdint>
#include <vector>

#include "hw/kernels_products.hpp"

namespace parsim::hw {

/// Dense tensors with the channel innermost, as our kernels lay images out; weights the same.
struct ConvShape {
  Product product = Product::forward;
  Precision precision = Precision::fp32;
  std::vector<std::int64_t> x, w, y;  ///< extents: sample, channel, spatial…
  std::vector<std::int64_t> stride, dilation, pad_begin, pad_end;
  friend bool operator==(const ConvShape&, const ConvShape&) = default;
};
template <class T>
[[nodiscard]] ConvShape conv_shape(const ConvRequest<T>& request, Precision precision) {
  const auto extents = [](const Region& region) {
    std::vector<std::int64_t> all;
    for (std::size_t a = 0; a < region.rank(); ++a) all.push_back(region[a].size());
    return all;
  };
  return {request.product,    precision,          extents(request.x),
          extents(request.w), extents(request.y), request.stride,
          request.dilation,   request.pad_begin,  request.pad_end};
}

}  // namespace parsim::hw
