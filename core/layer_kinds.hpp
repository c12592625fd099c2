// The kinds of layers. Adding a kind = one struct here, three to six functions in core/layers/, one
// word in the variant of core/layers.hpp; the compiler names what is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.hpp"
#include "core/spelling.hpp"

namespace parsim {

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
constexpr std::array<std::string_view, 2> spellings(PoolKind) { return {"max", "average"}; }
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
constexpr std::array<std::string_view, 5> spellings(NormKind) {
  return {"batch", "layer", "group", "instance", "local_response"};
}
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
/// "rotary" (Su et al. 2021, "RoFormer", equation 34) turns pairs of neighbouring channels by an
/// angle that grows with the token: token · 10000^(−channel / channels), where the paper counts the
/// channels of a head, which this layer does not know, it counts all. "identity" is free: no data
/// moves, but a plan may hold the same values in another layout.
struct Activation {
  std::string function = "relu";
  std::int64_t parameters = 0;
  friend bool operator==(const Activation&, const Activation&) = default;
};

/// Random zeroing in training; what is kept is divided by 1 − rate. Whether an element is kept
/// follows from its layer, sample and place alone (hw/math/dropout.hpp), so that every part, and
/// the backward pass, comes to the same.
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
/// The `what` of a move of heads.
constexpr std::array<std::string_view, 4> spellings(HeadMove) {
  return {"", "split heads", "split heads, transposed", "join heads"};
}
[[nodiscard]] HeadMove heads_moved(const Rearrange& kind);

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

/// Softmax cross-entropy against the labels, averaged over the global batch; one number per sample,
/// or of tokens × classes per token. The end of every network that is trained. The classes are its
/// contraction: devices that have a part of them each exchange what loss_statistics says
/// (Megatron-LM's vocabulary-parallel cross entropy, Shoeybi et al. 2019, section 3).
struct Loss {
  friend bool operator==(const Loss&, const Loss&) = default;
};

}  // namespace parsim
