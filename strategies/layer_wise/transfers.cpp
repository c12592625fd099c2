#include <algorithm>
#include <array>
#include <limits>

#include "core/errors.hpp"
#include "strategies/layer_wise/tables.hpp"

namespace parsim::strategies::layer_wise {

namespace {

/// Devices are looked at in blocks of this many: short loops that become vector instructions.
constexpr std::size_t block = 8;

std::size_t padded(std::size_t count) { return (count + block - 1) / block * block; }

/// One box per device, side by side and axis by axis, as doubles. A missing box is empty.
struct Boxes {
  Boxes(std::size_t axes, std::size_t size)
      : count(size), stride(padded(size)), begin(axes * stride), end(axes * stride) {}
  void set(std::size_t index, const Region& box) {
    for (std::size_t a = 0; a < box.rank(); ++a) {
      begin[a * stride + index] = static_cast<double>(box[a].begin);
      end[a * stride + index] = static_cast<double>(box[a].end);
    }
  }
  /// Notes the axes along which some box is not the whole tensor: along the others it does not
  /// shorten what it has in common with anything.
  void find_cuts(const Region& tensor) {
    for (std::size_t a = 0; a < tensor.rank(); ++a) {
      bool cut = false;
      for (std::size_t k = 0; k < count; ++k) {
        cut = cut || begin[a * stride + k] > 0 ||
              end[a * stride + k] < static_cast<double>(tensor[a].end);
      }
      if (!cut) continue;
      cuts.push_back(a);
      mask |= std::size_t{1} << a;
    }
  }
  /// Whether the boxes of every `period` devices are those of the devices before, moved along the
  /// first axis by as much as the first one.
  [[nodiscard]] bool repeat(std::size_t period) const {
    for (std::size_t i = 0; i < begin.size(); i += stride) {
      const double shift = i == 0 ? begin[period] - begin[0] : 0;
      for (std::size_t k = i + period; k < i + count; ++k) {
        if (begin[k] != begin[k - period] + shift || end[k] != end[k - period] + shift)
          return false;
      }
    }
    return true;
  }
  std::size_t count, stride;
  std::vector<double> begin, end;
  std::vector<std::size_t> cuts;
  std::size_t mask = 0;
};

/// After how many devices what they have comes again, `shift` further along the first axis.
struct Repeat {
  std::size_t period = 0;  ///< whole blocks; 0: it does not
  double shift = 0;
};

/// Of boxes of the same devices.
Repeat repeat_of(const Boxes& own, std::span<const Boxes> others = {}) {
  const auto repeats = [&](std::size_t period) {
    return own.repeat(period) && std::all_of(others.begin(), others.end(), [&](const Boxes& boxes) {
             return boxes.count == own.count && boxes.repeat(period) &&
                    boxes.begin[period] - boxes.begin[0] == own.begin[period] - own.begin[0];
           });
  };
  for (std::size_t period = block; period < own.count && own.count % period == 0; period *= 2) {
    if (repeats(period)) return {period, own.begin[period] - own.begin[0]};
  }
  return {};
}

/// What the parts of a reader need under one configuration.
struct Wants {
  Wants(std::size_t axes_, std::size_t parts)
      : axes(axes_), boxes(axes, parts), along(std::size_t{1} << axes) {}

  /// By part, the product of the extents along all axes that are not in `mask`.
  const std::vector<double>& without(std::size_t mask) {
    std::vector<double>& products = along[mask];
    if (!products.empty()) return products;
    products.assign(boxes.stride, 1);
    for (std::size_t a = 0; a < axes; ++a) {
      if ((mask >> a & 1) != 0) continue;
      for (std::size_t k = 0; k < boxes.stride; ++k) {
        products[k] *= boxes.end[a * boxes.stride + k] - boxes.begin[a * boxes.stride + k];
      }
    }
    return products;
  }

