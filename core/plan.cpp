#include "core/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "core/errors.hpp"

namespace parsim {

std::vector<std::int64_t> even_split(std::int64_t extent, std::size_t parts) {
  ensure(parts > 0, "a split has at least one part");
  const auto n = static_cast<std::int64_t>(parts);
  std::vector<std::int64_t> sizes(parts, extent / n);
  for (std::int64_t i = 0; i < extent % n; ++i) ++sizes[static_cast<std::size_t>(i)];
  return sizes;
}

std::vector<std::int64_t> proportional_split(std::int64_t extent,
                                             const std::vector<double>& weights) {
  ensure(!weights.empty(), "a split has at least one part");
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  ensure(total > 0, "weights of a split are not all zero");
  std::vector<std::int64_t> sizes;
  std::vector<std::pair<double, std::size_t>> remainders;
  sizes.reserve(weights.size());
  remainders.reserve(weights.size());
  std::int64_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double ideal = static_cast<double>(extent) * weights[i] / total;
    sizes.push_back(static_cast<std::int64_t>(ideal));
    given += sizes.back();
    remainders.emplace_back(-(ideal - static_cast<double>(sizes.back())), i);
  }
  std::sort(remainders.begin(), remainders.end());  // largest remainder first, ties by index
  for (std::size_t i = 0; given < extent; ++i, ++given)
    ++sizes[remainders[i % remainders.size()].second];
  return sizes;
}

namespace {

/// Makes `cell` a part of the one before it along the last cut, if they touch.
bool joined(Cell& before, const Cell& cell, const Cut& last, const Shape& out) {
  if (last.dim == Dim::replica) {
    if (before.replica + before.replicas != cell.replica) return false;
    ++before.replicas;
    return true;
  }
  const bool contraction = last.dim == Dim::in_channel;
  const std::size_t axis = last.dim == Dim::sample || contraction ? 0 : out.region_axis(last.dim);
  Interval& known = contraction ? before.part.contraction : before.part.out[axis];
  const Interval more = contraction ? cell.part.contraction : cell.part.out[axis];
  if (known.end != more.begin) return false;
  known.end = more.end;
  return true;
}

/// The extent of a contraction that is cut into several parts.
std::optional<std::int64_t> cut_contraction(const LayerPlan& plan) {
  for (const Cut& cut : plan.cuts) {
    if (cut.dim != Dim::in_channel || cut.sizes.size() < 2) continue;
    return std::accumulate(cut.sizes.begin(), cut.sizes.end(), std::int64_t{0});
  }
  return std::nullopt;
}

/// Replicas of each part of the tokens, or of the layer.
std::size_t copies_of_part(const LayerPlan& plan) {
  std::size_t replicas = 1, parts = static_cast<std::size_t>(std::max(1, plan.token_parts));
  for (const Cut& cut : plan.cuts) {
    if (cut.dim == Dim::replica) replicas = cut.sizes.size();
    if (cut.dim == Dim::token) parts = 1;  // they are parts of the output
  }
  return std::max<std::size_t>(1, replicas / parts);
}

}  // namespace

