#include "lowering/dag_sink.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::lowering {

namespace {

Region hull_of(const Movement& movement) {
  Region all;
  for (const Region& region : movement.regions) all = hull(all, region);
  return all;
}

CollectiveKind kind_of(Pattern pattern) {
  switch (pattern) {
    case Pattern::all_gather:
    case Pattern::scatter_gather:
      return CollectiveKind::all_gather;
    case Pattern::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case Pattern::all_reduce:
      return CollectiveKind::all_reduce;
    case Pattern::all_to_all:
      return CollectiveKind::all_to_all;
    case Pattern::broadcast:
      return CollectiveKind::broadcast;
    case Pattern::halo:
    case Pattern::point_to_point:
    case Pattern::local_add:
      break;
  }
  throw BrokenInvariant("a movement that is no collective");
}

/// Where shares of several micro-batches' gradients add up.
Slice sum_so_far(Slice gradient) {
  gradient.micro_batch = 1;
  return gradient;
}

}  // namespace

const std::vector<OpId>& DagSink::once(After& after) {
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  return after;
}

void DagSink::begin(const PlanFragments& parts) {
  parts_ = &parts;
  works_in_parts_.resize(parts.layers.size());
  if (parts.units != nullptr) dag_.fold.units = std::make_shared<const AlikeUnits>(*parts.units);
  if (ranks_ != nullptr) {
    if (auto ranks = ranks_of(*parts.plan, parts.cluster, *ranks_))
      operations_.fold(std::move(ranks), *ranks_);
  }
  for (std::size_t l = 0; l < parts.layers.size(); ++l) {
    const LayerId id{l};
    const Layer& layer = parts.network[id];
    std::uint32_t indirect = 0;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      if (parts.structure.flow.source[layer.inputs[i].index()]) continue;
      const FanOut::Edge& edge = parts.edge(id, i);
      if (!edge.gradient || edge.direct) continue;
      if (i >= 32)
        throw InputError(fmt::format("layer '{}'", layer.name),
                         "a plan that reshards more than 32 operands of one layer",
                         "the same split as its operands");
      indirect |= 1U << i;
    }
    std::vector<Work> of_cells;
    for (const Cell& cell : parts.layers[l]->cells) {
      of_cells.push_back(
          {id, dag_.intern(cell.part.out), static_cast<std::int32_t>(cell.part.contraction.begin),
           static_cast<std::int32_t>(cell.part.contraction.end), indirect, cell.part.zigzag});
    }
    for (const LayerFragment::Sum& sum : parts.layers[l]->sums) {
      for (std::size_t i = 0; !sum.statistics.empty() && i < sum.cells.size(); ++i) {
        Work& work = of_cells[static_cast<std::size_t>(sum.cells[i])];
        work.class_parts = static_cast<std::int32_t>(sum.cells.size());
        work.class_part = static_cast<std::int32_t>(i);
      }
    }
    std::vector<WorkId>& works = works_.emplace_back();
    for (const Work& work : of_cells) works.push_back(dag_.intern(work));
  }
  std::map<const void*, std::size_t> shares_of;  // looked up only
  for (const SumFragment* sum : parts.sums) {
    std::vector<std::pair<ParameterId, RegionId>> contents;
    for (const auto& [parameter, region] : sum->group.contents)
      contents.emplace_back(parameter, dag_.intern(region));
    buckets_.push_back(dag_.add_bucket(std::move(contents)));
    const auto [known, fresh] = shares_of.try_emplace(sum->group.shards.identity(), shares_.size());
    Shares& shares = shares_.emplace_back();
    if (!fresh) {
      shares = shares_[known->second];
      continue;
    }
    std::int64_t begin = 0;
    for (const std::int64_t size : sum->group.shards) {
      shares.regions.push_back(dag_.intern(Region{{begin, begin + size}}));
      begin += size;
    }
  }
}

Shares DagSink::shares_of(const Movement& movement) {
  Shares shares;
  if (movement.pattern == Pattern::broadcast || movement.pattern == Pattern::all_reduce)
    return shares;
  for (const Region& region : movement.regions) shares.regions.push_back(dag_.intern(region));
  for (const Region& region : movement.needs) shares.needs.push_back(dag_.intern(region));
  return shares;
}

OpId DagSink::kernel(LayerId id, std::size_t cell, Pass pass, std::int32_t m, After& after) {
  return operations_.add(
      Compute{works_[id.index()][cell], pass, parts_->layers[id.index()]->devices[cell], m},
      once(after));
}

