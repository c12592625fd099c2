#include "hw/cuda/devices.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "core/errors.hpp"
#include "hw/cuda/check.hpp"
#include "hw/cuda/communicators.hpp"
#include "hw/cuda/partitions.hpp"
#include "hw/processes.hpp"

namespace parsim::hw {

namespace {

std::string no_gpu_reason(cudaError_t error) {
  int driver = 0;
  int runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  if (error == cudaErrorInsufficientDriver && driver == 0) {
    return fmt::format("no NVIDIA driver on this machine (CUDA runtime {})", runtime);
  }
  if (error == cudaErrorInsufficientDriver) {
    return fmt::format("the driver (CUDA {}) is older than the CUDA runtime {}", driver, runtime);
  }
  if (error == cudaErrorStubLibrary) return "libcuda is a stub: the driver's is not on the path";
  return fmt::format("no GPU: {} (driver CUDA {}, runtime {})",
                     cuda_error_text(static_cast<int>(error)), driver, runtime);
}

int attribute(cudaDeviceAttr which, int gpu) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, which, gpu), "cudaDeviceGetAttribute");
  return value;
}

std::string dotted(int version, int major, int minor) {
  return fmt::format("{}.{}.{}", version / major, version % major / minor, version % minor);
}

/// Dense peaks from multiprocessors and clock: what strategies plan with before anything is
/// measured. FLOPs per clock and multiprocessor from the CUDA programming guide's table of
/// arithmetic throughput (fp32) and NVIDIA's architecture papers (tensor cores).
std::array<FlopsPerSecond, 4> peaks(int major, int minor, double sm_clock) {
  const double fp32 = major == 8 && minor == 0 ? 128 : major >= 8 ? 256 : 128;
  const double fp16 = major >= 10                ? 8192
                      : major == 9               ? 4096
                      : major == 8 && minor == 0 ? 2048
                                                 : 1024;
  const double tf32 = major >= 8 ? fp16 / 2 : fp32;
  const double bf16 = major >= 8 ? fp16 : fp32;
  return {FlopsPerSecond{fp32 * sm_clock}, FlopsPerSecond{tf32 * sm_clock},
          FlopsPerSecond{fp16 * sm_clock}, FlopsPerSecond{bf16 * sm_clock}};
}

/// How many GPUs this process sees. Throws HardwareError with the reason if there are none.
int gpus_here() {
  // More hardware queues than the usual 8: else streams wait for each other without need.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // Registered while one process captures and another does not, buffers make NCCL wait for ever.
  ::setenv("NCCL_GRAPH_REGISTER", "0", 0);
  // Kernels of different communicators keep the order of their calls (messages.cuh).
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) throw HardwareError(no_gpu_reason(error));
  return count;
}

int nccl_version() {
  int version = 0;
  nccl_check(ncclGetVersion(&version), "ncclGetVersion");
  return version;
}
/// From here on several ranks may have one GPU, if the environment says so.
constexpr int nccl_shares = 23003;

/// By process, which GPU it has. Where some have the same one NCCL must take them for processes of
/// several machines (NCCL_HOSTID), or allow it.
void share_gpus(const std::vector<std::string>& identities) {
  if (std::getenv("NCCL_HOSTID") != nullptr) return;
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const auto same = std::find(identities.begin(), identities.end(), identities[rank]);
    const auto first = static_cast<std::size_t>(same - identities.begin());
    if (first == rank) continue;
    if (nccl_version() < nccl_shares) {
      throw HardwareError(fmt::format(
          "processes {} and {} have the same GPU, and NCCL {} wants one for each (2.30.3 does "
          "not); "
          "with another NCCL_HOSTID in every process it takes them for several machines",
          first, rank, dotted(nccl_version(), 10000, 100)));
    }
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  }
}

// Before calibration: what copies within a GPU, or over NVLink, roughly do. Labelled guessed.
constexpr BytesPerSecond guessed_rate{100e9};
constexpr Seconds guessed_latency{5e-6};

}  // namespace

CudaDevices::CudaDevices(const std::vector<int>& partition, const std::optional<LinkThrottle>& link)
    : link_(link), communicators_(std::make_shared<Communicators>()) {
  const int count = gpus_here();
  if (!partition.empty()) {
    try {
      split(partition);
      has_graphs_ = graphs_keep_partitions(*this);
    } catch (const HardwareError&) {
      give_partitions_back();
      throw;
    }
    if (!has_graphs_) {
      fmt::print(stderr, "parsim-hw: graphs do not keep partitions here: steps go by streams\n");
    }
    return;
  }
  for (int gpu = 0; gpu < count; ++gpu) {
    devices_.push_back({gpu, attribute(cudaDevAttrMultiProcessorCount, gpu), nullptr});
  }
}

