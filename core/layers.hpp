// What every kind of layer says about itself: the shape it makes, its parameters, which part of
// each input and parameter a part of its output needs, its work, and along which dimensions it may
// be cut.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/attention_kinds.hpp"
#include "core/expert_kinds.hpp"
#include "core/layer_kinds.hpp"
#include "core/region.hpp"
#include "core/units.hpp"

namespace parsim {

/// One of the kinds. A struct around the variant, never an alias of it: with an alias a missing
/// overload would convert back and recurse for ever.
struct LayerKind {
  using Variant =
      std::variant<Input, Conv, Dense, Pool, Norm, Activation, Dropout, Combine, Concat, Slicing,
                   Flatten, Rearrange, Reduce, MatMul, Attention, Embedding, Learned, Softmax, Loss,
                   ExpertDispatch, ExpertDense, ExpertCombine, HeadConcat>;
  Variant value;

  LayerKind() = default;
  template <class Kind>
    requires std::constructible_from<Variant, Kind&&>
  LayerKind(Kind&& kind)
      : value(std::forward<Kind>(kind)) {}  // NOLINT(google-explicit-constructor)

  template <class Kind>
  [[nodiscard]] const Kind* as() const {
    return std::get_if<Kind>(&value);
  }
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};
/// "conv", "dense", … the word used in files and reports.
[[nodiscard]] std::string_view kind_name(const LayerKind& kind);

/// Extents of one learned tensor.
struct ParameterShape {
  std::string name;  ///< "weights", "bias", "scale", "shift", "table", "tensor"
  std::vector<std::int64_t> extents;
  friend bool operator==(const ParameterShape&, const ParameterShape&) = default;
};

/// What one cell of a layer's grid computes: a box of the output and, if the contraction is cut,
/// which input channels are summed (empty interval = all of them): of a loss which tokens, of
/// attention which keys.
struct Part {
  Region out;
  Interval contraction;
  /// Of attention with a causal mask: its tokens are in zigzag order (zigzag_position) over so many
  /// devices; 0: in their own order.
  std::int32_t zigzag = 0;
  friend bool operator==(const Part&, const Part&) = default;
};

/// Shape of the output. `where` names the layer in messages.
/// Throws InputError if the inputs do not fit the kind.
[[nodiscard]] Shape output_shape(const LayerKind& kind, std::span<const Shape> inputs,
                                 std::string_view where);
/// The learned tensors of the kind, weights before bias.
[[nodiscard]] std::vector<ParameterShape> parameter_shapes(const LayerKind& kind,
                                                           std::span<const Shape> inputs);
/// Smallest box of input `input` that `part` reads (clipped to the input; halos included).
[[nodiscard]] Region input_region(const LayerKind& kind, std::span<const Shape> inputs,
                                  const Shape& out, std::size_t input, const Part& part);
/// Box of parameter `parameter` that `part` reads. A bias is added by the first contraction part
/// only.
[[nodiscard]] Region parameter_region(const LayerKind& kind, std::span<const Shape> inputs,
                                      const Shape& out, std::size_t parameter, const Part& part);
/// 2 x multiply-accumulates of the forward pass; convolution, dense, products of activations and
/// attention; the others are limited by memory and count 0.
[[nodiscard]] Flops forward_flops(const LayerKind& kind, std::span<const Shape> inputs,
                                  const Shape& out, const Part& part);
/// Tokens of the average expert of a part over those of the average of all experts: 1 for a router
/// in balance.
[[nodiscard]] double tokens_over_average(const ExpertDense& kind, const Shape& out,
                                         const Part& part);
/// Where the classes of a loss's scores lie in a Region: the channels of images, else the last
/// axis.
[[nodiscard]] std::size_t class_axis(const Shape& scores);
/// What each device exchanges of a loss whose classes are cut: for every position of `part` (a
/// token or a pixel) the logarithm of the sum of exp(score) over its classes, and the score of the
/// label or 0; each as a number and what the number's precision leaves out. By sample, position
/// and, four for each part of the classes, these numbers; `parts` are those of the classes.
[[nodiscard]] Region loss_statistics(const Shape& scores, const Part& part, Interval parts);
/// What the sizes of a cut along in_channel add up to: the input's channels, a table's rows, or the
/// classes of a loss.
[[nodiscard]] std::int64_t contraction_extent(const LayerKind& kind, std::span<const Shape> inputs);
/// The dimensions along which parts may be made; always contains sample and replica.
[[nodiscard]] std::vector<Dim> cuttable_dims(const LayerKind& kind, std::span<const Shape> inputs,
                                             const Shape& out);

}  // namespace parsim
