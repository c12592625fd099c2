// The processes of one launch meet: rank 0 listens, the others come to it. What it has to tell
// (NCCL's unique id) goes to everybody, what they have measured comes back. Never hangs: whoever
// does not come is named after `patience`, and whoever leaves at once.
#pragma once

#include <string>
#include <vector>

#include "core/units.hpp"
#include "hw/launch.hpp"
#include "hw/sockets.hpp"

namespace parsim::hw {

class Meeting {
 public:
  /// Everybody has come. Throws HardwareError naming who has not within `patience`, and InputError
  /// if the processes were not started as equally many. Later words are waited for as long as
  /// `later`: one process may have to work before it has something to say.
  Meeting(const Launch& launch, Seconds patience, Seconds later);
  Meeting(const Launch& launch, Seconds patience) : Meeting(launch, patience, patience) {}

  /// What rank 0 says, at every process.
  [[nodiscard]] std::string from_first(const std::string& bytes);
  /// What every process says, by rank, at rank 0; nothing elsewhere.
  [[nodiscard]] std::vector<std::string> to_first(const std::string& bytes);
  /// What every process says, by rank, at every process.
  [[nodiscard]] std::vector<std::string> to_all(const std::string& bytes);
  [[nodiscard]] const Launch& launch() const { return launch_; }
  [[nodiscard]] Seconds patience() const { return later_; }
  /// Of those that this process talks to, without waiting.
  [[nodiscard]] bool somebody_left() const;
  /// By which the machine of this process is known to the others.
  [[nodiscard]] std::string address() const;

 private:
  void wait_for_others();
  void come_to_first();
  void send(int rank, const std::string& bytes);
  [[nodiscard]] std::string receive(int rank);

  Launch launch_;
  Seconds patience_, later_;
  std::vector<Socket> sockets_;  ///< by rank at rank 0, else only rank 0's
};

}  // namespace parsim::hw
