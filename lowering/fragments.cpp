#include "lowering/fragments.hpp"

#include <algorithm>
#include <tuple>

namespace parsim::lowering {

namespace {

void append(std::vector<std::int32_t>& key, const LayerPlan& plan) {
  for (const Cut& cut : plan.cuts) {
    key.push_back(static_cast<std::int32_t>(cut.dim));
    for (const std::int64_t size : cut.sizes) {
      key.push_back(static_cast<std::int32_t>(size));
      key.push_back(static_cast<std::int32_t>(size >> 32));
    }
    key.push_back(-1);
  }
  key.push_back(-2);
  for (const DeviceId device : plan.devices) key.push_back(device.value);
  key.push_back(static_cast<std::int32_t>(plan.sync.kind));
  key.push_back(plan.sync.server.value);
  key.push_back((plan.joined ? 1 : 0) + (plan.regather ? 2 : 0) + (plan.overlap ? 4 : 0));
  key.push_back(plan.ring ? -1 - plan.zigzag : plan.zigzag);
  key.push_back(plan.zero.stage + (plan.zero.group.node ? 4 : 0));
  key.push_back(plan.zero.group.ranks);
  for (const std::int64_t share : plan.zero.shares) {
    key.push_back(static_cast<std::int32_t>(share));
    key.push_back(static_cast<std::int32_t>(share >> 32));
  }
}

/// By layer the first that is like it: of the same kind, with the same shapes and gradients, as are
/// all layers within so many edges of both. Prices look no further.
std::vector<LayerId> alike(const Network& network, const GradientFlow& flow,
                           const std::vector<std::vector<Consumer>>& readers) {
  constexpr int edges = 8;
  const std::size_t count = network.layers.size();
  std::vector<std::vector<Shape>> inputs;
  for (std::size_t l = 0; l < count; ++l) inputs.push_back(input_shapes(network, LayerId{l}));
  const auto same = [&](std::size_t a, std::size_t b) {
    const Layer &x = network.layers[a], &y = network.layers[b];
    const auto same_extents = [&](ParameterId p, ParameterId q) {
      return network[p].extents == network[q].extents;
    };
    return x.kind == y.kind && x.out == y.out && inputs[a] == inputs[b] &&
           std::equal(x.parameters.begin(), x.parameters.end(), y.parameters.begin(),
                      y.parameters.end(), same_extents) &&
           flow.source[a] == flow.source[b] && flow.reaches_loss[a] == flow.reaches_loss[b] &&
           flow.wants[a] == flow.wants[b] && flow.passes_on[a] == flow.passes_on[b];
  };
  std::vector<std::size_t> first(count);  // by layer
  std::map<std::int64_t, std::vector<std::size_t>> by_size;
  for (std::size_t l = 0; l < count; ++l) {
    std::vector<std::size_t>& known = by_size[network.layers[l].out.elements()];
    const auto found =
        std::find_if(known.begin(), known.end(), [&](std::size_t k) { return same(k, l); });
    first[l] = found == known.end() ? l : *found;
    if (found == known.end()) known.push_back(l);
  }
  for (int step = 0; step < edges; ++step) {
    std::map<std::vector<std::size_t>, std::size_t> known;  // by layer and its neighbours
    std::vector<std::size_t> next(count);
    for (std::size_t l = 0; l < count; ++l) {
      std::vector<std::size_t> around{first[l]};
      for (const LayerId from : network.layers[l].inputs) around.push_back(first[from.index()]);
      for (const Consumer& reader : readers[l]) {
        around.push_back(first[reader.layer.index()]);
        around.push_back(static_cast<std::size_t>(reader.input));
      }
      next[l] = known.try_emplace(std::move(around), l).first->second;
    }
    if (next == first) break;
    first = std::move(next);
  }
  return {first.begin(), first.end()};
}

}  // namespace

Structure::Structure(const Network& network)
    : flow(gradient_flow(network)),
      readers(consumers(network)),
      reader_index(network.layers.size()),
      users(users_of_parameters(network)),
      like(alike(network, flow, readers)) {
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    reader_index[l].resize(network.layers[l].inputs.size());
  }
  for (const std::vector<Consumer>& list : readers) {
    for (std::size_t r = 0; r < list.size(); ++r) {
      reader_index[list[r].layer.index()][list[r].input] = static_cast<std::int32_t>(r);
    }
  }
}

Fragments::Fragments(const Network& network, const Cluster& cluster, const Structure& structure,
                     std::int64_t samples, Pricer* pricer, bool returns)
    : network_(network),
      cluster_(cluster),
      structure_(structure),
      samples_(samples),
      pricer_(pricer),
      returns_(returns),
      element_(pricer == nullptr ? 0 : element_bytes(pricer->input.precision)),
      layers_(network.layers.size()),
      numbers_(network.layers.size()),
      fan_outs_(network.layers.size()) {}

