// Times of memory-bound operators of PyTorch, eager and channels last, as timed on two cards of one
// generation (operator_rates.csv, from validation/records by fit_operators.py).
#pragma once

#include "sim/kernels.hpp"

namespace parsim::sim {

/// Many of these kernels are not bound by memory: in 16 bits they take as long as in 32.
struct OperatorRate {
  double overhead = 0;      ///< seconds
  double memory_share = 1;  ///< of the memory rate
  double step = 0;          ///< seconds of one multiprocessor for a step (Kernel::steps)
};

/// Null for Operator::other, and where the operator was not timed in this direction.
[[nodiscard]] const OperatorRate* operator_rate(Operator op, bool backwards);

/// overhead · launches + max(bytes / (memory_share · memory), steps · step / multiprocessors)
///
/// memory   bytes/s of the device's data sheet
[[nodiscard]] Seconds operator_time(const OperatorRate& rate, const Kernel& kernel,
                                    std::int64_t element_bytes, double memory,
                                    std::int64_t multiprocessors);

}  // namespace parsim::sim
