#include "report/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <variant>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "experiment/memory_over_time.hpp"

namespace parsim::report {

namespace {

std::string_view pass_name(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward:
      return "backward";
    case Pass::backward_data:
      return "backward data";
    case Pass::backward_weights:
      return "backward weights";
    case Pass::recompute:
      return "recompute";
  }
  return "?";
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::activation:
      return "activation";
    case Role::gradient:
      return "gradient";
    case Role::partial_sum:
      return "partial sum";
    case Role::weight:
      return "weights";
    case Role::weight_gradient:
      return "weight gradient";
    case Role::optimizer_state:
      return "optimizer state";
    case Role::statistics:
      return "statistics";
  }
  return "?";
}

std::string tensor_name(const ExecDag& dag, const Tensor& tensor) {
  switch (tensor.kind) {
    case Tensor::Kind::output:
    case Tensor::Kind::edge:
      return dag.network[LayerId{tensor.index}].name;
    case Tensor::Kind::parameter:
      return dag.network[ParameterId{tensor.index}].name;
    case Tensor::Kind::bucket:
      return fmt::format("bucket {} ({} parameters)", tensor.index,
                         dag.bucket(tensor.index).size());
  }
  return "?";
}

std::string slice_name(const ExecDag& dag, const Slice& slice) {
  const std::string name =
      fmt::format("{} {}", tensor_name(dag, dag.tensor(slice.tensor)), role_name(slice.role));
  const bool of_a_micro_batch = slice.role == Role::activation || slice.role == Role::gradient ||
                                slice.role == Role::partial_sum || slice.role == Role::statistics;
  return of_a_micro_batch ? fmt::format("{}, micro-batch {}", name, slice.micro_batch) : name;
}

struct Namer {
  const ExecDag& dag;

  std::string operator()(const Compute& op) const {
    return fmt::format("{} {}, micro-batch {}", dag.network[dag.work(op.work).layer].name,
                       pass_name(op.pass), op.micro_batch);
  }
  std::string operator()(const Update& op) const {
    return "update " + tensor_name(dag, dag.tensor(op.slice.tensor));
  }
  std::string operator()(const Local& op) const {
    constexpr std::string_view words[] = {"copy", "add", "drop"};
    return fmt::format("{} {}", words[static_cast<std::size_t>(op.kind)], slice_name(dag, op.to));
  }
  std::string operator()(const Transfer& op) const { return "send " + slice_name(dag, op.slice); }
  std::string operator()(const Collective& op) const {
    return fmt::format("{} {}", to_text(op.kind), slice_name(dag, op.slice));
  }
  std::string operator()(const Delay&) const { return "delay"; }
};

/// Text as a JSON string.
std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Nanoseconds since the start. Rounding instants, not lengths, keeps neighbours from overlapping.
std::int64_t nanoseconds(Seconds time) { return std::llround(time.count() * 1e9); }

/// Nanoseconds as the microseconds of the format, exactly.
std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

/// Category of an operation, by which viewers filter.
std::string_view category_of(const ExecDag& dag, OpId id) {
  switch (dag.kind(id)) {
    case OpKind::compute:
      return pass_name(static_cast<Pass>(dag.record(id).sub));
    case OpKind::update:
      return "optimizer";
    case OpKind::local:
      return "additions";
    case OpKind::transfer:
      return "transfer";
    case OpKind::collective:
      return "collective";
    case OpKind::delay:
      return "delay";
  }
  return "?";
}

/// Bytes per nanosecond that a device sends and receives, and how they change.
struct RateChange {
  std::int64_t at = 0;  ///< nanoseconds
  double send = 0, receive = 0;
};

/// The rates of a device over time as a counter, in GB/s (bytes per nanosecond). Changes at one
/// instant are one event.
void append_counter(std::string& out, std::int32_t process, std::vector<RateChange> changes) {
  std::sort(changes.begin(), changes.end(),
            [](const RateChange& a, const RateChange& b) { return a.at < b.at; });
  double send = 0, receive = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    send += changes[i].send;
    receive += changes[i].receive;
    if (i + 1 < changes.size() && changes[i + 1].at == changes[i].at) continue;
    const auto shown = [](double rate) { return rate < 1e-9 ? 0.0 : rate; };  // sums of rounded
    fmt::format_to(std::back_inserter(out),
                   ",\n{{\"ph\":\"C\",\"name\":\"network [GB/s]\",\"pid\":{},\"ts\":{},\"args\":{{"
                   "\"send\":{:.6g},\"receive\":{:.6g}}}}}",
                   process, microseconds(changes[i].at), shown(send), shown(receive));
  }
}

