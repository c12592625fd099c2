// Sweeps as a user runs them: killed, resumed, divided and merged, the table is the same.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/long_tests.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

using nlohmann::json;
using testing::Finished;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

// 14 points: two of them have no plan, two do not fit.
const std::string small_sweep = R"([options]
network = "lenet5"
cluster = "star:2,device=v100-sxm2,rate={rate},latency=1us"
engine = "fast"
[axes]
rate = ["1GB/s", "25GB/s"]
[[zip]]
strategy = ["data", "data", "owt", "data", "no-such", "data", "model-even"]
batch = [8, 64, 64, 1024, 64, 100000000, 64]
)";

Finished sweep(const TemporaryFolder& folder, Words words, const Words& environment = {}) {
  words.insert(words.begin(), "sweep");
  return testing::run_program(PARSIM_PROGRAM, words, folder.folder(), environment);
}

json document_of(const Finished& finished) {
  CAPTURE(finished.err);
  REQUIRE(finished.exit_code == 0);
  return json::parse(finished.out);
}

/// The merged results of a folder, as CSV and as JSON Lines.
std::pair<std::string, std::string> merged(const TemporaryFolder& folder, const std::string& from) {
  std::string texts[2];
  for (const int i : {0, 1}) {
    const std::string to = i == 0 ? "merged.csv" : "merged.jsonl";
    const Finished finished = sweep(folder, {"--merge", from, "-o", to});
    CAPTURE(finished.err);
    REQUIRE(finished.exit_code == 0);
    CHECK(finished.err.empty());
    texts[i] = testing::read_text(folder.path(to));
  }
  return {texts[0], texts[1]};
}

/// What one process writes without any interruption.
std::pair<std::string, std::string> undisturbed(const TemporaryFolder& folder) {
  folder.write("sweep.toml", small_sweep);
  const json done = document_of(sweep(folder, {"sweep.toml", "-o", "undisturbed", "--json"}));
  CHECK(done["done"] == 14);
  CHECK(done["failed_now"] == 2);
  CHECK(done["unfit_now"] == 2);
  return merged(folder, "undisturbed");
}

TEST_CASE("sweep: a row for every point, and what 'compare' says in each") {
  const TemporaryFolder folder;
  const auto [csv, lines] = undisturbed(folder);
  CHECK(testing::read_text(folder.path("undisturbed/results.1-of-1.jsonl")) == lines);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 15);
  CHECK(
      csv.starts_with("point,id,nondeterministic,input_network,input_cluster,input_engine,"
                      "input_rate,input_strategy,input_batch,strategy,step_time_s,"));
  CHECK(csv.find("unknown strategy 'no-such'") != std::string::npos);
  std::vector<json> points;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    points.push_back(json::parse(lines.substr(at, end - at)));
    at = end + 1;
  }
  REQUIRE(points.size() == 15);
  const json& point = points[3];  // after the header
  CHECK(point["inputs"]["batch"] == 64);
  const Finished alone = testing::run_program(
      PARSIM_PROGRAM, {"compare", "--network", "lenet5", "--cluster",
                       "star:2,device=v100-sxm2,rate=1GB/s,latency=1us", "--engine", "fast",
                       "--strategy", "owt", "--batch", "64", "--no-timings", "--format", "csv"});
  const json& row = point["results"][0];
  CHECK(point["results"].size() == 1);
  CHECK(alone.out.find("owt," + row["step_time_s"].dump() + "," + row["interval_low_s"].dump()) !=
        std::string::npos);
  CHECK(points[5]["results"].empty());
  CHECK(points[5]["error"].get<std::string>().find("no-such") != std::string::npos);
  CHECK(points[6]["results"][0]["fits"] == false);
}

TEST_CASE("sweep: the merged bytes are the same for 1 to 7 shards and any number of jobs") {
  const TemporaryFolder folder;
  const auto expected = undisturbed(folder);
  for (int count = 1; count <= 7; ++count) {
    CAPTURE(count);
    const std::string results = "of" + std::to_string(count);
    for (int index = 1; index <= count; ++index) {
      const std::string shard = std::to_string(index) + "/" + std::to_string(count);
      const json done =
          document_of(sweep(folder, {"sweep.toml", "-o", results, "--shard", shard, "--jobs",
                                     std::to_string(1 + index % 3), "--json"}));
      CHECK(done["done"] == done["shard"]["points"]);
    }
    CHECK(merged(folder, results) == expected);
    // What is done is done, however it is divided later.
    if (count == 3) {
      CHECK(document_of(sweep(folder, {"sweep.toml", "-o", results, "--json"}))["done_now"] == 0);
      CHECK(merged(folder, results) == expected);
    }
  }
}

