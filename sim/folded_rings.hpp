// Whether what a folded DAG lacks goes over ways like those of what it has.
#pragma once

#include "core/exec_dag.hpp"
#include "sim/collectives.hpp"

namespace parsim::sim {

/// False if some group of devices of a kept unit has rings that differ from those of the same
/// positions in another unit of its class, or that cross links which are not the unit's own
/// (messages between two devices are alike by what units are; rings may take other ways), or if the
/// ways of a transfer in two ranks have other links.
[[nodiscard]] bool ways_alike(const ExecDag& dag, PathCache& paths);

}  // namespace parsim::sim