  std::size_t axes;
  Boxes boxes;
  std::vector<std::vector<double>> along;  ///< by mask; found when first asked for
  std::vector<double> longest;             ///< by block of parts, no receiver takes longer
  Repeat repeat;
};

/// By device of a block.
using Block = std::array<double, block>;

/// Adds the elements that the boxes of each device from `first` on have in common.
void add_common(const Boxes& held, const Wants& wants, std::size_t first, Block& sums) {
  if (first >= held.count) return;
  const double* const rest = &wants.along[held.mask][first];
  if (held.mask == 0) {
    for (std::size_t k = 0; k < std::min(block, held.count - first); ++k) sums[k] += rest[k];
    return;
  }
  // The last block may reach beyond the devices, where one side's boxes are empty.
  Block product;
  for (std::size_t k = 0; k < block; ++k) product[k] = rest[k];
  for (const std::size_t axis : held.cuts) {
    const double* const a_begin = &held.begin[axis * held.stride + first];
    const double* const a_end = &held.end[axis * held.stride + first];
    const double* const b_begin = &wants.boxes.begin[axis * wants.boxes.stride + first];
    const double* const b_end = &wants.boxes.end[axis * wants.boxes.stride + first];
    for (std::size_t k = 0; k < block; ++k) {
      const double begin = a_begin[k] > b_begin[k] ? a_begin[k] : b_begin[k];
      const double end = a_end[k] < b_end[k] ? a_end[k] : b_end[k];
      const double common = end - begin;
      product[k] *= common > 0 ? common : 0;
    }
  }
  for (std::size_t k = 0; k < block; ++k) sums[k] += product[k];
}

/// What each device and its node hold of the producer's output under one configuration.
struct Holders {
  Boxes own;
  std::vector<Boxes> node;  ///< boxes of the device's node, as many layers as the fullest node has
  Repeat repeat;
};

/// The parts of a node as few boxes: one if they fill one, else each for itself.
std::vector<Region> node_boxes(std::span<const Region> parts) {
  Region all;
  std::int64_t volume = 0;
  for (const Region& part : parts) {
    if (part.empty()) continue;
    all = volume == 0 ? part : hull(all, part);
    volume += part.volume();
  }
  if (volume == 0) return {};
  if (all.volume() == volume) return {all};
  return {parts.begin(), parts.end()};
}

Holders holders(const ClusterModel& model, std::span<const Region> parts, const Region& tensor) {
  const std::vector<std::size_t>& nodes = model.nodes();
  const std::size_t axes = tensor.rank();
  Holders result{Boxes(axes, parts.size()), {}, {}};
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (!parts[k].empty()) result.own.set(k, parts[k]);
  }
  result.own.find_cuts(tensor);
  result.repeat = repeat_of(result.own);
  if (model.node_count() == 1) return result;
  std::size_t reached = parts.size();  // devices of nodes that hold anything
  while (reached < nodes.size() && nodes[reached] == nodes[parts.size() - 1]) ++reached;
  for (std::size_t begin = 0; begin < reached;) {
    std::size_t end = begin;
    while (end < reached && nodes[end] == nodes[begin]) ++end;
    const std::size_t last = std::min(end, parts.size());
    const std::vector<Region> all = node_boxes(parts.subspan(begin, last - begin));
    while (result.node.size() < all.size()) result.node.emplace_back(axes, reached);
    for (std::size_t b = 0; b < all.size(); ++b) {
      for (std::size_t k = begin; k < end && !all[b].empty(); ++k) result.node[b].set(k, all[b]);
    }
    begin = end;
  }
  for (Boxes& boxes : result.node) boxes.find_cuts(tensor);
  result.repeat = repeat_of(result.own, result.node);
  return result;
}

/// Finds how long the receivers of each block take at most: as long as if their nodes had nothing.
void find_longest(const ClusterModel& model, Wants& wants) {
  const bool one_node = model.node_count() == 1;
  const std::vector<double>& volume = wants.without(0);
  wants.longest.assign(wants.boxes.stride / block, 0);
  for (std::size_t k = 0; k < wants.boxes.count; ++k) {
    const double inside = model.inside()[k], outside = model.outside()[k];
    // Between rates that are nearly equal rounding could make what is shorter longer.
    const bool known = one_node || 2 * inside <= outside;
    const double most = volume[k] * (one_node ? inside : outside);
    double& longest = wants.longest[k / block];
    longest = known ? std::max(longest, most) : std::numeric_limits<double>::infinity();
  }
}

/// How many devices, the first ones, are all that need be looked at: those of others lack as much.
std::size_t distinct(const ClusterModel& model, const Holders& held, const Wants& wants) {
  const std::size_t count = wants.boxes.count;
  const Repeat &a = held.repeat, &b = wants.repeat;
  if (!model.even() || held.own.count != count || a.period == 0 || b.period == 0) return count;
  const std::size_t both = std::max(a.period, b.period);  // they are powers of two, times a block
  const double shift = static_cast<double>(both / a.period) * a.shift;
  return shift == static_cast<double>(both / b.period) * b.shift ? both : count;
}

/// Seconds per byte of an element that the slowest receiver, or all in turn, wait for what they
/// lack.
double receiving(const ClusterModel& model, TransferRule rule, const Holders& held, Wants& wants) {
  const bool one_node = model.node_count() == 1, all = rule == TransferRule::total;
  const std::vector<double>& volume = wants.without(0);
  static_cast<void>(wants.without(held.own.mask));
  for (const Boxes& boxes : held.node) static_cast<void>(wants.without(boxes.mask));
  const std::size_t blocks =
      all ? wants.longest.size() : padded(distinct(model, held, wants)) / block;
  double slowest = 0, total = 0;
  for (std::size_t i = 0; i < blocks; ++i) {
    // The last devices lack most if any do: where numbers of parts differ, theirs are far apart.
    const std::size_t b = all ? i : (i + blocks - 1) % blocks;
    if (!all && wants.longest[b] <= slowest) continue;
    const std::size_t first = b * block;
    Block own{}, near{};
    add_common(held.own, wants, first, own);
    for (const Boxes& node : held.node) add_common(node, wants, first, near);
    const double* const within = one_node ? &volume[first] : near.data();
    for (std::size_t k = 0; k < std::min(block, wants.boxes.count - first); ++k) {
      const double time = (within[k] - own[k]) * model.inside()[first + k] +
                          (volume[first + k] - within[k]) * model.outside()[first + k];
      slowest = std::max(slowest, time);
      total += time;
    }
  }
  return all ? total : slowest;
}

}  // namespace

