#include "hw/processes.hpp"

#include <fmt/format.h>

#include <algorithm>
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

constexpr char done = 'd', input_error = 'i', hardware_error = 'h', memory_error = 'm', bug = 'b';

}  // namespace

void meet(Rendezvous& rendezvous) {
  static_cast<void>(rendezvous.gather(""));
  static_cast<void>(rendezvous.broadcast(""));
}

void together(Rendezvous& rendezvous, const std::function<void()>& work) {
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
  const std::vector<std::string> all = rendezvous.all_gather(news);
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

std::vector<Seconds> slowest(Rendezvous& rendezvous, const std::vector<Seconds>& times) {
  std::vector<Seconds> longest = times;
  for (const std::string& bytes : rendezvous.all_gather(bytes_of(times))) {
    const std::vector<Seconds> others = values_of<Seconds>(bytes);
    ensure(others.size() == times.size(), "all processes time equally many steps");
    for (std::size_t s = 0; s < times.size(); ++s) longest[s] = std::max(longest[s], others[s]);
  }
  return longest;
}

std::vector<Timeline> whole_steps(Rendezvous& rendezvous, const Dispatch& own,
                                  const std::vector<Timeline>& parts) {
  std::vector<SeenSpan> seen;
  for (std::size_t step = 0; step < parts.size(); ++step) {
    for (const StreamOp& stream_op : own.stream_ops) {
      const Span& span = parts[step].spans[stream_op.op.index()];
      seen.push_back({step, stream_op.op.index(), span.start.count(), span.end.count()});
    }
  }
  const std::vector<std::string> all = rendezvous.gather(bytes_of(seen));
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

Machine whole_machine(Rendezvous& rendezvous, const Machine& mine) {
  Machine whole = mine;
  Cluster& cluster = whole.cluster;
  const Link link = mine.cluster.links.at(0);
  cluster.models.clear();
  cluster.devices.clear();
  for (const std::string& text : rendezvous.all_gather(to_json(mine))) {
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
