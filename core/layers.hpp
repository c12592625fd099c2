// The kinds of layers and what every kind must be able to say about itself: the shape it makes,
// its parameters, which part of each input and parameter a part of its output needs, its work, and
// along which dimensions it may be cut. Adding a kind = one struct here, five functions in
// core/layers/, one word in the variant; the compiler names what is missing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/region.hpp"
#include "core/units.hpp"

namespace parsim {

/// What an axis of a tensor means, and what a cut may run along.
enum class Dim : std::uint8_t {
  sample,
  channel,
  depth,
  height,
  width,
  token,
  head,
  expert,
  in_channel,  ///< the contraction of a Conv, Dense or Embedding: parts hold partial sums of the
               ///< output
  replica,     ///< every part computes the same
  other,       ///< an axis without a role of its own (inside reshapes); never cut
};
[[nodiscard]] std::string_view to_text(Dim dim);
/// Inverse of to_text; nothing for an unknown word.
[[nodiscard]] std::optional<Dim> dim_from_text(std::string_view text);

struct Axis {
  Dim dim = Dim::other;
  std::int64_t extent = 0;
  friend bool operator==(const Axis&, const Axis&) = default;
};

/// Extents of a layer's output for ONE sample, outermost axis first: channel × height × width,
/// token × channel, ... The sample axis is not part of it; in a Region it is axis 0.
struct Shape {
  std::vector<Axis> axes;