/// Children of a process, as Linux lists them.
std::vector<pid_t> children_of(pid_t process) {
  const std::string id = std::to_string(process);
  std::ifstream list("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

/// Starts a sweep and kills it, or one of its workers, after some microseconds. True if it lived
/// on.
bool killed_after(const TemporaryFolder& folder, unsigned microseconds, bool only_a_worker) {
  const std::string file = folder.path("sweep.toml"), results = folder.path("killed");
  std::vector<std::string> words = {PARSIM_PROGRAM, "sweep", file,      "-o",    results,
                                    "--jobs",       "2",     "--quiet", "--json"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // LeakSanitizer's helper is a child, too, and its parent waits for it in vain if it is killed.
  std::string no_leaks = "ASAN_OPTIONS=detect_leaks=0";
  std::vector<char*> environment = {no_leaks.data()};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("ASAN_OPTIONS=")) {
      environment.push_back(*variable);
    }
  }
  environment.push_back(nullptr);
  pid_t process = 0;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  REQUIRE(::posix_spawn(&process, PARSIM_PROGRAM, &actions, nullptr, arguments.data(),
                        environment.data()) == 0);
  posix_spawn_file_actions_destroy(&actions);
  ::usleep(microseconds);
  if (only_a_worker) {
    for (const pid_t worker : children_of(process)) ::kill(worker, SIGKILL);
  } else {
    ::kill(process, SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(process, &status, 0) == process);
  if (WIFEXITED(status)) CHECK(WEXITSTATUS(status) == 0);
  return WIFEXITED(status);
}

TEST_CASE("sweep: killed at random and resumed, the merged bytes are those without a kill") {
  const TemporaryFolder folder;
  const auto start = std::chrono::steady_clock::now();
  const auto expected = undisturbed(folder);
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(
                         std::chrono::steady_clock::now() - start)
                         .count();
  std::mt19937 random(2026);
  const int rounds = testing::long_tests() ? 25 : 1;
  for (int round = 0; round < rounds; ++round) {
    std::filesystem::remove_all(folder.path("killed"));
    for (int kills = 0; kills < 5; ++kills) {
      // From before its first line to after its last.
      const auto when = std::uniform_int_distribution<unsigned>(
          0, static_cast<unsigned>(whole / (kills + 1)))(random);
      killed_after(folder, when, kills % 2 == 1);
    }
    // Points that died with their worker are tried again.
    const json done = document_of(sweep(folder, {"sweep.toml", "-o", "killed", "--json"}));
    CHECK(done["done"] == 14);
    CHECK(merged(folder, "killed") == expected);
  }
}

TEST_CASE("sweep: a point that takes too long is marked, and tried again") {
  const TemporaryFolder folder;
  folder.write("sweep.toml", R"([options]
cluster = "star:4,device=v100-sxm2,rate=25GB/s,latency=1us"
engine = "fast"
strategy = "hybrid"
network = "resnet50"
[axes]
batch = [8, 16, 32]
)");
  const json stopped =
      document_of(sweep(folder, {"sweep.toml", "-o", "r", "--point-time-limit", "1us", "--json"}));
  CHECK(stopped["done"] == 0);
  CHECK(stopped["unfinished_now"] == 3);
  const Finished partial = sweep(folder, {"--merge", "r", "-o", "r.csv"});
  CHECK(partial.exit_code == 0);
  CHECK(partial.err.find("not finished; run the sweep again to try them again: points 0, 1, 2") !=
        std::string::npos);
  CHECK(testing::read_text(folder.path("r.csv")).find("not finished: took longer than 1.00 us") !=
        std::string::npos);
  CHECK(document_of(sweep(folder, {"sweep.toml", "-o", "r", "--json"}))["done_now"] == 3);
  CHECK(merged(folder, "r").first.find("took longer") == std::string::npos);
}

TEST_CASE("sweep: --time-limit stops between points, and the next call goes on") {
  const TemporaryFolder folder;
  const auto expected = undisturbed(folder);
  const Finished stopped = sweep(folder, {"sweep.toml", "-o", "r", "--time-limit", "1ns"});
  CHECK(stopped.exit_code == 0);
  CHECK(stopped.out.starts_with("0 of 14 points done, 0 now"));
  const Finished missing = sweep(folder, {"--merge", "r", "-o", "r.csv"});
  CHECK(missing.err.find("missing: points 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 4 more") !=
        std::string::npos);
  CHECK(sweep(folder, {"sweep.toml", "-o", "r", "--time-limit", "1h"}).exit_code == 0);
  CHECK(merged(folder, "r") == expected);
}

TEST_CASE("sweep: --time-limit counts from the start of the call, also while points are numbered") {
  const TemporaryFolder folder;
  std::string values;  // 1,000 times 200 points
  for (int i = 1; i <= 1000; ++i) values += std::to_string(8 * i) + ", ";
  folder.write("many.toml",
               "[options]\nnetwork = \"lenet5\"\ncluster = \"dgx-v100\"\n[axes]\nbatch = [" +
                   values + "]\nseed = [" + values.substr(0, values.find("1608")) + "]\n");
  const Finished stopped = sweep(folder, {"many.toml", "-o", "r", "--time-limit", "1ms"});
  CHECK(stopped.exit_code == 2);
  CHECK(stopped.err ==
        "parsim: --time-limit: 1.00 ms are over before all points are numbered; accepted: more "
        "time, or fewer points\n");
  CHECK_FALSE(std::filesystem::exists(folder.path("r")));
}

TEST_CASE("sweep: shards by the variables of launchers") {
  const TemporaryFolder folder;
  const auto expected = undisturbed(folder);
  for (const char* rank : {"0", "1"}) {
    const json done =
        document_of(sweep(folder, {"sweep.toml", "-o", "r", "--json"},
                          {std::string("OMPI_COMM_WORLD_RANK=") + rank, "OMPI_COMM_WORLD_SIZE=2"}));
    CHECK(done["shard"]["source"] == "OMPI_COMM_WORLD_RANK");
    CHECK(done["done"] == 7);
  }
  CHECK(merged(folder, "r") == expected);
}

TEST_CASE("sweep: merging refuses what does not belong together and names what is twice there") {
  const TemporaryFolder folder;
  const auto expected = undisturbed(folder);
  folder.write("other.toml", small_sweep + "[[skip]]\nbatch = 8\n");
  document_of(sweep(folder, {"other.toml", "-o", "other", "--json"}));
  const Finished mixed = sweep(folder, {"--merge", "undisturbed", "other", "-o", "x.csv"});
  CHECK(mixed.exit_code == 2);
  CHECK(mixed.err.find("other/results.1-of-1.jsonl: results of sweep ") != std::string::npos);
  CHECK(sweep(folder, {"other.toml", "-o", "undisturbed"}).exit_code == 2);

  const std::string lines = expected.second;
  folder.write("copy.jsonl", lines);
  const Finished twice = sweep(folder, {"--merge", "undisturbed", "copy.jsonl", "-o", "x.csv"});
  CHECK(twice.exit_code == 0);
  CHECK(twice.err.find("in several places, with equal results: points 0, 1, 2") !=
        std::string::npos);
  CHECK(testing::read_text(folder.path("x.csv")) == expected.first);

  std::string changed = lines;
  changed.replace(changed.find("\"fits\":true"), 11, "\"fits\":null");
  folder.write("copy.jsonl", changed);
  const Finished differs = sweep(folder, {"--merge", "undisturbed", "copy.jsonl", "-o", "y.csv"});
  CHECK(differs.exit_code == 2);
  CHECK(differs.err.find("copy.jsonl:2: point 0 has other results in undisturbed/") !=
        std::string::npos);

  std::string older = lines;
  older.replace(older.find("\"version\":\"") + 11, 1, "9");
  folder.write("copy.jsonl", older);
  CHECK(sweep(folder, {"--merge", "undisturbed", "copy.jsonl"}).err.find("results of parsim 9") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path("y.csv")));
}

TEST_CASE("sweep: the best rows and the Pareto front, against all rows") {
  const TemporaryFolder folder;
  const auto all = undisturbed(folder);
  std::vector<json> fitting;  // by hand, from the lines
  for (std::size_t at = all.second.find('\n') + 1; at < all.second.size();) {
    const std::size_t end = all.second.find('\n', at);
    const json point = json::parse(all.second.substr(at, end - at));
    for (json row : point["results"]) {
      row["point"] = point["point"];
      if (row["fits"] == true) fitting.push_back(row);
    }
    at = end + 1;
  }
  REQUIRE(fitting.size() == 10);
  const auto listed = [&](const Words& words) {
    Words command = {"--merge", "undisturbed", "--json"};
    command.insert(command.end(), words.begin(), words.end());
    std::vector<int> points;
    const json document = document_of(sweep(folder, command));
    for (const json& row : document["rows"]) points.push_back(row["point"]);
    return points;
  };
  const auto expected = [&](auto wanted) {
    std::vector<json> rows;
    for (const json& row : fitting) {
      if (wanted(row)) rows.push_back(row);
    }
    std::stable_sort(rows.begin(), rows.end(), [](const json& a, const json& b) {
      return a["step_time_s"] < b["step_time_s"];
    });
    std::vector<int> points;
    for (const json& row : rows) points.push_back(row["point"]);
    return points;
  };
  const auto every = expected([](const json&) { return true; });
  CHECK(listed({"--top", "100"}) == every);
  CHECK(listed({"--top", "3"}) == std::vector<int>(every.begin(), every.begin() + 3));
  std::stable_sort(fitting.begin(), fitting.end(), [](const json& a, const json& b) {
    return a["throughput_samples_per_s"] > b["throughput_samples_per_s"];
  });
  CHECK(listed({"--top", "1", "--by", "throughput_samples_per_s"}) ==
        std::vector<int>{fitting.front()["point"].get<int>()});
  const auto front = expected([&](const json& row) {
    return std::none_of(fitting.begin(), fitting.end(), [&](const json& other) {
      const bool no_worse = other["step_time_s"] <= row["step_time_s"] &&
                            other["throughput_samples_per_s"] >= row["throughput_samples_per_s"];
      const bool better = other["step_time_s"] < row["step_time_s"] ||
                          other["throughput_samples_per_s"] > row["throughput_samples_per_s"];
      return no_worse && better;
    });
  });
  CHECK(front.size() > 1);
  CHECK(listed({"--pareto", "step_time_s,throughput_samples_per_s"}) == front);
  const Finished wrong = sweep(folder, {"--merge", "undisturbed", "--pareto", "step_time"});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find("did you mean 'step_time_s'?") != std::string::npos);
}