OpId DagSink::ring_kernel(LayerId id, const Ring& ring, std::size_t member, std::size_t block,
                          Pass pass, std::int32_t m, After& after) {
  const auto cell = static_cast<std::size_t>(ring.cells[member]);
  WorkId& known = work_of(id, cell, block);
  if (!known.valid()) {
    Work work = dag_.work(works_[id.index()][cell]);
    const std::vector<Cell>& cells = parts_->layers[id.index()]->cells;
    const Part part = part_of_ring(cells[cell], cells[static_cast<std::size_t>(ring.cells[block])]);
    work.contraction_begin = static_cast<std::int32_t>(part.contraction.begin);
    work.contraction_end = static_cast<std::int32_t>(part.contraction.end);
    // Gradients of others' keys and values travel.
    constexpr std::uint32_t keys_and_values = 0b110;
    if (block != member) work.edges_to_partial_sum |= keys_and_values;
    known = dag_.intern(work);
  }
  return operations_.add(Compute{known, pass, ring.devices[member], m}, once(after));
}

OpId DagSink::ring_send(LayerId id, const Ring& ring, std::size_t member, std::size_t block,
                        std::size_t operand, std::int32_t m, After& after) {
  const LayerId producer = parts_->network[id].inputs[operand + 1];
  const Slice what = slice(output(producer), Role::activation, m, ring.blocks[operand][block]);
  const DeviceId next = ring.devices[(member + 1) % ring.devices.size()];
  return operations_.add(Transfer{ring.devices[member], next, what, what, false}, Stream::tensor,
                         once(after));
}

OpId DagSink::ring_return(LayerId id, const Ring& ring, std::size_t member, std::size_t block,
                          std::size_t operand, std::int32_t m, After& after) {
  const TensorId edge = store({id, operand + 1});
  const Region& region = ring.blocks[operand][block];
  const DeviceId next = ring.devices[(member + 1) % ring.devices.size()];
  return operations_.add(
      Transfer{ring.devices[member], next, slice(edge, Role::partial_sum, m, region),
               slice(edge, Role::gradient, m, region), true},
      Stream::tensor, once(after));
}

OpId DagSink::ring_add(LayerId id, const Ring& ring, std::size_t member, std::size_t block,
                       std::size_t operand, std::int32_t m, After& after) {
  const TensorId edge = store({id, operand + 1});
  const Region& region = ring.blocks[operand][block];
  return operations_.add(
      Local{LocalKind::add, ring.devices[member], slice(edge, Role::gradient, m, region),
            slice(edge, Role::partial_sum, m, region)},
      once(after));
}

OpId DagSink::ring_home(LayerId id, const Ring& ring, std::size_t member, std::size_t operand,
                        std::int32_t m, After& after) {
  const LayerId producer = parts_->network[id].inputs[operand + 1];
  const TensorId edge = store({id, operand + 1});
  const Region& region = ring.blocks[operand][member];
  const Slice received = slice(edge, Role::gradient, m, region);
  const Slice own = parts_->edge(id, operand + 1).direct
                        ? slice(output(producer), Role::gradient, m, region)
                        : slice(edge, Role::partial_sum, m, region);
  const OpId added =
      operations_.add(Local{LocalKind::add, ring.devices[member], received, own}, once(after));
  if (own.role == Role::gradient) return added;
  // What returns to the producer comes through the same buffer.
  return operations_.add(Local{LocalKind::drop, ring.devices[member], received, received},
                         std::vector<OpId>{added});
}

OpId DagSink::sum_parts(LayerId id, const LayerFragment::Sum& sum, const FanOut::PartsSum& how,
                        std::int32_t m, After& after) {
  Slice from = slice(output(id), Role::partial_sum, m, sum.region);
  Slice to = slice(output(id), Role::activation, m, sum.region);
  if (!sum.statistics.empty()) {
    Region all = sum.statistics[0];
    for (const Region& given : sum.statistics) all = hull(all, given);
    from = to = slice(output(id), Role::statistics, m, all);
  }
  if (sum.devices.size() == 1)
    return operations_.add(Local{LocalKind::copy, sum.devices[0], from, to}, once(after));
  Shares shares;
  for (const Region& region : sum.statistics.empty() ? how.shares : sum.statistics)
    shares.regions.push_back(dag_.intern(region));
  return operations_.add(Collective{kind_of(sum, how), dag_.intern(sum.devices), from, to}, shares,
                         Stream::tensor, once(after));
}

