#include "lowering/ring.hpp"

#include <map>
#include <utility>

namespace parsim::lowering {

std::vector<Ring> rings_of(const Network& network, LayerId attention,
                           const std::vector<Cell>& cells) {
  const Layer& layer = network[attention];
  const std::vector<Shape> inputs = input_shapes(network, attention);
  std::map<std::pair<std::int32_t, Region>, Ring> rings;  // by replica and what is not tokens
  for (std::size_t c = 0; c < cells.size(); ++c) {
    Region rest = cells[c].part.out;
    rest[1] = {};
    Ring& ring = rings[{cells[c].replica, rest}];
    ring.cells.push_back(static_cast<std::int32_t>(c));
    ring.devices.push_back(cells[c].device);
    for (const std::size_t operand : {0U, 1U}) {
      ring.blocks[operand].push_back(input_region(layer.kind, inputs, layer.out, operand + 1,
                                                  part_of_ring(cells[c], cells[c])));
    }
  }
  std::vector<Ring> all;
  for (auto& [key, ring] : rings) all.push_back(std::move(ring));
  return all;
}

Part part_of_ring(const Cell& cell, const Cell& block) {
  Part part = cell.part;
  part.contraction = block.part.out[1];
  return part;
}

}  // namespace parsim::lowering
