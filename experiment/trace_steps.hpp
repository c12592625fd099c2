// The steps of a trace: which kernels belong to which layer's call, pass and part of the step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/op.hpp"
#include "core/timeline.hpp"
#include "experiment/call_shapes.hpp"
#include "experiment/kineto_trace.hpp"

namespace parsim::experiment {

/// Work on the GPU, in seconds from the trace's first event.
struct TraceWork {
  Span span{};
  /// What it is; nothing if neither operator nor name tells.
  std::optional<StepPart> part;
  std::uint32_t name = 0;  ///< of KinetoTrace::names
  std::size_t step = 0;    ///< of TraceSteps::steps; beyond: of none
  std::size_t module = 0;  ///< of TraceSteps::modules; beyond: of none
};

/// A forward operator that is a layer, and what its kernels took, one after the other.
struct LayerCall {
  CallShape shape;
  Seconds forward{}, backward{};
  /// Of the backward pass what makes the gradients of the input, and of the weights, where
  /// products, sums and names of kernels tell them apart.
  Seconds backward_data{}, backward_weights{};
  std::size_t step = 0;     ///< of TraceSteps::steps; beyond: of none
  std::size_t module = 0;   ///< of TraceSteps::modules; beyond: of none
  Seconds start{};          ///< of the operator, as in TraceWork
  bool recomputed = false;  ///< its operator runs within the backward pass
};

/// A module and those that call it, outermost first: {"GPT_0", "Block_3", "Linear_7"}. PyTorch
/// numbers the modules of each class.
using ModulePath = std::vector<std::string>;

struct TraceSteps {
  std::vector<TraceWork> work;   ///< by start
  std::vector<LayerCall> calls;  ///< of all steps, with kernels
  std::vector<ModulePath> modules;
  /// Complete ones: from a step's first kernel to that of the next. Of a single step until the GPU
  /// and ProfilerStep have ended. In order of time.
  std::vector<Span> steps;
  std::size_t annotated = 0;  ///< steps that ProfilerStep, or the optimizer, marks
  std::string
      precision_of_products;  ///< PyTorch's type of most of them: "c10::BFloat16"; "": unknown
  bool has_shapes = false;

  /// The step of median length, the shorter of the middle two.
  [[nodiscard]] std::size_t median() const;
};

/// Operators contain each other on each thread of the host, and start the kernels that share their
/// "External id", or a launch within them. A kernel belongs to the outermost operator that is a
/// layer; in the backward pass ("autograd::engine::evaluate_function: …") to the layer whose
/// forward operator has the same sequence number. Its module is the innermost one that calls the
/// forward operator.
///
/// Steps are the annotations ProfilerStep#N of torch.profiler; without them they end with
/// Optimizer.step; else all is one step.
[[nodiscard]] TraceSteps steps_of(const KinetoTrace& trace);

}  // namespace parsim::experiment
