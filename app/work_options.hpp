// How much at once and how long: options of verbs that work in processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/units.hpp"
#include "experiment/options.hpp"

namespace parsim::app {

/// --jobs, if it is given.
[[nodiscard]] std::optional<std::size_t> jobs_argument(const experiment::Arguments& arguments);
/// A positive time, "50min" and "2h" among them. Throws InputError for another text.
[[nodiscard]] std::optional<Seconds> time_argument(const experiment::Arguments& arguments,
                                                   std::string_view flag);

/// Throws InputError if this process has several threads. `flag` asks for worker processes.
void check_may_fork(std::string_view flag);

}  // namespace parsim::app
