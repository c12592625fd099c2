// The fragments of a tensor and its readers: of each edge, and of all edges together.
#include <algorithm>

#include "lowering/fragments.hpp"

namespace parsim::lowering {

namespace {

/// Whether a movement is one operation of devices that have the tensor's parts: not to another
/// stage.
bool stays_among(const Movement& movement, const std::vector<DeviceId>& devices) {
  return movement.pattern != Pattern::scatter_gather &&
         std::all_of(movement.devices.begin(), movement.devices.end(), [&](DeviceId one) {
           return std::find(devices.begin(), devices.end(), one) != devices.end();
         });
}

}  // namespace

std::vector<Need> Fragments::needs(const EdgeFragment& edge) const {
  const LayerFragment& fragment = *edge.reader;
  const Consumer& reader = edge.consumer;
  const Layer& layer = network_[reader.layer];
  // Not made for each edge: a sum may have thousands of operands.
  const std::vector<Shape>& inputs = structure_.inputs[reader.layer.index()];
  std::vector<Need> all;
  all.reserve(fragment.cells.size());
  for (const Cell& cell : fragment.cells) {
    // Keys and values of others come round the ring.
    const bool own = fragment.plan.ring && reader.input > 0;
    const Part part = own ? part_of_ring(cell, cell) : cell.part;
    all.push_back({cell.device, input_region(layer.kind, inputs, layer.out, reader.input, part),
                   cell.replica});
  }
  return all;
}

std::int32_t Fragments::edge(LayerId producer, const Consumer& reader,
                             const std::vector<std::int32_t>& numbers) {
  // Layers that are alike have readers with neighbours that are alike not quite as far, so a
  // reader's fragment has its number among those of its own likes.
  Key key{moves(producer, numbers), structure_.like[reader.layer.index()].value,
          static_cast<std::int32_t>(reader.input), moves(reader.layer, numbers)};
  const std::size_t like = structure_.like[producer.index()].index();
  const auto found = edge_numbers_[like].find(key);
  if (found != edge_numbers_[like].end()) return found->second;
  edges_[like].push_back(make_edge(producer, reader, numbers));
  const auto number = static_cast<std::int32_t>(edges_[like].size()) - 1;
  edge_numbers_[like].emplace(std::move(key), number);
  return number;
}

EdgeFragment Fragments::make_edge(LayerId producer, const Consumer& reader,
                                  const std::vector<std::int32_t>& numbers) {
  EdgeFragment edge;
  edge.home = &layer(producer, moves(producer, numbers));
  edge.reader = &layer(reader.layer, moves(reader.layer, numbers));
  edge.consumer = reader;
  const std::vector<Need> wanted = needs(edge);
  TensorLayout computed(edge.home->cells, whole_sends_);
  edge.aligned = computed.aligned(wanted);
  edge.gradient = returns_ && structure_.flow.wants[producer.index()] &&
                  structure_.flow.reaches_loss[reader.layer.index()];
  if (edge.gradient) edge.back = return_gradients(computed, wanted);
  return edge;
}

const EdgeFragment::Alone& Fragments::alone(EdgeFragment& edge) {
  if (edge.alone) return *edge.alone;
  EdgeFragment::Alone& alone = edge.alone.emplace();
  TensorLayout layout(edge.home->cells, whole_sends_);
  alone.sources = layout.bring(needs(edge), cluster_);
  for (const Movement& movement : layout.arrivals())
    alone.arrivals.push_back(priced_arrival(movement, edge));
  return alone;
}

FanOut::Arrival Fragments::priced_arrival(const Movement& movement, const EdgeFragment& edge) {
  const bool again = edge.home->plan.regather && (movement.pattern == Pattern::all_gather ||
                                                  stays_among(movement, edge.home->devices));
  FanOut::Arrival arrival{movement, priced(movement), priced(movement.legs), 0, 0, again, {}};
  if (edge.reader->plan.overlap) arrival.ring = gather_ring(movement, edge.home->cells);
  return arrival;
}

const FanOut& Fragments::fan_out(LayerId producer, const std::vector<std::int32_t>& numbers) {
  Key key{moves(producer, numbers)};
  for (const Consumer& reader : structure_.readers[producer.index()])
    key.push_back(edge(producer, reader, numbers));
  const std::size_t like = structure_.like[producer.index()].index();
  const auto found = fan_outs_[like].find(key);
  if (found != fan_outs_[like].end()) return found->second;
  count_made();
  std::vector<EdgeFragment*> edges;
  for (std::size_t i = 1; i < key.size(); ++i)
    edges.push_back(&edges_[like][static_cast<std::size_t>(key[i])]);
  FanOut made = make_fan_out(layer(producer, key[0]), edges);
  if (edges.size() == 1) *edges[0] = {};  // no other readers will ask for it
  return fan_outs_[like].emplace(std::move(key), std::move(made)).first->second;
}

FanOut Fragments::make_fan_out(const LayerFragment& home, const std::vector<EdgeFragment*>& edges) {
  FanOut fan_out;
  std::vector<Need> all_needed;
  for (std::size_t r = 0; !home.sums.empty() && r < edges.size(); ++r) {
    const std::vector<Need> more = needs(*edges[r]);
    all_needed.insert(all_needed.end(), more.begin(), more.end());
  }
  std::vector<Cell> held = home.cells;
  fan_out.sums = make_parts_sums(home, all_needed, held);
  const bool whole = std::all_of(fan_out.sums.begin(), fan_out.sums.end(),
                                 [](const FanOut::PartsSum& sum) { return sum.shares.empty(); });
  TensorLayout layout(std::move(held), whole_sends_);
  std::size_t in_layout = 0;  // edges that have brought what they need
  std::vector<std::int32_t> additions(home.cells.size(), 0);
  const auto canonical = [&](std::int32_t cell) {
    return static_cast<std::size_t>(home.canonical[static_cast<std::size_t>(cell)]);
  };
  for (std::size_t r = 0; r < edges.size(); ++r) {
    EdgeFragment& own = *edges[r];
    const std::vector<Cell>& cells = own.reader->cells;
    FanOut::Edge& edge = fan_out.edges.emplace_back();
    cells_kept_ += cells.size();
    const auto add = [&](FanOut::Arrival arrival) {
      arrival.first_leg = fan_out.legs;
      arrival.edge = static_cast<std::int32_t>(r);
      fan_out.legs += arrival.legs.size() + arrival.ring.dates();
      fan_out.arrivals.push_back(std::move(arrival));
    };
    if (whole && own.aligned) {
      edge.sources.aligned = true;
    } else if (whole && fan_out.arrivals.empty()) {
      edge.sources = alone(own).sources;
      for (const FanOut::Arrival& arrival : own.alone->arrivals) add(arrival);
    } else {  // something that it needs may be there already
      for (; in_layout <= r; ++in_layout)
        edge.sources = layout.bring(needs(*edges[in_layout]), cluster_);
      for (std::size_t a = fan_out.arrivals.size(); a < layout.arrivals().size(); ++a)
        add(priced_arrival(layout.arrivals()[a], own));
    }
    edge.gradient = own.gradient;
    if (!edge.gradient) continue;
    edge.direct = own.back.direct;
    if (!edge.direct) continue;
    // Gradients return to all of what a cell computes, also where it keeps a share of the sum.
    for (std::int32_t& count : additions) ++count;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const auto cell = static_cast<std::int32_t>(c);
      if (edge.sources.aligned) {
        edge.feeds.emplace_back(cell, static_cast<std::int32_t>(canonical(cell)));
        continue;
      }
      for (const std::int32_t source : edge.sources.by_need[c]) {
        if (source >= 0 && home.devices[static_cast<std::size_t>(source)] == cells[c].device)
          edge.feeds.emplace_back(cell, static_cast<std::int32_t>(canonical(source)));
      }
    }
  }
  start_together(cluster_, fan_out.arrivals);
  std::vector<Returning> returning;
  std::vector<const LayerFragment*> joint_readers;
  for (std::size_t r = 0; r < edges.size(); ++r) {
    if (fan_out.edges[r].direct) continue;
    returning.push_back({needs(*edges[r]), &edges[r]->back});
    joint_readers.push_back(edges[r]->reader);
    fan_out.joint.edges.push_back(static_cast<std::int32_t>(r));
  }
  const auto count = [&](const GradientReturn& back) {
    for (const Movement& movement : back.movements) {
      for (const std::int32_t cell : movement.producers) ++additions[canonical(cell)];
    }
  };
  TensorLayout computed(home.cells, whole_sends_);
  const JointReturn joint_return =
      home.plan.apart ? JointReturn{} : parsim::lowering::joint_return(computed, returning);
  if (!joint_return.given.empty()) {
    count(joint_return.back);
    make_joint(fan_out.joint, joint_readers, joint_return, home, additions);
    return fan_out;
  }
  fan_out.joint.edges.clear();
  for (const EdgeFragment* edge : edges) count(edge->back);
  for (std::size_t r = 0; r < edges.size(); ++r) {
    fan_out.edges[r].returns = returns(*edges[r]);
    settle(fan_out.edges[r].returns, fan_out.edges[r].stores, home, additions);
  }
  return fan_out;
}

