// Return of gradients: contributions of a reader's cells to the gradient of the tensor they read.
#include <set>

#include "core/errors.hpp"
#include "lowering/reshard.hpp"
#include "lowering/reshard_support.hpp"

namespace parsim::lowering {

namespace {

/// A piece of a contribution for one holder of the part it belongs to.
struct Flow {
  DeviceId from;
  std::int32_t cell = 0;  ///< of the tensor: the receiver
  DeviceId to;
  Region piece;
};

/// Contributions by device: everything its cells of the reader add up in one store.
struct Contribution {
  std::int64_t replica = 0;
  std::vector<Region> boxes;
  Region all;
};

std::map<DeviceId, Contribution> contributions(std::span<const Need> needs) {
  std::map<DeviceId, Contribution> by_device;
  for (const Need& need : needs) {
    Contribution& c = by_device[need.device];
    ensure(c.boxes.empty() || c.replica == need.replica,
           "a device computes one replica of a layer");
    c.replica = need.replica;
    c.boxes.push_back(need.region);
    c.all = hull(c.all, need.region);
  }
  return by_device;
}

/// In the plan's order, so that the order of messages does not depend on how a cluster numbers its
/// devices.
std::vector<DeviceId> devices_of(std::span<const Need> needs) {
  std::vector<DeviceId> devices;
  std::set<DeviceId> known;
  for (const Need& need : needs) {
    if (known.insert(need.device).second) devices.push_back(need.device);
  }
  return devices;
}

/// The region of a part that the contribution covers, in disjoint boxes.
std::vector<Region> pieces_of(const Contribution& c, const Region& part) {
  std::vector<Region> boxes;
  for (const Region& box : c.boxes) {
    const Region piece = intersect(box, part);
    const bool known = std::find(boxes.begin(), boxes.end(), piece) != boxes.end();
    if (!box.empty() && !piece.empty() && !known) boxes.push_back(piece);
  }
  return boxes.size() < 2 ? boxes : disjoint(boxes);
}

/// Reduce-scatter, all-reduce, all-gather or all-to-all, if the component is one of them.
std::optional<Movement> collective(const TensorLayout& tensor, std::span<const Flow> flows,
                                   const std::map<DeviceId, Contribution>& given) {
  std::set<DeviceId> devices;
  std::vector<std::int32_t> producers;
  for (const Flow& flow : flows) {
    devices.insert(flow.from);
    devices.insert(flow.to);
    producers.push_back(flow.cell);
  }
  std::sort(producers.begin(), producers.end());
  producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
  std::map<DeviceId, std::vector<Region>> own;
  for (const std::int32_t p : producers) {
    const Cell& cell = tensor.cells()[static_cast<std::size_t>(p)];
    own[cell.device].push_back(cell.part.out);
  }
  std::vector<DeviceId> members(devices.begin(), devices.end());
  std::vector<Region> owns, gives;
  for (const DeviceId device : members) {
    const auto box = exact_union(own[device]);
    const auto contribution = given.find(device);
    if (!box || contribution == given.end()) return std::nullopt;
    owns.push_back(*box);
    gives.push_back(contribution->second.all);
  }
  const std::size_t n = members.size();
  if (n < 2) return std::nullopt;
  std::set<std::pair<DeviceId, DeviceId>> pairs;
  std::int64_t travelling = 0;
  for (const Flow& flow : flows) {
    pairs.insert({flow.from, flow.to});
    travelling += flow.piece.volume();
  }
  bool same_gift = true, same_part = true;
  std::int64_t parts = 0;
  std::vector<Region> shares;  // the border that a strided window skips gets nothing
  for (std::size_t i = 0; i < n; ++i) {
    same_gift = same_gift && gives[i] == gives[0];
    same_part = same_part && owns[i] == owns[0];
    shares.push_back(intersect(owns[i], gives[0]));
    parts += shares[i].volume();
  }
  const bool all_pairs = pairs.size() == n * n;
  if (all_pairs && same_gift && parts == gives[0].volume() &&
      travelling == static_cast<std::int64_t>(n) * parts) {
    return Movement{Pattern::reduce_scatter, members, shares, {}, producers, {}, {}, {}};
  }
  const bool whole_parts = std::all_of(flows.begin(), flows.end(),
                                       [&](const Flow& flow) { return flow.piece == owns[0]; });
  if (all_pairs && same_part && whole_parts) {
    return Movement{Pattern::all_reduce, members, {owns[0]}, {}, producers, {}, {}, {}};
  }
  const bool all_give =
      std::none_of(gives.begin(), gives.end(), [](const Region& gift) { return gift.empty(); });
  if (all_pairs && same_part && all_give && exact_union(gives) == owns[0]) {
    return Movement{Pattern::all_gather, members, gives, {}, producers, {}, {}, {}};
  }
  std::size_t between = 0;
  for (const auto& [from, to] : pairs) between += from != to ? 1 : 0;
  std::int64_t exchanged = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) exchanged += intersect(gives[i], owns[j]).volume();
  }
  if (n > 2 && between == n * (n - 1) && exchanged == travelling) {
    return Movement{Pattern::all_to_all, members, gives, owns, producers, {}, {}, {}};
  }
  return std::nullopt;
}

