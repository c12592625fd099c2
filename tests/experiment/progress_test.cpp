// The line of progress on a terminal, which is one end of a pair that the test reads.
#include "experiment/progress.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace parsim::experiment {
namespace {

/// Standard error is a terminal for as long as this lives.
class Terminal {
 public:
  Terminal()
      : screen_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)), error_(::dup(STDERR_FILENO)) {
    REQUIRE(screen_ >= 0);
    REQUIRE(::grantpt(screen_) == 0);
    REQUIRE(::unlockpt(screen_) == 0);
    const int end = ::open(::ptsname(screen_), O_RDWR | O_NOCTTY);
    REQUIRE(end >= 0);
    ::dup2(end, STDERR_FILENO);
    ::close(end);
  }
  ~Terminal() {
    ::dup2(error_, STDERR_FILENO);
    ::close(error_);
    ::close(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// What was printed since the last call.
  [[nodiscard]] std::string text() const {
    std::string all;
    char some[512];
    for (ssize_t got = 0; (got = ::read(screen_, some, sizeof some)) > 0;) {
      all.append(some, static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  int screen_, error_;
};

const std::string erased = "\r\x1b[K";

TEST_CASE("progress: a terminal shows which step begins, in a line that goes at the end") {
  const Terminal terminal;
  {
    Progress progress(std::vector<double>{3, 1}, false);
    progress.next("first");
    CHECK(terminal.text() == erased + "0 of 2 done, first");
    progress.next("second");
    CHECK(terminal.text() == erased + "1 of 2 done, second");
    progress.at_once({true, false}, "second");
    CHECK(terminal.text() == erased + "1 of 2 done: second");
  }
  CHECK(terminal.text() == erased);
}

TEST_CASE("progress: a terminal shows nothing if all is to be quiet, no warnings either") {
  const Terminal terminal;
  for (const bool quiet : {true, false}) {
    const Progress progress(2, quiet);
    progress.warn("it is large");
    CHECK(terminal.text() == (quiet ? "" : "parsim: warning: it is large\r\n"));
  }
  Progress(2, true).next("first");
  CHECK(terminal.text().empty());
}

TEST_CASE("progress: where there is no terminal a line now and then says what is under way") {
  const Terminal terminal;
  const int screen = ::dup(STDERR_FILENO);
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  ::dup2(pipe[1], STDERR_FILENO);
  int asked = 0;
  for (const bool quiet : {true, false}) {
    Progress progress(2, quiet, [&] { ++asked; });
    progress.next("first");
    progress.poll();
    progress.pause = std::chrono::duration<double>{0};
    progress.poll();
    progress.within(0.5);
  }
  ::dup2(screen, STDERR_FILENO);
  ::close(screen);
  ::close(pipe[1]);
  char some[512];
  const ssize_t got = ::read(pipe[0], some, sizeof some);
  ::close(pipe[0]);
  const std::string line = "parsim: 0 s so far, now first\n";
  CHECK(std::string(some, got > 0 ? static_cast<std::size_t>(got) : 0) == line + line);
  CHECK(asked == 8);
}

}  // namespace
}  // namespace parsim::experiment
