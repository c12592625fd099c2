// NCCL's communicators of groups of devices: made once, used by every DAG. Streams have their own,
// because NCCL runs what is under way in one communicator one after another.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "hw/cuda/devices.hpp"

struct ncclComm;

namespace parsim::hw {

struct CommunicatorKey {
  int stream = 0;  ///< the DAG's Stream; -1: beside all of them
  std::vector<DeviceId> group;
  friend auto operator<=>(const CommunicatorKey&, const CommunicatorKey&) = default;
  /// Spelled out: nvcc 13 loses the one that the line above implies.
  friend bool operator==(const CommunicatorKey& a, const CommunicatorKey& b) {
    return (a <=> b) == 0;
  }
};

/// Calls of NCCL that begin together. A group that is left by an error is closed, too: else the
/// calls after it would wait for its end for ever.
class CallGroup {
 public:
  CallGroup();
  ~CallGroup();
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;
  void begin_calls();

 private:
  bool open_ = true;
};

class Communicators {
 public:
  Communicators() = default;
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// Makes those that are not there yet. Of several processes all call this with the same
  /// communicator_keys; what fails in one fails in all.
  void prepare(const CudaDevices& devices, const std::vector<CommunicatorKey>& communicator_keys);
  /// The member's; it is one of this process's devices.
  [[nodiscard]] ncclComm* of(const CommunicatorKey& key, DeviceId member) const;

  /// All processes' streams go on when they have all come here.
  void line_up(const CudaDevices& devices, CUstream_st* stream);
  /// What NCCL has to complain of, or "".
  [[nodiscard]] std::string trouble() const;
  /// Gives up everything under way.
  void abort();

 private:
  /// By key, by member; null where another process has the device.
  std::map<CommunicatorKey, std::vector<ncclComm*>> by_key_;
  void* word_ = nullptr;  ///< of the device's memory, for lining up
};

}  // namespace parsim::hw
