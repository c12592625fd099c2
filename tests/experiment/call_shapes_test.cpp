// Layers by shape: parts of the plan, operators and modules of PyTorch.
#include "experiment/call_shapes.hpp"

#include <doctest/doctest.h>

#include <set>

#include "experiment/experiment.hpp"
#include "experiment/trace_steps.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/kineto_writer.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

using testing::KinetoWriter;

TraceSteps steps_written(const KinetoWriter& trace) {
  const testing::TemporaryFolder folder;
  return steps_of(read_kineto_trace(folder.write("trace.json", trace.text())));
}

TEST_CASE("call shapes: a layer's part and its operator have the same shape") {
  const auto of = [](std::string_view op, const OpShapes& shapes) {
    const std::optional<CallShape> made = shape_of_call(op, shapes);
    return made ? text_of(*made) : "";
  };
  CHECK(of("aten::linear", {{{2, 16, 64}, {192, 64}, {192}}, {}, {}}) == "matmul 32x64x192");
  CHECK(of("aten::addmm", {{{192}, {32, 64}, {64, 192}}, {}, {}}) == "matmul 32x64x192");
  CHECK(of("aten::bmm", {{{8, 16, 4}, {8, 4, 16}}, {}, {}}) == "batched matmul 8x16x4x16");
  CHECK(of("aten::conv2d", {{{2, 3, 32, 32}, {6, 3, 5, 5}, {6}}, {}, {"", "", "", "[2, 1]"}}) ==
        "conv 2x3x32x32x6x5x5x2x1");
  CHECK(of("aten::conv2d", {{{2, 3, 32, 32}, {6, 3, 5, 5}, {6}}, {}, {"", "", "", "s"}}).empty());
  CHECK(of("aten::conv2d", {{{2, 3, 32, 32}, {6, 3, 5, 5}, {6}}, {}, {}}) ==
        "conv 2x3x32x32x6x5x5");
  CHECK(of("aten::scaled_dot_product_attention",
           {{{2, 4, 16, 8}, {2, 1, 16, 8}, {2, 1, 16, 8}}, {}, {}}) == "attention 2x4x16x16x8");
  CHECK(of("aten::embedding", {{{100, 64}, {2, 16}}, {}, {}}) == "embedding 100x64x32");
  CHECK(of("aten::add", {{{2, 16}, {}}, {}, {}}).empty());  // of a number
  CHECK(of("aten::frobnicate", {{{2, 16}}, {}, {}}).empty());
  CHECK(of("aten::linear", {}).empty());

  // A GPT in PyTorch's shapes: 2 samples of 16 tokens, 4 heads of 8 channels, 100 words.
  Request request;
  request.network = "gpt:layers=1,hidden=32,heads=4,seq_length=16,vocab_size=100,attention=fused";
  request.cluster = "star:1,device=a100-sxm4-80,rate=12GB/s,latency=1us";
  const Experiment experiment(request);
  std::set<std::string> shapes;
  for (std::size_t l = 0; l < experiment.network.layers.size(); ++l) {
    const Part part{whole(experiment.network.layers[l].out, 2), {}};
    if (const auto shape = shape_of_part(experiment.network, LayerId{l}, part)) {
      shapes.insert(text_of(*shape));
    }
  }
  for (const std::string expected :
       {"embedding 100x32x32", "add 1024", "dropout 1024", "layer norm 1024", "matmul 32x32x32",
        "attention 2x4x16x16x8", "matmul 32x32x128", "gelu 4096", "matmul 32x128x32",
        "matmul 32x32x100", "loss 3200"}) {
    CAPTURE(expected);
    CHECK(shapes.contains(expected));
  }
}

