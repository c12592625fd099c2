// A process for each device: the same numbers as one process for all, and no deadlock.
#include "hw/processes.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>

#include "core/errors.hpp"
#include "hw/host.hpp"
#include "hw/host_executor.hpp"
#include "lowering/lower.hpp"
#include "tests/hw/ranks.hpp"
#include "tests/hw/runnable.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

using namespace std::chrono_literals;

/// The worst difference of a rank's device to one process's numbers, "" if there is none.
std::string difference(const ExecDag& dag, hw::HostNumbers& expected, hw::Processes& processes) {
  hw::HostNumbers own(dag, processes);
  static_cast<void>(own.run(hw::dispatch(dag, DeviceId{processes.rank()})));
  const auto found = [&](const hw::StoreKey& key, const Region& box) {
    return own.values(key, box);
  };
  // Everything differs by more than less than nothing: so the comparison sees something.
  if (!own.stores().all.empty() &&
      hw::worst_difference(expected, own.stores(), Precision::fp32, -1, found).empty()) {
    return "nothing was compared";
  }
  return hw::worst_difference(expected, own.stores(), Precision::fp32, 1e-9, found);
}

}  // namespace

TEST_CASE("processes: any valid plan computes what one process computes") {
  const std::vector<Network> networks = tiny_networks();
  for (const std::size_t gpus : {1U, 2U, 3U}) {  // and a device that may be a parameter server
    const auto size = static_cast<int>(gpus) + 1;
    std::vector<ExecDag> dags;
    std::vector<std::string> names;
    // Seed 28 on two devices has a bucket with two parts of one parameter.
    for (std::uint64_t seed = 16; seed < 30; ++seed) {
      const Network& network = networks[seed % networks.size()];
      if (!runs_on_hardware(network)) continue;
      names.push_back(network.name + " " + std::to_string(seed));
      dags.push_back(lowering::lower(
          network, star_of(gpus + 1, "10 GB/s", "1us"),
          with_split_states(random_plan(network, gpus, 8, seed + 100 * gpus), seed)));
    }
    std::vector<std::unique_ptr<hw::HostNumbers>> expected;
    for (const ExecDag& dag : dags) {
      expected.push_back(std::make_unique<hw::HostNumbers>(dag));
      static_cast<void>(expected.back()->run(hw::dispatch(dag)));
    }
    const std::vector<std::string> said = ranks(size, [&](hw::Processes& processes) {
      for (std::size_t i = 0; i < dags.size(); ++i) {
        const std::string worst = difference(dags[i], *expected[i], processes);
        if (!worst.empty()) return names[i] + ": " + worst;
      }
      return std::string("equal");
    });
    for (const std::string& one : said) CHECK(one == "equal");
  }
}

TEST_CASE("processes: on the synthetic host they measure one step together and rank 0 has it") {
  const NotedDag noted = dag_of(
      "a: compute d0 3us; b: transfer d0->d1 1MB after a; c: all-reduce d0,d1 1MB after b;"
      "d: compute d2 1us");
  std::vector<Measurement> measured(3);
  const std::vector<std::string> said = ranks(3, [&](hw::Processes& processes) {
    hw::HostExecutor host({64, 64, 32}, {}, &processes);
    measured[static_cast<std::size_t>(processes.rank())] = host.step(noted.dag, 5);
    return std::string(host.hardware().machine.cluster.devices.size() == 3 ? "done"
                                                                           : "other devices");
  });
  CHECK(said == std::vector<std::string>(3, "done"));
  CHECK(measured[1] == Measurement{});
  CHECK(measured[2] == Measurement{});
  const Measurement& whole = measured[0];
  CHECK(whole.step.samples == 5);
  CHECK(whole.step.median == whole.step_with_events.median);
  REQUIRE(whole.timeline.spans.size() == noted.dag.size());
  const Machine alone = hw::HostExecutor({64, 64, 32}).hardware().machine;
  for (std::size_t i = 0; i < noted.dag.size(); ++i) {
    const Span& span = whole.timeline.spans[i];
    // Sleeping is never too short; the processes' clocks begin at almost the same time.
    CHECK(span.end - span.start >= 0.8 * hw::modelled_duration(noted.dag, OpId{i}, alone));
  }
  CHECK(whole.timeline.spans[noted["c"].index()].start >=
        whole.timeline.spans[noted["b"].index()].start);
}

