// compare in several processes and within a time: the same bytes, and what is known.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

/// On the smallest cluster, with strategies of the caller's.
experiment::Arguments question_with(const std::vector<strategies::Strategy>& own,
                                    const Words& strategies) {
  return {.verb = "compare",
          .words = {},
          .values = {{"--network", {"lenet5"}},
                     {"--cluster", {"star:2,device=t4,rate=12GB/s,latency=1us"}},
                     {"--batch", {"8"}},
                     {"--quiet", {""}},
                     {"--jobs", {"2"}},
                     {"--strategy", strategies}},
          .strategies = own};
}

strategies::Strategy own(const std::string& name, void (*act)()) {
  return {name, "acts", nullptr, [act](const strategies::StrategyInput& input) {
            act();
            return strategies::plan_data(input);
          }};
}

const Words job = {"--network",  "mlp",  "--cluster",  "star:2,device=t4,rate=12GB/s,latency=1us",
                   "--strategy", "data", "--strategy", "pipeline",
                   "--strategy", "best", "--strategy", "layer-wise",
                   "--budget",   "20"};
const Words failing = {"--micro-batches", "3"};
const Words unfit = {"--override", "devices.gpu0.memory=16MiB",
                     "--override", "devices.gpu1.memory=16MiB",
                     "--strategy", "hypergraph"};

const Words mixed = {"--network",  "gpt:layers=4,hidden=256,heads=8,seq_length=128,vocab_size=1024",
                     "--cluster",  "star:4,device=a100-sxm4-80*2+v100-sxm2-32*2,rate=10GB/s",
                     "--strategy", "best",
                     "--batch",    "8"};

testing::Finished compare(const Words& variant, const Words& more) {
  Words words{"compare", "--no-timings", "--quiet"};
  for (const Words& part : {job, variant, more}) {
    words.insert(words.end(), part.begin(), part.end());
  }
  return testing::run_program(PARSIM_PROGRAM, words);
}

TEST_CASE("jobs: the bytes are those of one process, with rows that do not fit or have no plan") {
  for (const Words& variant : {failing, unfit}) {
    for (const std::string format : {"table", "json", "csv"}) {
      CAPTURE(format);
      const testing::Finished alone = compare(variant, {"--format", format, "--jobs", "1"});
      if (format == "json") {
        const json rows = json::parse(alone.out).at("results");
        bool errors = false, over = false;
        for (const json& row : rows) {
          errors = errors || !row.at("error").is_null();
          over = over || (row.at("error").is_null() && row.at("fits") == false);
        }
        CHECK(errors == (variant == failing));
        CHECK(over == (variant == unfit));
      }
      for (const char* jobs : {"2", "7"}) {
        if (format == "table" && variant == unfit) continue;  // the time
        CHECK(compare(variant, {"--format", format, "--jobs", jobs}) == alone);
      }
    }
  }
}

TEST_CASE("jobs: best searches in several processes, and finds the same") {
  const auto compared = [](const char* jobs) {
    Words words{"compare", "--no-timings", "--quiet", "--json", "--jobs", jobs};
    words.insert(words.end(), mixed.begin(), mixed.end());
    return testing::run_program(PARSIM_PROGRAM, words);
  };
  const testing::Finished alone = compared("1");
  CHECK(json::parse(alone.out).at("results").size() == 1);
  for (const char* jobs : {"2", "7"}) CHECK(compared(jobs) == alone);
}

TEST_CASE("jobs: a process that dies costs its strategy's row") {
  const Outcome outcome = run_compare(question_with(
      {own("dies", [] { ::kill(::getpid(), SIGKILL); })}, {"data", "owt", "dies", "best"}));
  const json rows = json::parse(outcome.document.json).at("results");
  REQUIRE(rows.size() == 4);
  for (const json& row : rows) {
    const bool dead = row.at("strategy") == "dies";
    CHECK(row.at("error") == (dead ? json("not finished: killed by signal 9") : json(nullptr)));
  }
  CHECK(outcome.exit_code == ExitCode::unfinished);
  const Words& answer = outcome.document.answer;
  CHECK(std::find(answer.begin(), answer.end(), "dies: not finished: killed by signal 9") !=
        answer.end());
  CHECK_THROWS_WITH_AS(static_cast<void>(run_compare(question_with(
                           {own("dies", [] { ::kill(::getpid(), SIGKILL); })}, {"dies"}))),
                       "not finished: killed by signal 9", RefusedByMachine);
}

TEST_CASE("jobs: errors in a worker end the program as they do without") {
  CHECK_THROWS_WITH_AS(static_cast<void>(run_compare(question_with(
                           {own("wrong", [] { throw BrokenInvariant("wrong"); })}, {"wrong"}))),
                       "wrong", BrokenInvariant);
  CHECK_THROWS_WITH_AS(static_cast<void>(run_compare(question_with(
                           {own("stuck", [] { throw SimulationError("stuck"); })}, {"stuck"}))),
                       "stuck", SimulationError);
}

