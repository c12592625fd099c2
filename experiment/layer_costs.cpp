#include "experiment/layer_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/errors.hpp"
#include "core/timeline.hpp"
#include "experiment/changed_costs.hpp"
#include "lowering/lower.hpp"
#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"

namespace parsim::experiment {

namespace {

using What = LayerTime::What;

bool is_forward(Pass pass) { return pass == Pass::forward || pass == Pass::recompute; }

std::int64_t number_of_blocks(const Network& network) {
  std::int64_t count = 0;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    count = std::max(count, strategies::block_of(network, LayerId{l}).value_or(-1) + 1);
  }
  return count;
}

/// By layer: what it is part of.
std::vector<What> parts_of(const Network& network) {
  const std::vector<std::int64_t> blocks = strategies::blocks_of(network);
  const std::int64_t count = number_of_blocks(network);
  std::vector<What> parts;
  for (const std::int64_t block : blocks) {
    parts.push_back(block < 0 ? What::before : block < count ? What::block : What::after);
  }
  return parts;
}

/// The parts that a row is about.
std::vector<What> parts_of(What what) {
  if (what == What::around) return {What::before, What::after};
  return {what};
}

/// A kernel of a group's first device.
struct GroupKernel {
  LayerId layer;
  Part part;
  Pass pass = Pass::forward;
  double sums = 0;  ///< seconds that the sums of gradients add to it
};

/// A step of one group without replicas, in which kernels take the base's times.
class GroupStep {
 public:
  struct Passes {
    double waits = 0;  ///< seconds in which the first device has no kernel, until the next part
    std::vector<GroupKernel> kernels;
  };

  GroupStep(const Network& network, const Cluster& cluster, const CostModel& base, Precision reduce,
            const sim::SimOptions& options, const LayerTime& setting, std::vector<DeviceId> group,
            const std::vector<What>& parts) {
    first_ = group[0];
    const bool alone = group.size() == 1;
    strategies::StrategyInput input{network, cluster, base};
    input.batch = setting.samples;
    input.precision = setting.precision;
    input.reduce_precision = reduce;
    const ExecDag dag = lowering::lower(
        network, cluster, strategies::plan_layout(input, {{{0, {std::move(group)}, {}}}}));
    const Timeline timeline = sim::make_simulator(cluster, base, options)->run(dag);
    std::optional<std::pair<What, bool>> now;
    Seconds since{}, end{};
    // Parts follow one another: each lasts until the next one's first kernel.
    const auto close = [&](Seconds at) {
      if (now && !alone) passes_[*now].waits += (at - since).count();
      since = at;
    };
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const OpId id{i};
      if (dag.kind(id) != OpKind::compute) continue;
      const Compute op = std::get<Compute>(dag.op(id));
      if (op.device != first_) continue;
      const LayerId layer = dag.work(op.work).layer;
      const std::pair what{parts[layer.index()], is_forward(op.pass)};
      if (what != now) close(timeline.spans[i].start);
      now = what;
      end = timeline.spans[i].end;
      const Part& part = dag.part(op.work);
      const double all = device_time(dag, id, base).time.count();
      const double kernel =
          base.compute(network, layer, part, op.pass, first_, dag.precision).time.count();
      passes_[what].kernels.push_back({layer, part, op.pass, all - kernel});
      if (!alone) passes_[what].waits -= all;
    }
    close(end);
  }

  [[nodiscard]] const Passes& of(What what, bool forward) { return passes_[{what, forward}]; }
  [[nodiscard]] DeviceId first() const { return first_; }

 private:
  DeviceId first_;
  std::map<std::pair<What, bool>, Passes> passes_;
};

class LayerCosts final : public ChangedCosts {
 public:
  LayerCosts(const std::vector<LayerTime>& times, const Network& network, const Cluster& cluster,
             std::unique_ptr<CostModel> base, Precision reduce, const sim::SimOptions& options,
             std::string file)
      : ChangedCosts(std::move(base)),
        cluster_(cluster),
        file_(std::move(file)),
        blocks_(static_cast<double>(number_of_blocks(network))) {
    const std::vector<What> parts = parts_of(network);
    for (std::size_t l = 0; l < parts.size(); ++l) parts_[network.layers[l].name] = parts[l];
    for (std::size_t m = 0; m < cluster.models.size(); ++m) {
      std::size_t same = 0;
      while (cluster.models[same].name != cluster.models[m].name) ++same;
      types_.push_back(same);
    }
    // Smaller groups first: kernels that a larger one does not divide take their times.
    std::map<std::tuple<std::string, Precision, std::size_t, std::int64_t>,
             std::vector<const LayerTime*>>
        settings;
    for (const LayerTime& time : times) {
      const auto group = group_in(cluster, time.device, time.group);
      if (!group) continue;
      settings[{time.device, time.precision, time.group, time.samples}].push_back(&time);
      for (const What what : parts_of(time.what)) {
        for (const bool forward : {false, true}) {
          curves_[key_of(what, forward, (*group)[0], time.precision)][time.group];
        }
      }
    }
    for (const auto& [setting, rows] : settings) {
      GroupStep step(network, cluster, *base_, reduce, options, *rows[0],
                     *group_in(cluster, rows[0]->device, rows[0]->group), parts);
      for (const LayerTime* row : rows) {
        for (const bool forward : {false, true}) fit(network, *row, forward, step);
      }
    }
  }

