// What a signal leaves of a long run.
#include "app/interrupt.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

report::Document saying(const std::string& text) {
  report::Document document;
  document.head = {text};
  return document;
}

struct Ended {
  int exit_code = -1;  ///< negative: the signal
  std::string out;
};

/// Runs `work` in a child that prints to a file.
Ended in_child(void (*work)(std::FILE* out)) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("out", "");
  std::fflush(stdout);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The runner's handlers would report on the wrong process.
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
    work(std::fopen(path.c_str(), "w"));
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return {WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), testing::read_text(path)};
}

TEST_CASE("interrupt: a signal prints the document that was kept last") {
  const Ended ended = in_child([](std::FILE* out) {
    print_when_interrupted(report::formats().front(), {}, out);
    for (const char* text : {"one", "two", "three"}) keep_for_interrupt(saying(text));
    std::raise(SIGTERM);
  });
  CHECK(ended.exit_code == 128 + SIGTERM);
  CHECK(ended.out == "three\n");
}

TEST_CASE("interrupt: children of the run, and runs that have ended, say nothing") {
  const Ended child = in_child([](std::FILE* out) {
    print_when_interrupted(report::formats().front(), {}, out);
    keep_for_interrupt(saying("kept"));
    if (::fork() == 0) std::raise(SIGINT);
    int status = 0;
    ::wait(&status);
    ::_exit(WEXITSTATUS(status));
  });
  CHECK(child.exit_code == 128 + SIGINT);
  CHECK(child.out.empty());
  const Ended ended = in_child([](std::FILE* out) {
    print_when_interrupted(report::formats().front(), {}, out);
    keep_for_interrupt(saying("kept"));
    forget_for_interrupt();
    std::raise(SIGINT);
  });
  CHECK(ended.exit_code == -SIGINT);
  CHECK(ended.out.empty());
}

TEST_CASE(
    "interrupt: a signal that was ignored before stays ignored, during the run and after it") {
  const Ended ended = in_child([](std::FILE* out) {
    std::signal(SIGINT, SIG_IGN);
    print_when_interrupted(report::formats().front(), {}, out);
    keep_for_interrupt(saying("kept"));
    std::raise(SIGINT);
    forget_for_interrupt();
    std::raise(SIGINT);
    ::_exit(7);
  });
  CHECK(ended.exit_code == 7);
  CHECK(ended.out.empty());
}

}  // namespace
}  // namespace parsim::app
