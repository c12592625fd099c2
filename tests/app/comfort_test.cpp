// Help, completion, doctor and rerun: what makes the program pleasant.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli.hpp"
#include "app/completion.hpp"
#include "app/reference.hpp"
#include "core/csv.hpp"
#include "tests/support/program.hpp"
#include "tests/support/transcript.hpp"

namespace parsim::app {
namespace {

using nlohmann::json;
using testing::Finished;
using Words = std::vector<std::string>;

Finished comfort(const Words& words, const std::string& folder = {}) {
  return testing::run_program(PARSIM_PROGRAM, words, folder);
}

TEST_CASE("comfort: docs/cli.md is what the program's tables say") {
  const std::string path = PARSIM_SOURCE_DIR "/docs/cli.md";
  if (testing::regenerating()) std::ofstream(path) << reference_markdown();
  const bool up_to_date = testing::read_text(path) == reference_markdown();
  CHECK_MESSAGE(up_to_date, "PARSIM_REGENERATE=1 app_tests -tc='*docs/cli.md*' writes it anew");
}

TEST_CASE("comfort: every verb's help ends with its own example, which parses") {
  for (const Verb& verb : verbs()) {
    CAPTURE(verb.name);
    const std::string help = parse_command_line({std::string(verb.name), "--help"}).text;
    CHECK(help.find("Example: " + std::string(verb.example)) != std::string::npos);
    CHECK(verb.example.starts_with("parsim " + std::string(verb.name)));
    Words words;
    std::size_t begin = std::string_view("parsim ").size();
    while (begin < verb.example.size()) {
      const std::size_t end = std::min(verb.example.find(' ', begin), verb.example.size());
      words.emplace_back(verb.example.substr(begin, end - begin));
      begin = end + 1;
    }
    CHECK(parse_command_line(words).verb == &verb);
    const bool several = help.find("list strategies'); may be repeated") != std::string::npos;
    const bool one_plan = verb.name == "simulate" || verb.name == "plan" ||
                          verb.name == "explain" || verb.name == "import";
    if (help.find("--strategy NAME") != std::string::npos) CHECK(several == !one_plan);
  }
}

TEST_CASE("comfort: help is a verb, too") {
  CHECK(parse_command_line({"help"}).text == parse_command_line({"--help"}).text);
  CHECK(parse_command_line({"help", "compare"}).text ==
        parse_command_line({"compare", "--help"}).text);
}

TEST_CASE("comfort: a cluster may come from standard input") {
  const std::string file = PARSIM_SOURCE_DIR "/tests/topologies/data/smi/dgx-a100.txt";
  const auto shown = [&](const std::string& cluster) {
    return testing::run_program(
        "/bin/sh", {"-c", PARSIM_PROGRAM " show cluster " + cluster + " --json --quiet < " + file});
  };
  const json piped = json::parse(shown("-").out), named = json::parse(shown(file).out);
  CHECK(piped["devices"].size() == 8);
  CHECK(piped["bisection_bytes_per_s"] == named["bisection_bytes_per_s"]);
  CHECK(piped["links"].size() == named["links"].size());
}

TEST_CASE("comfort: the script names every verb and every option") {
  const std::string script = bash_completion();
  for (const Verb& verb : verbs()) {
    CHECK(script.find(std::string(verb.name)) != std::string::npos);
    for (const experiment::Option* option : options_of(verb)) {
      CAPTURE(option->flag);
      CHECK(script.find(std::string(option->flag)) != std::string::npos);
    }
  }
  CHECK(comfort({"completion", "bash"}).out == script);
}

TEST_CASE("comfort: bash reads its script and completes verbs, options, values and words") {
  const testing::TemporaryFolder folder;
  const std::string script = folder.write("script", bash_completion());
  CHECK(testing::run_program("/bin/bash", {"-n", script}).exit_code == 0);
  const auto completed = [&](const std::string& line) {
    return testing::run_program(
               "/bin/bash",
               {"-c",
                ". \"$0\"; read -ra COMP_WORDS <<< \"$1\"; COMP_CWORD=$((${#COMP_WORDS[@]} "
                "- 1)); _parsim; echo \"${COMPREPLY[*]}\"",
                script, line})
        .out;
  };
  CHECK(completed("parsim comp") == "compare completion\n");
  CHECK(completed("parsim simulate --strategy ow") == "owt\n");
  CHECK(completed("parsim compare --precision f") == "fp32 fp16 fp8 fp8-delayed fp8-blockwise\n");
  CHECK(completed("parsim compare --scal") == "--scaling\n");
  CHECK(completed("parsim compare --tensor") == "--tensor-parallel\n");
  CHECK(completed("parsim plan --costs ti") == "tiles\n");
  CHECK(completed("parsim simulate --scal") == "\n");
  CHECK(completed("parsim list net") == "networks\n");
  CHECK(completed("parsim compare --cluster dgx-a") == "dgx-a100\n");
  CHECK(completed("parsim show cl") == "cluster\n");
  CHECK(completed("parsim show cluster dgx-a") == "dgx-a100\n");
  CHECK(completed("parsim show network googl") == "googlenet\n");
  CHECK(completed("parsim show network dgx-a") == "\n");
  CHECK(completed("parsim show cluster " + script) == script + "\n");
  CHECK(completed("parsim show cluster --ov") == "--override\n");
}

TEST_CASE("comfort: doctor knows the packages and what brings what is missing") {
  const json findings = json::parse(comfort({"doctor", "--json"}).out);
  bool simgrid = false, compiler = false;
  for (const json& finding : findings) {
    CHECK(finding.size() == 4);
    simgrid |= finding["what"] == "SimGrid" && finding["state"] != "missing";
    compiler |= finding["package"] == "g++";
  }
  CHECK(simgrid);
  if (findings.size() > 6) CHECK(compiler);  // else no Debian
}

const Words recorded = {
    "compare",    "--network", "mlp",        "--cluster", "star:2,device=t4,rate=1GB/s,latency=1us",
    "--strategy", "data",      "--strategy", "owt",       "--no-timings",
    "--json"};

TEST_CASE("comfort: rerun gives the same bytes and writes no files") {
  const testing::TemporaryFolder folder;
  Words words = recorded;
  words.insert(words.end(), {"--report", folder.path("page.html"), "--no-timeline"});
  const Finished first = comfort(words);
  REQUIRE(first.exit_code == 0);
  const std::string result = folder.write("result.json", first.out);
  CHECK(comfort({"rerun", result}).out == first.out);
  CHECK(folder.names() == Words{"page.html", "result.json"});
  CHECK(comfort({"rerun", result, "--format", "csv"}).out.starts_with("strategy,"));
}

TEST_CASE("comfort: a row without a plan has no verdict, in CSV and in JSON") {
  Words words{"compare",
              "--network",
              "gpt:layers=1,hidden=16,heads=2,seq_length=8,vocab_size=16",
              "--cluster",
              "star:4,device=t4,rate=10GB/s",
              "--strategy",
              "data",
              "--strategy",
              "tensor",
              "--etp",
              "4",
              "--format"};
  words.emplace_back("csv");
  const CsvTable rows = read_csv(comfort(words).out, "rows");
  words.back() = "json";
  const json results = json::parse(comfort(words).out)["results"];
  REQUIRE(rows.rows.size() == results.size());
  bool refused = false;
  for (std::size_t r = 0; r < results.size(); ++r) {
    const json& verdict = results[r]["verdict"];
    refused = refused || verdict.is_null();
    CHECK(rows.at(rows.rows[r], "verdict") ==
          (verdict.is_null() ? "" : verdict.get<std::string>()));
  }
  CHECK(refused);
}

TEST_CASE("comfort: rerun refuses inputs that have changed and files that are no result") {
  const testing::TemporaryFolder folder;
  REQUIRE(
      comfort({"plan", "--network", "mlp", "--cluster", "star:2,device=t4,rate=1GB/s,latency=1us",
               "--strategy", "data", "-o", "plan.json"},
              folder.folder())
          .exit_code == 0);
  const Finished simulated =
      comfort({"simulate", "--plan", "plan.json", "--no-timings", "--json"}, folder.folder());
  REQUIRE(simulated.exit_code == 0);
  folder.write("result.json", simulated.out);
  CHECK(comfort({"rerun", "result.json"}, folder.folder()).out == simulated.out);
  folder.write("plan.json", testing::read_text(folder.path("plan.json")) + "\n");
  const Finished changed = comfort({"rerun", "result.json"}, folder.folder());
  CHECK(changed.exit_code == 2);
  CHECK(changed.err.find("'plan.json' has changed since") != std::string::npos);
  for (const char* text :
       {"", "[]", "{}", "{\"inputs\": {}}", "{\"inputs\": {\"command\": [1]}}", "{\"results\": []}",
        "{\"inputs\": {\"command\": [\"rerun\", \"x\"]}}"}) {
    CAPTURE(text);
    folder.write("other.json", text);
    CHECK(comfort({"rerun", "other.json"}, folder.folder()).exit_code == 2);
  }
}

}  // namespace
}  // namespace parsim::app
