#include "report/trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <variant>

#include "core/dag_traffic.hpp"

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
                                slice.role == Role::partial_sum;
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

/// One timeline's events. Of n devices, process d is device d as predicted, n + d as measured.
class Processes {
 public:
  Processes(const ExecDag& dag, const Cluster& cluster, bool measured)
      : dag_(dag), cluster_(cluster), measured_(measured) {}

  void append(std::string& out, const Timeline& timeline) const {
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
        fmt::format_to(std::back_inserter(events),
                       ",\n{{\"ph\":\"X\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},"
                       "\"args\":{{\"op\":{},\"bytes\":{}}}}}",
                       name, process(track.device), track.queue, microseconds(start),
                       microseconds(end - start), i, dag_.payload(id).value);
      }
    }
    append_names(out, tracks);
    out += events;
  }

 private:
  [[nodiscard]] std::int32_t process(DeviceId device) const {
    return device.value + (measured_ ? static_cast<std::int32_t>(cluster_.devices.size()) : 0);
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

std::string chrome_trace(const ExecDag& dag, const Cluster& cluster, const Timeline& predicted,
                         const Timeline* measured) {
  std::string out = fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"network\":{},\"cluster\":{},\"strategy\":{},"
      "\"kind\":\"{}\"}},\n\"traceEvents\":[",
      json_string(dag.network.name), json_string(cluster.name), json_string(dag.strategy),
      measured == nullptr ? "predicted" : "predicted and measured");
  std::string events;
  Processes(dag, cluster, false).append(events, predicted);
  if (measured != nullptr) Processes(dag, cluster, true).append(events, *measured);
  if (!events.empty()) events.erase(0, 1);  // the comma before the first
  return out + events + "\n]}\n";
}

}  // namespace parsim::report
