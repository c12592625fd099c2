#include "hw/meeting.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/errors.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

namespace {

using Clock = std::chrono::steady_clock;

/// What a process says first.
struct Hello {
  std::array<char, 8> magic{'p', 'a', 'r', 's', 'i', 'm', '0', '1'};
  std::int32_t size = 0, rank = 0;
};
/// And what rank 0 answers.
constexpr char welcome = 'w', wrong_size = 's', taken = 't';

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 30;

std::string reason() { return std::strerror(errno); }

/// Closes itself.
struct Socket {
  int id = -1;
  explicit Socket(int socket) : id(socket) {}
  ~Socket() {
    if (id >= 0) ::close(id);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int release() { return std::exchange(id, -1); }
};

/// Sending and receiving give up after so long.
void set_patience(int socket, Seconds patience) {
  const double least = std::max(patience.count(), 1e-3);
  timeval time{};
  time.tv_sec = static_cast<time_t>(least);
  time.tv_usec = static_cast<suseconds_t>(1e6 * (least - static_cast<double>(time.tv_sec)));
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/// False if the other side left or was silent for too long.
bool send_all(int socket, const void* data, std::size_t count) {
  const char* from = static_cast<const char*>(data);
  while (count > 0) {
    const ssize_t sent = ::send(socket, from, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}
bool receive_all(int socket, void* data, std::size_t count) {
  char* to = static_cast<char*>(data);
  while (count > 0) {
    const ssize_t got = ::recv(socket, to, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

/// The first IPv4 address of a host name.
sockaddr_in address_of(const Launch& launch) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(launch.address.c_str(), nullptr, &hints, &found) != 0 || found == nullptr) {
    throw InputError("MASTER_ADDR", fmt::format("'{}'", launch.address),
                     "accepted: the name or address of the machine of rank 0");
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  ::freeaddrinfo(found);
  address.sin_port = htons(static_cast<std::uint16_t>(launch.port));
  return address;
}

}  // namespace

Meeting::Meeting(const Launch& launch, Seconds patience)
    : launch_(launch), patience_(patience), sockets_(static_cast<std::size_t>(launch.size), -1) {
  try {
    if (launch_.size < 2) return;
    if (launch_.rank == 0) {
      wait_for_others();
    } else {
      come_to_first();
    }
  } catch (...) {
    for (const int socket : sockets_) {
      if (socket >= 0) ::close(socket);
    }
    throw;
  }
}

Meeting::~Meeting() {
  for (const int socket : sockets_) {
    if (socket >= 0) ::close(socket);
  }
}

void Meeting::wait_for_others() {
  const Socket listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(listening.id, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(launch_.port));
  if (::bind(listening.id, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listening.id, launch_.size) != 0) {
    throw HardwareError(fmt::format(
        "rank 0 cannot listen at port {}: {}; MASTER_PORT names another", launch_.port, reason()));
  }
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(patience_);
  for (int missing = launch_.size - 1; missing > 0;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waiting{listening.id, POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&waiting, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      std::vector<std::string> names;
      for (int rank = 1; rank < launch_.size && names.size() < 8; ++rank) {
        if (sockets_[static_cast<std::size_t>(rank)] < 0) names.push_back(std::to_string(rank));
      }
      throw HardwareError(fmt::format(
          "{} of {} processes have not come to port {} of rank 0 within {}, first of all: rank {}",
          missing, launch_.size, launch_.port, to_text(patience_), join(names)));
    }
    Socket socket(::accept4(listening.id, nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.id < 0) continue;
    set_patience(socket.id, patience_);
    Hello hello;
    const Hello expected;
    if (!receive_all(socket.id, &hello, sizeof hello) || hello.magic != expected.magic) {
      continue;  // somebody else's
    }
    if (hello.size != launch_.size || hello.rank < 1 || hello.rank >= launch_.size) {
      send_all(socket.id, &wrong_size, 1);
      throw InputError(launch_.by,
                       fmt::format("rank {} says that there are {} processes, rank 0 that there "
                                   "are {}",
                                   hello.rank, hello.size, launch_.size),
                       "accepted: one launch");
    }
    int& place = sockets_[static_cast<std::size_t>(hello.rank)];
    if (place >= 0) {
      send_all(socket.id, &taken, 1);
      throw InputError(launch_.by,
                       fmt::format("two processes say that they are rank {}", hello.rank),
                       "accepted: one launch");
    }
    place = socket.release();
    --missing;
  }
  for (const int socket : sockets_) {
    if (socket >= 0) send_all(socket, &welcome, 1);
  }
}

void Meeting::come_to_first() {
  const sockaddr_in address = address_of(launch_);
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(patience_);
  Hello hello;
  hello.size = launch_.size;
  hello.rank = launch_.rank;
  while (Clock::now() < deadline) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_patience(socket.id, Seconds{deadline - Clock::now()});  // connecting counts as sending
    if (::connect(socket.id, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // it may still be starting
      continue;
    }
    char answer = 0;
    if (!send_all(socket.id, &hello, sizeof hello) || !receive_all(socket.id, &answer, 1)) break;
    if (answer != welcome) {
      throw InputError(launch_.by,
                       fmt::format("rank 0 at {}:{} does not expect rank {} of {}", launch_.address,
                                   launch_.port, launch_.rank, launch_.size),
                       "accepted: one launch");
    }
    set_patience(socket.id, patience_);
    sockets_[0] = socket.release();
    return;
  }
  throw HardwareError(fmt::format("rank {} did not meet rank 0 at {}:{} within {}", launch_.rank,
                                  launch_.address, launch_.port, to_text(patience_)));
}

void Meeting::send(int rank, const std::string& bytes) {
  const int socket = sockets_[static_cast<std::size_t>(rank)];
  const std::uint64_t count = bytes.size();
  if (send_all(socket, &count, sizeof count) && send_all(socket, bytes.data(), bytes.size()))
    return;
  throw HardwareError(fmt::format("rank {} left before the end", rank));
}

std::string Meeting::receive(int rank) {
  const int socket = sockets_[static_cast<std::size_t>(rank)];
  std::uint64_t count = 0;
  std::string bytes;
  if (receive_all(socket, &count, sizeof count) && count <= most_bytes) {
    bytes.resize(count);
    if (receive_all(socket, bytes.data(), count)) return bytes;
  }
  throw HardwareError(
      fmt::format("rank {} left, or said nothing for {}", rank, to_text(patience_)));
}

std::string Meeting::from_first(const std::string& bytes) {
  if (launch_.rank != 0) return receive(0);
  for (int rank = 1; rank < launch_.size; ++rank) send(rank, bytes);
  return bytes;
}

std::vector<std::string> Meeting::to_first(const std::string& bytes) {
  if (launch_.rank != 0) {
    send(0, bytes);
    return {};
  }
  std::vector<std::string> all{bytes};
  for (int rank = 1; rank < launch_.size; ++rank) all.push_back(receive(rank));
  return all;
}

}  // namespace parsim::hw
