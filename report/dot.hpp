// Networks, clusters and execution DAGs as graphs for Graphviz. Graphs of more than a thousand
// nodes are drawn collapsed: larger ones are unreadable, and dot does not lay them out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"
#include "core/network.hpp"

namespace parsim::report {

/// Boxes above which a graph is drawn collapsed.
inline constexpr std::size_t most_dot_nodes = 1000;

/// Text as a quoted string of the DOT language that shows as it is: on one line, at most 80
/// characters, invalid UTF-8 as '?'. Source: "The DOT Language", graphviz.org.
[[nodiscard]] std::string dot_string(std::string_view text);

/// Layers and what flows between them; collapsed by the first word of their names ("layer1" of
/// "layer1.0.conv1").
[[nodiscard]] std::string dot_of(const Network& network);
/// Devices and switches in their machines, links with their rates, parallel cables as one line;
/// collapsed to one box per machine.
[[nodiscard]] std::string dot_of(const Cluster& cluster);
/// Operations, each after those it waits for; collapsed by what they do on which device.
[[nodiscard]] std::string dot_of(const ExecDag& dag, const Cluster& cluster);

}  // namespace parsim::report
