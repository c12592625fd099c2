#include "sim/simgrid_process.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/errors.hpp"
#include "core/routes.hpp"
#include "sim/child.hpp"
#include "sim/flow_engine.hpp"
#include "sim/sim.hpp"
#include "sim/simgrid_library.hpp"
#include "tests/support/notation.hpp"

namespace parsim::sim {
namespace {

constexpr std::int64_t flows_in_all = 40;

/// Flows that start one after another and share links, one of which slows down; their ends in
/// seconds, then the last date.
void run_flows(SimgridIn where, std::vector<double>& ends) {
  const Cluster cluster = testing::star_of(3, "1 GB/s", "1us");
  Routes routes(cluster);
  const std::array<const Route*, 2> ways{&routes.between(DeviceId{0}, DeviceId{1}),
                                         &routes.between(DeviceId{0}, DeviceId{2})};
  const std::array changes{RateChange{Seconds{3e-3}, LinkId{1}, BytesPerSecond{3e8}}};
  std::unique_ptr<FlowEngine> engine;
  engine = std::make_unique<FlowEngine>(
      cluster, ways,
      [&](std::int64_t t) {
        engine->start(static_cast<std::size_t>(t % 2), Bytes{t % 7 * 100'003}, t);
      },
      [&](std::int64_t t) {
        ends[static_cast<std::size_t>(t)] = engine->now().count();
        if (t + 5 < flows_in_all) engine->wake_at(engine->now() + Seconds{1e-5 / 3}, t + 5);
      },
      changes, where);
  for (std::int64_t t = 0; t < 5; ++t)
    engine->wake_at(Seconds{1e-4 / static_cast<double>(t + 1)}, t);
  engine->run();
  ends.back() = engine->now().count();
}

TEST_CASE("simgrid process: the dates of a fork to the bit") {
  std::vector<double> forked(flows_in_all + 1), started(flows_in_all + 1);
  run_in_child([&] { run_flows(SimgridIn::this_process, forked); }, std::array{bytes_of(forked)});
  run_flows(SimgridIn::own_process, started);
  CHECK(forked == started);
  CHECK(forked[flows_in_all - 1] > 3e-3);  // the slow link was met
}

struct Idle {
  Cluster cluster = testing::star_of(2, "1 GB/s", "1us");
  Routes routes{cluster};
  std::array<const Route*, 1> ways{&routes.between(DeviceId{0}, DeviceId{1})};
  std::unique_ptr<SimgridProcess> make(SimgridProcess::Handler on_date) {
    return std::make_unique<SimgridProcess>(
        cluster, ways, std::move(on_date), [](std::int64_t) {}, std::span<const RateChange>{},
        simgrid_settings());
  }
};

TEST_CASE("simgrid process: its death is an error that names the signal, and no signal here") {
  Idle idle;
  std::unique_ptr<SimgridProcess> process;
  process = idle.make([&](std::int64_t) { ::kill(process->process(), SIGKILL); });
  process->wake_at(Seconds{1}, 0);
  CHECK_THROWS_WITH_AS(process->run(), "the simulation died of signal 9 (Killed)",
                       RefusedByMachine);
  process.reset();
  sigset_t set;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &set);
  CHECK(::sigismember(&set, SIGPIPE) == 0);  // as it was
}

TEST_CASE("simgrid process: a handler that throws ends it") {
  Idle idle;
  auto process = idle.make([](std::int64_t) { throw std::out_of_range("far"); });
  process->wake_at(Seconds{1}, 0);
  CHECK_THROWS_AS(process->run(), std::out_of_range);
  process.reset();
  CHECK(::waitpid(-1, nullptr, 0) == -1);
  CHECK(errno == ECHILD);  // none is left
}

TEST_CASE("simgrid process: a library that is there is not called missing") {
  CHECK(lack_of("libns3-wifi.so.37: failed to map segment from shared object") ==
        "Cannot allocate memory");
  CHECK(
      lack_of("/proc/7/fd/3: failed to map segment from shared object: Operation not permitted") ==
      "Operation not permitted");
  CHECK(lack_of("/proc/7/fd/3: cannot open shared object file: Too many open files") ==
        "Too many open files");
  CHECK(
      lack_of("libnowhere.so: cannot open shared object file: No such file or directory").empty());
}

TEST_CASE("simgrid process: a program that is killed takes it along") {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const pid_t program = ::fork();
  if (program == 0) {
    Idle idle;
    auto process = idle.make([&](std::int64_t) {
      (void)!::write(ends[1], "a", 1);
      ::sleep(60);
    });
    process->wake_at(Seconds{1}, 0);
    process->run();
    ::_exit(0);
  }
  ::close(ends[1]);  // theirs are open
  char sent = 0;
  CHECK(::read(ends[0], &sent, 1) == 1);
  ::kill(program, SIGKILL);
  CHECK(::read(ends[0], &sent, 1) == 0);  // no writer is left
  ::close(ends[0]);
  ::waitpid(program, nullptr, 0);
}

}  // namespace
}  // namespace parsim::sim
