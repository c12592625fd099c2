#include "hw/mailbox.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <new>

#include "core/errors.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

namespace {

/// What a process says first.
struct PeerHello {
  std::uint64_t launch = 0;
  std::int64_t rank = 0;
};
struct Head {
  std::uint64_t number = 0, bytes = 0;
};
constexpr std::uint64_t most_post_bytes = std::uint64_t{1} << 32;

}  // namespace

Mailbox::Mailbox(Rendezvous& rendezvous) : timeout_(rendezvous.timeout()) {
  const Launch& launch = rendezvous.launch();
  peers_.resize(static_cast<std::size_t>(launch.size));
  const Socket listening = listen_at(0, launch.size);
  if (listening.id < 0) throw HardwareError("no port to listen at");
  const std::vector<std::string> addresses =
      rendezvous.all_gather(fmt::format("{} {}", rendezvous.address(), port_of(listening)));
  PeerHello hello;
  hello.rank = launch.rank;
  // Who was not at the rendezvous does not know all of its ports.
  for (const std::string& one : addresses) {
    hello.launch = hello.launch * 31 + std::hash<std::string>{}(one);
  }
  const auto add_peer = [&](int rank, Socket socket) {
    auto& slot = peers_[static_cast<std::size_t>(rank)];
    slot = std::make_unique<Peer>();
    slot->socket = std::move(socket);
    set_patient(slot->socket);
  };
  // Everybody goes to those before and waits for those after.
  for (int rank = 0; rank < launch.rank; ++rank) {
    const std::string& text = addresses[static_cast<std::size_t>(rank)];
    const std::size_t space = text.find(' ');
    Socket socket =
        connect_within(text.substr(0, space), std::stoi(text.substr(space + 1)), timeout_);
    if (socket.id < 0 || !send_all(socket, &hello, sizeof hello)) {
      throw HardwareError(
          fmt::format("rank {} cannot reach rank {} at {}", launch.rank, rank, text));
    }
    add_peer(rank, std::move(socket));
  }
  for (int missing = launch.size - 1 - launch.rank; missing > 0;) {
    Socket socket = accept_within(listening, timeout_);
    if (socket.id < 0) {
      throw LaunchError(fmt::format("rank {} waited in vain for {} others", launch.rank, missing));
    }
    set_patience(socket, Seconds{10});
    PeerHello other;
    if (!receive_all(socket, &other, sizeof other) || other.launch != hello.launch ||
        other.rank <= launch.rank || other.rank >= launch.size ||
        peers_[static_cast<std::size_t>(other.rank)]) {
      continue;  // another job's
    }
    add_peer(static_cast<int>(other.rank), std::move(socket));
    --missing;
  }
  for (int rank = 0; rank < launch.size; ++rank) {
    auto& slot = peers_[static_cast<std::size_t>(rank)];
    if (slot) slot->reading = std::thread([this, rank] { read_from(rank); });
  }
}

Mailbox::~Mailbox() {
  for (const auto& peer : peers_) {
    if (peer) ::shutdown(peer->socket.id, SHUT_RDWR);
  }
  for (const auto& peer : peers_) {
    if (peer && peer->reading.joinable()) peer->reading.join();
  }
}

void Mailbox::read_from(int rank) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  for (;;) {
    Head head;
    std::string bytes;
    bool came = false;
    try {
      came = receive_all(peer.socket, &head, sizeof head) && head.bytes <= most_post_bytes;
      if (came) {
        bytes.resize(head.bytes);
        came = receive_all(peer.socket, bytes.data(), bytes.size());
      }
    } catch (const std::bad_alloc&) {
      came = false;  // too much is as good as nothing
    }
    {
      const std::lock_guard lock(lock_);
      if (came) {
        arrived_[{rank, head.number}].push_back(std::move(bytes));
      } else {
        peer.gone = true;
      }
    }
    came_.notify_all();
    if (!came) return;
  }
}

void Mailbox::send(int rank, std::uint64_t number, const std::string& bytes) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const Head head{number, bytes.size()};
  const std::lock_guard lock(peer.sending);
  if (send_all(peer.socket, &head, sizeof head) &&
      send_all(peer.socket, bytes.data(), bytes.size())) {
    return;
  }
  throw LaunchError(fmt::format("rank {} left before the end", rank));
}

std::string Mailbox::receive(int rank, std::uint64_t number) {
  const Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  std::unique_lock lock(lock_);
  const auto key = std::pair{rank, number};
  came_.wait_for(lock, timeout_, [&] { return arrived_.contains(key) || peer.gone; });
  const auto found = arrived_.find(key);
  if (found == arrived_.end()) {
    throw LaunchError(fmt::format("rank {} left, or said nothing for {}", rank, to_text(timeout_)));
  }
  std::string bytes = std::move(found->second.front());
  found->second.erase(found->second.begin());
  if (found->second.empty()) arrived_.erase(found);
  return bytes;
}

}  // namespace parsim::hw
