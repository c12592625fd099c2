// What a device does in an operation that NCCL carries between whole GPUs: which of NCCL's
// functions it calls, from where to where, and the copies before and after, where a part of a
// tensor does not lie densely or has to be added.
#pragma once

#include <cuda_bf16.h>
#include <nccl.h>

#include <algorithm>
#include <type_traits>

#include "hw/cuda/engine.cuh"

namespace parsim::hw {

template <class T>
inline constexpr ncclDataType_t nccl_type = std::is_same_v<T, __nv_bfloat16> ? ncclBfloat16
                                            : std::is_same_v<T, __half>      ? ncclFloat16
                                                                             : ncclFloat32;

/// Functions of NCCL.
enum class NcclFunction : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  send,
  receive
};

template <class T>
struct MessageCall {
  NcclFunction function;
  const T* from = nullptr;  ///< none for a receive
  T* to = nullptr;          ///< none for a send, and where another member has the sum
  std::size_t count = 0;    ///< of elements, as NCCL counts: of one rank
  int peer = -1;            ///< rank of a send, receive, broadcast or reduce

  void begin(ncclComm* communicator, cudaStream_t stream) const {
    constexpr ncclDataType_t type = nccl_type<T>;
    switch (function) {
      case NcclFunction::all_reduce:
        return nccl_check(ncclAllReduce(from, to, count, type, ncclSum, communicator, stream),
                          "ncclAllReduce");
      case NcclFunction::all_gather:
        return nccl_check(ncclAllGather(from, to, count, type, communicator, stream),
                          "ncclAllGather");
      case NcclFunction::reduce_scatter:
        return nccl_check(ncclReduceScatter(from, to, count, type, ncclSum, communicator, stream),
                          "ncclReduceScatter");
      case NcclFunction::broadcast:
        return nccl_check(ncclBroadcast(from, to, count, type, peer, communicator, stream),
                          "ncclBroadcast");
      case NcclFunction::reduce:
        return nccl_check(ncclReduce(from, to, count, type, ncclSum, peer, communicator, stream),
                          "ncclReduce");
      case NcclFunction::send:
        return nccl_check(ncclSend(from, count, type, peer, communicator, stream), "ncclSend");
      case NcclFunction::receive:
        return nccl_check(ncclRecv(to, count, type, peer, communicator, stream), "ncclRecv");
    }
  }
};

/// A device's part in an operation.
template <class T>
struct MessagePart {
  using Action = typename CudaEngine<T>::Action;
  std::vector<Action> packs, unpacks;  ///< before and after the calls, on the same stream
  std::vector<MessageCall<T>> calls;   ///< as one group
  std::size_t bytes = 0;               ///< of the buffer
};

/// Makes one part. Members agree on functions and counts because these follow from the DAG; whether
/// a tensor is read and written where it lies, or packed, each decides for itself.
template <class T>
class MessageMaker {
 public:
  /// me       the device's rank among the group
  /// buffer   for what is packed; null to learn how many bytes it takes
  MessageMaker(CudaEngine<T>& engine, const ExecDag& dag, const std::vector<DeviceId>& group,
               std::size_t me, char* buffer)
      : engine_(engine), dag_(dag), group_(group), me_(me), buffer_(buffer) {}

  [[nodiscard]] MessagePart<T> of(OpId id) {
    const Op op = dag_.op(id);
    if (const auto* transfer = std::get_if<Transfer>(&op)) {
      make(*transfer);
    } else {
      make(std::get<Collective>(op), dag_.shares(id));
    }
    return std::move(part_);
  }

 private:
  using Function = NcclFunction;

