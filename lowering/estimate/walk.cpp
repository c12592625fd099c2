// The walk through a step. It mirrors lower(), with the same order of operations and the same
// waits, but an operation is only the time at which it ends. A change in lower() needs one here
// (tests/lowering/estimate_test.cpp compares the two on random plans).
#include "lowering/estimate/walk.hpp"

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::lowering {

Estimator::Estimator(const StepInput& input, LinkSharing sharing)
    : state_(std::make_unique<State>(input, sharing)) {}
Estimator::~Estimator() = default;

Seconds Estimator::step_time(const Plan& plan) { return state_->run(plan); }

Seconds Estimator::State::run(const Plan& wanted) {
  begin(wanted);
  for (const Slot& slot : order) emit(slot);
  finish();
  return Seconds{latest};
}

double Estimator::State::occupy(const PricedCommunication& communication, Stream stream,
                                double after) {
  const std::size_t offset = communication.local ? 0 : 2 * static_cast<std::size_t>(stream);
  double start = after;
  for (const std::uint32_t queue : communication.queues)
    start = std::max(start, queues[queue + offset]);
  double end = start + communication.seconds;
  if (sharing == LinkSharing::queued) {
    for (const LinkLoad& load : communication.loads) {
      double& busy = links[load.hop];
      busy = std::max(busy, start) + load.seconds;
      end = std::max(end, busy + (communication.seconds - communication.busiest));
    }
  }
  for (const std::uint32_t queue : communication.queues) queues[queue + offset] = end;
  latest = std::max(latest, end);
  return end;
}

double Estimator::State::kernel(DeviceId device, double after, double seconds) {
  double& queue = queues[device.index() * static_cast<std::size_t>(queues_per_device)];
  queue = std::max(queue, after) + seconds;
  latest = std::max(latest, queue);
  return queue;
}

double Estimator::State::arrival(LayerId producer, std::size_t index, std::int32_t m,
                                 LayerId reader) {
  const TimeOffsets& at_layer = offsets[at(producer, m)];
  double& time = table[at_layer.arrivals + index];
  if (time != not_yet) return time;
  const FanOut::Arrival& arrival = fans[producer.index()]->arrivals[index];
  const auto ready = [&](const std::vector<std::int32_t>& cells) {
    double after = 0;
    for (const std::int32_t cell : cells) {
      after = std::max(after, table[at_layer.ready + static_cast<std::size_t>(cell)]);
    }
    return after;
  };
  const Stream stream = stream_between(producer, reader, false);
  if (arrival.legs.empty()) {
    time = occupy(arrival.communication, stream, ready(arrival.producers));
    return time;
  }
  double received = 0;
  double* sent = &table[at_layer.legs + arrival.first_leg];
  for (const FanOut::Leg& leg : arrival.legs) {
    *sent = occupy(leg.communication, stream, ready(leg.after));
    received = std::max(received, *sent++);
  }
  time = occupy(arrival.communication, Stream::tensor, received);
  return time;
}

bool Estimator::State::aligned_operands(LayerId id, std::int32_t m) {
  by_cell.assign(layers[id.index()]->cells.size(), 0);
  bool others = false;
  const Layer& layer = input.network[id];
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const LayerId producer = layer.inputs[i];
    if (structure.flow.source[producer.index()]) continue;
    if (!edge(id, i).sources.aligned) {
      others = true;
      continue;
    }
    const double* ready = &table[offsets[at(producer, m)].ready];
    for (std::size_t c = 0; c < by_cell.size(); ++c) by_cell[c] = std::max(by_cell[c], ready[c]);
  }
  return others;
}

double Estimator::State::arrived_operands(LayerId id, std::size_t cell, std::int32_t m) {
  double after = 0;
  const Layer& layer = input.network[id];
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const LayerId producer = layer.inputs[i];
    if (structure.flow.source[producer.index()]) continue;
    const Sources& sources = edge(id, i).sources;
    if (sources.aligned) continue;
    const std::size_t ready = offsets[at(producer, m)].ready;
    for (const std::int32_t source : sources.by_need[cell]) {
      after = std::max(after, source >= 0
                                  ? table[ready + static_cast<std::size_t>(source)]
                                  : arrival(producer, static_cast<std::uint32_t>(~source), m, id));
    }
  }
  return after;
}

