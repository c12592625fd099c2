// What the program asks of libparsim_simgrid.so, a library of its own because loading SimGrid takes
// longer than everything else that starts the program. It is built into the program and loaded
// where a DAG is simulated with SimGrid; the functions are FlowEngine's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/routes.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::sim {

/// An engine of SimGrid, known to the library only.
struct SimgridFlows;

struct SimgridLibrary {
  using Handler = std::function<void(std::int64_t token)>;

  std::string (*version)();
  SimgridFlows* (*make)(const Cluster& cluster, std::span<const Route* const> routes,
                        Handler on_date, Handler on_end, std::span<const RateChange> changes,
                        const std::vector<std::string>& settings);
  void (*destroy)(SimgridFlows* flows);
  Seconds (*now)();
  void (*wake_at)(SimgridFlows& flows, Seconds date, std::int64_t token);
  void (*start)(SimgridFlows& flows, std::size_t route, Bytes payload, std::int64_t token);
  void (*run)(SimgridFlows& flows);
};

/// The library's one exported function, "parsim_simgrid_library".
using SimgridEntry = const SimgridLibrary* (*)();

/// What the machine has too little of for a library that is there, by the loader's reason; "" if
/// that says something else.
[[nodiscard]] std::string lack_of(std::string_view failure);

/// Loads the library with the first call. Throws InputError if that fails, with the loader's
/// reason; RefusedByMachine if the machine lacks what that takes.
[[nodiscard]] const SimgridLibrary& simgrid_library();

}  // namespace parsim::sim