  void make(const Transfer& op) {
    const std::vector<TensorSlice> from = tensor_slices(dag_, op.from, op.slice);
    const std::vector<TensorSlice> to = tensor_slices(dag_, op.to, op.target);
    const bool sends = group_[me_] == op.from;
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (to[i].region.empty()) continue;
      if (sends) {
        send({from.at(i).key, to[i].region}, 1);
      } else {
        receive(to[i], op.add ? adding(engine_, to[i]) : Move::copy, 0);
      }
    }
  }

  void make(const Collective& op, const Shares& shares) {
    switch (op.kind) {
      case CollectiveKind::all_reduce:
        return all_reduce(op);
      case CollectiveKind::broadcast:
        return broadcast(op);
      case CollectiveKind::reduce_scatter:
        return reduce_scatter(op, shares);
      case CollectiveKind::all_gather:
        return all_gather(op, shares);
      case CollectiveKind::all_to_all:
        return all_to_all(op, shares);
    }
  }

  void all_reduce(const Collective& op) {
    const std::vector<TensorSlice> from = slices(op.slice, {});
    const std::vector<TensorSlice> to = slices(op.target, {});
    for (std::size_t p = 0; p < from.size(); ++p) {
      if (from[p].region.empty()) continue;
      const T* source = sent(from[p]);
      call(Function::all_reduce, source, arriving(to[p], Move::copy), volume(from[p]));
    }
  }

  void broadcast(const Collective& op) {
    for (const TensorSlice& slice : slices(me_ == 0 ? op.slice : op.target, {})) {
      if (slice.region.empty()) continue;
      if (me_ == 0) {  // the root's tensor stays as it is
        const T* source = sent(slice);
        call(Function::broadcast, source, const_cast<T*>(source), volume(slice), 0);
      } else {
        T* const target = arriving(slice, Move::copy);
        call(Function::broadcast, target, target, volume(slice), 0);
      }
    }
  }

  void reduce_scatter(const Collective& op, const Shares& shares) {
    const bool writes = op.slice == op.target || op.target.role == Role::activation;
    const Move how = writes ? Move::copy : Move::add;
    const std::vector<std::size_t> volumes = volumes_of(op.slice, shares);
    const std::vector<TensorSlice> own = slices(op.target, shares.regions[me_]);
    if (!are_even(volumes)) {  // one sum after the other, each to who wants it
      for (std::size_t root = 0; root < group_.size(); ++root) {
        const std::vector<TensorSlice> from = slices(op.slice, shares.regions[root]);
        for (std::size_t p = 0; p < from.size(); ++p) {
          if (from[p].region.empty()) continue;
          const T* source = sent(from[p]);
          T* const target = root == me_ ? arriving(own[p], how) : nullptr;
          call(Function::reduce, source, target, volume(from[p]), static_cast<int>(root));
        }
      }
      return;
    }
    const std::size_t count = *std::max_element(volumes.begin(), volumes.end());
    const T* source = in_a_row(op.slice, shares, count);
    if (source == nullptr) {
      T* const packed = room(count * group_.size());
      for (std::size_t m = 0; m < group_.size(); ++m) {
        pack(slices(op.slice, shares.regions[m]), packed + m * count);
      }
      source = packed;
    }
    T* target = how == Move::copy ? in_one_piece(own, count) : nullptr;
    if (target == nullptr) {
      target = room(count);
      unpack(target, own, how);
    }
    call(Function::reduce_scatter, source, target, count);
  }

  void all_gather(const Collective& op, const Shares& shares) {
    const Move how = op.target.role == Role::gradient ? Move::add : Move::copy;
    const bool in_place = op.slice == op.target;  // its own share is there already
    const std::vector<std::size_t> volumes = volumes_of(op.slice, shares);
    const std::vector<TensorSlice> own = slices(op.slice, shares.regions[me_]);
    if (!are_even(volumes)) {  // one share after the other
      for (std::size_t root = 0; root < group_.size(); ++root) {
        const std::vector<TensorSlice> to = slices(op.target, shares.regions[root]);
        for (std::size_t p = 0; p < to.size(); ++p) {
          if (to[p].region.empty()) continue;
          const T* source = root == me_ ? sent(own[p]) : nullptr;
          T* const target = root == me_ && in_place ? const_cast<T*>(source) : arriving(to[p], how);
          call(Function::broadcast, root == me_ ? source : target, target, volume(to[p]),
               static_cast<int>(root));
        }
      }
      return;
    }
    const std::size_t count = *std::max_element(volumes.begin(), volumes.end());
    T* target = how == Move::copy ? in_a_row(op.target, shares, count) : nullptr;
    const bool direct = target != nullptr;
    if (!direct) {
      target = room(count * group_.size());
      for (std::size_t m = 0; m < group_.size(); ++m) {
        if (m == me_ && in_place) continue;
        unpack(target + m * count, slices(op.target, shares.regions[m]), how);
      }
    }
    const T* source = in_one_piece(own, count);
    if (source == nullptr) {
      T* const packed = direct ? room(count) : target + me_ * count;
      pack(own, packed);
      source = packed;
    }
    call(Function::all_gather, source, target, count);
  }

  void all_to_all(const Collective& op, const Shares& shares) {
    const Move how = op.target.role == Role::gradient ? Move::add : Move::copy;
    // What member `from` has and member `to` needs.
    const auto common = [&](const std::vector<TensorSlice>& list, std::size_t to) {
      std::vector<TensorSlice> needed = list;
      for (TensorSlice& slice : needed) {
        slice.region = intersect(slice.region, dag_.region(shares.needs[to]));
      }
      std::erase_if(needed, [](const TensorSlice& slice) { return slice.region.empty(); });
      return needed;
    };
    for (std::size_t m = 0; m < group_.size(); ++m) {
      const auto out = common(slices(op.slice, shares.regions[me_]), m);
      const auto in = common(slices(op.target, shares.regions[m]), me_);
      if (m == me_) {
        for (std::size_t p = 0; p < in.size() && !(op.slice == op.target); ++p) {
          copy(engine_.view(in[p].key), engine_.view(out[p].key), in[p].region, how, part_.unpacks);
        }
        continue;
      }
      const int peer = static_cast<int>(m);
      for (const TensorSlice& slice : out) send(slice, peer);
      for (const TensorSlice& slice : in) receive(slice, how, peer);
      if (!out.empty() || !in.empty()) continue;
      // An operation ends when all have come to it: a word for who has nothing else to say.
      call(Function::send, room(1), nullptr, 1, peer);
      call(Function::receive, nullptr, room(1), 1, peer);
    }
  }

  void send(const TensorSlice& slice, int peer) {
    call(Function::send, sent(slice), nullptr, volume(slice), peer);
  }
  void receive(const TensorSlice& slice, Move how, int peer) {
    call(Function::receive, nullptr, arriving(slice, how), volume(slice), peer);
  }
  void call(Function function, const T* from, T* to, std::size_t count, int peer = -1) {
    part_.calls.push_back({function, from, to, count, peer});
  }

  [[nodiscard]] std::vector<TensorSlice> slices(const Slice& slice,
                                                std::optional<RegionId> narrowed) const {
    return tensor_slices(dag_, group_[me_], slice, narrowed);
  }
  [[nodiscard]] static std::size_t volume(const TensorSlice& slice) {
    return static_cast<std::size_t>(slice.region.volume());
  }
  [[nodiscard]] std::vector<std::size_t> volumes_of(const Slice& slice,
                                                    const Shares& shares) const {
    std::vector<std::size_t> all;
    for (const RegionId share : shares.regions) {
      all.push_back(0);
      for (const TensorSlice& one : slices(slice, share)) all.back() += volume(one);
    }
    return all;
  }
  /// Whether all may be taken for as large as the largest: ranks of NCCL have shares of one size.
  [[nodiscard]] static bool are_even(const std::vector<std::size_t>& volumes) {
    std::size_t sum = 0;
    for (const std::size_t volume : volumes) sum += volume;
    const std::size_t padded = volumes.size() * *std::max_element(volumes.begin(), volumes.end());
    return padded <= sum + sum / 8 + volumes.size();
  }

  /// Elements of the buffer.
  [[nodiscard]] T* room(std::size_t count) {
    const std::size_t at = part_.bytes;
    part_.bytes += aligned(count * sizeof(T));
    return reinterpret_cast<T*>(buffer_ + at);
  }
  [[nodiscard]] View<T> dense(const TensorSlice& slice, T* data) const {
    return dense_view(data, slice.region, engine_.layout(slice.key));
  }
  /// Where the slice lies, if it lies there as in a message; else null.
  [[nodiscard]] T* in_place(const TensorSlice& slice) const {
    const View<T> view = engine_.view(slice.key);
    if (!lies_alike(slice.region, view, dense(slice, nullptr))) return nullptr;
    return start_of(view, slice.region);
  }
  /// Where slices lie that are one piece of so many elements; else null.
  [[nodiscard]] T* in_one_piece(const std::vector<TensorSlice>& list, std::size_t count) const {
    T* piece = nullptr;
    for (const TensorSlice& slice : list) {
      if (slice.region.empty()) continue;
      if (volume(slice) != count) return nullptr;
      piece = in_place(slice);
    }
    return piece;
  }
  /// Where all shares lie one after the other, so many elements each; else null.
  [[nodiscard]] T* in_a_row(const Slice& slice, const Shares& shares, std::size_t count) const {
    T* const first = in_one_piece(slices(slice, shares.regions[0]), count);
    for (std::size_t m = 1; m < group_.size() && first != nullptr; ++m) {
      if (in_one_piece(slices(slice, shares.regions[m]), count) != first + m * count) {
        return nullptr;
      }
    }
    return first;
  }

  void copy(const View<T>& to, const View<T>& from, const Region& region, Move how,
            std::vector<typename MessagePart<T>::Action>& actions) {
    add_each(engine_, actions, region.volume(),
             Copy<T>{walk_over(region, std::array{to, from}), start_of(to, region),
                     start_of(from, region), how});
  }
  void pack(const std::vector<TensorSlice>& list, T* to) {
    for (const TensorSlice& slice : list) {
      if (slice.region.empty()) continue;
      copy(dense(slice, to), engine_.view(slice.key), slice.region, Move::copy, part_.packs);
      to += volume(slice);
    }
  }
  void unpack(T* from, const std::vector<TensorSlice>& list, Move how) {
    for (const TensorSlice& slice : list) {
      if (slice.region.empty()) continue;
      copy(engine_.view(slice.key), dense(slice, from), slice.region, how, part_.unpacks);
      from += volume(slice);
    }
  }
  /// Where the slice is sent from.
  [[nodiscard]] const T* sent(const TensorSlice& slice) {
    if (const T* there = in_place(slice)) return there;
    T* const packed = room(volume(slice));
    pack({slice}, packed);
    return packed;
  }
  /// Where what is for the slice arrives.
  [[nodiscard]] T* arriving(const TensorSlice& slice, Move how) {
    T* const there = how == Move::copy ? in_place(slice) : nullptr;
    if (there != nullptr) return there;
    T* const packed = room(volume(slice));
    unpack(packed, {slice}, how);
    return packed;
  }

  CudaEngine<T>& engine_;
  const ExecDag& dag_;
  const std::vector<DeviceId>& group_;
  std::size_t me_;
  char* buffer_;
  MessagePart<T> part_;
};

}  // namespace parsim::hw
