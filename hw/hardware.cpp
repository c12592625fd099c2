#include "hw/hardware.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/errors.hpp"
#include "core/fp8.hpp"
#include "hw/memory_plan.hpp"
#include "hw/tensor_slices.hpp"

namespace parsim::hw {

namespace {

/// Tensor cores multiply bf16 since compute capability 8.0, FP8 since 8.9 (CUDA programming guide,
/// table of features by compute capability). The model's architecture is "8.0"; the host has none.
bool is_older(const DeviceModel& model, double capability) {
  const std::optional<double> own = compute_capability(model);
  return own && *own < capability;
}

/// Throws InputError if a device of the plan has no arithmetic for the DAG's precision.
void check_precision(const ExecDag& dag, const Machine& machine, std::int32_t devices) {
  const bool fp8 = multiplies_in_fp8(dag.precision);
  if (fp8 && machine.backend != "cuda") {
    throw InputError(
        "--precision",
        fmt::format("'{}' with --hw-backend {}", to_text(dag.precision), machine.backend),
        "accepted there: fp32, tf32, bf16, fp16; FP8 on GPUs");
  }
  if (without_fp8(dag.precision) != Precision::bf16) return;
  for (std::int32_t d = 0; d < devices; ++d) {
    const DeviceModel& model = machine.cluster.model(DeviceId{d});
    if (!is_older(model, fp8 ? 8.9 : 8.0)) continue;
    throw InputError("--precision",
                     fmt::format("{} on {}, whose compute capability is {}", to_text(dag.precision),
                                 model.name, model.architecture),
                     fp8 ? "accepted there: fp32; bf16 and tf32 from compute capability 8.0, FP8 "
                           "from 8.9"
                         : "accepted there: fp32; bf16 and tf32 from compute capability 8.0");
  }
  for (std::int32_t d = 0; d < devices && dag.precision == Precision::fp8_blockwise; ++d) {
    const DeviceModel& model = machine.cluster.model(DeviceId{d});
    if (compute_capability(model) == 9.0) continue;
    throw InputError("--precision",
                     fmt::format("fp8-blockwise on {}, whose compute capability is {}", model.name,
                                 model.architecture),
                     "accepted there: fp8, fp8-delayed, fp32, tf32, bf16, fp16; cuBLASLt scales by "
                     "blocks on compute capability 9.0 only");
  }
}

/// By device: the most bytes that an operation casts to FP8, one for each element of a copy.
/// Forward passes have a copy of inputs and weights, backward passes two of the output's gradient,
/// too.
std::vector<Bytes> fp8_workspaces(const ExecDag& dag, std::int32_t devices) {
  std::vector<Bytes> most(static_cast<std::size_t>(devices));
  if (!multiplies_in_fp8(dag.precision)) return most;
  std::vector<bool> casts;  // by layer
  for (std::size_t l = 0; l < dag.network.layers.size(); ++l) {
    casts.push_back(multiplies_in_fp8(dag.network, LayerId{l}));
  }
  const std::vector<bool> trained = trained_layers(dag.network);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) != OpKind::compute) continue;
    const Compute op = std::get<Compute>(dag.op(OpId{i}));
    if (!casts[dag.work(op.work).layer.index()]) continue;
    const ComputeSlices p = compute_slices(dag, op, trained);
    const bool forward = op.pass == Pass::forward || op.pass == Pass::recompute;
    const std::int64_t gradients = forward ? 0 : 2 * p.out_gradient.region.volume();
    Bytes& bytes = most[op.device.index()];
    std::int64_t copies = p.inputs[0].region.volume() + p.parameters[0].region.volume() + gradients;
    if (dag.precision == Precision::fp8_blockwise) copies += copies / 32;  // four bytes for 128
    bytes.value = std::max(bytes.value, copies);
  }
  return most;
}

}  // namespace

void throttle_links(Machine& machine, const LinkThrottle& link) {
  connect_as_star(machine, std::vector<std::pair<BytesPerSecond, Seconds>>(
                               machine.cluster.devices.size(), {link.rate, link.latency / 2}));
  machine.versions.push_back(
      {"throttled links", fmt::format("{} {}", to_text(link.rate), to_text(link.latency))});
}

void check_fits(const ExecDag& dag, const Machine& machine) {
  check_runnable(dag, "--hw");
  const Stores held = stores(dag);
  const std::size_t devices = machine.cluster.devices.size();
  if (static_cast<std::size_t>(held.devices) > devices) {
    throw HardwareError(
        fmt::format("the plan uses {} devices, {} has {}", held.devices, machine.name, devices));
  }
  check_precision(dag, machine, held.devices);
  const bool reuse = machine.backend != "cpu";  // whose tensors have places of their own
  const MemoryPlan plan = plan_memory(dag, dispatch(dag), held,
                                      element_bytes(storage_of(dag.precision)), 1, {reuse, !reuse});
  const std::vector<Bytes> casts = fp8_workspaces(dag, held.devices);
  for (std::size_t d = 0; d < plan.devices.size(); ++d) {
    const Bytes needed = Bytes{static_cast<std::int64_t>(plan.devices[d].total)} + casts[d];
    const Bytes capacity = machine.cluster.devices[d].memory;
    if (needed > capacity) {
      throw MemoryError(fmt::format("{} needs {} and has {}", machine.cluster.devices[d].name,
                                    to_text(needed), to_text(capacity)));
    }
  }
}

Measurement measurement_of(const std::vector<Seconds>& steps,
                           const std::vector<Timeline>& with_events) {
  Measurement result;
  if (with_events.empty()) return result;
  result.step = spread_of(steps);
  std::vector<Seconds> times;
  for (const Timeline& run : with_events) times.push_back(makespan(run));
  result.step_with_events = spread_of(times);
  std::size_t typical = 0;
  const auto gap = [&](std::size_t i) {
    return std::abs((times[i] - result.step_with_events.median).count());
  };
  for (std::size_t i = 1; i < times.size(); ++i) typical = gap(i) < gap(typical) ? i : typical;
  result.timeline = with_events[typical];
  return result;
}

void add_run(Runs& runs, const ExecDag& dag, const std::function<Measurement()>& step) {
  Measurement run;
  const auto refuse = [&](const std::exception& error, int exit_code) {
    run.error = error.what();
    if (runs.exit_code == 0) runs.exit_code = exit_code;
  };
  try {
    check_fits(dag, runs.measured.machine);
    run = step();
  } catch (const MemoryError& error) {
    refuse(error, 5);
    run.fits = false;
  } catch (const InputError& error) {
    refuse(error, 2);
  } catch (const LaunchError&) {
    throw;
  } catch (const HardwareError& error) {
    refuse(error, 3);
  }
  run.network = dag.network.name;
  run.settings = settings_of(dag);
  run.strategy = dag.strategy;
  runs.measured.runs.push_back(std::move(run));
}

}  // namespace parsim::hw
