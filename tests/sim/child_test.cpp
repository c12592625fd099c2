#include "sim/child.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "core/errors.hpp"
#include "sim/sim.hpp"
#include "tests/support/notation.hpp"

namespace parsim::sim {
namespace {

TEST_CASE("child: its results come back, larger than a pipe holds, and nothing else does") {
  std::vector<std::int32_t> numbers(300'000);
  std::vector<double> more(3);
  int other = 1;
  const std::array results{bytes_of(numbers), bytes_of(more)};
  run_in_child(
      [&] {
        std::iota(numbers.begin(), numbers.end(), 7);
        more = {1.5, -2.5, 1e300};
        other = 2;
      },
      results);
  std::vector<std::int32_t> expected(300'000);
  std::iota(expected.begin(), expected.end(), 7);
  CHECK(numbers == expected);
  CHECK(more == std::vector<double>{1.5, -2.5, 1e300});
  CHECK(other == 1);
}

TEST_CASE("child: its errors are thrown here, ours as ours") {
  CHECK_THROWS_WITH_AS(run_in_child([] { throw SimulationError("stuck at 3"); }, {}), "stuck at 3",
                       SimulationError);
  CHECK_THROWS_WITH_AS(run_in_child([] { ensure(false, "up is up"); }, {}), "up is up",
                       BrokenInvariant);
}

TEST_CASE("child: what the machine refuses is told apart from what cannot be simulated") {
  CHECK_THROWS_WITH_AS(run_in_child([] { throw std::bad_alloc(); }, {}), "out of memory",
                       RefusedByMachine);
  CHECK_THROWS_AS(run_in_child([] { std::raise(SIGKILL); }, {}), RefusedByMachine);
  CHECK_THROWS_AS(run_in_child([] { throw RefusedByMachine("no file"); }, {}), RefusedByMachine);
}

TEST_CASE("child: its death is an error that names the signal, never a hang") {
  CHECK_THROWS_WITH_AS(run_in_child([] { raise(SIGKILL); }, {}),
                       "the simulation died of signal 9 (Killed)", SimulationError);
  // As an assertion inside SimGrid ends; this test program's own handler must stay silent.
  CHECK_THROWS_WITH_AS(run_in_child([] { std::abort(); }, {}),
                       "the simulation died of signal 6 (Aborted)", SimulationError);
  CHECK_THROWS_WITH_AS(run_in_child([] { _exit(3); }, {}),
                       "the simulation ended early, with exit code 3", SimulationError);
}

TEST_CASE("child: a program that is killed takes its simulation along") {
  int ends[2] = {-1, -1};
  REQUIRE(pipe(ends) == 0);
  const pid_t program = fork();
  if (program == 0) {
    run_in_child(
        [&] {
          (void)!write(ends[1], "a", 1);
          sleep(10);
          (void)!write(ends[1], "b", 1);
        },
        {});
    _exit(0);
  }
  close(ends[1]);
  char sent = 0;
  CHECK(read(ends[0], &sent, 1) == 1);
  kill(program, SIGKILL);
  CHECK(read(ends[0], &sent, 1) == 0);  // no writer is left
  close(ends[0]);
  waitpid(program, nullptr, 0);
}

constexpr std::size_t allocating_threads = 2, simulating_threads = 2;

TEST_CASE("child: simulations run while other threads allocate and simulate, too, without a fork") {
  const Cluster cluster = testing::star_of(2, "1 GB/s", "1us");
  const auto cost = make_constant_efficiency(cluster);
  const testing::NotedDag noted = testing::dag_of(
      "a: compute d0 3us; b: transfer d0->d1 1MB after a; c: all-reduce d0,d1 1MB after b");
  const auto step = [&](Engine engine) {
    SimOptions options;
    options.engine = engine;
    return makespan(make_simulator(cluster, *cost, options)->run(noted.dag));
  };
  const Seconds expected = step(Engine::simgrid);
  std::atomic<bool> over = false;
  std::vector<std::thread> others;
  for (std::size_t i = 0; i < allocating_threads; ++i) {
    others.emplace_back([&] {
      while (!over) static_cast<void>(step(Engine::fast));
    });
  }
  std::vector<Seconds> steps(simulating_threads * 10);
  std::vector<std::thread> simulating;
  for (std::size_t i = 0; i < simulating_threads; ++i) {
    simulating.emplace_back([&, i] {
      for (std::size_t s = 0; s < 10; ++s) steps[10 * i + s] = step(Engine::simgrid);
    });
  }
  for (std::thread& one : simulating) one.join();
  over = true;
  for (std::thread& one : others) one.join();
  for (const Seconds one : steps) CHECK(one == expected);
}

}  // namespace
}  // namespace parsim::sim
