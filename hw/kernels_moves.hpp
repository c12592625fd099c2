// Kernels of everything that is not a Compute: updates, copies, transfers, collectives; and of the
// state before the step. See hw/kernels.hpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "hw/kernels_attention.hpp"
#include "hw/kernels_combine.hpp"
#include "hw/kernels_experts.hpp"
#include "hw/kernels_layers.hpp"
#include "hw/kernels_products.hpp"

namespace parsim::hw {

/// Whether the weights are of experts.
[[nodiscard]] inline bool is_of_experts(const Network& network, ParameterId id) {
  if (network[id].extents.size() < 2) return false;
  return std::any_of(network.layers.begin(), network.layers.end(), [&](const Layer& layer) {
    return layer.kind.as<ExpertDense>() != nullptr &&
           std::find(layer.parameters.begin(), layer.parameters.end(), id) !=
               layer.parameters.end();
  });
}

/// How libraries get a tensor: images with the channel innermost and, of convolutions' weights, the
/// second axis; what experts read and make with each expert's rows in one piece.
[[nodiscard]] inline Layout library_layout(const ExecDag& dag, const StoreKey& key) {
  if (key.tensor.kind == Tensor::Kind::parameter) {
    return is_of_experts(dag.network, ParameterId{key.tensor.index}) ? Layout::row_major
                                                                     : Layout::channels_last;
  }
  if (holds_statistics(key)) return Layout::row_major;
  LayerId layer{key.tensor.index};
  if (key.tensor.kind == Tensor::Kind::edge) {
    layer = dag.network[layer].inputs[static_cast<std::size_t>(key.tensor.input)];
  }
  const Shape& shape = dag.network[layer].out;
  if (shape.axes.size() < 2) return Layout::row_major;
  return shape.axes[0].dim == Dim::channel  ? Layout::channels_last
         : shape.axes[0].dim == Dim::expert ? Layout::experts_first
                                            : Layout::row_major;
}

/// How a store is filled before the step: training data, weights and their full-precision copies;
/// nothing for what begins as zero.
template <class T>
[[nodiscard]] std::optional<Fill<T>> fill_of(const ExecDag& dag, const StoreKey& key,
                                             const Region& box, std::int64_t samples,
                                             const View<T>& view) {
  const bool master = key.role == Role::optimizer_state &&
                      key.micro_batch == static_cast<std::int32_t>(StateKind::master);
  const bool weight = key.role == Role::weight || master;
  const bool data = key.role == Role::activation && key.tensor.kind == Tensor::Kind::output &&
                    dag.network[LayerId{key.tensor.index}].kind.template as<Input>() != nullptr;
  if (!weight && !data) return std::nullopt;
  Fill<T> fill;
  fill.loops = loops_over(box, view);
  fill.to = view;
  fill.stream = data ? 1 : 2;
  fill.number = static_cast<std::uint64_t>(key.tensor.index);
  fill.first_sample = data ? key.micro_batch * samples : 0;
  fill.amplitude = data ? 1.0 : weight_amplitude;
  fill.rounds = data && element_bytes(dag.precision) < 4;
  if (data) {
    const Shape& shape = dag.network[LayerId{key.tensor.index}].out;
    for (std::size_t a = 0; a < shape.axes.size(); ++a) {
      fill.extent[a + 1] = narrow(shape.axes[a].extent);
    }
  } else {
    const auto& extents = dag.network[ParameterId{key.tensor.index}].extents;
    for (std::size_t a = 0; a < extents.size(); ++a) fill.extent[a] = narrow(extents[a]);
  }
  return fill;
}

/// Amplitude of weights where times count and not the tests' numbers: sqrt(6 / inputs) keeps
/// activations of one size from layer to layer (He et al. 2015), so that deep networks stay finite.
[[nodiscard]] inline double steady_amplitude(const ExecDag& dag, const StoreKey& key) {
  const auto& extents = dag.network[ParameterId{key.tensor.index}].extents;
  double inputs = 1;
  for (std::size_t a = 1; a < extents.size(); ++a) inputs *= static_cast<double>(extents[a]);
  return extents.size() > 1 ? std::sqrt(6 / inputs) : weight_amplitude;
}

/// How a part is added to: whole gradients that nothing has added to yet are overwritten.
template <class Engine>
[[nodiscard]] Move adding(Engine& engine, const TensorSlice& to) {
  if (engine.runs(to.key.device) && engine.overwrites(to.key, to.region)) {
    engine.note_overwritten(to.key);
    return Move::copy;
  }
  return engine.has_rivals(to.key) ? Move::atomic_add : Move::add;
}

template <class Engine>
class OpKernels {
 public:
  using T = typename Engine::Scalar;
  using Actions = std::vector<typename Engine::Action>;

  OpKernels(Engine& engine, const ExecDag& dag)
      : engine_(engine), dag_(dag), trained_(trained_layers(dag.network)) {}

  [[nodiscard]] Kernels<Engine> of(OpId id) {
    return std::visit([&](const auto& op) { return kernels(op, dag_.shares(id)); }, dag_.op(id));
  }

