#include "lowering/ring.hpp"

#include <map>
#include <utility>

#include "lowering/fragments.hpp"

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

void Fragments::price_rings(LayerFragment& fragment, LayerId id, bool back) {
  const std::size_t count = fragment.cells.size();
  fragment.forward.assign(count, 0);
  fragment.backward.assign(count, 0);
  fragment.weights.assign(count, 0);
  fragment.block_forward.resize(count);
  fragment.block_backward.resize(count);
  for (Ring& ring : fragment.rings) {
    const std::size_t members = ring.cells.size();
    for (std::size_t r = 0; r < members; ++r) {
      const auto c = static_cast<std::size_t>(ring.cells[r]);
      for (const std::int32_t block : ring.cells) {
        const Part part =
            part_of_ring(fragment.cells[c], fragment.cells[static_cast<std::size_t>(block)]);
        const auto time = [&](Pass pass) {
          return pricer_->kernels.of(id, part, pass, ring.devices[r]).time.count();
        };
        fragment.block_forward[c].push_back(time(Pass::forward));
        fragment.block_backward[c].push_back(back ? time(Pass::backward) : 0);
        fragment.forward[c] += fragment.block_forward[c].back();
        fragment.backward[c] += fragment.block_backward[c].back();
      }
      for (const std::size_t operand : {0U, 1U}) {
        const Region& block = ring.blocks[operand][r];
        ring.sends[operand].push_back(pricer_->communications.transfer(
            ring.devices[r], ring.devices[(r + 1) % members], Bytes{block.volume() * element_}));
        ring.additions[operand].push_back(local(ring.devices[r], block, 3));
      }
    }
  }
}

}  // namespace parsim::lowering
