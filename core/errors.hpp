// What can go wrong, by whose fault: the user's (InputError, exit 2), the simulation's
// (SimulationError, exit 4), ours (BrokenInvariant, exit 1). Caught in main only.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace parsim {

/// The user can fix it. The message has the location, what was found and what is accepted.
struct InputError : std::runtime_error {
  /// where      `file:line:key` or `--flag`
  /// found      what stands there
  /// accepted   what would be right, with a "did you mean" if there is one; may be empty
  InputError(std::string_view where, std::string_view found, std::string_view accepted = {});

  std::string where, found, accepted;
};

/// The simulation could not finish; the message names the blocked operations.
struct SimulationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The machine refused what a simulation needs (memory, a process, a file in memory), or ended its
/// process: the same simulation may finish another time.
struct RefusedByMachine : SimulationError {
  using SimulationError::SimulationError;
};

/// An invariant of ours does not hold: a bug, never reachable from input.
struct BrokenInvariant : std::logic_error {
  using std::logic_error::logic_error;
};

/// Throws BrokenInvariant with `meaning` unless `holds`. Kept on in every build.
void ensure(bool holds, std::string_view meaning);

/// `"; did you mean 'resnet50'?"`, the end of what is accepted: the nearest of `known` by edit
/// distance, or "" if none is near.
[[nodiscard]] std::string did_you_mean(std::string_view found, std::span<const std::string> known);

/// `"a, b, c"`.
[[nodiscard]] std::string join(std::span<const std::string> parts,
                               std::string_view separator = ", ");

}  // namespace parsim
