// From a network to the search's tables: nodes (layers with the element-wise layers that follow
// them), their configurations, and what each costs.
#pragma once

#include <string>
#include <vector>

#include "strategies/layer_wise/cluster_model.hpp"
#include "strategies/layer_wise/configurations.hpp"
#include "strategies/layer_wise/problem.hpp"

namespace parsim::strategies::layer_wise {

/// The cost of an edge with several receiving devices. The paper has "bytes to be moved / known
/// bandwidth" and no more; both rules are RECONSTRUCTIONS.
///
///     slowest_receiver   2 · max over devices of what it lacks / b: receivers work in parallel
///     total              2 · Σ over devices of what they lack / b: one link after another
///
/// The factor 2 accounts for the gradients.
enum class TransferRule : std::uint8_t { slowest_receiver, total };

/// Layers that share a configuration: one, and the element-wise layers behind it, as the paper
/// counts layers (VGG-16: 13 convolutions, 5 pools, 3 dense = 21).
struct Node {
  std::vector<LayerId> layers;  ///< the first decides, the others follow
  std::vector<Configuration> configurations;
};

/// Costs of one node by configuration.
struct NodeCosts {
  std::vector<double> compute;  ///< t_C: forward and backward of the slowest part
  std::vector<double> sync;     ///< t_S
  std::vector<double> update;   ///< optimizer step; zero in the paper's costs
  std::vector<double> memory;   ///< bytes on the fullest device: outputs, weights and their states
};

struct Tables {
  std::vector<Node> nodes;
  std::vector<NodeCosts> costs;
  std::vector<Problem::Edge> edges;  ///< t_X
  bool pruned = false;               ///< configurations were left out to keep the search short

  /// The sum that the search minimises:
  ///
  ///     Σ t_C + t_U + sync_weight · t_S + memory_weight · memory  +  Σ t_X
  [[nodiscard]] Problem problem(double sync_weight, double memory_weight) const;
};

/// The nodes of a network with every configuration that layers and devices allow.
[[nodiscard]] std::vector<Node> nodes_of(const Network& network, std::int64_t batch,
                                         std::size_t devices,
                                         DegreeRule rule = DegreeRule::dividing);

/// By configuration of the node. wanted   wanted_gradients of the network
[[nodiscard]] NodeCosts node_costs(const StrategyInput& input, ClusterModel& model,
                                   const Node& node, const std::vector<bool>& wanted);

/// The costs that the search adds up.
///
/// sync_weights   those that problem() will be asked for (with memory_weight 0): configurations
///                that cannot be part of the least sum for any of them are left out. If a node's
///                cost is above its least by more than the split by sample of all layers is above
///                the sum of all nodes' least, no saving elsewhere can make up for it. Empty: all
///                stay.
///
/// Where the search would still be long (hundreds of devices), the cheapest configurations of each
/// node by t_C + t_S stay, and the split by sample: see Tables::pruned.
[[nodiscard]] Tables make_tables(const StrategyInput& input, ClusterModel& model, TransferRule rule,
                                 std::span<const double> sync_weights);

/// One device's part of a layer.
struct Share {
  DeviceId device;
  Region box;
};

/// t_C: the longest forward and backward of the shares; a device with several adds them up.
[[nodiscard]] Seconds compute_time(const StrategyInput& input, LayerId layer,
                                   std::span<const Share> shares, bool data);

/// Parameters of one layer that a set of devices holds in common.
struct Copies {
  std::vector<DeviceId> devices;
  Bytes payload;  ///< of their gradients
  [[nodiscard]] std::int64_t elements(const StrategyInput& input) const {
    return payload.value / element_bytes(input.reduce_precision);
  }
};
[[nodiscard]] std::vector<Copies> copies_of(const StrategyInput& input, LayerId layer,
                                            std::span<const Share> shares);

/// t_S: rings of different parts run side by side; a parameter server takes one copy after another.
[[nodiscard]] Seconds sync_time(const StrategyInput& input, ClusterModel& model,
                                const std::vector<Copies>& copies);

/// t_X of operand `operand.input` of layer `operand.layer` for every pair of configurations: rows
/// the producer's, columns the reader's; the layers belong to these nodes. Zero where every device
/// has what it needs.
[[nodiscard]] Matrix transfer_table(const StrategyInput& input, const ClusterModel& model,
                                    TransferRule rule, const Consumer& operand,
                                    const Node& producer, const Node& reader);

}  // namespace parsim::strategies::layer_wise
