// Turns the tensors of an ONNX graph into layers of a Network. A tensor of the graph carries the
// batch on some axis; a layer's output is a tensor for ONE sample. This class keeps the two in
// step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/network.hpp"
#include "networks/onnx_graph.hpp"
#include "networks/onnx_tensor.hpp"

namespace parsim::networks::onnx_reader {

/// Where a tensor has its samples: its axis `axis` has outer × batch × inner indices. Windowed
/// attention merges windows into the batch axis (inner > 1), and sequence-first code has the batch
/// on axis 1. axis = -1: the same for every sample.
struct Batch {
  int axis = -1;
  std::int64_t outer = 1, inner = 1;

  [[nodiscard]] bool none() const { return axis < 0; }
  [[nodiscard]] std::int64_t merged() const { return outer * inner; }
  friend bool operator==(const Batch&, const Batch&) = default;
};

/// A tensor of the graph.
struct Value {
  /// constant: known before training, not learned. weight: a learned tensor that no layer has read
  /// yet, perhaps seen through Transpose, Reshape, Expand. activation: a layer's output.
  enum class Kind : std::uint8_t { constant, weight, activation } kind = Kind::constant;
  Tensor tensor;       ///< extents as in the file, batch included; numbers of constants
  std::string origin;  ///< which learned tensor this is, for weights; "" for others
  Extents base;        ///< of weights: extents before Expand
  LayerId layer;       ///< of activations
  Batch batch;         ///< of activations
  [[nodiscard]] const Extents& dims() const { return tensor.dims; }
  [[nodiscard]] std::size_t rank() const { return tensor.dims.size(); }
  /// A copy without numbers: a node may have a hundred thousand operands.
  [[nodiscard]] Value without_numbers() const {
    return {kind, Tensor::unknown(tensor.element, tensor.dims), origin, base, layer, batch};
  }
  [[nodiscard]] bool is(Kind other) const { return kind == other; }
};

class Builder {
 public:
  /// `graph` must outlive the builder. The batch is the first dimension of the first input.
  Builder(const Graph& graph, std::string network_name);

  // Tensors of nodes.

  /// Operand `i` of the node, or nullptr if it is left out.
  [[nodiscard]] const Value* find(const Node& node, std::size_t i) const;
  /// Operand `i` of the node. Throws InputError if it is left out.
  [[nodiscard]] const Value& operand(const Node& node, std::size_t i) const;
  void output(const Node& node, std::size_t i, Value value);
  [[nodiscard]] const Value* tensor(const std::string& name) const;
  [[noreturn]] void refuse(const Node& node, std::string_view found,
                           std::string_view accepted) const;

  // Layers.

  /// Adds a layer. Its parameters are the learned tensors `weights`, in the kind's order.
  /// batch    where the result has its samples
  /// Returns the result as a tensor of the graph.
  Value emit(const Node& node, LayerKind kind, const std::vector<Value>& inputs, const Batch& batch,
             const std::vector<Value>& weights = {});
  /// The value as an activation: weights become Learned layers, constants inputs.
  Value activation(const Node& node, const Value& value);
  /// The values as operands of one layer whose result has `rank` axes and its samples as in
  /// `batch`: axes aligned at the last one, the batch axis taken out (or divided by the batch).
  /// Throws InputError if an operand has its samples elsewhere.
  std::vector<Value> aligned(const Node& node, const std::vector<Value>& values, const Batch& batch,
                             std::size_t rank);
  /// Where an element-wise result of `rank` axes has its samples. Constants and weights have none.
  [[nodiscard]] Batch common_batch(std::span<const Value> values, std::size_t rank) const;
  /// The value with another shape of as many elements; the layer is left out if one sample looks
  /// the same. Throws InputError if the batch would be split.
  /// batch    where the samples go; found if not given
  Value reshape(const Node& node, const Value& value, Extents dims,
                std::optional<Batch> batch = std::nullopt);
  /// A layer that moves data into extents `dims` with the samples as in `batch`.
  /// roles    what the axes of one sample mean; "other" if not given
  Value rearrange(const Node& node, std::string what, const Value& value, const Extents& dims,
                  const Batch& batch, const std::vector<Dim>& roles = {}, bool moves_data = true);
  /// The activation repeated to extents `dims` (NumPy's broadcasting).
  Value expand(const Node& node, const Value& value, const Extents& dims);

  /// Extents of one sample of an activation, equal to those of its layer's output.
  [[nodiscard]] Extents sample_extents(const Extents& dims, const Batch& batch) const;
  /// Position of axis `axis` of the graph's tensor among the axes of one sample. Throws InputError
  /// if that is the batch.
  std::size_t sample_axis(const Node& node, const Value& value, std::size_t axis) const;
  /// The value as channel × spatial… for each sample, which convolution, pooling and channel-wise
  /// normalisation work on. Several feature maps per sample (a merged batch) become an axis
  /// behind the channel. Throws InputError if the batch is not on the first axis.
  Value as_map(const Node& node, const Value& value);
  /// Undoes as_map on a result: its samples are as in `batch` again.
  Value from_map(const Node& node, const Value& map, const Batch& batch);
  /// Roles of the axes of one sample of `value`.
  [[nodiscard]] std::vector<Dim> roles(const Value& value) const;

  [[nodiscard]] std::int64_t batch() const { return batch_; }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  Network& network() { return network_; }
  /// Nodes that read tensor `name`.
  [[nodiscard]] const std::vector<const Node*>& readers(const std::string& name) const;
  [[nodiscard]] bool is_output(const std::string& name) const { return outputs_.contains(name); }
  /// Nodes whose work is part of an earlier layer (a bias joined to its matmul).
  std::set<const Node*> done;

 private:
  std::string layer_name(const std::string& wanted);
  ParameterId parameter(const Node& node, const Value& weight, const Extents& extents);
  /// A Learned layer of extents `extents` for a weight.
  LayerId learned(const Node& node, const Value& weight, const Extents& extents);
  LayerId relabel(const Node& node, LayerId layer, const Extents& extents,
                  const std::vector<Dim>& roles, std::string what, bool moves_data);
  /// Checks the extents of a result and wraps it.
  Value wrap(const Node& node, LayerId layer, const Batch& batch) const;

  const Graph& graph_;
  Network network_;
  std::int64_t batch_ = 1;
  std::unordered_map<std::string, Value> values_;
  std::unordered_map<std::string, std::vector<const Node*>> readers_;
  std::set<std::string> outputs_;  ///< of the graph
  std::set<std::string> layer_names_;
  std::map<std::string, std::int64_t> name_counts_;  ///< layers that wanted the same name
  std::map<std::string, ParameterId> parameters_;    ///< by origin
  std::map<std::string, LayerId> learned_;           ///< by origin
  std::int64_t known_left_ = std::int64_t{1}
                             << 22;  ///< elements of constants that may still be kept
};

}  // namespace parsim::networks::onnx_reader
