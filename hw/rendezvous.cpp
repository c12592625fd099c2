#include "hw/rendezvous.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/errors.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

namespace {

using Wall = std::chrono::steady_clock;

/// What a process says first.
struct Hello {
  std::array<char, 8> magic{'p', 'a', 'r', 's', 'i', 'm', '0', '1'};
  std::int32_t size = 0, rank = 0;
};
/// And what rank 0 answers.
constexpr char welcome = 'w', wrong_size = 's', taken = 't';

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 30;

}  // namespace

Rendezvous::Rendezvous(const Launch& launch, Seconds timeout, Seconds later)
    : launch_(launch),
      timeout_(timeout),
      later_(later),
      sockets_(static_cast<std::size_t>(launch.size)) {
  if (launch_.size < 2) return;
  if (launch_.rank == 0) {
    wait_for_others();
  } else {
    come_to_first();
  }
}

void Rendezvous::wait_for_others() {
  const Socket listening = listen_at(launch_.port, launch_.size);
  if (listening.id < 0) {
    throw HardwareError(
        fmt::format("rank 0 cannot listen at port {}: {}; MASTER_PORT names another", launch_.port,
                    std::strerror(errno)));
  }
  const Wall::time_point deadline =
      Wall::now() + std::chrono::duration_cast<Wall::duration>(timeout_);
  for (int missing = launch_.size - 1; missing > 0;) {
    if (Wall::now() >= deadline) {
      std::vector<std::string> names;
      for (int rank = 1; rank < launch_.size && names.size() < 8; ++rank) {
        if (sockets_[static_cast<std::size_t>(rank)].id < 0) names.push_back(std::to_string(rank));
      }
      throw HardwareError(fmt::format(
          "{} of {} processes have not come to port {} of rank 0 within {}, first of all: rank {}",
          missing, launch_.size, launch_.port, to_text(timeout_), join(names)));
    }
    Socket socket = accept_within(listening, deadline - Wall::now());
    if (socket.id < 0) continue;
    set_patience(socket, timeout_);
    Hello hello;
    const Hello expected;
    if (!receive_all(socket, &hello, sizeof hello) || hello.magic != expected.magic) {
      continue;  // another job's
    }
    if (hello.size != launch_.size || hello.rank < 1 || hello.rank >= launch_.size) {
      static_cast<void>(send_all(socket, &wrong_size, 1));
      throw InputError(launch_.by,
                       fmt::format("rank {} says that there are {} processes, rank 0 that there "
                                   "are {}",
                                   hello.rank, hello.size, launch_.size),
                       "accepted: one launch");
    }
    Socket& slot = sockets_[static_cast<std::size_t>(hello.rank)];
    if (slot.id >= 0) {
      static_cast<void>(send_all(socket, &taken, 1));
      throw InputError(launch_.by,
                       fmt::format("two processes say that they are rank {}", hello.rank),
                       "accepted: one launch");
    }
    slot = std::move(socket);
    --missing;
  }
  for (int rank = 1; rank < launch_.size; ++rank) {  // who has left is noticed with the first word
    const Socket& socket = sockets_[static_cast<std::size_t>(rank)];
    static_cast<void>(send_all(socket, &welcome, 1));
    set_patience(socket, later_);
  }
}

void Rendezvous::come_to_first() {
  Hello hello;
  hello.size = launch_.size;
  hello.rank = launch_.rank;
  Socket socket = connect_within(launch_.address, launch_.port, timeout_);
  char answer = 0;
  if (socket.id < 0 || !send_all(socket, &hello, sizeof hello) ||
      !receive_all(socket, &answer, 1)) {
    throw HardwareError(
        fmt::format("rank {} did not meet rank 0 at {}:{} within {}; MASTER_ADDR and MASTER_PORT "
                    "name the place",
                    launch_.rank, launch_.address, launch_.port, to_text(timeout_)));
  }
  if (answer != welcome) {
    throw InputError(launch_.by,
                     fmt::format("rank 0 at {}:{} does not expect rank {} of {}", launch_.address,
                                 launch_.port, launch_.rank, launch_.size),
                     "accepted: one launch");
  }
  set_patience(socket, later_);
  sockets_[0] = std::move(socket);
}

void Rendezvous::send(int rank, const std::string& bytes) {
  const Socket& socket = sockets_[static_cast<std::size_t>(rank)];
  const std::uint64_t count = bytes.size();
  if (send_all(socket, &count, sizeof count) && send_all(socket, bytes.data(), bytes.size()))
    return;
  throw LaunchError(fmt::format("rank {} left before the end", rank));
}

std::string Rendezvous::receive(int rank) {
  const Socket& socket = sockets_[static_cast<std::size_t>(rank)];
  std::uint64_t count = 0;
  std::string bytes;
  if (receive_all(socket, &count, sizeof count) && count <= most_bytes) {
    bytes.resize(count);
    if (receive_all(socket, bytes.data(), count)) return bytes;
  }
  throw LaunchError(fmt::format("rank {} left, or said nothing for {}", rank, to_text(later_)));
}

std::string Rendezvous::broadcast(const std::string& bytes) {
  if (launch_.rank != 0) return receive(0);
  for (int rank = 1; rank < launch_.size; ++rank) send(rank, bytes);
  return bytes;
}

std::vector<std::string> Rendezvous::gather(const std::string& bytes) {
  if (launch_.rank != 0) {
    send(0, bytes);
    return {};
  }
  std::vector<std::string> all{bytes};
  for (int rank = 1; rank < launch_.size; ++rank) all.push_back(receive(rank));
  return all;
}

std::vector<std::string> Rendezvous::all_gather(const std::string& bytes) {
  std::vector<std::string> all = gather(bytes);
  all.resize(static_cast<std::size_t>(launch_.size));
  for (std::string& one : all) one = broadcast(one);
  return all;
}

bool Rendezvous::peer_disconnected() const {
  return std::any_of(sockets_.begin(), sockets_.end(),
                     [](const Socket& socket) { return socket.id >= 0 && is_closed(socket); });
}

std::string Rendezvous::address() const {
  return launch_.rank == 0 ? launch_.address : own_address(sockets_[0]);
}

}  // namespace parsim::hw
