#include "hw/hardware.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <system_error>

#include "core/errors.hpp"
#include "hw/memory_plan.hpp"
#include "hw/tensor_slices.hpp"

namespace parsim::hw {

namespace {

/// Tensor cores multiply bf16 since compute capability 8.0 (CUDA programming guide, table of
/// features by compute capability). The model's architecture is "8.0"; the host has none.
bool lacks_bf16(const DeviceModel& model) {
  int major = 0;
  const char* end = model.architecture.data() + model.architecture.size();
  return std::from_chars(model.architecture.data(), end, major).ec == std::errc{} && major < 8;
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
  if (multiplies_in_fp8(dag.precision)) {
    throw InputError(
        "--precision",
        fmt::format("'{}' with --hw, which has no kernels in FP8", to_text(dag.precision)),
        "accepted there: fp32, tf32, bf16, fp16");
  }
  const Stores held = stores(dag);
  const std::size_t devices = machine.cluster.devices.size();
  if (static_cast<std::size_t>(held.devices) > devices) {
    throw HardwareError(
        fmt::format("the plan uses {} devices, {} has {}", held.devices, machine.name, devices));
  }
  for (std::int32_t d = 0; dag.precision == Precision::bf16 && d < held.devices; ++d) {
    const DeviceModel& model = machine.cluster.model(DeviceId{d});
    if (!lacks_bf16(model)) continue;
    throw InputError(
        "--precision",
        fmt::format("bf16 on {}, whose compute capability is {}", model.name, model.architecture),
        "accepted there: fp32; bf16 and tf32 from compute capability 8.0");
  }
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
