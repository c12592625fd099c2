#include "strategies/model/roles.hpp"

#include <algorithm>

namespace parsim::strategies::model {

namespace {

bool has(const std::vector<Dim>& dims, Dim dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

class Deciding {
 public:
  explicit Deciding(const Network& network)
      : network_(network), feeds_filters_(network.layers.size(), false) {
    convolutional_ =
        std::any_of(network.layers.begin(), network.layers.end(),
                    [](const Layer& layer) { return layer.kind.as<Conv>() != nullptr; });
    std::vector<std::int32_t> users(network.parameters.size(), 0);
    for (const Layer& layer : network.layers) {
      for (const ParameterId id : layer.parameters) ++users[id.index()];
    }
    for (std::size_t l = network.layers.size(); l-- > 0;) {
      const Layer& layer = network.layers[l];
      const bool feeds = feeds_filters_[l] || has_filters(LayerId{l});
      for (const LayerId input : layer.inputs) {
        feeds_filters_[input.index()] = feeds_filters_[input.index()] || feeds;
      }
      tied_.push_back(std::any_of(layer.parameters.begin(), layer.parameters.end(),
                                  [&](ParameterId id) { return users[id.index()] > 1; }));
    }
    std::reverse(tied_.begin(), tied_.end());
  }

  Roles run() {
    for (std::size_t l = 0; l < network_.layers.size(); ++l) {
      roles_.layers.push_back(decide(LayerId{l}));
      const Role& role = roles_.layers.back();
      if (role.runs.size() == 1) roles_.groups[role.runs[0].group].members.emplace_back(l);
    }
    return std::move(roles_);
  }

 private:
  /// Layers that are shared by filters: convolutions, or dense layers where there are none.
  [[nodiscard]] bool has_filters(LayerId id) const {
    if (network_[id].kind.as<Conv>() != nullptr) return true;
    const auto& axes = network_[id].out.axes;
    return !convolutional_ && network_[id].kind.as<Dense>() != nullptr &&
           network_[id].out.region_axis(Dim::channel) == axes.size();  // its units, nothing else
  }

  /// Runs of the channels that the devices have of a layer's output; none if it is not cut so.
  [[nodiscard]] std::vector<Run> cut_channels(LayerId id) const {
    const Role& role = roles_.layers[id.index()];
    return role.how == How::partitioned || role.how == How::follows ? role.runs
                                                                    : std::vector<Run>{};
  }

  Role decide(LayerId id) {
    const Layer& layer = network_[id];
    if (layer.kind.as<Input>() != nullptr) return {How::first_device, {}};
    if (has_filters(id)) return filters(id);
    if (std::vector<Run> runs = followed(id); !runs.empty()) {
      return {How::follows, std::move(runs)};
    }
    if (!feeds_filters_[id.index()]) return {How::first_device, {}};
    // Replicas of a layer must not share its parameters with layers that have none.
    const bool dear = layer.kind.as<MatMul>() != nullptr || layer.kind.as<Attention>() != nullptr ||
                      tied_[id.index()];
    return {dear ? How::by_sample : How::everywhere, {}};
  }

  Role filters(LayerId id) {
    const Layer& layer = network_[id];
    const std::vector<Shape> inputs = input_shapes(network_, id);
    std::vector<Run> runs = cut_channels(layer.inputs[0]);
    const auto* conv = layer.kind.as<Conv>();
    const std::int64_t channels = inputs[0].extent(Dim::channel);
    const bool depthwise = conv != nullptr && conv->groups == channels && conv->filters == channels;
    if (!runs.empty() && depthwise) return {How::follows, std::move(runs)};
    // A dense layer sums over the last axis of its input only.
    const bool summed =
        conv != nullptr || inputs[0].region_axis(Dim::channel) == inputs[0].axes.size();
    if (!runs.empty() && summed &&
        has(cuttable_dims(layer.kind, inputs, layer.out), Dim::in_channel)) {
      return {How::partial_sums, std::move(runs)};
    }
    roles_.groups.push_back({id, layer.out.extent(Dim::channel), {}});
    return {How::partitioned, {{roles_.groups.size() - 1, 1}}};
  }

  /// Runs of the output of a layer that can work on the channels that its inputs are cut into; none
  /// if it cannot, or if no input is.
  [[nodiscard]] std::vector<Run> followed(LayerId id) const {
    const Layer& layer = network_[id];
    const std::vector<Shape> inputs = input_shapes(network_, id);
    const std::size_t axis = layer.out.region_axis(Dim::channel);
    const bool blind = layer.kind.as<MatMul>() != nullptr ||
                       layer.kind.as<Attention>() != nullptr ||
                       layer.kind.as<Rearrange>() != nullptr || layer.kind.as<Dense>() != nullptr;
    if (blind || axis == 0 || !has(cuttable_dims(layer.kind, inputs, layer.out), Dim::channel)) {
      return {};
    }
    if (const auto* concat = layer.kind.as<Concat>();
        concat != nullptr && concat->axis + 1 == axis) {
      return joined(layer);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::vector<Run> runs = cut_channels(layer.inputs[i]);
      if (runs.empty() || inputs[i].region_axis(Dim::channel) != axis) continue;
      const std::int64_t before = inputs[i].extent(Dim::channel),
                         now = layer.out.extent(Dim::channel);
      if (layer.kind.as<Flatten>() != nullptr) {
        for (Run& run : runs) run.scale *= now / before;
        return runs;
      }
      // Broadcast shapes are aligned at their last axis, so channels meet only at equal ranks.
      const bool aligned =
          layer.kind.as<Combine>() == nullptr || inputs[i].axes.size() == layer.out.axes.size();
      if (before == now && aligned) return runs;
    }
    return {};
  }

  /// Runs of several inputs one after another. Every run is a kernel on every device from here to
  /// the next sum, so that more than a few are not worth what they save.
  [[nodiscard]] std::vector<Run> joined(const Layer& layer) const {
    constexpr std::size_t most = 4;
    std::vector<Run> all;
    for (const LayerId input : layer.inputs) {
      const std::vector<Run> runs = cut_channels(input);
      if (runs.empty()) return {};
      all.insert(all.end(), runs.begin(), runs.end());
    }
    return all.size() > most ? std::vector<Run>{} : all;
  }

  const Network& network_;
  std::vector<bool> feeds_filters_, tied_;
  bool convolutional_ = false;
  Roles roles_;
};

}  // namespace

Roles decide_roles(const Network& network) { return Deciding(network).run(); }

}  // namespace parsim::strategies::model
