// The same run as several versions of PyTorch write its trace: what they call things, and how exact
// their clocks are. Names and formats: libkineto's src/output_json.cpp and src/CuptiActivity.h at
// the versions' dates, PyTorch's torch/csrc/autograd/profiler_kineto.cpp.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "experiment/kineto_trace.hpp"
#include "experiment/trace_steps.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/kineto_writer.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

using testing::KinetoWriter;
using Json = KinetoWriter::Json;

KinetoTrace written(const std::string& text) {
  const testing::TemporaryFolder folder;
  return read_kineto_trace(folder.write("trace.json", text));
}

bool is_on_host_or_gpu(const Json& event) {
  return event["cat"] == "cuda_runtime" || event["cat"] == "kernel" || event["cat"] == "gpu_memcpy";
}

/// CUDA's correlations count from 1, as operators do, so that each of them is an operator's id,
/// too.
void count_correlations(KinetoWriter& trace) {
  std::map<std::int64_t, std::int64_t> numbers;
  for (Json& event : trace.events) {
    if (!is_on_host_or_gpu(event)) continue;
    const auto old = event["args"]["correlation"].get<std::int64_t>();
    event["args"]["correlation"] =
        numbers.try_emplace(old, static_cast<std::int64_t>(numbers.size()) + 1).first->second;
  }
}

/// PyTorch 1.12 to 2.2: "External id" of launches and kernels repeats the correlation.
void write_as_2_0(KinetoWriter& trace) {
  count_correlations(trace);
  for (Json& event : trace.events) {
    if (is_on_host_or_gpu(event)) event["args"]["External id"] = event["args"]["correlation"];
  }
}

/// PyTorch 1.9: other categories, threads as text, annotations as operators, no modules, sequence
/// numbers of nodes only, operators in the order of their ends.
void write_as_1_9(KinetoWriter& trace) {
  const std::map<std::string, std::string> categories = {
      {"cpu_op", "Operator"}, {"user_annotation", "Operator"}, {"cuda_runtime", "Runtime"},
      {"kernel", "Kernel"},   {"gpu_memcpy", "Memcpy"},
  };
  std::erase_if(trace.events, [](const Json& event) { return event["cat"] == "python_function"; });
  std::vector<Json> nodes;
  for (Json& event : trace.events) {
    Json& arguments = event["args"];
    const std::string engine = "autograd::engine::evaluate_function: ";
    const auto name = event["name"].get<std::string>();
    if (name.starts_with(engine)) {
      Json& node = nodes.emplace_back(event);
      node["name"] = name.substr(engine.size(), name.size() - engine.size() - 1);
      node["args"]["External id"] = 500'000 + std::ssize(nodes);
      arguments.erase("Sequence number");
    }
    event["tid"] = is_on_host_or_gpu(event) && event["cat"] != "cuda_runtime"
                       ? "stream " + event["tid"].dump()
                       : event["tid"].dump();
    if (is_on_host_or_gpu(event)) {
      arguments["external id"] = arguments["External id"];
      arguments.erase("External id");
    }
  }
  for (Json& node : nodes) node["tid"] = node["tid"].dump();
  trace.events.insert(trace.events.end(), nodes.begin(), nodes.end());
  for (Json& event : trace.events) event["cat"] = categories.at(event["cat"]);
  std::stable_sort(trace.events.begin(), trace.events.end(), [](const Json& a, const Json& b) {
    return a["ts"].get<double>() + a["dur"].get<double>() <
           b["ts"].get<double>() + b["dur"].get<double>();
  });
}

/// Time of each part and of each layer's passes, in whole nanoseconds.
std::map<std::string, std::int64_t> times_in(const TraceSteps& trace) {
  const auto nanoseconds = [](Seconds time) { return std::llround(time.count() * 1e9); };
  std::map<std::string, std::int64_t> times;
  for (const Span& step : trace.steps) {
    times[fmt::format("step {}", &step - trace.steps.data())] = nanoseconds(step.end - step.start);
  }
  for (const TraceWork& work : trace.work) {
    const std::string part = work.part ? std::to_string(static_cast<int>(*work.part)) : "none";
    times[fmt::format("part {} of step {}", part, std::min(work.step, trace.steps.size()))] +=
        nanoseconds(work.span.end - work.span.start);
  }
  for (const LayerCall& call : trace.calls) {
    const std::string shape = text_of(call.shape);
    times["forward " + shape] += nanoseconds(call.forward);
    times["backward " + shape] += nanoseconds(call.backward);
    times["of weights " + shape] += nanoseconds(call.backward_weights);
  }
  return times;
}

