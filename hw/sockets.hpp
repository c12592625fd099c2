// Bytes over TCP, for the processes of one launch.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "core/units.hpp"

namespace parsim::hw {

/// Closes itself.
struct Socket {
  int id = -1;
  explicit Socket(int socket = -1) : id(socket) {}
  ~Socket();
  Socket(Socket&& other) noexcept : id(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(id, other.id);
    return *this;
  }
  int release() { return std::exchange(id, -1); }
};

/// Sending and receiving give up after so long, or never; small messages do not wait for others.
void set_patience(const Socket& socket, Seconds timeout);
void set_patient(const Socket& socket);

/// False if the other side left or was silent for too long.
[[nodiscard]] bool send_all(const Socket& socket, const void* data, std::size_t count);
[[nodiscard]] bool receive_all(const Socket& socket, void* data, std::size_t count);

/// The other side has left; does not wait, and takes nothing from what has arrived.
[[nodiscard]] bool is_closed(const Socket& socket);

/// Listens at a port of all addresses, or at any free one if it is 0; fails with an id of -1.
[[nodiscard]] Socket listen_at(int port, int most_waiting);
[[nodiscard]] int port_of(const Socket& listening);
/// Accepts the next connection; -1 on a timeout, or if the peer has closed it again.
[[nodiscard]] Socket accept_within(const Socket& listening, Seconds time);
/// Connects to the first IPv4 address of a host, trying again until the time is over: the other
/// process may still be starting. Throws InputError if no host has that name.
[[nodiscard]] Socket connect_within(const std::string& host, int port, Seconds time);
/// This side's address of a connection, in dots.
[[nodiscard]] std::string own_address(const Socket& socket);

}  // namespace parsim::hw
