#include "tests/hw/emulated/program.hpp"

#include <cuda_runtime.h>
#include <nccl.h>

#include "tests/hw/emulated/machine.hpp"

namespace emulated {

namespace {

__global__ void append(int* number, int digit) { *number = *number * 10 + digit; }
__global__ void nothing() {}
__global__ void reverse(int* numbers) {
  __shared__ int copy[64];
  copy[threadIdx.x] = numbers[threadIdx.x];
  __syncthreads();
  numbers[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

template <class... P, class... A>
cudaError_t launch(cudaStream_t stream, unsigned threads, void (*kernel)(P...), A... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(threads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

struct Streams {
  cudaStream_t one = nullptr, two = nullptr;
  cudaEvent_t event = nullptr;
  Streams() {
    static_cast<void>(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    static_cast<void>(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    static_cast<void>(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  ~Streams() {
    static_cast<void>(cudaStreamDestroy(one));
    static_cast<void>(cudaStreamDestroy(two));
    static_cast<void>(cudaEventDestroy(event));
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
};

template <class Code>
void expect(std::string& wrong, const char* what, Code found, Code wanted) {
  if (found == wanted || !wrong.empty()) return;
  wrong = std::string(what) + ": " + std::to_string(static_cast<int>(found)) + ", not " +
          std::to_string(static_cast<int>(wanted));
}

void refused_captures(std::string& wrong) {
  Streams s;
  cudaGraph_t graph = nullptr;
  static_cast<void>(cudaEventRecord(s.event, s.two));
  static_cast<void>(cudaStreamBeginCapture(s.one, cudaStreamCaptureModeRelaxed));
  expect(wrong, "synchronising what is captured", cudaStreamSynchronize(s.one),
         cudaErrorStreamCaptureUnsupported);
  expect(wrong, "waiting for what is not captured", cudaStreamWaitEvent(s.one, s.event, 0),
         cudaErrorStreamCaptureIsolation);
  expect(wrong, "ending what was broken", cudaStreamEndCapture(s.one, &graph),
         cudaErrorStreamCaptureInvalidated);
  static_cast<void>(cudaStreamBeginCapture(s.one, cudaStreamCaptureModeRelaxed));
  static_cast<void>(cudaEventRecord(s.event, s.one));
  static_cast<void>(cudaStreamWaitEvent(s.two, s.event, 0));
  static_cast<void>(launch(s.two, 1, nothing));
  expect(wrong, "ending without a join", cudaStreamEndCapture(s.one, &graph),
         cudaErrorStreamCaptureUnjoined);
  expect(wrong, "waiting for a capture's event after it", cudaStreamWaitEvent(s.two, s.event, 0),
         cudaErrorCapturedEvent);
}

}  // namespace

int order_of_two(unsigned seed, bool waits) {
  settings().seed = seed;
  restart();
  Streams s;
  void* number = nullptr;
  static_cast<void>(cudaMalloc(&number, sizeof(int)));
  static_cast<void>(cudaMemset(number, 0, sizeof(int)));
  static_cast<void>(cudaDeviceSynchronize());
  static_cast<void>(launch(s.one, 1, append, static_cast<int*>(number), 1));
  static_cast<void>(cudaEventRecord(s.event, s.one));
  if (waits) static_cast<void>(cudaStreamWaitEvent(s.two, s.event, 0));
  static_cast<void>(launch(s.two, 1, append, static_cast<int*>(number), 2));
  static_cast<void>(cudaDeviceSynchronize());
  int result = 0;
  static_cast<void>(cudaMemcpy(&result, number, sizeof result, cudaMemcpyDeviceToHost));
  static_cast<void>(cudaFree(number));
  return result;
}

std::string refusals() {
  settings() = {.gpus = 2};
  std::string wrong;
  Streams first;  // of GPU 0
  expect(wrong, "no threads", launch(first.one, 0, nothing), cudaErrorInvalidConfiguration);
  expect(wrong, "too many threads", launch(first.one, 1025, nothing),
         cudaErrorInvalidConfiguration);
  refused_captures(wrong);
  static_cast<void>(cudaSetDevice(1));
  expect(wrong, "a stream of another GPU", launch(first.one, 1, nothing),
         cudaErrorInvalidResourceHandle);
  cudaEvent_t event = nullptr;  // of GPU 1
  static_cast<void>(cudaEventCreateWithFlags(&event, 0));
  expect(wrong, "an event of another GPU", cudaEventRecord(event, first.one),
         cudaErrorInvalidResourceHandle);
  static_cast<void>(cudaEventDestroy(event));
  static_cast<void>(cudaSetDevice(0));
  void* memory = nullptr;
  expect(wrong, "more memory than there is", cudaMalloc(&memory, settings().memory + 1),
         cudaErrorMemoryAllocation);
  ncclComm_t communicators[2] = {};
  const int same[] = {0, 0};
  expect(wrong, "two ranks on a GPU", ncclCommInitAll(communicators, 2, same), ncclInvalidUsage);
  settings() = {};
  return wrong;
}

std::string late_ranks() {
  settings() = {.gpus = 2};
  std::string wrong;
  ncclComm_t communicators[2][2] = {};  // each takes all multiprocessors of the sender
  cudaStream_t streams[2][2] = {};      // by communicator, by rank
  void* memory[2] = {};
  for (int c = 0; c < 2; ++c) {
    ncclUniqueId id{};
    static_cast<void>(ncclGetUniqueId(&id));
    static_cast<void>(ncclGroupStart());
    for (int rank = 0; rank < 2; ++rank) {
      static_cast<void>(cudaSetDevice(rank));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.maxCTAs = rank == 0 ? multiprocessors : 1;
      static_cast<void>(ncclCommInitRankConfig(&communicators[c][rank], 2, id, rank, &config));
      static_cast<void>(cudaStreamCreateWithFlags(&streams[c][rank], cudaStreamNonBlocking));
      if (c == 0) static_cast<void>(cudaMalloc(&memory[rank], sizeof(float)));
    }
    static_cast<void>(ncclGroupEnd());
  }
  const auto send = [&](int c) {
    return ncclSend(memory[0], 1, ncclFloat32, 1, communicators[c][0], streams[c][0]);
  };
  const auto receive = [&](int c) {
    return ncclRecv(memory[1], 1, ncclFloat32, 0, communicators[c][1], streams[c][1]);
  };
  expect(wrong, "a message from another GPU's memory",
         ncclSend(memory[1], 1, ncclFloat32, 1, communicators[0][0], streams[0][0]),
         ncclInvalidArgument);
  static_cast<void>(send(0));
  expect(wrong, "a sender without its receiver", cudaStreamQuery(streams[0][0]), cudaErrorNotReady);
  static_cast<void>(send(1));
  static_cast<void>(receive(1));
  expect(wrong, "a sender without multiprocessors", cudaStreamQuery(streams[1][1]),
         cudaErrorNotReady);
  static_cast<void>(receive(0));
  for (const auto& both : streams) {
    for (cudaStream_t stream : both) {
      expect(wrong, "a message between two", cudaStreamSynchronize(stream), cudaSuccess);
    }
  }
  for (int rank = 0; rank < 2; ++rank) {
    static_cast<void>(cudaFree(memory[rank]));
    for (int c = 0; c < 2; ++c) {
      static_cast<void>(cudaStreamDestroy(streams[c][rank]));
      static_cast<void>(ncclCommDestroy(communicators[c][rank]));
    }
  }
  static_cast<void>(cudaSetDevice(0));
  settings() = {};
  return wrong;
}

std::vector<int> reversed(std::vector<int> numbers) {
  void* data = nullptr;
  const std::size_t bytes = numbers.size() * sizeof(int);
  static_cast<void>(cudaMalloc(&data, bytes));
  static_cast<void>(cudaMemcpy(data, numbers.data(), bytes, cudaMemcpyHostToDevice));
  static_cast<void>(
      launch(nullptr, static_cast<unsigned>(numbers.size()), reverse, static_cast<int*>(data)));
  static_cast<void>(cudaMemcpy(numbers.data(), data, bytes, cudaMemcpyDeviceToHost));
  static_cast<void>(cudaFree(data));
  return numbers;
}

}  // namespace emulated
