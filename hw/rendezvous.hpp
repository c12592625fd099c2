// Rendezvous of the processes of one launch: rank 0 listens, the others connect. Broadcasts (NCCL's
// unique id) and gathers (measurements) go through it. It never hangs: after the timeout the error
// names the ranks that are missing, and a disconnected rank is named at once.
#pragma once

#include <string>
#include <vector>

#include "core/units.hpp"
#include "hw/launch.hpp"
#include "hw/sockets.hpp"

namespace parsim::hw {

class Rendezvous {
 public:
  /// Returns when all ranks have connected. Throws HardwareError naming those that have not within
  /// `timeout`, and InputError if the processes were not started as equally many. Messages after
  /// that may take `later`: a process may have to work before it sends one.
  Rendezvous(const Launch& launch, Seconds timeout, Seconds later);
  Rendezvous(const Launch& launch, Seconds timeout) : Rendezvous(launch, timeout, timeout) {}

  /// Rank 0's bytes, at every rank.
  [[nodiscard]] std::string broadcast(const std::string& bytes);
  /// All ranks' bytes, by rank, at rank 0; nothing elsewhere.
  [[nodiscard]] std::vector<std::string> gather(const std::string& bytes);
  /// All ranks' bytes, by rank, at every rank.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes);
  [[nodiscard]] const Launch& launch() const { return launch_; }
  [[nodiscard]] Seconds timeout() const { return later_; }
  /// Of the peers that this process is connected to; does not wait.
  [[nodiscard]] bool peer_disconnected() const;
  /// By which the machine of this process is known to the others.
  [[nodiscard]] std::string address() const;

 private:
  void wait_for_others();
  void come_to_first();
  void send(int rank, const std::string& bytes);
  [[nodiscard]] std::string receive(int rank);

  Launch launch_;
  Seconds timeout_, later_;
  std::vector<Socket> sockets_;  ///< by rank at rank 0, else only rank 0's
};

}  // namespace parsim::hw