void Estimator::State::emit(const Slot& slot) {
  const std::vector<LayerId>& stage = members[static_cast<std::size_t>(slot.stage)];
  if (slot.direction == Direction::forward) {
    for (const LayerId id : stage) {
      if (!structure.flow.source[id.index()]) forward(id, slot.micro_batch, false);
    }
    return;
  }
  for (const LayerVisit& visit : visits[static_cast<std::size_t>(slot.stage)]) {
    visit.forward ? forward(visit.layer, slot.micro_batch, true)
                  : backward(visit.layer, slot.micro_batch);
  }
}

/// A recomputed output overwrites the first one, which may still be in transit to other devices.
void Estimator::State::await_departures(LayerId id, std::int32_t m) {
  const FanOut* fan = fans[id.index()];
  if (fan == nullptr) return;
  const double* times = &table[offsets[at(id, m)].arrivals];
  for (std::size_t a = 0; a < fan->arrivals.size(); ++a) {
    if (times[a] == not_yet) continue;
    const FanOut::Arrival& arrival = fan->arrivals[a];
    const double* sent = &table[offsets[at(id, m)].legs + arrival.first_leg];
    for (const FanOut::Leg& leg : arrival.legs) {
      double& after = by_cell[static_cast<std::size_t>(leg.after[0])];
      after = std::max(after, *sent++);
    }
    if (!arrival.legs.empty()) continue;
    for (const std::int32_t cell : arrival.producers) {
      double& after = by_cell[static_cast<std::size_t>(cell)];
      after = std::max(after, times[a]);
    }
  }
}

void Estimator::State::forward(LayerId id, std::int32_t m, bool again) {
  const LayerFragment& layer = *layers[id.index()];
  double* ready = &table[offsets[at(id, m)].ready];
  const bool others = aligned_operands(id, m);
  if (again) {
    await_departures(id, m);
    for (const LayerFragment::Sum& sum : layer.sums) {
      for (const std::int32_t c : sum.cells) {
        const auto cell = static_cast<std::size_t>(c);
        by_cell[cell] = std::max(by_cell[cell], ready[cell]);
      }
    }
  }
  for (std::size_t c = 0; c < layer.devices.size(); ++c) {
    const double after = others ? std::max(by_cell[c], arrived_operands(id, c, m)) : by_cell[c];
    ready[c] = kernel(layer.devices[c], after, layer.forward[c]);
  }
  for (const LayerFragment::Sum& sum : layer.sums) {
    double after = 0;
    for (const std::int32_t c : sum.cells) after = std::max(after, ready[c]);
    const double end = occupy(sum.communication, Stream::tensor, after);
    for (const std::int32_t c : sum.cells) ready[c] = end;
  }
}

double Estimator::State::repeated_sums(LayerId id, std::size_t cell, std::int32_t m,
                                       double after) const {
  const Layer& layer = input.network[id];
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const LayerId producer = layer.inputs[i];
    if (!dropped[producer.index()] || layers[producer.index()]->sums.empty()) continue;
    const double* ready = &table[offsets[at(producer, m)].ready];
    const Sources& sources = edge(id, i).sources;
    if (sources.aligned) {
      after = std::max(after, ready[cell]);
      continue;
    }
    for (const std::int32_t source : sources.by_need[cell]) {
      if (source >= 0) after = std::max(after, ready[source]);
    }
  }
  return after;
}

