// Devices, memory, errors and green contexts of the emulated GPUs (machine.hpp).
#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "tests/hw/emulated/machine.hpp"

struct CUdevResourceDesc_st {
  int first = 0, multiprocessors = 0;
};
struct CUgreenCtx_st {
  int device = 0, first = 0, multiprocessors = 0;
};

namespace emulated {

namespace {

int device_now = 0;
cudaError_t last_error = cudaSuccess;

struct Block {
  int device;
  std::size_t bytes;
};
std::map<void*, Block> blocks;

long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtol(text, nullptr, 10);
}

std::size_t held(int device) {
  std::size_t bytes = 0;
  for (const auto& [data, block] : blocks) bytes += block.device == device ? block.bytes : 0;
  return bytes;
}

}  // namespace

Settings& settings() {
  static Settings all = {static_cast<int>(number("PARSIM_EMULATED_GPUS", 1)),
                         static_cast<int>(number("PARSIM_EMULATED_DRIVER", 13000)),
                         static_cast<int>(number("PARSIM_EMULATED_NCCL", 22809)),
                         static_cast<std::size_t>(number("PARSIM_EMULATED_MEMORY", long{8} << 30)),
                         static_cast<unsigned>(number("PARSIM_EMULATED_SEED", 1)),
                         number("PARSIM_EMULATED_CAPTURE", 1) != 0,
                         number("PARSIM_EMULATED_NUMBERS", 1) != 0,
                         static_cast<int>(number("PARSIM_EMULATED_MEMORY_FOR", 0)),
                         true,
                         static_cast<Graphs>(number("PARSIM_EMULATED_PARTITIONS", 1))};
  return all;
}

int current_device() { return device_now; }

int device_of(const void* data) {
  const auto after = blocks.upper_bound(const_cast<void*>(data));
  if (after == blocks.begin()) return -1;
  const auto& [begin, block] = *std::prev(after);
  const auto offset =
      static_cast<std::size_t>(static_cast<const char*>(data) - static_cast<const char*>(begin));
  return offset < block.bytes ? block.device : -1;
}

cudaError_t failed(cudaError_t error) { return last_error = error; }

Nanoseconds kernel_time(double operations, int on_multiprocessors) {
  return kernel_begins + operations / (on_multiprocessors * 100.0);
}

Nanoseconds gemm_time(double operations, double bytes, const CUstream_st& stream) {
  // Bytes in a nanosecond: an update reads two numbers and writes one for each of its threads.
  constexpr double walked = 24;
  const int on = stream.multiprocessors;
  const Nanoseconds walk = kernel_begins + bytes / walked / on;
  const Nanoseconds time = std::max(kernel_time(operations, on), walk);
  want_memory({stream.device, bytes / walked / time, static_cast<double>(on)});
  return time;
}

