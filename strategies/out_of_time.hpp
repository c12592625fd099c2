// How a search that has a limit of time ends: with the best plan that it has.
#pragma once

#include <exception>
#include <string_view>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// What StrategyInput::poll throws from the end of the time on. `best` then answers with the best
/// plan that it knows, and says in a note which parts of its search lack; other strategies, and
/// `best` before it has any plan, have none.
class OutOfTime : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "out of time"; }
};

/// How that note begins; then come the parts.
constexpr std::string_view search_stopped =
    "stopped by the time limit; not searched, or not to the end: ";

[[nodiscard]] inline bool out_of_time(const StrategyInput& input) {
  try {
    if (input.poll) input.poll();
  } catch (const OutOfTime&) {
    return true;
  }
  return false;
}

}  // namespace parsim::strategies
