#include "strategies/hypergraph/blocks.hpp"

#include <algorithm>
#include <optional>

#include "core/errors.hpp"

namespace parsim::strategies::hypergraph {

namespace {

bool may_cut_channels(const Network& network, LayerId id) {
  const Layer& layer = network[id];
  const std::vector<Dim> dims = cuttable_dims(layer.kind, input_shapes(network, id), layer.out);
  return layer.out.extent(Dim::channel) > 1 &&
         std::find(dims.begin(), dims.end(), Dim::channel) != dims.end();
}

bool is_input(const Network& network, LayerId id) {
  return network[id].kind.as<Input>() != nullptr;
}

std::int64_t extent_of(const std::vector<Block>& blocks) {
  std::int64_t sum = 0;
  for (const Block& block : blocks) sum += block.size;
  return sum;
}

/// Blocks of the operand whose channels are the layer's, one by one; the last one among several.
const std::vector<Block>* aligned_operand(const Network& network, LayerId id,
                                          const std::vector<std::vector<Block>>& known) {
  const std::vector<Block>* found = nullptr;
  for (const LayerId input : network[id].inputs) {
    const std::vector<Block>& blocks = known[input.index()];
    if (blocks.empty() ||
        network[input].out.extent(Dim::channel) != network[id].out.extent(Dim::channel))
      continue;
    if (found == nullptr || blocks.back().row >= found->back().row) found = &blocks;
  }
  return found;
}

/// The blocks of a layer that treats every channel alone, or nothing if it mixes channels.
std::optional<std::vector<Block>> inherited(const Network& network, LayerId id,
                                            const std::vector<std::vector<Block>>& known) {
  const Layer& layer = network[id];
  const auto from_operand = [&]() -> std::optional<std::vector<Block>> {
    const auto* blocks = aligned_operand(network, id, known);
    if (blocks == nullptr) return std::nullopt;
    return *blocks;
  };
  if (const auto* norm = layer.kind.as<Norm>()) {
    const bool mixes = norm->kind == NormKind::layer || norm->kind == NormKind::group;
    return mixes ? std::nullopt : from_operand();
  }
  if (layer.kind.as<Activation>() != nullptr || layer.kind.as<Dropout>() != nullptr ||
      layer.kind.as<Pool>() != nullptr || layer.kind.as<Combine>() != nullptr) {
    return from_operand();
  }
  if (const auto* reduce = layer.kind.as<Reduce>()) {
    const Shape& in = network[layer.inputs[0]].out;
    const bool over_channels =
        std::any_of(reduce->axes.begin(), reduce->axes.end(),
                    [&](std::size_t axis) { return in.axes[axis].dim == Dim::channel; });
    return over_channels ? std::nullopt : from_operand();
  }
  if (layer.kind.as<Flatten>() != nullptr) {
    const Shape& in = network[layer.inputs[0]].out;
    const std::vector<Block>& operand = known[layer.inputs[0].index()];
    if (operand.empty() || in.axes.empty() || in.axes[0].dim != Dim::channel ||
        extent_of(operand) != in.axes[0].extent)
      return std::nullopt;
    std::vector<Block> blocks = operand;
    for (Block& block : blocks) block.size *= in.elements() / in.axes[0].extent;
    return blocks;
  }
  if (const auto* concat = layer.kind.as<Concat>()) {
    if (layer.out.axes[concat->axis].dim != Dim::channel) return from_operand();
    std::vector<Block> blocks;
    for (const LayerId input : layer.inputs) {
      const std::vector<Block>& operand = known[input.index()];
      if (operand.empty() || extent_of(operand) != network[input].out.axes[concat->axis].extent)
        return std::nullopt;
      blocks.insert(blocks.end(), operand.begin(), operand.end());
    }
    return blocks;
  }
  return std::nullopt;
}

}  // namespace

Blocks blocks_of(const Network& network, std::int32_t most,
                 const std::vector<std::vector<std::int64_t>>& sizes) {
  Blocks result;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    std::vector<Block>& blocks = result.of_layer.emplace_back();
    if (is_input(network, id)) continue;
    const bool cut = may_cut_channels(network, id);
    if (cut) {
      auto operands = inherited(network, id, result.of_layer);
      // An operand that is whole would keep this layer whole, too.
      if (operands && extent_of(*operands) == network[id].out.extent(Dim::channel)) {
        blocks = std::move(*operands);
        continue;
      }
    }
    const auto add_row = [&](std::int64_t size) {
      blocks.push_back({static_cast<std::int32_t>(result.maker.size()), size});
      result.maker.push_back(id);
    };
    const std::int64_t extent = cut ? network[id].out.extent(Dim::channel) : 1;
    if (cut && !sizes.empty() && !sizes[l].empty()) {
      for (const std::int64_t size : sizes[l]) add_row(size);
      ensure(extent_of(blocks) == extent, "blocks of channels add up to the layer's");
      continue;
    }
    const std::int64_t count = std::min<std::int64_t>(most, extent);
    for (std::int64_t b = 0; b < count; ++b) {
      // Spread evenly, so that a border between groups of channels is one between blocks, too.
      add_row((b + 1) * extent / count - b * extent / count);
    }
  }
  return result;
}

std::vector<Interval> channels_of(const Network& network, LayerId layer,
                                  const std::vector<Block>& blocks) {
  std::vector<Interval> channels(blocks.size());
  if (network[layer].out.extent(Dim::channel) != extent_of(blocks)) return channels;
  std::int64_t offset = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    channels[b] = {offset, offset + blocks[b].size};
    offset += blocks[b].size;
  }
  return channels;
}

}  // namespace parsim::strategies::hypergraph
