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
typename CudaEngine<T>::Fp8Operand CudaEngine<T>::operand_by_blocks(const View<T>& view,
                                                                    const Region& region,
                                                                    bool squares, bool transposed,
                                                                    std::int64_t batch) {
  const Operand from = operand(view, region, false, false, false, kept_);
  BlockCastTask<T> task;
  task.columns = static_cast<std::uint32_t>(region[region.rank() - 1].size());
  task.rows = static_cast<std::uint32_t>(region.volume() / (batch * task.columns));
  task.padded_rows = static_cast<std::uint32_t>(padded_rows(task.rows));
  task.squares = squares;
  const std::uint32_t lines = transposed ? task.columns : task.rows;
  const std::uint32_t summed = transposed ? task.padded_rows : task.columns;
  const auto place = [&](std::uint64_t bytes) {
    return std::exchange(kept_, kept_ + aligned(static_cast<std::size_t>(batch) * bytes));
  };
  Fp8Operand made{view, region, transposed};
  made.unit = &cast_state()->unit;  // never read; cuBLASLt wants an address before there is one
  made.offset = place(std::uint64_t{lines} * summed);
  made.scales_of_one = block_scales(lines, summed, squares);
  made.scales = place(made.scales_of_one * sizeof(float));
  const dim3 tiles((task.padded_rows - 1) / scale_block + 1, (task.columns - 1) / scale_block + 1,
                   static_cast<unsigned>(batch));
  made.cast = [=](const CudaContext& context) {
    if (from.pack) from.pack(context);
    BlockCastTask<T> now = task;
    now.from = static_cast<const T*>(from.at(context));
    (transposed ? now.transposed : now.copy) =
        reinterpret_cast<std::uint8_t*>(context.workspace + made.offset);
    now.scales = reinterpret_cast<float*>(context.workspace + made.scales);
    launch(cast_by_blocks<T>, tiles, cast_threads, context.stream, now);
  };
  return made;
}

template <class T>
std::optional<typename CudaEngine<T>::Action> CudaEngine<T>::multiply_in_fp8(
    const DenseRequest<T>& r) {
  const std::size_t last = r.y.rank() - 1;
  const std::int64_t batch = r.experts ? r.y[0].size() : 1;
  const bool blocks = dag_.precision == Precision::fp8_blockwise;
  MatrixShape shape{r.product, Precision::bf16};
  shape.columns = r.y[last].size();
  shape.rows = r.y.volume() / (batch * shape.columns);
  shape.inner = r.x[last].size();
  // Scales by blocks are of one product: experts' follow each other.
  if (!blocks) shape.batch = batch;
  if (blocks && shape.rows % block_rows != 0) return std::nullopt;
  const bool forward = r.product == Product::forward;
  const bool weights = r.product == Product::weights;
  const std::size_t known = casts_.size();
  const std::size_t kept = kept_;
  const auto cast = [&](const View<T>& view, const Region& region, Product of, bool transposed) {
    return blocks ? operand_by_blocks(view, region, of == Product::weights, transposed, batch)
                  : fp8_operand(view, region, of == Product::forward, transposed, batch);
  };
  const Fp8Operand a = weights ? cast(r.x_view, r.x, Product::data, true)
                               : cast(r.w_view, r.w, Product::weights, !forward);
  const Fp8Operand b = forward ? cast(r.x_view, r.x, Product::data, false)
                               : cast(r.y_view, r.y, Product::forward, weights);
  const Fp8Units units{a.unit, b.unit, blocks};
  const std::shared_ptr<MatrixPlan> plan =
      MatrixPlan::make_in_fp8(per_device_[current_.index()].blas, shape, units,
                              devices_.all()[current_.index()].multiprocessors);
  if (!plan) {
    casts_.resize(known);  // which no operation does
    kept_ = kept;
    return std::nullopt;
  }
  std::size_t used = kept_;
  const bool direct = r.overwrites || !r.atomic;
  const Region& made = forward ? r.y : weights ? r.w : r.x;
  const Operand result = operand(forward   ? r.y_view
                                 : weights ? r.w_view
                                           : r.x_view,
                                 made, false, true, direct, used);
  Action unpack;
  if (!result.direct) unpack = move(result, false, unpacked(r));
  const bool adds = result.direct && !r.overwrites;
  const std::size_t workspace = used;
  need_workspace(used + static_cast<std::size_t>(plan->workspace_bytes()));
  ++fp8_products_;
  const std::int64_t products = blocks ? batch : 1;
  // From one product's operands to the next one's.
  const std::int64_t summed = forward   ? shape.inner
                              : weights ? padded_rows(shape.rows)
                                        : shape.columns;
  const std::int64_t next_a = (forward ? shape.columns : shape.inner) * summed;
  const std::int64_t next_b = (weights ? shape.columns : shape.rows) * summed;
  const std::int64_t next_c = made.volume() / batch;
  return [=](const CudaContext& context) {
    for (const Fp8Operand* operand : {&a, &b}) {
      if (operand->cast) operand->cast(context);
    }
    const auto scales = [&](const Fp8Operand& operand, std::int64_t n) {
      return reinterpret_cast<const float*>(context.workspace + operand.scales) +
             static_cast<std::uint64_t>(n) * operand.scales_of_one;
    };
    for (std::int64_t n = 0; n < products; ++n) {
      if (blocks) plan->set_units({scales(a, n), scales(b, n), true});
      plan->multiply(context.blas, context.workspace + a.offset + n * next_a,
                     context.workspace + b.offset + n * next_b,
                     static_cast<T*>(result.at(context)) + n * next_c, adds,
                     context.workspace + workspace, context.stream);
    }
    if (unpack) unpack(context);
  };
}

}  // namespace parsim::hw
