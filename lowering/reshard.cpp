#include "lowering/reshard.hpp"

#include <array>
#include <optional>
#include <set>
#include <utility>

#include "core/errors.hpp"
#include "lowering/reshard_support.hpp"

namespace parsim::lowering {

namespace {

/// Which copy of an owner's part serves a device: its own node's first, then spread by device id.
/// Within its node, the copy with the same number as `own`, the device's cell of the tensor: groups
/// of devices that hold copies exchange their parts member by member.
std::int32_t nearest_copy(const Owner& owner, const std::vector<Cell>& cells, DeviceId to,
                          const Cell* own, const Cluster& cluster) {
  std::optional<std::int32_t> near;
  for (const std::int32_t index : owner.cells) {
    const Cell& cell = cells[static_cast<std::size_t>(index)];
    if (cluster[cell.device].node != cluster[to].node) continue;
    const bool alike =
        own != nullptr && cell.replica == own->replica && cell.contraction == own->contraction;
    if (!near || alike) near = index;
    if (alike) break;
  }
  if (near) return *near;
  return owner.cells[to.index() % owner.cells.size()];
}

}  // namespace

std::optional<std::vector<Region>> even_boxes(const Region& box, std::size_t parts) {
  const auto count = static_cast<std::int64_t>(parts);
  if (box.rank() == 0) return std::nullopt;
  std::size_t axis = 0;
  for (std::size_t a = 1; a < box.rank() && box[axis].size() % count != 0; ++a) {
    if (box[a].size() % count == 0 || box[a].size() > box[axis].size()) axis = a;
  }
  if (box[axis].size() < count) return std::nullopt;
  std::vector<Region> boxes;
  std::int64_t begin = box[axis].begin;
  for (const std::int64_t size : even_split(box[axis].size(), parts)) {
    boxes.push_back(box);
    boxes.back()[axis] = {begin, begin + size};
    begin += size;
  }
  return boxes;
}

bool is_collective(Pattern pattern) { return pattern <= Pattern::broadcast; }

TensorLayout::TensorLayout(std::vector<Cell> cells, bool whole_sends)
    : cells_(std::move(cells)), whole_sends_(whole_sends) {}

const std::vector<Owner>& TensorLayout::owners() {
  if (!owners_.empty()) return owners_;
  std::map<Region, std::size_t> index;
  for (std::size_t c = 0; c < cells_.size(); ++c) {
    const auto [at, fresh] = index.try_emplace(cells_[c].part.out, owners_.size());
    if (fresh) owners_.push_back({cells_[c].part.out, {}});
    Owner& owner = owners_[at->second];
    // Contraction parts on one device sum into one store: the device holds the part once.
    const bool again = std::any_of(owner.cells.begin(), owner.cells.end(), [&](std::int32_t other) {
      return cells_[static_cast<std::size_t>(other)].device == cells_[c].device;
    });
    if (again) continue;
    owner.cells.push_back(static_cast<std::int32_t>(c));
    held(cells_[c].device).push_back({cells_[c].part.out, static_cast<std::int32_t>(c)});
  }
  return owners_;
}

bool TensorLayout::aligned(std::span<const Need> needs) const {
  if (needs.size() != cells_.size()) return false;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    const Cell& cell = cells_[i];
    // Only replicas and contraction parts repeat a part of the output.
    const bool single = cell.replica == 0 && cell.contraction == 0;
    if (!single || needs[i].device != cell.device || !cell.part.out.contains(needs[i].region)) {
      return false;
    }
  }
  return true;
}

std::vector<TensorLayout::Held>& TensorLayout::held(DeviceId device) {
  if (device.index() >= held_.size()) held_.resize(device.index() + 1);
  return held_[device.index()];
}

void TensorLayout::arrive(Movement movement, std::span<const DeviceId> receivers,
                          std::span<const Region> boxes) {
  const auto index = static_cast<std::int32_t>(arrivals_.size());
  std::sort(movement.producers.begin(), movement.producers.end());
  movement.producers.erase(std::unique(movement.producers.begin(), movement.producers.end()),
                           movement.producers.end());
  arrivals_.push_back(std::move(movement));
  for (std::size_t i = 0; i < receivers.size(); ++i)
    held(receivers[i]).push_back({boxes[i], ~index});
}