// Six points with a price, and six without; a batch that does not fit.
const std::string priced_sweep = R"([options]
network = "lenet5"
cluster = "star:{gpus},device=v100-sxm2,rate=25GB/s,latency=1us"
engine = "fast"
strategy = "data"
[axes]
gpus = [1, 2]
override = [[], "devices.*.price=2 /h"]
batch = [64, 1024, 100000000]
)";

TEST_CASE("sweep: --where keeps the rows that meet its conditions, by hand from all rows") {
  const TemporaryFolder folder;
  folder.write("sweep.toml", priced_sweep);
  document_of(sweep(folder, {"sweep.toml", "-o", "r", "--json"}));
  const auto listed = [&](const Words& words) {
    Words command = {"--merge", "r", "--json"};
    command.insert(command.end(), words.begin(), words.end());
    const json document = document_of(sweep(folder, command));
    return document["rows"].get<std::vector<json>>();
  };
  const auto points = [](const std::vector<json>& rows) {
    std::vector<int> numbers;
    for (const json& row : rows) numbers.push_back(row["point"]);
    return numbers;
  };
  // Two GPUs are slower to pay back: with each number of GPUs, the cheapest is the larger batch.
  const std::vector<json> all = listed({"--top", "9"});
  REQUIRE(all.size() == 8);
  const double limit = all[3]["step_time_s"];
  std::vector<json> priced;
  for (const json& row : all) {
    if (row["step_time_s"] <= limit && !row["cost_per_million_samples"].is_null()) {
      priced.push_back(row);
    }
  }
  REQUIRE(priced.size() == 2);
  std::stable_sort(priced.begin(), priced.end(), [](const json& a, const json& b) {
    return a["cost_per_million_samples"] < b["cost_per_million_samples"];
  });
  // The table says which point a row is: every input that varies in the sweep, not in the list.
  CHECK(sweep(folder, {"--merge", "r", "--top", "1"})
            .out.find("  gpus  override  batch  strategy  ") != std::string::npos);
  const std::string seconds = all[3]["step_time_s"].dump();
  CHECK(points(listed({"--top", "9", "--by", "cost_per_million_samples", "--where",
                       "step_time_s <= " + seconds})) == points(priced));
  const std::string micro = fmt::format("{:.17g}us", 1e6 * limit * (1 + 1e-9));
  CHECK(points(listed({"--top", "9", "--by", "cost_per_million_samples", "--where",
                       "step_time_s<" + micro})) == points(priced));
  CHECK(listed({"--top", "9", "--where", "step_time_s > " + seconds}).size() == 4);
  CHECK(
      listed({"--top", "9", "--where", "step_time_s > " + seconds, "--where", "gpus = 2"}).size() ==
      2);
  CHECK(listed({"--pareto", "step_time_s,throughput_samples_per_s", "--where", "batch = 64"})
            .size() == 2);
  CHECK(listed({"--top", "9", "--where", "strategy = data"}).size() == 8);
  const Finished none = sweep(folder, {"--merge", "r", "--top", "9", "--where",
                                       "peak_memory_bytes < 1kB", "--where", "mfu >= 0%"});
  CHECK(none.exit_code == 5);
  // A table has the same columns, and only these rows.
  CHECK(sweep(folder, {"--merge", "r", "-o", "all.csv"}).exit_code == 0);
  CHECK(sweep(folder, {"--merge", "r", "-o", "some.csv", "--where", "fits = true"}).exit_code == 0);
  std::string every = testing::read_text(folder.path("all.csv")), fitting;
  for (std::size_t at = 0; at < every.size();) {
    const std::size_t end = every.find('\n', at) + 1;
    const std::string line = every.substr(at, end - at);
    if (line.find(",100000000,") == std::string::npos) fitting += line;
    at = end;
  }
  CHECK(testing::read_text(folder.path("some.csv")) == fitting);
}

