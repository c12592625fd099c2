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

bool takes(const Verb& verb, std::string_view flag) {
  const std::vector<const experiment::Option*> taken = options_of(verb);
  return std::any_of(taken.begin(), taken.end(),
                     [&](const experiment::Option* option) { return option->flag == flag; });
}

json inputs_of(const Words& command) {
  const CommandLine line = parse_command_line(command);
  if (!takes(*line.verb, "--network") || !takes(*line.verb, "--cluster")) {
    return json::parse(report::inputs_of(experiment::read_options(line.arguments)).json);
  }
  const experiment::Experiment experiment(experiment::make_request(line.arguments));
  return json::parse(report::inputs_json(experiment));
}

/// The verb with its argument, if it has one, and those parts of the question that it takes, except
/// what `instead` asks.
Words asked_of(const Verb& verb, const Words& instead) {
  Words command = {std::string(verb.name)};
  for (const Word& word : verb.words) {
    command.push_back(word.choices.empty() ? "trace.json" : word.choices.front());
  }
  for (std::size_t i = 0; i < question.size(); i += 2) {
    if (!takes(verb, question[i])) continue;
    if (std::find(instead.begin(), instead.end(), question[i]) != instead.end()) continue;
    command = and_also(command, {question[i], question[i + 1]});
  }
  return and_also(command, instead);
}

/// Options with values that are no closed set, and what they need to be accepted.
class Samples {
 public:
  Samples() {
    const experiment::Experiment experiment(
        experiment::make_request(parse_command_line(and_also({"plan"}, question)).arguments));
    const std::string plan =
        folder_.write("run.sh", "train --tensor-model-parallel-size 2 --micro-batch-size 8\n");
    const std::string layout = folder_.write(
        "layout.toml", "[[stages]]\nblocks = \"0-11\"\ngroups = [[\"gpu0\"], [\"gpu1\"]]\n");
    const std::string profile = folder_.write(
        "layers.csv",
        "device,precision,samples,tp,layers,forward_s,backward_s\nv100-sxm2,fp32,1,1,block,1,2\n");
    words_ = {
        {"--network", {"alexnet"}},
        {"--dim", {"seq_length=16"}},
        {"--cluster", {"star:3,device=t4,rate=1GB/s,latency=1us"}},
        {"--override", {"devices.gpu0.memory=8GiB"}},
        {"--strategy", {"owt"}},
        {"--plan", {plan}},
        {"--layout", {layout}},
        {"--batch", {"48"}},
        {"--scaling", {"1,2"}},
        {"--top", {"3"}},
        {"--tp", {"2"}},
        {"--pp", {"2"}},
        {"--dp", {"2"}},
        {"--vp", {"2"}},
        {"--cp", {"2", "--network", "gpt:layers=2,hidden=8,heads=2,seq_length=16"}},
        {"--cp-comm", {"a2a", "--cp", "2", "--network", "gpt:layers=2,hidden=8,heads=2"}},
        {"--ep", {"1"}},
        {"--etp",
         {"1", "--sequence-parallel", "--network", "gpt:layers=1,hidden=8,heads=2,experts=2"}},
        {"--tp-overlap", {"--sequence-parallel"}},
        {"--expert-imbalance", {"1.5", "--network", "gpt:layers=1,hidden=8,heads=2,experts=4"}},
        {"--parts", {"2"}},
        {"--speeds", {"3,1"}},
        {"--partition", {folder_.write("parts", "0\n1\n")}},
        {"--micro-batches", {"2"}},
        {"--server", {"gpu0", "--sync", "ps"}},
        {"--bucket", {"1MiB"}},
        {"--budget", {"7"}},
        {"--seed", {"3"}},
        {"--columns", {"strategy,step"}},
        {"--zero-group", {"2", "--zero", "1"}},
        {"--recompute-every",
         {"2", "--recompute", "full", "--network", "gpt:layers=2,hidden=8,heads=2"}},
        {"--headroom", {"10%"}},
        {"--precision", {"bf16"}},
        {"--optimizer", {"sgd"}},
        {"--costs", {"constant"}},
        {"--profile", {profile}},
        {"--collectives", {"ideal"}},
        {"--collective-times",
         {"all-reduce,8:" PARSIM_SOURCE_DIR "/tests/sim/data/all_reduce_8.txt", "--collectives",
          "measured"}},
        {"--nccl-version", {"2.18"}},
        {"--collective-launch", {"70us"}},
        {"--launch-interval", {"9us"}},
        {"--input-rate", {"300"}},
        {"--jitter", {"5%"}},
        {"--runs", {"7", "--jitter", "5%"}},
        {"--straggler", {"gpu0=2"}},
        {"--mtbf", {"50000h", "--checkpoint-write", "30s"}},
        {"--checkpoint-write", {"20GB/s", "--mtbf", "50000h"}},
        {"--restart", {"5min", "--mtbf", "50000h", "--checkpoint-write", "30s"}},
        {"--beside", {layout}},
        {"--interference", {"tensor/communication=2"}},
        {"--hw-backend", {"host", "--hw"}},
        {"--hw-partition", {"64,32", "--hw"}},
        {"--hw-measured", {folder_.write("measured.json", "{}"), "--hw"}},
        {"--size", {"1MiB"}},
        {"--sizes", {"1KiB..4KiB"}},
        {"--devices", {"2"}},
        {"--data", {folder_.write("rows.csv", "set\n")}},
        {"--calibrate-with", {folder_.write("steps.csv", "set\n")}}};
  }

