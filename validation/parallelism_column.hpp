// Column `parallelism` of a measured step: what its words decide, or must not contradict.
#pragma once

#include <cstdint>
#include <optional>

#include "validation/validation.hpp"

namespace parsim::validation {

/// Column zero_stage; without it what `parallelism` names: ZeRO-N its number, FULL_SHARD, HSDP and
/// HYBRID_SHARD 3, SHARD_GRAD_OP 2, NO_SHARD 0, FSDP ("fully sharded") without any of these 3,
/// PyTorch's default. Words count in any case, with blanks or hyphens in the place of underscores.
/// Nothing where no column says it. Throws InputError where two of these differ, or ZeRO has no
/// number.
[[nodiscard]] std::optional<std::int32_t> zero_stage_of(const Claim& claim);

/// Whether `parallelism` names PyTorch's HYBRID_SHARD (also HSDP), which shards in each machine.
[[nodiscard]] bool shards_in_machines(const Claim& claim);

/// Throws InputError where `parallelism` has a word that it does not know: skipping it would leave
/// another plan.
void check_words(const Claim& claim);

/// Throws InputError where `parallelism` names tensor, pipeline, context or expert parallelism
/// ("tensor parallel 8", "PP4", "MP8", "GPipe", "3D") or fewer replicas than GPUs ("DP4") and the
/// column of its degree is empty or another number, or zero_stage_of does. A layout file has all
/// degrees.
void check_parallelism(const Claim& claim);

}  // namespace parsim::validation