std::vector<Cell> cells(const Network& network, LayerId layer, const LayerPlan& plan,
                        std::int64_t samples) {
  const Shape& out = network[layer].out;
  std::vector<Cell> all;
  if (!plan.joined) all.reserve(plan.devices.size());
  std::vector<std::size_t> index(plan.cuts.size(), 0);
  std::vector<std::vector<std::int64_t>> offsets;
  offsets.reserve(plan.cuts.size());
  for (const Cut& cut : plan.cuts) {
    std::vector<std::int64_t>& offset = offsets.emplace_back(1, 0);
    for (const std::int64_t size : cut.sizes) offset.push_back(offset.back() + size);
  }
  const std::optional<std::int64_t> whole_contraction =
      plan.joined ? cut_contraction(plan) : std::nullopt;
  const std::size_t copies = copies_of_part(plan);
  std::size_t in_row = 0;  // cells so far with the same indices along all cuts but the last
  for (const DeviceId device : plan.devices) {
    Cell cell{device, {whole(out, samples), {}, plan.zigzag}, 0, 0, 1};
    bool idle = false;
    for (std::size_t c = 0; c < plan.cuts.size(); ++c) {
      const Interval share{offsets[c][index[c]], offsets[c][index[c] + 1]};
      switch (plan.cuts[c].dim) {
        case Dim::replica:
          cell.replica = static_cast<std::int32_t>(index[c] % copies);
          cell.token_part = static_cast<std::int32_t>(index[c] / copies);
          continue;
        case Dim::in_channel:
          cell.part.contraction = share;
          cell.contraction = static_cast<std::int32_t>(index[c]);
          break;
        case Dim::sample:
          cell.part.out[0] = share;
          break;
        default:
          cell.part.out[out.region_axis(plan.cuts[c].dim)] = share;
      }
      idle = idle || share.empty();
    }
    if (!idle) {
      const bool neighbours = plan.joined && in_row > 0 && all.back().device == device;
      if (!neighbours || !joined(all.back(), cell, plan.cuts.back(), out)) all.push_back(cell);
      ++in_row;
    }
    for (std::size_t c = plan.cuts.size(); c-- > 0;) {  // the last cut runs fastest
      if (++index[c] < plan.cuts[c].sizes.size()) break;
      index[c] = 0;
      in_row = 0;
    }
  }
  for (Cell& cell : all) {
    if (whole_contraction && cell.part.contraction == Interval{0, *whole_contraction}) {
      cell.part.contraction = {};
    }
  }
  return all;
}

