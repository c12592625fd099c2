// What a process sends and receives by NCCL in an operation, where each device has a process of its
// own: remote_slices go straight from their tensor if they lie densely there, and arrive in
// mirrors, which the operation's kernels read instead of the other device's tensors.
#pragma once

#include <nccl.h>

#include <algorithm>

#include "hw/cuda/engine.cuh"
#include "hw/cuda/sums.cuh"
#include "hw/dispatch.hpp"
#include "hw/remote_slices.hpp"

namespace parsim::hw {

template <class T>
class CudaMessages {
 public:
  /// A buffer for the remote slices of each stream, which its operations share: an operation's
  /// kernels are over before the stream's next one begins.
  CudaMessages(CudaEngine<T>& engine, const CudaDevices& devices, const ExecDag& dag,
               const Dispatch& order, const CudaSums<T>& sums)
      : engine_(engine), devices_(devices), dag_(dag), messages_(dag.size()) {
    const DeviceId mine = *devices.mine();
    devices_.make_current(devices_.all()[mine.index()]);
    std::vector<std::size_t> sizes(order.streams.size());
    for (const StreamOp& stream_op : order.stream_ops) {
      if (sums.does(stream_op.op)) continue;
      Message& message = messages_[stream_op.op.index()];
      std::size_t used = 0;
      for (const RemoteSlice& remote_slice : remote_slices(dag, stream_op.op)) {
        if (remote_slice.to != mine && remote_slice.slice.key.device != mine) continue;
        message.remote_slices.push_back({remote_slice, used, nullptr});
        used += aligned(static_cast<std::size_t>(remote_slice.slice.region.volume()) * sizeof(T));
      }
      message.key = {static_cast<int>(dag.stream(stream_op.op)), devices_of(dag, stream_op.op)};
      for (const DeviceId device : message.key.group) {
        const bool silent = std::none_of(
            message.remote_slices.begin(), message.remote_slices.end(), [&](const Sent& sent) {
              return sent.remote_slice.to == device || sent.remote_slice.slice.key.device == device;
            });
        if (silent && device != mine) message.silent.push_back(device);
      }
      std::size_t& size = sizes[static_cast<std::size_t>(stream_op.stream)];
      size = std::max(size, used);
    }
    for (const std::size_t size : sizes) buffers_.emplace_back(size);
    words_ = DeviceMemory(2 * alignment);
  }

  /// Of all buffers.
  [[nodiscard]] std::int64_t bytes() const {
    std::size_t sum = words_.bytes();
    for (const DeviceMemory& buffer : buffers_) sum += buffer.bytes();
    return static_cast<std::int64_t>(sum);
  }

  /// Before the operation's kernels are made: their views of other devices' tensors are mirrors.
  void prepare(OpId op, const StreamOp& stream_op) {
    std::vector<typename CudaEngine<T>::Mirror> mirrors;
    for (Sent& sent : messages_[op.index()].remote_slices) {
      const TensorSlice& slice = sent.remote_slice.slice;
      T* buffer = reinterpret_cast<T*>(buffers_[static_cast<std::size_t>(stream_op.stream)].get() +
                                       sent.at);
      const View<T> dense = dense_view(buffer, slice.region, engine_.channels_last(slice.key));
      sent.data = buffer;
      if (sent.remote_slice.to == *devices_.mine()) {
        // A copy that lies densely where it is to be arrives there: no kernel moves it again.
        const std::optional<View<T>> end = destination(op, sent.remote_slice, dense);
        if (end) sent.data = start_of(*end, slice.region);
        mirrors.push_back({slice, end.value_or(dense)});
        continue;
      }
      const View<T> tensor = engine_.view(slice.key);
      if (lies_alike(slice.region, tensor, dense)) {
        sent.data = start_of(tensor, slice.region);
        continue;
      }
      messages_[op.index()].packs.push_back(
          engine_.for_each(static_cast<std::uint32_t>(slice.region.volume()),
                           Copy<T>{walk_over(slice.region, std::array{dense, tensor}), buffer,
                                   start_of(tensor, slice.region), Move::copy}));
    }
    engine_.set_mirrors(std::move(mirrors));
  }

