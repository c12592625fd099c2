#include "experiment/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "core/files.hpp"
#include "core/units.hpp"

namespace parsim::experiment {

namespace {
constexpr std::string_view erase_line = "\r\x1b[K";
constexpr std::size_t line_width = 79;  // a line that wraps would count as two

/// Flushed, or a simulation's child would print it again. A terminal that went away is no failure.
void show(std::string_view text) { static_cast<void>(write_text(stderr, text)); }
}  // namespace

Progress::Progress(std::size_t total, bool quiet, std::function<void()> poll)
    : Progress(std::vector<double>(total, 1.0), quiet, std::move(poll)) {}

Progress::Progress(std::vector<double> weights, bool quiet, std::function<void()> poll)
    : weights_(std::move(weights)),
      quiet_(quiet),
      enabled_(!quiet && ::isatty(STDERR_FILENO) == 1),
      poll_(std::move(poll)),
      start_(std::chrono::steady_clock::now()),
      step_start_(start_),
      last_(start_),
      last_line_(start_) {}

Progress::~Progress() {
  if (!printed_) return;
  show(erase_line);
  if (lines_ == 0 || ::isatty(STDOUT_FILENO) != 1) return;
  for (std::size_t line = 0; line < lines_; ++line) show("\x1b[A");
  show("\x1b[J");
}

void Progress::warn(std::string_view warning) const {
  if (quiet_ || warning.empty()) return;
  show(fmt::format("{}parsim: warning: {}\n", printed_ ? erase_line : "", warning));
}

void Progress::next(std::string_view name) {
  poll();
  step_start_ = last_ = std::chrono::steady_clock::now();
  name_ = name;
  const Seconds elapsed = step_start_ - start_;
  const std::size_t done = done_++;
  if (!enabled_) return;
  std::string text = fmt::format("{}{} of {} done, {}", erase_line, done, weights_.size(), name);
  const auto now = weights_.begin() + static_cast<std::ptrdiff_t>(std::min(done, weights_.size()));
  const double before = std::accumulate(weights_.begin(), now, 0.0);
  const double after = std::accumulate(now, weights_.end(), 0.0);
  if (elapsed >= Seconds{1.0} && before > 0) {  // less is too short to tell the pace
    text += fmt::format(" (about {} left)", to_text(elapsed * (after / before)));
  }
  show(text);
  printed_ = true;
}

void Progress::poll() {
  if (poll_) poll_();
  if (quiet_ || enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_line_ < pause) return;
  last_line_ = now;
  const Seconds elapsed = std::chrono::duration_cast<std::chrono::seconds>(now - start_);
  show(fmt::format("parsim: {} so far{}{}\n", to_text(elapsed), name_.empty() ? "" : ", now ",
                   name_));
}

void Progress::at_once(const std::vector<bool>& ended, std::string_view names) {
  name_ = names;
  if (!enabled_) return;
  double before = 0, after = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) (ended[i] ? before : after) += weights_[i];
  const Seconds elapsed = std::chrono::steady_clock::now() - start_;
  std::string text =
      fmt::format("{} of {} done", std::count(ended.begin(), ended.end(), true), weights_.size());
  if (elapsed >= Seconds{1.0} && before > 0) {
    text += fmt::format(", about {} left", to_text(elapsed * (after / before)));
  }
  show(fmt::format("{}{}", erase_line, fmt::format("{}: {}", text, names).substr(0, line_width)));
  printed_ = true;
}

void Progress::known(std::string_view line) {
  if (!enabled_) return;
  show(fmt::format("{}{}\n", erase_line, line.substr(0, line_width)));
  ++lines_;
  printed_ = true;
}

void Progress::within(double share) {
  poll();
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (share <= 0) {  // the search begins: its pace is not known yet
    step_start_ = now;
    return;
  }
  if (now - start_ < Seconds{1.0} || now - last_ < Seconds{0.2}) return;
  last_ = now;
  const Seconds left = (now - step_start_) * ((1 - share) / share);
  show(fmt::format("{}{} of {} done, {}: {:.0f} % of its search, {} left", erase_line,
                   done_ - (done_ > 0 ? 1 : 0), weights_.size(), name_, 100 * share,
                   to_text(left)));
  printed_ = true;
}

}  // namespace parsim::experiment
