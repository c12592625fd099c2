// From a network to the hypergraph whose partitions are ways to split its training.
#pragma once

#include <cstdint>
#include <vector>

#include "core/network.hpp"
#include "core/plan.hpp"
#include "strategies/hypergraph/hypergraph.hpp"

namespace parsim::strategies::hypergraph {

/// How communication is counted. `exact`: every element that the plan's execution DAG moves,
/// including halos of channels in response normalisation, borders that strided windows skip, and
/// logits. `simple`: as in the literature, the output of a convolution or dense layer after its
/// normalisation, activation and pooling, once for each part that reads it.
enum class Detail : std::uint8_t { exact, simple };

/// What is balanced: the work of the whole network, of each of up to 16 runs of layers, or work
/// and memory.
enum class Balance : std::uint8_t { work, work_by_layers, work_and_memory };

struct ModelOptions {
  std::int32_t channel_blocks = 64;                      ///< at most, for each layer
  std::vector<std::vector<std::int64_t>> channel_sizes;  ///< by layer, see blocks_of
  std::int32_t sample_blocks = 1;          ///< 1: model F; more: model U, at most the micro-batch
  std::vector<std::int64_t> sample_sizes;  ///< of the blocks of samples; empty: as equal as can be
  std::int64_t samples = 1;                ///< of a micro-batch
  std::int32_t micro_batches = 1;
  std::int64_t states = 3;  ///< numbers kept for each parameter: value, gradient, optimizer's
  Detail detail = Detail::exact;
  Balance balance = Balance::work;
  /// Work of each layer, relative; empty: multiply-accumulates of convolutions, dense layers and
  /// products, three times (forward, gradients of data and weights), twice where the input needs
  /// none.
  std::vector<double> work;
};

/// A block of a layer's channels and the row of vertices that computes it: one vertex for each
/// block of samples.
struct Block {
  std::int32_t row = 0;
  std::int64_t size = 0;
  friend bool operator==(const Block&, const Block&) = default;
};

/// How the layers of a network consist of blocks. Convolutions, dense layers and others that mix
/// channels have rows of their own; layers that treat every channel separately belong to the rows
/// of their operand (of a sum: of the last operand), a concatenation to those of its operands.
struct Model {
  Hypergraph graph;  ///< vertex = row · sample blocks + block of samples; costs in elements a step
  std::vector<std::vector<Block>> blocks;  ///< by layer; empty for inputs; one if never cut
  std::vector<LayerId> maker;              ///< by row: the layer it was made for
  std::vector<std::int64_t> samples;       ///< of each block of samples, within a micro-batch

  [[nodiscard]] Vertex vertex(std::int32_t row, std::size_t sample_block) const {
    return row * static_cast<std::int32_t>(samples.size()) +
           static_cast<std::int32_t>(sample_block);
  }
};

/// Model F (vertices are blocks of filters) or U (blocks of filters x blocks of samples, with a net
/// for the weights of each block of filters). A RECONSTRUCTION of the models of Eserol 2019, of
/// which only the abstract is public; F is the row-wise model of sparse matrix partitioning
/// (Catalyurek and Aykanat 1999), U adds the gradient's sum over replicas, 2(λ−1) elements for each
/// element of the weights.
[[nodiscard]] Model model_of(const Network& network, const ModelOptions& options);

/// Splits the blocks over devices, device p for part p: the plan of every layer.
[[nodiscard]] std::vector<LayerPlan> layers_of(const Network& network, const Model& model,
                                               const Parts& parts,
                                               const std::vector<DeviceId>& devices);

/// The partition that comes nearest to a plan: each vertex where most of its output is computed.
/// Devices that are not in the list count as the first.
[[nodiscard]] Parts parts_of(const Network& network, const Model& model, const Plan& plan,
                             const std::vector<DeviceId>& devices);

/// The same partition with equivalent blocks of a layer reordered so that each part's are next to
/// each other, unless that moves more elements.
[[nodiscard]] Parts gathered(const Network& network, const Model& model, const Parts& parts);

}  // namespace parsim::strategies::hypergraph
