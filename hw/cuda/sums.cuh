// All-reduces that NCCL does: on whole GPUs, where the tensors lie densely on every member.
// Partitions of one GPU and the rest add up by our own kernels.
#pragma once

#include <nccl.h>

#include "hw/cuda/communicators.hpp"
#include "hw/cuda/engine.cuh"
#include "hw/dispatch.hpp"

namespace parsim::hw {

template <class T>
class CudaSums {
 public:
  CudaSums(CudaEngine<T>& engine, const CudaDevices& devices, const ExecDag& dag,
           const Dispatch& order)
      : engine_(engine), devices_(devices), dag_(dag), order_(order), boxes_(hw::stores(dag)) {
    for (std::size_t i = 0; i < dag.size(); ++i) {
      engine_.begin(OpId{i});
      sums_.push_back(order.stream_ops_of(OpId{i}).empty() ? std::vector<Sum>{} : sums_of(OpId{i}));
    }
  }

  [[nodiscard]] bool does(OpId op) const { return !sums_[op.index()].empty(); }

  void run(OpId op, const std::vector<cudaStream_t>& streams) const {
    constexpr ncclDataType_t type = sizeof(T) == 2 ? ncclBfloat16 : ncclFloat32;
    const CommunicatorKey key{static_cast<int>(dag_.stream(op)), group_of(op)};
    const std::span<const StreamOp> stream_ops = order_.stream_ops_of(op);
    CallGroup calls;
    for (std::size_t m = 0; m < stream_ops.size(); ++m) {
      const auto stream = static_cast<std::size_t>(stream_ops[m].stream);
      ncclComm_t communicator = devices_.communicators().of(key, order_.streams[stream].device);
      for (const Sum& sum : sums_[op.index()]) {
        nccl_check(ncclAllReduce(sum.from[m], sum.to[m], sum.count, type, ncclSum, communicator,
                                 streams[stream]),
                   "ncclAllReduce");
      }
    }
    calls.begin_calls();
  }

 private:
  struct Sum {
    std::vector<T*> from, to;  ///< by member that runs here
    std::size_t count = 0;
  };

  [[nodiscard]] const std::vector<DeviceId>& group_of(OpId op) const {
    return dag_.group(GroupId{dag_.record(op).device});
  }

  [[nodiscard]] bool is_dense(const TensorSlice& slice) const {
    const bool last = engine_.channels_last(slice.key);
    T* const nowhere = nullptr;
    return lies_alike(slice.region, dense_view(nowhere, boxes_.all.at(slice.key).box, last),
                      dense_view(nowhere, slice.region, last));
  }

  std::vector<Sum> sums_of(OpId id) {
    if (devices_.partitioned() || dag_.kind(id) != OpKind::collective) return {};
    const auto op = std::get<Collective>(dag_.op(id));
    const std::vector<DeviceId>& group = group_of(id);
    if (op.kind != CollectiveKind::all_reduce || group.size() < 2) return {};
    std::vector<Sum> sums(tensor_slices(dag_, group[0], op.slice).size());
    for (const DeviceId device : group) {
      const std::vector<TensorSlice> from = tensor_slices(dag_, device, op.slice);
      const std::vector<TensorSlice> to = tensor_slices(dag_, device, op.target);
      for (std::size_t p = 0; p < sums.size(); ++p) {
        // All processes come to the same answer, because they look at all members.
        if (!is_dense(from[p]) || !is_dense(to[p])) return {};
        if (!devices_.runs(device)) continue;
        sums[p].from.push_back(start_of(engine_.view(from[p].key), from[p].region));
        sums[p].to.push_back(start_of(engine_.view(to[p].key), to[p].region));
        sums[p].count = static_cast<std::size_t>(from[p].region.volume());
      }
    }
    if (!devices_.mine())
      devices_.communicators().prepare(devices_, {{static_cast<int>(dag_.stream(id)), group}});
    return sums;
  }

  CudaEngine<T>& engine_;
  const CudaDevices& devices_;
  const ExecDag& dag_;
  const Dispatch& order_;
  Stores boxes_;                        ///< of all devices, also other processes'
  std::vector<std::vector<Sum>> sums_;  ///< by operation; empty: not NCCL's
};

}  // namespace parsim::hw
