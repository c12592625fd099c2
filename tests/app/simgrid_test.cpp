// SimGrid is a library inside the program, loaded by those runs that simulate with it.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

using testing::Finished;
using Words = std::vector<std::string>;

Words simulated_by(const std::string& engine) {
  return {"simulate",
          "--network",
          "mlp",
          "--cluster",
          "star:2,device=t4,rate=1GB/s,latency=1us",
          "--engine",
          engine,
          "--strategy",
          "data",
          "--json",
          "--no-timings"};
}

/// Writes a program that may run.
std::string install(const testing::TemporaryFolder& folder, const std::string& program) {
  const std::string path = folder.write("parsim", program);
  REQUIRE(::chmod(path.c_str(), 0755) == 0);
  return path;
}

TEST_CASE("simgrid: the program does not load it to start") {
  const Finished loaded =
      testing::run_program(PARSIM_PROGRAM, {}, {}, {"LD_TRACE_LOADED_OBJECTS=1"});
  CHECK(loaded.out.find("libstdc++") != std::string::npos);
  CHECK(loaded.out.find("simgrid") == std::string::npos);
}

TEST_CASE("simgrid: a copy of the program alone simulates as the program does") {
  const testing::TemporaryFolder folder;
  const std::string copy = install(folder, testing::read_text(PARSIM_PROGRAM));
  const Finished here = testing::run_program(PARSIM_PROGRAM, simulated_by("simgrid"));
  REQUIRE(here.exit_code == 0);
  CHECK(testing::run_program(copy, simulated_by("simgrid"), folder.folder()) == here);
}

TEST_CASE("simgrid: where it is missing is said, and the fast engine works") {
  // A program whose library asks for a SimGrid that no machine has.
  std::string program = testing::read_text(PARSIM_PROGRAM);
  const std::string wanted = "libsimgrid.so", absent = "libnowhere.so";
  int replaced = 0;
  for (std::size_t at = 0; (at = program.find(wanted, at)) != std::string::npos; ++replaced) {
    program.replace(at, wanted.size(), absent);
  }
  REQUIRE(replaced == 2);  // in the library and in the program for processes with threads
  const testing::TemporaryFolder folder;
  const std::string changed = install(folder, program);
  const Finished refused = testing::run_program(changed, simulated_by("simgrid"));
  CHECK(refused.exit_code == 2);
  CHECK(refused.out.empty());
  CHECK(refused.err.starts_with("parsim: --engine: SimGrid cannot be loaded: libnowhere.so"));
  CHECK(refused.err.ends_with("; accepted: fast, or on Debian: apt-get install libsimgrid-dev\n"));
  CHECK(testing::run_program(changed, simulated_by("fast")) ==
        testing::run_program(PARSIM_PROGRAM, simulated_by("fast")));
  CHECK(testing::run_program(changed, {"doctor"}).out.find("cannot be loaded: libnowhere.so") !=
        std::string::npos);
  CHECK(testing::run_program(PARSIM_PROGRAM, {"doctor"}).out.find(", can be loaded") !=
        std::string::npos);
}

}  // namespace
}  // namespace parsim::app
