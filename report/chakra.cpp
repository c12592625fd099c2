#include "report/chakra.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/dag_traffic.hpp"
#include "core/json_writer.hpp"
#include "report/trace.hpp"

namespace parsim::report {

namespace {

/// Fields of a protobuf message (protobuf.dev, "Encoding").
class Message {
 public:
  static std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>(value | 0x80U);
    bytes += static_cast<char>(value);
    return bytes;
  }
  Message& integer(std::uint32_t field, std::uint64_t value) {
    bytes_ += varint(field << 3U) + varint(value);
    return *this;
  }
  Message& text(std::uint32_t field, std::string_view value) {
    bytes_ += varint(field << 3U | 2U) + varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& integers(std::uint32_t field, const std::set<std::uint64_t>& values) {
    std::string packed;
    for (const std::uint64_t value : values) packed += varint(value);
    return values.empty() ? *this : text(field, packed);
  }
  Message& join(const Message& fields) {
    bytes_ += fields.bytes_;
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::string with_length() const { return varint(bytes_.size()) + bytes_; }

 private:
  std::string bytes_;
};

/// Readers refuse text that is not UTF-8: such bytes become U+FFFD.
std::string as_utf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Numbers of AttributeProto's fields, by the type of the value.
constexpr std::uint32_t as_int32 = 7, as_int64 = 9, as_uint64 = 13, as_bool = 27, as_string = 29;

enum class NodeType : std::uint8_t { compute = 4, send = 5, receive = 6, collective = 7 };

std::uint64_t comm_type(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 0;
    case CollectiveKind::all_gather:
      return 2;
    case CollectiveKind::broadcast:
      return 5;
    case CollectiveKind::all_to_all:
      return 6;
    case CollectiveKind::reduce_scatter:
      return 7;
  }
  return 0;
}

/// A node before its dependencies are known to all be there.
struct ChakraNode {
  std::uint64_t id = 0;
  NodeType type = NodeType::compute;
  std::string name;
  Span span{};
  Message attributes{};
  std::set<std::uint64_t> data_deps{}, ctrl_deps{};
};

class ChakraWriter {
 public:
  ChakraWriter(const ExecDag& dag, const Timeline& timeline, std::size_t devices)
      : dag_(dag), timeline_(timeline), nodes_(devices), on_(dag.size()), next_(dag.size()) {
    std::vector<Queue> occupied;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      occupied.clear();
      queues(dag, OpId{i}, occupied);
      for (const Queue& queue : occupied) {
        std::vector<std::int32_t>& devices_of_op = on_[i];
        const std::int32_t device = queue.device.value;
        if (std::find(devices_of_op.begin(), devices_of_op.end(), device) == devices_of_op.end()) {
          devices_of_op.push_back(device);
        }
      }
      for (const std::int32_t device : on_[i]) ranks_.try_emplace(device, 0);
    }
    std::size_t next = 0;
    for (auto& [device, rank] : ranks_) rank = next++;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      for (const std::int32_t device : on_[i]) add(OpId{i}, device);
      occupied.clear();
      queues(dag, OpId{i}, occupied);
      for (const Queue& queue : occupied) {
        const auto [last, fresh] = heads_.try_emplace(queue, i);
        if (!fresh) {
          node(queue.device.value, i).ctrl_deps.insert(last->second);
          last->second = i;
        }
      }
    }
  }

  ChakraTraces write() && {
    ChakraTraces traces;
    for (const auto& [device, rank] : ranks_) {
      std::string bytes = Message().text(1, "0.0.4").with_length();
      for (const ChakraNode& one : nodes_[static_cast<std::size_t>(device)]) {
        bytes += encoded(one).with_length();
        count(one.type, traces);
      }
      traces.ranks.push_back(std::move(bytes));
    }
    json::Writer groups;
    groups.open_object();
    for (const auto& [members, name] : groups_) {
      groups.key(name).open_array();
      for (const std::size_t rank : members) groups.integer(static_cast<std::int64_t>(rank));
      groups.close_array();
    }
    groups.close_object();
    traces.groups = groups.take();
    return traces;
  }

