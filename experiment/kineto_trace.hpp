// A trace of PyTorch's profiler (Kineto), as tables of what ran on the host and on the GPU.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parsim::experiment {

/// How names of TraceEvent::Kind::module begin (PyTorch's torch/csrc/profiler/collection.cpp,
/// toString); the class and its number follow: "nn.Module: Linear_3".
inline constexpr std::string_view module_prefix = "nn.Module: ";

/// How annotations begin that mark steps (torch/profiler/profiler.py, torch/optim/optimizer.py).
inline constexpr std::string_view profiler_step_prefix = "ProfilerStep#",
                                  optimizer_step_prefix = "Optimizer.step#";

/// An event with a beginning and an end.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    op,          ///< an operator of PyTorch, on the host
    annotation,  ///< record_function(), ProfilerStep, Optimizer.step, on the host
    module,      ///< a call of an nn.Module, on the host; recorded by with_stack=True
    launch,      ///< a call of the CUDA runtime or driver that starts work on the GPU
    kernel,
    copy,  ///< memcpy or memset on the GPU
  };

  Kind kind = Kind::op;
  std::uint32_t name = 0;     ///< of KinetoTrace::names
  std::uint32_t shapes = 0;   ///< of KinetoTrace::shapes; 0: not recorded
  double start = 0, end = 0;  ///< microseconds from the first of KinetoTrace::events
  std::int64_t thread = -1;   ///< of the host; of work on the GPU the stream
  /// "External id", which work on the GPU shares with its operator; in traces of PyTorch 1.12 to
  /// 2.2, and up to 2.5 where no operator starts the work, it repeats `correlation` instead.
  std::int64_t external = -1;
  std::int64_t correlation = -1;  ///< which a launch shares with what it starts
  std::int64_t sequence = -1;     ///< "Sequence number": forward and backward share it
};

/// What record_shapes=True notes of an operator's arguments.
struct OpShapes {
  std::vector<std::vector<std::int64_t>> dims;  ///< of tensors; others have none
  std::vector<std::string> types;               ///< "float", "c10::BFloat16", "Scalar", …
  std::vector<std::string> values;              ///< of other arguments: "[1, 1]", "True"
  friend bool operator==(const OpShapes&, const OpShapes&) = default;
};

struct KinetoTrace {
  std::vector<std::string> names;
  std::vector<OpShapes> shapes{{}};  ///< the first stands for "not recorded"
  std::vector<TraceEvent> events;
  std::vector<std::int64_t> gpus;                ///< CUDA's numbers of those that worked, ascending
  std::optional<std::int64_t> rank;              ///< of the process in its job
  std::optional<std::int64_t> ranks;             ///< of the job (world_size)
  std::map<std::int64_t, std::string> products;  ///< names of GPUs: "NVIDIA H100 80GB HBM3"

  [[nodiscard]] const std::string& name_of(const TraceEvent& event) const {
    return names[event.name];
  }
};

/// Reads what torch.profiler's export_chrome_trace() writes, plain or gzipped, as a stream: only
/// the events above are kept, at most 8 Mi of them, and of the text at most 16 MiB at a time.
///
/// Throws InputError for a file that cannot be read, is cut off or no such trace, has work of no
/// GPU or of several, or exceeds these bounds.
[[nodiscard]] KinetoTrace read_kineto_trace(const std::string& path);

}  // namespace parsim::experiment
