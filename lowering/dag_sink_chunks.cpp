// Operations of products in chunks.
#include "lowering/dag_sink.hpp"

namespace parsim::lowering {

OpId DagSink::chunk_kernel(LayerId id, std::size_t cell, std::size_t chunk, Pass pass,
                           std::int32_t m, After& after) {
  const DeviceId device = parts_->layers[id.index()]->devices[cell];
  WorkId& known = work_of(id, cell, chunk);
  if (!known.valid()) {
    Work work = dag_.work(works_[id.index()][cell]);
    work.out = dag_.intern(chunk_region(id, cell, chunk));
    known = dag_.intern(work);
  }
  return operations_.add(Compute{known, pass, device, m}, once(after));
}

OpId DagSink::arrive_part(LayerId id, const FanOut::Arrival& arrival, std::size_t member,
                          std::size_t part, std::int32_t m, After& after) {
  const Movement& movement = arrival.movement;
  const Slice what = slice(output(id), Role::activation, m, movement.regions[part]);
  return operations_.add(Transfer{movement.devices[member],
                                  movement.devices[arrival.ring.next(member)], what, what, false},
                         Stream::tensor, once(after));
}

OpId DagSink::scatter_chunk(LayerId id, const ScatteredChunks& how, std::size_t cell,
                            std::size_t chunk, bool add, std::int32_t m, After& after) {
  const std::vector<DeviceId>& devices = parts_->layers[id.index()]->devices;
  const Region region = chunk_region(id, cell, chunk);
  return operations_.add(
      Transfer{devices[cell], devices[static_cast<std::size_t>(how.keepers[chunk])],
               slice(output(id), Role::partial_sum, m, region),
               slice(output(id), Role::activation, m, region), add},
      Stream::tensor, once(after));
}

OpId DagSink::keep_chunk(LayerId id, const ScatteredChunks& how, std::size_t chunk, std::int32_t m,
                         After& after) {
  const auto cell = static_cast<std::size_t>(how.keepers[chunk]);
  const Region region = chunk_region(id, cell, chunk);
  return operations_.add(Local{LocalKind::add, parts_->layers[id.index()]->devices[cell],
                               slice(output(id), Role::partial_sum, m, region),
                               slice(output(id), Role::activation, m, region)},
                         once(after));
}

OpId DagSink::return_part(LayerId id, Consumer edge, const FanOut::Return& way, std::size_t member,
                          std::size_t part, std::int32_t m, After& after) {
  const Movement& movement = way.movement;
  auto [from, to] = ways(id, edge, way, m);
  if (member != part) from = to;  // it came from the member before
  from.region = to.region = dag_.intern(movement.regions[part]);
  return operations_.add(
      Transfer{movement.devices[member], movement.devices[way.ring.next(member)], from, to, false},
      Stream::tensor, once(after));
}

OpId DagSink::keep_part(LayerId id, Consumer edge, const FanOut::Return& way, std::size_t member,
                        std::int32_t m, After& after) {
  auto [from, to] = ways(id, edge, way, m);
  from.region = to.region = dag_.intern(way.movement.regions[member]);
  return operations_.add(Local{LocalKind::copy, way.movement.devices[member], from, to},
                         once(after));
}

}  // namespace parsim::lowering