/// The memory of a device over time as a counter, in GiB.
void append_memory(std::string& out, std::int32_t process, const lowering::MemoryUse& use,
                   const std::vector<experiment::MemoryChange>& changes) {
  constexpr double gib = 1024.0 * 1024 * 1024;
  const Bytes states = use.weights + use.gradients + use.optimizer_state + use.communication;
  const auto add = [&](std::int64_t at, Bytes activations) {
    fmt::format_to(std::back_inserter(out),
                   ",\n{{\"ph\":\"C\",\"name\":\"memory [GiB]\",\"pid\":{},\"ts\":{},\"args\":{{"
                   "\"states\":{:.6g},\"activations\":{:.6g}}}}}",
                   process, microseconds(at), static_cast<double>(states.value) / gib,
                   static_cast<double>(activations.value) / gib);
  };
  if (changes.empty() || nanoseconds(changes.front().at) > 0) add(0, Bytes{});
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const std::int64_t at = nanoseconds(changes[i].at);
    const bool last = i + 1 == changes.size() || nanoseconds(changes[i + 1].at) > at;
    if (last) add(at, changes[i].activations);
  }
}

/// One timeline's events. Of n devices, process d is device d as predicted, n + d as measured.
class Processes {
 public:
  Processes(const ExecDag& dag, const Cluster& cluster, bool measured)
      : dag_(dag), cluster_(cluster), measured_(measured) {}

