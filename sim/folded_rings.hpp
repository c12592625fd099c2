// Whether collectives within the units of a folded DAG run over equal rings.
#pragma once

#include "core/exec_dag.hpp"
#include "sim/collectives.hpp"

namespace parsim::sim {

/// False if some group of devices of the first unit has rings that differ from those of the same
/// positions in another unit, or that cross links which are not the unit's own. Messages between
/// two devices are alike by what units are; rings may take other ways.
[[nodiscard]] bool rings_alike(const ExecDag& dag, PathCache& paths);

}  // namespace parsim::sim
