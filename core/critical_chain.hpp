// Why a step ended when it did: the operations that came one after another to its end.
#pragma once

#include <vector>

#include "core/exec_dag.hpp"
#include "core/timeline.hpp"

namespace parsim {

/// The chain of operations that made the step as long as it is, first to last: from the operation
/// that ends last back to the one before it that ended last among those it waited for (its
/// predecessors and the operations before it in its queues), and so on. Ties go to the lower id.
/// Together with the gaps between them the operations fill the makespan.
[[nodiscard]] std::vector<OpId> critical_chain(const ExecDag& dag, const Timeline& timeline,
                                               std::size_t devices);

}  // namespace parsim
