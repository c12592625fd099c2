// The built program as a user runs it: what it prints, what it writes, how it ends.
#include "tests/support/program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/approx.hpp"

namespace parsim::app {
namespace {

using nlohmann::json;
using testing::Finished;
using Words = std::vector<std::string>;

const std::string star = "star:2,device=p100-sxm2*1+v100-sxm2*1,rate=25GB/s,latency=1us";

Finished parsim_with(Words words) { return testing::run_program(PARSIM_PROGRAM, words); }

/// Runs with --json and --no-timings; the exit code must be `exit_code`.
json result_of(Words words, int exit_code = 0) {
  words.insert(words.end(), {"--json", "--no-timings"});
  const Finished finished = parsim_with(words);
  CAPTURE(finished.err);
  REQUIRE(finished.exit_code == exit_code);
  CHECK(finished.err.empty());
  return json::parse(finished.out);
}

std::set<std::string> keys(const json& object) {
  std::set<std::string> names;
  for (const auto& [key, value] : object.items()) names.insert(key);
  return names;
}

bool has_all(const json& object, const std::set<std::string>& wanted) {
  const std::set<std::string> found = keys(object);
  return std::includes(found.begin(), found.end(), wanted.begin(), wanted.end());
}

const Words compare_lenet = {"compare", "--network", "lenet5", "--cluster", star};
const Words simulate_lenet = {"simulate", "--network",  "lenet5", "--cluster",
                              star,       "--strategy", "data"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("program: list gives names and summaries") {
  for (const char* what : {"strategies", "networks", "clusters", "devices"}) {
    const json list = json::parse(parsim_with({"list", what, "--json"}).out);
    CHECK(list.size() >= 4);
    for (const json& entry : list) {
      CHECK(keys(entry) == std::set<std::string>{"name", "summary"});
      CHECK_FALSE(entry["summary"].get<std::string>().empty());
    }
  }
}

TEST_CASE("program: show network has the contract's keys") {
  const json network = json::parse(parsim_with({"show", "network", "lenet5", "--json"}).out);
  CHECK(keys(network) == std::set<std::string>{"name", "layers", "parameters", "active_parameters",
                                               "forward_flops_per_sample", "rows", "warnings"});
  CHECK(network["name"] == "lenet5");
}

TEST_CASE("program: show network says which rows have the same parameters") {
  const auto notes = [](const std::string& file) {
    const std::string path = PARSIM_SOURCE_DIR "/tests/networks/data/hugging_face/" + file;
    return parsim_with({"show", "network", path, "--quiet"}).out;
  };
  const std::string line = "lm_head has the 51463168 parameters of wte, too: both rows have them";
  CHECK(notes("gpt2-medium.json").find(line) != std::string::npos);
  CHECK(parsim_with({"show", "network", "lenet5"}).out.find("too: both rows") == std::string::npos);
}

TEST_CASE("program: show cluster has the contract's keys and a bisection by hand") {
  const json cluster = json::parse(parsim_with({"show", "cluster", star, "--json"}).out);
  CHECK(has_all(cluster, {"name", "devices", "links", "bisection_bytes_per_s"}));
  CHECK(cluster["devices"].size() == 2);
  CHECK(cluster["links"].size() == 2);
  CHECK(cluster["bisection_bytes_per_s"] == 25e9);  // one device on each side
}

TEST_CASE("program: simulate has every key of the contract") {
  const json result = result_of(simulate_lenet);
  CHECK(has_all(result,
                {"strategy", "step_time_s", "throughput_samples_per_s", "bytes_moved", "messages",
                 "devices", "fits", "bottleneck", "search_time_s", "simulation_time_s",
                 "cost_sources", "bounds", "seed", "version", "inputs"}));
  CHECK(keys(result["bounds"]) ==
        std::set<std::string>{"critical_path_s", "busiest_device_s", "busiest_link_s"});
  CHECK(has_all(result["bottleneck"], {"link", "utilisation"}));
  CHECK(
      has_all(result["cost_sources"], {"measured", "scaled", "published", "modelled", "guessed"}));
  for (const json& device : result["devices"]) {
    CHECK(has_all(device, {"name", "compute_s", "exposed_communication_s", "idle_s",
                           "peak_memory_bytes", "memory_bytes"}));
  }
  CHECK(result["strategy"] == "data");
  CHECK(result["fits"] == true);
  CHECK(result["inputs"]["batch"] == 64);  // 32 x 2 GPUs
  CHECK(result["search_time_s"].is_null());
  CHECK(result["simulation_time_s"].is_null());
}

TEST_CASE("program: the parts of a device's step add up to the step") {
  const json result = result_of(simulate_lenet);
  const double step = result["step_time_s"];
  for (const json& device : result["devices"]) {
    const double sum = device["compute_s"].get<double>() +
                       device["exposed_communication_s"].get<double>() +
                       device["idle_s"].get<double>();
    CHECK(sum == testing::approx(step).epsilon(1e-9));
  }
  CHECK(result["throughput_samples_per_s"].get<double>() ==
        testing::approx(64 / step).epsilon(1e-12));
}

TEST_CASE("program: data parallelism by ring moves 2(G-1)P bytes") {
  // LeNet-5 has P = 4 x 61,706 bytes of parameters: 2·(2-1)·P.
  CHECK(result_of(simulate_lenet)["bytes_moved"] == 2 * 4 * 61706);
}

TEST_CASE("program: timings are numbers unless they are left out") {
  const json result = json::parse(parsim_with(with(simulate_lenet, {"--json"})).out);
  CHECK(result["search_time_s"].get<double>() > 0);
  CHECK(result["simulation_time_s"].get<double>() > 0);
}

TEST_CASE("program: compare lists every strategy with every key, fastest first") {
  const json comparison = result_of(compare_lenet);
  CHECK(has_all(comparison, {"results", "best"}));
  const json known = json::parse(parsim_with({"list", "strategies", "--json"}).out);
  CHECK(comparison["results"].size() == known.size());
  const std::set<std::string> all = keys(comparison["results"][0]);
  double before = 0;
  for (const json& row : comparison["results"]) {
    CHECK(keys(row) == all);
    CHECK(row["step_time_s"].get<double>() >= before);
    before = row["step_time_s"];
  }
  CHECK(all == keys(result_of(simulate_lenet)));
  // "best" names the fastest other than the strategy of that name, which may be faster still.
  const json& first = comparison["results"][0]["strategy"];
  CHECK(comparison["best"] == comparison["results"][first == "best" ? 1 : 0]["strategy"]);
}

TEST_CASE("program: the table of compare fits the terminal, --wide has the rest") {
  const Words question = with(compare_lenet, {"--strategy", "data", "--strategy", "pipeline"});
  const auto header = [](const std::string& text) {
    const std::size_t begin = text.find("strategy  ");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  const std::string narrow = header(parsim_with(question).out);
  CHECK(narrow == "strategy  step [us]     90 %  tp  pp  dp  samples/s  memory");
  const std::string roomy =
      header(testing::run_program(PARSIM_PROGRAM, question, {}, {"COLUMNS=90"}).out);
  CHECK(roomy == narrow + "  exposed comm. [us]");
  const std::string wide = header(parsim_with(with(question, {"--wide"})).out);
  for (const char* column : {"  compute [us]", "idle [us]", "moved [", "busiest link"}) {
    CHECK(narrow.find(column) == std::string::npos);
    CHECK(wide.find(column) != std::string::npos);
  }
  const Words csv = with(question, {"--format", "csv"});
  CHECK(parsim_with(csv).out == parsim_with(with(csv, {"--wide"})).out);
}

TEST_CASE("program: --columns has the named columns in their order, for people and for programs") {
  const Words question = with(compare_lenet, {"--strategy", "data", "--quiet"});
  const auto first_line = [](const std::string& text, const char* begin) {
    const std::size_t at = text.find(begin);
    return text.substr(at, text.find('\n', at) - at);
  };
  const Words named = with(question, {"--columns", "MFU,Step,strategy,cp,fits,batch"});
  const std::string line = first_line(parsim_with(named).out, "  MFU  ");
  for (const char* part : {"  MFU ", " step [us]  strategy  cp  fits  batch"}) {
    CHECK(line.find(part) != std::string::npos);
  }
  const std::string csv = parsim_with(with(named, {"--format", "csv"})).out;
  CHECK(csv.starts_with("mfu,step_time_s,strategy,cp,fits,batch\n0."));  // a number, not "38 %"
  CHECK(csv.find(",data,1,true,") != std::string::npos);
  for (const auto& [list, found] : std::vector<std::pair<std::string, std::string>>{
           {"strategy,stpe", "unknown column 'stpe'"}, {"step,step", "'step' given twice"}}) {
    const auto refused = parsim_with(with(question, {"--columns", list}));
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("--columns: " + found) != std::string::npos);
  }
}

TEST_CASE("program: a strategy without a plan is a row with its reason, behind the others") {
  const Words three = {"--batch", "64", "--micro-batches", "3"};
  const json comparison =
      result_of(with(with(compare_lenet, three), {"--strategy", "pipeline", "--strategy", "data"}));
  const json& last = comparison["results"].back();
  CHECK(last["strategy"] == "pipeline");
  CHECK(last["error"].get<std::string>().find("batch 64 in 3 micro-batches") != std::string::npos);
  CHECK(last["step_time_s"].is_null());
  CHECK(last["fits"] == false);
  CHECK(keys(last) == keys(comparison["results"][0]));
  CHECK(comparison["best"] == comparison["results"][0]["strategy"]);
  // Where nothing else is asked for, the refusal is the answer.
  CHECK(parsim_with(with(with(compare_lenet, three), {"--strategy", "pipeline"})).exit_code == 2);
}

TEST_CASE("program: a row of compare equals simulate") {
  const json comparison = result_of(compare_lenet);
  for (json row : comparison["results"]) {
    json alone = result_of({"simulate", "--network", "lenet5", "--cluster", star, "--strategy",
                            row["strategy"].get<std::string>()});
    CHECK(row["inputs"]["verb"] == "compare");
    // Only compare takes --scaling, only simulate --beside.
    for (const char* different : {"verb", "command", "strategies", "scaling", "plan", "beside"}) {
      row["inputs"].erase(different);
      alone["inputs"].erase(different);
    }
    // Only a row of several has others to be faster than, and to have the same plan as.
    for (const char* of_rows : {"probability_fastest", "same_plan_as"}) {
      row.erase(of_rows);
      alone.erase(of_rows);
    }
    CHECK(row == alone);
  }
}

TEST_CASE("program: jitter spreads the step, a straggler makes it longer, the plan stays") {
  const json plain = result_of(simulate_lenet);
  const json varied = result_of(with(simulate_lenet, {"--jitter", "20%", "--runs", "5"}));
  CHECK(varied["step_time_s"] == plain["step_time_s"]);
  CHECK(varied["jittered"]["samples"] == 5);
  CHECK(varied["jittered"]["lower_quartile_s"] < varied["jittered"]["upper_quartile_s"]);
  CHECK(varied["inputs"]["jitter"] == 0.2);
  CHECK(varied["inputs"]["runs"] == 5);
  CHECK_FALSE(plain.contains("jittered"));
  // The seed is the jitter's, too, and `data` has no other use for one.
  const json other =
      result_of(with(simulate_lenet, {"--jitter", "20%", "--runs", "5", "--seed", "2"}));
  CHECK(other["jittered"]["median_s"] != varied["jittered"]["median_s"]);
  const json slow = result_of(with(simulate_lenet, {"--straggler", "gpu0=2"}));
  const auto compute = [](const json& result, std::size_t device) {
    return result["devices"][device]["compute_s"].get<double>();
  };
  CHECK(compute(slow, 0) == testing::approx(2 * compute(plain, 0)).epsilon(1e-9));
  CHECK(compute(slow, 1) == testing::approx(compute(plain, 1)).epsilon(1e-9));
  CHECK(slow["bytes_moved"] == plain["bytes_moved"]);
}

TEST_CASE("program: the same run twice gives the same bytes") {
  const Words words = with(compare_lenet, {"--no-timings", "--json"});
  CHECK(parsim_with(words) == parsim_with(words));
}

TEST_CASE("program: other device names change nothing but the names") {
  const auto cluster = [](const std::string& first, const std::string& second) {
    return "name = \"two\"\n[[nodes]]\nname = \"box\"\nswitches = [\"pcie\"]\ndevices = [{ model = "
           "\"p100-sxm2\", name = \"" +
           first + "\" }, { model = \"v100-sxm2\", name = \"" + second +
           "\" }]\n[[nodes.links]]\na = \"gpu-*\"\nb = \"pcie\"\nrate = \"12 GB/s\"\nlatency = "
           "\"1 us\"\n";
  };
  const testing::TemporaryFolder folder;
  const auto numbers = [&](const std::string& text) {
    const std::string path = folder.write("cluster.toml", text);
    json comparison = result_of({"compare", "--network", "lenet5", "--cluster", path});
    for (json& row : comparison["results"]) {
      row.erase("inputs");
      row.erase("notes");  // they name devices
      row["bottleneck"].erase("link");
      row["bottleneck"].erase("from");
      row["bottleneck"].erase("to");
      for (json& device : row["devices"]) device.erase("name");
      for (json& stage : row["stages"]) stage.erase("devices");
    }
    return comparison;
  };
  CHECK(numbers(cluster("gpu-x", "gpu-y")) == numbers(cluster("gpu-z", "gpu-x")));
}

TEST_CASE("program: what does not fit is a complete result and exit code 5") {
  const Words tiny = {"--override", "devices.gpu0.memory=1KiB"};
  const json result = result_of(with(simulate_lenet, tiny), 5);
  CHECK(result["fits"] == false);
  CHECK(result["step_time_s"] == result_of(simulate_lenet)["step_time_s"]);
  CHECK(result["devices"][0]["memory_bytes"] == 1024);
  CHECK(result["devices"][0]["lacking_memory_bytes"] ==
        result["devices"][0]["peak_memory_bytes"].get<std::int64_t>() - (1024 - 61));
  CHECK(result["devices"][1]["lacking_memory_bytes"] == 0);
  const json comparison =
      result_of(with(with(compare_lenet, tiny), {"--override", "devices.gpu1.memory=1KiB"}), 5);
  CHECK(comparison["best"].is_null());
  const Finished table = parsim_with(with(simulate_lenet, tiny));
  CHECK(table.out.find(" more (gpu0") != std::string::npos);
  CHECK(table.exit_code == 5);
}

TEST_CASE("program: a step for smpirun is a folder with all its files") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("traces");
  const json result = result_of({"plan", "--network", "lenet5", "--cluster", star, "--strategy",
                                 "data", "--collectives", "ideal", "--smpi", path});
  CHECK(result["smpi_folder"] == path);
  CHECK(result["plan_file"].is_null());
  CHECK(testing::read_text(path + "/traces.txt").starts_with("rank0.txt\nrank1.txt\n"));
  CHECK(testing::read_text(path + "/rank0.txt").starts_with("0 init\n"));
  for (const char* name : {"/platform.xml", "/hostfile"}) {
    CHECK_FALSE(testing::read_text(path + name).empty());
  }
}

TEST_CASE("program: a saved plan gives the same numbers as its strategy") {
  for (const char* name :
       {"data", "model-even", "model", "owt", "pipeline", "hybrid", "layer-wise"}) {
    CAPTURE(name);
    const testing::TemporaryFolder folder;
    const std::string path = folder.path("plan.json");
    const Words input = {"--network", "lenet5", "--cluster", star, "--strategy", name};
    const Finished planned =
        parsim_with(with({"plan", "-o", path, "--dag", folder.path("dag.json")}, input));
    REQUIRE(planned.exit_code == 0);
    CHECK(folder.names() == Words{"dag.json", "plan.json"});
    CHECK(json::accept(testing::read_text(folder.path("dag.json"))));
    json direct = result_of(with({"simulate"}, input));
    json saved = result_of({"simulate", "--plan", path, "--cluster", star});
    CHECK(saved["inputs"]["plan"]["given"] == path);
    direct.erase("inputs");
    saved.erase("inputs");
    CHECK(direct == saved);
  }
}

TEST_CASE("program: a plan tried on another cluster is a warning, on another network a refusal") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("plan.json");
  REQUIRE(parsim_with(
              {"plan", "--network", "lenet5", "--cluster", star, "--strategy", "data", "-o", path})
              .exit_code == 0);
  const std::string slower = "star:2,device=p100-sxm2,rate=1GB/s,latency=1us";
  const Words words = {"simulate", "--plan", path, "--cluster", slower};
  const Finished warned = parsim_with(words);
  CHECK(warned.exit_code == 0);
  CHECK(warned.err == "parsim: warning: " + path + " was made for cluster '" + star +
                          "', not for '" + slower + "'\n");
  CHECK(parsim_with(with(words, {"--quiet"})).err.empty());
  const Finished refused = parsim_with(with(words, {"--network", "alexnet"}));
  CHECK(refused.exit_code == 2);
  CHECK(refused.err == "parsim: " + path +
                           ": a plan for network 'lenet5', not for 'alexnet'; accepted: --network "
                           "lenet5\n");
}

TEST_CASE("program: plan without -o prints the plan itself as JSON") {
  const Finished printed = parsim_with(
      {"plan", "--network", "lenet5", "--cluster", star, "--strategy", "data", "--json"});
  CHECK(json::parse(printed.out)["format"] == "parsim-plan");
}

TEST_CASE("program: '-' writes a file to standard output, and the report makes room") {
  const testing::TemporaryFolder folder;
  const Words plan = {"plan", "--network", "lenet5", "--cluster", star, "--strategy", "data"};
  const auto both = [&](const Words& words, const std::string& flag, bool is_plan = true) {
    CAPTURE(flag);
    const std::string path = folder.path("written");
    REQUIRE(parsim_with(with(words, {flag, path})).exit_code == 0);
    const Finished there =
        testing::run_program(PARSIM_PROGRAM, with(words, {flag, "-"}), folder.folder());
    CHECK(there.exit_code == 0);
    CHECK(there.err.find("written to standard output") != std::string::npos);
    CHECK(folder.names() == Words{"written"});
    if (is_plan) CHECK(there.out == testing::read_text(path));
    return there;
  };
  both(plan, "-o");
  both(plan, "--dag");
  both(simulate_lenet, "--trace");
  const Finished page =
      both(with(compare_lenet, {"--strategy", "data", "--no-timings"}), "--report",
           false);  // its last lines are the command
  CHECK(page.out.starts_with("<!DOCTYPE html>"));
  CHECK(page.out.ends_with("</script>\n"));
  // The report keeps its form.
  const Finished json_there = parsim_with(with(plan, {"-o", "-", "--json"}));
  CHECK(json::parse(json_there.out).is_object());
  CHECK(json::parse(json_there.err)["plan_file"] == "-");
}

TEST_CASE("program: no two events of a trace's track overlap") {
  const testing::TemporaryFolder folder;
  for (const char* strategy : {"data", "pipeline"}) {
    const std::string path = folder.path(std::string(strategy) + ".json");
    Words words{"simulate",   "--network", "lenet5",  "--cluster", star,
                "--strategy", strategy,    "--trace", path};
    if (strategy == std::string("pipeline")) words = with(words, {"--pp", "2"});
    const Finished finished = parsim_with(words);
    REQUIRE(finished.exit_code == 0);
    std::map<std::pair<int, int>, std::vector<std::pair<std::int64_t, std::int64_t>>> tracks;
    const json trace = json::parse(testing::read_text(path));
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      const auto start = std::llround(event["ts"].get<double>() * 1000);
      const auto length = std::llround(event["dur"].get<double>() * 1000);
      tracks[{event["pid"], event["tid"]}].emplace_back(start, start + length);
    }
    CHECK(tracks.size() >= 4);
    for (auto& [track, spans] : tracks) {
      std::sort(spans.begin(), spans.end());
      for (std::size_t i = 1; i < spans.size(); ++i) CHECK(spans[i - 1].second <= spans[i].first);
    }
  }
}

