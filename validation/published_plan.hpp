// The plan of a published run, from the columns of its row.
#pragma once

#include <cstdint>

#include "core/plan.hpp"
#include "strategies/strategies.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// Columns tp, cp, dp, pp, vp, micro_batch and grad_accum.
struct RunLayout {
  std::int32_t tensor = 1;         ///< devices of a tensor-parallel group
  std::int32_t context = 1;        ///< parts of the tokens of a sample
  std::int32_t pipeline = 1;       ///< stages on different devices
  std::int32_t chunks = 1;         ///< model chunks of each, as the stages of interleaved 1F1B
  std::int64_t data = 1;           ///< replicas
  std::int64_t micro_batch = 1;    ///< samples per replica
  std::int32_t micro_batches = 1;  ///< per replica and step
  /// Devices of a replica of a stage.
  [[nodiscard]] std::int64_t group() const { return std::int64_t{tensor} * context; }
  [[nodiscard]] std::int64_t batch() const { return data * micro_batch * micro_batches; }
};

/// True if the row has a micro-batch size or a layout file; otherwise it is data parallelism.
[[nodiscard]] bool has_layout(const Claim& claim);
/// True if column `layout_file` names one.
[[nodiscard]] bool has_layout_file(const Claim& claim);
/// The layout of a row without a layout file, with n_gpus / (tp x cp x pp) replicas. Throws
/// InputError naming the row if that is not whole, or another column (dp, global_batch) disagrees.
[[nodiscard]] RunLayout layout_of(const Claim& claim);

/// True if its run overlapped collectives of tensor parallelism with products (--tp-overlap):
/// column tp_overlap is yes, tp_comm_overlap (Megatron-LM's name) True, or `needs` or `soft` have
/// tp-overlap.
[[nodiscard]] bool overlaps_products(const Claim& claim);

/// Column `bucket`: a size as of --bucket, or "all" for one sum after the last kernel. Without it,
/// of a row that has a layout, that of trainers whose defaults let sums overlap with the backward
/// pass: InternEvo's reduce_bucket_size of 512 Mi elements with overlap_sync_grad
/// (configs/7B_sft.py), and 40 million elements
/// (megatron/core/distributed/distributed_data_parallel.py) with the overlap_grad_reduce of
/// Megatron-Bridge's recipes (src/megatron/bridge/recipes); a block under FSDP (`parallelism`) and
/// in stage 3 of ZeRO, but experiment::deepspeed_prefetch under DeepSpeed; that of --bucket under
/// PyTorch's DDP and without a layout; else "all".
[[nodiscard]] std::optional<Bytes> bucket_of(const Claim& claim, Precision reduced);

/// The plan of a row that has a layout: that of its layout file (experiment/layout_file.hpp), or
/// tensor-parallel groups in pipeline stages of whole blocks (1F1B, interleaved with vp), with as
/// many blocks as column `layout` gives ("13/11") or equally many. Replicas shard states by column
/// zero_stage, in groups as columns zero_group or zero_range give, and divide experts by columns ep
/// and etp; column recompute says what blocks drop, recompute_every which. Gradients are reduced,
/// and in stage 3 weights gathered, in the buckets of bucket_of().
///
/// input   batch, micro_batches, degrees, zero_stage and bucket are set here; reduce_precision is
///         read
///
/// Throws InputError naming the row, or the layout file and its line.
[[nodiscard]] Plan published_plan(const Claim& claim, strategies::StrategyInput& input);

}  // namespace parsim::validation