TEST_CASE("processes: what fails in one fails in all, with its exit code and its rank") {
  const std::vector<std::string> said = ranks(3, [](hw::Processes& processes) {
    try {
      hw::together(processes, [&] {
        if (processes.rank() == 1) throw hw::MemoryError("too big");
      });
    } catch (const hw::MemoryError& error) {
      return std::string("memory: ") + error.what();
    }
    return std::string("went on");
  });
  CHECK(said == std::vector<std::string>{"memory: rank 1: too big", "memory: too big",
                                         "memory: rank 1: too big"});
  const std::vector<std::string> fine = ranks(2, [](hw::Processes& processes) {
    hw::together(processes, [] {});
    return std::string("went on");
  });
  CHECK(fine == std::vector<std::string>(2, "went on"));
}

TEST_CASE("processes: a step is as long as the slowest, an operation as its members say") {
  const NotedDag noted = dag_of("a: compute d0 1us; b: transfer d0->d1 1MB after a");
  std::vector<Timeline> whole;
  std::vector<Seconds> times;
  const std::vector<std::string> said = ranks(2, [&](hw::Processes& processes) {
    const bool first = processes.rank() == 0;
    const hw::Dispatch own = hw::dispatch(noted.dag, DeviceId{processes.rank()});
    // The sender comes at 2 s and is rid of it at 4 s; the receiver is there from 1 s to 5 s.
    Timeline part;
    part.spans = first ? std::vector<Span>{{0s, 2s}, {2s, 4s}} : std::vector<Span>{{}, {1s, 5s}};
    const auto slow = hw::slowest(processes, {first ? 4s : 5s, first ? 7s : 6s});
    const auto steps = hw::whole_steps(processes, own, {part});
    if (!first) return std::string(steps.empty() && slow[1] == 7s ? "sent" : "has too much");
    whole = steps;
    times = slow;
    return std::string("sent");
  });
  CHECK(said == std::vector<std::string>(2, "sent"));
  CHECK(times == std::vector<Seconds>{5s, 7s});
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].spans == std::vector<Span>{{0s, 2s}, {2s, 5s}});
}

TEST_CASE("processes: their devices are one machine, if their libraries are the same") {
  const auto machine_of = [](int multiprocessors, const std::string& version) {
    Machine machine = hw::HostExecutor({multiprocessors}).hardware().machine;
    machine.versions = {{"NCCL", version}};
    return machine;
  };
  std::vector<Machine> whole(3);
  const std::vector<std::string> said = ranks(3, [&](hw::Processes& processes) {
    const int rank = processes.rank();
    whole[static_cast<std::size_t>(rank)] =
        hw::whole_machine(processes, machine_of(rank == 1 ? 32 : 64, "2.28"));
    return std::string("met");
  });
  CHECK(said == std::vector<std::string>(3, "met"));
  CHECK(whole[1].cluster == whole[0].cluster);
  CHECK(whole[2].cluster == whole[0].cluster);
  const Cluster& cluster = whole[0].cluster;
  REQUIRE(cluster.devices.size() == 3);
  CHECK(cluster.models.size() == 2);
  CHECK(cluster.model(DeviceId{1}).multiprocessors == 32);
  CHECK(cluster.model(DeviceId{2}).multiprocessors == 64);
  CHECK(cluster.devices[2].name == "gpu2");
  CHECK(cluster.links.size() == 3);
  const std::vector<std::string> others = ranks(2, [&](hw::Processes& processes) {
    return hw::whole_machine(processes, machine_of(64, processes.rank() == 0 ? "2.28" : "2.27"))
        .name;
  });
  for (const std::string& one : others) {
    CHECK(one == "threw processes of one launch have different libraries or drivers");
  }
}

TEST_CASE("processes: a process that a launcher started among several, without MPI, is refused") {
  const auto refusal_with = [](const char* variable, const char* size) {
    ::setenv(variable, size, 1);
    std::string refusal = refusal_of([] { return hw::check_alone(), 0; });
    ::unsetenv(variable);
    return refusal;
  };
  const std::string rest =
      ", and MPI does not connect them; accepted: one process, which has all GPUs of its machine; "
      "or mpirun, or srun --mpi=pmix, with a parsim-hw that was built with MPI";
  CHECK(refusal_with("OMPI_COMM_WORLD_SIZE", "4") == "mpirun: started 4 processes" + rest);
  CHECK(refusal_with("SLURM_STEP_NUM_TASKS", "2") == "srun: started 2 processes" + rest);
  CHECK(refusal_with("WORLD_SIZE", "8") == "torchrun: started 8 processes" + rest);
  CHECK(refusal_with("PMI_SIZE", "1") == "accepted");
  CHECK(refusal_of([] { return hw::check_alone(), 0; }) == "accepted");
}

}  // namespace parsim::testing
