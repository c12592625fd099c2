#include <algorithm>
#include <memory>
#include <set>

#include "hw/cuda/event.cuh"
#include "hw/cuda/launch.cuh"
#include "hw/cuda/memory.cuh"
#include "hw/cuda/partitions.hpp"

namespace parsim::hw {

namespace {

constexpr unsigned blocks = 1024;

__global__ void note_multiprocessor(unsigned* numbers) {
  // Long enough for others to begin elsewhere.
  const unsigned long long begin = global_nanoseconds();
  while (global_nanoseconds() - begin < 20000) __nanosleep(1000);
  numbers[blockIdx.x] = this_multiprocessor();
}

/// A stream that goes away.
class Stream {
 public:
  explicit Stream(StreamHandle stream) : stream_(stream) {}
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_;
};

/// What its kernel notes, and the stream that it runs on.
struct Part {
  explicit Part(StreamHandle handle) : stream(handle), memory(blocks * sizeof(unsigned)) {
    cuda_check(cudaMemset(memory.get(), 0, blocks * sizeof(unsigned)), "cudaMemset");
  }
  void launch_note() const {
    launch(note_multiprocessor, blocks, 1, stream.get(), reinterpret_cast<unsigned*>(memory.get()));
  }
  [[nodiscard]] std::set<unsigned> noted() const {
    std::vector<unsigned> numbers(blocks);
    cuda_check(
        cudaMemcpy(numbers.data(), memory.get(), blocks * sizeof(unsigned), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    return {numbers.begin(), numbers.end()};
  }
  Stream stream;
  DeviceMemory memory;
  std::set<unsigned> own;  ///< multiprocessors
};
using Parts = std::vector<std::unique_ptr<Part>>;

void check_alone(const CudaDevices& devices, const Parts& parts) {
  std::set<unsigned> taken;
  for (std::size_t d = 0; d < parts.size(); ++d) {
    Part& part = *parts[d];
    const int wanted = devices.all()[d].multiprocessors;
    part.launch_note();
    cuda_check(cudaStreamSynchronize(part.stream.get()), "cudaStreamSynchronize");
    part.own = part.noted();
    if (part.own.size() > static_cast<std::size_t>(wanted)) {
      throw HardwareError("--partition: kernels of part " + std::to_string(d) +
                          " (from 0) ran on " + std::to_string(part.own.size()) +
                          " multiprocessors, it has " + std::to_string(wanted));
    }
    for (const unsigned one : part.own) {
      if (taken.insert(one).second) continue;
      throw HardwareError("--partition: parts share multiprocessor " + std::to_string(one));
    }
  }
}

/// As steps are: of all parts' streams, begun and launched on the first one's.
bool replay(const Parts& parts) {
  cudaStream_t first = parts[0]->stream.get();
  const Event fork(false);
  std::vector<Event> joins;
  cuda_check(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  cuda_check(cudaEventRecord(fork.get(), first), "cudaEventRecord");
  for (const auto& part : parts) {
    cudaStream_t stream = part->stream.get();
    if (stream != first) cuda_check(cudaStreamWaitEvent(stream, fork.get(), 0), "fork");
    part->launch_note();
    if (stream == first) continue;
    joins.emplace_back(false);
    cuda_check(cudaEventRecord(joins.back().get(), stream), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(first, joins.back().get(), 0), "cudaStreamWaitEvent");
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  const bool launched = cudaStreamEndCapture(first, &graph) == cudaSuccess &&
                        cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess &&
                        cudaGraphLaunch(executable, first) == cudaSuccess &&
                        cudaStreamSynchronize(first) == cudaSuccess;
  if (executable != nullptr) static_cast<void>(cudaGraphExecDestroy(executable));
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  static_cast<void>(cudaGetLastError());
  return launched;
}

}  // namespace

bool graphs_keep_partitions(const CudaDevices& devices) {
  Parts parts;
  for (const LogicalDevice& device : devices.all()) {
    parts.push_back(std::make_unique<Part>(devices.make_stream(device)));
  }
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // memory is set
  check_alone(devices, parts);
  if (!replay(parts)) return false;
  return std::all_of(parts.begin(), parts.end(), [](const auto& part) {
    const std::set<unsigned> now = part->noted();
    return std::includes(part->own.begin(), part->own.end(), now.begin(), now.end());
  });
}

}  // namespace parsim::hw
