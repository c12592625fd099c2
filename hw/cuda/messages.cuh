// All messages between whole GPUs, of one process or of several: NCCL carries them. Parts of one
// GPU have none, there kernels read the tensors of the other parts (hw/kernels_moves.hpp).
//
// Nothing waits for ever, for three reasons:
// - Every stream has operations in the order of their ids, and they wait for smaller ids only. So
// of
//   all operations that have not ended the one with the least id stands first on all streams that
//   it is on, at every device, sender and receiver alike, and what it waits for has ended.
// - An operation's calls are one group, so a device sends and receives at once. Each group of
// devices
//   has a communicator for each stream, and a transfer's sender and receiver one of their own: what
//   is under way in one communicator does not stand before what has a smaller id in another.
// - What waits for others holds multiprocessors, but kernels of all streams' communicators fit on a
//   GPU at once (communicators.cpp). NCCL also keeps the order of launches, which is that of ids,
//   from 2.26 on (NCCL_LAUNCH_ORDER_IMPLICIT; NCCL's User Guide, "Using multiple NCCL communicators
//   concurrently").
#pragma once

#include <algorithm>

#include "hw/cuda/communicators.hpp"
#include "hw/cuda/message_calls.cuh"
#include "hw/dispatch.hpp"
#include "hw/remote_slices.hpp"

namespace parsim::hw {

template <class T>
class CudaMessages {
 public:
  /// A buffer for each stream, which its operations share: an operation's kernels are over before
  /// the stream's next one begins.
  CudaMessages(CudaEngine<T>& engine, const CudaDevices& devices, const ExecDag& dag,
               const Dispatch& order)
      : engine_(engine), devices_(devices), dag_(dag), order_(order), messages_(dag.size()) {
    if (devices.partitioned()) return;
    std::vector<std::size_t> sizes(order.streams.size());
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (remote_slices(dag, OpId{i}).empty()) continue;
      messages_[i].key = {static_cast<int>(dag.stream(OpId{i})), devices_of(dag, OpId{i})};
      engine_.begin(OpId{i});
      for (const StreamOp& stream_op : order.stream_ops_of(OpId{i})) {
        std::size_t& size = sizes[static_cast<std::size_t>(stream_op.stream)];
        size = std::max(size, part_of_stream_op(stream_op, nullptr).bytes);
      }
    }
    for (std::size_t stream = 0; stream < sizes.size(); ++stream) {
      devices.make_current(devices.all()[order.streams[stream].device.index()]);
      buffers_.emplace_back(sizes[stream]);
    }
  }

  /// Whether the operation is NCCL's.
  [[nodiscard]] bool does(OpId op) const { return !messages_[op.index()].key.group.empty(); }

  /// Who has to meet in operations, in the order in which they do.
  [[nodiscard]] std::vector<CommunicatorKey> communicator_keys() const {
    std::vector<CommunicatorKey> keys;
    for (const Message& message : messages_) {
      if (message.key.group.empty()) continue;
      if (std::find(keys.begin(), keys.end(), message.key) == keys.end()) {
        keys.push_back(message.key);
      }
    }
    return keys;
  }

  /// Makes an operation's calls, after CudaEngine::begin() and before zeros() of it.
  void prepare(OpId op) {
    for (const StreamOp& stream_op : order_.stream_ops_of(op)) {
      char* const buffer = buffers_[static_cast<std::size_t>(stream_op.stream)].get();
      messages_[op.index()].parts.push_back(part_of_stream_op(stream_op, buffer));
    }
  }

  /// Puts an operation on its streams. `context(stream)` makes the stream's device current.
  template <class Context>
  void run(OpId op, const Context& context) const {
    const Message& message = messages_[op.index()];
    const std::span<const StreamOp> stream_ops = order_.stream_ops_of(op);
    const auto each = [&](std::vector<typename MessagePart<T>::Action> MessagePart<T>::*actions) {
      for (std::size_t m = 0; m < stream_ops.size(); ++m) {
        if ((message.parts[m].*actions).empty()) continue;
        const CudaContext on = context(stream_ops[m].stream);
        for (const auto& action : message.parts[m].*actions) action(on);
      }
    };
    each(&MessagePart<T>::packs);
    CallGroup calls;
    for (std::size_t m = 0; m < stream_ops.size(); ++m) {
      const DeviceId device = device_of(stream_ops[m]);
      ncclComm_t communicator = devices_.communicators().of(message.key, device);
      const cudaStream_t stream = context(stream_ops[m].stream).stream;
      for (const MessageCall<T>& call : message.parts[m].calls) call.begin(communicator, stream);
    }
    calls.begin_calls();
    each(&MessagePart<T>::unpacks);
  }

  /// Of a device's buffers.
  [[nodiscard]] std::int64_t bytes(DeviceId device) const {
    std::size_t sum = 0;
    for (std::size_t stream = 0; stream < buffers_.size(); ++stream) {
      if (order_.streams[stream].device == device) sum += buffers_[stream].bytes();
    }
    return static_cast<std::int64_t>(sum);
  }

 private:
  struct Message {
    CommunicatorKey key;                ///< without a group: not NCCL's
    std::vector<MessagePart<T>> parts;  ///< by stream operation
  };

  [[nodiscard]] DeviceId device_of(const StreamOp& stream_op) const {
    return order_.streams[static_cast<std::size_t>(stream_op.stream)].device;
  }
  [[nodiscard]] MessagePart<T> part_of_stream_op(const StreamOp& stream_op, char* buffer) {
    const std::vector<DeviceId>& group = messages_[stream_op.op.index()].key.group;
    const auto me = std::find(group.begin(), group.end(), device_of(stream_op)) - group.begin();
    return MessageMaker<T>(engine_, dag_, group, static_cast<std::size_t>(me), buffer)
        .of(stream_op.op);
  }

  CudaEngine<T>& engine_;
  const CudaDevices& devices_;
  const ExecDag& dag_;
  const Dispatch& order_;
  std::vector<Message> messages_;      ///< by operation
  std::vector<DeviceMemory> buffers_;  ///< by stream
};

}  // namespace parsim::hw