namespace {

void validate_states(const LayerPlan& plan, const std::string& location) {
  const auto& [stage, shares, group] = plan.zero;
  if (stage < 0 || stage > 3) {
    throw InputError(location, fmt::format("ZeRO stage {}", stage), "0 to 3");
  }
  if (group.ranks < 0) {
    throw InputError(location, fmt::format("ZeRO groups of {} devices", group.ranks),
                     "1 or more; 0: all that sum a gradient");
  }
  if (stage == 0 && !group.all()) {
    throw InputError(location, "a ZeRO group of replicated states", "one of sharded states only");
  }
  if (stage == 0 && !shares.empty()) {
    throw InputError(location, "shares of replicated states", "shares of sharded states only");
  }
  constexpr std::int64_t most = 1'000'000'000;
  const bool whole = std::all_of(shares.begin(), shares.end(),
                                 [](std::int64_t share) { return share >= 0 && share <= most; });
  const bool any = shares.empty() ||
                   std::any_of(shares.begin(), shares.end(), [](auto share) { return share > 0; });
  if (!whole || !any) {
    throw InputError(location, "shares of states that are negative, too large or all zero",
                     fmt::format("0 to {}, not all zero", most));
  }
  if (stage > 0 && plan.sync.kind == Sync::Kind::server) {
    throw InputError(location, "sharded states under a parameter server, which holds them alone",
                     "one of the two");
  }
}

/// Tokens in zigzag order, and rings.
void validate_attention(const Network& network, LayerId id, const LayerPlan& plan,
                        const std::string& location) {
  const auto* attention = network[id].kind.as<Attention>();
  const std::int64_t tokens = network[id].out.extent(Dim::token);
  if (plan.zigzag != 0 && (attention == nullptr || !attention->causal || plan.zigzag < 0 ||
                           tokens % (2 * std::int64_t{plan.zigzag}) != 0)) {
    throw InputError(location,
                     fmt::format("{} tokens in zigzag order over {}", tokens, plan.zigzag),
                     "attention with a causal mask, and twice as many divide the tokens");
  }
  if (!plan.ring) return;
  const auto uneven = [](const Cut& cut) {
    const auto other = [&](std::int64_t size) { return size != cut.sizes[0]; };
    return cut.dim == Dim::token && std::any_of(cut.sizes.begin(), cut.sizes.end(), other);
  };
  if (attention == nullptr || plan.joined || attention->window > 0 ||
      network[network[id].inputs[1]].out.extent(Dim::token) != tokens ||
      std::any_of(plan.cuts.begin(), plan.cuts.end(), uneven)) {
    throw InputError(location, "a ring",
                     "attention of as many queries as keys without a window, with tokens in equal "
                     "parts");
  }
}

/// Learned tensors that parts of the tokens have whole.
void validate_token_parts(const Network& network, LayerId id, const LayerPlan& plan,
                          const std::string& location) {
  if (plan.token_parts == 0) return;
  const auto parts = [&](const Cut& cut) {
    const auto count = static_cast<std::int64_t>(cut.sizes.size());
    return cut.dim == Dim::token ? count == plan.token_parts
                                 : cut.dim == Dim::replica && count % plan.token_parts == 0;
  };
  if (network[id].kind.as<Learned>() == nullptr || plan.token_parts < 0 || plan.joined ||
      std::none_of(plan.cuts.begin(), plan.cuts.end(), parts)) {
    throw InputError(location, fmt::format("{} parts of the tokens", plan.token_parts),
                     "a learned tensor that is cut into so many parts along token, or has so many "
                     "replicas or a multiple of that");
  }
}

/// Products in chunks of tokens.
void validate_overlap(const Network& network, LayerId id, const LayerPlan& plan,
                      const std::string& location) {
  if (!plan.overlap) return;
  const auto shares = [](const Cut& cut) {
    return (cut.dim == Dim::channel || cut.dim == Dim::in_channel) && cut.sizes.size() > 1;
  };
  const auto other = [](const Cut& cut) { return cut.dim == Dim::replica && cut.sizes.size() > 1; };
  const std::vector<Dim> dims =
      cuttable_dims(network[id].kind, input_shapes(network, id), network[id].out);
  if (network[id].kind.as<Dense>() == nullptr || plan.joined ||
      std::find(dims.begin(), dims.end(), Dim::token) == dims.end() ||
      std::count_if(plan.cuts.begin(), plan.cuts.end(), shares) != 1 ||
      std::any_of(plan.cuts.begin(), plan.cuts.end(), other) ||
      std::set<DeviceId>(plan.devices.begin(), plan.devices.end()).size() != plan.devices.size()) {
    throw InputError(location, "a product that overlaps with communication",
                     "a dense layer that works on tokens, cut by channel or in_channel among "
                     "different devices");
  }
}

std::int64_t cut_extent(const Network& network, LayerId id, Dim dim, std::int64_t samples) {
  if (dim == Dim::sample) return samples;
  if (dim == Dim::in_channel) {
    return contraction_extent(network[id].kind, input_shapes(network, id));
  }
  return network[id].out.extent(dim);
}

void validate_layer(const Network& network, LayerId id, const LayerPlan& plan, std::size_t devices,
                    std::int64_t samples, const std::string& where) {
  const std::string location = fmt::format("{}: layer '{}'", where, network[id].name);
  validate_states(plan, location);
  const std::vector<Shape> inputs = input_shapes(network, id);
  const std::vector<Dim> allowed = cuttable_dims(network[id].kind, inputs, network[id].out);
  std::size_t grid = 1;
  std::set<Dim> seen;
  for (const Cut& cut : plan.cuts) {
    if (std::find(allowed.begin(), allowed.end(), cut.dim) == allowed.end()) {
      std::vector<std::string> names;
      for (const Dim dim : allowed) names.emplace_back(to_text(dim));
      throw InputError(
          location, fmt::format("cut along {}", to_text(cut.dim)),
          fmt::format("a {} layer may be cut along {}", kind_name(network[id].kind), join(names)));
    }
    if (!seen.insert(cut.dim).second) {
      throw InputError(location, fmt::format("two cuts along {}", to_text(cut.dim)),
                       "one cut for a dimension");
    }
    if (cut.sizes.empty())
      throw InputError(location, fmt::format("a cut along {} without parts", to_text(cut.dim)),
                       "one size or more");
    std::int64_t sum = 0;
    for (const std::int64_t size : cut.sizes) {
      if (size < 0)
        throw InputError(location, fmt::format("a part of size {}", size),
                         "sizes are zero or more");
      sum += size;
    }
    const std::int64_t extent =
        cut.dim == Dim::replica ? sum : cut_extent(network, id, cut.dim, samples);
    if (sum != extent) {
      throw InputError(location, fmt::format("sizes along {} add up to {}", to_text(cut.dim), sum),
                       fmt::format("they add up to {}", extent));
    }
    grid *= cut.sizes.size();
  }
  if (plan.devices.size() != grid) {
    throw InputError(location,
                     fmt::format("{} devices for a grid of {} cells", plan.devices.size(), grid),
                     "one device for each cell");
  }
  for (const DeviceId device : plan.devices) {
    if (!device.valid() || device.index() >= devices) {
      throw InputError(location, fmt::format("device {}", device.value),
                       fmt::format("0 to {}", devices - 1));
    }
  }
  validate_attention(network, id, plan, location);
  validate_token_parts(network, id, plan, location);
  validate_overlap(network, id, plan, location);
  for (std::size_t c = 0; plan.joined && c + 1 < plan.cuts.size(); ++c) {
    if (plan.cuts[c].dim != Dim::in_channel) continue;
    throw InputError(location, "joined cells whose contraction is cut, but not by the last cut",
                     "the cut along in_channel as the last one");
  }
  std::map<DeviceId, std::int64_t> replica_of;
  for (const Cell& cell :
       seen.contains(Dim::replica) ? cells(network, id, plan, samples) : std::vector<Cell>{}) {
    if (replica_of.try_emplace(cell.device, cell.replica).first->second != cell.replica) {
      throw InputError(location, fmt::format("device {} in two replicas", cell.device.value),
                       "replicas are on different devices");
    }
  }
  if (plan.sync.kind == Sync::Kind::server &&
      (!plan.sync.server.valid() || plan.sync.server.index() >= devices)) {
    throw InputError(location, fmt::format("parameter server {}", plan.sync.server.value),
                     fmt::format("0 to {}", devices - 1));
  }
}

/// Copies for parts of the tokens are read by these, each by its own.
void validate_readers(const Plan& plan, const Network& network, const std::string& where) {
  const auto by_token = [](const Cut& cut) { return cut.dim == Dim::token; };
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerPlan& reader = plan.layers[l];
    for (const LayerId input : network.layers[l].inputs) {
      const LayerPlan& layer = plan.layers[input.index()];
      if (layer.token_parts == 0 || std::any_of(layer.cuts.begin(), layer.cuts.end(), by_token)) {
        continue;
      }
      const auto cut = std::find_if(reader.cuts.begin(), reader.cuts.end(), by_token);
      const auto parts = static_cast<std::size_t>(layer.token_parts);
      if (cut != reader.cuts.end() && cut->sizes.size() % parts == 0 &&
          reader.devices == layer.devices) {
        continue;
      }
      throw InputError(
          fmt::format("{}: layer '{}'", where, network[input].name),
          fmt::format("{} parts of the tokens, read by layer '{}'", parts, network.layers[l].name),
          "a reader on the same devices, cut into as many parts along token or a multiple of that");
    }
  }
}

