#include "report/trace.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/dag_traffic.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::report {
namespace {

using nlohmann::json;
using testing::dag_of;
using testing::NotedDag;
using testing::star_of;

Span span(double start, double end) { return {Seconds{start}, Seconds{end}}; }

json trace_of_three() {
  const NotedDag noted =
      dag_of("a: compute d0 3us; t: transfer d0->d1 1MB after a; r: all-reduce d0,d1 4MB after t");
  Timeline timeline;
  timeline.spans = {span(0, 3e-6), span(3e-6, 1.0030004e-3), span(1.0030004e-3, 2e-3)};
  return json::parse(chrome_trace(noted.dag, star_of(2, "1 GB/s", "1 us"), timeline));
}

TEST_CASE("trace: an event for every queue an operation occupies") {
  const json trace = trace_of_three();
  std::vector<std::string> events;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    events.push_back(event["name"].get<std::string>() + " @" + event["pid"].dump() + "/" +
                     event["tid"].dump() + " " + event["ts"].dump() + "+" + event["dur"].dump());
  }
  // Queue = 2 x stream + side: compute 0, gradient 2 and 3, pipeline 6 and 7. The transfer ends
  // 0.4 ns after 1003 us, which rounds down.
  const std::vector<std::string> begin(events.begin(), events.begin() + 3);
  CHECK(begin ==
        std::vector<std::string>{"delay @0/0 0.0+3.0",
                                 events[1].substr(0, events[1].find(" @")) + " @0/6 3.0+1000.0",
                                 events[2].substr(0, events[2].find(" @")) + " @1/7 3.0+1000.0"});
  CHECK(events.size() == 1 + 2 + 4);
}

TEST_CASE("trace: every device and every track used has a name") {
  std::map<std::pair<int, int>, std::string> tracks;
  std::vector<std::string> processes;
  const json trace = trace_of_three();
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") processes.push_back(event["args"]["name"]);
    if (event["name"] == "thread_name") {
      tracks[{event["pid"], event["tid"]}] = event["args"]["name"];
    }
  }
  CHECK(processes == std::vector<std::string>{"d0 (gpu)", "d1 (gpu)"});
  const std::map<std::pair<int, int>, std::string> expected = {
      {{0, 0}, "compute"},         {{0, 2}, "gradient send"}, {{0, 3}, "gradient receive"},
      {{0, 6}, "pipeline send"},   {{1, 2}, "gradient send"}, {{1, 3}, "gradient receive"},
      {{1, 7}, "pipeline receive"}};
  CHECK(tracks == expected);
}

TEST_CASE("trace: what was measured stands below what was predicted, device by device") {
  const NotedDag noted = dag_of("a: compute d0 3us; b: compute d1 2us after a");
  Timeline predicted, measured;
  predicted.spans = {span(0, 3e-6), span(3e-6, 5e-6)};
  measured.spans = {span(0, 4e-6), span(4e-6, 7e-6)};
  const json trace =
      json::parse(chrome_trace(noted.dag, star_of(2, "1 GB/s", "1 us"), predicted, &measured));
  CHECK(trace["otherData"]["kind"] == "predicted and measured");
  std::map<int, std::string> labels, lengths;
  std::map<int, int> order;
  for (const json& event : trace["traceEvents"]) {
    const int process = event["pid"];
    if (event["name"] == "process_labels") labels[process] = event["args"]["labels"];
    if (event["name"] == "process_sort_index") order[event["args"]["sort_index"]] = process;
    if (event["ph"] == "X") lengths[process] += event["ts"].dump() + "+" + event["dur"].dump();
  }
  CHECK(labels == std::map<int, std::string>{
                      {0, "predicted"}, {1, "predicted"}, {2, "measured"}, {3, "measured"}});
  CHECK(order == std::map<int, int>{{0, 0}, {1, 2}, {2, 1}, {3, 3}});
  CHECK(lengths ==
        std::map<int, std::string>{{0, "0.0+3.0"}, {1, "3.0+2.0"}, {2, "0.0+4.0"}, {3, "4.0+3.0"}});
}

