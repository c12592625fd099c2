#include "experiment/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "core/units.hpp"

namespace parsim::experiment {

namespace {
constexpr std::string_view erase_line = "\r\x1b[K";
}  // namespace

Progress::Progress(std::size_t total, bool quiet)
    : total_(total),
      enabled_(!quiet && ::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      step_start_(start_),
      last_(start_) {}

Progress::~Progress() {
  if (!printed_) return;
  std::fwrite(erase_line.data(), 1, erase_line.size(), stderr);
  std::fflush(stderr);
}

void Progress::next(std::string_view name) {
  step_start_ = last_ = std::chrono::steady_clock::now();
  name_ = name;
  const Seconds elapsed = step_start_ - start_;
  const std::size_t done = done_++;
  if (!enabled_) return;
  fmt::print(stderr, "{}{} of {} done, {}", erase_line, done, total_, name);
  if (elapsed >= Seconds{1.0} && done > 0) {  // less says nothing of the pace
    const Seconds each = elapsed / static_cast<double>(done);
    fmt::print(stderr, " ({} each, {} left)", to_text(each),
               to_text(each * static_cast<double>(total_ - done)));
  }
  // Flushed before the simulation forks, or the child would print it again.
  std::fflush(stderr);
  printed_ = true;
}

void Progress::within(double share) {
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (share <= 0) {  // the search begins: what came before it says nothing of its pace
    step_start_ = now;
    return;
  }
  if (now - start_ < Seconds{1.0} || now - last_ < Seconds{0.2}) return;
  last_ = now;
  const Seconds left = (now - step_start_) * ((1 - share) / share);
  fmt::print(stderr, "{}{} of {} done, {}: {:.0f} % of its search, {} left", erase_line,
             done_ - (done_ > 0 ? 1 : 0), total_, name_, 100 * share, to_text(left));
  std::fflush(stderr);
  printed_ = true;
}

}  // namespace parsim::experiment