void Estimator::State::backward(LayerId id, std::int32_t m) {
  const LayerFragment& layer = *layers[id.index()];
  const std::size_t l = id.index(), at_visit = at(id, m), count = layer.cells.size();
  const double* ready = &table[offsets[at_visit].ready];
  double* gradients = &table[offsets[at_visit].gradients];
  by_cell.assign(count, 0);
  for (std::size_t c = 0; c < count; ++c) {
    const auto home = static_cast<std::size_t>(layer.canonical[c]);
    for (const Waiting& waiting : waiting_in[at_visit]) {
      if (home != c || static_cast<std::size_t>(waiting.cell) != c) continue;
      gradients[c] =
          std::max(gradients[c], kernel(layer.devices[c], waiting.arrived, waiting.seconds));
    }
    const double after =
        repeated_sums(id, c, m, gradients[home] == not_yet ? ready[c] : gradients[home]);
    if (!structure.flow.two_kernels[l]) {
      by_cell[c] = last_backward[l][c] = kernel(layer.devices[c], after, layer.backward[c]);
      continue;
    }
    if (structure.flow.passes_on[l]) {
      by_cell[c] = kernel(layer.devices[c], after, layer.backward[c]);
    }
    if (!input.network[id].parameters.empty()) {
      last_backward[l][c] = kernel(layer.devices[c], after, layer.weights[c]);
    }
  }
  for (std::size_t i = 0; i < input.network[id].inputs.size(); ++i) {
    if (!structure.flow.source[input.network[id].inputs[i].index()]) return_contributions(id, i, m);
  }
  for (const std::size_t s : sums_of_layer[l]) {
    if (--backward_left[s] == 0) sum(s);
  }
}

void Estimator::State::return_contributions(LayerId id, std::size_t i, std::int32_t m) {
  const FanOut::Edge& way = edge(id, i);
  if (!way.gradient) return;
  const LayerId producer = input.network[id].inputs[i];
  double* gradients = &table[offsets[at(producer, m)].gradients];
  const auto feed = [&](std::int32_t cell, double time) {
    gradients[cell] = std::max(gradients[cell], time);
  };
  for (const auto& [from, cell] : way.feeds) feed(cell, by_cell[static_cast<std::size_t>(from)]);
  const std::vector<std::int32_t>& joint = fans[producer.index()]->joint.edges;
  const std::int32_t position = structure.reader_index[id.index()][i];
  const auto found = std::find(joint.begin(), joint.end(), position);
  if (found == joint.end()) return move_home(producer, id, m, way.stores, way.returns, by_cell);
  auto& contributions = joined[at(producer, m)];
  contributions.resize(joint.size());
  contributions[static_cast<std::size_t>(found - joint.begin())] = by_cell;
  const bool all = std::none_of(contributions.begin(), contributions.end(),
                                [](const std::vector<double>& times) { return times.empty(); });
  if (all) return_jointly(producer, m);
}

void Estimator::State::return_jointly(LayerId producer, std::int32_t m) {
  const FanOut::Joint& joint = fans[producer.index()]->joint;
  const auto& contributions = joined[at(producer, m)];
  std::vector<double> ready(static_cast<std::size_t>(joint.devices), 0);
  for (const auto& [cell, device] : joint.kernels) {
    double& time = ready[static_cast<std::size_t>(device)];
    time = std::max(time, contributions[0][static_cast<std::size_t>(cell)]);
  }
  for (const FanOut::Joint::Addition& addition : joint.additions) {
    double after = 0;
    for (const std::int32_t cell : addition.after) {
      after = std::max(
          after,
          contributions[static_cast<std::size_t>(addition.edge)][static_cast<std::size_t>(cell)]);
    }
    double& time = ready[static_cast<std::size_t>(addition.device)];
    time = std::max(time, kernel(addition.where, after, addition.seconds));
  }
  const auto first = static_cast<std::size_t>(joint.edges[0]);
  move_home(producer, structure.readers[producer.index()][first].layer, m, joint.stores,
            joint.returns, ready);
}

