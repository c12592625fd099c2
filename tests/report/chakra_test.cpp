// Chakra's traces, decoded by protoc with the schema: as many nodes as the DAG has operations.
#include "report/chakra.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/text.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::report {
namespace {

using testing::dag_of;
using testing::star_of;

/// The file's messages as fields of chakra.proto's Trace: a tag before each length.
std::string with_tags(const std::string& bytes) {
  std::string tagged;
  for (std::size_t at = 0; at < bytes.size();) {
    tagged += static_cast<char>(at == 0 ? 0x0A : 0x12);
    std::uint64_t length = 0;
    unsigned shift = 0;
    bool more = true;
    while (more) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      tagged += static_cast<char>(byte);
      length |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      shift += 7;
      more = byte >= 0x80;
    }
    tagged += bytes.substr(at, length);
    at += length;
  }
  return tagged;
}

const std::string star_text = "star:1,device=t4,rate=12GB/s,latency=1us";

/// What protoc prints of a rank's file.
std::string decoded(const std::string& bytes) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write("trace", with_tags(bytes));
  const testing::Finished done =
      testing::run_program("/bin/sh", {"-c", "exec protoc --decode=Trace -I" PARSIM_SOURCE_DIR
                                             "/tests/report chakra.proto < " +
                                                 file});
  CAPTURE(done.err);
  CHECK(done.exit_code == 0);
  return done.out;
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

TEST_CASE("chakra: the size of a collective is what a rank puts in") {
  const auto size_of = [](const std::string& kind) {
    const testing::NotedDag noted = dag_of("r: " + kind + " d0,d1,d2,d3 4MB");
    Timeline timeline;
    timeline.spans = {{Seconds{0}, Seconds{1}}};
    const ChakraTraces traces = chakra_traces(noted.dag, star_of(4, "1 GB/s", "1 us"), timeline);
    const std::string text = decoded(traces.ranks[0]), key = "name: \"comm_size\"\n    int64_val: ";
    return text.substr(text.find(key) + key.size(), 8);
  };
  CHECK(size_of("all-reduce").starts_with("4000000\n"));
  CHECK(size_of("reduce-scatter").starts_with("4000000\n"));
  CHECK(size_of("all-gather").starts_with("1000000\n"));
}

TEST_CASE("chakra: by hand, a kernel, a transfer and a sum of two ranks") {
  const testing::NotedDag noted =
      dag_of("a: compute d0 3us; t: transfer d0->d1 1MB after a; r: all-reduce d0,d1 4MB after t");
  Timeline timeline;
  timeline.spans = {{Seconds{0}, Seconds{3e-6}},
                    {Seconds{3e-6}, Seconds{1003e-6}},
                    {Seconds{1003e-6}, Seconds{2e-3}}};
  const ChakraTraces traces = chakra_traces(noted.dag, star_of(2, "1 GB/s", "1 us"), timeline);
  CHECK(nlohmann::json::parse(traces.groups) == nlohmann::json{{"0", {0, 1}}});
  REQUIRE(traces.ranks.size() == 2);
  const std::string first = decoded(traces.ranks[0]), second = decoded(traces.ranks[1]);
  CHECK(first.starts_with(
      "metadata {\n  version: \"0.0.4\"\n}\nnodes {\n  name: \"delay\"\n  type: COMP_NODE\n"
      "  duration_micros: 3\n"));
  // Operation 1 waits for operation 0 on rank 0; rank 1 has it without that.
  CHECK(first.find("  id: 1\n") < first.find("  type: COMM_SEND_NODE\n  data_deps: 0\n"
                                             "  start_time_micros: 3\n  duration_micros: 1000\n"));
  CHECK(second.find("  type: COMM_RECV_NODE\n  start_time_micros: 3\n") != std::string::npos);
  for (const std::string& text : {first, second}) {
    CHECK(text.find("name: \"comm_size\"\n    int64_val: 1000000\n") != std::string::npos);
    CHECK(text.find("  type: COMM_COLL_NODE\n  data_deps: 1\n") != std::string::npos);
    CHECK(text.find("name: \"pg_name\"\n    string_val: \"0\"\n") != std::string::npos);
    CHECK(text.find("name: \"comm_type\"\n    int64_val: 0\n") != std::string::npos);
  }
}