TEST_CASE("sweep: --where refuses what it cannot read, and writes nothing") {
  const TemporaryFolder folder;
  folder.write("sweep.toml", priced_sweep);
  document_of(sweep(folder, {"sweep.toml", "-o", "r", "--json"}));
  const auto refused = [&](const std::string& condition) {
    const Finished finished = sweep(folder, {"--merge", "r", "-o", "x.csv", "--where", condition});
    CHECK(finished.exit_code == 2);
    return finished.err;
  };
  CHECK(refused("step_tme_s <= 10").find("did you mean 'step_time_s'?") != std::string::npos);
  CHECK(refused("step_time_s 10").find("no operator; accepted: COLUMN <= NUMBER") !=
        std::string::npos);
  CHECK(refused("step_time_s <=").find("no value") != std::string::npos);
  CHECK(refused("step_time_s == 1").find("'=='") != std::string::npos);
  CHECK(refused("step_time_s < fast").find("'fast' is no number; accepted after <: a number") !=
        std::string::npos);
  CHECK(refused("step_time_s <= 10 GB").find("--where 'step_time_s <= 10 GB'") !=
        std::string::npos);
  CHECK(refused("mfu = high").find("'high' is no number, as 'mfu' has") != std::string::npos);
  CHECK(refused("strategy < 3").find("accepted: = and a text, as in 'strategy = data'") !=
        std::string::npos);
  CHECK(sweep(folder, {"--merge", "r", "--where", "step_time_s < 1"})
            .err.find("unused without -o, --top, --pareto and --report") != std::string::npos);
  CHECK(sweep(folder, {"--merge", "r", "-o", "x.jsonl", "--where", "step_time_s < 1"})
            .err.find("JSON Lines are whole points") != std::string::npos);
  CHECK(sweep(folder, {"sweep.toml", "--dry-run", "--where", "step_time_s < 1"})
            .err.find("unused without --merge") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path("x.csv")));
}

