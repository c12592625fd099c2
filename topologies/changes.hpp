// Changes of a loaded cluster's numbers, by the names of what they are of.
#pragma once

#include <string>
#include <string_view>

#include "core/cluster.hpp"

namespace parsim::topologies {

/// Gives all devices whose name matches the pattern ("n0.*") this memory, "8GiB". Throws InputError
/// with `where` if there is none, and for what is no positive size.
void set_device_memory(Cluster& cluster, std::string_view pattern, const std::string& text,
                       const std::string& where);

/// Gives all devices whose name matches the pattern another "price", "power", "idle_power" or
/// "mtbf", as a cluster file writes it. Throws InputError with `where` if there is none, for what
/// cannot be read, for an idle power above the power, and for a price where that of the machine
/// stands for its devices.
void set_device_upkeep(Cluster& cluster, std::string_view pattern, std::string_view key,
                       const std::string& text, const std::string& where);
/// The same of machines, "price", "power" or "mtbf".
void set_node_upkeep(Cluster& cluster, std::string_view pattern, std::string_view key,
                     const std::string& text, const std::string& where);

/// Lowers the clock of a card to what it keeps under a limit of its power: what it draws beyond its
/// idle power goes with the cube of the clock, since voltage falls with it (Mudge 2001, "Power: A
/// First-Class Architectural Design Constraint"). Peaks follow the clock, the memory's rate and
/// what it draws without kernels do not. That long products reach the limit is a guess, which holds
/// for tensor cores (16-bit products of H200 and B200 run 16 to 20 % longer under sustained load).
///
/// limit   above the idle power, at most the power that the card draws; else InputError with
/// `where`
void limit_power(DeviceModel& model, Watts limit, const std::string& where);

}  // namespace parsim::topologies