namespace {

/// The number of a resource's first multiprocessor, at an offset that nothing here reads.
unsigned& first_of(CUdevResource& resource) { return resource.sm.minSmPartitionSize; }

/// The same of a resource that has not been split.
constexpr unsigned whole = 0;

// The driver's functions, which the program asks for by name.
CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < settings().gpus ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult get_resource(CUdevice, CUdevResource* resource, CUdevResourceType type) {
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  resource->type = type;
  resource->sm.smCount = multiprocessors;
  resource->sm.smCoscheduledAlignment = whole;
  first_of(*resource) = 0;
  return CUDA_SUCCESS;
}
CUresult split(CUdevResource* result, unsigned* groups, const CUdevResource* input,
               CUdevResource* rest, unsigned flags, unsigned least) {
  // What was split may not be split again.
  if (flags != 0 || rest != nullptr || input->sm.smCoscheduledAlignment != whole) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr unsigned unit = granularity;
  const unsigned size = std::max(unit, (least + unit - 1) / unit * unit);
  const unsigned possible = input->sm.smCount / size;
  *groups = result == nullptr ? possible : std::min(*groups, possible);
  for (unsigned g = 0; result != nullptr && g < *groups; ++g) {
    result[g] = *input;
    result[g].sm.smCount = size;
    result[g].sm.smCoscheduledAlignment = unit;
    first_of(result[g]) = input->sm.minSmPartitionSize + g * size;
  }
  return CUDA_SUCCESS;
}
CUresult describe(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  int many = 0;
  for (unsigned r = 0; r < count; ++r) {
    if (resources[r].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    const unsigned follows =
        r == 0 ? first_of(resources[0]) : first_of(resources[r - 1]) + resources[r - 1].sm.smCount;
    if (first_of(resources[r]) != follows) return CUDA_ERROR_INVALID_VALUE;  // ours are neighbours
    many += static_cast<int>(resources[r].sm.smCount);
  }
  *description = new CUdevResourceDesc_st{static_cast<int>(first_of(resources[0])), many};
  return CUDA_SUCCESS;
}
CUresult create(CUgreenCtx* context, CUdevResourceDesc description, CUdevice device,
                unsigned flags) {
  if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  *context = new CUgreenCtx_st{device, description->first, description->multiprocessors};
  delete description;
  return CUDA_SUCCESS;
}
CUresult convert(CUcontext* context, CUgreenCtx green) {
  *context = reinterpret_cast<CUcontext>(green);
  return CUDA_SUCCESS;
}
CUresult destroy(CUgreenCtx context) {
  delete context;
  return CUDA_SUCCESS;
}
CUresult make_stream(CUstream* stream, CUgreenCtx context, unsigned flags, int) {
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const int before = device_now;
  device_now = context->device;
  const bool made = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking) == cudaSuccess;
  device_now = before;
  if (made) {
    (*stream)->first = context->first;
    (*stream)->multiprocessors = context->multiprocessors;
  }
  return made ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <class Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

struct Symbol {
  int since;  ///< version of CUDA
  void* function;
};
const std::map<std::string, Symbol>& driver() {
  static const std::map<std::string, Symbol> functions{
      {"cuDeviceGet", {2000, address(device_get)}},
      {"cuDeviceGetDevResource", {12040, address(get_resource)}},
      {"cuDevSmResourceSplitByCount", {12040, address(split)}},
      {"cuDevResourceGenerateDesc", {12040, address(describe)}},
      {"cuGreenCtxCreate", {12040, address(create)}},
      {"cuGreenCtxDestroy", {12040, address(destroy)}},
      {"cuCtxFromGreenCtx", {12040, address(convert)}},
      {"cuGreenCtxStreamCreate", {12050, address(make_stream)}}};
  return functions;
}

}  // namespace

}  // namespace emulated

using namespace emulated;

extern "C" {

const char* cudaGetErrorName(cudaError_t) { return "emulated"; }
const char* cudaGetErrorString(cudaError_t error) {
  static std::string text;
  text = "error " + std::to_string(static_cast<int>(error));
  return text.c_str();
}
cudaError_t cudaGetLastError(void) { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  if (static_cast<int>(version) > settings().driver) return failed(cudaErrorInvalidValue);
  const auto entry = driver().find(symbol);
  const bool known = entry != driver().end();
  const bool old_enough = known && entry->second.since <= static_cast<int>(version);
  *function = old_enough ? entry->second.function : nullptr;
  *found = !known       ? cudaDriverEntryPointSymbolNotFound
           : old_enough ? cudaDriverEntryPointSuccess
                        : cudaDriverEntryPointVersionNotSufficent;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings().gpus;
  if (settings().driver < 13000) return failed(cudaErrorInsufficientDriver);
  return settings().gpus > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= settings().gpus) return failed(cudaErrorInvalidDevice);
  device_now = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= settings().gpus) return failed(cudaErrorInvalidDevice);
  *value = attribute == cudaDevAttrClockRate             ? 1980000
           : attribute == cudaDevAttrMultiProcessorCount ? multiprocessors
           : attribute == cudaDevAttrMemoryClockRate     ? 3201000
                                                         : 6144;  // bits of the memory's bus
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= settings().gpus) return failed(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");
  properties->uuid.bytes[0] = static_cast<char>(device);
  properties->totalGlobalMem = settings().memory;
  properties->major = settings().capability / 10;
  properties->minor = settings().capability % 10;
  properties->multiProcessorCount = multiprocessors;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  constexpr std::size_t alignment = 256;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (held(device_now) + bytes > settings().memory) return failed(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (*data == nullptr) return failed(cudaErrorMemoryAllocation);
  if (settings().numbers) std::memset(*data, 0xff, bytes);  // not a number, as any type
  blocks[*data] = {device_now, bytes};
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  const auto block = blocks.find(data);
  if (block == blocks.end()) return failed(cudaErrorInvalidValue);
  drain(block->second.device);
  blocks.erase(block);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = settings().memory;
  *free = *total - held(device_now);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return put(stream, [=](Nanoseconds start) {
    if (settings().numbers) std::memset(data, value, bytes);
    return std::optional(start + kernel_time(0, multiprocessors));
  });
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return cudaMemsetAsync(data, value, bytes, nullptr);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  const cudaError_t error = put(nullptr, [=](Nanoseconds start) {
    std::memcpy(to, from, bytes);
    return std::optional(start + kernel_time(0, multiprocessors));
  });
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}
}
