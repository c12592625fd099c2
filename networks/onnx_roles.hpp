// What the axes of a graph's tensors mean. ONNX does not say; ranks and operators suggest it. A
// wrong guess costs a cut that might have been possible, never a wrong shape.
#pragma once

#include <cstddef>
#include <vector>

#include "core/layers.hpp"
#include "networks/onnx_tensor.hpp"

namespace parsim::networks::onnx_reader {

/// Roles of the axes of one sample of a graph input: integers are tokens; real numbers are
/// channel, token × channel, channel × height × width, channel × depth × height × width.
/// `map`: the input is read by a convolution or pooling, so its first axis is the channel.
[[nodiscard]] std::vector<Dim> input_roles(std::size_t rank, Element element, bool map);
/// channel × … × depth × height × width, as convolutions see their operand.
[[nodiscard]] std::vector<Dim> map_roles(std::size_t rank);
/// Roles of the axes of a learned tensor: the axis of a vector is the channel, a matrix is
/// token × channel, C × 1 × 1 scales the channels of a map.
[[nodiscard]] std::vector<Dim> learned_roles(const Extents& extents);
/// Roles after a reshape: axes that survive keep theirs, channels split into head × channel, a map
/// becomes tokens and back.
[[nodiscard]] std::vector<Dim> reshaped_roles(const Shape& from, const Extents& to);
/// A shape from extents and roles; a role that comes twice is `other` the second time.
[[nodiscard]] Shape shape_of(const Extents& extents, const std::vector<Dim>& roles);

}  // namespace parsim::networks::onnx_reader
