#include "hw/hardware.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

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

namespace {

/// What is measured once: kernels by signature, copies by bytes, messages by kind, group and bytes.
class Calibration {
 public:
  Calibration(const Hardware& hardware, int samples) : hardware_(hardware), samples_(samples) {
    profile_.machine = hardware.machine;
  }

  void add(const ExecDag& dag) {
    std::vector<OpId> ops;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (seen_.try_emplace(key_of(dag, OpId{i})).second) ops.emplace_back(i);
    }
    const std::vector<Spread> times = hardware_.alone(dag, ops, samples_);
    for (std::size_t i = 0; i < ops.size(); ++i) keep(dag, ops[i], times[i]);
  }

  Profile take() {
    fit_links();
    return std::move(profile_);
  }

 private:
  using Key = std::vector<std::int64_t>;

  [[nodiscard]] const std::string& model_of(DeviceId device) const {
    return profile_.machine.cluster.model(device).name;
  }

  [[nodiscard]] Key key_of(const ExecDag& dag, OpId id) const {
    const OpRecord& record = dag.record(id);
    Key key{static_cast<std::int64_t>(dag.kind(id))};
    const auto model = [&](std::int32_t device) {
      return profile_.machine.cluster.devices[static_cast<std::size_t>(device)].model;
    };
    switch (dag.kind(id)) {
      case OpKind::compute: {
        const Compute op = std::get<Compute>(dag.op(id));
        const LayerId layer = dag.work(op.work).layer;
        const Key what =
            kernel_signature(dag.network[layer].kind, input_shapes(dag.network, layer),
                             dag.network[layer].out, dag.part(op.work), op.pass, dag.precision);
        key.push_back(model(record.device));
        key.insert(key.end(), what.begin(), what.end());
        return key;
      }
      case OpKind::update:
      case OpKind::local:
        key = {static_cast<std::int64_t>(OpKind::local), model(record.device),
               touched_bytes(dag, id).value};
        return key;
      case OpKind::delay:
        return key;
      case OpKind::transfer:
        key.insert(key.end(), {record.device, record.to});
        break;
      case OpKind::collective:
        key.push_back(record.sub);
        for (const DeviceId device : dag.group(GroupId{record.device})) {
          key.push_back(device.value);
        }
    }
    key.push_back(dag.payload(id).value);
    return key;
  }

  void keep(const ExecDag& dag, OpId id, const Spread& time) {
    const OpRecord& record = dag.record(id);
    switch (dag.kind(id)) {
      case OpKind::compute: {
        const Compute op = std::get<Compute>(dag.op(id));
        const LayerId layer = dag.work(op.work).layer;
        if (dag.region(dag.work(op.work).out).empty()) return;
        profile_.kernels.push_back({model_of(op.device), dag.network[layer].kind,
                                    input_shapes(dag.network, layer), dag.part(op.work), op.pass,
                                    dag.precision, time});
        return;
      }
      case OpKind::update:
      case OpKind::local:
        profile_.memory.push_back(
            {model_of(DeviceId{record.device}), touched_bytes(dag, id), time});
        return;
      case OpKind::delay:
        profile_.launch = time;
        return;
      case OpKind::transfer:
        profile_.messages.push_back(
            {"transfer", {DeviceId{record.device}, DeviceId{record.to}}, dag.payload(id), time});
        return;
      case OpKind::collective:
        profile_.messages.push_back({std::string(to_text(static_cast<CollectiveKind>(record.sub))),
                                     dag.group(GroupId{record.device}), dag.payload(id), time});
    }
  }

  /// Latency and rate of the links from the smallest and the largest transfer: what strategies
  /// weigh communication with. Simulations use the measured times themselves.
  void fit_links() {
    const MessageSample* small = nullptr;
    const MessageSample* large = nullptr;
    for (const MessageSample& sample : profile_.messages) {
      if (sample.kind != "transfer") continue;
      if (small == nullptr || sample.payload < small->payload) small = &sample;
      if (large == nullptr || sample.payload > large->payload) large = &sample;
    }
    if (small == nullptr || small->payload == large->payload ||
        large->time.median <= small->time.median) {
      return;
    }
    const BytesPerSecond rate{static_cast<double>((large->payload - small->payload).value) /
                              (large->time.median - small->time.median).count()};
    const Seconds latency =
        std::max(Seconds{1e-7}, small->time.median - small->payload / rate) / 2.0;
    connect_as_star(profile_.machine,
                    std::vector<std::pair<BytesPerSecond, Seconds>>(
                        profile_.machine.cluster.devices.size(), {rate, latency}));
  }

  const Hardware& hardware_;
  int samples_;
  Profile profile_;
  std::map<Key, bool> seen_;
};

}  // namespace

Profile calibrate(const Hardware& hardware, const std::vector<ExecDag>& dags, int samples) {
  Calibration calibration(hardware, samples);
  for (const ExecDag& dag : dags) {
    try {
      check_fits(dag, hardware.machine);
    } catch (const MemoryError&) {
      continue;  // what does not fit is neither run nor calibrated
    }
    calibration.add(dag);
  }
  return calibration.take();
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
