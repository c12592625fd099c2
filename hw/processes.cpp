#include "hw/processes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "core/errors.hpp"
#include "core/json.hpp"

namespace parsim::hw {

namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> values_of(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// One operation of one step, as one process saw it.
struct SeenSpan {
  std::uint64_t step = 0, op = 0;
  double start = 0, end = 0;
};

/// Of messages that belong to no operation.
constexpr std::size_t collective_tag = 0;

constexpr char done = 'd', input_error = 'i', hardware_error = 'h', memory_error = 'm', bug = 'b';

}  // namespace

std::string Processes::broadcast(const std::string& bytes) {
  if (rank_ != 0) return receive(0, collective_tag);
  for (int other = 1; other < size_; ++other) send(other, collective_tag, bytes);
  return bytes;
}

std::vector<std::string> Processes::gather(const std::string& bytes) {
  if (rank_ != 0) {
    send(0, collective_tag, bytes);
    return {};
  }
  std::vector<std::string> all{bytes};
  for (int other = 1; other < size_; ++other) all.push_back(receive(other, collective_tag));
  return all;
}

std::vector<std::string> Processes::all_gather(const std::string& bytes) {
  std::vector<std::string> all = gather(bytes);
  all.resize(static_cast<std::size_t>(size_));
  for (std::string& one : all) one = broadcast(one);
  return all;
}

void Processes::barrier() {
  static_cast<void>(gather(""));
  static_cast<void>(broadcast(""));
}

void check_alone() {
  struct Launcher {
    const char* name;
    const char* size;
  };
  constexpr std::array<Launcher, 4> launchers{{{"mpirun", "OMPI_COMM_WORLD_SIZE"},
                                               {"mpirun", "PMI_SIZE"},
                                               {"srun", "SLURM_STEP_NUM_TASKS"},
                                               {"torchrun", "WORLD_SIZE"}}};
  for (const auto& [name, size] : launchers) {
    const char* text = std::getenv(size);
    if (text == nullptr || std::atoi(text) < 2) continue;
    throw InputError(name, fmt::format("started {} processes, and MPI does not connect them", text),
                     "accepted: one process, which has all GPUs of its machine; or mpirun, or srun "
                     "--mpi=pmix, with a parsim-hw that was built with MPI");
  }
}

void together(Processes& processes, const std::function<void()>& work) {
  std::exception_ptr mine;
  std::string news(1, done);
  const auto failed = [&](char kind, const std::exception& error) {
    mine = std::current_exception();
    news = kind + std::string(error.what());
  };
  try {
    work();
  } catch (const InputError& error) {
    failed(input_error, error);
  } catch (const HardwareError& error) {
    failed(hardware_error, error);
  } catch (const MemoryError& error) {
    failed(memory_error, error);
  } catch (const std::exception& error) {
    failed(bug, error);
  }
  const std::vector<std::string> all = processes.all_gather(news);
  if (mine) std::rethrow_exception(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) throw LaunchError(fmt::format("rank {} does something else", rank));
    if (all[rank][0] == done) continue;
    const std::string who = fmt::format("rank {}", rank);
    const std::string what = all[rank].substr(1);
    if (all[rank][0] == input_error) throw InputError(who, what);
    if (all[rank][0] == hardware_error) throw HardwareError(who + ": " + what);
    if (all[rank][0] == memory_error) throw MemoryError(who + ": " + what);
    throw std::runtime_error(who + ": " + what);
  }
}

void exchange(Processes& processes, const ExecDag& dag, OpId op,
              const std::function<std::string(DeviceId to)>& give,
              const std::function<void(DeviceId from, const std::string&)>& take) {
  const std::size_t tag = 1 + op.index();
  const std::vector<DeviceId> devices = devices_of(dag, op);
  for (const DeviceId device : devices) {
    if (device.value != processes.rank()) processes.send(device.value, tag, give(device));
  }
  for (const DeviceId device : devices) {
    if (device.value != processes.rank()) take(device, processes.receive(device.value, tag));
  }
}

void exchange(Processes& processes, const ExecDag& dag, OpId op) {
  exchange(
      processes, dag, op, [](DeviceId) { return std::string(); },
      [](DeviceId, const std::string&) {});
}

std::vector<Seconds> slowest(Processes& processes, const std::vector<Seconds>& times) {
  std::vector<Seconds> longest = times;
  for (const std::string& bytes : processes.all_gather(bytes_of(times))) {
    const std::vector<Seconds> others = values_of<Seconds>(bytes);
    ensure(others.size() == times.size(), "all processes time equally many steps");
    for (std::size_t s = 0; s < times.size(); ++s) longest[s] = std::max(longest[s], others[s]);
  }
  return longest;
}

std::vector<Timeline> whole_steps(Processes& processes, const Dispatch& own,
                                  const std::vector<Timeline>& parts) {
  std::vector<SeenSpan> seen;
  for (std::size_t step = 0; step < parts.size(); ++step) {
    for (const StreamOp& stream_op : own.stream_ops) {
      const Span& span = parts[step].spans[stream_op.op.index()];
      seen.push_back({step, stream_op.op.index(), span.start.count(), span.end.count()});
    }
  }
  const std::vector<std::string> all = processes.gather(bytes_of(seen));
  if (all.empty()) return {};
  std::vector<Timeline> whole(parts.size());
  for (std::size_t step = 0; step < parts.size(); ++step) {
    whole[step].spans.resize(own.first_stream_op.size() - 1);
  }
  for (const std::string& bytes : all) {
    for (const SeenSpan& one : values_of<SeenSpan>(bytes)) {
      Span& span = whole.at(one.step).spans.at(one.op);
      span.start = std::max(span.start, Seconds{one.start});
      span.end = std::max(span.end, Seconds{one.end});
    }
  }
  return whole;
}

Machine whole_machine(Processes& processes, const Machine& mine) {
  Machine whole = mine;
  Cluster& cluster = whole.cluster;
  const Link link = mine.cluster.links.at(0);
  cluster.models.clear();
  cluster.devices.clear();
  for (const std::string& text : processes.all_gather(to_json(mine))) {
    const Machine part = machine_from_json(text, "another process");
    if (part.backend != mine.backend || part.versions != mine.versions) {
      throw HardwareError("processes of one launch have different libraries or drivers");
    }
    Device device = part.cluster.devices.at(0);
    const DeviceModel& model = part.cluster.model(DeviceId{0});
    const auto known = std::find_if(cluster.models.begin(), cluster.models.end(),
                                    [&](const DeviceModel& m) { return m.name == model.name; });
    device.model = static_cast<std::int32_t>(known - cluster.models.begin());
    if (known == cluster.models.end()) cluster.models.push_back(model);
    device.name = fmt::format("gpu{}", cluster.devices.size());
    cluster.devices.push_back(device);
  }
  whole.clocks += "; a process for each device, messages by NCCL, which hold multiprocessors";
  connect_as_star(whole, std::vector<std::pair<BytesPerSecond, Seconds>>(
                             cluster.devices.size(), {link.rate, link.latency}));
  return whole;
}

}  // namespace parsim::hw