 private:
  ChakraNode& node(std::int32_t device, std::size_t op) {
    std::vector<ChakraNode>& all = nodes_[static_cast<std::size_t>(device)];
    return all[positions_.at({device, op})];
  }
  ChakraNode& add_node(std::int32_t device, std::uint64_t id, NodeType type, std::string name) {
    std::vector<ChakraNode>& all = nodes_[static_cast<std::size_t>(device)];
    positions_[{device, id}] = all.size();
    all.push_back({id, type, std::move(name)});
    attribute(all.back(), "is_cpu_op", as_bool, 0);
    return all.back();
  }
  static void attribute(ChakraNode& node, std::string_view name, std::uint32_t type,
                        std::uint64_t value) {
    node.attributes.text(10, Message().text(1, name).integer(type, value).bytes());
  }
  void add_ends(ChakraNode& node, std::int32_t from, std::int32_t to, std::uint64_t tag,
                std::int64_t bytes) {
    attribute(node, "comm_src", as_int32, ranks_.at(from));
    attribute(node, "comm_dst", as_int32, ranks_.at(to));
    attribute(node, "comm_tag", as_int32, tag & 0x7fffffffU);
    attribute(node, "comm_size", as_int64, static_cast<std::uint64_t>(bytes));
  }

  /// Bytes of what a rank puts in, as ASTRA-sim takes it (astra-sim/system/collective/Ring.cc). The
  /// payload of an all-gather is what all ranks put in, that of an all-to-all what travels between
  /// them.
  [[nodiscard]] std::int64_t buffer_of(OpId id) const {
    const std::int64_t payload = dag_.payload(id).value;
    const auto ranks = static_cast<std::int64_t>(on_[id.index()].size());
    const auto kind = static_cast<CollectiveKind>(dag_.record(id).sub);
    if (kind == CollectiveKind::all_gather) return payload / ranks;
    return kind == CollectiveKind::all_to_all && ranks > 1 ? payload / (ranks - 1) : payload;
  }
  /// The operation's node on one of its devices. First what it waits for elsewhere.
  void add(OpId id, std::int32_t device) {
    std::set<std::uint64_t> waits;
    for (const OpId before : dag_.predecessors(id)) {
      const std::vector<std::int32_t>& where = on_[before.index()];
      if (std::find(where.begin(), where.end(), device) != where.end()) {
        waits.insert(before.index());
      } else if (!where.empty() && on_[id.index()].front() == device && !meet(id, before)) {
        waits.insert(empty_message(before.index(), where.front(), device));
      }
    }
    const OpRecord& record = dag_.record(id);
    const bool transfer = dag_.kind(id) == OpKind::transfer && record.device != record.to;
    const bool collective = dag_.kind(id) == OpKind::collective;
    const NodeType type = collective                ? NodeType::collective
                          : !transfer               ? NodeType::compute
                          : device == record.device ? NodeType::send
                                                    : NodeType::receive;
    ChakraNode& made = add_node(device, id.index(), type, operation_name(dag_, id));
    made.span = timeline_.spans[id.index()];
    made.data_deps = std::move(waits);
    if (transfer) {
      add_ends(made, record.device, record.to, id.index(), dag_.payload(id).value);
    } else if (collective) {
      attribute(made, "comm_type", as_int64, comm_type(static_cast<CollectiveKind>(record.sub)));
      attribute(made, "comm_size", as_int64, static_cast<std::uint64_t>(buffer_of(id)));
      made.attributes.text(
          10, Message().text(1, "pg_name").text(as_string, group_name(record.device)).bytes());
    } else if (dag_.kind(id) == OpKind::compute) {
      attribute(made, "num_ops", as_int64, static_cast<std::uint64_t>(flops_of(record)));
    } else if (dag_.kind(id) != OpKind::delay) {
      attribute(made, "tensor_size", as_uint64, static_cast<std::uint64_t>(dag_.payload(id).value));
    }
  }