void validate_schedule(const Plan& plan, std::size_t devices, const std::string& where) {
  const std::string location = where + ": schedule";
  const Schedule& schedule = plan.schedule;
  if (schedule.stage_of_layer.size() != plan.layers.size()) {
    throw InputError(location, fmt::format("stages for {} layers", schedule.stage_of_layer.size()),
                     fmt::format("{}", plan.layers.size()));
  }
  std::vector<std::int32_t> list_of(devices, -1);
  for (std::size_t list = 0; list < schedule.rank_lists.size(); ++list) {
    for (const DeviceId device : schedule.rank_lists[list].devices) {
      if (!device.valid() || device.index() >= devices || list_of[device.index()] >= 0) {
        throw InputError(location, fmt::format("device {} in rank list {}", device.value, list),
                         "each device is in one rank list at most, and exists");
      }
      list_of[device.index()] = static_cast<std::int32_t>(list);
    }
  }
  // The stages that a rank list must have follow from the devices of the stages' layers.
  std::vector<std::set<std::int32_t>> stages(schedule.rank_lists.size());
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const std::int32_t stage = schedule.stage_of_layer[l];
    if (stage < 0 || static_cast<std::size_t>(stage) >= plan.layers.size())
      throw InputError(location, fmt::format("stage {} of layer {}", stage, l),
                       fmt::format("0 to {}", plan.layers.size() - 1));
    if (l > 0 && plan.layers[l].devices == plan.layers[l - 1].devices &&
        stage == schedule.stage_of_layer[l - 1])
      continue;
    for (const DeviceId device : plan.layers[l].devices) {
      const std::int32_t list = list_of[device.index()];
      if (list < 0)
        throw InputError(location, fmt::format("device {} is in no rank list", device.value),
                         "every device that computes is in one rank list");
      stages[static_cast<std::size_t>(list)].insert(stage);
    }
  }
  for (std::size_t list = 0; list < schedule.rank_lists.size(); ++list) {
    std::set<Slot> wanted;
    for (const std::int32_t stage : stages[list]) {
      for (std::int32_t m = 0; m < schedule.micro_batches; ++m) {
        wanted.insert({stage, m, Direction::forward});
        wanted.insert({stage, m, Direction::backward});
        if (schedule.split_backward) wanted.insert({stage, m, Direction::weights});
      }
    }
    const std::vector<Slot>& slots = schedule.rank_lists[list].slots;
    if (slots.size() != wanted.size() || std::set<Slot>(slots.begin(), slots.end()) != wanted) {
      throw InputError(
          location, fmt::format("rank list {} has {} slots", list, slots.size()),
          fmt::format("each of its {} (stage, micro-batch, direction) once", wanted.size()));
    }
  }
}

}  // namespace

