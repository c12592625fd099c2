// Partitions of a GPU by green contexts, through the driver's own interface.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "core/errors.hpp"
#include "hw/cuda/check.hpp"
#include "hw/cuda/devices.hpp"

namespace parsim::hw {

namespace {

/// A function of the driver, asked for at run time: linking libcuda would keep the program from
/// starting where there is no driver.
template <class Function>
Function* driver_call(const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  // Streams of green contexts came with CUDA 12.5, the contexts with 12.4.
  cuda_check(cudaGetDriverEntryPointByVersion(name, &address, 12050, cudaEnableDefault, &found),
             "cudaGetDriverEntryPointByVersion");
  if (found != cudaDriverEntryPointSuccess || address == nullptr) {
    throw HardwareError(fmt::format("the driver has no {}: partitions need CUDA 12.5", name));
  }
  return reinterpret_cast<Function*>(address);
}

void driver_check(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  throw HardwareError(fmt::format("{}: driver error {}", call, static_cast<int>(code)));
}

}  // namespace

void CudaDevices::split(const std::vector<int>& partition) {
  cuda_check(cudaSetDevice(0), "cudaSetDevice");
  cuda_check(cudaFree(nullptr), "cudaFree");  // makes the primary context
  const auto get_device = driver_call<CUresult(CUdevice*, int)>("cuDeviceGet");
  const auto get_resource =
      driver_call<CUresult(CUdevice, CUdevResource*, CUdevResourceType)>("cuDeviceGetDevResource");
  const auto split_by_count =
      driver_call<CUresult(CUdevResource*, unsigned*, const CUdevResource*, CUdevResource*,
                           unsigned, unsigned)>("cuDevSmResourceSplitByCount");
  const auto describe = driver_call<CUresult(CUdevResourceDesc*, CUdevResource*, unsigned)>(
      "cuDevResourceGenerateDesc");
  const auto create =
      driver_call<CUresult(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)>("cuGreenCtxCreate");
  const auto convert = driver_call<CUresult(CUcontext*, CUgreenCtx)>("cuCtxFromGreenCtx");
  CUdevice device{};
  driver_check(get_device(&device, 0), "cuDeviceGet");
  CUdevResource whole{};
  driver_check(get_resource(device, &whole, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
  // Into the smallest units at once, because what has been split off may not be split again; a part
  // is some of them.
  unsigned count = 0;
  driver_check(split_by_count(nullptr, &count, &whole, nullptr, 0, 1),
               "cuDevSmResourceSplitByCount");
  if (count == 0) throw HardwareError("--partition: this GPU cannot be divided");
  std::vector<CUdevResource> units(count);
  driver_check(split_by_count(units.data(), &count, &whole, nullptr, 0, 1),
               "cuDevSmResourceSplitByCount");
  const unsigned unit = units.at(0).sm.smCount;
  unsigned next = 0;
  for (const int wanted : partition) {
    const unsigned taken = static_cast<unsigned>(wanted) / unit;
    if (taken * unit != static_cast<unsigned>(wanted)) {
      throw HardwareError(fmt::format("--partition: {}; this GPU gives multiples of {}, {} in all",
                                      wanted, unit, unit * count));
    }
    if (next + taken > count) {
      throw HardwareError(fmt::format("--partition: {} multiprocessors are left, {} are asked for",
                                      (count - next) * unit, wanted));
    }
    CUdevResourceDesc description{};
    driver_check(describe(&description, &units[next], taken), "cuDevResourceGenerateDesc");
    next += taken;
    CUgreenCtx context = nullptr;
    driver_check(create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
                 "cuGreenCtxCreate");
    devices_.push_back({0, wanted, context});
    // To be called before anything asks which context a stream is of (cuda.h).
    CUcontext known = nullptr;
    driver_check(convert(&known, context), "cuCtxFromGreenCtx");
  }
}

CudaDevices::~CudaDevices() { give_partitions_back(); }

void CudaDevices::give_partitions_back() const {
  for (const LogicalDevice& device : devices_) {
    if (device.partition == nullptr) continue;
    try {
      static_cast<void>(driver_call<CUresult(CUgreenCtx)>("cuGreenCtxDestroy")(device.partition));
    } catch (const HardwareError&) {  // the process ends anyway
      return;
    }
  }
}

StreamHandle CudaDevices::make_stream(const LogicalDevice& device) const {
  make_current(device);
  StreamHandle stream = nullptr;
  if (device.partition == nullptr) {
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
               "cudaStreamCreateWithFlags");
  } else {
    const auto make =
        driver_call<CUresult(CUstream*, CUgreenCtx, unsigned, int)>("cuGreenCtxStreamCreate");
    driver_check(make(&stream, device.partition, CU_STREAM_NON_BLOCKING, 0),
                 "cuGreenCtxStreamCreate");
  }
  return stream;
}

}  // namespace parsim::hw
