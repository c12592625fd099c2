// Tables in other projects' columns: DeepBench, DeepEP, Sailor's profiler and runs, mamf-finder.
#pragma once

#include <vector>

#include "core/csv.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// A column that is not empty in rows that cannot be predicted, and gives the reason.
inline constexpr std::string_view unpredictable = "unpredictable";

/// The row's measurements as claims with parsim's columns, one for each time that is filled; empty
/// if the table has no known format. `row_claim` has all columns of the row in `what`; name, unit,
/// quantity and `expected` are set here.
///
///     DeepBench       kernel, M, N, K, conv_*; fwd_ms, bwd_inputs_ms, bwd_params_ms
///     mamf-finder     accelerator, dtype, best_m, best_n, best_k, best_tflops
///     DeepEP          ep_gpus, tokens_per_gpu, hidden, topk, experts; dispatch_us, combine_us
///     Sailor          model, tp, micro_batch, op; fwd_us, bwd_us, of transformers of 2048 tokens
///     messages        size_MiB, bandwidth (GiB/s) between two GPUs of a machine
///     Sailor's runs   layers_per_stage, stage_replica_gpus; value in s
///
/// Throws InputError with file:line:column for a number that is none, and for a row without a time.
[[nodiscard]] std::vector<Claim> claims_of_format(const CsvTable& table, const CsvTable::Row& row,
                                                  const Claim& row_claim);

/// Whether a row has the columns of one of these.
[[nodiscard]] bool is_of_format(const Claim& row);

}  // namespace parsim::validation
