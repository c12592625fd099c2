// What a process that simulates and parsim-simgrid, the program that has SimGrid for it, write to
// each other through two pipes: first the network, then commands until "run", then an event and the
// commands that answer it, again and again. Both are built together: the bytes are the structs'.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cluster.hpp"
#include "core/units.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::sim {

/// The program's first message: how many of what follows it, in this order.
struct NetworkSizes {
  std::uint64_t links = 0;     ///< rates in both directions, BytesPerSecond
  std::uint64_t routes = 0;    ///< how many hops each has, std::uint64_t
  std::uint64_t hops = 0;      ///< of all routes, Hop
  std::uint64_t changes = 0;   ///< of the links' rates, RateChange
  std::uint64_t settings = 0;  ///< characters: settings, each with a line's end
};

/// A call of FlowEngine's; `run` ends the answer to an event, too.
struct SimgridCommand {
  enum class Kind : std::int64_t { wake_at, start, run };
  Kind kind = Kind::run;
  std::int64_t token = 0;
  Seconds date{};           ///< of wake_at
  std::uint64_t route = 0;  ///< of start
  Bytes payload;            ///< of start
};

struct SimgridEvent {
  enum class Kind : std::int64_t { date, end, over, out_of_memory };
  Kind kind = Kind::over;
  std::int64_t token = 0;
  Seconds now{};
};

static_assert(std::is_trivially_copyable_v<Hop> && std::is_trivially_copyable_v<RateChange> &&
              std::is_trivially_copyable_v<SimgridCommand>);

}  // namespace parsim::sim
