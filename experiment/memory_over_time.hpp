// Memory of activations during a step, for timelines.
#pragma once

#include <cstdint>
#include <vector>

#include "core/exec_dag.hpp"
#include "core/framework.hpp"
#include "core/timeline.hpp"

namespace parsim::experiment {

/// Bytes that a device keeps from `at` on, until the next change.
struct MemoryChange {
  Seconds at{};
  Bytes activations{};
  friend bool operator==(const MemoryChange&, const MemoryChange&) = default;
};

/// By device id, in order of time; the first at the first kernel, the last is 0.
///
/// What the backward pass needs of a layer's output (lowering::kept_bytes()), and a layer's own
/// copy of the data, stays from the start of the forward kernel to the end of the last backward
/// kernel of the same layer and micro-batch. An output that is computed again stays during the
/// forward kernel, and from the start of its recomputation. Received pieces stay from their arrival
/// to the last backward kernel of the layers that read them. What only other devices read stays
/// under Megatron-LM until it has been sent.
///
/// This is what lowering::memory_use() adds up, but for the largest gradient and operands that only
/// weight gradients need. Checked: tests/experiment/memory_over_time_test.cpp.
[[nodiscard]] std::vector<std::vector<MemoryChange>> memory_over_time(const ExecDag& dag,
                                                                      const Timeline& timeline,
                                                                      std::size_t devices,
                                                                      Framework framework);

}  // namespace parsim::experiment
