#include "hw/launch.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "core/errors.hpp"

namespace parsim::testing {
namespace {

using Variables = std::map<std::string, std::string>;

hw::Launch launch_with(const Variables& variables) {
  return hw::launch_from([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

Variables torchrun(const std::string& rank, const std::string& size, const std::string& local) {
  return {{"RANK", rank}, {"WORLD_SIZE", size}, {"LOCAL_RANK", local}};
}
Variables open_mpi(const std::string& rank, const std::string& size, const std::string& local) {
  return {{"OMPI_COMM_WORLD_RANK", rank},
          {"OMPI_COMM_WORLD_SIZE", size},
          {"OMPI_COMM_WORLD_LOCAL_RANK", local}};
}
Variables slurm(const std::string& rank, const std::string& size, const std::string& local) {
  return {{"SLURM_PROCID", rank}, {"SLURM_NTASKS", size}, {"SLURM_LOCALID", local}};
}
Variables both(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("launch: rank, size and rendezvous place by who started the process") {
  struct Case {
    Variables variables;
    hw::Launch expected;
  };
  const std::string here = "127.0.0.1";
  const std::vector<Case> cases{
      {{}, {"", 0, 1, 0, here, 29500}},
      {torchrun("5", "8", "1"), {"torchrun", 5, 8, 1, here, 29500}},
      // torchrun's own store is at the port that it names.
      {both(torchrun("5", "8", "1"), {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
       {"torchrun", 5, 8, 1, here, 29501}},
      {both(torchrun("0", "8", "0"),
            {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", "65535"}}),
       {"torchrun", 0, 8, 0, here, 65534}},
      {both(torchrun("5", "8", "1"), {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "4711"}}),
       {"torchrun", 5, 8, 1, "node7", 4711}},
      {open_mpi("3", "4", "3"), {"Open MPI", 3, 4, 3, here, 29500}},
      {slurm("0", "2", "0"), {"Slurm", 0, 2, 0, here, 29500}},
      // A job of two tasks in which torchrun starts eight processes, or Open MPI four.
      {both(torchrun("5", "8", "1"), slurm("1", "2", "0")), {"torchrun", 5, 8, 1, here, 29500}},
      {both(open_mpi("3", "4", "3"), slurm("0", "1", "0")), {"Open MPI", 3, 4, 3, here, 29500}},
      {both(torchrun("1", "2", "1"), open_mpi("1", "2", "1")), {"torchrun", 1, 2, 1, here, 29500}},
      // An allocation without a task, and an exported size of one.
      {{{"SLURM_NTASKS", "8"}}, {"", 0, 1, 0, here, 29500}},
      {{{"WORLD_SIZE", "1"}, {"MASTER_PORT", "x"}}, {"", 0, 1, 0, here, 29500}},
  };
  for (const Case& one : cases) {
    CAPTURE(one.expected.by);
    CAPTURE(one.variables.size());
    CHECK(launch_with(one.variables) == one.expected);
  }
}

TEST_CASE("launch: what is missing, no number or contradictory is named") {
  struct Case {
    Variables variables;
    std::string message;
  };
  const std::vector<Case> cases{
      {{{"WORLD_SIZE", "4"}}, "RANK: missing; WORLD_SIZE is 4; torchrun sets both"},
      {{{"RANK", "1"}, {"LOCAL_RANK", "1"}}, "WORLD_SIZE: missing; RANK is 1; torchrun sets both"},
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}},
       "SLURM_LOCALID: missing; SLURM_PROCID is 1; Slurm sets both"},
      {torchrun("4", "4", "0"), "RANK: '4'; accepted: a whole number from 0 to 3"},
      {torchrun("-1", "4", "0"), "RANK: '-1'; accepted: a whole number from 0 to 3"},
      {torchrun("1", "4", "2"), "LOCAL_RANK: '2'; accepted: a whole number from 0 to 1"},
      {torchrun("0", "0", "0"), "WORLD_SIZE: '0'; accepted: a whole number from 1 to 1048576"},
      {torchrun("0", "2x", "0"), "WORLD_SIZE: '2x'; accepted: a whole number from 1 to 1048576"},
      {both(torchrun("0", "2", "0"), {{"MASTER_PORT", "99999"}}),
       "MASTER_PORT: '99999'; accepted: a whole number from 1 to 65535"},
      {both(torchrun("1", "4", "1"), open_mpi("1", "2", "1")),
       "OMPI_COMM_WORLD_SIZE: torchrun says process 1 of 4, Open MPI says 1 of 2; accepted: "
       "processes started by one of the two"},
  };
  for (const Case& one : cases) {
    CHECK_THROWS_WITH_AS((void)launch_with(one.variables), one.message.c_str(), InputError);
  }
}

TEST_CASE("launch: one process for each device of the plan, or one for all") {
  const hw::Launch four = launch_with(torchrun("0", "4", "0"));
  hw::check_size(four, 4);
  hw::check_size({}, 7);
  CHECK_THROWS_WITH_AS(
      hw::check_size(four, 2),
      "torchrun: started 4 processes, and the largest plan uses 2 devices; accepted: one "
      "process for each device, or one for all",
      InputError);
}

}  // namespace parsim::testing
