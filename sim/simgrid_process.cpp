#include "sim/simgrid_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <optional>
#include <system_error>
#include <utility>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/processes.hpp"
#include "sim/child.hpp"
#include "sim/simgrid/messages.hpp"
#include "sim/simgrid_files.hpp"

namespace parsim::sim {

namespace {

[[noreturn]] void refuse_process(const char* what, int error) {
  throw RefusedByMachine(fmt::format("no {} a simulation: {}", what, std::strerror(error)));
}

/// In this thread, what is sent to a process that has ended is an error and no signal.
class NoBrokenPipes {
 public:
  NoBrokenPipes() : pending_(pending()) { ::pthread_sigmask(SIG_BLOCK, &signal_, &before_); }
  ~NoBrokenPipes() {
    constexpr timespec at_once{};
    if (!pending_ && pending()) ::sigtimedwait(&signal_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipes(const NoBrokenPipes&) = delete;
  NoBrokenPipes& operator=(const NoBrokenPipes&) = delete;

 private:
  [[nodiscard]] static sigset_t only_signal() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGPIPE);
    return set;
  }
  [[nodiscard]] static bool pending() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigpending(&set);
    return ::sigismember(&set, SIGPIPE) == 1;
  }

  sigset_t signal_ = only_signal(), before_{};
  bool pending_;  ///< before: that one is not ours
};

struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) refuse_process("pipe to", errno);
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_end(read_end);
    close_end(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

/// The program, started with its ends of two pipes and no other file of this process that is to be
/// closed by exec.
pid_t start_program(int commands, int events) {
  std::optional<MemoryFile> file;
  try {
    file.emplace(simgrid_program_file());
  } catch (const std::system_error& error) {
    refuse_process("file in memory for", error.code().value());
  }
  std::array<std::string, 4> words{"parsim-simgrid", std::to_string(commands),
                                   std::to_string(events), std::to_string(::getpid())};
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  posix_spawn_file_actions_t actions;
  int error = ::posix_spawn_file_actions_init(&actions);
  if (error != 0) refuse_process("process for", error);
  for (const int end : {commands, events}) {  // onto itself: exec leaves it open
    if (error == 0) error = ::posix_spawn_file_actions_adddup2(&actions, end, end);
  }
  pid_t process = -1;
  if (error == 0) {
    error =
        ::posix_spawn(&process, file->path().c_str(), &actions, nullptr, arguments.data(), environ);
  }
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) refuse_process("process for", error);
  return process;
}

}  // namespace

struct SimgridProcess::Impl {
  NoBrokenPipes no_broken_pipes;
  Pipe commands, events;
  pid_t process = -1;  ///< negative: it was waited for
  Handler on_date, on_end;
  std::vector<SimgridCommand> unsent;
  Seconds now{};

  Impl() {
    process = start_program(commands.read_end, events.write_end);
    Pipe::close_end(commands.read_end);
    Pipe::close_end(events.write_end);
  }
  ~Impl() {
    if (process < 0) return;
    ::kill(process, SIGKILL);
    wait_for(process);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  template <class T>
  void send(const T& list) {
    if (write_all(commands.write_end, std::as_bytes(std::span(list)))) return;
    if (errno != EPIPE) refuse_process("pipe to", errno);
    static_cast<void>(next());  // it has ended
  }

  /// The next event; throws what the process died of if there is none.
  SimgridEvent next() {
    SimgridEvent event;
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&event, 1));
    const bool complete = read_all(events.read_end, bytes) == bytes.size();
    if (complete && event.kind == SimgridEvent::Kind::out_of_memory) {
      throw RefusedByMachine("out of memory");
    }
    if (!complete || event.kind == SimgridEvent::Kind::over) {
      end_of_child(std::exchange(process, -1), complete);
    }
    return event;
  }
};

SimgridProcess::SimgridProcess(const Cluster& cluster, std::span<const Route* const> routes,
                               Handler on_date, Handler on_end, std::span<const RateChange> changes,
                               const std::vector<std::string>& settings)
    : impl_(std::make_unique<Impl>()) {
  impl_->on_date = std::move(on_date);
  impl_->on_end = std::move(on_end);
  std::vector<BytesPerSecond> rates;
  for (const Link& link : cluster.links) rates.push_back(link.rate);
  std::vector<std::uint64_t> lengths;
  std::vector<Hop> hops;
  for (const Route* route : routes) {
    lengths.push_back(route->hops.size());
    hops.insert(hops.end(), route->hops.begin(), route->hops.end());
  }
  std::string lines;
  for (const std::string& setting : settings) lines += setting + "\n";
  impl_->send(std::array{
      NetworkSizes{rates.size(), lengths.size(), hops.size(), changes.size(), lines.size()}});
  impl_->send(rates);
  impl_->send(lengths);
  impl_->send(hops);
  impl_->send(changes);
  impl_->send(lines);
}

SimgridProcess::~SimgridProcess() = default;

pid_t SimgridProcess::process() const { return impl_->process; }
Seconds SimgridProcess::now() const { return impl_->now; }

void SimgridProcess::wake_at(Seconds date, std::int64_t token) {
  impl_->unsent.push_back({SimgridCommand::Kind::wake_at, token, date, 0, {}});
}

void SimgridProcess::start(std::size_t route, Bytes payload, std::int64_t token) {
  impl_->unsent.push_back({SimgridCommand::Kind::start, token, {}, route, payload});
}

void SimgridProcess::run() {
  while (true) {
    impl_->unsent.emplace_back();
    impl_->send(impl_->unsent);
    impl_->unsent.clear();
    const SimgridEvent event = impl_->next();
    impl_->now = event.now;
    if (event.kind == SimgridEvent::Kind::over) return;
    (event.kind == SimgridEvent::Kind::date ? impl_->on_date : impl_->on_end)(event.token);
  }
}

}  // namespace parsim::sim
