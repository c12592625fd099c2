// Options that save memory, as the command line has them, and what it advises where nothing fits.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"

namespace parsim::testing {
namespace {

using nlohmann::json;

const std::string medium = "gpt:layers=24,hidden=1024,heads=16,attention=eager";
constexpr std::int64_t gpus = 8;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

/// A step of GPT-2 medium, or another network, on eight V100s with 16 GiB each.
Finished step(const std::string& options, const std::string& how = "simulate --strategy data",
              const std::string& network = medium) {
  std::vector<std::string> words = words_of(how);
  for (std::string& word :
       words_of("--cluster dgx-v100 --optimizer adam --quiet --engine fast --network")) {
    words.push_back(std::move(word));
  }
  words.push_back(network);
  if (options.find("--precision") == std::string::npos) {
    for (const char* word : {"--precision", "fp32"}) words.emplace_back(word);
  }
  for (std::string& word : words_of(options)) words.push_back(std::move(word));
  return run_program(PARSIM_PROGRAM, words);
}

std::string advice_in(const std::string& text) {
  const std::size_t at = text.find("data would ");
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST_CASE("memory options: advice fits, and the next larger batch does not") {
  const std::string first = advice_in(step("--batch 16").out);
  const Finished sharded = step("--batch 16 --zero 1");
  CHECK(sharded.exit_code == 0);
  // "data: tp 1 x pp 1 x dp 8, zero 1, 501 ms (90 %: ...": the step that the advice foretells.
  const std::size_t from = sharded.out.find("zero 1, ") + 8;
  const std::string time = sharded.out.substr(from, sharded.out.find(" (90 %", from) - from);
  CHECK(time.ends_with(" ms"));
  CHECK(first == "data would fit with --zero 1 (" + time + "), or with --batch 8");
  CHECK(json::parse(step("--batch 16 --json").out)["advice"] == first);
  CHECK(step("--batch 8").exit_code == 0);

  const std::string both = advice_in(step("--batch 512 --zero 1").out);
  REQUIRE(both.starts_with("data would fit with --batch "));
  const std::size_t savings = both.find("--zero 3 --bucket 25MiB --recompute optimal --batch ");
  REQUIRE(savings != std::string::npos);
  const auto batch = std::stoll(both.substr(both.rfind(' ')));
  const auto options = [](std::int64_t samples) {
    return "--zero 3 --bucket 25MiB --recompute optimal --batch " + std::to_string(samples);
  };
  CHECK(step(options(batch)).exit_code == 0);
  CHECK(step(options(batch + gpus)).exit_code == 5);
}

TEST_CASE("memory options: where data fits but the strategy asked for does not, advice says so") {
  CHECK(advice_in(step("--batch 16 --zero 3", "simulate --strategy owt").out) ==
        "data would fit as asked");
}

TEST_CASE("memory options: notes tell what is split and what is not") {
  const auto note = [](const std::string& options, const std::string& how) {
    const json result = json::parse(step("--json --batch 16 " + options, how).out);
    for (const json& one : result["notes"]) {
      const auto text = one.get<std::string>();
      if (text.starts_with("zero: ")) return text;
    }
    return std::string();
  };
  const std::string data = "simulate --strategy data", hybrid = "simulate --strategy hybrid";
  CHECK(note("--zero 3", data) == "zero: replicas shard optimizer states, gradients, weights");
  CHECK(note("--zero 3 --zero-group 4", data) ==
        "zero: replicas shard optimizer states, gradients, weights within groups of 4");
  CHECK(note("--zero 3 --zero-group node", data) == note("--zero 3", data));
  CHECK(note("--zero 3 --zero-group 1", data) ==
        "zero: nothing is sharded, because ZeRO groups have one device");
  CHECK(note("--zero 2 --parts 1 --micro-batches 2 --budget 20", hybrid) ==
        "zero: replicas shard optimizer states, gradients");
  CHECK(note("--zero 1", "simulate --strategy model-even")
            .starts_with("zero: replicas shard optimizer states; applies to "));
}

TEST_CASE("memory options: where nothing helps the advice says so") {
  std::string small;
  for (int d = 0; d < gpus; ++d) {
    small += " --override devices.dgx.gpu" + std::to_string(d) + ".memory=1GiB";
  }
  CHECK(advice_in(step("--batch 16" + small).out) ==
        "data would not fit even with --zero 3 --bucket 25MiB --recompute optimal --batch 8");
  CHECK(advice_in(step("--batch 16 --sync ps" + small).out) ==
        "data would not fit even with --recompute optimal --batch 8");
}

TEST_CASE("memory options: recomputing takes about a third longer, splitting states no time") {
  const auto result = [](const std::string& options) {
    return json::parse(step("--json --batch 8 " + options).out);
  };
  const json plain = result(""), again = result("--recompute optimal"), split = result("--zero 2");
  const auto time = [](const json& of) { return of["step_time_s"].get<double>(); };
  const auto peak = [](const json& of) {
    return of["devices"][0]["peak_memory_bytes"].get<double>();
  };
  CHECK(again["inputs"]["recompute"] == "optimal");
  CHECK(split["inputs"]["zero"] == 2);
  CHECK(time(again) / time(plain) == testing::approx(1.3).epsilon(0.06));
  CHECK(time(split) / time(plain) == testing::approx(1).epsilon(0.06));
  CHECK(peak(again) < 0.8 * peak(plain));
  CHECK(peak(split) < 0.8 * peak(plain));
}

TEST_CASE("memory options: memory that is kept free decides what fits, and reports say it") {
  const auto result = [](const std::string& options) {
    return json::parse(step("--json --batch 8 " + options).out);
  };
  const json plain = result("");
  const double share = 0.06, memory = 16.0 * 1024 * 1024 * 1024;
  CHECK(plain["headroom_bytes"].get<double>() == testing::approx(share * memory));
  CHECK(plain["devices"][0]["headroom_bytes"] == plain["headroom_bytes"]);
  CHECK(plain["inputs"]["headroom"]["share"] == share);
  const auto peak = plain["devices"][0]["peak_memory_bytes"].get<std::int64_t>();
  const auto keep = [&](double part) {  // so much is left as makes the peak that part of it
    const auto left = static_cast<std::int64_t>(static_cast<double>(peak) / part);
    return "--headroom " + std::to_string((std::int64_t{16} << 30) - left) + "B";
  };
  for (const auto& [part, verdict] :
       {std::pair{0.89, "fits"}, {0.91, "tight"}, {0.999, "tight"}, {1.001, "over"}}) {
    CAPTURE(part);
    const json one = result(keep(part));
    CHECK(one["verdict"] == verdict);
    CHECK(one["fits"] == (one["verdict"] != "over"));
    const bool lacks = one["devices"][0]["lacking_memory_bytes"].get<double>() > 0;
    CHECK(lacks == (part > 1));
    CHECK(step("--batch 8 " + keep(part)).exit_code == (part > 1 ? 5 : 0));
  }
  CHECK(result("--headroom 25%")["headroom_bytes"] == std::int64_t{4} << 30);
  CHECK(step("--headroom 2").exit_code == 2);
}

TEST_CASE("memory options: gradients travel in the precision that they are summed in") {
  const auto moved = [](const std::string& options) {
    const json result = json::parse(step("--json --batch 8 " + options).out);
    return std::pair{result["bytes_moved"].get<std::int64_t>(),
                     result["inputs"]["reduce_precision"].get<std::string>()};
  };
  const auto [whole, fp32] = moved("--precision fp16");
  const auto [half, fp16] = moved("--precision fp16 --reduce-precision fp16");
  CHECK(fp32 == "fp32");
  CHECK(fp16 == "fp16");
  CHECK(whole == 2 * half);
  CHECK(moved("").first == whole);
  CHECK(step("--reduce-precision tf32").exit_code == 2);
}

TEST_CASE("memory options: best is no slower than the others, and fits if one of them does") {
  const Finished all =
      step("--batch 64 --json --budget 50 --zero 1 --recompute optimal",
           "compare --strategy data --strategy owt --strategy pipeline --strategy best",
           "gpt:layers=6,hidden=1024,heads=16,attention=eager");  // where owt does not fit
  REQUIRE(all.exit_code == 0);
  const json rows = json::parse(all.out)["results"];
  CHECK(rows.back()["strategy"] == "owt");
  CHECK(rows.back()["fits"] == false);
  for (const json& row : rows) {
    if (row["strategy"] != "best") continue;
    CHECK(row["fits"] == true);
    CHECK(row["step_time_s"] == rows[0]["step_time_s"]);  // maybe the same plan
  }
}

}  // namespace
TEST_CASE("memory options: what is sent away from a device that made nothing itself is counted") {
  const TemporaryFolder folder;
  std::string cluster = "switches = [\"net\"]\n";
  for (const auto& [name, model, count, rate] :
       {std::tuple{"a", "t4", 2, 3}, {"b", "v100-sxm2", 1, 12}, {"x", "a10g", 1, 1}}) {
    cluster += fmt::format(
        "[[nodes]]\nname = \"{0}\"\ndevices = [{{ model = \"{1}\", count = {2} }}]\n"
        "switches = [\"sw\"]\nlinks = [{{ a = \"gpu*\", b = \"sw\", effective_rate = \"{4} GB/s\", "
        "latency = \"1 us\" }}]\n[[links]]\na = \"{0}.sw\"\nb = \"net\"\n"
        "effective_rate = \"{3} GB/s\"\nlatency = \"5 us\"\n",
        name, model, count, rate, count == 2 ? 150 : 240);
  }
  const std::string file = folder.write("mixed.toml", cluster);
  const Finished run =
      run_program(PARSIM_PROGRAM,
                  {"simulate", "--network", "deepseek-v3:layers=4", "--cluster", file, "--strategy",
                   "best", "--dim", "seq_length=1024", "--batch", "16", "--quiet"},
                  folder.folder());
  CHECK(run.exit_code == 5);
  CHECK(run.out.find("does not fit in memory") != std::string::npos);
}

}  // namespace parsim::testing