  [[nodiscard]] Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    const Curve* curve = nullptr;
    const auto what = parts_.find(network[layer].name);
    if (what != parts_.end()) {
      const auto groups = curves_.find(key_of(what->second, is_forward(pass), device, precision));
      if (groups != curves_.end()) curve = &nearest(groups->second, network, layer, part)->second;
    }
    const auto modelled = [&](const Part& of) {
      return base_->compute(network, layer, of, pass, device, precision);
    };
    Cost cost = modelled(part);
    if (curve == nullptr || curve->empty()) return cost;
    const std::int64_t samples = part.out[0].size();
    const auto above = curve->lower_bound(samples);
    if (above != curve->end() && above->first == samples) {
      cost.time *= above->second;
      cost.origin = Origin::measured;
      return cost;
    }
    cost.origin = Origin::scaled;
    if (above == curve->begin() || above == curve->end()) {
      cost.time *= (above == curve->begin() ? above : std::prev(above))->second;
      return cost;
    }
    const auto below = std::prev(above);
    const auto at = [&](const auto& point) {
      Part resized = part;
      resized.out[0] = {0, point.first};
      return point.second * modelled(resized).time;
    };
    const double share = static_cast<double>(samples - below->first) /
                         static_cast<double>(above->first - below->first);
    cost.time = (1 - share) * at(*below) + share * at(*above);
    return cost;
  }

  [[nodiscard]] std::string summary() const override {
    return fmt::format("times of layers from {}, divided among their kernels by: {}", file_,
                       base_->summary());
  }
  [[nodiscard]] std::string accuracy(Precision precision) const override {
    const bool measured = std::any_of(curves_.begin(), curves_.end(), [&](const auto& groups) {
      return std::get<Precision>(groups.first) == precision;
    });
    if (!measured) return base_->accuracy(precision);
    return fmt::format("kernels add up to the times of layers in {}; others: {}", file_,
                       base_->accuracy(precision));
  }

 private:
  using Curve = std::map<std::int64_t, double>;  ///< factors by samples
  using Groups = std::map<std::size_t, Curve>;   ///< by devices that share the layers
  using Key = std::tuple<What, bool, std::size_t, Precision>;

  [[nodiscard]] Key key_of(What what, bool forward, DeviceId device, Precision precision) const {
    return {what, forward, types_[static_cast<std::size_t>(cluster_[device].model)], precision};
  }

  /// Of the group that divides a layer as the part does, or of the nearest size to it.
  static Groups::const_iterator nearest(const Groups& groups, const Network& network, LayerId layer,
                                        const Part& part) {
    const Shape& out = network[layer].out;
    double share = 1;
    for (std::size_t axis = 1; axis < part.out.rank(); ++axis) {
      share *= static_cast<double>(part.out[axis].size()) /
               static_cast<double>(out.axes[axis - 1].extent);
    }
    if (!part.contraction.empty()) {
      share *= static_cast<double>(part.contraction.size()) /
               static_cast<double>(
                   contraction_extent(network[layer].kind, input_shapes(network, layer)));
    }
    const auto distance = [&](const Groups::value_type& group) {
      return std::abs(std::log(share * static_cast<double>(group.first)));
    };
    return std::min_element(groups.begin(), groups.end(), [&](const auto& one, const auto& other) {
      return distance(one) < distance(other);
    });
  }

  /// The factor with which the part's kernels take what the row says.
  void fit(const Network& network, const LayerTime& row, bool forward, GroupStep& step) {
    double own = 0, others = 0;
    for (const What what : parts_of(row.what)) {
      const GroupStep::Passes& passes = step.of(what, forward);
      const Groups& groups = curves_.at(key_of(what, forward, step.first(), row.precision));
      others += passes.waits;
      for (const GroupKernel& kernel : passes.kernels) {
        const bool is_own = nearest(groups, network, kernel.layer, kernel.part)->first == row.group;
        const auto time = [&](const CostModel& model) {
          return model
              .compute(network, kernel.layer, kernel.part, kernel.pass, step.first(), row.precision)
              .time.count();
        };
        others += kernel.sums;
        (is_own ? own : others) += time(is_own ? *base_ : *this);
      }
    }
    if (own <= 0) return;
    constexpr double least = 0.05;
    const double number = row.what == What::block ? blocks_ : 1;
    const double measured = number * (forward ? row.forward : row.backward).count();
    const double factor = std::max(least * measured, measured - others) / own;
    for (const What what : parts_of(row.what)) {
      curves_.at(key_of(what, forward, step.first(), row.precision))[row.group][row.samples] =
          factor;
    }
  }

  const Cluster& cluster_;
  std::string file_;
  double blocks_ = 0;
  std::unordered_map<std::string, What> parts_;  ///< by the layer's name; looked up only
  std::vector<std::size_t> types_;               ///< by model, the first one of its name
  std::map<Key, Groups> curves_;
};

}  // namespace

std::unique_ptr<CostModel> make_layer_costs(const std::vector<LayerTime>& times,
                                            const Network& network, const Cluster& cluster,
                                            std::unique_ptr<CostModel> base, Precision reduce,
                                            sim::SimOptions options, const std::string& file) {
  if (strategies::first_layers_of_blocks(network).empty()) {
    throw InputError(file,
                     fmt::format("times of blocks for network '{}', which has none", network.name),
                     "accepted: with a network made of blocks");
  }
  options.engine = sim::Engine::fast;
  return std::make_unique<LayerCosts>(times, network, cluster, std::move(base), reduce, options,
                                      file);
}

}  // namespace parsim::experiment
