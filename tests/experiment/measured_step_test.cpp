// A trace of PyTorch's profiler: what its steps and kernels are, against a trace worked out by
// hand.
#include "experiment/measured_step.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "core/errors.hpp"
#include "experiment/files.hpp"
#include "experiment/kineto_trace.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/kineto_writer.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/transcript.hpp"

namespace parsim::experiment {
namespace {

using testing::KinetoWriter;
using testing::TemporaryFolder;

constexpr double microsecond = 1e-6;

TraceSteps steps_in(const KinetoWriter& trace) {
  const TemporaryFolder folder;
  return steps_of(read_kineto_trace(folder.write("trace.json", trace.text())));
}

Request mlp_on_two() {
  Request request;
  request.network = "mlp";
  request.cluster = "star:2,device=t4,rate=12GB/s,latency=1us";
  request.batch = 128;
  return request;
}

Run data_run(const Experiment& experiment) {
  for (const strategies::Strategy& row : strategies::all()) {
    if (row.name == "data") return run_plan(experiment, make_plan(experiment, row));
  }
  return {};
}

MeasuredStep measured(const KinetoWriter& trace, const Request& request = mlp_on_two(),
                      DeviceId device = DeviceId{1}) {
  const Experiment experiment(request);
  return compare_with_trace(experiment, data_run(experiment), steps_in(trace), device,
                            "trace.json");
}

void check_parts(const GpuParts& parts, const GpuParts& microseconds) {
  for (std::size_t p = 0; p < parts.size(); ++p) {
    CAPTURE(spellings(GpuPart{})[p]);
    CHECK(parts[p].count() * 1e6 == testing::approx(microseconds[p].count()).epsilon(1e-9));
  }
}

TEST_CASE("measured step: the example that the help names is the trace of these tests") {
  const std::string path = PARSIM_SOURCE_DIR "/experiment/examples/trace.json";
  const std::string text = testing::mlp_trace().text();
  if (testing::regenerating()) std::ofstream(path) << text;
  CHECK(testing::read_text(path) == text);
}

TEST_CASE("measured step: by hand, parts of the median of three steps") {
  const MeasuredStep step = measured(testing::mlp_trace());
  CHECK(step.steps == 3);
  CHECK(step.measured.count() == testing::approx(310 * microsecond).epsilon(1e-12));
  // The sums of mlp_trace(): products, attention, element-wise, optimizer, rest, communication,
  // idle.
  check_parts(step.measured_parts, {Seconds{170}, Seconds{0}, Seconds{24}, Seconds{40}, Seconds{7},
                                    Seconds{40}, Seconds{29}});
  CHECK(step.unknown_shapes == Seconds{});
  CHECK(step.notes.empty());
}

TEST_CASE("measured step: parts add up to the steps, and points to the difference of MFU") {
  const MeasuredStep step = measured(testing::mlp_trace());
  Seconds before{}, after{};
  double points = 0;
  for (std::size_t p = 0; p < gpu_part_count; ++p) {
    before += step.predicted_parts[p];
    after += step.measured_parts[p];
    points += step.points(static_cast<GpuPart>(p));
  }
  CHECK(before.count() == testing::approx(step.predicted.count()).epsilon(1e-12));
  CHECK(after.count() == testing::approx(step.measured.count()).epsilon(1e-12));
  CHECK(points == testing::approx(step.predicted_mfu - step.measured_mfu).epsilon(1e-12));
  CHECK(step.predicted_mfu * step.predicted.count() ==
        testing::approx(step.measured_mfu * step.measured.count()).epsilon(1e-12));
}

/// Median times of the profile's samples in microseconds, by layer kind, outputs and pass.
std::map<std::string, double> times_of(const Profile& profile) {
  std::map<std::string, double> times;
  for (const KernelSample& sample : profile.kernels) {
    std::string name(kind_name(sample.kind));
    name.append(" ").append(std::to_string(sample.inputs[0].elements()));
    name.append("->").append(std::to_string(sample.part.out.volume()));
    times[name + " " + std::string(to_text(sample.pass))] =
        sample.time.median.count() / microsecond;
    CHECK(sample.device == "t4");
  }
  return times;
}

TEST_CASE("measured step: by hand, the profile has every kernel of the trace") {
  const MeasuredStep step = measured(testing::mlp_trace());
  const std::map<std::string, double> expected = {
      {"dense 784->65536 forward", 20},
      {"dense 784->65536 backward-weights", 25},
      {"activation 1024->65536 forward", 3},
      {"activation 1024->65536 backward", 4},
      {"dense 1024->65536 forward", 30},
      {"dense 1024->65536 backward-data", 30},
      {"dense 1024->65536 backward-weights", 35},
      {"dense 1024->640 forward", 10},
      {"dense 1024->640 backward-data", 8},
      {"dense 1024->640 backward-weights", 12},  // with the sum for the bias
      {"loss 10->64 forward", 5},
      {"loss 10->64 backward", 5}};
  const std::map<std::string, double> found = times_of(step.profile);
  CHECK(found.size() == expected.size());
  for (const auto& [name, time] : expected) {
    CAPTURE(name);
    REQUIRE(found.contains(name));
    CHECK(found.at(name) == testing::approx(time).epsilon(1e-6));
  }
  // Three steps, two activations in each.
  for (const KernelSample& sample : step.profile.kernels) {
    CHECK(sample.time.samples == (sample.kind.as<Activation>() != nullptr ? 6 : 3));
  }
}

TEST_CASE("measured step: a step predicted with the trace's own profile has the same kernels") {
  const TemporaryFolder folder;
  Request request = mlp_on_two();
  request.profile = folder.write("profile.json", to_json(measured(testing::mlp_trace()).profile));
  const MeasuredStep step = measured(testing::mlp_trace(), request);
  for (const GpuPart part : {GpuPart::products, GpuPart::element_wise}) {
    const auto p = static_cast<std::size_t>(part);
    CHECK(step.predicted_parts[p].count() ==
          testing::approx(step.measured_parts[p].count()).epsilon(1e-9));
  }
  for (const ShapeTimes& shape : step.shapes) {
    CAPTURE(text_of(shape.shape));
    CHECK(shape.predicted_calls == shape.measured_calls);
    CHECK(shape.predicted.count() == testing::approx(shape.measured.count()).epsilon(1e-9));
  }
}

TEST_CASE("measured step: events in any order, gzipped, or as a bare list are the same trace") {
  const TemporaryFolder folder;
  KinetoWriter trace = testing::mlp_trace();
  const TraceSteps plain = steps_in(trace);
  const auto same = [&](const TraceSteps& other) {
    CHECK(other.steps == plain.steps);
    CHECK(other.work.size() == plain.work.size());
    REQUIRE(other.calls.size() == plain.calls.size());
    std::multiset<std::pair<CallShape, double>> one, two;
    for (const LayerCall& call : plain.calls) one.insert({call.shape, call.backward.count()});
    for (const LayerCall& call : other.calls) two.insert({call.shape, call.backward.count()});
    CHECK(one == two);
  };
  same(steps_of(read_kineto_trace(folder.write("trace.json.gz", gzip(trace.text())))));
  same(steps_of(
      read_kineto_trace(folder.write("list.json", nlohmann::ordered_json(trace.events).dump()))));
  std::reverse(trace.events.begin(), trace.events.end());
  same(steps_in(trace));
}

TEST_CASE("measured step: without shapes parts remain, without operators names of kernels do") {
  KinetoWriter trace = testing::mlp_trace();
  for (auto& event : trace.events) event["args"].erase("Input Dims");
  const MeasuredStep blind = measured(trace);
  check_parts(blind.measured_parts, {Seconds{168}, Seconds{0}, Seconds{26}, Seconds{40}, Seconds{7},
                                     Seconds{40}, Seconds{29}});  // the bias's sum is a sum
  CHECK(blind.profile.kernels.empty());
  CHECK(blind.notes.front().starts_with("the trace has no shapes"));

  std::erase_if(trace.events, [](const auto& event) { return event["cat"] == "cpu_op"; });
  check_parts(measured(trace).measured_parts, {Seconds{168}, Seconds{0}, Seconds{26}, Seconds{40},
                                               Seconds{7}, Seconds{40}, Seconds{29}});
}

TEST_CASE("measured step: without ProfilerStep the optimizer ends steps, else all is one") {
  KinetoWriter trace = testing::mlp_trace();
  std::erase_if(trace.events, [](const auto& event) {
    return event["name"].template get<std::string>().starts_with("ProfilerStep");
  });
  // Optimizers end at four times, so there are three steps between; each begins with the copy after
  // the optimizer, whose place does not count, and then with the first kernel.
  TraceSteps steps = steps_in(trace);
  REQUIRE(steps.steps.size() == 2);  // the last one's end is not known
  CHECK((steps.steps[0].end - steps.steps[0].start).count() ==
        testing::approx(310 * microsecond).epsilon(1e-9));
  std::erase_if(trace.events, [](const auto& event) {
    return event["name"].template get<std::string>().starts_with("Optimizer");
  });
  steps = steps_in(trace);
  REQUIRE(steps.steps.size() == 1);
  CHECK(steps.annotated == 0);
  // From the first kernel to the end of the last copy: 300 + 310 + 320 + 290.
  CHECK((steps.steps[0].end - steps.steps[0].start).count() ==
        testing::approx(1220 * microsecond).epsilon(1e-9));
}

TEST_CASE("measured step: two kernels at once count once, the product first") {
  KinetoWriter trace;
  const std::int64_t mm = trace.op("aten::mm", 0, 10, {{{8, 4}, {4, 2}}, {}});
  const std::int64_t add = trace.op("aten::add", 20, 10, {{{8, 2}, {8, 2}}, {}});
  trace.kernel("gemm", 100, 50, mm, 5, 7);
  trace.kernel("elementwise_kernel", 130, 40, add, 25, 8);  // 20 of it alone
  const MeasuredStep step = measured(trace);
  check_parts(step.measured_parts, {Seconds{50}, Seconds{0}, Seconds{20}, Seconds{0}, Seconds{0},
                                    Seconds{0}, Seconds{0}});
}

TEST_CASE("measured step: a trace of copies alone has no step, which is refused") {
  KinetoWriter trace;
  trace.kernel("Memcpy HtoD", 100, 50, 1, 5, 9, "gpu_memcpy");
  CHECK(testing::refusal_of([&] { return measured(trace); }) ==
        "trace.json: no kernel in a complete step; accepted: a trace of whole steps, each with "
        "kernels");
}

TEST_CASE("measured step: a layer that is recomputed in the backward pass is a forward call") {
  KinetoWriter trace;
  trace.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 0, 100, {}, 7, 2);
  trace.op("aten::linear", 10, 20, {{{2, 8, 4}, {16, 4}, {16}}, {}}, 8, 2);
  const std::int64_t again = trace.op("aten::addmm", 12, 10, {{{16}, {16, 4}, {4, 16}}, {}}, 9, 2);
  trace.op("autograd::engine::evaluate_function: AddmmBackward0", 50, 20, {}, 9, 2);
  const std::int64_t data = trace.op("aten::mm", 52, 5, {{{16, 16}, {16, 4}}, {}}, -1, 2);
  trace.kernel("gemm", 200, 30, again, 15);
  trace.kernel("gemm", 240, 40, data, 53);
  const TraceSteps steps = steps_in(trace);
  REQUIRE(steps.calls.size() == 1);
  CHECK(steps.calls[0].shape == CallShape{"matmul", {16, 4, 16}});
  CHECK(steps.calls[0].forward.count() == testing::approx(30 * microsecond).epsilon(1e-9));
  CHECK(steps.calls[0].backward.count() == testing::approx(40 * microsecond).epsilon(1e-9));
}

TEST_CASE("measured step: rounding makes no idle time") {
  KinetoWriter trace;
  trace.kernel("gemm", 0, 1e6, trace.op("aten::mm", 0, 10, {{{8, 4}, {4, 2}}, {}}), 5);
  for (int layers = 1; layers <= 6; ++layers) {
    Request request;
    request.network = "gpt:layers=" + std::to_string(layers) + ",hidden=32,heads=4,seq_length=16";
    request.cluster = "star:1,device=h100-sxm5,rate=12GB/s,latency=1us";
    request.batch = 4;
    CAPTURE(layers);
    const MeasuredStep step = measured(trace, request, DeviceId{0});
    CHECK(step.predicted_parts[static_cast<std::size_t>(GpuPart::idle)] == Seconds{});
  }
}

TEST_CASE("measured step: a convolution without strides is the plan's of this shape") {
  Request request;
  request.network = "resnet50";
  request.cluster = "star:1,device=a100-sxm4-80,rate=12GB/s,latency=1us";
  request.batch = 4;
  KinetoWriter trace;
  const std::int64_t stem =
      trace.op("aten::conv2d", 0, 10, {{{4, 3, 224, 224}, {64, 3, 7, 7}}, {}});
  trace.kernel("fprop", 100, 60, stem, 5);
  const MeasuredStep step = measured(trace, request, DeviceId{0});
  CHECK(step.unknown_shapes == Seconds{});
  REQUIRE(step.profile.kernels.size() == 1);
  CHECK(step.profile.kernels[0].kind.as<Conv>() != nullptr);
}

TEST_CASE("measured step: queries, keys and values in one product are divided among the plan's") {
  Request request;
  request.network = "gpt:layers=1,hidden=32,heads=4,seq_length=16,vocab_size=100,attention=fused";
  request.cluster = "star:2,device=a100-sxm4-80,rate=12GB/s,latency=1us";
  request.batch = 4;
  KinetoWriter trace;
  const std::int64_t all = trace.op("aten::linear", 0, 10, {{{2, 16, 32}, {96, 32}, {96}}, {}});
  trace.kernel("gemm", 100, 60, all, 5);
  const std::int64_t other = trace.op("aten::linear", 20, 10, {{{2, 16, 32}, {32, 32}, {32}}, {}});
  trace.kernel("gemm", 200, 14, other, 25);
  const MeasuredStep step = measured(trace, request);
  CHECK(step.unknown_shapes == Seconds{});
  // 20, 20, 20 and 14 us: all four have the same shape.
  REQUIRE(step.profile.kernels.size() == 1);
  CHECK(step.profile.kernels[0].time.samples == 4);
  CHECK(step.profile.kernels[0].time.median.count() ==
        testing::approx(20 * microsecond).epsilon(1e-9));
  const auto row = std::find_if(step.shapes.begin(), step.shapes.end(),
                                [](const ShapeTimes& times) { return times.measured_calls > 0; });
  REQUIRE(row != step.shapes.end());
  CHECK(row->predicted_calls == 4);
  CHECK(row->measured_calls == 4);
  CHECK(row->measured.count() == testing::approx(74 * microsecond).epsilon(1e-9));
}

std::map<std::string, double> by_module(const std::vector<ModuleTimes>& modules) {
  std::map<std::string, double> times;
  for (const ModuleTimes& row : modules) {
    times[join(row.path, "/")] = row.measured.count() / microsecond;
  }
  return times;
}

TEST_CASE("measured step: by hand, kernels of both passes belong to modules of Python") {
  const MeasuredStep step = measured(testing::mlp_trace());
  // Forward and backward as in mlp_trace(); ReLU_0 is called twice.
  const std::map<std::string, double> expected = {{"MLP_0/Linear_0", 20 + 25},
                                                  {"MLP_0/ReLU_0", 3 + 4 + 3 + 4},
                                                  {"MLP_0/Linear_1", 30 + 30 + 35},
                                                  {"MLP_0/Linear_2", 10 + 8 + 10 + 2},
                                                  {"MLP_0/CrossEntropyLoss_0", 5 + 5}};
  const std::map<std::string, double> found = by_module(step.modules);
  REQUIRE(found.size() == expected.size());
  for (const auto& [path, time] : expected) {
    CAPTURE(path);
    REQUIRE(found.contains(path));
    CHECK(found.at(path) == testing::approx(time).epsilon(1e-9));
  }
  // The plan's layers are the modules': all that it predicts of them, and each once.
  Seconds predicted{}, of_shapes{};
  for (const ModuleTimes& row : step.modules) predicted += row.predicted.value();
  for (const ShapeTimes& shape : step.shapes) of_shapes += shape.predicted;
  CHECK(predicted.count() == testing::approx(of_shapes.count()).epsilon(1e-12));
}

TEST_CASE("measured step: modules are grouped below what all share") {
  const std::vector<ModuleTimes> modules = {
      {{"DDP_0", "GPT_0"}, Seconds{1}, {}},
      {{"DDP_0", "GPT_0", "Block_0", "Linear_0"}, Seconds{2}, Seconds{3}},
      {{"DDP_0", "GPT_0", "Block_0", "Linear_1"}, Seconds{4}, {}},
      {{"DDP_0", "GPT_0", "Block_1", "Linear_2"}, Seconds{8}, Seconds{5}}};
  const std::vector<ModuleTimes> one = grouped(modules, 1);
  REQUIRE(one.size() == 3);
  CHECK(one[0].path == ModulePath{"GPT_0"});
  CHECK(one[0].predicted == std::nullopt);
  CHECK(one[1].path == ModulePath{"Block_0"});
  CHECK(one[1].measured == Seconds{6});
  CHECK(one[1].predicted == Seconds{3});
  CHECK(grouped(modules, 2).size() == 4);
  CHECK(grouped(modules, 64)[3].path == ModulePath{"Block_1", "Linear_2"});
  CHECK(grouped({}, 1).empty());
}

TEST_CASE("measured step: a module that is recomputed has one path, and is not predicted twice") {
  KinetoWriter trace;
  const testing::WrittenShapes shapes = {{{64, 1024}, {10, 1024}, {10}}, {}};  // of fc3
  trace.module("MLP_0", 0, 50);
  trace.module("Linear_2", 10, 30);
  const std::int64_t before = trace.op("aten::linear", 12, 20, shapes, 8);
  trace.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 100, 100, {}, 7, 2);
  trace.module("Linear_2", 108, 30, 2);
  const std::int64_t again = trace.op("aten::linear", 110, 20, shapes, 9, 2);
  trace.op("autograd::engine::evaluate_function: AddmmBackward0", 150, 20, {}, 9, 2);
  const std::int64_t data = trace.op("aten::mm", 152, 5, {{{64, 10}, {10, 1024}}, {}}, -1, 2);
  trace.kernel("gemm", 200, 20, before, 15);
  trace.kernel("gemm", 240, 30, again, 115);
  trace.kernel("gemm", 280, 40, data, 153);
  const MeasuredStep step = measured(trace);
  REQUIRE(step.modules.size() == 1);
  CHECK(step.modules[0].path == ModulePath{"MLP_0", "Linear_2"});
  CHECK(step.modules[0].measured.count() == testing::approx(90 * microsecond).epsilon(1e-9));
  const auto planned = [&](const ShapeTimes& row) { return row.layer == "fc3"; };
  Seconds predicted{};
  for (const ShapeTimes& row : step.shapes) {
    if (planned(row)) predicted += row.predicted;
  }
  REQUIRE(step.modules[0].predicted);
  CHECK(step.modules[0].predicted->count() == testing::approx(predicted.count()).epsilon(1e-12));
}

