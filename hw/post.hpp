// Messages between any two processes of a launch, each with the number of what it is about. They
// are taken in at once, so that nobody waits to be rid of one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hw/meeting.hpp"

namespace parsim::hw {

class Post {
 public:
  /// Everybody connects to everybody. Throws HardwareError naming who cannot be reached.
  explicit Post(Meeting& meeting);
  ~Post();
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;

  /// From any thread. Messages of one number arrive in order.
  void send(int rank, std::uint64_t number, const std::string& bytes);
  /// Waits for it. Throws HardwareError if that process left, or kept silent beyond the patience.
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

  Seconds patience_;
  std::uint64_t series_ = 0;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< by rank, null for this one
  std::mutex lock_;                           ///< of what has arrived, and of Peer::gone
  std::condition_variable came_;
  std::map<std::pair<int, std::uint64_t>, std::vector<std::string>> arrived_;
};

}  // namespace parsim::hw