void validate(const Plan& plan, const Network& network, const Cluster& cluster,
              const std::string& where) {
  if (plan.layers.size() != network.layers.size()) {
    throw InputError(where, fmt::format("plans for {} layers", plan.layers.size()),
                     fmt::format("network '{}' has {}", network.name, network.layers.size()));
  }
  const std::int32_t micro_batches = plan.schedule.micro_batches;
  if (micro_batches < 1 || plan.batch < 1 || plan.batch % micro_batches != 0) {
    throw InputError(where, fmt::format("batch {} in {} micro-batches", plan.batch, micro_batches),
                     "the batch is a positive multiple of the micro-batches");
  }
  const std::int64_t samples = plan.batch / micro_batches;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    validate_layer(network, LayerId{l}, plan.layers[l], cluster.devices.size(), samples, where);
  }
  validate_readers(plan, network, where);
  validate_schedule(plan, cluster.devices.size(), where);
  std::set<ParameterId> bucketed;
  for (const std::vector<ParameterId>& bucket : plan.buckets) {
    for (const ParameterId id : bucket) {
      if (!id.valid() || id.index() >= network.parameters.size() || !bucketed.insert(id).second) {
        throw InputError(where + ": buckets", fmt::format("parameter {}", id.value),
                         "each parameter exists and is in one bucket at most");
      }
    }
  }
}

}  // namespace parsim
