// Symmetry: equal ranks are simulated once. Operations, flows and links are put into classes whose
// members have equal times, and one member of each class is simulated: of a thousand devices that
// do the same at the same dates, one.
#pragma once

#include "core/timeline.hpp"
#include "sim/dag_run.hpp"

namespace parsim::sim {

/// Which flows the communications within kept units of a folded DAG get.
enum class FoldedFlows : std::uint8_t { of_kept, of_all };

/// Merges equal operations and flows in `prepared`, or returns false and leaves it unchanged where
/// merging is not exact or few are equal. Adds the bytes of all flows to `output` if it merges.
///
/// The classes are the coarsest that colour refinement finds with
///
///     operations of one class   take as long, on devices that slow down alike, are issued at the
///                               same date, wait for operations of the same classes, and start
///                               flows of the same classes
///     flows of one class        belong to operations of one class, carry as many bytes after as
///                               long a wait, over links of the same classes, those aside that
///                               cannot decide its rate, and the slowest of all is as fast
///     links of one class        have one rate (and slow down alike), and carry as many flows of
///                               each class
///
/// By induction over dates, then, all members of a class start and end together: max-min fair rates
/// are unique, so flows that share equal links with equal flows get equal rates (an equitable
/// partition; Grohe, Kersting, Mladenov and Selman 2014, "Dimension reduction via colour
/// refinement", show the same for linear programs). The flow that runs for its class crosses the
/// link that stands for its class as many times as flows of the class cross one such link.
///
/// A link cannot decide a flow's rate if its fair share, its rate over the most flows that it ever
/// carries at once, is at least the rate of the flow's slowest link: were it the flow's bottleneck,
/// the flow would have at least this share, hence the rate of its slowest link, which it fills
/// alone. So a gradient's flow through a GPU's port does not mind what else the port carries, and a
/// machine whose neighbour in a ring is behind another leaf switch does not make all others of the
/// ring differ one after another.
///
/// Of a folded DAG (ExecDag::fold) only the operations of kept units are there: the links of others
/// carry what those of the kept one of their class carry, and flows of sums over all units. It
/// merges only if the links of every unit then have the classes of the kept one's. Where refinement
/// leads to too many classes, each position in a unit starts as a class of its own. Of folded ranks
/// a transfer has the flows of all, which must become one class.
///
/// That is more than is needed: next to a unit of a slow device, whose messages come later, a link
/// carries other flows than the same link of other units, and so does the one next to that. If
/// communications get the flows of all units (FoldedFlows::of_all), nothing is asked of links. Each
/// operation then has the flows of those that it stands for, each over links of its own, and the
/// simulation sees whether they end together (OpFlows::together): by induction over dates the
/// operations of all units then start and end together.
///
/// At fidelity analytic links do not matter: communications are alike that take as long alone.
///
/// Colours are 64-bit hashes: n of them collide by chance once in 2^65 / n² DAGs.
///
/// Checked: tests/sim/merge_test.cpp, against the same DAGs with every operation simulated, and
/// tests/lowering/folded_test.cpp, against whole DAGs.
bool merge_equals(const ExecDag& dag, const Cluster& cluster, const SimOptions& options,
                  const SimulationOutput& output, PreparedDag& prepared,
                  FoldedFlows folded = FoldedFlows::of_kept);

/// Copies the times of simulated operations to those merged with them, and returns their number.
std::int64_t unmerge(const PreparedDag& prepared, std::span<Span> spans);

}  // namespace parsim::sim