TEST_CASE("time limit: what is known then is the answer, and says what is missing") {
  const auto sleeps = own("sleeps", [] { ::sleep(600); });
  experiment::Arguments arguments = question_with({sleeps}, {"data", "owt", "sleeps"});
  arguments.values["--time-limit"] = {"3s"};
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run_compare(arguments);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  const json result = json::parse(outcome.document.json);
  CHECK(result.at("results").size() == 2);
  CHECK(result.at("missing") ==
        json{{"reason", "stopped by --time-limit 3s"}, {"strategies", {"sleeps"}}});
  CHECK(outcome.document.answer.back() ==
        "stopped by --time-limit 3s after 2 of 3 strategies; missing: sleeps");
  CHECK(outcome.exit_code == ExitCode::ok);
  // One that is not reached changes nothing.
  arguments = question_with({}, {"data", "owt"});
  const json unlimited = json::parse(run_compare(arguments).document.json);
  arguments.values["--time-limit"] = {"1h"};
  const json limited = json::parse(run_compare(arguments).document.json);
  CHECK_FALSE(limited.contains("missing"));
  CHECK(limited.at("best") == unlimited.at("best"));
}

TEST_CASE("time limit: best answers with the best plan so far") {
  experiment::Arguments arguments = question_with({}, {"best"});
  arguments.values["--budget"] = {"1000000000"};
  arguments.values["--time-limit"] = {"8s"};
  const report::Document document = run_compare(arguments).document;
  const json result = json::parse(document.json);
  CHECK_FALSE(result.contains("missing"));
  REQUIRE(result.at("results").size() == 1);
  const json& best = result.at("results")[0];
  CHECK(best.at("step_time_s") > 0);
  // What is missing depends on the machine.
  const std::string said = "stopped by the time limit; not searched, or not to the end: ";
  const auto& notes = best.at("notes");
  CHECK(std::any_of(notes.begin(), notes.end(),
                    [&](const json& note) { return note.get<std::string>().starts_with(said); }));
  CHECK(document.answer.back().starts_with("best: " + said));
}

TEST_CASE("time limit: several processes know no less than one") {
  const testing::Finished finished = testing::run_program(
      PARSIM_PROGRAM,
      {"compare", "--quiet", "--network",
       "gpt:layers=8,hidden=1024,heads=16,seq_length=512,vocab_size=32000", "--batch", "32",
       "--cluster", "nodes:2x2,device=a100-sxm4-40*2+l40s*2,intra=20GB/s,inter=2GB/s", "--strategy",
       "best", "--budget", "1000000000", "--jobs", "2", "--time-limit", "3s"});
  CAPTURE(finished.err);
  CHECK(finished.exit_code == 0);
  CHECK(finished.out.find("stopped by the time limit") != std::string::npos);
}

TEST_CASE("time limit: without any plan there is no answer") {
  const testing::Finished finished = compare(failing, {"--time-limit", "1us"});
  CHECK(finished.exit_code == ExitCode::unfinished);
  CHECK(finished.out.empty());
  CHECK(finished.err ==
        "parsim: simulation did not finish: no strategy has a plan within --time-limit 1.00 us\n");
}

TEST_CASE("jobs: no process stays behind when a signal ends the program") {
  namespace fs = std::filesystem;
  using namespace std::chrono_literals;
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    CAPTURE(signal);
    const testing::TemporaryFolder folder;
    const std::string pid_file = folder.path("pid");
    std::fflush(stdout);
    const pid_t parent = ::fork();
    REQUIRE(parent >= 0);
    if (parent == 0) {
      for (const int one : {SIGINT, SIGTERM}) std::signal(one, SIG_DFL);
      const strategies::Strategy waits{"waits", "waits", nullptr,
                                       [&](const strategies::StrategyInput& input) {
                                         folder.write("pid.new", std::to_string(::getpid()));
                                         fs::rename(folder.path("pid.new"), pid_file);
                                         ::sleep(600);
                                         return strategies::plan_data(input);
                                       }};
      static_cast<void>(run_compare(question_with({waits}, {"data", "waits"})));
      ::_exit(0);
    }
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!fs::exists(pid_file) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(5ms);
    }
    REQUIRE(fs::exists(pid_file));
    const std::string worker = "/proc/" + testing::read_text(pid_file) + "/cmdline";
    CHECK(::kill(parent, signal) == 0);
    int status = 0;
    CHECK(::waitpid(parent, &status, 0) == parent);
    while (fs::exists(worker) && !testing::read_text(worker).empty() &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(5ms);
    }
    CHECK((!fs::exists(worker) || testing::read_text(worker).empty()));  // gone, or a zombie
  }
}

}  // namespace
}  // namespace parsim::app
