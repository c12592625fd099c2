#include "sim/child.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "core/errors.hpp"
#include "core/processes.hpp"

namespace parsim::sim {

namespace {

/// First byte that a child sends.
enum class Outcome : unsigned char { results, simulation_error, refused, other_error };

std::string reason(int error) { return std::strerror(error); }

std::string read_text(int from) {
  std::string text;
  std::vector<char> piece(4096);
  while (const std::size_t count = read_all(from, std::as_writable_bytes(std::span(piece)))) {
    text.append(piece.data(), count);
  }
  return text;
}

/// Never returns: destructors and exit handlers of the parent's objects must not run twice.
[[noreturn]] void be_child(const std::function<void()>& work,
                           std::span<const std::span<std::byte>> results, int out, pid_t parent) {
  // A parent that dies of a signal takes its simulation along.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  // A handler of the parent's, a test runner's say, would report on the wrong process.
  for (const int fatal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGINT}) {
    std::signal(fatal, SIG_DFL);
  }
  Outcome outcome = Outcome::results;
  std::string message;
  try {
    work();
  } catch (const RefusedByMachine& error) {
    outcome = Outcome::refused;
    message = error.what();
  } catch (const SimulationError& error) {
    outcome = Outcome::simulation_error;
    message = error.what();
  } catch (const std::bad_alloc&) {
    outcome = Outcome::refused;
    message = "out of memory";
  } catch (const std::exception& error) {
    outcome = Outcome::other_error;
    message = error.what();
  }
  bool sent = write_all(out, std::as_bytes(std::span(&outcome, 1)));
  if (outcome == Outcome::results) {
    for (const std::span<std::byte> data : results) sent = sent && write_all(out, data);
  } else {
    sent = sent && write_all(out, std::as_bytes(std::span(message)));
  }
  _exit(sent ? 0 : 1);
}

}  // namespace

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

void end_of_child(pid_t child, bool complete) {
  const int status = wait_for(child);
  if (WIFSIGNALED(status)) {
    throw RefusedByMachine(fmt::format("the simulation died of signal {} ({})", WTERMSIG(status),
                                       strsignal(WTERMSIG(status))));
  }
  if (!complete) {
    throw RefusedByMachine(
        fmt::format("the simulation ended early, with exit code {}", WEXITSTATUS(status)));
  }
}

void run_in_child(const std::function<void()>& work,
                  std::span<const std::span<std::byte>> results) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) throw RefusedByMachine("no pipe to a simulation: " + reason(errno));
  // Text still in the buffers would be printed by both processes.
  std::fflush(stdout);
  std::fflush(stderr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    throw RefusedByMachine("no process for a simulation: " + reason(error));
  }
  if (child == 0) {
    close(ends[0]);
    be_child(work, results, ends[1], parent);
  }
  close(ends[1]);
  Outcome outcome = Outcome::other_error;
  bool complete = read_all(ends[0], std::as_writable_bytes(std::span(&outcome, 1))) == 1;
  std::string message;
  if (complete && outcome == Outcome::results) {
    for (const std::span<std::byte> data : results) {
      complete = complete && read_all(ends[0], data) == data.size();
    }
  } else {
    message = read_text(ends[0]);
  }
  close(ends[0]);
  end_of_child(child, complete);
  if (outcome == Outcome::refused) throw RefusedByMachine(message);
  if (outcome == Outcome::simulation_error) throw SimulationError(message);
  if (outcome == Outcome::other_error) throw BrokenInvariant(message);
}

}  // namespace parsim::sim
