// A process for each device, connected by MPI: any valid plan's numbers are one process's.
#include <doctest/doctest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "lowering/lower.hpp"
#include "tests/hw/runnable.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

using Words = std::vector<std::string>;

/// `program` in processes that mpirun starts: on this machine, also as root and with more of them
/// than processors. The variables are set in all of them; a # in
/// them is the rank.
Finished run_with_mpi(std::size_t processes, const std::string& program, const Words& words,
                      const Words& variables = {}) {
  Words all;
  for (std::size_t rank = 0; rank < processes; ++rank) {
    if (rank > 0) all.emplace_back(":");
    all.insert(all.end(), {"-n", "1"});
    for (const std::string& variable : variables) {
      const std::size_t mark = variable.find('#');
      all.insert(all.end(), {"-x", mark == std::string::npos
                                       ? variable
                                       : variable.substr(0, mark) + std::to_string(rank)});
    }
    all.push_back(program);
    all.insert(all.end(), words.begin(), words.end());
  }
  return run_program(PARSIM_MPIRUN, all, {},
                     {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                      "OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_btl=self,vader",
                      "OMPI_MCA_btl_vader_single_copy_mechanism=none",
                      "OMPI_MCA_hwloc_base_binding_policy=none", "ASAN_OPTIONS=detect_leaks=0"});
}

/// `check` of random plans on so many devices; the last of them has parts of the model, or may be a
/// parameter server.
struct Checks {
  Words words{"check"};
  int dags = 0;
};
Checks random_checks(const TemporaryFolder& folder, std::size_t devices, std::uint64_t first,
                     std::uint64_t last) {
  const std::vector<Network> networks = tiny_networks();
  Checks checks;
  for (std::uint64_t seed = first; seed < last; ++seed) {
    const Network& network = networks[seed % networks.size()];
    if (!runs_on_hardware(network)) continue;
    const bool server = seed % 2 == 0;
    const std::size_t gpus = server ? devices - 1 : devices;
    Plan plan = with_split_states(random_plan(network, gpus, 8, seed + 100 * gpus), seed);
    for (LayerPlan& layer : plan.layers) {
      if (!server) layer.sync = {};
    }
    const ExecDag dag = lowering::lower(network, star_of(devices, "10 GB/s", "1us"), plan);
    const std::string name = std::to_string(devices) + "-" + std::to_string(seed) + ".json";
    checks.words.insert(checks.words.end(), {"--dag", folder.write(name, to_json(dag))});
    ++checks.dags;
  }
  return checks;
}

/// How many DAGs the program reports as equal.
int equal_in(const Finished& finished) {
  CAPTURE(finished.err);
  CHECK(finished.exit_code == 0);
  std::istringstream lines(finished.out);
  int equal = 0;
  for (std::string line; std::getline(lines, line);) {
    equal += line.ends_with(": equal within the tolerance") ? 1 : 0;
  }
  return equal;
}

}  // namespace

TEST_CASE("mpi: any valid plan computes what one process computes") {
  for (const std::size_t processes : {2U, 3U, 4U}) {
    const TemporaryFolder folder;
    Checks checks = random_checks(folder, processes, 16, 30);
    checks.words.insert(checks.words.end(), {"--backend", "host"});
    CHECK(equal_in(run_with_mpi(processes, PARSIM_HW, checks.words)) == checks.dags);
    CHECK(checks.dags > 5);
  }
}

#ifdef PARSIM_EMULATED
TEST_CASE("mpi: on emulated GPUs any valid plan computes the host's numbers") {
  const TemporaryFolder folder;
  // Plans of their own for each kind; with PARSIM_LONG all plans for all kinds.
  const bool all = long_tests();
  Words last;
  const Words kinds[] = {{"PARSIM_EMULATED_GPUS=4"},
                         {"PARSIM_EMULATED_GPUS=1", "NCCL_HOSTID=host#"},
                         {"PARSIM_EMULATED_GPUS=2", "PARSIM_EMULATED_NCCL=23003"}};
  std::uint64_t first = 0;
  for (Words kind : kinds) {
    Checks checks = random_checks(folder, 4, all ? 0 : first, all ? 42 : first + 8);
    first += 14;
    checks.words.insert(checks.words.end(), {"--backend", "cuda"});
    last = checks.words;
    kind.emplace_back("PARSIM_EMULATED_SEED=#");
    CHECK(checks.dags > 3);
    CHECK(equal_in(run_with_mpi(4, PARSIM_EMULATED, checks.words, kind)) == checks.dags);
  }
  const Finished refused = run_with_mpi(4, PARSIM_EMULATED, last, {"PARSIM_EMULATED_GPUS=1"});
  CHECK(refused.exit_code == 3);
  CHECK(refused.err.find("processes 0 and 1 have the same GPU, and NCCL 2.28.9 wants one for "
                         "each") != std::string::npos);
}
#endif

}  // namespace parsim::testing