TEST_CASE("sweep: --report writes a page of what is listed, and refuses other files") {
  const TemporaryFolder folder;
  folder.write("sweep.toml", priced_sweep);
  document_of(sweep(folder, {"sweep.toml", "-o", "r", "--json"}));
  const Words by_cost = {"--merge", "r",       "--by",        "cost_per_million_samples",
                         "--json",  "--where", "batch < 100", "--report"};
  const auto page = [&](const std::string& name) {
    Words words = by_cost;
    words.push_back(name);
    const json document = document_of(sweep(folder, words));
    CHECK(document["rows"].size() == 2);
    std::ifstream file(folder.path(name));
    return std::pair(document["rows"].front(),
                     std::string(std::istreambuf_iterator<char>(file), {}));
  };
  const auto [best, text] = page("a.html");
  CHECK(text.find("Cheapest with batch &lt; 100: ") != std::string::npos);
  CHECK(text.find(fmt::format("<p class=answer>gpus {}, override devices.*.price=2 /h",
                              best["input_gpus"].dump())) != std::string::npos);
  CHECK(text.find("parsim compare --network lenet5 --cluster star:") != std::string::npos);
  CHECK(sweep(folder, {"--merge", "r", "--report", "a.tex"})
            .err.find("'a.tex'; accepted with 'sweep': an HTML file") != std::string::npos);
  CHECK(sweep(folder, {"sweep.toml", "-o", "r", "--report", "b.html"})
            .err.find("unused without --merge") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path("b.html")));
}

