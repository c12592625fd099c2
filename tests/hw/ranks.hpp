// The processes of a launch as threads of a test: stands in for hw/mpi.cpp. For one file of a
// program only.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "hw/processes.hpp"

namespace parsim::hw {

struct Processes::Transport {
  struct Messages {
    std::mutex lock;
    std::condition_variable came;
    std::map<std::tuple<int, int, std::size_t>, std::deque<std::string>> by_way;  ///< from, to, tag
  };
  std::shared_ptr<Messages> messages;
};

Processes::Processes(int rank, int size, int local_rank, std::unique_ptr<Transport> transport)
    : rank_(rank), size_(size), local_rank_(local_rank), transport_(std::move(transport)) {}

Processes::~Processes() = default;

void Processes::send(int rank, std::size_t tag, const std::string& bytes) {
  Transport::Messages& all = *transport_->messages;
  const std::lock_guard guard(all.lock);
  all.by_way[{rank_, rank, tag}].push_back(bytes);
  all.came.notify_all();
}

std::string Processes::receive(int rank, std::size_t tag) {
  Transport::Messages& all = *transport_->messages;
  std::unique_lock guard(all.lock);
  std::deque<std::string>& way = all.by_way[{rank, rank_, tag}];
  if (!all.came.wait_for(guard, std::chrono::minutes(1), [&] { return !way.empty(); })) {
    throw LaunchError("nothing came");
  }
  std::string bytes = std::move(way.front());
  way.pop_front();
  return bytes;
}

void Processes::abort(int exit_code) { std::_Exit(exit_code); }

}  // namespace parsim::hw

namespace parsim::testing {

/// What every rank's body returned, or threw.
inline std::vector<std::string> ranks(int size,
                                      const std::function<std::string(hw::Processes&)>& body) {
  using Transport = hw::Processes::Transport;
  const auto messages = std::make_shared<Transport::Messages>();
  std::vector<std::string> said(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      std::string& mine = said[static_cast<std::size_t>(rank)];
      try {
        hw::Processes processes(rank, size, rank, std::make_unique<Transport>(Transport{messages}));
        mine = body(processes);
      } catch (const std::exception& error) {
        mine = std::string("threw ") + error.what();
      }
    });
  }
  for (std::thread& one : threads) one.join();
  return said;
}

}  // namespace parsim::testing