  [[nodiscard]] std::int64_t elements() const;
  /// Position of the first axis with `dim`, counted in a Region (sample = 0); 0 if there is none.
  [[nodiscard]] std::size_t region_axis(Dim dim) const;
  /// Extent of the first axis with `dim`, 0 if there is none.
  [[nodiscard]] std::int64_t extent(Dim dim) const;
  friend bool operator==(const Shape&, const Shape&) = default;
};
/// "64x112x112".
[[nodiscard]] std::string to_text(const Shape& shape);
/// Shapes in the usual orders: channel; channel × height × width; channel × depth × height × width.
[[nodiscard]] Shape vector_shape(std::int64_t channels);
[[nodiscard]] Shape image_shape(std::int64_t channels, std::int64_t height, std::int64_t width);
[[nodiscard]] Shape volume_shape(std::int64_t channels, std::int64_t depth, std::int64_t height,
                                 std::int64_t width);
/// The whole output for `samples` samples as a box.
[[nodiscard]] Region whole(const Shape& shape, std::int64_t samples);

/// A sliding window along one spatial axis.
struct Window {
  std::int64_t kernel = 1, stride = 1, pad_begin = 0, pad_end = 0, dilation = 1;
  friend bool operator==(const Window&, const Window&) = default;
};

/// The training data: read by each device for the part it needs, no transfer, no cost.
struct Input {
  friend bool operator==(const Input&, const Input&) = default;
};

/// Convolution over all spatial axes of its input (1 to 3 of depth, height, width).
///
///     in       channel × spatial…            windows: one per spatial axis, in the shape's order
///     weights  filters × channel/groups × kernels…          bias  filters
///     out      filters × ⌊(extent + pads − dilation·(kernel−1) − 1) / stride⌋ + 1 …
///
/// Cut along sample, channel (filters), each spatial axis (halo: input_region), in_channel if
/// groups = 1.
struct Conv {
  std::int64_t filters = 0;
  std::vector<Window> windows;
  std::int64_t groups = 1;
  bool bias = true;
  friend bool operator==(const Conv&, const Conv&) = default;
};

/// Fully connected over the channel axis (the last); other axes (tokens) are carried along.
///
///     weights  units × channels      bias  units      out  …× units
struct Dense {
  std::int64_t units = 0;
  bool bias = true;
  friend bool operator==(const Dense&, const Dense&) = default;
};

enum class PoolKind : std::uint8_t { max, average };
/// Pooling over all spatial axes. `ceil_mode` rounds the output extent up (a window must still
/// begin inside the input or the left padding). Average divides by the window's size, padding
/// included iff `count_padding`.
struct Pool {
  PoolKind kind = PoolKind::max;
  std::vector<Window> windows;
  bool ceil_mode = false;
  bool count_padding = true;
  friend bool operator==(const Pool&, const Pool&) = default;
};

enum class NormKind : std::uint8_t { batch, layer, group, instance, local_response };
/// Normalisation. Learned scale and shift (2 per channel) iff `affine`. batch uses the statistics
/// of the part at hand (as unsynchronised data parallelism does); layer runs over the last axis;
/// `size` is the number of groups (group) or of neighbouring channels (local_response).
struct Norm {
  NormKind kind = NormKind::batch;
  bool affine = true;
  std::int64_t size = 0;
  friend bool operator==(const Norm&, const Norm&) = default;
};

/// Element-wise function of one tensor: "relu", "sigmoid", "gelu", … (the name is the ONNX
/// operator's in lower case). `parameters` is the count of learned numbers (PRelu), 0 otherwise.
struct Activation {
  std::string function = "relu";
  std::int64_t parameters = 0;
  friend bool operator==(const Activation&, const Activation&) = default;
};

/// Random zeroing in training; the identity in numeric checks.
struct Dropout {
  double rate = 0.5;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

/// Element-wise function of several tensors, broadcast like NumPy (aligned at the last axis):
/// "add", "sub", "mul", "div", "max", "min", "pow", "where", comparisons…
struct Combine {
  std::string function = "add";
  friend bool operator==(const Combine&, const Combine&) = default;
};

/// Joins its inputs along one axis (index into Shape::axes).
struct Concat {
  std::size_t axis = 0;
  friend bool operator==(const Concat&, const Concat&) = default;
};

/// Keeps indices begin, begin+step, … < end of one axis (index into Shape::axes).
struct Slicing {
  std::size_t axis = 0;
  std::int64_t begin = 0, end = 0, step = 1;
  friend bool operator==(const Slicing&, const Slicing&) = default;
};

/// All axes into one channel axis, row-major. Free: no data moves.
struct Flatten {
  friend bool operator==(const Flatten&, const Flatten&) = default;
};

/// Any other reordering or reinterpretation (transpose, reshape, gather, roll, pad). Parts need the
/// whole sample, so it is cut along sample only, unless it moves heads (see heads_moved).
struct Rearrange {
  std::string what = "reshape";
  Shape out;
  bool moves_data = true;
  friend bool operator==(const Rearrange&, const Rearrange&) = default;
};

/// Rearrangements between tokens × (heads · width) and heads… × tokens × width, as attention makes
/// them; heads may have several axes. Their `what` names them. A part of the heads is a part of the
/// channels, so they are cut along those, and along tokens, too.
enum class HeadMove : std::uint8_t {
  none,
  split,             ///< "split heads": tokens × channels to heads × tokens × width
  split_transposed,  ///< "split heads, transposed": to heads × width × tokens
  join,              ///< "join heads": heads × tokens × width to tokens × channels
};
[[nodiscard]] HeadMove heads_moved(const Rearrange& kind);
/// The `what` of a move of heads.
[[nodiscard]] std::string_view to_text(HeadMove move);

/// Mean, sum, max … over axes (indices into Shape::axes), which disappear unless `keep`.
struct Reduce {
  std::string function = "mean";
  std::vector<std::size_t> axes;
  bool keep = false;
  friend bool operator==(const Reduce&, const Reduce&) = default;
};

/// Product of two activations over their last two axes, leading axes broadcast:
/// … × m × k  times  … × k × n  gives  … × m × n.
struct MatMul {
  friend bool operator==(const MatMul&, const MatMul&) = default;
};

/// Attention in one kernel, which makes its maps piece by piece and keeps none (Dao et al. 2022,
/// "FlashAttention"):
///
///     in       queries  tokens × (heads · width)
///              keys, values  tokens' × (key_heads · width); heads / key_heads queries share them
///     out      softmax(queries · keysᵀ / √width) · values, by head: tokens × (heads · width)
///
/// causal: a token attends to itself and those before it. Cut along sample, token (of queries), and
/// channel: a part needs the heads that its channels belong to.
struct Attention {
  std::int64_t heads = 1, key_heads = 1;
  bool causal = false;
  friend bool operator==(const Attention&, const Attention&) = default;
};

/// Table look-up: token → token × channel. weights rows × width. A cut of the contraction gives
/// parts of the rows: what is not among a part's rows counts zero in its sum.
struct Embedding {
  std::int64_t rows = 0, width = 0;
  friend bool operator==(const Embedding&, const Embedding&) = default;
};

/// A learned tensor used as an activation (class token, position table, layer scale), the same for
/// every sample. No inputs; its parameter has the shape `out`.
struct Learned {
  Shape out;
  friend bool operator==(const Learned&, const Learned&) = default;
};

/// Softmax over one axis (index into Shape::axes), which is never cut.
struct Softmax {
  std::size_t axis = 0;
  friend bool operator==(const Softmax&, const Softmax&) = default;
};

/// Softmax cross-entropy against the labels, averaged over the global batch; one number per sample.
/// The end of every network that is trained.
struct Loss {
  friend bool operator==(const Loss&, const Loss&) = default;
};

/// One of the kinds. A struct around the variant, never an alias of it: with an alias a missing
/// overload would convert back and recurse for ever.
struct LayerKind {
  using Variant = std::variant<Input, Conv, Dense, Pool, Norm, Activation, Dropout, Combine, Concat,
                               Slicing, Flatten, Rearrange, Reduce, MatMul, Attention, Embedding,
                               Learned, Softmax, Loss>;
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
/// which input channels are summed (empty interval = all of them).
struct Part {
  Region out;
  Interval contraction;
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
/// What the sizes of a cut along in_channel add up to: the input's channels, or a table's rows.
[[nodiscard]] std::int64_t contraction_extent(const LayerKind& kind, std::span<const Shape> inputs);
/// The dimensions along which parts may be made; always contains sample and replica.
[[nodiscard]] std::vector<Dim> cuttable_dims(const LayerKind& kind, std::span<const Shape> inputs,
                                             const Shape& out);

}  // namespace parsim
