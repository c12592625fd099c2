// The fragments of products in chunks.
#include <algorithm>

#include "lowering/fragments.hpp"

namespace parsim::lowering {

void Fragments::price_chunks(LayerFragment& fragment, LayerId id) {
  const bool back = structure_.flow.wants[id.index()];
  const bool data = back && structure_.flow.passes_on[id.index()];
  const std::size_t count = fragment.cells.size();
  fragment.chunk_forward.resize(count);
  fragment.chunk_backward.resize(count);
  for (std::size_t c = 0; c < count; ++c) {
    const Cell& cell = fragment.cells[c];
    const auto time = [&](const Part& part, Pass pass) {
      return pricer_->kernels.of(id, part, pass, cell.device).time.count();
    };
    double forward = 0, backward = 0;
    for (const Interval tokens : fragment.chunks[c].tokens) {
      const Part part = part_of_chunk(cell, tokens);
      forward += fragment.chunk_forward[c].emplace_back(time(part, Pass::forward));
      if (!data || !fragment.partial_sums) continue;
      backward += fragment.chunk_backward[c].emplace_back(time(part, Pass::backward_data));
    }
    if (data && !fragment.partial_sums) backward = time(cell.part, Pass::backward_data);
    fragment.forward.push_back(forward);
    fragment.backward.push_back(backward);
    fragment.weights.push_back(back ? time(cell.part, Pass::backward_weights) : 0);
  }
}

GatherRing Fragments::gather_ring(const Movement& movement, const std::vector<Cell>& cells) {
  GatherRing ring;
  if (movement.pattern != Pattern::all_gather) return ring;
  ring.members = movement.devices.size();
  for (std::size_t r = 0; r < ring.members; ++r) {
    std::vector<std::int32_t>& own = ring.producers.emplace_back();
    for (const std::int32_t cell : movement.producers) {
      const bool here = cells[static_cast<std::size_t>(cell)].device == movement.devices[r];
      if (here && std::find(own.begin(), own.end(), cell) == own.end()) own.push_back(cell);
    }
    for (std::size_t part = 0; part < ring.members && pricer_ != nullptr; ++part) {
      ring.sends.push_back(
          pricer_->communications.transfer(movement.devices[r], movement.devices[ring.next(r)],
                                           Bytes{movement.regions[part].volume() * element_}));
    }
  }
  return ring;
}

/// Where every device keeps the chunk whose turn comes last.
void Fragments::scatter_chunks(const LayerFragment& home, const LayerFragment::Sum& sum,
                               FanOut::PartsSum& how) const {
  ScatteredChunks found;
  for (std::size_t chunk = 0; chunk < sum.cells.size(); ++chunk) {
    for (const std::int32_t c : sum.cells) {
      const auto cell = static_cast<std::size_t>(c);
      const Chunks& chunks = home.chunks[cell];
      if (chunks.own != chunk || chunks.tokens.size() != sum.cells.size()) continue;
      const auto device = std::find(sum.devices.begin(), sum.devices.end(), home.devices[cell]);
      const Region& share = how.shares[static_cast<std::size_t>(device - sum.devices.begin())];
      if (share == part_of_chunk(home.cells[cell], chunks.tokens[chunk]).out)
        found.keepers.push_back(c);
    }
    if (found.keepers.size() != chunk + 1) return;
  }
  for (const std::int32_t from : found.keepers) {
    const auto sender = static_cast<std::size_t>(from);
    for (std::size_t chunk = 0; chunk < found.keepers.size() && pricer_ != nullptr; ++chunk) {
      const Region region =
          part_of_chunk(home.cells[sender], home.chunks[sender].tokens[chunk]).out;
      const DeviceId keeper = home.devices[static_cast<std::size_t>(found.keepers[chunk])];
      const bool own = chunk == home.chunks[sender].own;
      if (own) found.additions.push_back(local(keeper, region, 3));
      found.sends.push_back(
          own ? PricedCommunication{}
              : pricer_->communications.transfer(home.devices[sender], keeper,
                                                 Bytes{region.volume() * element_}));
    }
  }
  how.chunks = std::move(found);
}

}  // namespace parsim::lowering
