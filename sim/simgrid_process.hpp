// SimGrid in a process of its own, for processes with threads: these must not fork without exec, so
// that a program that has SimGrid is started instead (sim/simgrid/program.cpp).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/routes.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::sim {

/// FlowEngine's functions for one simulation; handlers are called here. The process does what
/// SimGrid does in a fork, in the same order, so that all dates are the same to the bit. Loading
/// SimGrid takes it some 20 ms, and every date and end of a flow a way there and back.
///
/// It ends with this object, and with the thread that made it, even if that is killed. All
/// functions throw RefusedByMachine if memory or a process is lacking, or if the process has ended.
class SimgridProcess {
 public:
  using Handler = std::function<void(std::int64_t token)>;

  SimgridProcess(const Cluster& cluster, std::span<const Route* const> routes, Handler on_date,
                 Handler on_end, std::span<const RateChange> changes,
                 const std::vector<std::string>& settings);
  ~SimgridProcess();
  SimgridProcess(const SimgridProcess&) = delete;
  SimgridProcess& operator=(const SimgridProcess&) = delete;

  [[nodiscard]] pid_t process() const;
  [[nodiscard]] Seconds now() const;
  void wake_at(Seconds date, std::int64_t token);
  void start(std::size_t route, Bytes payload, std::int64_t token);
  void run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace parsim::sim
