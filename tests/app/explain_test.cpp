#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "app/verbs.hpp"

namespace parsim {

TEST_CASE("explain: the chain's parts fill the step, every layer has a row") {
  Arguments arguments;
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
  CHECK(chain == doctest::Approx(step).epsilon(1e-9));
  CHECK(json["estimated_step_time_s"].get<double>() == doctest::Approx(step).epsilon(0.05));
  // What faster links bring stands in both outputs.
  CHECK(json["faster_links_step_s"].get<double>() <= step);
  CHECK(outcome.document.notes.back().starts_with("with every link twice as fast: "));
  CHECK(json["layers"].size() > 8);
  for (const auto& layer : json["layers"]) {
    CHECK((layer["alternative"].is_null() || layer["alternative_step_s"].get<double>() > 0));
  }
}

}  // namespace parsim
