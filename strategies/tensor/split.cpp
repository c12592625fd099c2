#include "strategies/tensor/split.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "lowering/sync.hpp"
#include "strategies/experts.hpp"

namespace parsim::strategies::tensor {

namespace {

/// An extent shared by units: exactly where they divide it, as heads and their channels.
std::vector<std::int64_t> shared(std::int64_t extent, const DeviceUnits& units) {
  if (are_equal(units)) return even_split(extent, units.size());
  const std::int64_t all = std::accumulate(units.begin(), units.end(), std::int64_t{0});
  std::vector<double> shares;
  for (const std::int64_t one : units) {
    shares.push_back(static_cast<double>(one) / static_cast<double>(all));
  }
  if (extent % all != 0) return proportional_split(extent, shares);
  std::vector<std::int64_t> sizes;
  for (const std::int64_t one : units) sizes.push_back(one * (extent / all));
  return sizes;
}

bool has_empty(const std::vector<std::int64_t>& sizes) {
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

class Splitting {
 public:
  /// by_all   by layer: whether all must do it
  /// whole    whether experts are whole
  Splitting(const Network& network, const DeviceUnits& units, const std::vector<bool>& by_all,
            bool whole)
      : network_(network),
        units_(units),
        degree_(units.size()),
        whole_experts_(whole),
        must_by_all_(by_all),
        users_(lowering::users_of_parameters(network)) {}

  std::vector<std::vector<Cut>> run() {
    for (std::size_t l = 0; l < network_.layers.size(); ++l) {
      held_.emplace_back();
      cuts_.push_back({decide(LayerId{l})});
      const LayerPlan plan{
          cuts_.back(), std::vector<DeviceId>(degree_, DeviceId{0}), {}, false, {}};
      // What follows whole experts gathers their sums as if all devices had made them.
      const bool mixed = whole_experts_ && network_.layers[l].kind.as<ExpertCombine>() != nullptr;
      if (is_whole(cuts_.back()[0]) || mixed) continue;
      for (const Cell& cell : cells(network_, LayerId{l}, plan, 1)) {
        held_[l].push_back(cell.part.out);
      }
    }
    return std::move(cuts_);
  }

 private:
  /// Whether every device has the whole output, at the latest when the parts have been summed.
  static bool is_whole(const Cut& cut) {
    return cut.dim == Dim::replica || cut.dim == Dim::in_channel;
  }

  [[nodiscard]] Cut by_all() const { return {Dim::replica, std::vector<std::int64_t>(degree_, 1)}; }

  /// Whether there are parts for all.
  [[nodiscard]] bool suffices(std::int64_t extent) const {
    return extent >= static_cast<std::int64_t>(degree_) && !has_empty(shared(extent, units_));
  }

  /// A product with fewer outputs than inputs that a norm over all of them reads, as in latent
  /// attention. Made by all devices, the few channels need not be gathered before the norm, and
  /// what is summed backward is as small. So do DeepSeek-V3's own program (inference/model.py, wq_a
  /// and wkv_a) and Megatron-Core.
  [[nodiscard]] bool is_narrowed_for_norm(LayerId id) const {
    const Layer& layer = network_[id];
    if (layer.kind.as<Dense>() == nullptr) return false;
    const Shape& in = network_[layer.inputs[0]].out;
    if (in.axes.empty() || layer.out.extent(Dim::channel) >= in.axes.back().extent) return false;
    return std::any_of(network_.layers.begin(), network_.layers.end(), [&](const Layer& reader) {
      const auto* norm = reader.kind.as<Norm>();
      return norm != nullptr && norm->kind == NormKind::layer && reader.inputs[0] == id;
    });
  }

  Cut decide(LayerId id) {
    if (must_by_all_[id.index()]) return by_all();
    const Layer& layer = network_[id];
    if (whole_experts_ && is_in_mixture(layer)) {
      return {Dim::token, shared(layer.out.extent(Dim::token), units_)};
    }
    const bool reads_parts = std::any_of(layer.inputs.begin(), layer.inputs.end(),
                                         [&](LayerId in) { return !held_[in.index()].empty(); });
    if (reads_parts) {
      if (auto cut = followed(id)) return *cut;
      if (auto cut = summed(id)) return *cut;
      return by_all();
    }
    if (is_narrowed_for_norm(id)) return by_all();
    const auto* table = layer.kind.as<Embedding>();
    // A table smaller than what it makes is not worth a sum, unless scores are made with it, too.
    if (table != nullptr && suffices(table->rows) &&
        (users_[layer.parameters[0].index()].size() > 1 ||
         table->rows * table->width > layer.out.elements())) {
      return {Dim::in_channel, shared(table->rows, units_)};
    }
    const bool multiplies = layer.kind.as<Conv>() != nullptr || layer.kind.as<Dense>() != nullptr ||
                            layer.kind.as<ExpertDense>() != nullptr;
    const std::int64_t channels = layer.out.extent(Dim::channel);
    if (multiplies && suffices(channels)) return {Dim::channel, shared(channels, units_)};
    return by_all();
  }

  /// A cut whose parts need of cut inputs only what their devices have.
  std::optional<Cut> followed(LayerId id) {
    const Layer& layer = network_[id];
    const std::vector<Shape> inputs = input_shapes(network_, id);
    for (const Dim dim : cuttable_dims(layer.kind, inputs, layer.out)) {
      if (dim == Dim::sample || dim == Dim::replica || dim == Dim::in_channel) continue;
      if (!suffices(layer.out.extent(dim))) continue;
      Cut cut{dim, shared(layer.out.extent(dim), units_)};
      if (fits(id, inputs, cut)) return cut;
    }
    return std::nullopt;
  }

  bool fits(LayerId id, const std::vector<Shape>& inputs, const Cut& cut) {
    const Layer& layer = network_[id];
    const LayerPlan plan{{cut}, std::vector<DeviceId>(degree_, DeviceId{0}), {}, false, {}};
    const std::vector<Cell> parts = cells(network_, id, plan, 1);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::vector<Region>& held = held_[layer.inputs[i].index()];
      for (std::size_t p = 0; p < held.size(); ++p) {
        const Region needed = input_region(layer.kind, inputs, layer.out, i, parts[p].part);
        if (!needed.empty() && !held[p].contains(needed)) return false;
      }
    }
    return true;
  }

  /// Partial sums over the channels that the devices have.
  std::optional<Cut> summed(LayerId id) {
    const Layer& layer = network_[id];
    const std::vector<Shape> inputs = input_shapes(network_, id);
    const std::vector<Dim> dims = cuttable_dims(layer.kind, inputs, layer.out);
    const bool sums = std::find(dims.begin(), dims.end(), Dim::in_channel) != dims.end();
    if (!sums) return std::nullopt;
    std::size_t axis = inputs[0].axes.size();  // of a region
    if (layer.kind.as<Conv>() != nullptr) axis = 1;
    if (layer.kind.as<Loss>() != nullptr) axis = class_axis(inputs[0]);
    Cut cut{Dim::in_channel, {}};
    std::int64_t end = 0;
    for (const Region& held : held_[layer.inputs[0].index()]) {
      const Region here = held;
      if (here[axis].begin != end) return std::nullopt;  // cut along another axis
      end = here[axis].end;
      cut.sizes.push_back(here[axis].size());
    }
    if (end != contraction_extent(layer.kind, inputs)) return std::nullopt;
    return cut;
  }

  const Network& network_;
  const DeviceUnits& units_;
  std::size_t degree_;
  bool whole_experts_;
  const std::vector<bool>& must_by_all_;
  std::vector<std::vector<LayerId>> users_;  ///< by parameter
  std::vector<std::vector<Cut>> cuts_;
  std::vector<std::vector<Region>> held_;  ///< by layer and device, of one sample; none: all of it
};

/// Layers that share a parameter must all be done by all devices, or none of them: whether that is
/// so, else the rest of them is marked, too.
bool alike(const Network& network, const std::vector<std::vector<Cut>>& cuts,
           std::vector<bool>& by_all) {
  bool all_alike = true;
  for (const std::vector<LayerId>& users : lowering::users_of_parameters(network)) {
    const auto replicated = [&](LayerId id) { return cuts[id.index()][0].dim == Dim::replica; };
    if (std::none_of(users.begin(), users.end(), replicated)) continue;
    for (const LayerId id : users) {
      all_alike = all_alike && replicated(id);
      by_all[id.index()] = true;
    }
  }
  return all_alike;
}

bool by_parts(const std::vector<Cut>& cuts) {
  return cuts[0].dim != Dim::replica && cuts[0].dim != Dim::in_channel;
}

/// Marks the smaller operands of a layer that reads parts but is done by all, back to where they
/// began to be parts; whether there was one.
bool mark_smaller_operands(const Network& network, LayerId id,
                           const std::vector<std::vector<Cut>>& cuts, std::vector<bool>& by_all) {
  const Layer& layer = network[id];
  std::int64_t largest = 0;
  for (const LayerId input : layer.inputs) {
    largest = std::max(largest, network[input].out.elements());
  }
  bool marked = false;
  for (LayerId input : layer.inputs) {
    if (network[input].out.elements() == largest || !by_parts(cuts[input.index()])) continue;
    for (bool more = true; more;) {
      by_all[input.index()] = marked = true;
      const std::vector<LayerId>& before = network[input].inputs;
      more = before.size() == 1 && by_parts(cuts[before[0].index()]);
      if (more) input = before[0];
    }
  }
  return marked;
}

/// Products of activations that could follow their largest operand if all devices made the others:
/// marks those, whether there were any. Each is tried once.
bool relieve(const Network& network, const std::vector<std::vector<Cut>>& cuts,
             std::vector<bool>& tried, std::vector<bool>& by_all) {
  bool marked = false;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerKind& kind = network.layers[l].kind;
    const bool multiplies = kind.as<Attention>() != nullptr || kind.as<MatMul>() != nullptr;
    if (!multiplies || tried[l] || cuts[l][0].dim != Dim::replica) continue;
    tried[l] = true;
    if (mark_smaller_operands(network, LayerId{l}, cuts, by_all)) marked = true;
  }
  return marked;
}

/// Whether a value is a parameter, or a slice of one.
bool is_learned(const Network& network, LayerId id) {
  const Layer& layer = network[id];
  if (layer.kind.as<Slicing>() != nullptr) return is_learned(network, layer.inputs[0]);
  return layer.kind.as<Learned>() != nullptr;
}

/// Cuts by token what all devices would do between a sum of partial results and the next product:
/// norms, additions, dropout, and the embeddings before the first block; and what routes tokens to
/// whole experts.
///
/// routing   by layer; none if experts are split
void cut_by_token(const Network& network, const DeviceUnits& units,
                  const std::vector<bool>& routing, std::vector<std::vector<Cut>>& cuts) {
  std::vector<bool> by_token(network.layers.size());
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    const bool table = layer.kind.as<Embedding>() != nullptr;
    const bool cheap = table || layer.kind.as<Norm>() != nullptr ||
                       layer.kind.as<Activation>() != nullptr ||
                       layer.kind.as<Combine>() != nullptr || layer.kind.as<Dropout>() != nullptr ||
                       (!routing.empty() && routing[l]);
    if (!cheap || is_of_experts(layer) || cuts[l][0].dim != Dim::replica) continue;
    const bool ready = std::all_of(layer.inputs.begin(), layer.inputs.end(), [&](LayerId in) {
      const bool is_sum = cuts[in.index()][0].dim == Dim::in_channel;
      const bool mixed = network[in].kind.as<ExpertCombine>() != nullptr;  // of sums
      return is_sum || mixed || by_token[in.index()] || is_learned(network, in) ||
             (table && network[in].kind.as<Input>() != nullptr);
    });
    const std::vector<Dim> dims =
        cuttable_dims(layer.kind, input_shapes(network, LayerId{l}), layer.out);
    if (!ready || std::find(dims.begin(), dims.end(), Dim::token) == dims.end()) continue;
    std::vector<std::int64_t> tokens = shared(layer.out.extent(Dim::token), units);
    if (has_empty(tokens)) continue;
    by_token[l] = true;
    cuts[l] = {{Dim::token, std::move(tokens)}};
  }
}