OpId DagSink::arrive(LayerId id, const FanOut::Arrival& arrival, std::int32_t m, Stream stream,
                     After& after) {
  const Movement& movement = arrival.movement;
  const Slice what = slice(output(id), Role::activation, m, hull_of(movement));
  if (!is_collective(movement.pattern) && movement.pattern != Pattern::scatter_gather) {
    return operations_.add(Transfer{movement.devices[0], movement.devices[1], what, what, false},
                           stream, once(after));
  }
  return operations_.add(
      Collective{kind_of(movement.pattern), dag_.intern(movement.devices), what, what},
      shares_of(movement), stream, once(after));
}

OpId DagSink::arrive_leg(LayerId id, const FanOut::Arrival& arrival, std::size_t leg,
                         std::int32_t m, Stream stream, After& after) {
  const Leg& way = arrival.movement.legs[leg];
  const Slice what = slice(output(id), Role::activation, m, way.region);
  return operations_.add(Transfer{way.from, way.to, what, what, false}, stream, once(after));
}

OpId DagSink::add_received(LayerId id, Consumer edge, const FanOut::Store& from, std::int32_t m,
                           DeviceId device, const After& after) {
  const Role role = from.partial_sum ? Role::partial_sum : Role::gradient;
  After behind = after;
  return operations_.add(Local{LocalKind::add, device, slice(store(edge), role, m, from.region),
                               slice(output(id), Role::gradient, m, from.region)},
                         once(behind));
}

OpId DagSink::add_jointly(Consumer from, Consumer to, const FanOut::Joint::Addition& addition,
                          std::int32_t m, After& after) {
  return operations_.add(Local{LocalKind::add, addition.where,
                               slice(store(from), Role::partial_sum, m, addition.region),
                               slice(store(to), Role::partial_sum, m, addition.region)},
                         once(after));
}

DagSink::Ways DagSink::ways(LayerId id, Consumer edge, const FanOut::Return& way, std::int32_t m) {
  const Region all = hull_of(way.movement);
  Ways ways{slice(store(edge), Role::partial_sum, m, all), {}};
  const bool sums_in_place = way.movement.pattern == Pattern::all_reduce && !way.alone;
  if (sums_in_place) {
    ways.to = ways.from;
  } else if (way.alone || way.movement.pattern == Pattern::local_add) {
    ways.to = slice(output(id), Role::gradient, m, all);
  } else {
    ways.to = slice(store(edge), Role::gradient, m, all);
  }
  return ways;
}

OpId DagSink::move_home(LayerId id, Consumer edge, const FanOut::Return& way, std::int32_t m,
                        Stream stream, After& after) {
  const Movement& movement = way.movement;
  const auto [from, to] = ways(id, edge, way, m);
  if (movement.pattern == Pattern::local_add)
    return operations_.add(Local{LocalKind::add, movement.devices[0], from, to}, once(after));
  if (!is_collective(movement.pattern)) {
    return operations_.add(Transfer{movement.devices[0], movement.devices[1], from, to, true},
                           stream, once(after));
  }
  return operations_.add(
      Collective{kind_of(movement.pattern), dag_.intern(movement.devices), from, to},
      shares_of(movement), stream, once(after));
}

OpId DagSink::sum_home(LayerId id, Consumer edge, const FanOut::Return& way, std::int32_t m,
                       After after) {
  const Slice from = ways(id, edge, way, m).from;
  Slice sent = from;
  sent.role = Role::gradient;
  Shares shares;
  for (const Region& region : way.movement.sums) shares.regions.push_back(dag_.intern(region));
  return operations_.add(
      Collective{CollectiveKind::reduce_scatter, dag_.intern(way.movement.summing), from, sent},
      shares, Stream::tensor, once(after));
}

OpId DagSink::leg_home(LayerId id, Consumer edge, const FanOut::Return& way, std::size_t leg,
                       std::int32_t m, Stream stream, After& after) {
  const Leg& one = way.movement.legs[leg];
  auto [from, to] = ways(id, edge, way, m);
  if (!way.movement.summing.empty()) from.role = Role::gradient;
  from.region = to.region = dag_.intern(one.region);
  return operations_.add(Transfer{one.from, one.to, from, to, true}, stream, once(after));
}