 private:
  Kernels<Engine> kernels(const Compute& op, const Shares&) {
    Kernels<Engine> out(1);
    if (!engine_.runs(op.device)) return out;
    if (dag_.region(dag_.work(op.work).out).empty()) return out;
    const PartOf<Engine> part = part_of(engine_, dag_, op, trained_);
    std::visit(
        [&](const auto& kind) {
          if constexpr (requires(ProductKernels<Engine> p) { p(kind); }) {
            ProductKernels<Engine>(engine_, part, out[0])(kind);
          } else if constexpr (requires(AttentionKernels<Engine> a) { a(kind); }) {
            AttentionKernels<Engine>(engine_, part, out[0])(kind);
          } else if constexpr (requires(ExpertKernels<Engine> e) { e(kind); }) {
            ExpertKernels<Engine>(engine_, part, out[0])(kind);
          } else if constexpr (requires(CombineKernels<Engine> c) { c(kind); }) {
            CombineKernels<Engine>(engine_, part, out[0])(kind);
          } else if constexpr (requires(LayerKernels<Engine> l) { l(kind); }) {
            LayerKernels<Engine>(engine_, part, out[0])(kind);
          } else {
            ensure(false, "check_runnable refuses layers without kernels");
          }
        },
        part.layer.kind.value);
    return out;
  }

  Kernels<Engine> kernels(const Update& op, const Shares&) {
    Kernels<Engine> out(1);
    if (!engine_.runs(op.device)) return out;
    for (const TensorSlice& slice : tensor_slices(dag_, op.device, op.slice)) {
      if (slice.region.empty()) continue;
      StoreKey key = slice.key;
      key.role = Role::weight_gradient;
      const std::array<View<T>, 2> views{engine_.view(slice.key), engine_.view(key)};
      Step<T> step;
      step.walk = walk_over(slice.region, views);
      step.weight = start_of(views[0], slice.region);
      step.gradient = start_of(views[1], slice.region);
      step.rule = static_cast<Rule>(dag_.optimizer);
      step.rate = engine_.rate();
      // States have the strides of the weights.
      const auto state = [&](StateKind kind) {
        StoreKey kept = slice.key;
        kept.role = Role::optimizer_state;
        kept.micro_batch = static_cast<std::int32_t>(kind);
        return start_of(engine_.state(kept), slice.region);
      };
      step.first = state(StateKind::first);
      step.second = state(StateKind::second);
      step.master = state(StateKind::master);
      add_each(engine_, out[0], slice.region.volume(), step);
    }
    return out;
  }

  Kernels<Engine> kernels(const Local& op, const Shares&) {
    Kernels<Engine> out(1);
    if (!engine_.runs(op.device)) return out;
    const std::vector<TensorSlice> to = tensor_slices(dag_, op.device, op.to);
    if (op.kind == LocalKind::drop) {
      for (const TensorSlice& slice : to) {
        if (slice.region.empty() || engine_.gives_back(slice.key)) continue;
        const std::array<View<T>, 1> views{engine_.view(slice.key)};
        add_each(engine_, out[0], slice.region.volume(),
                 Zero<T>{walk_over(slice.region, views), start_of(views[0], slice.region)});
      }
      return out;
    }
    const std::vector<TensorSlice> from = tensor_slices(dag_, op.device, op.from);
    for (std::size_t i = 0; i < to.size(); ++i) {
      add_copy(engine_, out[0], to[i], from.at(i), to[i].region,
               op.kind == LocalKind::add ? adding(engine_, to[i]) : Move::copy);
    }
    return out;
  }

  Kernels<Engine> kernels(const Transfer& op, const Shares&) {
    Kernels<Engine> out(1);
    if (!engine_.runs(op.to)) return out;  // the receiver has a mirror of what was sent
    const std::vector<TensorSlice> from = tensor_slices(dag_, op.from, op.slice);
    const std::vector<TensorSlice> to = tensor_slices(dag_, op.to, op.target);
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (from.at(i).key == to[i].key) continue;  // a worker and its server share one store
      add_copy(engine_, out[0], to[i], from[i], to[i].region,
               op.add ? adding(engine_, to[i]) : Move::copy);
    }
    return out;
  }

  Kernels<Engine> kernels(const Delay&, const Shares&) { return Kernels<Engine>(1); }

  Kernels<Engine> kernels(const Collective& op, const Shares& shares) {
    const std::vector<DeviceId>& group = dag_.group(op.group);
    Kernels<Engine> out(group.size());
    ensure(group.size() <= static_cast<std::size_t>(most_members),
           "check_devices refuses larger groups");
    for (std::size_t m = 0; m < group.size(); ++m) {
      if (!engine_.runs(group[m])) continue;
      switch (op.kind) {
        case CollectiveKind::all_reduce:
          all_reduce(op, group, m, out[m]);
          break;
        case CollectiveKind::broadcast:
          if (m > 0) broadcast(op, group, m, out[m]);
          break;
        case CollectiveKind::reduce_scatter:
          reduce_scatter(op, shares, group, m, out[m]);
          break;
        case CollectiveKind::all_gather:
        case CollectiveKind::all_to_all:
          gather(op, shares, group, m, out[m]);
      }
    }
    return out;
  }

