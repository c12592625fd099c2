#include "hw/cuda/described.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace parsim::hw {

namespace {

/// By hand from the vendor's tables (CUDA C++ Programming Guide, "Compute Capabilities"; data
/// sheets for L2 and memory); keys as cuDNN 9.19 asks for them.
struct Described {
  const char* model;
  int version, multiprocessors, blocks_per_sm, threads_per_sm;
  std::int64_t l2_mib, memory_gib, shared_per_block_optin, shared_per_sm;
};
constexpr Described devices[] = {
    {"a100-pcie", 800, 108, 32, 2048, 40, 40, 166912, 167936},
    {"a100-sxm4-40", 800, 108, 32, 2048, 40, 40, 166912, 167936},
    {"a100-sxm4-80", 800, 108, 32, 2048, 40, 80, 166912, 167936},
    {"rtx-4090", 890, 128, 24, 1536, 72, 24, 101376, 102400},
    {"l4", 890, 58, 24, 1536, 48, 24, 101376, 102400},
    {"l40s", 890, 142, 24, 1536, 96, 48, 101376, 102400},
    {"h100-pcie", 900, 114, 32, 2048, 50, 80, 232448, 233472},
    {"h100-sxm5", 900, 132, 32, 2048, 50, 80, 232448, 233472},
    {"h200-sxm", 900, 132, 32, 2048, 60, 141, 232448, 233472},
    {"b200-sxm", 1000, 148, 32, 2048, 126, 180, 232448, 233472},
};

}  // namespace

std::vector<std::string> described_models() {
  std::vector<std::string> all;
  for (const Described& device : devices) all.emplace_back(device.model);
  return all;
}

std::string description_of(const std::string& model) {
  for (const Described& d : devices) {
    if (d.model != model) continue;
    return fmt::format(
        R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
        R"("regsPerBlock":65536,"multiProcessorCount":{},"warpSize":32,)"
        R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
        R"("maxSharedMemoryPerSM":{},"reservedSharedMemoryPerBlock":1024,)"
        R"("maxRegistersPerSM":65536,"maxCtasPerSM":{},"maxThreadsPerBlock":1024,)"
        R"("maxThreadsPerSM":{},"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
        R"("smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":{},)"
        R"("deviceName":"{}","deviceVer":{},"driverVer":13000,"totalGlobalMem":{},)"
        R"("cudaDeviceId":0}})",
        d.multiprocessors, d.shared_per_block_optin, d.shared_per_sm, d.blocks_per_sm,
        d.threads_per_sm, d.l2_mib << 20, d.model, d.version, d.memory_gib << 30);
  }
  return {};
}

}  // namespace parsim::hw
