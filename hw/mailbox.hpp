// Tagged point-to-point messages between the processes of a launch. A reader thread per peer
// buffers them, so that send() never blocks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hw/rendezvous.hpp"

namespace parsim::hw {

class Mailbox {
 public:
  /// Connects all pairs of ranks. Throws HardwareError naming the ranks that cannot be reached.
  explicit Mailbox(Rendezvous& rendezvous);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// From any thread. Messages of one number arrive in order.
  void send(int rank, std::uint64_t number, const std::string& bytes);
  /// Waits for it. Throws HardwareError if that process left, or kept silent beyond the timeout.
  [[nodiscard]] std::string receive(int rank, std::uint64_t number);
  /// Tells one series of numbers from the next; the same for all who ask equally often.
  [[nodiscard]] std::uint64_t next_series() { return ++series_; }

 private:
  struct Peer {
    Socket socket;
    std::mutex sending;
    std::thread reading;
    bool gone = false;  ///< nothing more will come
  };
  void read_from(int rank);

  Seconds timeout_;
  std::uint64_t series_ = 0;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< by rank, null for this one
  std::mutex lock_;                           ///< of what has arrived, and of Peer::gone
  std::condition_variable came_;
  std::map<std::pair<int, std::uint64_t>, std::vector<std::string>> arrived_;
};

}  // namespace parsim::hw
