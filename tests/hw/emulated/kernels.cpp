// Kernels on the emulated GPUs: blocks one after another; the threads of a block in a loop, or, if
// they wait for each other, as coroutines.
#include <cuda_runtime.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/hw/emulated/machine.hpp"

dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace emulated {

namespace {

Nanoseconds clock_now = 0;
unsigned first_multiprocessor = 0, on_multiprocessors = multiprocessors;
const std::function<void()>* body = nullptr;
ucontext_t scheduler;               ///< where threads come back to
ucontext_t* this_thread = nullptr;  ///< null: threads run in a loop
bool came_to_barrier = false;

void thread_main() { (*body)(); }

/// A function of its own, because getcontext returns twice.
void begin_thread(ucontext_t& context, char* stack, std::size_t bytes) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = &scheduler;
  makecontext(&context, thread_main, 0);
}

/// All threads up to their next barrier, again and again. Returns whether there was one.
bool run_as_coroutines(unsigned threads) {
  constexpr std::size_t stack_bytes = std::size_t{128} << 10;
  static std::vector<std::vector<char>> stacks;
  while (stacks.size() < threads) stacks.emplace_back(stack_bytes);
  std::vector<ucontext_t> contexts(threads);
  for (unsigned t = 0; t < threads; ++t) {
    begin_thread(contexts[t], stacks[t].data(), stack_bytes);
  }
  std::vector<bool> over(threads);
  bool any = false;
  for (unsigned left = threads; left > 0;) {
    for (unsigned t = 0; t < threads; ++t) {
      if (over[t]) continue;
      threadIdx = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y);
      this_thread = &contexts[t];
      came_to_barrier = false;
      swapcontext(&scheduler, &contexts[t]);
      any = any || came_to_barrier;
      if (came_to_barrier) continue;
      over[t] = true;
      --left;
    }
  }
  this_thread = nullptr;
  return any;
}

void run_grid(const void* kernel, dim3 grid, dim3 block, const std::function<void()>& thread) {
  static std::map<const void*, bool> has_barriers;  // as seen in its first block
  body = &thread;
  gridDim = grid;
  blockDim = block;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
        const auto known = has_barriers.find(kernel);
        if (known == has_barriers.end() || known->second) {
          has_barriers[kernel] = run_as_coroutines(block.x * block.y * block.z);
          continue;
        }
        for (threadIdx.z = 0; threadIdx.z < block.z; ++threadIdx.z) {
          for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y) {
            for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) thread();
          }
        }
      }
    }
  }
}

}  // namespace

}  // namespace emulated

using namespace emulated;

void __syncthreads() {
  if (this_thread == nullptr) {
    std::fprintf(stderr, "emulated GPU: a kernel without barriers came to one\n");
    std::abort();
  }
  came_to_barrier = true;
  swapcontext(this_thread, &scheduler);
}
void __nanosleep(unsigned nanoseconds) { clock_now += nanoseconds; }
unsigned emulated_multiprocessor() {
  return first_multiprocessor + blockIdx.x % on_multiprocessors;
}
unsigned long long emulated_globaltimer() { return static_cast<unsigned long long>(clock_now); }

cudaError_t emulated_launch(const cudaLaunchConfig_t& config, const void* kernel,
                            std::function<void()> thread) {
  const dim3 grid = config.gridDim;
  const dim3 block = config.blockDim;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool possible = grid.x > 0 && grid.x < 1U << 31 && grid.y > 0 && grid.y < 1U << 16 &&
                        grid.z > 0 && grid.z < 1U << 16 && threads > 0 && threads <= 1024 &&
                        config.dynamicSmemBytes == 0 && config.numAttrs == 0;
  if (!possible) return failed(cudaErrorInvalidConfiguration);
  const CUstream_st& stream = *stream_of(config.stream);
  const bool anywhere = !settings().streams_keep ||
                        (stream.capture != nullptr && settings().graphs == Graphs::forget);
  const int first = anywhere ? 0 : stream.first;
  const int device = stream.device;
  const int on = anywhere ? multiprocessors : stream.multiprocessors;
  constexpr double per_thread = 50;  // near what copies reach
  const double all = static_cast<double>(threads) * grid.x * grid.y * grid.z;
  return put(config.stream, [=, thread = std::move(thread)](Nanoseconds start) {
    clock_now = start;
    const CUstream_st* elsewhere = graph_moved_to();
    const int here = elsewhere == nullptr ? on : elsewhere->multiprocessors;
    first_multiprocessor = static_cast<unsigned>(elsewhere == nullptr ? first : elsewhere->first);
    on_multiprocessors = static_cast<unsigned>(here);
    // Threads of their own wait, or look around.
    if (settings().numbers || threads == 1) run_grid(kernel, grid, block, thread);
    const Nanoseconds time = kernel_time(per_thread * all, here);
    want_memory({device, here * (1 - kernel_begins / time), static_cast<double>(here)});
    return std::optional(clock_now + time);
  });
}