  /// Sends and receives them on the operation's stream.
  void exchange(OpId op, const CudaContext& context) const {
    constexpr ncclDataType_t type = sizeof(T) == 2 ? ncclBfloat16 : ncclFloat32;
    const Message& message = messages_[op.index()];
    if (message.remote_slices.empty() && message.silent.empty()) return;
    for (const auto& pack : message.packs) pack(context);
    const DeviceId mine = *devices_.mine();
    ncclComm_t communicator = devices_.communicators().of(message.key, mine);
    const auto rank = [&](DeviceId device) {
      const std::vector<DeviceId>& group = message.key.group;
      return static_cast<int>(std::find(group.begin(), group.end(), device) - group.begin());
    };
    CallGroup calls;
    for (const Sent& sent : message.remote_slices) {
      const auto count = static_cast<std::size_t>(sent.remote_slice.slice.region.volume());
      if (sent.remote_slice.to == mine) {
        nccl_check(ncclRecv(sent.data, count, type, rank(sent.remote_slice.slice.key.device),
                            communicator, context.stream),
                   "ncclRecv");
      } else {
        nccl_check(ncclSend(sent.data, count, type, rank(sent.remote_slice.to), communicator,
                            context.stream),
                   "ncclSend");
      }
    }
    // Who has nothing for each other says so: an operation ends when all have come to it.
    for (const DeviceId device : message.silent) {
      nccl_check(ncclSend(words_.get(), 1, type, rank(device), communicator, context.stream),
                 "ncclSend");
      nccl_check(
          ncclRecv(words_.get() + alignment, 1, type, rank(device), communicator, context.stream),
          "ncclRecv");
    }
    calls.begin_calls();
  }

 private:
  struct Sent {
    RemoteSlice remote_slice;
    std::size_t at = 0;  ///< in the stream's buffer
    T* data = nullptr;   ///< where it is sent from, or arrives
  };
  struct Message {
    std::vector<Sent> remote_slices;
    std::vector<typename CudaEngine<T>::Action> packs;
    CommunicatorKey key;
    std::vector<DeviceId> silent;  ///< members without a remote_slice from here or to here
  };

  /// Where a transfer that only copies puts a remote_slice, if it lies there as it is sent.
  [[nodiscard]] std::optional<View<T>> destination(OpId id, const RemoteSlice& remote_slice,
                                                   const View<T>& dense) {
    const Op op = dag_.op(id);
    const auto* transfer = std::get_if<Transfer>(&op);
    if (transfer == nullptr || transfer->add) return std::nullopt;
    const std::vector<TensorSlice> from = tensor_slices(dag_, transfer->from, transfer->slice);
    const std::vector<TensorSlice> to = tensor_slices(dag_, transfer->to, transfer->target);
    for (std::size_t i = 0; i < to.size(); ++i) {
      // nvcc 13 loses == where it is implied.
      const bool is_its =
          from[i].key == remote_slice.slice.key &&
          (to[i].region <=> remote_slice.slice.region) == std::strong_ordering::equal;
      if (!is_its) continue;
      const View<T> view = engine_.view(to[i].key);
      if (lies_alike(to[i].region, view, dense)) return view;
    }
    return std::nullopt;
  }

  CudaEngine<T>& engine_;
  const CudaDevices& devices_;
  const ExecDag& dag_;
  std::vector<Message> messages_;      ///< by operation
  std::vector<DeviceMemory> buffers_;  ///< by stream
  DeviceMemory words_;
};

/// Whose processes have to meet in operations of the DAG, in the order in which they do.
[[nodiscard]] inline std::vector<CommunicatorKey> communicator_keys_of(const ExecDag& dag) {
  std::vector<CommunicatorKey> communicator_keys;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    CommunicatorKey key{static_cast<int>(dag.stream(OpId{i})), devices_of(dag, OpId{i})};
    if (key.group.size() > 1 && std::find(communicator_keys.begin(), communicator_keys.end(),
                                          key) == communicator_keys.end()) {
      communicator_keys.push_back(std::move(key));
    }
  }
  return communicator_keys;
}

}  // namespace parsim::hw
