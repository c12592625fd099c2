// What a training row's columns `unit` and `metric` say of its value.
#pragma once

#include <string>

#include "core/csv.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// Usual spellings of a unit: of a time, in milliseconds, or of a rate. Other texts as they are.
struct UnitOfRow {
  std::string unit;      ///< ms, images/s or samples/s
  double factor = 1;     ///< of the value
  bool tokens = false;   ///< the value counts tokens
  bool per_gpu = false;  ///< the value is of one GPU
};
[[nodiscard]] UnitOfRow unit_of(const std::string& text);

/// By how much to multiply the row's value to have it in that unit, of all GPUs: "tokens/s" by 1 /
/// column `seq_len` or the length of the network's samples, "tokens/s/GPU" also by n_gpus. Throws
/// InputError for tokens of a network without, and for a rate of one GPU without n_gpus.
[[nodiscard]] double factor_of_unit(const Claim& claim, const UnitOfRow& unit);

/// Refuses a unit that contradicts the column "metric": of "step time (ms)" without a unit, 95
/// would be images/s; and metrics of less or more than a step of all GPUs.
void check_metric(const CsvTable& table, const CsvTable::Row& row);

}  // namespace parsim::validation
