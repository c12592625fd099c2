// parsim-simgrid: SimGrid for a process with threads, which must not fork. It is built into the
// program and started for one simulation (sim/simgrid_process.cpp), of which it has the flows only.
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "core/processes.hpp"
#include "sim/simgrid/messages.hpp"
#include "sim/simgrid_library.hpp"

namespace parsim::sim {

extern "C" const SimgridLibrary* parsim_simgrid_library();

namespace {

/// The other process ended, or will read why this one does.
[[noreturn]] void end() { _exit(1); }

template <class T>
std::vector<T> read_list(int from, std::size_t count) {
  std::vector<T> list(count);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(list));
  if (read_all(from, bytes) != bytes.size()) end();
  return list;
}

class Program {
 public:
  Program(int commands, int events) : commands_(commands), events_(events) {}

  void run() {
    make();
    obey();
    library_.run(*flows_);
    send({SimgridEvent::Kind::over, 0, library_.now()});
  }

  void send(const SimgridEvent& event) const {
    if (!write_all(events_, std::as_bytes(std::span(&event, 1)))) end();
  }

 private:
  void make() {
    const NetworkSizes sizes = read_list<NetworkSizes>(commands_, 1).front();
    Cluster cluster;
    cluster.links.resize(sizes.links);
    const auto rates = read_list<BytesPerSecond>(commands_, sizes.links);
    for (std::size_t i = 0; i < rates.size(); ++i) cluster.links[i].rate = rates[i];
    std::vector<Route> routes;
    const auto counts = read_list<std::uint64_t>(commands_, sizes.routes);
    const auto hops = read_list<Hop>(commands_, sizes.hops);
    auto next = hops.begin();
    for (const std::uint64_t count : counts) {
      const auto first = next;
      next += static_cast<std::ptrdiff_t>(count);
      routes.push_back({{first, next}, {}, {}});
    }
    std::vector<const Route*> pointers;
    for (const Route& route : routes) pointers.push_back(&route);
    const auto changes = read_list<RateChange>(commands_, sizes.changes);
    std::vector<std::string> settings(1);
    for (const char c : read_list<char>(commands_, sizes.settings)) {
      if (c == '\n') {
        settings.emplace_back();
      } else {
        settings.back() += c;
      }
    }
    settings.pop_back();
    flows_ = library_.make(
        cluster, pointers, [this](std::int64_t token) { tell(SimgridEvent::Kind::date, token); },
        [this](std::int64_t token) { tell(SimgridEvent::Kind::end, token); }, changes, settings);
  }

  void tell(SimgridEvent::Kind kind, std::int64_t token) {
    send({kind, token, library_.now()});
    obey();
  }

  /// Does what it is asked for until it is to run.
  void obey() {
    std::array<std::byte, 128 * sizeof(SimgridCommand)> buffer;
    std::size_t filled = 0;
    while (true) {
      const ssize_t count = read(commands_, buffer.data() + filled, buffer.size() - filled);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) end();
      filled += static_cast<std::size_t>(count);
      std::size_t done = 0;
      for (; filled - done >= sizeof(SimgridCommand); done += sizeof(SimgridCommand)) {
        SimgridCommand command;
        std::memcpy(&command, buffer.data() + done, sizeof command);
        if (command.kind == SimgridCommand::Kind::run) return;
        if (command.kind == SimgridCommand::Kind::wake_at) {
          library_.wake_at(*flows_, command.date, command.token);
        } else {
          library_.start(*flows_, command.route, command.payload, command.token);
        }
      }
      std::memmove(buffer.data(), buffer.data() + done, filled - done);
      filled -= done;
    }
  }

  const SimgridLibrary& library_ = *parsim_simgrid_library();
  int commands_, events_;
  SimgridFlows* flows_ = nullptr;
};

}  // namespace
}  // namespace parsim::sim

/// parsim-simgrid COMMANDS EVENTS PARENT: two open files and the process that reads the events.
int main(int count, char** words) {
  if (count != 4) {
    std::fputs("parsim-simgrid: parsim starts it\n", stderr);
    return 2;
  }
  // With the one that asks, in any way.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != std::atoi(words[3])) return 1;
  parsim::sim::Program program(std::atoi(words[1]), std::atoi(words[2]));
  try {
    program.run();
  } catch (const std::bad_alloc&) {
    program.send({parsim::sim::SimgridEvent::Kind::out_of_memory, 0, {}});
  }
  _exit(0);  // the engine is not taken apart
}
