// The page of a sweep: its axes, the best of each cell, the Pareto front, and what failed.
#include "report/page/sweep_page.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "report/sweep_merge.hpp"
#include "tests/support/program.hpp"

namespace parsim::report {
namespace {

using testing::TemporaryFolder;

/// A results file with two axes and one input that follows from both.
class Results {
 public:
  Results(std::size_t gpus, std::size_t batches) : gpus_(gpus), batches_(batches) {
    text_ = fmt::format(
        R"({{"sweep":"s","version":"v","points":{},"columns":["network","cluster","gpu","batch"]}})"
        "\n",
        gpus * batches);
  }
  /// Values of the rows of the next point: step time, memory, whether it fits.
  struct Row {
    double step, memory;
    bool fits;
  };
  void point(const std::vector<Row>& rows, const std::string& error = "") {
    const std::size_t gpu = points_ / batches_, batch = points_ % batches_;
    text_ += fmt::format(
        R"({{"point":{},"id":"i{}","nondeterministic":false,"inputs":{{"network":"n<b>","cluster":)"
        R"("star:g{},rate={}GB/s","gpu":"g{}","batch":{}}},"results":[)",
        points_, points_, gpu, batch + 1, gpu, 8 * (batch + 1));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      text_ += fmt::format(
          R"({}{{"strategy":"s{}","step_time_s":{},"peak_memory_bytes":{},"fits":{},"error":null}})",
          r > 0 ? "," : "", r, rows[r].step, rows[r].memory, rows[r].fits);
    }
    text_ += fmt::format("],\"error\":{}}}\n",
                         error.empty() ? std::string("null") : "\"" + error + "\"");
    ++points_;
  }
  [[nodiscard]] std::string write(const TemporaryFolder& folder) const {
    std::string path = folder.folder() + "/results.1-of-1.jsonl";
    std::ofstream(path, std::ios::binary) << text_;
    return path;
  }