TEST_CASE("program: a trace whose name ends in .gz is compressed") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("trace.json.gz");
  REQUIRE(parsim_with(with(simulate_lenet, {"--trace", path})).exit_code == 0);
  CHECK(testing::read_text(path).starts_with("\x1f\x8b"));
}

TEST_CASE("program: colour only where it is asked for") {
  CHECK(parsim_with({"list", "strategies"}).out.find('\x1b') == std::string::npos);
  CHECK(parsim_with({"list", "strategies", "--color", "always"}).out.find('\x1b') !=
        std::string::npos);
}

TEST_CASE("program: a simulation that cannot finish is exit code 4") {
  // One file may be open at a time, and a device is open from the start: none is left for SimGrid.
  Words words{"-c", "exec 3>&- && ulimit -n 4 && exec \"$0\" \"$@\"", PARSIM_PROGRAM};
  words = with(with(words, simulate_lenet), {"--engine", "simgrid", "--trace", "/dev/null"});
  const Finished finished =
      testing::run_program("/bin/bash", words, {}, {"ASAN_OPTIONS=detect_leaks=0"});
  CHECK(finished.exit_code == 4);
  CHECK(
      finished.err.starts_with("parsim: simulation did not finish: no file in memory for SimGrid"));
  CHECK(finished.out.empty());
}

