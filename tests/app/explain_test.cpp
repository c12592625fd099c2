#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/verbs.hpp"
#include "tests/support/approx.hpp"

namespace parsim::app {

TEST_CASE("explain: the chain's parts fill the step, every layer has a row") {
  experiment::Arguments arguments;
  arguments.verb = "explain";
  arguments.values = {{"--network", {"lenet5"}},
                      {"--cluster", {"star:4,device=p100-sxm2,rate=5GB/s,latency=1us"}},
                      {"--budget", {"50"}},
                      {"--quiet", {""}}};
  const Outcome outcome = run_explain(arguments);
  CHECK(outcome.exit_code == ExitCode::ok);
  const auto json = nlohmann::json::parse(outcome.document.json);
  CHECK(json["strategy"] == "best");
  double chain = 0;
  for (const auto& share : json["chain"]) chain += share["time_s"].get<double>();
  const double step = json["step_time_s"].get<double>();
  CHECK(std::abs(chain / step - 1) < 1e-9);
  // From the peak to the step; the first part is the share that MFU is.
  double waterfall = 0;
  for (const auto& part : json["waterfall"]) waterfall += part["time_s"].get<double>();
  CHECK(std::abs(waterfall / step - 1) < 1e-9);
  CHECK(json["waterfall"][0]["part"] == "peak");
  CHECK(std::abs(json["waterfall"][0]["time_s"].get<double>() / step - json["mfu"].get<double>()) <
        1e-12);
  CHECK(json["hfu"] == json["mfu"]);
  CHECK(std::abs(json["estimated_step_time_s"].get<double>() / step - 1) < 0.05);
  // What faster links bring stands in both outputs.
  CHECK(json["faster_links_step_s"].get<double>() <= step);
  CHECK(outcome.document.notes.back().starts_with("with every link twice as fast: "));
  CHECK(json["layers"].size() > 8);
  // The table says by how much the step changes, JSON the step.
  const auto& tables = outcome.document.tables;
  const auto found = std::find_if(tables.begin(), tables.end(),
                                  [](const report::Table& one) { return one.title == "layers"; });
  REQUIRE(found != tables.end());
  const report::Table& table = *found;
  std::size_t change = 0;
  while (table.columns.at(change).key != "alternative_change") ++change;
  REQUIRE(table.rows.size() == json["layers"].size());
  for (std::size_t l = 0; l < table.rows.size(); ++l) {
    const auto& layer = json["layers"][l];
    if (layer["alternative"].is_null()) continue;
    const double other = layer["alternative_step_s"].get<double>();
    CHECK(other > 0);
    CHECK(std::abs(std::stod(table.rows[l][change].raw) - (other / step - 1)) < 1e-9);
  }
}

TEST_CASE("explain: a host that is slow to launch takes its time for every kernel") {
  experiment::Arguments arguments;
  arguments.verb = "explain";
  arguments.values = {{"--network", {"lenet5"}},
                      {"--cluster", {"star:1,device=p100-sxm2,rate=5GB/s,latency=1us"}},
                      {"--strategy", {"data"}},
                      {"--quiet", {""}}};
  const auto alone = nlohmann::json::parse(run_explain(arguments).document.json);
  const double kernels = alone["launches"]["kernels"].get<double>();
  CHECK(alone["launches"]["device"] == "gpu0");
  CHECK(kernels > 30);
  arguments.values["--launch-interval"] = {"1ms"};
  const auto slow = nlohmann::json::parse(run_explain(arguments).document.json);
  CHECK(slow["step_time_s"] == testing::approx(kernels * 1e-3));
  // From which interval on a step waits does not depend on the interval that it has.
  const auto limit = [&] {
    for (const std::string& note : run_explain(arguments).document.notes) {
      const std::size_t at = note.find("longer than ");
      if (at != std::string::npos) return std::stod(note.substr(at + 12));
    }
    return 0.0;
  };
  const double waits_from = limit();
  arguments.values.erase("--launch-interval");
  CHECK(waits_from == testing::approx(limit()).epsilon(0.02));
  // A host that is faster than the device on the whole never keeps it waiting.
  arguments.values["--launch-interval"] = {"1ns"};
  const auto fast = nlohmann::json::parse(run_explain(arguments).document.json);
  CHECK(fast["step_time_s"] == testing::approx(alone["step_time_s"].get<double>()));
}

TEST_CASE("explain: --top leaves the layers with the most work, in their order") {
  experiment::Arguments arguments;
  arguments.verb = "explain";
  arguments.values = {{"--network", {"lenet5"}},
                      {"--cluster", {"star:2,device=p100-sxm2,rate=5GB/s,latency=1us"}},
                      {"--strategy", {"data"}},
                      {"--quiet", {""}}};
  const auto all = nlohmann::json::parse(run_explain(arguments).document.json)["layers"];
  arguments.values["--top"] = {"3"};
  const report::Document document = run_explain(arguments).document;
  const auto top = nlohmann::json::parse(document.json)["layers"];
  REQUIRE(top.size() == 3);
  double least = 1e9;
  std::size_t next = 0;
  for (const auto& layer : all) {
    if (next < 3 && layer == top[next]) {
      ++next;
      least = std::min(least, layer["work_s"].get<double>());
    }
  }
  CHECK(next == 3);
  const auto more = std::count_if(all.begin(), all.end(), [&](const auto& layer) {
    return layer["work_s"].template get<double>() > least;
  });
  CHECK(more == 2);
}

TEST_CASE("explain: says how much was simulated and left out, and how a parameter server works") {
  experiment::Arguments arguments;
  arguments.verb = "explain";
  arguments.values = {{"--network", {"lenet5"}},
                      {"--cluster", {"star:36,device=p100-sxm2,rate=5GB/s,latency=1us"}},
                      {"--strategy", {"data"}},
                      {"--batch", {"72"}},
                      {"--quiet", {""}}};
  const auto said = [&](std::string_view words) {
    const std::vector<std::string> notes = run_explain(arguments).document.notes;
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
      return note.find(words) != std::string::npos;
    });
  };
  CHECK(said("were simulated: each of the others is equal to one of them"));
  constexpr std::string_view not_asked =
      "not asked for other splits, because they search: pipeline, hybrid, tensor, layer-wise, "
      "hypergraph";
  CHECK(said(not_asked));
  CHECK(!said("one worker at a time"));
  arguments.values["--no-symmetry"] = {""};
  CHECK(!said("were simulated"));
  arguments.values["--sync"] = {"ps"};
  CHECK(said("one worker at a time"));
  // Searches take many times as long as the plan that is explained, on few devices, too.
  arguments.values["--cluster"] = {"star:2,device=p100-sxm2,rate=5GB/s,latency=1us"};
  CHECK(said(not_asked));
}

}  // namespace parsim::app