TEST_CASE("chakra: a step that 64-bit microseconds do not hold is refused") {
  const testing::NotedDag noted = dag_of("a: compute d0 3us");
  Timeline timeline;
  timeline.spans = {{Seconds{0}, Seconds{1e13}}};
  CHECK(testing::refusal_of([&] {
          return chakra_traces(noted.dag, star_of(1, "1 GB/s", "1 us"), timeline).computes;
        }) ==
        "--chakra: a step of 1e+13 s; accepted: less than 9.22e+12 s, which 64 bits hold in "
        "microseconds");
}

TEST_CASE("chakra: the size of an all-to-all is that of a rank's buffer") {
  experiment::Request request;
  request.network = "gpt:layers=1,hidden=512,heads=8,seq_length=512,vocab_size=1024,experts=4";
  request.cluster = "nodes:1x4,device=h100-sxm5,intra=450GB/s,inter=25GB/s";
  request.batch = 4;
  request.expert_parallel = request.data_parallel = 4;
  request.tensor_parallel = request.pipeline_parallel = 1;
  const experiment::Experiment experiment(request);
  const experiment::Run run =
      run_plan(experiment, make_plan(experiment, strategies::strategy("tensor", "test")));
  const std::string text =
      decoded(chakra_traces(run.dag, experiment.cluster, run.timeline).ranks[1]);
  std::size_t found = 0;
  for (std::size_t i = 0; i < run.dag.size(); ++i) {
    const OpRecord& record = run.dag.record(OpId{i});
    if (run.dag.kind(OpId{i}) != OpKind::collective ||
        static_cast<CollectiveKind>(record.sub) != CollectiveKind::all_to_all) {
      continue;
    }
    ++found;
    const auto has = [&](std::int64_t bytes) {
      return text.find("int64_val: " + std::to_string(bytes) + "\n") != std::string::npos;
    };
    const std::int64_t payload = run.dag.payload(OpId{i}).value;  // three quarters of four buffers
    CAPTURE(payload);
    CHECK(has(payload / 3));
    CHECK_FALSE(has(payload));
  }
  CHECK(found > 0);
}

TEST_CASE("chakra: names that are not UTF-8 are decoded all the same") {
  experiment::Request request;
  request.network = "mlp";
  request.cluster = star_text;
  request.batch = 8;
  const experiment::Experiment experiment(request);
  experiment::Run run =
      run_plan(experiment, make_plan(experiment, strategies::strategy("data", "test")));
  run.dag.network.layers[1].name = "\xff\x1b\"fc1";
  const ChakraTraces traces = chakra_traces(run.dag, experiment.cluster, run.timeline);
  CHECK(decoded(traces.ranks[0]).find("\\357\\277\\275\\033\\\"fc1 forward") != std::string::npos);
}

TEST_CASE("chakra: decoded with the schema, counts are those of the DAG") {
  for (const std::string strategy : {"data", "pipeline", "tensor", "hypergraph"}) {
    CAPTURE(strategy);
    experiment::Request request;
    request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128";
    request.cluster = "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
    request.batch = 16;
    const experiment::Experiment experiment(request);
    const experiment::Run run =
        run_plan(experiment, make_plan(experiment, strategies::strategy(strategy, "test")));
    const ChakraTraces traces = chakra_traces(run.dag, experiment.cluster, run.timeline);
    std::size_t computes = 0, transfers = 0, parts = 0;
    for (std::size_t i = 0; i < run.dag.size(); ++i) {
      const OpRecord& record = run.dag.record(OpId{i});
      if (run.dag.kind(OpId{i}) == OpKind::collective) {
        parts += run.dag.group(GroupId{record.device}).size();
      } else if (run.dag.kind(OpId{i}) == OpKind::transfer && record.device != record.to) {
        ++transfers;
      } else {
        ++computes;
      }
    }
    std::size_t sends = 0, receives = 0, found_computes = 0, found_parts = 0, empty = 0;
    for (const std::string& rank : traces.ranks) {
      const std::string text = decoded(rank);
      found_computes += count_of(text, "  type: COMP_NODE\n");
      found_parts += count_of(text, "  type: COMM_COLL_NODE\n");
      sends += count_of(text, "  type: COMM_SEND_NODE\n");
      receives += count_of(text, "  type: COMM_RECV_NODE\n");
      empty += count_of(text, "  name: \"wait for ");
    }
    CHECK(found_computes == computes);
    CHECK(found_parts == parts);
    CHECK(sends == transfers + empty / 2);
    CHECK(receives == sends);
    CHECK(computes == traces.computes);
    CHECK(parts == traces.collectives);
  }
}

}  // namespace
}  // namespace parsim::report
