// Measured collectives, and algorithms that cannot run, through the command line.
#include "experiment/communication.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiment/run.hpp"
#include "report/runs.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {
namespace {

using testing::Finished;
using testing::TemporaryFolder;

Finished ran(const std::vector<std::string>& words, const std::string& directory = {}) {
  return testing::run_program(PARSIM_PROGRAM, words, directory);
}

std::string example_file(const std::string& name) {
  return testing::read_text(PARSIM_SOURCE_DIR "/tests/sim/data/" + name);
}

const std::string nvswitch_a100 = "nvswitch:8,device=a100-sxm4-40,rate=240GB/s";

TEST_CASE("communication: --collective-times is a file, of a kind, over so many ranks") {
  const TemporaryFolder folder;
  CHECK(collective_file("log.txt").path == "log.txt");
  const CollectiveFile named = collective_file("all-gather,12:a:b.txt");
  CHECK(named.path == "a:b.txt");
  CHECK(named.hint.kind == CollectiveKind::all_gather);
  CHECK(named.hint.ranks == 12);
  CHECK_FALSE(collective_file("broadcast:x").hint.ranks);
  // A file that is there is meant, whatever its name.
  const std::string odd = folder.write("broadcast:x", "");
  CHECK(collective_file(odd).path == odd);
}

TEST_CASE("communication: of point-to-point messages only the links count") {
  sim::SimOptions options;
  options.engine = sim::Engine::fast;
  options.fidelity = sim::Fidelity::p2p;
  Cluster cluster;
  CHECK(communication_model(options, cluster) ==
        "point-to-point messages without NCCL's costs, simulated by the fast engine");
  options.fidelity = sim::Fidelity::hops;
  options.collectives = sim::CollectiveCost::nccl;
  CHECK(communication_model(options, cluster) ==
        "NCCL collectives hop by hop, simulated by the fast engine");
  cluster.models.emplace_back().name = "mi300x";
  CHECK(communication_model(options, cluster) ==
        "RCCL (with constants borrowed from NCCL) collectives hop by hop, simulated by the fast "
        "engine");
}

TEST_CASE("communication: a collective takes the measured time, and says so") {
  const std::string times = PARSIM_SOURCE_DIR "/tests/sim/data/all_reduce_8.txt";
  const auto rows = [&](const std::string& kind) {
    const Finished done = ran({"collective", kind, "--cluster", nvswitch_a100, "--size", "1MiB",
                               "--collectives", "measured", "--collective-times", times, "--json"});
    CHECK(done.exit_code == 0);
    CHECK(done.err == (kind == "all-reduce"
                           ? ""
                           : "parsim: warning: no measured times of all-gather over "
                             "8 on these machines: NCCL's model instead\n"));
    return nlohmann::json::parse(done.out)["results"];
  };
  CHECK(rows("all-reduce")[0]["time_s"].get<double>() == testing::approx(27.98e-6).epsilon(1e-6));
  CHECK(rows("all-reduce")[0]["algorithm"] == "measured");
  CHECK(rows("all-gather")[0]["algorithm"] != "measured");
}

TEST_CASE("communication: a comparison says what was measured, warns of the rest and reruns") {
  const TemporaryFolder folder;
  folder.write("reduce.txt", example_file("all_reduce_8.txt"));
  const std::vector<std::string> command{"compare",
                                         "--network",
                                         "lenet5",
                                         "--cluster",
                                         nvswitch_a100,
                                         "--strategy",
                                         "data",
                                         "--strategy",
                                         "model-even",
                                         "--strategy",
                                         "pipeline",
                                         "--pp",
                                         "4",
                                         "--collectives",
                                         "measured",
                                         "--collective-times",
                                         "all-reduce,8:reduce.txt",
                                         "--no-timings",
                                         "--json"};
  const Finished first = ran(command, folder.folder());
  REQUIRE(first.exit_code == 0);
  const nlohmann::json result = nlohmann::json::parse(first.out);
  const nlohmann::json& inputs = result["results"][0]["inputs"];
  CHECK(inputs["collectives"] == "measured");
  CHECK(inputs["collective_times"][0]["given"] == "reduce.txt");
  CHECK(inputs["collective_times"][0]["name"] == "all-reduce,8:reduce.txt");
  for (const nlohmann::json& row : result["results"]) {
    CAPTURE(row["strategy"].get<std::string>());
    const nlohmann::json& sources = row["communication_sources"];
    const double measured = sources["measured"], library = sources["library"];
    if (row["strategy"] == "data") CHECK(measured == 1);
    if (row["strategy"] == "pipeline") CHECK(sources["library"] == 1);
    if (row["strategy"] == "model-even") {
      CHECK(library > 0);
      CHECK(row["warnings"].dump().find("NCCL's model instead") != std::string::npos);
    }
  }
  CHECK(first.err.find("parsim: warning: model-even: no measured times of ") != std::string::npos);
  folder.write("result.json", first.out);
  CHECK(ran({"rerun", "result.json"}, folder.folder()).out == first.out);
  folder.write("reduce.txt", example_file("all_reduce_8.txt") + "\n");
  const Finished changed = ran({"rerun", "result.json"}, folder.folder());
  CHECK(changed.exit_code == 2);
  CHECK(changed.err.find("'reduce.txt' has changed since") != std::string::npos);
}

TEST_CASE("communication: a table faster than the links breaks no bound") {
  const TemporaryFolder folder;
  for (const char* kind :
       {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all"}) {
    CAPTURE(kind);
    folder.write("fast.csv",
                 "collective,n_gpus,size_bytes,time_us_outofplace\nall_reduce,4,1024,1\n"
                 "all_reduce,4,1048576,2\nall_gather,4,1024,1\nall_gather,4,1048576,2\n"
                 "reduce_scatter,4,1024,1\nreduce_scatter,4,1048576,2\nbroadcast,4,1024,1\n"
                 "broadcast,4,1048576,2\nalltoall,4,1024,1\nalltoall,4,1048576,2\n");
    const Finished done =
        ran({"collective", kind, "--cluster", "star:4,device=v100-sxm2,rate=1GB/s,latency=1us",
             "--sizes", "64KiB..4MiB", "--collectives", "measured", "--collective-times",
             folder.path("fast.csv")});
    CHECK(done.exit_code == 0);
    CHECK(done.err.empty());
  }
}

TEST_CASE("communication: collectives that cannot obey are named with the reason") {
  // Gradients of convolutions are summed up, which a tree can; between layers owt gathers, too.
  const Finished some = ran({"simulate", "--network", "lenet5", "--cluster", nvswitch_a100,
                             "--strategy", "owt", "--algorithm", "tree", "--json"});
  CHECK(some.exit_code == 0);
  CHECK(some.err.find("collectives do not obey --algorithm: ") != std::string::npos);
  CHECK(nlohmann::json::parse(some.out)["warnings"].dump().find("do not obey") !=
        std::string::npos);
  const Finished all = ran({"simulate", "--network", "lenet5", "--cluster", nvswitch_a100,
                            "--strategy", "data", "--algorithm", "tree"});
  CHECK(all.exit_code == 0);
  CHECK(all.err.empty());
}

TEST_CASE("communication: where SimGrid would take long, the fast engine simulates and is named") {
  Request request;
  request.network = "lenet5";
  request.cluster = "nvswitch:40,device=v100-sxm2,rate=25GB/s";
  request.batch = 64;
  request.strategies = {"owt"};
  const auto engine = [&](sim::Engine asked) {
    request.sim.engine = asked;
    const Experiment experiment(request);
    const RunResult result =
        run_plan(experiment, make_plan(experiment, strategies::strategy("owt", "test"))).result;
    const report::Document document = report::report_simulation(experiment, result);
    const std::vector<std::string>& notes = document.notes;
    const bool head = std::any_of(document.head.begin(), document.head.end(), [](const auto& line) {
      return line.ends_with("simulated by the fast engine");
    });
    CHECK(head == (result.engine == sim::Engine::fast));
    const bool noted = std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
      return note.starts_with("owt: simulated by the fast engine (equal to SimGrid");
    });
    return std::pair{result.engine, noted};
  };
  CHECK(engine(sim::Engine::automatic) == std::pair{std::optional(sim::Engine::simgrid), false});
  CHECK(engine(sim::Engine::fast) == std::pair{std::optional(sim::Engine::fast), false});
  request.cluster = "nvswitch:180,device=v100-sxm2,rate=25GB/s";
  request.batch = 360;
  CHECK(engine(sim::Engine::automatic) == std::pair{std::optional(sim::Engine::fast), true});
}

}  // namespace
}  // namespace parsim::experiment
