// What the emulated machine is. From environment variables; tests in the same process set it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace emulated {

/// Where a graph's kernels run: in their own streams' partitions, anywhere, in the partition of the
/// stream that it is launched on.
enum class Graphs { forget, keep, move };

struct Settings {
  int gpus = 1;                               ///< PARSIM_EMULATED_GPUS
  int driver = 13000;                         ///< PARSIM_EMULATED_DRIVER: its CUDA version; 0: none
  int nccl = 22809;                           ///< PARSIM_EMULATED_NCCL: its version
  std::size_t memory = std::size_t{8} << 30;  ///< PARSIM_EMULATED_MEMORY: bytes of each GPU
  unsigned seed = 1;                          ///< PARSIM_EMULATED_SEED: of the order
  bool captures = true;                       ///< PARSIM_EMULATED_CAPTURE: 0 if no capture succeeds
  bool numbers = true;  ///< PARSIM_EMULATED_NUMBERS: 0 if work takes its time and does nothing
  /// PARSIM_EMULATED_MEMORY_FOR: memory is as fast as so many multiprocessors walk through it, so
  /// kernels of ours share it, if there are more; work is then done in the order of its dates. 0:
  /// there is enough for all.
  int memory_for = 0;
  bool streams_keep = true;      ///< partitions; else kernels run on the whole GPU
  Graphs graphs = Graphs::keep;  ///< PARSIM_EMULATED_PARTITIONS: their number
  bool attention = true;         ///< cuDNN has engines for attention
  int capability = 90;           ///< compute capability: 89 for 8.9
  std::size_t blas = 130100;     ///< cuBLASLt's version
};
[[nodiscard]] Settings& settings();

/// Calls of NCCL's functions that streams have done, by name: one for each rank; and "group": how
/// often a rank did what a group of calls gives it.
[[nodiscard]] std::map<std::string, std::int64_t>& nccl_calls();
/// The order of work begins anew, as the seed has it.
void restart();
/// Graphs of attention that cuDNN has executed in this process.
[[nodiscard]] int& attention_graphs();
/// Products in FP8 that cuBLASLt has executed in this process, by the bits of mantissa of the two
/// operands: "3 3" or "3 2".
[[nodiscard]] std::map<std::string, int>& fp8_products();

}  // namespace emulated
