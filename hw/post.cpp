#include "hw/post.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "core/errors.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

namespace {

struct Head {
  std::uint64_t number = 0, bytes = 0;
};
constexpr std::uint64_t most_post_bytes = std::uint64_t{1} << 32;

}  // namespace

Post::Post(Meeting& meeting) : patience_(meeting.patience()) {
  const Launch& launch = meeting.launch();
  peers_.resize(static_cast<std::size_t>(launch.size));
  const Socket listening = listen_at(0, launch.size);
  const std::vector<std::string> addresses =
      meeting.to_all(fmt::format("{} {}", meeting.address(), port_of(listening)));
  const auto peer = [&](int rank, Socket socket) {
    auto& place = peers_[static_cast<std::size_t>(rank)];
    place = std::make_unique<Peer>();
    place->socket = std::move(socket);
    set_patient(place->socket);
  };
  // Everybody goes to those before and waits for those after.
  for (int rank = 0; rank < launch.rank; ++rank) {
    const std::string& text = addresses[static_cast<std::size_t>(rank)];
    const std::size_t space = text.find(' ');
    Socket socket =
        connect_within(text.substr(0, space), std::stoi(text.substr(space + 1)), patience_);
    if (socket.id < 0 || !send_all(socket, &launch.rank, sizeof launch.rank)) {
      throw HardwareError(
          fmt::format("rank {} cannot reach rank {} at {}", launch.rank, rank, text));
    }
    peer(rank, std::move(socket));
  }
  for (int missing = launch.size - 1 - launch.rank; missing > 0; --missing) {
    Socket socket = accept_within(listening, patience_);
    int rank = -1;
    if (socket.id < 0 || !receive_all(socket, &rank, sizeof rank) || rank <= launch.rank ||
        rank >= launch.size || peers_[static_cast<std::size_t>(rank)]) {
      throw HardwareError(
          fmt::format("rank {} waited in vain for {} others", launch.rank, missing));
    }
    peer(rank, std::move(socket));
  }
  for (int rank = 0; rank < launch.size; ++rank) {
    auto& place = peers_[static_cast<std::size_t>(rank)];
    if (place) place->reading = std::thread([this, rank] { read_from(rank); });
  }
}

Post::~Post() {
  for (const auto& peer : peers_) {
    if (peer) ::shutdown(peer->socket.id, SHUT_RDWR);
  }
  for (const auto& peer : peers_) {
    if (peer && peer->reading.joinable()) peer->reading.join();
  }
}

void Post::read_from(int rank) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  for (;;) {
    Head head;
    std::string bytes;
    bool came = receive_all(peer.socket, &head, sizeof head) && head.bytes <= most_post_bytes;
    if (came) {
      bytes.resize(head.bytes);
      came = receive_all(peer.socket, bytes.data(), bytes.size());
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

void Post::send(int rank, std::uint64_t number, const std::string& bytes) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const Head head{number, bytes.size()};
  const std::lock_guard lock(peer.sending);
  if (send_all(peer.socket, &head, sizeof head) &&
      send_all(peer.socket, bytes.data(), bytes.size())) {
    return;
  }
  throw HardwareError(fmt::format("rank {} left before the end", rank));
}

std::string Post::receive(int rank, std::uint64_t number) {
  const Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  std::unique_lock lock(lock_);
  const auto key = std::pair{rank, number};
  came_.wait_for(lock, patience_, [&] { return arrived_.contains(key) || peer.gone; });
  const auto found = arrived_.find(key);
  if (found == arrived_.end()) {
    throw HardwareError(
        fmt::format("rank {} left, or said nothing for {}", rank, to_text(patience_)));
  }
  std::string bytes = std::move(found->second.front());
  found->second.erase(found->second.begin());
  if (found->second.empty()) arrived_.erase(found);
  return bytes;
}

}  // namespace parsim::hw
