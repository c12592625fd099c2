#include <algorithm>

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
  std::size_t count, stride;
  std::vector<double> begin, end;
  std::vector<std::size_t> cuts;
  std::size_t mask = 0;
};

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
};

/// Elements that the boxes of device k have in common, added to `sums`, by k.
void add_common(const Boxes& held, Wants& wants, std::vector<double>& sums) {
  const std::size_t count = std::min(held.count, wants.boxes.count);
  const double* const rest = wants.without(held.mask).data();
  if (held.mask == 0) {
    for (std::size_t k = 0; k < count; ++k) sums[k] += rest[k];
    return;
  }
  // The last block may reach beyond `count`, where one side's boxes are empty.
  for (std::size_t first = 0; first < count; first += block) {
    double product[block];
    for (std::size_t k = 0; k < block; ++k) product[k] = rest[first + k];
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
    for (std::size_t k = 0; k < block; ++k) sums[first + k] += product[k];
  }
}

/// What each device and its node hold of the producer's output under one configuration.
struct Holders {
  Boxes own;
  std::vector<Boxes> node;  ///< boxes of the device's node, as many layers as the fullest node has
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
  Holders result{Boxes(axes, parts.size()), {}};
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (!parts[k].empty()) result.own.set(k, parts[k]);
  }
  result.own.find_cuts(tensor);
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
  return result;
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
  }

  const double element = static_cast<double>(element_bytes(input.precision));
  const bool one_node = model.node_count() == 1;
  const std::size_t devices = model.devices().size();
  std::vector<double> own(padded(devices)), near(padded(devices));
  Matrix table(held.size(), wanted.size());
  for (std::size_t p = 0; p < held.size(); ++p) {
    for (std::size_t r = 0; r < wanted.size(); ++r) {
      Wants& wants = wanted[r];
      const std::vector<double>& volume = wants.without(0);
      std::fill(own.begin(), own.end(), 0.0);
      add_common(held[p].own, wants, own);
      if (!one_node) {
        std::fill(near.begin(), near.end(), 0.0);
        for (const Boxes& node : held[p].node) add_common(node, wants, near);
      }
      const double* const within = one_node ? volume.data() : near.data();
      double slowest = 0, total = 0;
      for (std::size_t k = 0; k < wants.boxes.count; ++k) {
        const double time =
            (within[k] - own[k]) * model.inside()[k] + (volume[k] - within[k]) * model.outside()[k];
        slowest = std::max(slowest, time);
        total += time;
      }
      const double time = element * (rule == TransferRule::total ? total : slowest);
      table(p, r) = time > 0 ? 2 * (time + model.latency().count()) : 0;
    }
  }
  return table;
}

}  // namespace parsim::strategies::layer_wise
