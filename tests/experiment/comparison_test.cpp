// Strategies of the caller's own, and computations that the caller gives up.
#include "experiment/comparison.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/errors.hpp"

using namespace parsim;
using namespace parsim::experiment;

namespace {

Arguments arguments_with(const std::vector<std::string>& strategies) {
  return {.verb = "compare",
          .words = {},
          .values = {{"--network", {"lenet5"}},
                     {"--cluster", {"star:2,device=t4,rate=12GB/s,latency=1us"}},
                     {"--batch", {"8"}},
                     {"--strategy", strategies}}};
}

/// Data parallelism with `first` of eight samples on the first device.
strategies::Strategy uneven(const std::string& name, std::int64_t first) {
  return {name, "uneven", nullptr, [first](const strategies::StrategyInput& input) {
            Plan plan = strategies::plan_data(input);
            for (LayerPlan& layer : plan.layers) layer.cuts[0].sizes = {first, 8 - first};
            return plan;
          }};
}

}  // namespace

TEST_CASE("comparison: a strategy of the caller's is a row like those of the table") {
  Arguments arguments = arguments_with({"even", "data", "uneven"});
  arguments.strategies = {uneven("even", 4), uneven("uneven", 7)};
  const Experiment experiment(make_request(arguments));
  const std::vector<RunResult> rows = compare(experiment);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].strategy == "data");
  CHECK(rows[1].strategy == "even");
  CHECK(rows[1].step_time == rows[0].step_time);
  CHECK(rows[2].strategy == "uneven");
  CHECK(rows[2].step_time > rows[0].step_time);
}

TEST_CASE("comparison: rows say which degrees that are given they do not follow") {
  Arguments arguments = arguments_with({"data", "tensor"});
  arguments.values["--network"] = {"gpt:layers=2,hidden=16,heads=4,seq_length=32,vocab_size=64"};
  const auto notes = [&] {
    const Experiment experiment(make_request(arguments));
    std::map<std::string, std::string> by_strategy;
    for (const RunResult& row : compare(experiment)) {
      for (const std::string& note : row.notes) {
        if (note.starts_with("does not follow")) by_strategy[row.strategy] += note;
      }
    }
    return by_strategy;
  };
  CHECK(notes().empty());
  arguments.values["--cp"] = {"2"};
  CHECK(notes() == std::map<std::string, std::string>{{"data", "does not follow --cp 2"}});
  arguments.values["--dp"] = {"1"};
  CHECK(notes() == std::map<std::string, std::string>{{"data", "does not follow --dp 1 --cp 2"}});
  arguments.values["--batch"] = {"8"};
  arguments.values["--micro-batches"] = {"4"};
  CHECK(notes() == std::map<std::string, std::string>{
                       {"data", "does not follow --dp 1 --cp 2 --micro-batches 4"}});
  arguments.values.erase("--micro-batches");
  // A row alone, too.
  const Experiment experiment(make_request(arguments));
  const strategies::Strategy& data = strategies::strategy("data", "test");
  const std::vector<std::string> alone =
      run_plan(experiment, make_plan(experiment, data)).result.notes;
  CHECK(std::count(alone.begin(), alone.end(), "does not follow --dp 1 --cp 2") == 1);
}

TEST_CASE("comparison: an imbalance of experts is no balance, and may change nothing") {
  Arguments arguments = arguments_with({"data", "tensor"});
  arguments.values["--network"] = {
      "gpt:layers=2,hidden=16,heads=4,seq_length=32,vocab_size=64,experts=4"};
  const auto has = [](const std::vector<std::string>& lines, const char* text) {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  };
  const auto changes_nothing = [&](const Experiment& experiment) {
    std::vector<std::string> rows;
    for (const RunResult& row : compare(experiment)) {
      if (has(row.notes, "--expert-imbalance changes nothing")) rows.push_back(row.strategy);
    }
    return rows;
  };
  CHECK(changes_nothing(Experiment(make_request(arguments))).empty());
  Request mixture = make_request(arguments);
  mixture.network = "qwen3-30b-a3b:layers=1";
  CHECK(has(Experiment(mixture).warnings, "as if the router were in balance"));
  mixture.expert_imbalance = 2;
  mixture.given.insert("--expert-imbalance");
  CHECK(!has(Experiment(mixture).warnings, "balance"));
  arguments.values["--expert-imbalance"] = {"2"};
  CHECK(changes_nothing(Experiment(make_request(arguments))).size() == 2);
  arguments.values["--ep"] = {"2"};
  CHECK(changes_nothing(Experiment(make_request(arguments))).empty());
}

TEST_CASE("comparison: a plan of the caller's that is none is refused by name") {
  Arguments arguments = arguments_with({"broken"});
  arguments.strategies = {uneven("broken", 9)};
  const Experiment experiment(make_request(arguments));
  CHECK_THROWS_WITH_AS(static_cast<void>(compare(experiment)), doctest::Contains("strategy broken"),
                       InputError);
}

TEST_CASE("comparison: ends with what the caller's poll throws") {
  struct GivenUp {};
  for (const std::string strategy : {"best", "hybrid", "tensor", "hypergraph"}) {
    CAPTURE(strategy);
    Arguments arguments = arguments_with({strategy});
    int calls = 0;
    arguments.poll = [&calls] {
      if (++calls > 3) throw GivenUp{};
    };
    const Experiment experiment(make_request(arguments));
    CHECK_THROWS_AS(static_cast<void>(compare(experiment)), GivenUp);
    CHECK(calls == 4);
  }
}
