// One line on standard error while something takes longer than a second; only on a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace parsim {

class Progress {
 public:
  /// total   steps of equal weight
  /// quiet   print nothing at all
  Progress(std::size_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Says that the next step begins, with rate and time left once there is something to go by.
  void next(std::string_view name);

 private:
  std::size_t total_, done_ = 0;
  bool enabled_, printed_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace parsim
