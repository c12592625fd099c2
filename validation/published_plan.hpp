// How a published run spreads a network over its GPUs, from the columns of its row.
#pragma once

#include <cstdint>

#include "core/plan.hpp"
#include "strategies/strategies.hpp"
#include "validation/validation.hpp"

namespace parsim {

/// Columns tp, dp, pp, micro_batch and grad_accum.
struct RunLayout {
  std::int32_t tensor = 1;         ///< devices that share every layer
  std::int32_t pipeline = 1;       ///< stages
  std::int64_t data = 1;           ///< replicas
  std::int64_t micro_batch = 1;    ///< samples that a replica takes at once
  std::int32_t micro_batches = 1;  ///< that a replica takes in a step
  [[nodiscard]] std::int64_t batch() const { return data * micro_batch * micro_batches; }
};

/// True if the row says how large its micro-batches are, or has a layout file; without, it is data
/// parallelism with one.
[[nodiscard]] bool has_layout(const Claim& claim);
/// True if column `layout_file` names one.
[[nodiscard]] bool has_layout_file(const Claim& claim);
/// Of a row that has one but no file. Replicas are what tensor and pipeline leave of the GPUs.
/// Throws InputError naming the row if that is not whole, or another column (dp, global_batch)
/// disagrees.
[[nodiscard]] RunLayout layout_of(const Claim& claim);

/// The plan of a row that has one: that of its layout file (experiment/layout_file.hpp), or groups
/// share layers and stages of whole blocks follow each other (1F1B), as many as column `layout`
/// says
/// ("13/11") or equally many. Replicas split states as column zero_stage says; with recompute=yes
/// every block goes forward again before its backward. Under FSDP (`parallelism`) a block's weights
/// travel together; else all gradients after the last kernel.
///
/// input   batch, micro_batches, tensor, parts, zero_stage and bucket are set here
///
/// Throws InputError naming the row, or the layout file and its line.
[[nodiscard]] Plan published_plan(const Claim& claim, StrategyInput& input);

}  // namespace parsim