TEST_CASE("trace: by hand, arrows between sender and receiver, rates, and categories") {
  const json trace = trace_of_three();
  std::vector<std::string> arrows, counters;
  std::set<std::string> categories;
  for (const json& event : trace["traceEvents"]) {
    const std::string kind = event["ph"];
    const auto place = [&] {
      return event["pid"].dump() + "/" + event["tid"].dump() + " " + event["ts"].dump();
    };
    if (kind == "s" || kind == "f") arrows.push_back(kind + event["id"].dump() + " " + place());
    if (kind == "X") categories.insert(event["cat"]);
    if (kind == "C") {
      counters.push_back(event["pid"].dump() + " " + event["ts"].dump() + ": " +
                         event["args"]["send"].dump() + " " + event["args"]["receive"].dump());
    }
  }
  // The transfer is operation 1: from 3 us to 1003 us, a nanosecond before whose end the arrow
  // ends.
  CHECK(arrows == std::vector<std::string>{"s2 0/6 3.0", "f2 1/7 1002.999"});
  CHECK(categories == std::set<std::string>{"delay", "transfer", "collective"});
  // 1 MB in 1 ms: 1 GB/s. The all-reduce of 4 MB: each of the two receives 2 (n-1)/n x 4 MB in
  // 997 us: 4.01204 GB/s.
  CHECK(counters == std::vector<std::string>{"0 3.0: 1 0", "0 1003.0: 4.01204 4.01204",
                                             "0 2000.0: 0 0", "1 3.0: 0 1",
                                             "1 1003.0: 4.01204 4.01204", "1 2000.0: 0 0"});
}

TEST_CASE("trace: a counter of each device's memory, states below activations") {
  experiment::Request request;
  request.network = "mlp";
  request.cluster = "star:1,device=t4,rate=12GB/s,latency=1us";
  request.batch = 64;
  const experiment::Experiment experiment(request);
  const experiment::Run run =
      run_plan(experiment, make_plan(experiment, strategies::strategy("data", "test")));
  const std::vector<lowering::MemoryUse> memory = {run.result.devices[0].memory};
  const json trace =
      json::parse(chrome_trace(run.dag, experiment.cluster, run.timeline, nullptr, memory));
  double states = 0, most = 0, last = -1;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] != "memory [GiB]") continue;
    CHECK(event["ph"] == "C");
    states = event["args"]["states"];
    last = event["args"]["activations"];
    most = std::max(most, last);
  }
  constexpr double gib = 1024.0 * 1024 * 1024;
  const Bytes activations = memory[0].activations;
  CHECK(states ==
        testing::approx(static_cast<double>((memory[0].total().value - activations.value)) / gib)
            .epsilon(1e-5));
  // As in tests/experiment/memory_over_time_test.cpp.
  CHECK(most == testing::approx(64 * 4 * (784 + 1024 + 1024 + 10) / gib).epsilon(1e-5));
  CHECK(last == 0);
}

TEST_CASE("trace: a step that 64-bit nanoseconds do not hold is refused") {
  const NotedDag noted = dag_of("a: compute d0 3us");
  const auto trace = [&](double end) {
    Timeline timeline;
    timeline.spans = {span(0, end)};
    return testing::refusal_of([&] {
      return json::parse(chrome_trace(noted.dag, star_of(1, "1 GB/s", "1 us"), timeline));
    });
  };
  CHECK(trace(9.2e9) == "accepted");
  CHECK(trace(9.3e9) ==
        "--trace: a step of 9.3e+09 s; accepted: less than 9.22e+09 s, which 64 bits hold in "
        "nanoseconds");
}

TEST_CASE("trace: a hostile device name stays a JSON string") {
  Cluster cluster = star_of(1, "1 GB/s", "1 us");
  cluster.devices[0].name = "\"}],\x1b\xff";
  const NotedDag noted = dag_of("a: compute d0 3us");
  Timeline timeline;
  timeline.spans = {span(0, 3e-6)};
  CHECK(json::accept(chrome_trace(noted.dag, cluster, timeline)));
}

}  // namespace
}  // namespace parsim::report