TEST_CASE("program: SimGrid that lacks a descriptor is not said to be missing") {
  // Two files may be open: the library's copy in memory, and none for the loader that reads it.
  Words words{"-c", "exec 3>&- && ulimit -n 4 && exec \"$0\" \"$@\"", PARSIM_PROGRAM};
  words = with(with(words, simulate_lenet), {"--engine", "simgrid"});
  const Finished finished =
      testing::run_program("/bin/bash", words, {}, {"ASAN_OPTIONS=detect_leaks=0"});
  CHECK(finished.exit_code == 4);
  CHECK(finished.err ==
        "parsim: simulation did not finish: SimGrid cannot be loaded: Too many open files; "
        "accepted: higher limits (ulimit -a shows them), or --engine fast\n");
}

TEST_CASE("program: csv has one line for each strategy") {
  const Finished finished = parsim_with(with(compare_lenet, {"--format", "csv"}));
  const std::string header = finished.out.substr(0, finished.out.find('\n'));
  CHECK(header.starts_with("strategy,step_time_s,interval_low_s,interval_high_s,"));
  CHECK(header.ends_with(",network,cluster,batch,precision,optimizer"));
  const json known = json::parse(parsim_with({"list", "strategies", "--json"}).out);
  const auto lines = std::count(finished.out.begin(), finished.out.end(), '\n');
  CHECK(lines == static_cast<std::ptrdiff_t>(known.size()) + 1);
}