/// Every device needs all channels that the keys of latent attention share, and what makes them is
/// small, as are the probabilities of tokens.
void mark_small_operands(const Network& network, std::vector<bool>& by_all) {
  for (const Layer& layer : network.layers) {
    if (layer.kind.as<HeadConcat>() == nullptr) continue;
    LayerId id = layer.inputs[1];
    while (network[id].inputs.size() == 1 && network[id].kind.as<Dense>() == nullptr) {
      by_all[id.index()] = true;
      id = network[id].inputs[0];
    }
    by_all[id.index()] = true;
  }
}

}  // namespace

bool are_equal(const DeviceUnits& units) {
  return std::adjacent_find(units.begin(), units.end(), std::not_equal_to<>()) == units.end();
}

std::vector<std::vector<Cut>> split(const Network& network, const DeviceUnits& units,
                                    bool sequence_parallel, bool whole_experts) {
  if (units.size() < 2) return std::vector<std::vector<Cut>>(network.layers.size());
  std::vector<bool> by_all = routers(network), tried(network.layers.size());
  const std::vector<bool> routing = whole_experts ? by_all : std::vector<bool>{};
  mark_small_operands(network, by_all);
  while (true) {
    std::vector<std::vector<Cut>> cuts = Splitting(network, units, by_all, whole_experts).run();
    if (!alike(network, cuts, by_all) || relieve(network, cuts, tried, by_all)) continue;
    if (sequence_parallel) cut_by_token(network, units, routing, cuts);
    return cuts;
  }
}

std::vector<std::vector<Cut>> split(const Network& network, std::size_t degree,
                                    bool sequence_parallel, bool whole_experts) {
  return split(network, DeviceUnits(degree, 1), sequence_parallel, whole_experts);
}

std::vector<std::vector<Cut>> split(const StrategyInput& input, const DeviceUnits& units) {
  return split(input.network, units, input.sequence_parallel, whole_experts(input, units.size()));
}

std::vector<std::vector<Cut>> split(const StrategyInput& input, std::size_t degree) {
  return split(input, DeviceUnits(degree, 1));
}

}  // namespace parsim::strategies::tensor
