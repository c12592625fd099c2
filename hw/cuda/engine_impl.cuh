// Members of CudaEngine.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <algorithm>
#include <cmath>

#include "hw/cuda/engine.cuh"

namespace parsim::hw {

/// By layer: whether its products are in FP8. Empty: none is.
[[nodiscard]] inline std::vector<bool> layers_in_fp8(const ExecDag& dag) {
  std::vector<bool> all;
  for (std::size_t l = 0; multiplies_in_fp8(dag.precision) && l < dag.network.layers.size(); ++l) {
    all.push_back(multiplies_in_fp8(dag.network, LayerId{l}));
  }
  return all;
}

template <class T>
CudaEngine<T>::CudaEngine(const ExecDag& dag, const CudaDevices& devices, const Dispatch& order,
                          const MemoryRules& rules, bool exact, const CudaEngine* like)
    : dag_(dag),
      devices_(devices),
      exact_(exact),
      stores_(hw::stores(dag, sizeof(T) == 2)),  // fused attention is for 16 bits
      received_(received_gradients(dag)),
      precision_(without_fp8(dag.precision)),
      in_fp8_(layers_in_fp8(dag)) {
  samples_ = dag.batch / stores_.micro_batches;
  std::erase_if(stores_.all, [&](const auto& entry) { return !runs(entry.first.device); });
  plan_ = plan_memory(dag, order, stores_, sizeof(T), alignment, rules);
  per_device_.resize(static_cast<std::size_t>(stores_.devices));
  for (std::size_t d = 0; d < per_device_.size(); ++d) {
    PerDevice& device = per_device_[d];
    if (!runs(DeviceId{d})) continue;
    devices_.make_current(devices_.all()[d]);
    device.arena = DeviceMemory(plan_.devices[d].total);
    cudnn_check(cudnnCreate(&device.dnn), "cudnnCreate");
    cublas_check(cublasLtCreate(&device.blas), "cublasLtCreate");
    if (like == nullptr) continue;
    device.plans = like->per_device_[d].plans;
    device.attention_plans = like->per_device_[d].attention_plans;
  }
}

template <class T>
CudaEngine<T>::~CudaEngine() {
  for (PerDevice& device : per_device_) {
    if (device.dnn != nullptr) static_cast<void>(cudnnDestroy(device.dnn));
    if (device.blas != nullptr) static_cast<void>(cublasLtDestroy(device.blas));
  }
}

template <class T>
Layout CudaEngine<T>::layout(const StoreKey& key) const {
  return library_layout(dag_, key);
}

template <class T>
View<T> CudaEngine<T>::view(const StoreKey& key) {
  char* data = per_device_[key.device.index()].arena.get() + plan_.offset(key, op_);
  return dense_view(reinterpret_cast<T*>(data), stores_.all.at(key).box, layout(key));
}

template <class T>
View<float> CudaEngine<T>::state(const StoreKey& key) {
  if (!stores_.all.contains(key)) return {};
  char* data = per_device_[key.device.index()].arena.get() + plan_.offset(key, op_);
  return dense_view(reinterpret_cast<float*>(data), stores_.all.at(key).box, layout(key));
}

template <class T>
char* CudaEngine<T>::buffer(std::size_t bytes) {
  constexpr std::size_t least = std::size_t{1} << 20;
  PerDevice& device = per_device_[current_.index()];
  bytes = aligned(bytes);
  while (device.buffer < device.buffers.size() &&
         device.used + bytes > device.buffers[device.buffer].bytes()) {
    ++device.buffer;
    device.used = 0;
  }
  if (device.buffer == device.buffers.size()) device.buffers.emplace_back(std::max(bytes, least));
  char* const begin = device.buffers[device.buffer].get() + device.used;
  device.used += bytes;
  return begin;
}

template <class T>
void CudaEngine<T>::begin(OpId op) {
  op_ = op;
  overwritten_.clear();
  casts_.clear();
  kept_ = 0;
  if (dag_.kind(op) != OpKind::compute) return;  // others need no room
  for (PerDevice& device : per_device_) device.buffer = device.used = 0;
}

template <class T>
std::vector<std::pair<DeviceId, typename CudaEngine<T>::Action>> CudaEngine<T>::zeros() {
  std::vector<std::pair<DeviceId, Action>> actions;
  for (const StoreKey& key : plan_.begins_as_zero[op_.index()]) {
    if (std::find(overwritten_.begin(), overwritten_.end(), key) != overwritten_.end()) continue;
    const std::size_t bytes =
        aligned(static_cast<std::size_t>(stores_.all.at(key).box.volume()) * sizeof(T));
    Clear clear{reinterpret_cast<Clear::Chunk*>(view(key).data)};
    actions.emplace_back(key.device,
                         for_each(static_cast<std::uint32_t>(bytes / sizeof(Clear::Chunk)), clear));
  }
  return actions;
}

template <class T>
Bytes CudaEngine<T>::bytes(DeviceId device) const {
  const PerDevice& own = per_device_[device.index()];
  std::size_t sum = own.arena.bytes() + own.workspace.bytes();
  for (const DeviceMemory& buffer : own.buffers) sum += buffer.bytes();
  return Bytes{static_cast<std::int64_t>(sum)};
}

template <class T>
void CudaEngine<T>::use(DeviceId device) {
  current_ = device;
  devices_.make_current(devices_.all()[device.index()]);
}

template <class T>
void CudaEngine<T>::zero() {
  for (std::size_t d = 0; d < per_device_.size(); ++d) {
    const std::size_t zeroed = plan_.devices[d].zeroed;
    if (zeroed == 0) continue;
    devices_.make_current(devices_.all()[d]);
    cuda_check(cudaMemsetAsync(per_device_[d].arena.get(), 0, zeroed, nullptr), "cudaMemsetAsync");
    cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
}

template <class T>
void CudaEngine<T>::reset() {
  for (std::size_t d = 0; d < per_device_.size(); ++d) {
    const std::size_t total = plan_.devices[d].total;
    if (total == 0) continue;
    devices_.make_current(devices_.all()[d]);
    cuda_check(cudaMemset(per_device_[d].arena.get(), 0, total), "cudaMemset");
  }
  for (const auto& [key, store] : stores_.all) {
    devices_.make_current(devices_.all()[key.device.index()]);
    const auto count = static_cast<std::uint32_t>(store.box.volume());
    const auto sized = [&](auto fill) {
      if (fill.stream == 2 && !exact_) fill.amplitude = steady_amplitude(dag_, key);
      for_each(count, fill)({});
    };
    if (key.role == Role::optimizer_state) {
      if (const auto fill = fill_of(dag_, key, store.box, samples_, state(key))) sized(*fill);
    } else if (const auto fill = fill_of(dag_, key, store.box, samples_, view(key))) {
      sized(*fill);
    }
  }
  for (std::size_t d = 0; d < per_device_.size(); ++d) {
    if (!runs(DeviceId{d})) continue;
    devices_.make_current(devices_.all()[d]);
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
}

template <class T>
CudaContext CudaEngine<T>::context(DeviceId device, cudaStream_t stream) const {
  const PerDevice& own = per_device_[device.index()];
  return {stream, own.workspace.get(), own.dnn, own.blas};
}

template <class T>
void CudaEngine<T>::allocate_workspaces() {
  for (std::size_t d = 0; d < per_device_.size(); ++d) {
    if (!runs(DeviceId{d})) continue;
    devices_.make_current(devices_.all()[d]);
    per_device_[d].workspace = DeviceMemory(per_device_[d].workspace_need);
  }
}

template <class T>
std::vector<T> CudaEngine<T>::download(const StoreKey& key) const {
  const Store& store = stores_.all.at(key);
  std::vector<T> values(static_cast<std::size_t>(store.box.volume()));
  const char* data = per_device_[key.device.index()].arena.get() + plan_.offset(key, op_);
  cuda_check(cudaMemcpy(values.data(), data, values.size() * sizeof(T), cudaMemcpyDeviceToHost),
             "cudaMemcpy");
  return values;
}

template <class T>
typename CudaEngine<T>::Operand CudaEngine<T>::operand(const View<T>& view, const Region& region,
                                                       bool channels_last, bool result,
                                                       bool overwrites, std::size_t& used) {
  Operand o;
  o.region = region;
  o.view = view;
  o.channels_last = channels_last;
  const auto wanted = dense_strides(region, channels_last);
  bool dense = reinterpret_cast<std::uintptr_t>(start_of(view, region)) % 16 == 0;
  for (std::size_t a = 0; a < region.rank(); ++a) {
    dense = dense && (region[a].size() == 1 || view.stride[a] == wanted[a]);
  }
  o.direct = dense && (!result || overwrites);
  if (o.direct) return o;
  o.offset = used;
  used += aligned(static_cast<std::size_t>(region.volume()) * sizeof(T));
  if (!result) o.pack = move(o, true, Move::copy);
  return o;
}

template <class T>
typename CudaEngine<T>::Action CudaEngine<T>::move(const Operand& operand, bool into_workspace,
                                                   Move how) const {
  // The dense side's pointer is known when the action runs.
  View<T> dense = dense_view(static_cast<T*>(nullptr), operand.region, operand.channels_last);
  const std::array<View<T>, 2> views =
      into_workspace ? std::array{dense, operand.view} : std::array{operand.view, dense};
  const Walk<2> walk = walk_over(operand.region, views);
  T* tensor = start_of(operand.view, operand.region);
  const auto count = static_cast<std::uint32_t>(operand.region.volume());
  const std::size_t offset = operand.offset;
  return [=, this](const CudaContext& context) {
    T* there = reinterpret_cast<T*>(context.workspace + offset);
    const Copy<T> copy =
        into_workspace ? Copy<T>{walk, there, tensor, how} : Copy<T>{walk, tensor, there, how};
    for_each(count, copy)(context);
  };
}

template <class T>
std::optional<typename CudaEngine<T>::Action> CudaEngine<T>::convolve(const ConvRequest<T>& r) {
  PerDevice& device = per_device_[current_.index()];
  const ConvShape shape = conv_shape(r, precision_);
  auto known = std::find_if(device.plans.begin(), device.plans.end(),
                            [&](const auto& entry) { return entry.first == shape; });
  if (known == device.plans.end()) {
    device.plans.emplace_back(
        shape, ConvPlan::make(device.dnn, shape, devices_.all()[current_.index()].multiprocessors));
    known = std::prev(device.plans.end());
  }
  const std::shared_ptr<ConvPlan> plan = known->second;
  if (!plan) return std::nullopt;
  return by_library(r, true, r.overwrites, plan->workspace_bytes(),
                    [plan](const CudaContext& context, const LibraryCall& call) {
                      cudnn_check(cudnnSetStream(context.dnn, context.stream), "cudnnSetStream");
                      plan->run(context.dnn, call.x, call.w, call.y, call.workspace);
                    });
}

template <class T>
std::shared_ptr<MatrixPlan> CudaEngine<T>::matrix_plan(MatrixShape shape) {
  shape.precision = precision_;
  return MatrixPlan::make(per_device_[current_.index()].blas, shape,
                          devices_.all()[current_.index()].multiprocessors);
}

template <class T>
std::optional<typename CudaEngine<T>::Action> CudaEngine<T>::multiply_each(
    const DenseRequest<T>& r) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (r.experts && is_in_fp8(r)) {
      if (std::optional<Action> action = multiply_in_fp8(r)) return action;
    }
  }
  const std::size_t last = r.x.rank() - 1;
  const std::int64_t inner = r.x[last].size();
  const std::int64_t batch =
      r.experts ? r.x[0].size() : r.x.volume() / (r.x[last - 1].size() * inner);
  const std::shared_ptr<MatrixPlan> plan =
      matrix_plan({r.product, precision_, r.x.volume() / (batch * inner),
                   r.w[r.w.rank() - 2].size(), inner, batch});
  if (!plan) return std::nullopt;
  return by_library(r, false, r.overwrites || !r.atomic, plan->workspace_bytes(),
                    [plan](const CudaContext& context, const LibraryCall& call) {
                      plan->run(context.blas, call.x, call.w, call.y, call.adds, call.workspace,
                                context.stream);
                    });
}

template <class T>
std::optional<typename CudaEngine<T>::Action> CudaEngine<T>::multiply(const DenseRequest<T>& r) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (is_in_fp8(r)) {
      if (std::optional<Action> action = multiply_in_fp8(r)) return action;
    }
  }
  const std::size_t last = r.y.rank() - 1;
  const std::int64_t inner = r.x[last].size();
  const MatrixShape shape{r.product, precision_, r.y.volume() / r.y[last].size(), r.y[last].size(),
                          inner};
  const std::shared_ptr<MatrixPlan> plan = matrix_plan(shape);
  if (!plan) return std::nullopt;
  // cuBLASLt adds, too, where no other kernel adds concurrently.
  return by_library(r, false, r.overwrites || !r.atomic, plan->workspace_bytes(),
                    [plan](const CudaContext& context, const LibraryCall& call) {
                      plan->run(context.blas, call.x, call.w, call.y, call.adds, call.workspace,
                                context.stream);
                    });
}

