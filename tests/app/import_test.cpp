// parsim import: the answer, the JSON, the profile that it writes, and what it refuses.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/profile.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/kineto_writer.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

using nlohmann::json;
using testing::Finished;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

const Words traced_run = {
    "--network", "mlp", "--cluster",  "star:2,device=t4,rate=12GB/s,latency=1us",
    "--batch",   "128", "--strategy", "data"};

Finished import_trace(const TemporaryFolder& folder, const Words& more,
                      const Words& asked = traced_run) {
  Words command = {"import", "kineto", "trace.json"};
  command.insert(command.end(), asked.begin(), asked.end());
  command.insert(command.end(), more.begin(), more.end());
  return testing::run_program(PARSIM_PROGRAM, command, folder.folder());
}

TEST_CASE("import: the first line says both MFUs and where the points went") {
  const TemporaryFolder folder;
  folder.write("trace.json", testing::mlp_trace().text());
  const Finished done = import_trace(folder, {"--json"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  const json result = json::parse(done.out);
  CHECK(result["measured_step_time_s"].get<double>() == testing::approx(310e-6).epsilon(1e-9));
  CHECK(result["steps"] == 3);
  CHECK(result["device"] == "gpu1");
  CHECK(result["inputs"]["trace"] == "trace.json");
  CHECK(result["notes"] == json::array({"the trace is of 'NVIDIA H100 80GB HBM3', that is "
                                        "h100-sxm5, and compared with gpu1, a t4"}));
  Words larger = traced_run;
  larger[3] = "star:4,device=h100-sxm5,rate=12GB/s,latency=1us";
  CHECK(json::parse(import_trace(folder, {"--json"}, larger).out)["notes"] ==
        json::array({"the trace is of a job of 2 ranks, and compared with a step of "
                     "'star:4,device=h100-sxm5,rate=12GB/s,latency=1us', 4 GPUs"}));
  double points = 0, predicted = 0, measured = 0;
  for (const json& part : result["parts"]) {
    points += part["mfu_points"].get<double>();
    predicted += part["predicted_s"].get<double>();
    measured += part["measured_s"].get<double>();
  }
  CHECK(measured == testing::approx(310e-6).epsilon(1e-9));
  CHECK(predicted == testing::approx(result["predicted_step_time_s"].get<double>()).epsilon(1e-9));
  CHECK(points == testing::approx(result["predicted_mfu"].get<double>() -
                                  result["measured_mfu"].get<double>())
                      .epsilon(1e-9));

  REQUIRE(result["modules"].size() == 5);
  CHECK(result["modules"][0]["path"] == "MLP_0/Linear_0");
  CHECK(result["modules"][0]["measured_s"].get<double>() == testing::approx(45e-6).epsilon(1e-9));

  // The trace is faster than two T4s are predicted to be.
  const std::string text = import_trace(folder, {}).out;
  CHECK(text.substr(0, text.find('\n')).starts_with("measured 28.5 % MFU (0.310 ms), predicted "));
  CHECK(text.find("): the gained points are ") < text.find('\n'));
  CHECK(text.find("; lost again: ") < text.find('\n'));
}

TEST_CASE("import: its profile is one that --profile reads, and rerun makes the same result") {
  const TemporaryFolder folder;
  folder.write("trace.json", testing::mlp_trace().text());
  const Finished done = import_trace(folder, {"-o", "profile.json", "--json"});
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  const json result = json::parse(done.out);
  CHECK(result["kernels"] == 12);
  const Profile profile =
      profile_from_json(testing::read_text(folder.path("profile.json")), "profile.json");
  CHECK(profile.kernels.size() == 12);
  CHECK(profile.machine.cluster.models.at(0).name == "t4");

  // Products and element-wise kernels are now those of the trace.
  const Finished again = import_trace(folder, {"--profile", "profile.json", "--json"});
  CAPTURE(again.err);
  REQUIRE(again.exit_code == 0);
  const json calibrated = json::parse(again.out);
  for (const json& part : calibrated["parts"]) {
    if (part["part"] != "products" && part["part"] != "element_wise") continue;
    CHECK(part["predicted_s"].get<double>() ==
          testing::approx(part["measured_s"].get<double>()).epsilon(1e-9));
  }

  folder.write("result.json", done.out);
  json once = json::parse(
      testing::run_program(PARSIM_PROGRAM, {"rerun", "result.json"}, folder.folder()).out);
  CHECK(once["profile"].is_null());  // files are not overwritten unless asked
  once["profile"] = result["profile"];
  CHECK(once == result);
}

TEST_CASE("import: refusals say in one sentence what is accepted") {
  const TemporaryFolder folder;
  testing::KinetoWriter trace = testing::mlp_trace();
  folder.write("trace.json", trace.text());
  const auto refused = [&](const Words& more, const Words& asked = traced_run) {
    const Finished done = import_trace(folder, more, asked);
    CHECK(done.exit_code == 2);
    CHECK(done.out.empty());
    return done.err;
  };
  const Words no_plan(traced_run.begin(), traced_run.end() - 2);
  CHECK(refused({}, no_plan) ==
        "parsim: --strategy: missing; accepted: the plan of the traced run, by --strategy with its "
        "degrees, --layout or --plan\n");
  CHECK(refused({"--strategy", "owt"}) ==
        "parsim: --strategy: given 2 times; accepted: one name\n");
  CHECK(refused({"--precision", "bf16"}) ==
        "parsim: --precision: bf16, but matrix products of trace.json are in fp32; accepted: fp32 "
        "or tf32\n");
  // A step that no GPU could do in this time.
  Words large = traced_run;
  large[5] = "100000";
  CHECK(refused({}, large).starts_with("parsim: trace.json: a step of 0.310 ms, "));
  CHECK(refused({}, large).find(
            " % MFU of t4; accepted: network, batch, precision (tf32 where PyTorch has it on), "
            "cluster and plan of the traced run\n") != std::string::npos);
  // Winograd's algorithm leaves out most products of convolutions.
  Words images = traced_run;
  images[1] = "alexnet";
  images[5] = "2";
  const Finished above = import_trace(folder, {"--json"}, images);
  REQUIRE(above.exit_code == 0);
  CHECK(json::parse(above.out)["measured_mfu"].get<double>() > 1.5);
  images[5] = "8";
  CHECK(refused({}, images).starts_with("parsim: trace.json: a step of 0.310 ms, "));
  // Another batch has no shape of the trace.
  Words other = traced_run;
  other[5] = "64";
  CHECK(refused({"-o", "profile.json"}, other)
            .starts_with("parsim: -o: 'trace.json' has no kernel of a shape that the plan has; "));
  CHECK(folder.names() == Words{"trace.json"});
  trace.head["distributedInfo"]["rank"] = 2;
  folder.write("trace.json", trace.text());
  CHECK(refused({}).starts_with("parsim: trace.json: the trace of rank 2; accepted: ranks 0 to 1"));
  const Finished unknown = testing::run_program(
      PARSIM_PROGRAM, {"import", "nsys", "trace.json", "--network", "mlp"}, folder.folder());
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.find("'nsys'") != std::string::npos);
  CHECK(unknown.err.find("kineto") != std::string::npos);
}

}  // namespace
}  // namespace parsim::app
