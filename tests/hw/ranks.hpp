// Processes of a launch, as threads of one test.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hw/rendezvous.hpp"

namespace parsim::testing {

/// A free TCP port.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

inline hw::Launch launch_of(int rank, int size, int port) {
  return {"torchrun", rank, size, rank, "127.0.0.1", port};
}

/// What every rank's body returned, or threw.
inline std::vector<std::string> ranks(int size,
                                      const std::function<std::string(hw::Rendezvous&)>& body) {
  const int port = free_port();
  std::vector<std::string> said(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        std::string& mine = said[static_cast<std::size_t>(rank)];
        try {
          hw::Rendezvous rendezvous(launch_of(rank, size, port), Seconds{60});
          mine = body(rendezvous);
        } catch (const std::exception& error) {
          mine = std::string("threw ") + error.what();
        }
      });
    }
  }
  return said;
}

}  // namespace parsim::testing
