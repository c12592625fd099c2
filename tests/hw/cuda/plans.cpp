// cuDNN plans for described devices, with no GPU and no driver: the convolutions of our networks
// have engines in every precision that the device knows, and their workspaces are printed.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "hw/cuda/convolution.hpp"

namespace {

using parsim::Precision;
using parsim::hw::ConvPlan;
using parsim::hw::ConvShape;
using parsim::hw::Product;

/// Written by hand from the vendor's tables; keys as cuDNN 9.19 asks for them.
struct Described {
  const char* name;
  int version, multiprocessors, blocks_per_sm, threads_per_sm;
  long long l2_bytes, memory_bytes, shared_per_block_optin, shared_per_sm;
};
constexpr Described devices[] = {
    {"A100-SXM4-80GB", 800, 108, 32, 2048, 41943040, 85899345920, 166912, 167936},
    {"RTX 4090", 890, 128, 24, 1536, 75497472, 25769803776, 101376, 102400},
    {"H200", 900, 132, 32, 2048, 62914560, 151397597184, 232448, 233472},
    {"B200", 1000, 148, 32, 2048, 132120576, 193273528320, 232448, 233472},
};

std::string json_of(const Described& d) {
  char text[2048];
  std::snprintf(
      text, sizeof text,
      "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
      "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
      "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%lld,"
      "\"maxSharedMemoryPerSM\":%lld,\"reservedSharedMemoryPerBlock\":1024,"
      "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,\"maxThreadsPerBlock\":1024,"
      "\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
      "\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,\"l2CacheSize\":%lld,"
      "\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":13000,\"totalGlobalMem\":%lld,"
      "\"cudaDeviceId\":0}",
      d.multiprocessors, d.shared_per_block_optin, d.shared_per_sm, d.blocks_per_sm,
      d.threads_per_sm, d.l2_bytes, d.name, d.version, d.memory_bytes);
  return text;
}

/// Square images, kernel k, padding that keeps the extent at stride 1.
ConvShape conv(std::int64_t batch, std::int64_t in, std::int64_t out, std::int64_t size,
               std::int64_t k, std::int64_t stride) {
  const std::int64_t pad = k / 2;
  const std::int64_t made = (size + 2 * pad - k) / stride + 1;
  ConvShape shape;
  shape.x = {batch, in, size, size};
  shape.w = {out, in, k, k};
  shape.y = {batch, out, made, made};
  shape.stride = {stride, stride};
  shape.dilation = {1, 1};
  shape.pad_begin = shape.pad_end = {pad, pad};
  return shape;
}

}  // namespace

int main() try {
  const std::vector<ConvShape> shapes = {conv(32, 3, 64, 224, 7, 2), conv(32, 64, 64, 56, 3, 1),
                                         conv(32, 256, 512, 28, 1, 2),
                                         conv(32, 512, 512, 14, 3, 1)};
  int missing = 0;
  for (const Described& device : devices) {
    const std::string json = json_of(device);
    for (ConvShape shape : shapes) {
      for (const Precision precision : {Precision::tf32, Precision::bf16}) {
        for (const Product product : {Product::forward, Product::data, Product::weights}) {
          shape.precision = precision;
          shape.product = product;
          const auto plan = ConvPlan::describe(json, shape);
          std::printf("%s, %lldx%lldx%lld, %s, product %d: %s %.1f MiB\n", device.name,
                      static_cast<long long>(shape.w[0]), static_cast<long long>(shape.w[1]),
                      static_cast<long long>(shape.w[2]),
                      precision == Precision::tf32 ? "tf32" : "bf16", static_cast<int>(product),
                      plan ? "workspace" : "no plan",
                      plan ? static_cast<double>(plan->workspace_bytes()) / (1 << 20) : 0.0);
          missing += plan ? 0 : 1;
        }
      }
    }
  }
  std::printf("%d missing\n", missing);
  return missing == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