Matrix transfer_table(const StrategyInput& input, const ClusterModel& model, TransferRule rule,
                      const Consumer& operand, const Node& producer, const Node& reader) {
  const Network& network = input.network;
  const Layer& layer = network[operand.layer];
  const LayerId source = layer.inputs[operand.input];
  const std::vector<Shape> inputs = input_shapes(network, operand.layer);
  const Region tensor = whole(network[source].out, input.batch);

  std::vector<Holders> held;
  for (const Configuration& configuration : producer.configurations) {
    const std::vector<Region> parts =
        boxes(network, producer.layers[0], configuration, input.batch, model.speeds());
    held.push_back(holders(model, parts, tensor));
  }
  std::vector<Wants> wanted;
  for (const Configuration& configuration : reader.configurations) {
    const std::vector<Region> parts =
        boxes(network, reader.layers[0], configuration, input.batch, model.speeds());
    Wants& wants = wanted.emplace_back(tensor.rank(), parts.size());
    for (std::size_t k = 0; k < parts.size(); ++k) {
      if (parts[k].empty()) continue;
      const Region need =
          input_region(layer.kind, inputs, layer.out, operand.input, {parts[k], {}});
      ensure(need.rank() == tensor.rank(), "an operand's region has the operand's axes");
      if (!need.empty()) wants.boxes.set(k, need);
    }
    wants.repeat = repeat_of(wants.boxes);
  }

  const double element = static_cast<double>(element_bytes(input.precision));
  Matrix table(held.size(), wanted.size());
  for (std::size_t r = 0; r < wanted.size(); ++r) {
    find_longest(model, wanted[r]);
    for (std::size_t p = 0; p < held.size(); ++p) {
      const double time = element * receiving(model, rule, held[p], wanted[r]);
      table(p, r) = time > 0 ? 2 * (time + model.latency().count()) : 0;
    }
  }
  return table;
}

}  // namespace parsim::strategies::layer_wise