TEST_CASE("program: ring all-reduce of 100 MiB on one switch, by hand") {
  // t = 2(n-1)·2 us + 2(n-1)/n · 104,857,600 B / 25e9 B/s (two links a hop, 1 us each):
  //   n = 8:   28 us + 7.34003200 ms = 7.36803200 ms
  //   n = 64: 252 us + 8.25753600 ms = 8.50953600 ms
  for (const auto& [devices, milliseconds] :
       std::vector<std::pair<int, double>>{{8, 7.368032}, {64, 8.509536}}) {
    const std::string cluster =
        "star:" + std::to_string(devices) + ",device=p100-sxm2,rate=25GB/s,latency=1us";
    const json rows =
        json::parse(parsim_with({"collective", "all-reduce", "--cluster", cluster, "--size",
                                 "100MiB", "--collectives", "ideal", "--json"})
                        .out)["results"];
    REQUIRE(rows.size() == 1);
    CHECK(keys(rows[0]) == std::set<std::string>{"size_bytes", "time_s", "algbw_bytes_per_s",
                                                 "busbw_bytes_per_s", "algorithm", "protocol",
                                                 "engine"});
    CHECK(rows[0]["engine"] == "simgrid");
    const double time = rows[0]["time_s"];
    CHECK(time == testing::approx(milliseconds * 1e-3).epsilon(1e-6));
    CHECK(rows[0]["algbw_bytes_per_s"].get<double>() ==
          testing::approx(104857600 / time).epsilon(1e-12));
    CHECK(rows[0]["busbw_bytes_per_s"].get<double>() ==
          testing::approx(104857600 / time * 2 * (devices - 1) / devices).epsilon(1e-12));
  }
}

TEST_CASE("program: sizes double from first to last") {
  const json rows = json::parse(
      parsim_with({"collective", "broadcast", "--cluster", star, "--sizes", "8B..8KiB", "--json"})
          .out)["results"];
  REQUIRE(rows.size() == 11);
  CHECK(rows.front()["size_bytes"] == 8);
  CHECK(rows.back()["size_bytes"] == 8192);
}

}  // namespace
}  // namespace parsim::app