OpId DagSink::gather_home(LayerId id, Consumer edge, const FanOut::Return& way, std::int32_t m,
                          After& after) {
  const Slice to = ways(id, edge, way, m).to;
  return operations_.add(
      Collective{CollectiveKind::all_gather, dag_.intern(way.movement.devices), to, to},
      shares_of(way.movement), Stream::tensor, once(after));
}

void DagSink::drop_gradients(std::size_t s, DeviceId device, After& after) {
  const Slice gradient = of_bucket(s, Role::weight_gradient);
  operations_.add(Local{LocalKind::drop, device, gradient, gradient}, once(after));
}

OpId DagSink::gather_weights(std::size_t s, std::size_t zero_group, After& after) {
  const Slice weight = of_bucket(s, Role::weight);
  const GroupId members = dag_.intern(parts_->sums[s]->zero_group(zero_group));
  return operations_.add(Collective{CollectiveKind::all_gather, members, weight, weight},
                         shares_[s], Stream::gradient, once(after));
}

OpId DagSink::sum(std::size_t s, std::size_t part, bool so_far, After& after) {
  const Slice gradient = of_bucket(s, Role::weight_gradient);
  const SumFragment& fragment = *parts_->sums[s];
  const GroupId members =
      dag_.intern(group(s).sums_apart() ? fragment.zero_group(part) : fragment.whole().devices);
  return operations_.add(Collective{CollectiveKind::all_reduce, members, gradient,
                                    so_far ? sum_so_far(gradient) : gradient},
                         {}, Stream::gradient, once(after));
}

OpId DagSink::scatter_sum(std::size_t s, std::size_t zero_group, bool adds_shares, After& after) {
  const Slice gradient = of_bucket(s, Role::weight_gradient);
  const GroupId members = dag_.intern(parts_->sums[s]->zero_group(zero_group));
  return operations_.add(Collective{CollectiveKind::reduce_scatter, members, gradient,
                                    adds_shares ? sum_so_far(gradient) : gradient},
                         shares_[s], Stream::gradient, once(after));
}

OpId DagSink::sum_replicas(std::size_t s, std::size_t rank, bool adds_shares, bool so_far,
                           After& after) {
  const bool whole = !group(s).apart.empty();
  const Slice first = whole
                          ? of_bucket(s, Role::weight_gradient)
                          : Slice{buckets_[s], Role::weight_gradient, 0, shares_[s].regions[rank]};
  const Slice share = adds_shares ? sum_so_far(first) : first;
  return operations_.add(
      Collective{CollectiveKind::all_reduce, dag_.intern(parts_->sums[s]->whole().holders_of(rank)),
                 share, so_far ? first : share},
      {}, Stream::replicas, once(after));
}

OpId DagSink::send_sum(std::size_t s, std::size_t mirror, After& after) {
  const Slice gradient = of_bucket(s, Role::weight_gradient);
  const DeviceId from = group(s).devices[parts_->sums[s]->mirror_source[mirror]];
  return operations_.add(Transfer{from, group(s).mirrors[mirror], gradient, gradient, false},
                         Stream::gradient, once(after));
}

OpId DagSink::push(std::size_t s, std::size_t holder, After after) {
  const Slice gradient = of_bucket(s, Role::weight_gradient);
  return operations_.add(
      Transfer{group(s).devices[holder], group(s).sync.server, gradient, gradient, true},
      Stream::gradient, once(after));
}

OpId DagSink::server_update(std::size_t s, After& after) {
  return operations_.add(Update{group(s).sync.server, of_bucket(s, Role::weight)}, once(after));
}

void DagSink::pull(std::size_t s, std::size_t holder, After& after) {
  const Slice weight = of_bucket(s, Role::weight);
  operations_.add(
      Transfer{group(s).sync.server, parts_->sums[s]->holders[holder], weight, weight, false},
      Stream::gradient, once(after));
}

OpId DagSink::copy_share(std::size_t s, std::size_t holder, After& after) {
  const Slice part = share(s, holder, Role::weight_gradient);
  return operations_.add(
      Local{LocalKind::copy, parts_->sums[s]->holders[holder], sum_so_far(part), part},
      once(after));
}

OpId DagSink::update(std::size_t s, std::size_t holder, After& after) {
  return operations_.add(Update{parts_->sums[s]->holders[holder], share(s, holder, Role::weight)},
                         once(after));
}

}  // namespace parsim::lowering
