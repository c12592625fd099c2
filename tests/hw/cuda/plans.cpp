// cuDNN plans for described devices, with no GPU and no driver: the convolutions of our networks
// have engines in every precision that the device knows, and their workspaces are printed.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "hw/cuda/convolution.hpp"
#include "hw/cuda/described.hpp"
#include "hw/cuda_executor.hpp"

namespace {

using parsim::Precision;
using parsim::hw::ConvPlan;
using parsim::hw::ConvShape;
using parsim::hw::Product;

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
  // cuDNN 9.19 plans them without a driver, and crashed beside an H200 after a hundred.
  try {
    const parsim::hw::CudaExecutor gpu(std::vector<int>{});
    std::printf("SKIPPED: a machine without a GPU; described devices are planned for there\n");
    return 77;
  } catch (const parsim::hw::HardwareError&) {  // no GPU, as it should be
  }
  const std::vector<ConvShape> shapes = {conv(32, 3, 64, 224, 7, 2), conv(32, 64, 64, 56, 3, 1),
                                         conv(32, 256, 512, 28, 1, 2),
                                         conv(32, 512, 512, 14, 3, 1)};
  int missing = 0;
  for (const std::string& device : parsim::hw::described_models()) {
    const std::string json = parsim::hw::description_of(device);
    for (ConvShape shape : shapes) {
      for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
        for (const Product product : {Product::forward, Product::data, Product::weights}) {
          shape.precision = precision;
          shape.product = product;
          const auto plan = ConvPlan::describe(json, shape);
          std::printf("%s, %lldx%lldx%lld, %s, product %d: %s %.1f MiB\n", device.c_str(),
                      static_cast<long long>(shape.w[0]), static_cast<long long>(shape.w[1]),
                      static_cast<long long>(shape.w[2]),
                      std::string(parsim::to_text(precision)).c_str(), static_cast<int>(product),
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
