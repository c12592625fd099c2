// Attention by cuDNN's fused kernels, in 16 bits: nothing of the size of the scores is stored. Of
// its tensors no copies are made: heads are strides.
#pragma once

#include <cudnn.h>

#include "hw/cuda/engine.cuh"

namespace parsim::hw {

template <class T>
std::shared_ptr<AttentionPlan> CudaEngine<T>::attention_plan(const AttentionShape& shape) {
  PerDevice& device = per_device_[current_.index()];
  auto known = std::find_if(device.attention_plans.begin(), device.attention_plans.end(),
                            [&](const auto& entry) { return entry.first == shape; });
  if (known == device.attention_plans.end()) {
    device.attention_plans.emplace_back(
        shape,
        AttentionPlan::make(device.dnn, shape, devices_.all()[current_.index()].multiprocessors));
    known = std::prev(device.attention_plans.end());
  }
  return known->second;
}

template <class T>
std::optional<typename CudaEngine<T>::Action> CudaEngine<T>::attend(const AttentionRequest<T>& r) {
  ++attention_count_.all;
  if (auto fused = attend_fused(r)) {
    ++attention_count_.fused;
    return fused;
  }
  return attend_by_scores(r);
}

template <class T>
std::optional<typename CudaEngine<T>::Action> CudaEngine<T>::attend_fused(
    const AttentionRequest<T>& r) {
  const StoreKey& kept = r.statistics.key;
  const bool was_fused = statistics_.contains(kept);
  if (!r.backward) statistics_.erase(kept);
  if (sizeof(T) != 2 || (r.backward && !was_fused)) return std::nullopt;
  const auto store = stores_.all.find(kept);
  const auto alike = [](const Region& a, const Region& b) {
    return a.contains(b) && b.contains(a);
  };
  if (store == stores_.all.end() || !alike(store->second.box, r.statistics.region)) {
    return std::nullopt;
  }
  const AttentionPart<T>& part = r.part;
  const std::int64_t width = part.width;
  const std::int64_t heads = part.heads;
  const std::int64_t key_heads = r.keys[2].size() / width;
  // Whole heads; masks begin with the first query and have no window.
  if (part.value_width != width || part.window > 0 || !alike(r.out, r.query) || !alike(r.values, r.keys) ||
      r.query[2].begin % width != 0 || r.keys[2].begin % width != 0 || heads % key_heads != 0 ||
      heads * width != r.query[2].size() || key_heads * width != r.keys[2].size()) {
    return std::nullopt;
  }
  if (key_heads > 1 && (heads / key_heads != part.group || part.first_head % part.group != 0)) {
    return std::nullopt;
  }
  if (part.causal && (r.query[1].begin != 0 || r.keys[1].begin != 0)) return std::nullopt;

  AttentionShape shape;
  shape.backward = r.backward;
  shape.causal = part.causal;
  shape.precision = precision_;
  shape.samples = r.out[0].size();
  shape.heads = heads;
  shape.key_heads = key_heads;
  shape.tokens = r.query[1].size();
  shape.keys = r.keys[1].size();
  shape.width = width;

  // Operands as they lie; gradients that are added, or lie otherwise, in the workspace.
  struct Place {
    T* tensor = nullptr;     ///< null: in the workspace alone
    std::size_t offset = 0;  ///< in the workspace, unless direct
    bool direct = true;
    Action unpack;
  };
  std::array<Place, AttentionShape::count> places;
  std::size_t used = 0;
  const auto lies_well = [](const View<T>& view, const Region& region) {
    constexpr std::int64_t chunk = 16 / sizeof(T);
    const auto at = reinterpret_cast<std::uintptr_t>(start_of(view, region));
    return view.stride[2] == 1 && view.stride[0] % chunk == 0 && view.stride[1] % chunk == 0 &&
           at % 16 == 0;
  };
  const auto take = [&](AttentionShape::Operand which, const View<T>& view, const Region& region) {
    places[which].tensor = start_of(view, region);
    shape.strides[which] = {view.stride[0], view.stride[1]};
    return lies_well(view, region);
  };
  const View<T>& out = r.backward ? r.y : part.y;
  if (!take(AttentionShape::query, part.query, r.query) ||
      !take(AttentionShape::key, part.key, r.keys) ||
      !take(AttentionShape::value, part.value, r.keys) || !take(AttentionShape::out, out, r.out) ||
      (r.backward && !take(AttentionShape::dout, part.y, r.out))) {
    return std::nullopt;
  }
  if (r.backward) {
    const std::array<View<T>, 3> gradients{r.dquery, r.dkey, r.dvalue};
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const auto which = static_cast<AttentionShape::Operand>(AttentionShape::dquery + i);
      const Region& region = i == 0 ? r.query : r.keys;
      const View<T>& view = gradients[i];
      const bool wanted = view.data != nullptr;
      if (wanted && r.overwrites[i] && take(which, view, region)) continue;
      Place& place = places[which];
      place.direct = false;
      place.offset = used;
      used += aligned(static_cast<std::size_t>(region.volume()) * sizeof(T));
      shape.strides[which] = {region[1].size() * region[2].size(), region[2].size()};
      if (!wanted) continue;
      Operand moved;
      moved.region = region;
      moved.view = view;
      moved.offset = place.offset;
      place.unpack = move(moved, false, r.overwrites[i] ? Move::copy : Move::add);
    }
  }
  const std::shared_ptr<AttentionPlan> plan = attention_plan(shape);
  if (!plan) return std::nullopt;
  if (!r.backward) {
    // With a forward plan alone, a backward pass would find scores of another rounding.
    AttentionShape backward = shape;
    backward.backward = true;
    for (const auto& [to, from] : {std::pair{AttentionShape::dout, AttentionShape::out},
                                   {AttentionShape::dquery, AttentionShape::query},
                                   {AttentionShape::dkey, AttentionShape::key},
                                   {AttentionShape::dvalue, AttentionShape::value}}) {
      backward.strides[to] = shape.strides[from];
    }
    if (!attention_plan(backward)) return std::nullopt;
    statistics_.insert(kept);
  }
  const std::size_t library_at = used;
  used += aligned(static_cast<std::size_t>(plan->workspace_bytes()));
  std::size_t& need = per_device_[current_.index()].workspace_need;
  need = std::max(need, used);
  auto* const statistics = reinterpret_cast<float*>(per_device_[kept.device.index()].arena.get() +
                                                    plan_.offset(kept, op_));
  return [=](const CudaContext& c) {
    std::array<void*, AttentionShape::count> operands{};
    for (std::size_t o = 0; o < places.size(); ++o) {
      operands[o] = places[o].direct ? static_cast<void*>(places[o].tensor)
                                     : static_cast<void*>(c.workspace + places[o].offset);
    }
    cudnn_check(cudnnSetStream(c.dnn, c.stream), "cudnnSetStream");
    plan->run(c.dnn, operands, statistics, c.workspace + library_at);
    for (const Place& place : places) {
      if (place.unpack) place.unpack(c);
    }
  };
}

}  // namespace parsim::hw
