// A neural network as a graph of layers in topological order, for one sample; the batch is chosen
// by the plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.hpp"
#include "core/layers.hpp"

namespace parsim {

/// One learned tensor. Layers that share it (tied weights) name the same ParameterId; it counts
/// once.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> extents;

  [[nodiscard]] std::int64_t elements() const;
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

struct Layer {
  std::string name;
  LayerKind kind;
  std::vector<LayerId> inputs;  ///< producers, one per operand; all earlier in Network::layers
  std::vector<ParameterId> parameters;
  Shape out;
  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Network {
  std::string name;
  std::vector<Layer> layers;
  std::vector<Parameter> parameters;
  std::vector<std::string> warnings;  ///< what a reader could not take at face value

  [[nodiscard]] const Layer& operator[](LayerId id) const { return layers[id.index()]; }
  [[nodiscard]] const Parameter& operator[](ParameterId id) const { return parameters[id.index()]; }
  friend bool operator==(const Network&, const Network&) = default;
};

/// Appends an Input layer that delivers tensors of `shape`.
LayerId add_input(Network& network, std::string name, Shape shape);

/// Appends a layer, derives its output shape and creates its parameters (or shares `shared`).
/// Throws InputError naming the layer if kind and inputs do not fit or `shared` has other extents.
LayerId add_layer(Network& network, std::string name, LayerKind kind, std::vector<LayerId> inputs,
                  std::vector<ParameterId> shared = {});

/// Output shapes of the layer's producers.
[[nodiscard]] std::vector<Shape> input_shapes(const Network& network, LayerId layer);
/// Learned numbers, tied ones once.
[[nodiscard]] std::int64_t parameter_count(const Network& network);
/// A hash, in 16 hexadecimal digits, of the extents of all parameters and of what all layers make.
/// Names do not count.
[[nodiscard]] std::string fingerprint(const Network& network);
/// Sets the tokens of the busiest expert over those of the average (ExpertDense). Throws InputError
/// at `where` if the network has no experts, or no layer with so many.
void set_expert_imbalance(Network& network, double imbalance, std::string_view where);
/// Learned numbers that one token uses: of experts the share of those that it goes to.
[[nodiscard]] std::int64_t active_parameter_count(const Network& network);
/// 2 x multiply-accumulates of convolution, dense and matrix products for one sample.
[[nodiscard]] Flops forward_flops_per_sample(const Network& network);
/// The layers that read each layer's output, with the operand number.
struct Consumer {
  LayerId layer;
  std::size_t input = 0;
  friend bool operator==(const Consumer&, const Consumer&) = default;
};
[[nodiscard]] std::vector<std::vector<Consumer>> consumers(const Network& network);

}  // namespace parsim
