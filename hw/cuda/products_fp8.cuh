// Products of linear layers and of experts in FP8: members of CudaEngine. Tensors are bf16; an
// operation casts what it multiplies into the workspace, as it lies and transposed, and cuBLASLt
// multiplies the copies.
#pragma once

#include "hw/cuda/engine.cuh"

namespace parsim::hw {

/// nvcc 13 loses the comparison of intervals.
[[nodiscard]] inline bool is_same(const Region& a, const Region& b) {
  return a.rank() == b.rank() && a.contains(b) && b.contains(a);
}

/// The parts must have widths that FP8 can, too, as in predictions (sim/kernels.cpp).
template <class T>
bool CudaEngine<T>::is_in_fp8(const DenseRequest<T>& r) const {
  if (in_fp8_.empty() || dag_.kind(op_) != OpKind::compute) return false;
  const LayerId layer = dag_.work(std::get<Compute>(dag_.op(op_)).work).layer;
  return in_fp8_[layer.index()] && r.x[r.x.rank() - 1].size() % fp8_multiple == 0 &&
         r.y[r.y.rank() - 1].size() % fp8_multiple == 0;
}

template <class T>
CastState* CudaEngine<T>::cast_state() {
  constexpr std::size_t each = 1024;
  PerDevice& device = per_device_[current_.index()];
  const std::size_t n = device.casts++;
  if (n % each == 0) {
    const DeviceMemory& more = device.cast_states.emplace_back(each * sizeof(CastState));
    cuda_check(cudaMemset(more.get(), 0, more.bytes()), "cudaMemset");
  }
  return reinterpret_cast<CastState*>(device.cast_states.back().get()) + n % each;
}

template <class T>
typename CudaEngine<T>::Fp8Operand CudaEngine<T>::fp8_operand(const View<T>& view,
                                                              const Region& region, bool gradient,
                                                              bool transposed, std::int64_t batch) {
  for (const Fp8Operand& known : casts_) {
    if (known.view.data == view.data && is_same(known.region, region) &&
        known.is_transposed == transposed) {
      return known;  // has been cast for another product of the operation
    }
  }
  const bool delayed = dag_.precision == Precision::fp8_delayed;
  PerDevice& device = per_device_[current_.index()];
  const Operand from = operand(view, region, false, false, false, kept_);
  CastTask<T> task;
  task.columns = static_cast<std::uint32_t>(region[region.rank() - 1].size());
  task.rows = static_cast<std::uint32_t>(region.volume() / (batch * task.columns));
  task.padded_rows = static_cast<std::uint32_t>(padded_rows(task.rows));
  task.state = cast_state();
  task.notes = delayed;
  const auto place = [&](std::uint32_t rows) {
    const std::size_t elements = static_cast<std::size_t>(batch) * rows * task.columns;
    return std::exchange(kept_, kept_ + aligned(elements));
  };
  // A backward pass multiplies its output's gradient both ways.
  const bool both = gradient && std::get<Compute>(dag_.op(op_)).pass == Pass::backward;
  Fp8Operand plain{
      view, region, false, place(both || !transposed ? task.rows : 0), &task.state->unit, {}};
  Fp8Operand turned{
      view, region, true, place(both || transposed ? task.padded_rows : 0), &task.state->unit, {}};
  float* const maxima = scratch(most_maxima);
  const std::uint64_t eights = static_cast<std::uint64_t>(region.volume()) / 8;
  const auto blocks = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(most_maxima, (eights - 1) / (4 * cast_threads) + 1));
  const bool begins = delayed && !std::exchange(device.begins_casts, true);
  const dim3 tiles((std::max(task.rows, task.padded_rows) - 1) / cast_tile + 1,
                   (task.columns - 1) / cast_tile + 1, static_cast<unsigned>(batch));
  Fp8Operand& wanted = transposed ? turned : plain;
  wanted.cast = [=, this, &device](const CudaContext& context) {
    if (begins) {
      std::size_t left = device.casts;
      for (const DeviceMemory& states : device.cast_states) {
        const auto count =
            static_cast<std::uint32_t>(std::min(left, states.bytes() / sizeof(CastState)));
        launch(begin_casts, (count - 1) / cast_threads + 1, cast_threads, context.stream, count,
               reinterpret_cast<CastState*>(states.get()));
        left -= count;
      }
    }
    if (from.pack) from.pack(context);
    CastTask<T> now = task;
    now.from = static_cast<const T*>(from.at(context));
    if (both || !transposed) {
      now.copy = reinterpret_cast<std::uint8_t*>(context.workspace + plain.offset);
    }
    if (both || transposed) {
      now.transposed = reinterpret_cast<std::uint8_t*>(context.workspace + turned.offset);
    }
    now.maxima = &task.state->largest;
    now.maxima_count = 1;
    if (!delayed || looks_first_) {
      launch(largest_elements<T>, blocks, cast_threads, context.stream, eights, now.from, maxima);
      now.maxima = maxima;
      now.maxima_count = blocks;
    }
    launch(gradient ? cast_to_fp8<T, true> : cast_to_fp8<T, false>, tiles, cast_threads,
           context.stream, now);
  };
  const Fp8Operand result = wanted;
  wanted.cast = {};
  casts_.push_back(wanted);
  if (both) casts_.push_back(transposed ? plain : turned);
  return result;
}

template <class T>
std::optional<typename CudaEngine<T>::Action> CudaEngine<T>::multiply_in_fp8(
    const DenseRequest<T>& r) {
  const std::size_t last = r.y.rank() - 1;
  const std::int64_t batch = r.experts ? r.y[0].size() : 1;
  const MatrixShape shape{
      r.product,        Precision::bf16,  r.y.volume() / (batch * r.y[last].size()),
      r.y[last].size(), r.x[last].size(), batch};
  const bool forward = r.product == Product::forward;
  const bool weights = r.product == Product::weights;
  const std::size_t known = casts_.size();
  const Fp8Operand a = weights ? fp8_operand(r.x_view, r.x, false, true, batch)
                               : fp8_operand(r.w_view, r.w, false, !forward, batch);
  const Fp8Operand b = forward ? fp8_operand(r.x_view, r.x, false, false, batch)
                               : fp8_operand(r.y_view, r.y, true, weights, batch);
  const Fp8Units units{a.unit, b.unit};
  const std::shared_ptr<MatrixPlan> plan =
      MatrixPlan::make_in_fp8(per_device_[current_.index()].blas, shape, units,
                              devices_.all()[current_.index()].multiprocessors);
  if (!plan) {
    casts_.resize(known);  // which no operation does
    return std::nullopt;
  }
  std::size_t used = kept_;
  const bool direct = r.overwrites || !r.atomic;
  const Operand result = forward   ? operand(r.y_view, r.y, false, true, direct, used)
                         : weights ? operand(r.w_view, r.w, false, true, direct, used)
                                   : operand(r.x_view, r.x, false, true, direct, used);
  Action unpack;
  if (!result.direct) unpack = move(result, false, unpacked(r));
  const bool adds = result.direct && !r.overwrites;
  const std::size_t workspace = used;
  need_workspace(used + static_cast<std::size_t>(plan->workspace_bytes()));
  ++fp8_products_;
  return [=](const CudaContext& context) {
    for (const Fp8Operand* operand : {&a, &b}) {
      if (operand->cast) operand->cast(context);
    }
    plan->multiply(context.blas, context.workspace + a.offset, context.workspace + b.offset,
                   result.at(context), adds, context.workspace + workspace, context.stream);
    if (unpack) unpack(context);
  };
}

}  // namespace parsim::hw