void Fragments::make_joint(FanOut::Joint& joint, const std::vector<const LayerFragment*>& readers,
                           const JointReturn& joint_return, const LayerFragment& home,
                           const std::vector<std::int32_t>& additions) {
  std::map<DeviceId, std::vector<std::int32_t>> numbers;  // of devices, in a list as senders are
  const auto number = [&](DeviceId device) {
    const auto [entry, fresh] = numbers.try_emplace(device, 1, joint.devices);
    if (fresh) ++joint.devices;
    return entry->second[0];
  };
  const std::vector<Cell>& first = readers[0]->cells;
  for (std::size_t c = 0; c < first.size(); ++c)
    joint.kernels.emplace_back(static_cast<std::int32_t>(c), number(first[c].device));
  for (std::size_t e = 1; e < readers.size(); ++e) {
    const std::vector<Cell>& cells = readers[e]->cells;
    for (const auto& [device, region] : joint_return.given[e]) {
      FanOut::Joint::Addition addition{static_cast<std::int32_t>(e),
                                       number(device),
                                       device,
                                       region,
                                       local(device, region, 3),
                                       {}};
      for (std::size_t c = 0; c < cells.size(); ++c) {
        if (cells[c].device == device) addition.after.push_back(static_cast<std::int32_t>(c));
      }
      joint.additions.push_back(std::move(addition));
    }
  }
  joint.returns = priced_returns(joint_return.back, home, numbers);
  settle(joint.returns, joint.stores, home, additions);
}

