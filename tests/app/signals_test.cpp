// What signals leave behind: no process, no folder, no file.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* on_the_host =
    " --network lenet5 --strategy data --hw-backend host >/dev/null 2>&1";

bool happens(const std::function<bool()>& event) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!event()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

/// A shell that becomes parsim, in `folder`.
pid_t start(const std::string& command, const testing::TemporaryFolder& folder) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child != 0) return child;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  if (::chdir(folder.folder().c_str()) != 0) ::_exit(126);
  const std::string line = "exec " PARSIM_PROGRAM " " + command;
  ::execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
  ::_exit(127);
}

TEST_CASE("signals: parsim-hw ends with parsim, and nothing is left") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGKILL}) {
    for (const std::string verb :
         {"simulate --hw --trace t.json --report r.html", "calibrate -o profile.json"}) {
      CAPTURE(signal);
      CAPTURE(verb);
      const testing::TemporaryFolder folder, scratch;
      // It says which process it is, and never ends by itself.
      const std::string waits =
          folder.write("waits", "#!/bin/bash\necho $$ > pid.new; mv pid.new pid; exec sleep 60\n");
      fs::permissions(waits, fs::perms::owner_all);
      ::setenv("PARSIM_HW", waits.c_str(), 1);
      ::setenv("TMPDIR", scratch.folder().c_str(), 1);
      const pid_t parsim = start(verb + on_the_host, folder);
      ::unsetenv("PARSIM_HW");
      ::unsetenv("TMPDIR");
      REQUIRE(happens([&] { return fs::exists(folder.path("pid")); }));
      const pid_t child = std::stoi(testing::read_text(folder.path("pid")));
      CHECK(::kill(parsim, signal) == 0);
      int status = 0;
      CHECK(::waitpid(parsim, &status, 0) == parsim);
      CHECK(WIFSIGNALED(status));
      const std::string process = "/proc/" + std::to_string(child) + "/cmdline";
      CHECK(happens([&] {
        return !fs::exists(process) || testing::read_text(process).empty();  // gone, or a zombie
      }));
      CHECK(folder.names() == std::vector<std::string>{"pid", "waits"});
      CHECK(scratch.names().empty());
    }
  }
}

TEST_CASE("signals: a parsim-hw that ends at once is exit code 3 with how it ended") {
  for (const auto& [script, message] : std::vector<std::pair<std::string, std::string>>{
           {"kill -9 $$", "parsim-hw was ended by signal 9 (Killed)"},
           {"echo 'libdnnl.so.2: cannot open' >&2\nexit 127",
            "parsim-hw cannot be started: libdnnl.so.2: cannot open"}}) {
    CAPTURE(message);
    const testing::TemporaryFolder folder;
    const std::string file = folder.write("ends", "#!/bin/bash\n" + script + "\n");
    fs::permissions(file, fs::perms::owner_all);
    const testing::Finished finished =
        testing::run_program(PARSIM_PROGRAM,
                             {"calibrate", "-o", "p.json", "--network", "lenet5", "--strategy",
                              "data", "--hw-backend", "host"},
                             folder.folder(), {"PARSIM_HW=" + file});
    CHECK(finished.exit_code == 3);
    CHECK(finished.out.find(message) != std::string::npos);
    CHECK(folder.names() == std::vector<std::string>{"ends"});
  }
}

TEST_CASE("signals: --hw needs no folder for temporary files, and no launcher") {
  const testing::Finished finished = testing::run_program(
      PARSIM_PROGRAM,
      {"simulate", "--hw", "--network", "lenet5", "--strategy", "data", "--hw-backend", "host"}, {},
      {"TMPDIR=/no/such", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0", "PMI_SIZE=2",
       "SLURM_STEP_NUM_TASKS=2", "WORLD_SIZE=2"});
  CAPTURE(finished.err);
  CHECK(finished.exit_code == 0);
}

}  // namespace
}  // namespace parsim::app
