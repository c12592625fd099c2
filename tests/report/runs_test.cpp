// Tables of results, against numbers by hand.
#include "report/runs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "experiment/comparison.hpp"

namespace parsim::report {
namespace {

TEST_CASE("runs: a device's memory is in the columns that say so, by hand") {
  experiment::Request request;
  request.network = "lenet5";
  request.cluster = "star:2,device=v100-sxm2,rate=10GB/s";
  request.precision = Precision::bf16;
  request.reduce_precision = Precision::fp32;
  request.optimizer = Optimizer::adam;
  const experiment::Experiment experiment(request);
  const Document document = report_simulation(
      experiment,
      run_plan(experiment, make_plan(experiment, strategies::strategy("data", "test"))).result);
  const Table& devices = document.tables.at(1);
  const auto cell = [&](const std::string& key) {
    const auto column = std::find_if(devices.columns.begin(), devices.columns.end(),
                                     [&](const auto& known) { return known.key == key; });
    REQUIRE(column != devices.columns.end());
    return devices.rows.at(0).at(static_cast<std::size_t>(column - devices.columns.begin())).raw;
  };
  // LeNet-5 has 61,706 parameters (LeCun et al. 1998, with dense second convolution).
  constexpr int parameters = 61706;
  CHECK(cell("name") == "gpu0");
  CHECK(cell("model") == "v100-sxm2");
  CHECK(cell("weights_bytes") == std::to_string(2 * parameters));
  CHECK(cell("gradients_bytes") == std::to_string(4 * parameters));
  CHECK(cell("optimizer_state_bytes") == std::to_string(12 * parameters));
}

/// The comparison of a few strategies for LeNet-5 on two V100s, of which `memory` is free.
Document compared(const std::string& memory, const Missing& missing = {}) {
  experiment::Request request;
  request.network = "lenet5";
  request.cluster = "star:2,device=v100-sxm2,rate=10GB/s";
  request.overrides = {"devices.gpu0.memory=" + memory, "devices.gpu1.memory=" + memory};
  request.strategies = {"data", "model-even", "pipeline"};
  const experiment::Experiment experiment(request);
  return report_comparison(experiment, experiment::compare(experiment), "data", nullptr, missing);
}

TEST_CASE("runs: the answer says that the fastest plan does not follow a degree") {
  experiment::Request request;
  request.network = "gpt:layers=2,hidden=64,heads=4,seq_length=512,vocab_size=64";
  request.cluster = "star:2,device=a100-sxm4-80,rate=1GB/s,latency=50us";
  request.strategies = {"data", "tensor"};
  const auto said = [&] {
    const experiment::Experiment experiment(request);
    const Document document =
        report_comparison(experiment, experiment::compare(experiment), "data", nullptr);
    std::string all;
    for (const std::string& line : document.answer) all += line + "\n";
    for (const std::string& line : document.notes) all += line + "\n";
    return all;
  };
  CHECK(said().find("follow") == std::string::npos);
  request.given = {"--cp"};
  request.context_parallel = 2;
  CHECK(said().find("data does not follow --cp 2; the best that does: tensor, ") !=
        std::string::npos);
  CHECK(said().find("do not follow --cp 2: data\n") != std::string::npos);
  request.strategies = {"data"};
  CHECK(said().find("data does not follow --cp 2; nor does any plan that fits") !=
        std::string::npos);
}

TEST_CASE("runs: the answer is the first row, in the units of the table") {
  const Document document = compared("16GiB");
  REQUIRE(document.answer.size() >= 2);
  const Table& table = document.tables.front();
  const std::string& winner = table.rows.front().front().text;
  CHECK(table.winner == 0);
  CHECK(table.rules.empty());
  CHECK(document.answer[0].starts_with("Best: " + winner + ", tp 1 x pp "));
  CHECK(document.answer[0].find(", " + table.rows.front()[1].text + " us (90 %: ") !=
        std::string::npos);
  CHECK(document.answer[1].find(" of 16.0 GiB, ") != std::string::npos);
}

TEST_CASE("runs: rows that do not fit stand below a line, and the answer says what would fit") {
  const Document document = compared("100KiB");
  REQUIRE(!document.answer.empty());
  CHECK(document.answer[0].starts_with("No plan fits in memory. "));
  const Table& table = document.tables.front();
  CHECK(!table.winner);
  REQUIRE(table.rules.size() == 1);
  CHECK(table.rules[0] == std::pair(std::size_t{0}, std::string("does not fit in memory")));
}

TEST_CASE("runs: where rows are missing, none of those that are there is the last word") {
  const Document document = compared("100KiB", {"stopped by --time-limit 1 s", {"best"}});
  CHECK(document.answer[0].starts_with(
      "No plan so far fits in memory; without an answer yet: best. "));
}

}  // namespace
}  // namespace parsim::report