/// Contributions of one replica to a part: the sender of each box. Nothing if a device sends
/// several boxes or boxes overlap.
using Givers = std::map<Region, std::vector<DeviceId>>;

std::optional<Givers> givers(const std::map<DeviceId, Contribution>& given, std::int64_t replica,
                             const Region& part) {
  Givers result;
  for (const auto& [device, contribution] : given) {
    if (contribution.replica != replica) continue;
    const std::vector<Region> pieces = pieces_of(contribution, part);
    if (pieces.size() > 1) return std::nullopt;
    if (!pieces.empty()) result[pieces[0]].push_back(device);
  }
  for (auto a = result.begin(); a != result.end(); ++a) {
    for (auto b = std::next(a); b != result.end(); ++b) {
      if (!intersect(a->first, b->first).empty()) return std::nullopt;
    }
  }
  return result;
}

/// A box of gradients for holders that have computed none of it. `replicas`: the devices with
/// contributions to it, by replica; several devices of one replica have partial sums.
std::optional<Movement> scatter_gather(const TensorLayout& tensor, const Owner& owner,
                                       const Region& box,
                                       const std::vector<std::vector<DeviceId>>& replicas) {
  Movement movement{Pattern::scatter_gather, {}, {}, {}, owner.cells, {}, {}, {}};
  for (const std::int32_t cell : owner.cells)
    movement.devices.push_back(tensor.cells()[static_cast<std::size_t>(cell)].device);
  const std::size_t holders = movement.devices.size();
  if (replicas[0].size() == 1) {
    if (holders == 1) return std::nullopt;
    const auto shares = even_boxes(box, holders);
    if (!shares) return std::nullopt;
    movement.regions = *shares;
    for (std::size_t i = 0; i < holders; ++i) {
      const DeviceId from = replicas[i % replicas.size()][0];
      movement.legs.push_back({from, movement.devices[i], (*shares)[i], -1});
    }
    return movement;
  }
  movement.summing = replicas[0];
  // The larger of the two groups determines the axis.
  const bool more_holders = holders > movement.summing.size();
  const auto fine = even_boxes(box, std::max(holders, movement.summing.size()));
  if (!fine) return std::nullopt;
  std::size_t axis = 0;
  while ((*fine)[0][axis] == box[axis]) ++axis;
  std::vector<Region> coarse;
  std::int64_t begin = box[axis].begin;
  for (const std::int64_t size :
       even_split(box[axis].size(), std::min(holders, movement.summing.size()))) {
    coarse.push_back(box);
    coarse.back()[axis] = {begin, begin + size};
    begin += size;
  }
  movement.regions = more_holders ? *fine : coarse;
  movement.sums = more_holders ? coarse : *fine;
  for (std::size_t i = 0; i < holders; ++i) {
    for (std::size_t j = 0; j < movement.summing.size(); ++j) {
      const Region piece = intersect(movement.regions[i], movement.sums[j]);
      if (piece.empty()) continue;
      movement.legs.push_back({movement.summing[j], movement.devices[i], piece, -1});
    }
  }
  return movement;
}

/// How contributions reach holders of a part none of whom contributes itself, if they are whole
/// boxes of it: see Movement. Nothing where each box has one sender and one receiver.
std::vector<Movement> from_outside(const TensorLayout& tensor, const Owner& owner,
                                   const std::map<DeviceId, Contribution>& given) {
  std::set<std::int64_t> replicas;
  for (const auto& [device, contribution] : given) replicas.insert(contribution.replica);
  for (const std::int32_t cell : owner.cells) {
    if (given.contains(tensor.cells()[static_cast<std::size_t>(cell)].device)) return {};
  }
  const auto first = givers(given, 0, owner.region);
  if (!first) return {};
  std::vector<Movement> movements;
  for (const auto& [box, devices] : *first) {
    std::vector<std::vector<DeviceId>> by_replica{devices};
    for (const std::int64_t replica : replicas) {
      const auto other = replica == 0 ? std::nullopt : givers(given, replica, owner.region);
      const auto same = other ? other->find(box) : Givers::const_iterator{};
      if (other && same != other->end() && same->second.size() == 1) {
        by_replica.push_back(same->second);
      }
    }
    if (tensor.whole_sends() && owner.cells.size() > 1 && devices.size() == 1 &&
        by_replica.size() >= owner.cells.size()) {
      for (std::size_t i = 0; i < owner.cells.size(); ++i) {
        const std::int32_t cell = owner.cells[i];
        movements.push_back(
            {Pattern::point_to_point,
             {by_replica[i][0], tensor.cells()[static_cast<std::size_t>(cell)].device},
             {box},
             {},
             {cell},
             {},
             {},
             {}});
      }
      continue;
    }
    auto movement = scatter_gather(tensor, owner, box, by_replica);
    if (!movement) return {};
    movements.push_back(std::move(*movement));
  }
  return movements;
}

}  // namespace

