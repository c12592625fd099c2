// Kernels of attention and of tables. An engine may have a library do attention:
//
//     attend(request) -> optional<Action>   see AttentionRequest
#pragma once

#include <optional>

#include "hw/kernels.hpp"
#include "hw/math/attention.hpp"

namespace parsim::hw {

/// Attention of a part, or the gradients of its operands.
template <class T>
struct AttentionRequest {
  AttentionPart<T> part;
  bool backward = false;
  Region query, keys, values, out;  ///< of the part, in the whole tensors
  View<T> y;                        ///< backward: the output
  TensorSlice statistics;           ///< of the forward pass, for an engine that keeps them
  View<T> dquery, dkey, dvalue;     ///< of no memory: not wanted
  bool overwrites[3] = {};          ///< the gradients may replace what is there
};

template <class Engine>
class AttentionKernels {
 public:
  using T = typename Engine::Scalar;
  using Actions = std::vector<typename Engine::Action>;

  AttentionKernels(Engine& engine, const PartOf<Engine>& part, Actions& out)
      : engine_(engine), p_(part), out_(out), region_(part.part.out) {}

  void operator()(const Attention& attention) {
    AttentionRequest<T> r;
    r.backward = !p_.forward();
    r.query = p_.slices.inputs[0].region;
    r.keys = p_.slices.inputs[1].region;
    r.values = p_.slices.inputs[2].region;
    r.out = region_;
    r.statistics = p_.slices.statistics;
    AttentionPart<T>& part = r.part;
    part.query = p_.inputs[0];
    part.key = p_.inputs[1];
    part.value = p_.inputs[2];
    part.y = r.backward ? p_.out_gradient : p_.out;
    part.out = box_of(region_);
    part.width = narrow(p_.shapes[0].axes[1].extent / attention.heads);
    part.value_width = narrow(p_.shapes[2].axes[1].extent / attention.key_heads);
    part.group = narrow(attention.heads / attention.key_heads);
    part.keys = narrow(r.keys[1].end);
    part.first_head = narrow(r.query[2].begin) / part.width;
    part.heads = narrow(r.query[2].size()) / part.width;
    part.causal = attention.causal;
    part.window = narrow(attention.window);
    if (r.backward) {
      r.y = engine_.view(p_.slices.out.key);
      View<T>* const gradients[] = {&r.dquery, &r.dkey, &r.dvalue};
      bool any = false;
      for (std::size_t i = 0; i < 3; ++i) {
        if (!p_.wants_input(i)) continue;
        *gradients[i] = engine_.view(p_.slices.input_gradients[i].key);
        r.overwrites[i] = engine_.overwrites(p_.slices.input_gradients[i].key,
                                             p_.slices.input_gradients[i].region);
        any = true;
      }
      if (!any) return;
    }
    if (by_library(r)) {
      for (std::size_t i = 0; i < 3; ++i) {
        if (r.overwrites[i]) engine_.note_overwritten(p_.slices.input_gradients[i].key);
      }
      return;
    }
    part.top = engine_.scratch(part.lines());
    part.sum = engine_.scratch(part.lines());
    add_reduction(engine_, out_, part.lines(), part.keys, AttentionSums<T>{part});
    if (!r.backward) {
      return each(region_.volume(), AttentionForward<T>{loops_over(region_, part.y), part});
    }
    part.dot = engine_.scratch(part.lines());
    add_reduction(engine_, out_, part.lines(), part.keys, AttentionDots<T>{part});
    if (r.dquery.data != nullptr) {
      each(r.query.volume(), AttentionQueries<T>{loops_over(r.query, r.dquery), part, r.dquery});
    }
    for (const bool of_values : {false, true}) {
      const View<T>& dx = of_values ? r.dvalue : r.dkey;
      if (dx.data == nullptr) continue;
      const Region& region = of_values ? r.values : r.keys;
      each(region.volume(), AttentionKeys<T>{loops_over(region, dx), part, dx, of_values});
    }
  }

  void operator()(const Embedding& embedding) {
    const std::size_t last = region_.rank() - 1;
    const Interval rows = p_.slices.parameters[0].region[0];
    LookUp<T> body;
    body.tokens = p_.inputs[0];
    body.table = p_.parameters[0];
    body.y = p_.forward() ? p_.out : p_.out_gradient;
    body.loops = loops_over(region_, body.y);
    body.rows = narrow(embedding.rows);
    body.rows_begin = narrow(rows.begin);
    body.rows_end = narrow(rows.end);
    body.channel = static_cast<int>(last);
    body.adds = p_.slices.adds;
    if (!p_.forward()) {
      if (!p_.wants_parameter(0)) return;
      const StoreKey& to = p_.slices.parameter_gradients[0].key;
      const bool rivals = engine_.has_rivals(to);
      body.table = engine_.view(to);
      body.backward = true;
      constexpr std::int64_t few_rows = 32;
      if (rows.size() <= few_rows) {
        const std::int64_t channels = region_[last].size();
        const Loops positions = loops_over(region_, body.y, {last});
        return add_reduction(
            engine_, out_, rows.size() * channels, positions.size(),
            LookUpGradient<T>{body, positions, static_cast<std::uint32_t>(channels),
                              narrow(region_[last].begin), rivals});
      }
    }
    each(region_.volume(), body);
  }

 private:
  void each(std::int64_t count, auto body) { add_each(engine_, out_, count, body); }
  bool by_library(const AttentionRequest<T>& request) {
    if constexpr (requires(Engine& e) { e.attend(request); }) {
      auto action = engine_.attend(request);
      if (!action) return false;
      out_.push_back(std::move(*action));
      return true;
    }
    return false;
  }

  Engine& engine_;
  const PartOf<Engine>& p_;
  Actions& out_;
  const Region& region_;
};

}  // namespace parsim::hw