/// How what a library left in the workspace goes to its tensor.
template <class Request>
[[nodiscard]] Move unpacked(const Request& request) {
  if (request.overwrites) return Move::copy;
  return request.atomic ? Move::atomic_add : Move::add;
}

template <class T>
void CudaEngine<T>::need_workspace(std::size_t bytes) {
  std::size_t& need = per_device_[current_.index()].workspace_need;
  need = std::max(need, aligned(bytes));
}

template <class T>
template <class Request, class Run>
typename CudaEngine<T>::Action CudaEngine<T>::by_library(const Request& r, bool channels_last,
                                                         bool direct, std::int64_t workspace_bytes,
                                                         Run run) {
  std::size_t used = kept_;
  const auto part = [&](const View<T>& view, const Region& region, Product product) {
    return operand(view, region, channels_last, r.product == product, direct, used);
  };
  const Operand x = part(r.x_view, r.x, Product::data);
  const Operand w = part(r.w_view, r.w, Product::weights);
  const Operand y = part(r.y_view, r.y, Product::forward);
  const Operand& result = r.product == Product::forward ? y : r.product == Product::data ? x : w;
  const bool adds = result.direct && !r.overwrites;
  Action unpack;
  if (!result.direct) {
    unpack = move(result, false, unpacked(r));
  }
  const std::size_t workspace = used;
  need_workspace(used + static_cast<std::size_t>(workspace_bytes));
  return [=](const CudaContext& context) {
    for (const Operand* input : {&x, &w, &y}) {
      if (input->pack) input->pack(context);
    }
    run(context, LibraryCall{x.at(context), w.at(context), y.at(context),
                             context.workspace + workspace, adds});
    if (unpack) unpack(context);
  };
}

}  // namespace parsim::hw