TEST_CASE("call shapes: a stride that leaves out the last row reads the whole input") {
  Request request;
  request.network = "resnet50";
  request.cluster = "star:1,device=a100-sxm4-80,rate=12GB/s,latency=1us";
  const Experiment experiment(request);
  const Network& network = experiment.network;
  std::set<std::string> shapes, halves;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId layer{l};
    if (network[layer].kind.as<Conv>() == nullptr) continue;
    Part part{whole(network[layer].out, 4), {}};
    shapes.insert(text_of(shape_of_part(network, layer, part).value()));
    part.out[2].end = part.out[2].size() / 2;
    halves.insert(text_of(shape_of_part(network, layer, part).value()));
  }
  // torchvision's layer2.0.downsample: 1 x 1 with stride 2, whose last row and column no output
  // needs.
  CHECK(shapes.contains("conv 4x256x56x56x512x1x1x2x2"));
  CHECK_FALSE(shapes.contains("conv 4x256x55x55x512x1x1x2x2"));
  CHECK(halves.contains("conv 4x256x27x56x512x1x1x2x2"));  // rows 0, 2, … 26
}

TEST_CASE("call shapes: a norm of several operators is the layer, in both passes") {
  KinetoWriter trace;
  const testing::WrittenShapes in = {{{2, 16, 64}}, {}}, both = {{{2, 16, 64}, {64}}, {}};
  trace.module("LlamaRMSNorm_4", 0, 50);
  const std::int64_t square = trace.op("aten::pow", 5, 5, in, 7);
  const std::int64_t scale = trace.op("aten::mul", 20, 5, both, 8);
  trace.op("autograd::engine::evaluate_function: PowBackward0", 100, 20, {}, 7, 2);
  const std::int64_t back = trace.op("aten::mul", 105, 5, both, -1, 2);
  trace.kernel("elementwise_kernel", 200, 3, square, 7);
  trace.kernel("elementwise_kernel", 210, 4, scale, 22);
  trace.kernel("elementwise_kernel", 220, 6, back, 107);
  const TraceSteps steps = steps_written(trace);
  REQUIRE(steps.calls.size() == 1);
  CHECK(text_of(steps.calls[0].shape) == "layer norm 2048");
  CHECK(steps.calls[0].forward.count() == testing::approx(7e-6).epsilon(1e-9));
  CHECK(steps.calls[0].backward.count() == testing::approx(6e-6).epsilon(1e-9));
  for (const TraceWork& work : steps.work) CHECK(work.part == StepPart::element_wise);
  CHECK_FALSE(shape_of_module("LlamaMLP_0", {{{2, 16}}, {}, {}}));
  CHECK_FALSE(shape_of_module("LayerNorm_0", {}));
}

TEST_CASE("call shapes: a sum of gradients by the engine is no part of the layer before it") {
  KinetoWriter trace;
  const std::int64_t forward = trace.op("aten::linear", 0, 10, {{{64, 32}, {32, 32}}, {}}, 7);
  trace.op("autograd::engine::evaluate_function: MmBackward0", 100, 30, {}, 7, 2);
  const std::int64_t data = trace.op("aten::mm", 102, 5, {{{64, 32}, {32, 32}}, {}}, -1, 2);
  const std::int64_t sum = trace.op("aten::add", 115, 5, {{{64, 32}, {64, 32}}, {}}, -1, 2);
  trace.kernel("gemm", 200, 20, forward, 5);
  trace.kernel("gemm", 230, 30, data, 104);
  trace.kernel("elementwise_kernel", 270, 4, sum, 117);
  const TraceSteps steps = steps_written(trace);
  REQUIRE(steps.calls.size() == 2);
  CHECK(text_of(steps.calls[0].shape) == "matmul 64x32x32");
  CHECK(steps.calls[0].backward.count() == testing::approx(30e-6).epsilon(1e-9));
  CHECK(text_of(steps.calls[1].shape) == "add 2048");
  CHECK(steps.calls[1].backward.count() == testing::approx(4e-6).epsilon(1e-9));
  CHECK(steps.work.back().part == StepPart::element_wise);
}

}  // namespace
}  // namespace parsim::experiment