  /// Whether some device takes part in both.
  [[nodiscard]] bool meet(OpId one, OpId other) const {
    const std::vector<std::int32_t>& theirs = on_[other.index()];
    return std::any_of(on_[one.index()].begin(), on_[one.index()].end(), [&](std::int32_t device) {
      return std::find(theirs.begin(), theirs.end(), device) != theirs.end();
    });
  }

  /// Forward FLOPs; both gradients of the backward pass take twice as many.
  [[nodiscard]] double flops_of(const OpRecord& record) const {
    const WorkId work{record.what};
    const LayerId id = dag_.work(work).layer;
    const Layer& layer = dag_.network[id];
    const std::vector<Shape> inputs = input_shapes(dag_.network, id);
    const double once = forward_flops(layer.kind, inputs, layer.out, dag_.part(work)).value;
    return static_cast<Pass>(record.sub) == Pass::backward ? 2 * once : once;
  }

  std::uint64_t empty_message(std::size_t before, std::int32_t from, std::int32_t to) {
    const std::uint64_t id = next_++;
    const std::string name = "wait for " + operation_name(dag_, OpId{before});
    const Seconds at = timeline_.spans[before].end;
    for (const bool sends : {true, false}) {
      ChakraNode& made =
          add_node(sends ? from : to, id, sends ? NodeType::send : NodeType::receive, name);
      made.span = {at, at};
      add_ends(made, from, to, id, 0);
      if (sends) made.data_deps = {before};
    }
    return id;
  }

  std::string group_name(std::int32_t group) {
    std::vector<std::size_t> members;
    for (const DeviceId device : dag_.group(GroupId{group})) {
      members.push_back(ranks_.at(device.value));
    }
    std::sort(members.begin(), members.end());
    return groups_.try_emplace(members, std::to_string(groups_.size())).first->second;
  }

  static Message encoded(const ChakraNode& node) {
    const auto microseconds = [](Seconds time) {
      return static_cast<std::uint64_t>(std::llround(std::max(0.0, time.count()) * 1e6));
    };
    Message made;
    made.integer(1, node.id)
        .text(2, as_utf8(node.name))
        .integer(3, static_cast<std::uint64_t>(node.type));
    made.integers(4, node.ctrl_deps).integers(5, node.data_deps);
    made.integer(6, microseconds(node.span.start));
    made.integer(7, microseconds(node.span.end) - microseconds(node.span.start));
    return made.join(node.attributes);
  }
  static void count(NodeType type, ChakraTraces& traces) {
    ++(type == NodeType::compute   ? traces.computes
       : type == NodeType::send    ? traces.sends
       : type == NodeType::receive ? traces.receives
                                   : traces.collectives);
  }

  const ExecDag& dag_;
  const Timeline& timeline_;
  std::vector<std::vector<ChakraNode>> nodes_;  ///< by device
  std::vector<std::vector<std::int32_t>> on_;   ///< devices by operation
  std::map<std::int32_t, std::size_t> ranks_;   ///< by device
  std::map<std::pair<std::int32_t, std::uint64_t>, std::size_t> positions_;
  std::map<Queue, std::uint64_t> heads_;                    ///< last operation of each queue
  std::map<std::vector<std::size_t>, std::string> groups_;  ///< by members
  std::uint64_t next_;                                      ///< of messages that are not the DAG's
};

}  // namespace

ChakraTraces chakra_traces(const ExecDag& dag, const Cluster& cluster, const Timeline& timeline) {
  check_trace_length(timeline, "--chakra", Seconds{1e-6}, "microseconds");
  return ChakraWriter(dag, timeline, cluster.devices.size()).write();
}

}  // namespace parsim::report
