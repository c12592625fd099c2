// What the kinds of layer implement; core/layers.cpp dispatches here, and has what a kind without
// a function of its own falls back to: that of a layer which treats every element of its one input
// alone and has neither parameters nor matrix products.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/layers.hpp"

namespace parsim::layers {

using Shapes = std::span<const Shape>;

// Helpers shared by the kinds.

/// The box of the same sample range that holds everything of `shape`.
[[nodiscard]] Region whole_samples(const Shape& shape, Interval samples);
/// Throws InputError unless there are exactly `count` inputs.
void expect_inputs(Shapes in, std::size_t count, std::string_view where);
/// Indices that output indices `out` of a sliding window read, clipped to [0, extent).
[[nodiscard]] Interval window_input(const Window& window, Interval out, std::int64_t extent);
/// Output extent of a window; `ceil_mode` as in Pool. Throws InputError if it is not positive.
[[nodiscard]] std::int64_t window_output(const Window& window, std::int64_t extent, bool ceil_mode,
                                         std::string_view where);
/// Number of leading axes before the spatial ones (0 or 1): the channel.
[[nodiscard]] std::size_t spatial_begin(const Shape& shape);
/// Region of an operand that is broadcast to `out_shape` in NumPy's way.
[[nodiscard]] Region broadcast_region(const Shape& operand, const Shape& out_shape,
                                      const Region& out);
/// Dims of the shape's axes that may be cut (not `other`), after sample.
[[nodiscard]] std::vector<Dim> axes_as_dims(const Shape& shape);

// One block per kind.

Shape output_shape(const Input& kind, Shapes in, std::string_view where);

Shape output_shape(const Conv& kind, Shapes in, std::string_view where);
Region input_region(const Conv& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
std::vector<Dim> cuttable_dims(const Conv& kind, Shapes in, const Shape& out);
std::vector<ParameterShape> parameter_shapes(const Conv& kind, Shapes in);
Region parameter_region(const Conv& kind, Shapes in, const Shape& out, std::size_t parameter,
                        const Part& part);
Flops forward_flops(const Conv& kind, Shapes in, const Shape& out, const Part& part);

Shape output_shape(const Dense& kind, Shapes in, std::string_view where);
Region input_region(const Dense& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
std::vector<Dim> cuttable_dims(const Dense& kind, Shapes in, const Shape& out);
std::vector<ParameterShape> parameter_shapes(const Dense& kind, Shapes in);
Region parameter_region(const Dense& kind, Shapes in, const Shape& out, std::size_t parameter,
                        const Part& part);
Flops forward_flops(const Dense& kind, Shapes in, const Shape& out, const Part& part);

Shape output_shape(const Pool& kind, Shapes in, std::string_view where);
Region input_region(const Pool& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);

Shape output_shape(const Norm& kind, Shapes in, std::string_view where);
Region input_region(const Norm& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
std::vector<Dim> cuttable_dims(const Norm& kind, Shapes in, const Shape& out);
std::vector<ParameterShape> parameter_shapes(const Norm& kind, Shapes in);
Region parameter_region(const Norm& kind, Shapes in, const Shape& out, std::size_t parameter,
                        const Part& part);

Region input_region(const Activation& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
std::vector<ParameterShape> parameter_shapes(const Activation& kind, Shapes in);
Region parameter_region(const Activation& kind, Shapes in, const Shape& out, std::size_t parameter,
                        const Part& part);

Shape output_shape(const Combine& kind, Shapes in, std::string_view where);
Region input_region(const Combine& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);

Shape output_shape(const Concat& kind, Shapes in, std::string_view where);
Region input_region(const Concat& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);

Shape output_shape(const Slicing& kind, Shapes in, std::string_view where);
Region input_region(const Slicing& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);

Shape output_shape(const Flatten& kind, Shapes in, std::string_view where);
Region input_region(const Flatten& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);

Shape output_shape(const Rearrange& kind, Shapes in, std::string_view where);
Region input_region(const Rearrange& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
std::vector<Dim> cuttable_dims(const Rearrange& kind, Shapes in, const Shape& out);

Shape output_shape(const Reduce& kind, Shapes in, std::string_view where);
Region input_region(const Reduce& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);

Shape output_shape(const MatMul& kind, Shapes in, std::string_view where);
Region input_region(const MatMul& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
Flops forward_flops(const MatMul& kind, Shapes in, const Shape& out, const Part& part);

Shape output_shape(const Attention& kind, Shapes in, std::string_view where);
Region input_region(const Attention& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
Flops forward_flops(const Attention& kind, Shapes in, const Shape& out, const Part& part);

Shape output_shape(const HeadConcat& kind, Shapes in, std::string_view where);
Region input_region(const HeadConcat& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);

Shape output_shape(const Embedding& kind, Shapes in, std::string_view where);
Region input_region(const Embedding& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
std::vector<Dim> cuttable_dims(const Embedding& kind, Shapes in, const Shape& out);
std::vector<ParameterShape> parameter_shapes(const Embedding& kind, Shapes in);
Region parameter_region(const Embedding& kind, Shapes in, const Shape& out, std::size_t parameter,
                        const Part& part);

Shape output_shape(const Learned& kind, Shapes in, std::string_view where);
std::vector<ParameterShape> parameter_shapes(const Learned& kind, Shapes in);
Region parameter_region(const Learned& kind, Shapes in, const Shape& out, std::size_t parameter,
                        const Part& part);

Shape output_shape(const Softmax& kind, Shapes in, std::string_view where);
Region input_region(const Softmax& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
std::vector<Dim> cuttable_dims(const Softmax& kind, Shapes in, const Shape& out);

Shape output_shape(const ExpertDispatch& kind, Shapes in, std::string_view where);
Region input_region(const ExpertDispatch& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);

Shape output_shape(const ExpertDense& kind, Shapes in, std::string_view where);
Region input_region(const ExpertDense& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
std::vector<Dim> cuttable_dims(const ExpertDense& kind, Shapes in, const Shape& out);
std::vector<ParameterShape> parameter_shapes(const ExpertDense& kind, Shapes in);
Region parameter_region(const ExpertDense& kind, Shapes in, const Shape& out, std::size_t parameter,
                        const Part& part);
Flops forward_flops(const ExpertDense& kind, Shapes in, const Shape& out, const Part& part);

Shape output_shape(const ExpertCombine& kind, Shapes in, std::string_view where);
Region input_region(const ExpertCombine& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);

Shape output_shape(const Loss& kind, Shapes in, std::string_view where);
Region input_region(const Loss& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part);
std::vector<Dim> cuttable_dims(const Loss& kind, Shapes in, const Shape& out);

}  // namespace parsim::layers