void Estimator::State::move_home(LayerId producer, LayerId reader, std::int32_t m,
                                 const std::vector<FanOut::Store>& stores,
                                 const std::vector<FanOut::Return>& returns,
                                 const std::vector<double>& times) {
  double* gradients = &table[offsets[at(producer, m)].gradients];
  std::vector<Waiting>& waiting = waiting_in[at(producer, m)];
  const std::size_t first = waiting.size();
  for (const FanOut::Store& store : stores) waiting.push_back({store.cell, store.seconds, 0});
  for (const FanOut::Return& back : returns) {
    const auto given = [&](const std::vector<std::int32_t>& senders) {
      double after = 0;
      for (const std::int32_t c : senders) {
        after = std::max(after, times[static_cast<std::size_t>(c)]);
      }
      return after;
    };
    const Stream stream = stream_between(producer, reader, true);
    double end = 0;
    if (back.legs.empty()) {
      end = occupy(back.communication, stream, given(back.after));
    } else {
      const bool adds = !back.sum.queues.empty();
      const double summed = adds ? occupy(back.sum, Stream::tensor, given(back.after)) : 0;
      for (const FanOut::Leg& leg : back.legs) {
        end = std::max(end, occupy(leg.communication, stream, adds ? summed : given(leg.after)));
      }
      if (!back.communication.queues.empty()) end = occupy(back.communication, Stream::tensor, end);
    }
    for (const std::int32_t cell : back.feeds) gradients[cell] = std::max(gradients[cell], end);
    for (const std::int32_t store : back.stores) {
      double& arrived = waiting[first + static_cast<std::size_t>(store)].arrived;
      arrived = std::max(arrived, end);
    }
  }
}

void Estimator::State::sum(std::size_t s) {
  const SumFragment& sum = *sums[s];
  const SyncGroup& group = sum.group;
  const auto last_on = [&](std::size_t position) {
    double last = 0;
    for (const auto& [layer, cell] : sum.kernels[position]) {
      last = std::max(last, last_backward[layer.index()][static_cast<std::size_t>(cell)]);
    }
    return last;
  };
  if (group.served()) {
    for (std::size_t d = 0; d < group.devices.size(); ++d) {
      pushed[s].push_back(occupy(sum.pushes[d], Stream::gradient, last_on(d)));
    }
    for (std::size_t d = 0; d < group.mirrors.size(); ++d) {
      mirrors_done[s].push_back(last_on(group.devices.size() + d));
    }
    const bool busy = std::any_of(layers.begin(), layers.end(), [&](const LayerFragment* layer) {
      return std::find(layer->devices.begin(), layer->devices.end(), group.sync.server) !=
             layer->devices.end();
    });
    if (!busy) server_return(s);
    return;
  }
  double after = 0;
  for (std::size_t d = 0; d < group.devices.size(); ++d) {
    pushed[s].push_back(last_on(d));
    after = std::max(after, pushed[s].back());
  }
  if (group.devices.size() == 1) return;
  pushed[s].assign(group.devices.size(), occupy(sum.all_reduce, Stream::gradient, after));
}

void Estimator::State::server_return(std::size_t s) {
  const SumFragment& sum = *sums[s];
  const double updated = kernel(
      sum.group.sync.server, *std::max_element(pushed[s].begin(), pushed[s].end()), sum.updates[0]);
  const std::size_t senders = sum.group.devices.size();
  for (std::size_t d = 0; d < sum.pulls.size(); ++d) {
    const double after = d < senders ? updated : std::max(updated, mirrors_done[s][d - senders]);
    occupy(sum.pulls[d], Stream::gradient, after);
  }
  returned[s] = true;
}

void Estimator::State::finish() {
  std::map<DeviceId, double> last_sum;
  for (std::size_t s = 0; s < sums.size(); ++s) {
    const SyncGroup& group = sums[s]->group;
    if (group.served()) continue;
    for (std::size_t d = 0; d < pushed[s].size(); ++d) {
      double& last = last_sum[group.devices[d]];
      last = std::max(last, pushed[s][d]);
    }
  }
  for (std::size_t s = 0; s < sums.size(); ++s) {
    const SumFragment& sum = *sums[s];
    if (pushed[s].empty() || returned[s]) continue;
    if (sum.group.served()) {
      server_return(s);
      continue;
    }
    for (std::size_t d = 0; d < sum.group.devices.size(); ++d) {
      const DeviceId device = sum.group.devices[d];
      kernel(device, last_sum[device], sum.updates[d]);
    }
  }
}

}  // namespace parsim::lowering