TEST_CASE("sweep: where no row is as asked, the reasons are counted") {
  const TemporaryFolder folder;
  folder.write("sweep.toml", priced_sweep);
  document_of(sweep(folder, {"sweep.toml", "-o", "r", "--json"}));
  const Finished finished =
      sweep(folder, {"--merge", "r", "--top", "1", "--by", "cost_per_million_samples", "--where",
                     "step_time_s < 1ns"});
  CHECK(finished.exit_code == 5);
  CHECK(finished.err ==
        "parsim: warning: no row to list: of 12 rows, 4 do not fit in memory, 4 have no "
        "cost_per_million_samples: no prices; accepted: those of a cluster file, or --override "
        "'devices.*.price=2.5 /h', 4 do not meet 'step_time_s < 1ns'\n");
}

TEST_CASE("sweep: where all points fail, every call says so with the first error") {
  const TemporaryFolder folder;
  std::string text = priced_sweep;
  text.replace(text.find("devices.*"), 9, "devces.*.");
  text.replace(text.find("[[], "), 5, "[");
  folder.write("sweep.toml", text);
  const std::string error =
      "--override: 'devces.*..price=2 /h'; accepted: devices.NAME.memory=SIZE";
  const Finished dry = sweep(folder, {"sweep.toml", "--dry-run"});
  CHECK(dry.exit_code == 0);
  CHECK(dry.err.find("5 of 5 points that were tried have an error instead of results; point 1: " +
                     error) != std::string::npos);
  CHECK(document_of(sweep(folder, {"sweep.toml", "--dry-run", "--json"}))["tried_failed"] == 5);
  const Finished run = sweep(folder, {"sweep.toml", "-o", "r"});
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("6 of them have an error instead of results\npoint 0: " + error) !=
        std::string::npos);
  for (const Words& words : {Words{"--top", "3"}, Words{"--pareto", "step_time_s,mfu"},
                             Words{"--top", "3", "--by", "mfu", "--where", "step_time_s < 1"}}) {
    Words command = {"--merge", "r"};
    command.insert(command.end(), words.begin(), words.end());
    const Finished merged = sweep(folder, command);
    CHECK(merged.exit_code == 5);
    CHECK(merged.err.find("no row to list: of 6 rows, 6 have an error (the first: point 0: " +
                          error) != std::string::npos);
  }
}

TEST_CASE("sweep: --dry-run tries several values of every axis") {
  // 10 x 10 points. Every 20th of them has the same GPU.
  const TemporaryFolder folder;
  folder.write("sweep.toml",
               "[options]\nnetwork = \"lenet5\"\nstrategy = \"data\"\nengine = \"fast\"\n"
               "cluster = \"star:2,device={gpu}\"\n[axes]\n"
               "batch = [8, 16, 24, 32, 40, 48, 56, 64, 72, 80]\n"
               "gpu = [\"t4\", \"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", \"i\"]\n");
  const json dry = document_of(sweep(folder, {"sweep.toml", "--dry-run", "--json"}));
  CHECK(dry["points"].size() == 100);
  CHECK(dry["tried"] == 5);  // points 30, 92, 54, 16 and 78
  CHECK(dry["tried_failed"] == 4);
}

TEST_CASE("sweep: --dry-run lists the points and computes nothing that stays") {
  const TemporaryFolder folder;
  folder.write("sweep.toml", small_sweep);
  const json dry = document_of(sweep(folder, {"sweep.toml", "--dry-run", "--json"}));
  CHECK(dry["points"].size() == 14);
  CHECK(dry["points"][2]["inputs"]["strategy"] == "owt");
  CHECK(dry["estimated_time_s"].get<double>() > 0);
  CHECK(dry["tried"] == 5);  // points 4, 12, 7, 2 and 10
  CHECK(folder.names() == Words{"sweep.toml"});
}

}  // namespace
}  // namespace parsim::app
