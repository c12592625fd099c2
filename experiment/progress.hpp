// One line on standard error while something takes longer than a second, on a terminal; elsewhere
// one every half minute. Also where a computation asks now and then whether it is still wanted.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace parsim::experiment {

class Progress {
 public:
  /// total   steps of equal weight
  /// quiet   print nothing at all
  /// poll    see Arguments::poll; called by next(), within() and poll(); may be empty
  Progress(std::size_t total, bool quiet, std::function<void()> poll = {});
  /// weights   how long the steps take, each compared with the others
  Progress(std::vector<double> weights, bool quiet, std::function<void()> poll = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Says that the next step begins, with rate and time left once there is something to go by.
  void next(std::string_view name);
  /// Says how much of the step that has begun is done, 0 to 1; not oftener than one can read.
  void within(double share);
  /// Says which steps have ended, of the total, and which are under way, where several are at once.
  void at_once(const std::vector<bool>& ended, std::string_view names);
  /// Called now and then by what takes long: asks whether that is still wanted and, where there is
  /// no terminal, says every half minute what is under way.
  void poll();
  /// Shows something that is known already above the line. It goes when the progress does, if the
  /// answer comes on the same terminal.
  void known(std::string_view line);
  /// Says at once what may make the user stop; nothing if it is empty or all is quiet.
  void warn(std::string_view warning) const;

  std::chrono::duration<double> pause{30.0};  ///< between lines where there is no terminal

 private:
  std::vector<double> weights_;
  std::size_t done_ = 0, lines_ = 0;
  bool quiet_, enabled_, printed_ = false;
  std::function<void()> poll_;
  std::string name_;  ///< of the step that has begun, or of those that are under way
  std::chrono::steady_clock::time_point start_, step_start_, last_;
  std::chrono::steady_clock::time_point last_line_;  ///< without a terminal
};

}  // namespace parsim::experiment
