#include <algorithm>
#include <set>

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

/// The multiprocessors that `work`, put on the stream, has noted.
template <class Work>
std::set<unsigned> noted(const DeviceMemory& memory, cudaStream_t stream, const Work& work) {
  std::vector<unsigned> numbers(blocks);
  const std::size_t bytes = blocks * sizeof(unsigned);
  work();
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  cuda_check(cudaMemcpy(numbers.data(), memory.get(), bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return {numbers.begin(), numbers.end()};
}

std::string counted(std::size_t partition, std::size_t found, int wanted) {
  return "--partition: kernels of part " + std::to_string(partition) + " (from 0) ran on " +
         std::to_string(found) + " multiprocessors, it has " + std::to_string(wanted);
}

}  // namespace

bool graphs_keep_partitions(const CudaDevices& devices) {
  bool kept = true;
  std::set<unsigned> taken;
  for (std::size_t d = 0; d < devices.all().size(); ++d) {
    const LogicalDevice& device = devices.all()[d];
    const auto most = static_cast<std::size_t>(device.multiprocessors);
    const Stream own_stream(devices.make_stream(device));
    cudaStream_t stream = own_stream.get();
    const DeviceMemory memory(blocks * sizeof(unsigned));
    const auto launched = [&] {
      launch(note_multiprocessor, blocks, 1, stream, reinterpret_cast<unsigned*>(memory.get()));
    };
    const std::set<unsigned> own = noted(memory, stream, launched);
    if (own.size() > most) throw HardwareError(counted(d, own.size(), device.multiprocessors));
    for (const unsigned one : own) {
      if (!taken.insert(one).second) {
        throw HardwareError("--partition: parts share multiprocessor " + std::to_string(one));
      }
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
               "cudaStreamBeginCapture");
    launched();
    const bool captured = cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
                          cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess;
    static_cast<void>(cudaGetLastError());
    const auto replayed = [&] {
      cuda_check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    };
    kept = kept && captured && noted(memory, stream, replayed).size() <= most;
    if (executable != nullptr) static_cast<void>(cudaGraphExecDestroy(executable));
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  }
  return kept;
}

}  // namespace parsim::hw