PricedCommunication Fragments::priced(const Movement& movement) {
  return pricer_ == nullptr ? PricedCommunication{}
                            : pricer_->communications.movement(movement, element_);
}

std::vector<PricedCommunication> Fragments::priced(const std::vector<Leg>& legs) {
  std::vector<PricedCommunication> prices(legs.size());
  for (std::size_t i = 0; i < legs.size() && pricer_ != nullptr; ++i) {
    prices[i] = pricer_->communications.transfer(legs[i].from, legs[i].to,
                                                 Bytes{legs[i].region.volume() * element_});
  }
  return prices;
}

double Fragments::local(DeviceId device, const Region& region, std::int64_t factor) const {
  if (pricer_ == nullptr) return 0;
  return pricer_->input.cost.memory(device, Bytes{factor * region.volume() * element_})
      .time.count();
}

std::int32_t Fragments::layer(LayerId id, const LayerPlan& plan) {
  Key key;
  append(key, plan);
  const std::size_t like = structure_.like[id.index()].index();
  const auto next = static_cast<std::int32_t>(layers_[like].size());
  const auto [entry, fresh] = numbers_[like].try_emplace(std::move(key), next);
  if (fresh) {
    layers_[like].push_back(make_layer(id, plan));
    count_made();
    cells_kept_ += plan.devices.size();
  }
  return entry->second;
}

LayerFragment Fragments::make_layer(LayerId id, const LayerPlan& plan) {
  LayerFragment fragment;
  fragment.plan = plan;
  fragment.cells = cells(network_, id, plan, samples_);
  for (const Cell& cell : fragment.cells) fragment.devices.push_back(cell.device);
  if (structure_.flow.source[id.index()]) return fragment;
  std::map<std::pair<DeviceId, Region>, std::int32_t> first;
  std::map<std::pair<std::int64_t, Region>, std::vector<std::int32_t>> sums;  // by replica and part
  for (std::size_t c = 0; c < fragment.cells.size(); ++c) {
    const Cell& cell = fragment.cells[c];
    const auto number = static_cast<std::int32_t>(c);
    fragment.canonical.push_back(
        first.try_emplace({cell.device, cell.part.out}, number).first->second);
    fragment.partial_sums = fragment.partial_sums || !cell.part.contraction.empty();
  }
  for (std::size_t c = 0; c < fragment.cells.size() && fragment.partial_sums; ++c) {
    const Cell& cell = fragment.cells[c];
    sums[{cell.replica, cell.part.out}].push_back(static_cast<std::int32_t>(c));
  }
  for (auto& [key, members] : sums) {
    // Next to larger groups, a group of one device has the whole contraction: nothing to sum.
    const auto one = static_cast<std::size_t>(members[0]);
    if (fragment.cells[one].part.contraction.empty()) continue;
    std::vector<DeviceId> devices;
    for (const std::int32_t c : members)
      devices.push_back(fragment.devices[static_cast<std::size_t>(c)]);
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    fragment.sums.push_back({std::move(members), std::move(devices), key.second, {}});
    if (network_[id].kind.as<Loss>() != nullptr) give_statistics(id, fragment);
  }
  if (plan.ring) fragment.rings = rings_of(network_, id, fragment.cells);
  if (plan.overlap) fragment.chunks = chunks_of(network_[id].out, fragment.cells);
  if (pricer_ != nullptr) price(fragment, id);
  return fragment;
}

void Fragments::price(LayerFragment& fragment, LayerId id) {
  const bool parameters = !network_[id].parameters.empty();
  const bool two = structure_.flow.two_kernels[id.index()];
  const bool back = structure_.flow.wants[id.index()];
  const bool data = back && (!two || structure_.flow.passes_on[id.index()]);
  if (!fragment.rings.empty()) return price_rings(fragment, id, data);
  if (!fragment.chunks.empty()) return price_chunks(fragment, id);
  for (const Cell& cell : fragment.cells) {
    const auto time = [&](Pass pass) {
      return pricer_->kernels.of(id, cell.part, pass, cell.device).time.count();
    };
    fragment.forward.push_back(time(Pass::forward));
    fragment.backward.push_back(data ? time(two ? Pass::backward_data : Pass::backward) : 0);
    fragment.weights.push_back(back && two && parameters ? time(Pass::backward_weights) : 0);
  }
}