CudaDevices::CudaDevices(const std::optional<LinkThrottle>& link, Processes& processes)
    : link_(link), processes_(&processes), communicators_(std::make_shared<Communicators>()) {
  mine_ = DeviceId{processes.rank()};
  devices_.assign(static_cast<std::size_t>(processes.size()), {-1, 0, nullptr});
  Machine own;
  std::string identity;
  const bool may_share = std::getenv("NCCL_HOSTID") != nullptr || nccl_version() >= nccl_shares;
  hw::together(processes, [&] {
    const int count = gpus_here();
    const int local_rank = processes.local_rank();
    // Schedulers often show a process its own GPU only.
    const int gpu = may_share ? local_rank % count : count == 1 ? 0 : local_rank;
    if (gpu >= count) {
      throw HardwareError(
          fmt::format("process {} (from 0) of a machine that has {} GPUs", local_rank, count));
    }
    devices_[mine_->index()] = {gpu, attribute(cudaDevAttrMultiProcessorCount, gpu), nullptr};
    make_current(devices_[mine_->index()]);
    own = own_machine();
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
    identity.assign(properties.uuid.bytes, sizeof properties.uuid.bytes);
  });
  share_gpus(processes.all_gather(identity));
  whole_ = whole_machine(processes, own);
  if (link_) throttle_links(*whole_, *link_);
}

void CudaDevices::make_current(const LogicalDevice& device) const {
  ensure(device.gpu >= 0, "a process uses its own device");
  cuda_check(cudaSetDevice(device.gpu), "cudaSetDevice");
}

Machine CudaDevices::machine() const { return whole_ ? *whole_ : own_machine(); }

Machine CudaDevices::own_machine() const {
  Machine machine;
  machine.backend = "cuda";
  int driver = 0;
  int runtime = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  machine.versions = {{"driver CUDA", dotted(driver, 1000, 10)},
                      {"CUDA runtime", dotted(runtime, 1000, 10)},
                      {"cuDNN", dotted(static_cast<int>(cudnnGetVersion()), 10000, 100)},
                      {"cuBLASLt", dotted(static_cast<int>(cublasLtGetVersion()), 10000, 100)},
                      {"NCCL", dotted(nccl_version(), 10000, 100)}};
  // Other times than those of graphs, and so another profile.
  if (!has_graphs_) machine.versions.push_back({"graphs", "none, they forget partitions"});
  Cluster& cluster = machine.cluster;
  cluster.nodes = {{"node"}};
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    const LogicalDevice& device = devices_[d];
    if (device.gpu < 0) continue;
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, device.gpu), "cudaGetDeviceProperties");
    const double clock = 1e3 * attribute(cudaDevAttrClockRate, device.gpu);
    const double share = static_cast<double>(device.multiprocessors) /
                         static_cast<double>(properties.multiProcessorCount);
    DeviceModel model;
    model.name = device.partition == nullptr
                     ? std::string(properties.name)
                     : fmt::format("{} ({} SMs)", properties.name, device.multiprocessors);
    model.architecture = fmt::format("{}.{}", properties.major, properties.minor);
    model.multiprocessors = device.multiprocessors;
    model.peak = peaks(properties.major, properties.minor, clock * device.multiprocessors);
    // Twice per clock of the memory; a partition's share is a guess until it is measured.
    model.memory_rate = {2e3 * attribute(cudaDevAttrMemoryClockRate, device.gpu) *
                         attribute(cudaDevAttrGlobalMemoryBusWidth, device.gpu) / 8 * share};
    // A tenth stays for the libraries' own needs.
    model.memory = {
        static_cast<std::int64_t>(0.9 * share * static_cast<double>(properties.totalGlobalMem))};
    model.provenance = {{"*", Label::guessed, "asked of the driver by parsim-hw"}};
    if (cluster.devices.empty()) {
      machine.name = properties.name;
      machine.clocks = fmt::format("up to {:.0f} MHz, not locked", clock / 1e6);
    }
    std::size_t index = 0;
    while (index < cluster.models.size() && cluster.models[index].name != model.name) ++index;
    if (index == cluster.models.size()) cluster.models.push_back(model);
    cluster.devices.push_back(
        {fmt::format("gpu{}", d), static_cast<std::int32_t>(index), NodeId{0}, model.memory});
  }
  cluster.name = machine.name;
  if (link_ && !mine_) {
    throttle_links(machine, *link_);
  } else {
    connect_as_star(machine, std::vector<std::pair<BytesPerSecond, Seconds>>(
                                 cluster.devices.size(), {guessed_rate, guessed_latency}));
  }
  return machine;
}

}  // namespace parsim::hw
