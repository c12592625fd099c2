// The default of attention follows the devices.
#include "experiment/attention.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "networks/networks.hpp"
#include "tests/support/program.hpp"
#include "topologies/topologies.hpp"

namespace parsim::testing {
namespace {

using nlohmann::json;

const std::string gpt = "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=100";

Finished step(const std::string& cluster, const std::string& network = gpt,
              std::vector<std::string> more = {}) {
  std::vector<std::string> words{"simulate", "--network",    network, "--cluster",
                                 cluster,    "--strategy",   "data",  "--batch",
                                 "4",        "--no-timings", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return run_program(PARSIM_PROGRAM, words);
}

json attention_in(const Finished& run) {
  REQUIRE(run.exit_code == 0);
  return json::parse(run.out)["inputs"]["attention"];
}

constexpr const char* old = "star:2,device=v100-sxm2,rate=10GB/s";
constexpr const char* turing = "star:2,device=t4,rate=10GB/s";
constexpr const char* mixed = "star:2,device=v100-sxm2*1+a100-pcie*1,rate=10GB/s";

TEST_CASE("attention: eager below compute capability 7.5, unless the user asks for it") {
  const json eager = {{"kernels", "eager"}, {"by_default", true}};
  const json fused = {{"kernels", "fused"}, {"by_default", true}};
  CHECK(attention_in(step(old)) == eager);
  CHECK(attention_in(step(turing)) == fused);
  // One new GPU decides for all: a layer is the same everywhere.
  CHECK(attention_in(step(mixed)) == fused);
  CHECK(attention_in(step(old, gpt + ",attention=fused")) ==
        json{{"kernels", "fused"}, {"by_default", false}});
  CHECK(attention_in(step(turing, gpt + ",attention=eager")) ==
        json{{"kernels", "eager"}, {"by_default", false}});
  CHECK(attention_in(step(old, "lenet5")).is_null());
}

TEST_CASE("attention: a warning names the default and the device that decides it") {
  CHECK(step(old).err.find("attention is eager, the default for v100-sxm2 (compute capability 7.0; "
                           "fused kernels need 7.5): its scores are written") != std::string::npos);
  CHECK(
      step(mixed).err.find("attention is fused on all GPUs, also on v100-sxm2 (compute capability "
                           "7.0; fused kernels need 7.5), which are taken to run PyTorch's "
                           "memory-efficient kernel") != std::string::npos);
  CHECK(step(turing).err.find("attention") == std::string::npos);
  CHECK(step(old, gpt + ",attention=eager").err.find("attention is eager: its scores") !=
        std::string::npos);
  CHECK(step(old, gpt + ",attention=fused").err.find("attention") == std::string::npos);
}

TEST_CASE("attention: a default in a result runs again to the same bytes") {
  const TemporaryFolder folder;
  const Finished first = step(old);
  CHECK(run_program(PARSIM_PROGRAM, {"rerun", folder.write("result.json", first.out)}).out ==
        first.out);
}

TEST_CASE("attention: a plan keeps what it was made with, on newer and on older devices") {
  const TemporaryFolder folder;
  for (const auto& [made_on, run_on] : {std::pair{old, turing}, std::pair{turing, old}}) {
    const std::string plan = folder.path("plan.json");
    REQUIRE(run_program(PARSIM_PROGRAM, {"plan", "--network", gpt, "--cluster", made_on,
                                         "--strategy", "data", "--batch", "4", "-o", plan})
                .exit_code == 0);
    const Finished run =
        run_program(PARSIM_PROGRAM, {"simulate", "--plan", plan, "--cluster", run_on, "--json"});
    CHECK(attention_in(run)["kernels"] == (made_on == old ? "eager" : "fused"));
  }
}

TEST_CASE(
    "attention: of a config.json, eager and sdpa are choices, without an entry the GPUs decide") {
  const TemporaryFolder folder;
  const auto config = [&](const std::string& more) {
    return folder.write("config.json",
                        "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, "
                        "\"n_positions\": 32, \"vocab_size\": 100" +
                            more + "}");
  };
  CHECK(attention_in(step(old, config("")))["kernels"] == "eager");
  CHECK(attention_in(step(old, config(", \"attn_implementation\": \"sdpa\"")))["kernels"] ==
        "fused");
  CHECK(attention_in(step(turing, config("")))["kernels"] == "fused");
  CHECK(attention_in(step(turing, config(", \"attn_implementation\": \"eager\"")))["kernels"] ==
        "eager");
}

TEST_CASE("attention: what has no compute capability is not too old") {
  CHECK(experiment::too_old_for_fused_attention(
            topologies::load_cluster("star:2,device=mi300x", "test")) == nullptr);
  CHECK(
      experiment::too_old_for_fused_attention(topologies::load_cluster("star:2,device=k80", "test"))
          ->name == "k80");
}

TEST_CASE("precision: a warning says where fp16 would be much faster than bf16") {
  const std::string advice =
      "v100-sxm2 has no tensor cores for bf16: at most 15.7 TFLOP/s, with "
      "fp16 125 TFLOP/s";
  CHECK(step(mixed, gpt, {"--precision", "bf16"}).err.find(advice) != std::string::npos);
  CHECK(step(mixed, gpt, {"--precision", "fp16"}).err.find("tensor cores") == std::string::npos);
  CHECK(step("star:2,device=a100-pcie,rate=10GB/s", gpt, {"--precision", "bf16"})
            .err.find("tensor cores") == std::string::npos);
}

}  // namespace
}  // namespace parsim::testing
