// Every option of the table: what it says is recorded in `inputs` of a result, and running the
// recorded command again says the same.
#include "experiment/options.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli.hpp"
#include "core/json.hpp"
#include "experiment/run.hpp"
#include "report/runs.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

const Words question = {"--network",
                        PARSIM_SOURCE_DIR "/tests/networks/data/hugging_face/gpt2.json",
                        "--cluster", "star:2,device=v100-sxm2,rate=1GB/s,latency=1us"};

Words and_also(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

json inputs_of(const Words& command) {
  const experiment::Experiment experiment(
      experiment::make_request(parse_command_line(command).arguments));
  return json::parse(report::inputs_json(experiment));
}

/// Options with values that are no closed set, and what they need to be accepted.
class Samples {
 public:
  Samples() {
    const experiment::Experiment experiment(
        experiment::make_request(parse_command_line(and_also({"plan"}, question)).arguments));
    const std::string plan = folder_.write(
        "plan.json",
        to_json(experiment::make_plan(experiment, strategies::strategy("data", "test")).plan));
    const std::string layout = folder_.write(
        "layout.toml", "[[stages]]\nblocks = \"0-11\"\ngroups = [[\"gpu0\"], [\"gpu1\"]]\n");
    const std::string profile = folder_.write(
        "layers.csv",
        "device,precision,samples,tp,layers,forward_s,backward_s\nv100-sxm2,fp32,1,1,block,1,2\n");
    words_ = {{"--network", {"alexnet"}},
              {"--dim", {"seq_length=16"}},
              {"--cluster", {"star:3,device=t4,rate=1GB/s,latency=1us"}},
              {"--override", {"devices.gpu0.memory=8GiB"}},
              {"--strategy", {"owt"}},
              {"--plan", {plan}},
              {"--layout", {layout}},
              {"--batch", {"48"}},
              {"--scaling", {"1,2"}},
              {"--tp", {"2"}},
              {"--pp", {"2"}},
              {"--dp", {"2"}},
              {"--parts", {"2"}},
              {"--micro-batches", {"2"}},
              {"--server", {"gpu0", "--sync", "ps"}},
              {"--bucket", {"1MiB"}},
              {"--budget", {"7"}},
              {"--seed", {"3"}},
              {"--headroom", {"10%"}},
              {"--costs", {"constant"}},
              {"--profile", {profile}},
              {"--collectives", {"ideal"}},
              {"--collective-times",
               {"all-reduce,8:" PARSIM_SOURCE_DIR "/tests/sim/data/all_reduce_8.txt",
                "--collectives", "measured"}},
              {"--nccl-version", {"2.18"}},
              {"--collective-launch", {"70us"}},
              {"--jitter", {"5%"}},
              {"--runs", {"7", "--jitter", "5%"}},
              {"--straggler", {"gpu0=2"}},
              {"--interference", {"tensor/communication=2"}},
              {"--hw-backend", {"host", "--hw"}},
              {"--hw-partition", {"64,32", "--hw"}},
              {"--hw-measured", {folder_.write("measured.json", "{}"), "--hw"}}};
  }

  /// The question of a verb with another value of the option than the default.
  [[nodiscard]] Words command(std::string_view verb, const experiment::Option& option) const {
    Words more = {std::string(option.flag)};
    if (const auto found = words_.find(option.flag); found != words_.end()) {
      more = and_also(more, found->second);
    } else if (!option.placeholder().empty()) {
      REQUIRE_MESSAGE(!option.words().empty(), option.flag, " needs a sample here");
      const std::string fallback = option.member.fallback();
      Words words = option.words();
      std::erase(words, fallback);
      more.push_back(words.back());
    }
    Words command = {std::string(verb)};
    for (std::size_t i = 0; i < question.size(); i += 2) {
      // What is asked instead of a part of the question.
      if (std::find(more.begin(), more.end(), question[i]) != more.end()) continue;
      command = and_also(command, {question[i], question[i + 1]});
    }
    return and_also(command, more);
  }

 private:
  testing::TemporaryFolder folder_;
  std::map<std::string_view, Words> words_;
};

TEST_CASE("options: every option is in the inputs of a result, and rerun obeys it") {
  const Samples samples;
  for (const std::string_view verb : {"compare", "simulate", "plan", "explain"}) {
    const json plain = inputs_of(and_also({std::string(verb)}, question));
    for (const experiment::Option& option : experiment::options()) {
      if (!option.is_for(verb) || option.group == experiment::OptionGroup::output) continue;
      CAPTURE(verb);
      CAPTURE(option.flag);
      const std::string key(option.key);
      REQUIRE(!key.empty());
      const json inputs = inputs_of(samples.command(verb, option));
      REQUIRE(inputs.contains(key));
      CHECK(inputs[key] != plain[key]);
      CHECK(inputs_of(inputs["command"].get<Words>()) == inputs);
    }
  }
}

TEST_CASE("options: the rows agree with the requests that they fill") {
  const experiment::Request request;
  for (const experiment::Option& option : experiment::options()) {
    CAPTURE(option.flag);
    CHECK(option.key.empty() ==
          (option.member.json == nullptr || option.group == experiment::OptionGroup::output));
    if (option.member.read == nullptr) continue;
    // The default is one of the words.
    const Words words = option.words();
    const std::string fallback = option.member.fallback();
    if (words.empty() || fallback.empty()) continue;
    CHECK(std::find(words.begin(), words.end(), fallback) != words.end());
  }
}

TEST_CASE("options: rerun of the program gives the same bytes with options that others lack") {
  const testing::TemporaryFolder folder;
  const Words command =
      and_also(and_also({"compare"}, question),
               {"--strategy", "layer-wise", "--degrees", "any", "--no-symmetry", "--recompute",
                "full", "--straggler", "gpu1=2", "--batch", "4", "--no-timings", "--json"});
  const testing::Finished first = testing::run_program(PARSIM_PROGRAM, command);
  CAPTURE(first.err);
  REQUIRE(first.exit_code == 0);
  const json inputs = json::parse(first.out)["results"][0]["inputs"];
  CHECK(inputs["degrees"] == "any");
  CHECK(inputs["symmetry"] == false);
  CHECK(inputs["recompute"] == "full");
  const std::string file = folder.write("result.json", first.out);
  CHECK(testing::run_program(PARSIM_PROGRAM, {"rerun", file}).out == first.out);
}

}  // namespace
}  // namespace parsim::app
