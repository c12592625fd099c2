#include "app/work_options.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "core/processes.hpp"
#include "core/text.hpp"

namespace parsim::app {

std::optional<std::size_t> jobs_argument(const experiment::Arguments& arguments) {
  constexpr std::int64_t most_jobs = 1024;
  const std::optional<std::int64_t> jobs = arguments.number("--jobs", 1, most_jobs);
  return jobs ? std::optional(static_cast<std::size_t>(*jobs)) : std::nullopt;
}

std::optional<Seconds> time_argument(const experiment::Arguments& arguments,
                                     std::string_view flag) {
  const std::optional<std::string> text = arguments.text(flag);
  // Long work takes hours: "50min" and "2h" besides the units of other times.
  if (!text) return std::nullopt;
  constexpr std::pair<std::string_view, double> units[] = {{"min", 60}, {"h", 3600}};
  for (const auto& [unit, seconds] : units) {
    if (!text->ends_with(unit)) continue;
    constexpr double least = 1e-9, most = 1e6;
    const std::string_view number = std::string_view(*text).substr(0, text->size() - unit.size());
    return Seconds{seconds * parse_real(number, flag, least, most)};
  }
  const Seconds time = parse_seconds(*text, std::string(flag));
  if (time <= Seconds{0}) {
    throw InputError(flag, fmt::format("'{}'", *text), "accepted: a positive time, as in 10s");
  }
  return time;
}

void check_may_fork(std::string_view flag) {
  if (has_one_thread()) return;
  throw InputError(flag, "worker processes cannot be forked from a process with several threads",
                   "accepted: one job without limits of time, or another process");
}

}  // namespace parsim::app
