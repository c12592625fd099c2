#include "hw/hardware.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "core/errors.hpp"
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
  if (dag.precision == Precision::fp8_blockwise) {
    throw InputError("--precision",
                     "'fp8-blockwise' with --hw, which has no kernels that scale by blocks",
                     "accepted there: fp8, fp8-delayed, fp32, tf32, bf16, fp16");
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
  for (std::size_t d = 0; d < plan.devices.size(); ++d) {
    const Bytes needed{static_cast<std::int64_t>(plan.devices[d].total)};
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
  run.strategy = dag.strategy;
  runs.measured.runs.push_back(std::move(run));
}

}  // namespace parsim::hw