GradientReturn return_gradients(TensorLayout& tensor, std::span<const Need> needs) {
  const std::vector<Cell>& cells = tensor.cells();
  GradientReturn result;
  if (tensor.aligned(needs)) return result;

  const std::map<DeviceId, Contribution> given = contributions(needs);
  const std::vector<DeviceId> senders = devices_of(needs);
  // Copies for parts of the tokens get their own parts' contributions.
  std::map<DeviceId, std::int32_t> token_part;
  if (std::any_of(cells.begin(), cells.end(), [](const Cell& c) { return c.token_part > 0; })) {
    for (const Cell& cell : cells) token_part[cell.device] = cell.token_part;
  }
  std::vector<Flow> flows;
  for (const Owner& owner : tensor.owners()) {
    std::vector<Movement> outside = from_outside(tensor, owner, given);
    if (!outside.empty()) {
      result.direct = false;
      for (Movement& movement : outside) result.movements.push_back(std::move(movement));
      continue;
    }
    for (const std::int32_t c : owner.cells) {
      const DeviceId to = cells[static_cast<std::size_t>(c)].device;
      const auto here = given.find(to);
      const std::int64_t replica = here == given.end() ? 0 : here->second.replica;
      for (const DeviceId from : senders) {
        const Contribution& contribution = given.at(from);
        if (contribution.replica != replica) continue;
        const auto part = token_part.find(from);
        if (part != token_part.end() && part->second != token_part[to]) continue;
        for (const Region& piece : pieces_of(contribution, owner.region)) {
          result.direct = result.direct && from == to;
          flows.push_back({from, c, to, piece});
        }
      }
    }
  }
  if (result.direct) return result;

  Components components;
  for (const Flow& flow : flows) components.join(flow.from, flow.to);
  for (const std::vector<Flow>& component :
       group_by(flows, [&](const Flow& flow) { return components.root(flow.to); })) {
    if (auto movement = collective(tensor, component, given)) {
      result.movements.push_back(std::move(*movement));
      continue;
    }
    for (const Flow& flow : component) {
      const bool local = flow.from == flow.to;
      const bool border = given.contains(flow.to) &&
                          flow.piece != cells[static_cast<std::size_t>(flow.cell)].part.out;
      Movement movement{local    ? Pattern::local_add
                        : border ? Pattern::halo
                                 : Pattern::point_to_point,
                        {flow.from},
                        {flow.piece},
                        {},
                        {flow.cell},
                        {},
                        {},
                        {}};
      if (!local) movement.devices.push_back(flow.to);
      result.movements.push_back(std::move(movement));
    }
  }
  return result;
}

namespace {

/// Elements that devices receive.
std::int64_t elements_moved(const GradientReturn& back) {
  std::int64_t sum = 0;
  for (const Movement& movement : back.movements) {
    const auto n = static_cast<std::int64_t>(movement.devices.size());
    std::int64_t moved = 0;
    for (const Region& region : movement.regions) moved += region.volume();
    if (movement.pattern == Pattern::all_to_all) {
      moved = 0;
      for (std::size_t i = 0; i < movement.devices.size(); ++i) {
        for (std::size_t j = 0; j < movement.devices.size(); ++j) {
          if (i != j) moved += intersect(movement.regions[i], movement.needs[j]).volume();
        }
      }
    } else if (movement.pattern == Pattern::all_reduce) {
      moved *= 2 * (n - 1);
    } else if (movement.pattern == Pattern::reduce_scatter ||
               movement.pattern == Pattern::all_gather) {
      moved *= n - 1;
    } else if (movement.pattern == Pattern::local_add) {
      moved = 0;
    } else if (movement.pattern == Pattern::scatter_gather) {
      const auto summing = static_cast<std::int64_t>(movement.summing.size());
      moved *= n + std::max<std::int64_t>(0, summing - 1);
    }
    sum += moved;
  }
  return sum;
}

}  // namespace

JointReturn joint_return(TensorLayout& tensor, std::span<const Returning> readers) {
  if (readers.size() < 2) return {};
  JointReturn joint;
  std::vector<Need> all;
  std::int64_t apart = 0;
  std::vector<std::map<DeviceId, std::int64_t>> replicas;  // by reader
  bool replicated = false;
  for (const Returning& reader : readers) {
    apart += elements_moved(*reader.back);
    std::map<DeviceId, std::vector<Region>> boxes;
    auto& replica_of = replicas.emplace_back();
    for (const Need& need : reader.needs) {
      replica_of[need.device] = need.replica;
      replicated = replicated || need.replica != 0;
      boxes[need.device].push_back(need.region);
    }
    // A replica's contributions must be there from every reader.
    if (replicated && replicas.back() != replicas.front()) return {};
    all.insert(all.end(), reader.needs.begin(), reader.needs.end());
    auto& given = joint.given.emplace_back();
    for (const auto& [device, regions] : boxes) {
      for (const Region& region : disjoint(regions)) given.emplace_back(device, region);
    }
  }
  joint.back = return_gradients(tensor, all);
  if (elements_moved(joint.back) >= apart) return {};
  return joint;
}

}  // namespace parsim::lowering
