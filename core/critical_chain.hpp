// Why a step ended when it did: the operations that came one after another to its end.
#pragma once

#include <vector>

#include "core/exec_dag.hpp"
#include "core/timeline.hpp"

namespace parsim {

/// By operation: the one that it waited for longest, of its predecessors and the operations before
/// it in its queues; invalid if there are none. Ties go to the lower id.
[[nodiscard]] std::vector<OpId> awaited(const ExecDag& dag, const Timeline& timeline,
                                        std::size_t devices);

/// The chain of operations that made the step as long as it is, first to last: from the operation
/// that ends last back to the one that it waited for longest, and so on. Together with the gaps
/// between them the operations fill the makespan.
[[nodiscard]] std::vector<OpId> critical_chain(const ExecDag& dag, const Timeline& timeline,
                                               std::size_t devices);

}  // namespace parsim
