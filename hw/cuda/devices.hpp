// Logical devices: the GPUs of the machine, or partitions of the first one by green contexts.
// Streams of a partition run on its multiprocessors only; memory and its rate are shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hw/hardware.hpp"

struct CUstream_st;
struct CUgreenCtx_st;

namespace parsim::hw {

using StreamHandle = CUstream_st*;

class Communicators;

/// A GPU or a part of one.
struct LogicalDevice {
  int gpu = 0;  ///< CUDA's number; less than 0: another process has it
  int multiprocessors = 0;
  CUgreenCtx_st* partition = nullptr;  ///< null: the whole GPU
};

class CudaDevices {
 public:
  /// Throws HardwareError with the reason if there is no driver, no GPU, or not such a partition.
  CudaDevices(const std::vector<int>& partition, const std::optional<LinkThrottle>& link);
  /// One GPU, the device with this process's rank; the others are other processes'. `processes`
  /// must outlive this. Throws HardwareError if the machine has too few.
  CudaDevices(const std::optional<LinkThrottle>& link, Processes& processes);
  ~CudaDevices();
  CudaDevices(const CudaDevices&) = delete;
  CudaDevices& operator=(const CudaDevices&) = delete;

  [[nodiscard]] const std::vector<LogicalDevice>& all() const { return devices_; }
  /// Messages are held back for modelled_duration() where links are throttled.
  [[nodiscard]] bool throttled() const { return link_.has_value(); }
  [[nodiscard]] bool partitioned() const { return !devices_.empty() && devices_[0].partition; }
  /// Whether work may become a graph: on partitions only if it stays where it was.
  [[nodiscard]] bool has_graphs() const { return has_graphs_; }
  /// This process's device, if it has but one of several processes'.
  [[nodiscard]] std::optional<DeviceId> mine() const { return mine_; }
  [[nodiscard]] bool runs(DeviceId device) const { return !mine_ || *mine_ == device; }
  /// The other processes; null if there are none.
  [[nodiscard]] Processes* processes() const { return processes_; }
  [[nodiscard]] Communicators& communicators() const { return *communicators_; }
  /// Makes the device's GPU current and gives a stream on its multiprocessors.
  [[nodiscard]] StreamHandle make_stream(const LogicalDevice& device) const;
  void make_current(const LogicalDevice& device) const;
  /// What the machine is, for files.
  [[nodiscard]] Machine machine() const;

 private:
  void split(const std::vector<int>& partition);
  void give_partitions_back() const;
  [[nodiscard]] Machine own_machine() const;

  std::vector<LogicalDevice> devices_;
  bool has_graphs_ = true;
  std::optional<LinkThrottle> link_;
  std::optional<DeviceId> mine_;
  Processes* processes_ = nullptr;
  std::optional<Machine> whole_;  ///< of all processes
  std::shared_ptr<Communicators> communicators_;
};

}  // namespace parsim::hw
