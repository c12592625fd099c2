// Columns of a measured step that contradict each other, or that its prediction would not read.
#pragma once

#include <cstdint>

#include "core/cluster.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// Throws InputError for column `gpu` if it names a GPU that the row's cluster has none of. A text
/// that leaves the model open ("A100") agrees with each of its models; one of the user's own
/// agrees with all.
void check_gpu(const Claim& claim, const Cluster& cluster);

/// Throws InputError for a column that others use for what a column of parsim's says, "batch_size",
/// where that one is empty.
void check_column_names(const Claim& claim);

/// Throws InputError for a column that says something else of the plan than data parallelism over
/// `devices` without micro-batches, as which a row without `micro_batch` is predicted.
void check_data_parallelism(const Claim& claim, std::int64_t devices);

/// Throws InputError for a column `batch` other than the samples of a step on all devices, as which
/// the other columns have `all`.
void check_batch(const Claim& claim, std::int64_t all);

/// Samples of a step of such a row: of column batch_per_gpu on each device, without it of
/// global_batch. Throws InputError if both are empty, or disagree.
[[nodiscard]] std::int64_t data_parallel_batch(const Claim& claim, std::int64_t devices);

}  // namespace parsim::validation