std::vector<Need> Fragments::needs(const Consumer& reader, const LayerFragment& fragment) const {
  const Layer& layer = network_[reader.layer];
  const std::vector<Shape> inputs = input_shapes(network_, reader.layer);
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

const FanOut& Fragments::fan_out(LayerId producer, const std::vector<std::int32_t>& numbers) {
  Key key{numbers[producer.index()]};
  // Layers that are alike have readers with neighbours that are alike not quite as far, so a
  // reader's fragment has its number among those of its own likes.
  for (const Consumer& reader : structure_.readers[producer.index()]) {
    key.push_back(structure_.like[reader.layer.index()].value);
    key.push_back(numbers[reader.layer.index()]);
  }
  auto& known = fan_outs_[structure_.like[producer.index()].index()];
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  count_made();
  return known.emplace(std::move(key), make_fan_out(producer, numbers)).first->second;
}

FanOut Fragments::make_fan_out(LayerId producer, const std::vector<std::int32_t>& numbers) {
  const LayerFragment& home = layer(producer, numbers[producer.index()]);
  const std::vector<Consumer>& readers = structure_.readers[producer.index()];
  FanOut fan_out;
  std::vector<std::vector<Need>> needed;  // by reader
  std::vector<Need> all_needed;
  for (const Consumer& reader : readers) {
    needed.push_back(needs(reader, layer(reader.layer, numbers[reader.layer.index()])));
    if (!home.sums.empty())
      all_needed.insert(all_needed.end(), needed.back().begin(), needed.back().end());
  }
  std::vector<Cell> held = home.cells;
  fan_out.sums = make_parts_sums(home, all_needed, held);
  // Gradients return to all of what a cell computes, also where it keeps a share of the sum.
  TensorLayout layout(std::move(held)), computed(home.cells);
  std::vector<GradientReturn> backs(readers.size());
  std::vector<std::size_t> first_reader;  // by arrival
  std::vector<std::int32_t> additions(home.cells.size(), 0);
  const auto canonical = [&](std::int32_t cell) {
    return static_cast<std::size_t>(home.canonical[static_cast<std::size_t>(cell)]);
  };
  for (std::size_t r = 0; r < readers.size(); ++r) {
    const LayerFragment& reader = layer(readers[r].layer, numbers[readers[r].layer.index()]);
    const std::vector<Need>& wanted = needed[r];
    FanOut::Edge& edge = fan_out.edges.emplace_back();
    cells_kept_ += reader.cells.size();
    edge.sources = layout.bring(wanted, cluster_);
    first_reader.resize(layout.arrivals().size(), r);
    edge.gradient = returns_ && structure_.flow.wants[producer.index()] &&
                    structure_.flow.reaches_loss[readers[r].layer.index()];
    if (!edge.gradient) continue;
    backs[r] = return_gradients(computed, wanted);
    edge.direct = backs[r].direct;
    if (edge.direct) {
      for (std::int32_t& count : additions) ++count;
      for (std::size_t c = 0; c < reader.cells.size(); ++c) {
        const auto cell = static_cast<std::int32_t>(c);
        if (edge.sources.aligned) {
          edge.feeds.emplace_back(cell, static_cast<std::int32_t>(canonical(cell)));
          continue;
        }
        for (const std::int32_t source : edge.sources.by_need[c]) {
          if (source >= 0 &&
              home.cells[static_cast<std::size_t>(source)].device == reader.cells[c].device) {
            edge.feeds.emplace_back(cell, static_cast<std::int32_t>(canonical(source)));
          }
        }
      }
    }
  }
  std::vector<Returning> returning;
  std::vector<const LayerFragment*> joint_readers;
  for (std::size_t r = 0; r < readers.size(); ++r) {
    if (!fan_out.edges[r].gradient || backs[r].direct) continue;
    const LayerFragment& reader = layer(readers[r].layer, numbers[readers[r].layer.index()]);
    returning.push_back({needed[r], &backs[r]});
    joint_readers.push_back(&reader);
    fan_out.joint.edges.push_back(static_cast<std::int32_t>(r));
  }
  const JointReturn joint_return = parsim::lowering::joint_return(computed, returning);
  const bool apart = joint_return.given.empty();
  if (apart) fan_out.joint.edges.clear();
  const auto count = [&](const GradientReturn& back) {
    for (const Movement& movement : back.movements) {
      for (const std::int32_t cell : movement.producers) ++additions[canonical(cell)];
    }
  };
  for (const GradientReturn& back : backs) {
    if (apart) count(back);
  }
  count(joint_return.back);
  for (const Movement& movement : layout.arrivals()) {
    fan_out.arrivals.push_back({movement,
                                priced(movement),
                                priced(movement.legs),
                                fan_out.legs,
                                static_cast<std::int32_t>(first_reader[fan_out.arrivals.size()]),
                                home.plan.regather && movement.pattern == Pattern::all_gather,
                                {}});
    fan_out.legs += movement.legs.size();
    FanOut::Arrival& arrival = fan_out.arrivals.back();
    const Consumer& reader = readers[static_cast<std::size_t>(arrival.edge)];
    if (!layer(reader.layer, numbers[reader.layer.index()]).plan.overlap) continue;
    arrival.ring = gather_ring(movement, home.cells);
    fan_out.legs += arrival.ring.dates();
  }
  start_together(cluster_, fan_out.arrivals);
  if (!apart) {
    make_joint(fan_out.joint, joint_readers, joint_return, home, additions);
    return fan_out;
  }
  for (std::size_t r = 0; r < readers.size(); ++r) {
    const LayerFragment& reader = layer(readers[r].layer, numbers[readers[r].layer.index()]);
    std::map<DeviceId, std::vector<std::int32_t>> senders;
    if (backs[r].movements.empty()) continue;
    for (std::size_t c = 0; c < reader.cells.size(); ++c)
      senders[reader.cells[c].device].push_back(static_cast<std::int32_t>(c));
    make_returns(fan_out.edges[r].stores, fan_out.edges[r].returns, backs[r], home, senders,
                 additions);
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
  make_returns(joint.stores, joint.returns, joint_return.back, home, numbers, additions);
}

void Fragments::make_returns(std::vector<FanOut::Store>& stores,
                             std::vector<FanOut::Return>& returns, const GradientReturn& back,
                             const LayerFragment& home,
                             const std::map<DeviceId, std::vector<std::int32_t>>& senders,
                             const std::vector<std::int32_t>& additions) {
  const std::size_t first = stores.size();
  for (const Movement& movement : back.movements) {
    FanOut::Return way;
    way.movement = movement;
    way.price = priced(movement);
    way.legs = priced(movement.legs);
    const bool relayed = movement.pattern == Pattern::scatter_gather;
    const bool collective = is_collective(movement.pattern);
    const auto wait_for = [&](DeviceId device, std::vector<std::int32_t>& after) {
      const auto sender = senders.find(device);
      if (sender == senders.end()) return;
      after.insert(after.end(), sender->second.begin(), sender->second.end());
    };
    const std::size_t count = collective ? movement.devices.size() : 1;
    for (std::size_t d = 0; d < count && !relayed; ++d) wait_for(movement.devices[d], way.after);
    for (const DeviceId device : movement.summing) wait_for(device, way.after);
    if (!movement.summing.empty() && pricer_ != nullptr) {
      std::int64_t elements = 0;
      for (const Region& region : movement.sums) elements += region.volume();
      way.sum = pricer_->communications.ring(CollectiveKind::reduce_scatter, movement.summing,
                                             Bytes{elements * element_});
    }
    for (const Leg& leg : movement.legs) wait_for(leg.from, way.leg_after.emplace_back());
    Region whole;
    for (const Region& share : movement.regions) whole = hull(whole, share);
    const auto canonical = [&](std::int32_t cell) {
      return home.canonical[static_cast<std::size_t>(cell)];
    };
    way.alone =
        std::all_of(movement.producers.begin(), movement.producers.end(), [&](std::int32_t cell) {
          return additions[static_cast<std::size_t>(canonical(cell))] == 1;
        });
    if (home.partial_sums && home.plan.overlap && way.alone) {
      way.ring = gather_ring(movement, home.cells);
      for (std::size_t r = 0; r < way.ring.members; ++r) {
        way.ring.copies.push_back(local(movement.devices[r], movement.regions[r], 2));
        wait_for(movement.devices[r], way.leg_after.emplace_back());
      }
    }
    for (const std::int32_t cell : movement.producers) {
      if (movement.pattern == Pattern::local_add || way.alone) {
        way.feeds.push_back(canonical(cell));
        continue;
      }
      const bool partial_sum = movement.pattern == Pattern::all_reduce;
      const auto same = [&](const FanOut::Store& store) {
        return store.cell == canonical(cell) && store.partial_sum == partial_sum;
      };
      auto store =
          std::find_if(stores.begin() + static_cast<std::ptrdiff_t>(first), stores.end(), same);
      if (store == stores.end()) {
        store = stores.insert(stores.end(), {canonical(cell), partial_sum, {}, 0});
      }
      store->region =
          hull(store->region, relayed      ? whole
                              : collective ? home.cells[static_cast<std::size_t>(cell)].part.out
                                           : movement.regions[0]);
      way.stores.push_back(static_cast<std::int32_t>(store - stores.begin()));
    }
    returns.push_back(std::move(way));
  }
  start_together(cluster_, returns);
  for (FanOut::Store& store : stores) {
    const DeviceId device = home.devices[static_cast<std::size_t>(store.cell)];
    store.seconds = local(device, store.region, 3);
  }
}

}  // namespace parsim::lowering