TEST_CASE("kineto trace: what is no trace of one GPU is refused in one sentence") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text, const std::string& name = "trace.json") {
    const std::string path = folder.write(name, text);
    const std::string message = testing::refusal_of([&] { return read_kineto_trace(path); });
    REQUIRE(message.starts_with(path));
    return message.substr(path.size());
  };
  const std::string whole = testing::mlp_trace().text();
  const std::string accepted = "; accepted: what torch.profiler's export_chrome_trace() writes";
  CHECK(refused("") == ": the file is empty" + accepted);
  CHECK(refused(gzip(""), "trace.json.gz") == ": the file is empty" + accepted);
  CHECK(refused("{\"a\":1}") == ": JSON without the list traceEvents" + accepted);
  CHECK(refused("[1") ==
        ": the file ends in the middle, after 0 events; accepted: a whole trace, after "
        "export_chrome_trace() has returned");
  CHECK(refused(whole.substr(0, whole.size() / 2)).starts_with(": the file ends in the middle, "));
  const std::string packed = gzip(whole);
  CHECK(refused(packed.substr(0, packed.size() / 2), "trace.json.gz")
            .starts_with(": the file ends in the middle, after "));
  CHECK(refused("{]") == ": not JSON at byte 2" + accepted);
  CHECK(refused("{\"a\":1e999}").starts_with(": a number out of range at byte "));
  CHECK(refused(std::string(100, '[')).starts_with(": nested deeper than 64 levels"));
  CHECK(refused("{\"traceEvents\":[]}") ==
        ": no kernel of a GPU among its 0 events; accepted: a trace with "
        "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
  CHECK(refused(R"([{"ph":"X","cat":"kernel","name":"k","ts":3,"dur":-1}])")
            .starts_with(":/traceEvents/0: ts 3 and dur -1; accepted: microseconds"));
  CHECK(refused(R"([{"ph":"X","cat":"kernel","name":"k","ts":3,"dur":"7"}])") ==
        ":/traceEvents/0: ts 3 and dur that is no number; accepted: microseconds, dur 0 or more");
  CHECK(refused(R"([{"ph":"X","cat":"kernel","name":"k","dur":7}])") ==
        ":/traceEvents/0: ts that is no number and dur 7; accepted: microseconds, dur 0 or more");
  CHECK(refused(R"([{"ph":"X","cat":"kernel","name":"k","ts":3,"dur":1,"args":{"device":0}},
                    {"ph":"X","cat":"kernel","name":"k","ts":3,"dur":1,"args":{"device":1}}])") ==
        ": work of 2 GPUs; accepted: the trace of a process that uses one");
  CHECK(testing::refusal_of([&] {
          return read_kineto_trace(folder.folder());
        }).find("it is a directory") != std::string::npos);
  CHECK(testing::refusal_of([&] {
          return read_kineto_trace(folder.path("none"));
        }).find("No such file or directory") != std::string::npos);
  // A string that never ends is not kept in memory.
  CHECK(refused("[{\"name\":\"" + std::string(std::size_t{17} << 20, 'x'))
            .find("an event takes more than 16 MiB") != std::string::npos);
}

}  // namespace
}  // namespace parsim::experiment
