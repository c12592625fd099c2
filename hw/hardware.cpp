#include "hw/hardware.hpp"

#include <fmt/format.h>

#include "core/errors.hpp"
#include "hw/places.hpp"

namespace parsim::hw {

void check_fits(const ExecDag& dag, const Machine& machine) {
  check_runnable(dag.network, "--hw");
  const Stores held = stores(dag);
  const std::size_t devices = machine.cluster.devices.size();
  if (static_cast<std::size_t>(held.devices) > devices) {
    throw HardwareError(
        fmt::format("the plan uses {} devices, {} has {}", held.devices, machine.name, devices));
  }
  const std::vector<Bytes> bytes = bytes_held(dag, held);
  for (std::size_t d = 0; d < bytes.size(); ++d) {
    const Bytes room = machine.cluster.devices[d].memory;
    if (bytes[d] > room) {
      throw MemoryError(fmt::format("{} needs {} and has {}", machine.cluster.devices[d].name,
                                    to_text(bytes[d]), to_text(room)));
    }
  }
}

Measurements measure(const Hardware& hardware, const std::vector<ExecDag>& dags, int steps) {
  Measurements all{hardware.machine, {}};
  for (const ExecDag& dag : dags) {
    Measurement run;
    try {
      check_fits(dag, hardware.machine);
      run = hardware.step(dag, steps);
    } catch (const MemoryError& error) {
      run.error = error.what();
      run.fits = false;
    } catch (const InputError& error) {
      run.error = error.what();
    }
    run.network = dag.network.name;
    run.strategy = dag.strategy;
    all.runs.push_back(std::move(run));
  }
  return all;
}

}  // namespace parsim::hw
