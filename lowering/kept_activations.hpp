// Which outputs stay on the devices that make them, and which are sent away and freed. Everything
// that counts memory asks it: memory_use(), memory over time, searches.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/plan.hpp"

namespace parsim::lowering {

/// Of a layer and one that reads its output: whether the output is kept for it where it is made.
using StaysFor = std::function<bool(LayerId producer, LayerId reader)>;

/// Under Megatron-LM whether a device of the producer has a part of the reader, else always: its
/// pipelines free an output once it has been sent (core/framework.hpp; Korthikanti et al. 2022,
/// "Reducing Activation Recomputation in Large Transformer Models", appendix B). The plan must
/// outlive it. Until then the output is in the memory that the largest gradient takes later.
[[nodiscard]] StaysFor outputs_stay(const Plan& plan);

/// kept_bytes() of memory.hpp, without what is kept for readers elsewhere.
[[nodiscard]] std::vector<std::int64_t> kept_bytes(const Network& network, Precision precision,
                                                   const StaysFor& stays);

struct LayerFragment;
struct FanOut;
/// By cell, elements of a layer's output that its device keeps: of partial sums that are
/// reduce-scattered its share, which is all that a reader saves for backward (Megatron-LM's
/// _ReduceScatterToSequenceParallelRegion in tensor_parallel/mappings.py saves nothing; likewise
/// DTensor's redistribution in torchtitan).
[[nodiscard]] std::vector<std::int64_t> elements_kept(const LayerFragment& layer,
                                                      const FanOut& readers);

}  // namespace parsim::lowering
