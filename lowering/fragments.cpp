#include "lowering/fragments.hpp"

#include <algorithm>
#include <tuple>

namespace parsim::lowering {

namespace {

/// What moves between layers depends on.
void append_moves(std::vector<std::int32_t>& key, const LayerPlan& plan) {
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
  key.push_back(-3);
  key.push_back((plan.joined ? 1 : 0) + (plan.regather ? 2 : 0) + (plan.overlap ? 4 : 0) +
                (plan.apart ? 8 : 0));
  key.push_back(plan.ring ? -1 - plan.zigzag : plan.zigzag);
  key.push_back(plan.token_parts);
}

/// What sums of its gradients and its states depend on besides.
void append_states(std::vector<std::int32_t>& key, const LayerPlan& plan) {
  key.push_back(static_cast<std::int32_t>(plan.sync.kind));
  key.push_back(plan.sync.server.value);
  key.push_back(plan.zero.stage + (plan.zero.group.node ? 4 : 0));
  key.push_back(plan.zero.group.ranks);
  for (const std::int64_t share : plan.zero.shares) {
    key.push_back(static_cast<std::int32_t>(share));
    key.push_back(static_cast<std::int32_t>(share >> 32));
  }
}

}  // namespace

Fragments::Fragments(const Network& network, const Cluster& cluster, const Structure& structure,
                     std::int64_t samples, Framework framework, Pricer* pricer, bool returns)
    : network_(network),
      cluster_(cluster),
      structure_(structure),
      samples_(samples),
      whole_sends_(framework == Framework::megatron),
      pricer_(pricer),
      returns_(returns),
      element_(pricer == nullptr ? 0 : element_bytes(pricer->input.precision)),
      layers_(network.layers.size()),
      numbers_(network.layers.size()),
      moves_(network.layers.size()),
      edges_(network.layers.size()),
      edge_numbers_(network.layers.size()),
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
  append_moves(key, plan);
  const auto of_moves = static_cast<std::ptrdiff_t>(key.size());
  append_states(key, plan);
  const std::size_t like = structure_.like[id.index()].index();
  const auto next = static_cast<std::int32_t>(layers_[like].size());
  const auto [entry, fresh] = numbers_[like].try_emplace(std::move(key), next);
  if (fresh) {
    const Key& known = entry->first;
    const auto [first, moves_else] =
        moves_[like].try_emplace(Key(known.begin(), known.begin() + of_moves), next);
    const auto moves = static_cast<std::size_t>(first->second);
    LayerFragment made = moves_else ? make_layer(id, plan) : layers_[like][moves];
    made.plan = plan;
    made.moves = first->second;
    layers_[like].push_back(std::move(made));
    count_made();
    cells_kept_ += plan.devices.size();
  }
  return entry->second;
}

LayerFragment Fragments::make_layer(LayerId id, const LayerPlan& plan) {
  LayerFragment fragment;
  fragment.plan = plan;
  fragment.cells = cells(network_, id, plan, samples_);
  fragment.devices.reserve(fragment.cells.size());
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
  for (std::vector<double>* times : {&fragment.forward, &fragment.backward, &fragment.weights})
    times->reserve(fragment.cells.size());
  for (const Cell& cell : fragment.cells) {
    const auto time = [&](Pass pass) {
      return pricer_->kernels.of(id, cell.part, pass, cell.device).time.count();
    };
    fragment.forward.push_back(time(Pass::forward));
    fragment.backward.push_back(data ? time(two ? Pass::backward_data : Pass::backward) : 0);
    fragment.weights.push_back(back && two && parameters ? time(Pass::backward_weights) : 0);
  }
}

}  // namespace parsim::lowering