  void append(std::string& out, const Timeline& timeline,
              std::span<const lowering::MemoryUse> memory, Framework framework) {
    changes_.assign(cluster_.devices.size(), {});
    std::string events;
    std::set<Queue> tracks;
    std::vector<Queue> occupied;
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      const OpId id{i};
      const std::int64_t start = nanoseconds(timeline.spans[i].start);
      const std::int64_t end = nanoseconds(timeline.spans[i].end);
      const std::string name = json_string(operation_name(dag_, id));
      occupied.clear();
      queues(dag_, id, occupied);
      for (const Queue& track : occupied) {
        tracks.insert(track);
        fmt::format_to(
            std::back_inserter(events),
            ",\n{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{},"
            "\"dur\":{},\"args\":{{\"op\":{},\"bytes\":{}}}}}",
            category_of(dag_, id), name, process(track.device), track.queue, microseconds(start),
            microseconds(end - start), i, dag_.payload(id).value);
      }
      if (end > start) add_message(events, id, start, end, occupied);
    }
    append_names(out, tracks);
    out += events;
    for (std::size_t d = 0; d < changes_.size(); ++d) {
      append_counter(out, process(DeviceId{d}), changes_[d]);
    }
    if (memory.empty()) return;
    const auto activations = experiment::memory_over_time(dag_, timeline, memory.size(), framework);
    for (std::size_t d = 0; d < memory.size(); ++d) {
      if (memory[d].total() == Bytes{}) continue;
      append_memory(out, process(DeviceId{d}), memory[d], activations[d]);
    }
  }

 private:
  [[nodiscard]] std::int32_t process(DeviceId device) const {
    return device.value + (measured_ ? static_cast<std::int32_t>(cluster_.devices.size()) : 0);
  }

  /// An arrow from the sender's track to the receiver's, and what a message adds to the rates of
  /// its devices. Of a collective every member sends and receives the same share.
  void add_message(std::string& events, OpId id, std::int64_t start, std::int64_t end,
                   const std::vector<Queue>& tracks) {
    const bool transfer = dag_.kind(id) == OpKind::transfer;
    if (!transfer && dag_.kind(id) != OpKind::collective) return;
    const OpRecord& record = dag_.record(id);
    if (transfer && record.device == record.to) return;
    const std::vector<DeviceId> members =
        transfer ? std::vector{DeviceId{record.device}, DeviceId{record.to}}
                 : dag_.group(GroupId{record.device});
    const double rate = static_cast<double>(bytes_received(dag_, id).value) /
                        static_cast<double>(end - start) /
                        (transfer ? 1.0 : static_cast<double>(members.size()));
    for (std::size_t m = 0; m < members.size(); ++m) {
      const double send = transfer && m == 1 ? 0 : rate, receive = transfer && m == 0 ? 0 : rate;
      changes_[members[m].index()].push_back({start, send, receive});
      changes_[members[m].index()].push_back({end, -send, -receive});
    }
    if (!transfer) return;
    const std::size_t arrow = 2 * id.index() + (measured_ ? 1 : 0);
    const auto add = [&](const std::string& head, const Queue& track, std::int64_t at) {
      fmt::format_to(
          std::back_inserter(events),
          ",\n{{{},\"cat\":\"transfer\",\"name\":\"transfer\",\"id\":{},\"pid\":{},\"tid\":{},"
          "\"ts\":{}}}",
          head, arrow, process(track.device), track.queue, microseconds(at));
    };
    add("\"ph\":\"s\"", tracks.front(), start);
    add("\"ph\":\"f\",\"bp\":\"e\"", tracks.back(), end - 1);  // within the receiver's event
  }

  void append_names(std::string& out, const std::set<Queue>& tracks) const {
    const auto add = [&](std::string_view what, DeviceId device, const std::string& arguments) {
      fmt::format_to(std::back_inserter(out),
                     ",\n{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"args\":{{{}}}}}", what,
                     process(device), arguments);
    };
    for (std::size_t d = 0; d < cluster_.devices.size(); ++d) {
      const DeviceId device{d};
      add("process_name", device,
          "\"name\":" + json_string(fmt::format("{} ({})", cluster_[device].name,
                                                cluster_.model(device).name)));
      add("process_labels", device,
          fmt::format("\"labels\":\"{}\"", measured_ ? "measured" : "predicted"));
      add("process_sort_index", device,
          fmt::format("\"sort_index\":{}", 2 * device.value + (measured_ ? 1 : 0)));
    }
    for (const Queue& track : tracks) {
      fmt::format_to(std::back_inserter(out),
                     ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{"
                     "\"name\":\"{}\"}}}}",
                     process(track.device), track.queue, track_name(track.queue));
    }
  }

  const ExecDag& dag_;
  const Cluster& cluster_;
  bool measured_;
  std::vector<std::vector<RateChange>> changes_{};  ///< by device
};

}  // namespace

std::string track_name(std::int32_t queue) {
  const auto stream = static_cast<Stream>(queue / 2);
  if (stream == Stream::compute) return std::string(to_text(stream));
  return fmt::format("{} {}", to_text(stream), queue % 2 == 0 ? "send" : "receive");
}

std::string operation_name(const ExecDag& dag, OpId id) {
  return std::visit(Namer{dag}, dag.op(id));
}

void check_trace_length(const Timeline& timeline, std::string_view flag, Seconds unit,
                        std::string_view name) {
  const Seconds step = makespan(timeline);
  const Seconds most = 0x1p63 * unit;
  if (step < most) return;
  throw InputError(
      flag, fmt::format("a step of {:.3g} s", step.count()),
      fmt::format("accepted: less than {:.3g} s, which 64 bits hold in {}", most.count(), name));
}

std::string chrome_trace(const ExecDag& dag, const Cluster& cluster, const Timeline& predicted,
                         const Timeline* measured, std::span<const lowering::MemoryUse> memory,
                         Framework framework) {
  check_trace_length(predicted, "--trace", Seconds{1e-9}, "nanoseconds");
  std::string out = fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"network\":{},\"cluster\":{},\"strategy\":{},"
      "\"kind\":\"{}\"}},\n\"traceEvents\":[",
      json_string(dag.network.name), json_string(cluster.name), json_string(dag.strategy),
      measured == nullptr ? "predicted" : "predicted and measured");
  std::string events;
  Processes(dag, cluster, false).append(events, predicted, memory, framework);
  if (measured != nullptr)
    Processes(dag, cluster, true).append(events, *measured, memory, framework);
  if (!events.empty()) events.erase(0, 1);  // the comma before the first
  return out + events + "\n]}\n";
}

}  // namespace parsim::report