Sources TensorLayout::bring(std::span<const Need> needs, const Cluster& cluster) {
  // The usual case, in which every cell is already where it is read, without comparing all pairs.
  if (aligned(needs)) return {true, {}};
  const std::vector<Owner>& parts = owners();
  std::vector<Missing> missing;
  std::map<DeviceId, std::vector<Region>> asked;  // pieces already on the list, by device
  for (const Need& need : needs) {
    if (need.region.empty()) continue;
    const std::vector<Held>& here = held(need.device);
    std::vector<Region>& pieces = asked[need.device];
    // Parts are disjoint, so that a piece of another one need not be compared: of an all-to-all
    // between n devices each asks for n of them.
    const std::size_t of_earlier_needs = pieces.size();
    for (std::size_t o = 0; o < parts.size(); ++o) {
      const Region piece = intersect(parts[o].region, need.region);
      if (piece.empty()) continue;
      const std::span<const Region> earlier(pieces.data(), of_earlier_needs);
      const auto has = [&](const auto& region) { return region.contains(piece); };
      if (std::any_of(here.begin(), here.end(), [&](const Held& h) { return has(h.region); }))
        continue;
      if (std::any_of(earlier.begin(), earlier.end(), has)) continue;
      // Only what the device neither holds nor has on the list already.
      std::vector<Region> lacking{piece};
      const auto take_away = [&](const Region& region) {
        if (intersect(region, piece).empty()) return;
        std::vector<Region> rest;
        for (const Region& part : lacking) {
          const std::vector<Region> outside = without(part, region);
          rest.insert(rest.end(), outside.begin(), outside.end());
        }
        lacking = std::move(rest);
      };
      for (const Held& h : here) take_away(h.region);
      for (const Region& known : earlier) take_away(known);
      if (lacking.empty()) continue;
      pieces.insert(pieces.end(), lacking.begin(), lacking.end());
      const auto mine =
          std::find_if(here.begin(), here.end(), [](const Held& h) { return h.source >= 0; });
      const Cell* own =
          mine == here.end() ? nullptr : &cells_[static_cast<std::size_t>(mine->source)];
      const std::int32_t source = nearest_copy(parts[o], cells_, need.device, own, cluster);
      for (const Region& part : lacking) missing.push_back({o, source, need.device, part});
    }
  }
  // What one device alone has may also be broadcast, or be a share of an all-gather.
  scatter(missing, 2, cluster);
  Components components;
  for (const Missing& m : missing) {
    components.join(cells_[static_cast<std::size_t>(m.source)].device, m.to);
  }
  for (const auto& component :
       group_by(missing, [&](const Missing& m) { return components.root(m.to); })) {
    bring_component(component, needs, cluster);
  }
  std::vector<std::vector<std::int32_t>> sources(needs.size());
  for (std::size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].region.empty()) continue;
    for (const Owner& owner : parts) {
      const Region piece = intersect(owner.region, needs[i].region);
      if (piece.empty()) continue;
      const std::vector<Held>& here = held(needs[i].device);
      const auto add = [&](std::int32_t source) {
        if (std::find(sources[i].begin(), sources[i].end(), source) == sources[i].end())
          sources[i].push_back(source);
      };
      const auto found = std::find_if(here.begin(), here.end(),
                                      [&](const Held& h) { return h.region.contains(piece); });
      if (found != here.end()) {
        add(found->source);
        continue;
      }
      // It came in several pieces: an earlier reader needed less.
      std::vector<Region> parts_here;
      for (const Held& h : here) {
        const Region part = intersect(h.region, piece);
        if (part.empty()) continue;
        parts_here.push_back(part);
        add(h.source);
      }
      std::int64_t covered = 0;
      for (const Region& part : disjoint(parts_here)) covered += part.volume();
      ensure(covered == piece.volume(), "resharding brings every piece that is needed");
    }
  }
  return {false, std::move(sources)};
}

void TensorLayout::scatter(std::vector<Missing>& missing, std::size_t holders,
                           const Cluster& cluster) {
  const auto device_of = [&](std::int32_t cell) {
    return cells_[static_cast<std::size_t>(cell)].device;
  };
  const auto outside = [&](const Missing& m) {
    const std::vector<Held>& here = held(m.to);
    return owners_[m.owner].cells.size() >= holders &&
           std::none_of(here.begin(), here.end(), [](const Held& h) { return h.source >= 0; });
  };
  std::map<std::pair<std::size_t, Region>, std::vector<DeviceId>> groups;
  for (const Missing& m : missing) {
    if (outside(m)) groups[{m.owner, m.piece}].push_back(m.to);
  }
  std::erase_if(groups, [](const auto& group) { return group.second.size() < 2; });
  for (auto& [key, members] : groups) {
    const Owner& owner = owners_[key.first];
    const auto shares = even_boxes(key.second, members.size());
    if (!shares) {
      members.clear();
      continue;
    }
    const bool whole = whole_sends_ && owner.cells.size() >= members.size();
    Movement movement{Pattern::scatter_gather, members, *shares, {}, {}, {}, {}, {}};
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::vector<std::int32_t> near;
      for (const std::int32_t cell : owner.cells) {
        if (cluster[device_of(cell)].node == cluster[members[i]].node) near.push_back(cell);
      }
      const std::vector<std::int32_t>& from = near.empty() ? owner.cells : near;
      const std::int32_t cell = from[i % from.size()];
      if (whole) {
        arrive({Pattern::point_to_point,
                {device_of(cell), members[i]},
                {key.second},
                {},
                {cell},
                {},
                {},
                {}},
               {&members[i], 1}, {&key.second, 1});
        continue;
      }
      movement.legs.push_back({device_of(cell), members[i], (*shares)[i], cell});
      movement.producers.push_back(cell);
    }
    if (whole) continue;
    arrive(std::move(movement), members, std::vector<Region>(members.size(), key.second));
  }
  std::erase_if(missing, [&](const Missing& m) {
    const auto group = groups.find({m.owner, m.piece});
    return group != groups.end() &&
           std::find(group->second.begin(), group->second.end(), m.to) != group->second.end();
  });
}

