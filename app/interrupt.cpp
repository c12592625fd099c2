#include "app/interrupt.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>
#include <string_view>

namespace parsim::app {

namespace {

/// The text is rendered beforehand, because a handler may call next to nothing.
struct Kept {
  std::string text;
  int to = -1;
  bool erases = false;  ///< a line of progress
  pid_t owner = 0;
};
std::atomic<const Kept*> kept = nullptr;
static_assert(std::atomic<const Kept*>::is_always_lock_free);

void write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(to, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

void print_and_end(int signal) {
  const Kept* const now = kept.load();
  if (now != nullptr && now->owner == ::getpid()) {  // a child has nothing to say
    if (now->erases) write_all(STDERR_FILENO, "\r\x1b[K");
    write_all(now->to, now->text);
  }
  ::_exit(128 + signal);
}

using Handler = void (*)(int);
Handler handler_of(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

struct Printing {
  const report::Format* format = nullptr;
  report::Terminal terminal{};
  int to = -1;
};
Printing& printing() {
  static Printing how;
  return how;
}

}  // namespace

void print_when_interrupted(const report::Format& format, const report::Terminal& terminal,
                            std::FILE* stream) {
  printing() = {&format, terminal, ::fileno(stream)};
}

void keep_for_interrupt(const report::Document& document) {
  const Printing& how = printing();
  if (how.format == nullptr) return;
  // Two texts take turns: a handler that interrupts this function finds the one before.
  static std::array<Kept, 2> turns;
  static std::size_t turn = 0;
  Kept& next = turns.at(++turn % 2);
  next = {how.format->render(document, how.terminal), how.to, ::isatty(STDERR_FILENO) == 1,
          ::getpid()};
  const bool first = kept.exchange(&next) == nullptr;
  if (!first) return;
  for (const int signal : {SIGINT, SIGTERM}) {
    // Ignored since before the start, as a shell does for what a script runs with &: stays ignored.
    if (handler_of(signal) != SIG_IGN) std::signal(signal, print_and_end);
  }
}

void forget_for_interrupt() {
  if (kept.exchange(nullptr) == nullptr) return;
  for (const int signal : {SIGINT, SIGTERM}) {
    if (handler_of(signal) == print_and_end) std::signal(signal, SIG_DFL);
  }
}

}  // namespace parsim::app
