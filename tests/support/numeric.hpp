// Layer mathematics in float64: what each kind of layer computes forward and backward for one part
// of its output. The reference network and the interpreter of execution DAGs both stand on it; it
// is checked by hand-worked numbers and by finite differences (tests/core/numeric_test.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/layers.hpp"
#include "core/region.hpp"

namespace parsim::testing {

/// Position of an element in a whole tensor; entries beyond the tensor's rank are ignored.
using Index = std::array<std::int64_t, Region::max_rank>;

/// Calls `visit(const Index&)` for every element of the box in row-major order.
template <class Visit>
void for_each_index(const Region& box, Visit&& visit) {
  if (box.empty()) return;
  Index index{};
  for (std::size_t a = 0; a < box.rank(); ++a) index[a] = box[a].begin;
  while (true) {
    visit(std::as_const(index));
    std::size_t axis = box.rank();
    while (axis > 0 && ++index[axis - 1] == box[axis - 1].end) {
      index[axis - 1] = box[axis - 1].begin;
      --axis;
    }
    if (axis == 0) return;
  }
}

/// The numbers of a box of a tensor, row-major. Elements are addressed by their position in the
/// whole tensor; touching one outside the box throws BrokenInvariant, which proves that a layer
/// reads nothing but what its regions promise.
class Block {
 public:
  Block() = default;
  /// All zeros.
  explicit Block(const Region& box);

  [[nodiscard]] const Region& box() const { return box_; }
  [[nodiscard]] double& at(const Index& index) { return values_[offset(index)]; }
  [[nodiscard]] double at(const Index& index) const { return values_[offset(index)]; }
  [[nodiscard]] std::vector<double>& values() { return values_; }
  [[nodiscard]] const std::vector<double>& values() const { return values_; }
  /// Position in values(). Throws BrokenInvariant outside the box.
  [[nodiscard]] std::size_t offset(const Index& index) const;
  /// Distance in values() between neighbours along an axis.
  [[nodiscard]] std::size_t stride(std::size_t axis) const { return strides_[axis]; }

  /// Copy of a box inside this one.
  [[nodiscard]] Block piece(const Region& box) const;
  /// Overwrites, or adds to, the elements that `source` has; they must lie inside.
  void paste(const Block& source);
  void add(const Block& source);
  friend bool operator==(const Block&, const Block&) = default;

 private:
  Region box_;
  std::vector<double> values_;
  std::array<std::size_t, Region::max_rank> strides_{};
};

/// One part of a layer with everything it reads. The blocks cover at least what the part needs;
/// padding lies outside the whole input and is never looked up.
struct PartInput {
  const LayerKind& kind;
  std::span<const Shape> inputs;
  const Shape& out;
  Part part;
  std::vector<Block> activations;  ///< by operand
  std::vector<Block> parameters;   ///< by parameter
  std::int64_t first_sample = 0;   ///< index in the global batch of sample 0 of these blocks
  std::int64_t batch = 1;          ///< global batch, which the loss is averaged over
  /// Of attention with a share of the keys (Part::contraction): those that it has so far, whose
  /// blocks are given; gradients are of the share alone. Empty: all.
  std::vector<Interval> keys{};
  std::int64_t layer = 0;  ///< of dropout, whose mask follows from it
  Block statistics{};      ///< of a loss with a share of the classes: those of all shares
};

/// Gradients of a part, over the boxes of the blocks given: contributions of this part only.
struct PartGradients {
  std::vector<Block> activations, parameters;
};

/// Output of the part over `part.out`; a partial sum if the contraction is cut.
/// Batch normalisation takes its statistics over the operand block at hand. Throws BrokenInvariant
/// for an Input (it has no mathematics) and for functions it does not know.
[[nodiscard]] Block forward(const PartInput& input);
/// What a Loss with part `part` of the classes gives the others: see loss_statistics.
[[nodiscard]] Block loss_share(const PartInput& input, std::int64_t part);
/// Gradients for a given gradient of the output over `part.out` (ignored by Loss).
[[nodiscard]] PartGradients backward(const PartInput& input, const Block& out_gradient);

/// Learning rate of every numeric check.
inline constexpr double learning_rate = 0.1;
/// Class of a sample of the global batch, the same wherever it is asked for.
[[nodiscard]] std::int64_t label(std::int64_t sample, std::int64_t classes);
/// Whether dropout keeps an element, of so many in a sample: a random number in [0, 1) that follows
/// from the layer, the sample of the global batch and the element is at least `rate`.
[[nodiscard]] bool dropout_keeps(double rate, std::int64_t layer, std::int64_t sample,
                                 std::int64_t element, std::int64_t elements);
/// Element of the training data: the output of Input layer `layer`, in (−1, 1).
[[nodiscard]] double data_value(std::int64_t layer, std::int64_t sample, std::int64_t element);
/// Element of a parameter before the step, in (−0.7, 0.7).
[[nodiscard]] double initial_weight(std::int64_t parameter, std::int64_t element);
/// The data of an Input layer over a box, whose sample 0 is `first_sample` of the global batch.
[[nodiscard]] Block data_block(std::int64_t layer, const Shape& shape, const Region& box,
                               std::int64_t first_sample);
/// A whole parameter before the step.
[[nodiscard]] Block initial_parameter(std::int64_t parameter,
                                      const std::vector<std::int64_t>& extents);
/// The whole of a tensor without sample axis.
[[nodiscard]] Region box_of(const std::vector<std::int64_t>& extents);

/// Largest |a − b| over the largest |b| (or over 1e-3 if that is more: numbers near 0 have no
/// relative error worth the name). Throws BrokenInvariant if the boxes differ.
[[nodiscard]] double relative_error(const Block& a, const Block& b);

}  // namespace parsim::testing
