// The machines of published measurements: by the alias table, else built from what the row says.
#pragma once

#include <string>
#include <string_view>

#include "core/cluster.hpp"
#include "validation/validation.hpp"

namespace parsim {

/// Our name of the network or GPU that the row names: what its column `network` says, an alias, or
/// a name of ours in their spelling. Throws InputError naming the row for an unknown one.
[[nodiscard]] std::string network_of(const Claim& claim);
[[nodiscard]] std::string device_of(const Claim& claim);

/// What --cluster would be given: what column `cluster` says, a name, or a generator call made from
/// gpu, nodes, gpus_per_node and interconnect.
[[nodiscard]] std::string cluster_call(const Claim& claim);
/// The cluster with the row's GPUs only: the first ones, or by machine as column `placement` says
/// ("1+1+4+3"). Of a named cluster with a layout file all, the layout chooses.
[[nodiscard]] Cluster cluster_of(const Claim& claim);
/// The cluster with links between machines at this part of their rate.
[[nodiscard]] Cluster with_links_between_machines(Cluster cluster, double part);

/// Where a column of a row stands, for errors: set:line:column.
[[nodiscard]] std::string place_in_row(const Claim& claim, std::string_view key);
/// A column, or "".
[[nodiscard]] std::string column(const Claim& claim, std::string_view name);
/// True if the column holds the word, in this spelling.
[[nodiscard]] bool column_says(const Claim& claim, std::string_view name, std::string_view word);
/// A column as a whole number of at least 1, or `otherwise` if it is empty. Throws InputError.
[[nodiscard]] std::int64_t count_column(const Claim& claim, std::string_view name,
                                        std::int64_t otherwise);

/// Bytes per second and direction of a machine's network ports together, from texts like "8x HDR
/// 200 Gb/s" or "InfiniBand FDR (56 Gb/s)", and how many ports; nothing known: one of 100 Gbit/s, a
/// guess.
struct NetworkPorts {
  std::int64_t count = 1;
  double gigabits = 100;  ///< of one port
  friend bool operator==(const NetworkPorts&, const NetworkPorts&) = default;
};
[[nodiscard]] NetworkPorts network_ports(std::string_view interconnect);

}  // namespace parsim
