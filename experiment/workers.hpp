// Forked processes that work on numbered tasks and hand texts back: one that crashes, is killed or
// takes too long costs its task, never the others.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/units.hpp"

namespace parsim::experiment {

/// How a task ended.
struct TaskEnd {
  std::size_t task = 0;
  std::string text;     ///< what `work` returned
  std::string failure;  ///< why there is no text: "killed by signal 9", "took longer than 5 s"
};

struct WorkLimits {
  std::size_t processes = 1;
  std::optional<Seconds> all;   ///< no task begins later than that
  std::optional<Seconds> task;  ///< a process that takes longer is killed
  /// At the limit of time of all, tasks that are under way are given up, as if they had not begun.
  bool stops = false;
  /// Called several times a second; throws to give up. May be empty.
  std::function<void()> poll{};
};

/// What a task has so far, for the case that the limit of time comes before its end: it then ended
/// with the last such text.
using SendEarly = std::function<void(const std::string&)>;

/// Works on tasks, in order, and returns how many ended; fewer than all only at the limit of time.
/// A process with several threads must not fork (core/processes.hpp): there, tasks run in it, one
/// after another and for as long as they take.
///
/// work    runs in a worker process; must not throw
/// ended   called here, once for each task, as they end
/// begun   called here with each task that begins; may be empty
///
/// Workers die with this process, even if it is killed (Linux: PR_SET_PDEATHSIG).
/// Throws InputError if no process can be started.
std::size_t run_in_workers(std::span<const std::size_t> tasks, const WorkLimits& limits,
                           const std::function<std::string(std::size_t, const SendEarly&)>& work,
                           const std::function<void(const TaskEnd&)>& ended,
                           const std::function<void(std::size_t)>& begun = {});
/// Of tasks that have nothing before their end.
std::size_t run_in_workers(std::span<const std::size_t> tasks, const WorkLimits& limits,
                           const std::function<std::string(std::size_t)>& work,
                           const std::function<void(const TaskEnd&)>& ended,
                           const std::function<void(std::size_t)>& begun = {});

/// What `work`, which must not throw, returns for 0 to count - 1, in this order; in up to so many
/// processes, the last ones first. Throws RefusedByMachine if one of them dies.
[[nodiscard]] std::vector<std::string> results_at_once(
    std::size_t processes, std::size_t count, const std::function<std::string(std::size_t)>& work);

}  // namespace parsim::experiment
