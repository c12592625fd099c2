// Small programs for the emulated GPUs, whose headers stay in this folder.
#pragma once

#include <string>
#include <vector>

namespace emulated {

/// Two kernels on two streams, which append 1 and 2 to a number; the second waits for the first,
/// or does not.
[[nodiscard]] int order_of_two(unsigned seed, bool waits);
/// The first call that was answered otherwise than by CUDA or NCCL, or "".
[[nodiscard]] std::string refusals();
/// The first thing that ranks of NCCL do otherwise than true ones when some come late, or "".
[[nodiscard]] std::string late_ranks();
/// Through shared memory, a thread for each.
[[nodiscard]] std::vector<int> reversed(std::vector<int> numbers);

}  // namespace emulated