 private:
  std::size_t gpus_, batches_, points_ = 0;
  std::string text_;
};

std::string page_of(const TemporaryFolder& folder, const std::string& results,
                    const std::vector<std::string>& where = {}) {
  const std::string path = folder.folder() + "/page.html";
  MergeRequest request;
  request.paths = {results};
  request.top = 10;
  request.where = where;
  request.page = path;
  request.command = {"sweep", "--merge", "results"};
  [[maybe_unused]] const MergeReport merged = merge_results(request);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t number = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++number;
  return number;
}

TEST_CASE("sweep page: inputs that change together are one axis, what follows from others none") {
  const auto names = [](const std::vector<SweepInput>& inputs) {
    std::vector<std::vector<std::string>> found;
    for (const SweepAxis& axis : axes_of(inputs)) found.push_back(axis.names);
    return found;
  };
  using Names = std::vector<std::vector<std::string>>;
  const SweepInput same{"network", {"a", "a", "a", "a"}};
  const SweepInput gpu{"gpu", {"old", "old", "new", "new"}};
  const SweepInput price{"price", {"1", "1", "2", "2"}};
  const SweepInput override_text{"override", {"price=1", "price=1", "price=2", "price=2"}};
  const SweepInput batch{"batch", {"8", "16", "8", "16"}};
  const SweepInput cluster{"cluster", {"old,8", "old,16", "new,8", "new,16"}};
  CHECK(names({same}).empty());
  CHECK(names({same, gpu, batch}) == Names{{"gpu"}, {"batch"}});
  CHECK(names({override_text, gpu, price, batch}) == Names{{"gpu", "price"}, {"batch"}});
  CHECK(names({cluster, gpu, batch}) == Names{{"gpu"}, {"batch"}});
  // Nothing else says what the cluster is; "gpu" follows from it.
  CHECK(names({cluster, gpu}) == Names{{"cluster"}});
  CHECK(axes_of({gpu, price}).front().values == std::vector<std::string>{"old, 1", "new, 2"});
  CHECK(differing_parts({"star:8,a=1", "star:9,a=1"}) ==
        std::vector<std::string>{"star:8", "star:9"});
  CHECK(differing_parts({"a", "a,b"}) == std::vector<std::string>{"a", "a,b"});
}

TEST_CASE("sweep page: cells and Pareto front, against all rows of random sweeps") {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    const TemporaryFolder folder;
    const std::size_t gpus = 2 + random() % 3, batches = 2 + random() % 4;
    Results results(gpus, batches);
    std::map<std::string, double> best;  // by gpu and batch
    std::vector<Results::Row> good;
    for (std::size_t p = 0; p < gpus * batches; ++p) {
      if (random() % 5 == 0) {
        results.point({}, "no such plan");
        continue;
      }
      std::vector<Results::Row> rows;
      for (std::size_t r = 0; r < 2; ++r) {
        const auto draw = [&] { return static_cast<double>(1 + random() % 9); };
        const double step = draw(), memory = draw();
        rows.push_back({step, memory, random() % 3 > 0});
        if (!rows.back().fits) continue;
        good.push_back(rows.back());
        const std::string key = fmt::format("{} {}", p / batches, p % batches);
        const auto at = best.emplace(key, rows.back().step).first;
        at->second = std::min(at->second, rows.back().step);
      }
      results.point(rows);
    }
    SweepRows rows({results.write(folder)});
    if (!rows.has_results()) continue;
    const SweepSummary summary = summary_of(rows, "step_time_s", {"peak_memory_bytes"}, {});
    REQUIRE(summary.axes.size() == 3);
    CHECK(summary.axes[0].names.front() == "gpu");
    CHECK(summary.axes[1].names.front() == "batch");
    CHECK(summary.axes[2].names.front() == "strategy");
    const std::string map = draw_heat_map(summary, 0, 1);
    CHECK(count_of(map, "<td") == gpus * batches);
    CHECK(count_of(map, "best ") == best.size());
    for (const auto& [key, step] : best) {
      const std::string value = fmt::format("{:.2f}", step);
      CAPTURE(map);
      CHECK(map.find(value) != std::string::npos);
    }
    // The front: good rows that no other beats; of equal ones one.
    std::vector<std::pair<double, double>> expected, found;
    for (const Results::Row& row : good) {
      const bool beaten = std::any_of(good.begin(), good.end(), [&](const Results::Row& other) {
        return other.step <= row.step && other.memory <= row.memory &&
               (other.step < row.step || other.memory < row.memory);
      });
      if (!beaten) expected.emplace_back(row.step, row.memory);
    }
    std::sort(expected.begin(), expected.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    for (const std::size_t r : summary.front(0, 1)) {
      found.emplace_back(summary.rows[r].costs[0], summary.rows[r].costs[1]);
    }
    CHECK(found == expected);
    CHECK(count_of(draw_front(summary, 0, 1, summary.front(0, 1)), "class=on") == found.size());
  }
}

TEST_CASE("sweep page: the answer, conditions, reasons, and nothing unescaped") {
  const TemporaryFolder folder;
  Results results(2, 2);
  results.point({{1, 5, true}});
  results.point({{2, 4, true}});
  results.point({{3, 3, false}});
  results.point({}, "no <i>plan");
  const std::string file = results.write(folder);
  const std::string page = page_of(folder, file);
  CHECK(page.find("Fastest: 1.00\u00a0s") != std::string::npos);
  CHECK(page.find("<p class=answer>gpu g0, batch 8") != std::string::npos);
  CHECK(page.find("★ 1.00") != std::string::npos);
  CHECK(page.find(">memory") != std::string::npos);
  CHECK(page.find("1 failed, the first (point 3): no &lt;i&gt;plan") != std::string::npos);
  CHECK(page.find("<i>plan") == std::string::npos);
  CHECK(page.find("n<b>") == std::string::npos);
  CHECK(page.find("http") == page.find("http-equiv"));
  CHECK(page == page_of(folder, file));
  const std::string asked = page_of(folder, file, {"step_time_s > 1"});
  CHECK(asked.find("Fastest with step_time_s &gt; 1: 2.00\u00a0s") != std::string::npos);
  CHECK(asked.find("not as asked: 1.00 s (point 0: gpu g0, batch 8)") != std::string::npos);
  const std::string none = page_of(folder, file, {"step_time_s > 5"});
  CHECK(none.find("No point is the best with step_time_s &gt; 5") != std::string::npos);
}

TEST_CASE("sweep page: a sweep of one point has a page, and one of none is refused") {
  const TemporaryFolder folder;
  Results one(1, 1), none(0, 0);
  one.point({{20e-6, 100, true}});
  const std::string page = page_of(folder, one.write(folder));
  CHECK(page.find("<th class=n>no.<th>") != std::string::npos);
  CHECK(page.find("step time [us]") != std::string::npos);
  CHECK_THROWS_AS(static_cast<void>(page_of(folder, none.write(folder))), InputError);
}

TEST_CASE("sweep page: a column's unit fits its smallest number above zero") {
  const TemporaryFolder folder;
  Results results(2, 1);
  results.point({{20e-6, 5e9, true}});
  results.point({{2, 0, true}});
  const std::string page = page_of(folder, results.write(folder));
  CHECK(page.find("<th class=n>step time [us]") != std::string::npos);
  CHECK(page.find("<th class=n>peak memory [GiB]") != std::string::npos);
}

TEST_CASE("sweep page: 10,000 points take little time and space") {
  const TemporaryFolder folder;
  Results results(100, 100);
  std::mt19937 random(5);
  for (int p = 0; p < 10'000; ++p) {
    results.point({{1 + static_cast<double>(random() % 10'000) / 100,
                    static_cast<double>(random() % 1'000'000), random() % 4 > 0}});
  }
  const std::string file = results.write(folder);
  const auto before = std::chrono::steady_clock::now();
  const std::string page = page_of(folder, file);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  CHECK(page.size() < 2'000'000);
  CHECK(page.find("the best 30 of 100 values") != std::string::npos);
  CHECK(took.count() < 30);  // with sanitizers on a busy machine
  MESSAGE(page.size() << " bytes in " << took.count() << " s");
}

}  // namespace
}  // namespace parsim::report