  void all_reduce(const Collective& op, const std::vector<DeviceId>& group, std::size_t m,
                  Actions& out) {
    const std::size_t parts = tensor_slices(dag_, group[0], op.slice).size();
    for (std::size_t part = 0; part < parts; ++part) {
      std::vector<View<T>> from;
      std::vector<View<T>> to;
      const Region region = tensor_slices(dag_, group[0], op.slice)[part].region;
      if (region.empty()) continue;
      for (const DeviceId device : group) {
        from.push_back(engine_.view_of(tensor_slices(dag_, device, op.slice)[part]));
        if (!engine_.runs(device)) continue;
        to.push_back(engine_.view(tensor_slices(dag_, device, op.target)[part].key));
      }
      // Member m sums its share of the elements for all; in a process of its own all for itself.
      const auto n = static_cast<std::int64_t>(engine_.is_apart() ? 1 : group.size());
      const std::int64_t share = engine_.is_apart() ? 0 : static_cast<std::int64_t>(m);
      const std::int64_t begin = region.volume() * share / n;
      const std::int64_t end = region.volume() * (share + 1) / n;
      add_sum(from, to, region, begin, end, false, out);
    }
  }

  void broadcast(const Collective& op, const std::vector<DeviceId>& group, std::size_t m,
                 Actions& out) {
    const std::vector<TensorSlice> from = tensor_slices(dag_, group[0], op.slice);
    const std::vector<TensorSlice> to = tensor_slices(dag_, group[m], op.target);
    for (std::size_t i = 0; i < from.size(); ++i) {
      add_copy(engine_, out, to[i], from[i], from[i].region, Move::copy);
    }
  }

  void reduce_scatter(const Collective& op, const Shares& shares,
                      const std::vector<DeviceId>& group, std::size_t m, Actions& out) {
    const std::vector<TensorSlice> to = tensor_slices(dag_, group[m], op.target, shares.regions[m]);
    const bool writes = op.slice == op.target || op.target.role == Role::activation;
    for (std::size_t p = 0; p < to.size(); ++p) {
      if (to[p].region.empty()) continue;
      std::vector<View<T>> from;
      for (const DeviceId device : group) {
        from.push_back(
            engine_.view_of(tensor_slices(dag_, device, op.slice, shares.regions[m])[p]));
      }
      add_sum(from, {engine_.view(to[p].key)}, to[p].region, 0, to[p].region.volume(), !writes,
              out);
    }
  }

  void gather(const Collective& op, const Shares& shares, const std::vector<DeviceId>& group,
              std::size_t m, Actions& out) {
    for (std::size_t j = 0; j < group.size(); ++j) {
      if (m == j && op.slice == op.target) continue;  // it has its own share already
      const std::vector<TensorSlice> from =
          tensor_slices(dag_, group[j], op.slice, shares.regions[j]);
      const std::vector<TensorSlice> to =
          tensor_slices(dag_, group[m], op.target, shares.regions[j]);
      for (std::size_t p = 0; p < from.size(); ++p) {
        Region part = from[p].region;
        if (op.kind == CollectiveKind::all_to_all) {
          part = intersect(part, dag_.region(shares.needs[m]));
        }
        add_copy(engine_, out, to[p], from[p], part,
                 op.target.role == Role::gradient ? Move::add : Move::copy);
      }
    }
  }

  /// Elements [begin, end) of a region: the sum of all `from` goes to all `to`.
  void add_sum(const std::vector<View<T>>& from, const std::vector<View<T>>& to,
               const Region& region, std::int64_t begin, std::int64_t end, bool add, Actions& out) {
    // Stores of one tensor may have other boxes on other devices.
    const auto alike = [&](const std::vector<View<T>>& views) {
      return std::all_of(views.begin(), views.end(),
                         [&](const View<T>& view) { return lies_alike(region, view, views[0]); });
    };
    const auto fill = [&](auto& sum) {
      sum.first = static_cast<std::uint32_t>(begin);
      sum.sources = static_cast<int>(from.size());
      sum.targets = static_cast<int>(to.size());
      sum.add = add;
    };
    if (alike(from) && alike(to)) {
      ShardSum<T> sum;
      fill(sum);
      sum.walk = walk_over(region, std::array{from[0], to[0]});
      for (std::size_t k = 0; k < from.size(); ++k) sum.from[k] = start_of(from[k], region);
      for (std::size_t k = 0; k < to.size(); ++k) sum.to[k] = start_of(to[k], region);
      return add_each(engine_, out, end - begin, sum);
    }
    ShardSumAny<T> sum;
    fill(sum);
    sum.loops = loops_over(region, from[0]);
    std::copy(from.begin(), from.end(), sum.from);
    std::copy(to.begin(), to.end(), sum.to);
    add_each(engine_, out, end - begin, sum);
  }

  Engine& engine_;
  const ExecDag& dag_;
  std::vector<bool> trained_;
};

}  // namespace parsim::hw
