// How host engines in several processes meet: in every operation of several devices each gives the
// others what they want of it, and goes on when all have come.
#pragma once

#include <functional>
#include <string>

#include "core/exec_dag.hpp"
#include "hw/mailbox.hpp"

namespace parsim::hw {

class Exchange {
 public:
  /// Device d is the process of rank d.
  Exchange(const ExecDag& dag, DeviceId mine, Mailbox& mailbox)
      : dag_(dag), mine_(mine), mailbox_(mailbox) {}

  /// All processes begin as many steps, each before its threads do.
  void begin_step() { series_ = mailbox_.next_series(); }
  void meet(OpId op, const std::function<std::string(DeviceId to)>& give,
            const std::function<void(DeviceId from, const std::string&)>& take) const;
  /// Nothing is given but the news of having come.
  void meet(OpId op) const;

 private:
  const ExecDag& dag_;
  DeviceId mine_;
  Mailbox& mailbox_;
  std::uint64_t series_ = 0;
};

/// Devices whose queues an operation occupies, each once.
[[nodiscard]] std::vector<DeviceId> devices_of(const ExecDag& dag, OpId op);

}  // namespace parsim::hw