TEST_CASE("kineto versions: traces of PyTorch 1.9 and 2.0 say what one of today says") {
  const auto today = times_in(steps_of(written(testing::mlp_trace().text())));
  CHECK(today.at("forward matmul 64x784x1024") == 4 * 20'000);
  CHECK(today.at("backward matmul 64x1024x10") == 4 * 20'000);
  KinetoWriter trace = testing::mlp_trace();
  write_as_2_0(trace);
  CHECK(times_in(steps_of(written(trace.text()))) == today);
  trace = testing::mlp_trace();
  write_as_1_9(trace);
  CHECK(times_in(steps_of(written(trace.text()))) == today);
}

TEST_CASE("kineto versions: of two operators in the same microsecond the first one is the outer") {
  KinetoWriter trace;
  const testing::WrittenShapes shapes = {{{64, 10}, {64, 10}}, {}};
  trace.op("aten::add", 10, 5, shapes);
  trace.op("aten::mul", 10, 5, shapes);
  trace.kernel("elementwise_kernel", 100, 3, -1,
               10);  // launched in it, as long as rounding makes it
  trace.events[2]["dur"] = 6;
  std::reverse(trace.events.begin(), trace.events.end());
  const TraceSteps steps = steps_of(written(trace.text()));
  REQUIRE(steps.calls.size() == 1);
  CHECK(text_of(steps.calls[0].shape) == "add 640");
}

TEST_CASE("kineto versions: nanoseconds of a clock that counts from 1970 are kept") {
  const std::string text = R"([
    {"ph":"X","cat":"kernel","name":"a","ts":1713300000000000.123,"dur":2.345,"args":{"device":0}},
    {"ph":"X","cat":"kernel","name":"b","ts":1713300000000007.981,"dur":1,"args":{"device":0}}])";
  const KinetoTrace trace = written(text);
  REQUIRE(trace.events.size() == 2);
  CHECK(trace.events[0].end - trace.events[0].start == testing::approx(2.345).epsilon(1e-6));
  CHECK(trace.events[1].start - trace.events[0].start == testing::approx(7.858).epsilon(1e-4));
}

TEST_CASE(
    "kineto versions: a copy from a peer is of the GPU that makes it, others of their process") {
  const std::string kernel =
      R"({"ph":"X","cat":"kernel","name":"k","ts":3,"dur":1,"pid":1,"tid":7},)";
  const std::string copy =
      R"({"ph":"X","cat":"gpu_memcpy","name":"Memcpy PtoP","ts":5,"dur":1,"pid":1,"tid":7,
          "args":{"fromDevice":0,"inDevice":1,"toDevice":1,"stream":7}})";
  CHECK(written("[" + kernel + copy + "]").gpus == std::vector<std::int64_t>{1});
}

TEST_CASE("kineto versions: annotations named like nodes of the graph are not the backward pass") {
  KinetoWriter trace;
  const testing::WrittenShapes shapes = {{{64, 1024}, {10, 1024}, {10}}, {}};
  trace.annotation("ForwardAndBackward", 0, 100);
  const std::int64_t linear = trace.op("aten::linear", 10, 10, shapes, 4);
  trace.kernel("gemm", 200, 20, linear, 15);
  const TraceSteps steps = steps_of(written(trace.text()));
  REQUIRE(steps.calls.size() == 1);
  CHECK(steps.calls[0].backward == Seconds{});
  CHECK(steps.calls[0].forward.count() == testing::approx(20e-6).epsilon(1e-9));
}

}  // namespace
}  // namespace parsim::experiment
