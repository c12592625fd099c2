// How Megatron-LM divides blocks among the stages of a pipeline.
#pragma once

#include <cstdint>
#include <vector>

namespace parsim::experiment {

class TrainerWords;

/// Blocks of each stage, of model chunks those of the first pass over the devices first. Sets
/// `chunks`, the model chunks of a device. Throws InputError where Megatron-LM stops.
[[nodiscard]] std::vector<std::int64_t> blocks_of_megatron(const TrainerWords& words,
                                                           std::int64_t blocks,
                                                           std::int64_t pipeline,
                                                           std::int64_t& chunks);

}  // namespace parsim::experiment