void TensorLayout::bring_component(std::vector<Missing> missing, std::span<const Need> needs,
                                   const Cluster& cluster) {
  std::set<DeviceId> devices;
  std::vector<std::int32_t> producers;
  for (const Missing& m : missing) {
    devices.insert(m.to);
    devices.insert(cells_[static_cast<std::size_t>(m.source)].device);
    producers.push_back(m.source);
  }
  const std::size_t n = devices.size();

  // One sender of whose piece every receiver wants the same: broadcast.
  const bool one_piece = std::all_of(missing.begin(), missing.end(), [&](const Missing& m) {
    return m.source == missing[0].source && m.piece == missing[0].piece;
  });
  if (one_piece && missing.size() > 1) {
    Movement movement{Pattern::broadcast,
                      {cells_[static_cast<std::size_t>(missing[0].source)].device},
                      {missing[0].piece},
                      {},
                      {missing[0].source},
                      {},
                      {},
                      {}};
    for (const Missing& m : missing) movement.devices.push_back(m.to);
    const std::vector<DeviceId> receivers(movement.devices.begin() + 1, movement.devices.end());
    const std::vector<Region> boxes(receivers.size(), missing[0].piece);
    arrive(std::move(movement), receivers, boxes);
    return;
  }

  // What each member has and wants, if each is one box.
  std::map<DeviceId, std::vector<Region>> have, want;
  for (const DeviceId device : devices) {
    for (const Held& h : held(device)) {
      if (h.source >= 0) have[device].push_back(h.region);
    }
  }
  for (const Need& need : needs) {
    if (devices.contains(need.device) && !need.region.empty()) {
      std::vector<Region>& boxes = want[need.device];
      if (std::find(boxes.begin(), boxes.end(), need.region) == boxes.end())
        boxes.push_back(need.region);
    }
  }
  std::vector<DeviceId> members;
  std::vector<Region> has, wants;
  bool boxes = true;
  for (const DeviceId device : devices) {
    const auto own = exact_union(have[device]);
    const auto wanted = exact_union(want[device]);
    if (!own || !wanted) {
      boxes = false;
      break;
    }
    members.push_back(device);
    has.push_back(*own);
    wants.push_back(*wanted);
  }
  if (boxes) {
    std::int64_t total = 0;
    bool gather = true;
    std::vector<Region> shares;  // what of each part is wanted: a strided window skips the border
    for (std::size_t i = 0; i < n; ++i) {
      shares.push_back(intersect(has[i], wants[0]));
      total += shares[i].volume();
      gather = gather && wants[i] == wants[0] && !shares[i].empty();
    }
    std::int64_t wanted_elsewhere = 0;
    for (const Missing& m : missing) wanted_elsewhere += m.piece.volume();
    // Every element once, from its only holder, to all the others.
    gather = gather && total == wants[0].volume() &&
             wanted_elsewhere == static_cast<std::int64_t>(n - 1) * total;
    std::vector<std::pair<DeviceId, DeviceId>> device_pairs;
    for (const Missing& m : missing) {
      device_pairs.emplace_back(cells_[static_cast<std::size_t>(m.source)].device, m.to);
    }
    std::sort(device_pairs.begin(), device_pairs.end());
    device_pairs.erase(std::unique(device_pairs.begin(), device_pairs.end()), device_pairs.end());
    std::int64_t exchanged = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        if (i != j) exchanged += intersect(wants[i], has[j]).volume();
      }
    }
    const bool exchange =
        n > 2 && device_pairs.size() == n * (n - 1) && exchanged == wanted_elsewhere;
    if (gather || exchange) {
      Movement movement{gather ? Pattern::all_gather : Pattern::all_to_all,
                        members,
                        gather ? shares : has,
                        {},
                        producers,
                        {},
                        {},
                        {}};
      if (!gather) movement.needs = wants;
      arrive(std::move(movement), members, wants);
      return;
    }
  }

  scatter(missing, 1, cluster);
  for (const Missing& m : missing) {
    const DeviceId from = cells_[static_cast<std::size_t>(m.source)].device;
    const bool border = !have[m.to].empty() && m.piece != owners_[m.owner].region;
    const std::vector<DeviceId> receiver{m.to};
    const std::vector<Region> piece{m.piece};
    const Pattern pattern = border ? Pattern::halo : Pattern::point_to_point;
    arrive({pattern, {from, m.to}, piece, {}, {m.source}, {}, {}, {}}, receiver, piece);
  }
}

}  // namespace parsim::lowering
