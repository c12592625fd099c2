// Operators on tensors that are known before training: shape arithmetic, masks, index tables. What
// they give is a constant of the network, never a layer.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "networks/onnx_tensor.hpp"

namespace parsim::networks::onnx_reader {

/// A node that asks for something impossible; the caller adds the location and makes it an
/// InputError.
struct FoldError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A constant operand, or nullptr where the node leaves one out.
using Operands = std::span<const Tensor* const>;

/// The outputs of `node` for constant operands; nothing if it is not an operator on constants.
/// Numbers stay known while operands are known and results are small; extents are always known.
/// Throws FoldError for operands that do not fit or whose needed numbers are not in the file.
[[nodiscard]] std::optional<std::vector<Tensor>> fold(const Node& node, Operands in,
                                                      std::int64_t opset);

/// Element-wise operators, casts and reductions; one of the parts of fold().
[[nodiscard]] std::optional<std::vector<Tensor>> fold_arithmetic(const Node& node, Operands in);
/// Operators that move, select or make numbers; the other part of fold().
[[nodiscard]] std::optional<std::vector<Tensor>> fold_layout(const Node& node, Operands in);

/// Extents of an element-wise result in NumPy's way. Throws FoldError if they do not fit.
[[nodiscard]] Extents broadcast(std::span<const std::int64_t> a, std::span<const std::int64_t> b);
/// Counts an axis from the end if it is negative. Throws FoldError if there is none such.
[[nodiscard]] std::size_t normal_axis(std::int64_t axis, std::size_t rank);
/// The numbers of an integer operand. Throws FoldError if they are not known.
[[nodiscard]] const std::vector<std::int64_t>& integers(const Tensor& tensor,
                                                        std::string_view what);
/// Operand `i`. Throws FoldError if the node leaves it out.
[[nodiscard]] const Tensor& operand(Operands in, std::size_t i);
/// Extents after Reshape: 0 copies, one -1 is what is left. Throws FoldError if they do not fit.
[[nodiscard]] Extents reshaped(const Tensor& data, std::span<const std::int64_t> target,
                               bool zero_copies);
/// Axes of Squeeze, Unsqueeze and the reductions, from the second operand or the attribute, in
/// rising order and without repetition; empty if the node names none.
[[nodiscard]] std::vector<std::size_t> axes_of(const Node& node, const Tensor* operand,
                                               std::size_t rank);
/// One axis of a Slice, as Python's begin:end:step with everything clipped to the axis.
struct AxisSlice {
  std::size_t axis = 0;
  std::int64_t begin = 0, step = 1, count = 0;
};
/// What a Slice takes from a tensor of extents `dims`; in[0] is not looked at. Throws FoldError.
[[nodiscard]] std::vector<AxisSlice> slices_of(const Node& node, Operands in,
                                               std::span<const std::int64_t> dims);
/// Lengths of the parts of a Split. Throws FoldError if they do not add up to the axis.
[[nodiscard]] std::vector<std::int64_t> split_of(const Node& node, const Tensor* lengths,
                                                 std::int64_t extent);
/// Paddings before and after each axis (2 x rank numbers). Throws FoldError.
[[nodiscard]] std::vector<std::int64_t> pads_of(const Node& node, Operands in, std::size_t rank);

}  // namespace parsim::networks::onnx_reader
