// The processes of one launch meet: rank 0 listens, the others come to it. What it has to tell
// (NCCL's unique id) goes to everybody, what they have measured comes back. Never hangs: whoever
// does not come or leaves is named after `patience`.
#pragma once

#include <string>
#include <vector>

#include "core/units.hpp"
#include "hw/launch.hpp"

namespace parsim::hw {

class Meeting {
 public:
  /// Everybody has come. Throws HardwareError naming who has not, and InputError if the processes
  /// were not started as equally many.
  Meeting(const Launch& launch, Seconds patience);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// What rank 0 says, at every process.
  [[nodiscard]] std::string from_first(const std::string& bytes);
  /// What every process says, by rank, at rank 0; nothing elsewhere.
  [[nodiscard]] std::vector<std::string> to_first(const std::string& bytes);

 private:
  void wait_for_others();
  void come_to_first();
  void send(int rank, const std::string& bytes);
  [[nodiscard]] std::string receive(int rank);

  Launch launch_;
  Seconds patience_;
  std::vector<int> sockets_;  ///< by rank at rank 0, else only rank 0's; -1: none
};

}  // namespace parsim::hw