  /// The question of a verb with another value of the option than the default.
  [[nodiscard]] Words command(const Verb& verb, const experiment::Option& option) const {
    Words more = {std::string(option.flag)};
    // A number with collective, words with other verbs.
    const bool of_another = option.flag == "--devices" && !option.words().empty();
    const auto found = words_.find(option.flag);
    if (found != words_.end() && !of_another) {
      more = and_also(more, found->second);
    } else if (!option.placeholder().empty()) {
      REQUIRE_MESSAGE(!option.words().empty(), option.flag, " needs a sample here");
      const std::string fallback = option.member.fallback();
      Words words = option.words();
      std::erase(words, fallback);
      more.push_back(words.back());
    }
    if (!takes(verb, "--hw")) std::erase(more, "--hw");  // calibrate always has hardware
    return asked_of(verb, more);
  }

 private:
  testing::TemporaryFolder folder_;
  std::map<std::string_view, Words> words_;
};

TEST_CASE("options: every option is in the inputs of a result, and rerun obeys it") {
  const Samples samples;
  for (const Verb& verb : verbs()) {
    if (!verb.computes) continue;
    const json plain = inputs_of(asked_of(verb, {}));
    for (const experiment::Option& option : experiment::options()) {
      if (!option.is_for(verb.name) || option.group == experiment::OptionGroup::output ||
          option.group == experiment::OptionGroup::work) {
        continue;
      }
      CAPTURE(verb.name);
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

TEST_CASE("options: inputs have what the verb takes and nothing else") {
  for (const Verb& verb : verbs()) {
    CAPTURE(verb.name);
    // What is asked of a network or cluster is computed; 'show' takes a name instead.
    CHECK(verb.computes == (takes(verb, "--network") || takes(verb, "--cluster")));
    if (!verb.computes) continue;
    json inputs = inputs_of(asked_of(verb, {}));
    for (const experiment::Option* option : options_of(verb))
      inputs.erase(std::string(option->key));
    for (const char* found : {"command", "verb", "attention", "launch_interval_s", "simgrid"}) {
      inputs.erase(found);
    }
    CHECK(inputs == json::object());
  }
}

TEST_CASE("options: the rows agree with the requests that they fill") {
  for (const experiment::Option& option : experiment::options()) {
    CAPTURE(option.flag);
    // Where results go, how they are printed, and who computes them is no part of a question.
    CHECK(option.key.empty() == (option.group == experiment::OptionGroup::output ||
                                 option.group == experiment::OptionGroup::work ||
                                 option.group == experiment::OptionGroup::sweep ||
                                 option.group == experiment::OptionGroup::purchase));
    CHECK((option.key.empty() || option.member.read != nullptr));
    if (option.member.read == nullptr) continue;
    // The default is one of the words.
    const Words words = option.words();
    const std::string fallback = option.member.fallback();
    if (words.empty() || fallback.empty()) continue;
    CHECK(std::find(words.begin(), words.end(), fallback) != words.end());
  }
}

/// The JSON of a command, and of its rerun with more words.
std::pair<json, json> twice(const testing::TemporaryFolder& folder, const Words& command,
                            const Words& more = {}) {
  const testing::Finished first = testing::run_program(PARSIM_PROGRAM, command, folder.folder());
  CAPTURE(command.front());
  CAPTURE(first.err);
  REQUIRE(first.exit_code == 0);
  folder.write("result.json", first.out);
  const testing::Finished again = testing::run_program(
      PARSIM_PROGRAM, and_also({"rerun", "result.json"}, more), folder.folder());
  CAPTURE(again.err);
  REQUIRE(again.exit_code == 0);
  return {json::parse(first.out), json::parse(again.out)};
}

TEST_CASE("options: rerun takes what every verb that computes printed") {
  const testing::TemporaryFolder folder;
  const Words host = {"--hw-backend", "host", "--hw-partition", "64,32", "--network", "lenet5",
                      "--batch",      "8",    "--strategy",     "data",  "--json"};
  const auto [timed, timed_again] =
      twice(folder, {"collective", "all-gather", "--cluster", question[3], "--sizes", "1KiB..4KiB",
                     "--devices", "2", "--json"});
  CHECK(timed["inputs"]["kind"] == "all-gather");
  CHECK(timed["inputs"]["sizes"] == "1KiB..4KiB");
  CHECK(timed["inputs"]["size"].is_null());
  CHECK(timed["inputs"]["devices"] == 2);
  CHECK(timed["results"].size() == 3);
  CHECK(timed_again == timed);

  const std::string rows = PARSIM_SOURCE_DIR "/tests/schemas/rows.csv";
  const auto [scored, scored_again] =
      twice(folder, {"validate", "--published", "--data", rows, "--quick", "--quiet", "--json"});
  CHECK(scored["inputs"]["published"] == true);
  CHECK(scored["inputs"]["papers"] == false);
  CHECK(scored["inputs"]["data"][0]["given"] == rows);
  CHECK(scored["inputs"]["data"][0]["fnv1a64"].is_string());
  CHECK(scored_again == scored);

  const auto [ran, ran_again] = twice(folder, and_also({"validate", "--hw"}, host));
  CHECK(ran["inputs"]["hw_partition"] == "64,32");
  CHECK(ran_again == ran);

  const auto [explained, rerun_of_explained] = twice(
      folder, and_also(and_also({"explain"}, question), {"--strategy", "data", "--batch", "2",
                                                         "--top", "2", "--no-timings", "--json"}));
  CHECK(explained["inputs"]["top"] == 2);
  CHECK(explained["verdict"] == "fits");
  CHECK(explained["fits"] == true);
  CHECK(rerun_of_explained == explained);

  // Neither is overwritten unless asked.
  auto [measured, measured_again] =
      twice(folder, and_also({"calibrate", "-o", "profile.json"}, host), {"-o", "again.json"});
  CHECK(measured_again["profile"] == "again.json");
  measured_again["profile"] = measured["profile"];
  CHECK(measured_again == measured);
  CHECK(testing::read_text(folder.path("again.json")) ==
        testing::read_text(folder.path("profile.json")));
  auto [planned, planned_again] =
      twice(folder, and_also(and_also({"plan", "-o", "plan.json"}, question),
                             {"--strategy", "owt", "--no-timings", "--json"}));
  CHECK(planned_again == json::parse(testing::read_text(folder.path("plan.json"))));
}

TEST_CASE("options: rerun refuses changed files of verbs without a network, and -o of others") {
  const testing::TemporaryFolder folder;
  const std::string cluster =
      testing::read_text(PARSIM_SOURCE_DIR "/topologies/clusters/dgx-v100.toml");
  folder.write("box.toml", cluster);
  const auto [timed, again] = twice(
      folder, {"collective", "broadcast", "--cluster", "box.toml", "--size", "1MiB", "--json"});
  CHECK(again == timed);
  const testing::Finished unused = testing::run_program(
      PARSIM_PROGRAM, {"rerun", "result.json", "-o", "plan.json"}, folder.folder());
  CHECK(unused.exit_code == 2);
  CHECK(unused.err ==
        "parsim: -o: 'result.json' records 'collective', which writes no such file; accepted: with "
        "a result of plan or calibrate\n");
  folder.write("box.toml", cluster + "\n");
  const testing::Finished changed =
      testing::run_program(PARSIM_PROGRAM, {"rerun", "result.json"}, folder.folder());
  CHECK(changed.exit_code == 2);
  CHECK(changed.err.find("'box.toml' has changed since") != std::string::npos);
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