const std::vector<FanOut::Return>& Fragments::returns(EdgeFragment& edge) {
  if (!edge.returns.empty() || edge.back.movements.empty()) return edge.returns;
  std::map<DeviceId, std::vector<std::int32_t>> senders;
  for (std::size_t c = 0; c < edge.reader->cells.size(); ++c)
    senders[edge.reader->cells[c].device].push_back(static_cast<std::int32_t>(c));
  return edge.returns = priced_returns(edge.back, *edge.home, senders);
}

std::vector<FanOut::Return> Fragments::priced_returns(
    const GradientReturn& back, const LayerFragment& home,
    const std::map<DeviceId, std::vector<std::int32_t>>& senders) {
  std::vector<FanOut::Return> returns;
  for (const Movement& movement : back.movements) {
    FanOut::Return& way = returns.emplace_back();
    way.movement = movement;
    way.price = priced(movement);
    way.legs = priced(movement.legs);
    const auto wait_for = [&](DeviceId device, std::vector<std::int32_t>& after) {
      const auto sender = senders.find(device);
      if (sender == senders.end()) return;
      after.insert(after.end(), sender->second.begin(), sender->second.end());
    };
    const bool relayed = movement.pattern == Pattern::scatter_gather;
    const std::size_t count = is_collective(movement.pattern) ? movement.devices.size() : 1;
    for (std::size_t d = 0; d < count && !relayed; ++d) wait_for(movement.devices[d], way.after);
    for (const DeviceId device : movement.summing) wait_for(device, way.after);
    if (!movement.summing.empty() && pricer_ != nullptr) {
      std::int64_t elements = 0;
      for (const Region& region : movement.sums) elements += region.volume();
      way.sum = pricer_->communications.ring(CollectiveKind::reduce_scatter, movement.summing,
                                             Bytes{elements * element_});
    }
    for (const Leg& leg : movement.legs) wait_for(leg.from, way.leg_after.emplace_back());
    if (!home.partial_sums || !home.plan.overlap) continue;
    way.ring = gather_ring(movement, home.cells);
    for (std::size_t r = 0; r < way.ring.members; ++r) {
      way.ring.copies.push_back(local(movement.devices[r], movement.regions[r], 2));
      wait_for(movement.devices[r], way.leg_after.emplace_back());
    }
  }
  start_together(cluster_, returns);
  return returns;
}

void Fragments::settle(std::vector<FanOut::Return>& returns, std::vector<FanOut::Store>& stores,
                       const LayerFragment& home,
                       const std::vector<std::int32_t>& additions) const {
  const auto canonical = [&](std::int32_t cell) {
    return home.canonical[static_cast<std::size_t>(cell)];
  };
  for (FanOut::Return& way : returns) {
    const Movement& movement = way.movement;
    way.alone =
        std::all_of(movement.producers.begin(), movement.producers.end(), [&](std::int32_t cell) {
          return additions[static_cast<std::size_t>(canonical(cell))] == 1;
        });
    if (!way.alone) way.ring = {};
    Region whole;
    for (const Region& share : movement.regions) whole = hull(whole, share);
    for (const std::int32_t cell : movement.producers) {
      if (movement.pattern == Pattern::local_add || way.alone) {
        way.feeds.push_back(canonical(cell));
        continue;
      }
      const bool partial_sum = movement.pattern == Pattern::all_reduce;
      const auto same = [&](const FanOut::Store& store) {
        return store.cell == canonical(cell) && store.partial_sum == partial_sum;
      };
      auto store = std::find_if(stores.begin(), stores.end(), same);
      if (store == stores.end())
        store = stores.insert(stores.end(), {canonical(cell), partial_sum, {}, 0});
      store->region = hull(store->region, movement.pattern == Pattern::scatter_gather ? whole
                                          : is_collective(movement.pattern)
                                              ? home.cells[static_cast<std::size_t>(cell)].part.out
                                              : movement.regions[0]);
      way.stores.push_back(static_cast<std::int32_t>(store - stores.begin()));
    }
  }
  for (FanOut::Store& store : stores) {
    const DeviceId device = home.devices[static_cast<std::size_t>(store.cell)];
    store.seconds = local(device, store.region, 3);
  }
}

}  // namespace parsim::lowering
