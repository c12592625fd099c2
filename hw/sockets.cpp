#include "hw/sockets.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/errors.hpp"

namespace parsim::hw {

namespace {

using Wall = std::chrono::steady_clock;

/// The first IPv4 address of a host name.
sockaddr_in address_of(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0 || found == nullptr) {
    throw InputError("MASTER_ADDR", fmt::format("'{}'", host),
                     "accepted: the name or address of the machine of rank 0");
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  ::freeaddrinfo(found);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

timeval time_of(Seconds seconds) {
  timeval time{};
  time.tv_sec = static_cast<time_t>(seconds.count());
  time.tv_usec =
      static_cast<suseconds_t>(1e6 * (seconds.count() - static_cast<double>(time.tv_sec)));
  return time;
}

void set_timeouts(const Socket& socket, const timeval& time) {
  const int yes = 1;
  ::setsockopt(socket.id, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket.id, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  ::setsockopt(socket.id, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

sockaddr_in own_end(const Socket& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(socket.id, reinterpret_cast<sockaddr*>(&address), &length);
  return address;
}

/// Trying a free port of this machine again and again may end at the other end of oneself.
bool is_own_other_end(const Socket& socket) {
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  ::getpeername(socket.id, reinterpret_cast<sockaddr*>(&peer), &length);
  const sockaddr_in own = own_end(socket);
  return own.sin_port == peer.sin_port && own.sin_addr.s_addr == peer.sin_addr.s_addr;
}

}  // namespace

Socket::~Socket() {
  if (id >= 0) ::close(id);
}

void set_patience(const Socket& socket, Seconds timeout) {
  set_timeouts(socket, time_of(std::max(timeout, Seconds{1e-3})));
}
void set_patient(const Socket& socket) { set_timeouts(socket, {}); }

bool send_all(const Socket& socket, const void* data, std::size_t count) {
  const char* from = static_cast<const char*>(data);
  while (count > 0) {
    const ssize_t sent = ::send(socket.id, from, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(const Socket& socket, void* data, std::size_t count) {
  char* to = static_cast<char*>(data);
  while (count > 0) {
    const ssize_t got = ::recv(socket.id, to, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

bool is_closed(const Socket& socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket.id, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

Socket listen_at(int port, int most_waiting) {
  Socket listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(listening.id, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(listening.id, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listening.id, most_waiting) != 0) {
    return Socket{};
  }
  return listening;
}

int port_of(const Socket& listening) { return ntohs(own_end(listening).sin_port); }

std::string own_address(const Socket& socket) {
  const sockaddr_in end = own_end(socket);
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &end.sin_addr, text.data(), text.size());
  return text.data();
}

Socket accept_within(const Socket& listening, Seconds time) {
  pollfd waiting{listening.id, POLLIN, 0};
  const int milliseconds = static_cast<int>(std::max(0.0, 1e3 * time.count()));
  if (::poll(&waiting, 1, milliseconds) <= 0) return Socket{};
  return Socket(::accept4(listening.id, nullptr, nullptr, SOCK_CLOEXEC));
}

Socket connect_within(const std::string& host, int port, Seconds time) {
  const sockaddr_in address = address_of(host, port);
  const Wall::time_point deadline = Wall::now() + std::chrono::duration_cast<Wall::duration>(time);
  while (Wall::now() < deadline) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_patience(socket, Seconds{deadline - Wall::now()});  // connecting counts as sending
    if (::connect(socket.id, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        !is_own_other_end(socket)) {
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return Socket{};
}

}  // namespace parsim::hw
