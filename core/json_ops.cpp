#include "core/json_ops.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/json_support.hpp"

namespace parsim::json {

Region whole_parameter(const Parameter& parameter) {
  Region region;
  for (const std::int64_t extent : parameter.extents) region.push_back({0, extent});
  return region;
}

Region whole_tensor(const ExecDag& dag, const Tensor& tensor) {
  const Network& network = dag.network;
  if (tensor.kind == Tensor::Kind::parameter) {
    return whole_parameter(network[ParameterId{tensor.index}]);
  }
  if (tensor.kind == Tensor::Kind::bucket) {
    std::int64_t sum = 0;
    for (const auto& [parameter, region] : dag.bucket(tensor.index)) {
      sum += dag.region(region).volume();
    }
    return {{0, sum}};
  }
  LayerId layer{tensor.index};
  if (tensor.kind == Tensor::Kind::edge) {
    layer = network[layer].inputs[static_cast<std::size_t>(tensor.input)];
  }
  return whole(network[layer].out, dag.batch);
}

double elements(const Region& region) {
  double product = 1.0;
  for (std::size_t axis = 0; axis < region.rank(); ++axis) {
    product *= static_cast<double>(region[axis].size());
  }
  return product;
}

void check_inside(const Node& node, const Region& region, const Region& whole) {
  // Not Region::contains: the bounds of an empty box must lie inside, too.
  bool inside = region.rank() == whole.rank();
  for (std::size_t axis = 0; inside && axis < region.rank(); ++axis) {
    inside = region[axis].end <= whole[axis].end;
  }
  if (inside && elements(region) > most_elements) {
    node.refuse(fmt::format("a region of {:.3g} elements", elements(region)),
                fmt::format("accepted: at most {:.3g}", most_elements));
  }
  if (inside) return;
  node.refuse(fmt::format("region {}", to_text(region)),
              fmt::format("accepted: a region inside {}", to_text(whole)));
}

namespace {

void put_members(Writer& out, const ExecDag& dag, OpId id) {
  const OpRecord& record = dag.record(id);
  switch (dag.kind(id)) {
    case OpKind::compute:
      out.key("pass");
      put(out, static_cast<Pass>(record.sub));
      out.key("device").integer(record.device);
      out.key("work").integer(record.what);
      out.key("micro_batch").integer(record.target);
      return;
    case OpKind::update:
      out.key("device").integer(record.device);
      out.key("slice").integer(record.what);
      return;
    case OpKind::local:
      out.key("does");
      put(out, static_cast<LocalKind>(record.sub));
      out.key("device").integer(record.device);
      out.key("from").integer(record.what);
      out.key("to").integer(record.target);
      return;
    case OpKind::transfer:
      out.key("from").integer(record.device);
      out.key("to").integer(record.to);
      out.key("slice").integer(record.what);
      out.key("target").integer(record.target);
      out.key("add").boolean(record.sub == 1);
      out.key("stream");
      put(out, dag.stream(id));
      out.key("bytes").integer(record.payload);
      return;
    case OpKind::collective:
      out.key("does");
      put(out, static_cast<CollectiveKind>(record.sub));
      out.key("group").integer(record.device);
      out.key("slice").integer(record.what);
      out.key("target").integer(record.target);
      if (record.to >= 0) out.key("shares").integer(record.to);
      out.key("stream");
      put(out, dag.stream(id));
      out.key("bytes").integer(record.payload);
      return;
    case OpKind::delay:
      out.key("device").integer(record.device);
      out.key("time_ps").integer(record.payload);
      return;
  }
}

}  // namespace

void put_op(Writer& out, const ExecDag& dag, OpId id) {
  out.open_object();
  out.key("op");
  put(out, dag.kind(id));
  put_members(out, dag, id);
  out.key("after").open_array();
  for (const OpId before : dag.predecessors(id)) out.integer(before.value);
  out.close_array();
  out.close_object();
}

OpReader::OpReader(const std::vector<Slice>& slices, const std::vector<Shares>& shares,
                   std::size_t works, std::size_t groups)
    : slices_(&slices), shares_(&shares), works_(works), groups_(groups) {}

const Slice& OpReader::slice(const Node& node) const {
  return (*slices_)[static_cast<std::size_t>(node.integer(index_of(slices_->size())))];
}

void OpReader::read(const Node& node, ExecDag& dag) {
  std::vector<OpId> after;
  node["after"].each(
      [&](const Node& before) { get(before, after.emplace_back(), index_of(dag.size())); });
  OpKind kind{};
  get(node["op"], kind);
  const OpId id = add(kind, node, after, dag);
  if (const auto bytes = node.find("bytes")) {
    if (bytes->integer({0, std::numeric_limits<std::int64_t>::max()}) != dag.payload(id).value) {
      bytes->refuse(fmt::format("its slices make {}", dag.payload(id).value));
    }
  }
  // Each member receives at most twice the payload from every other member (all-reduce). Sums over
  // the DAG are 64-bit numbers elsewhere.
  const double members =
      kind != OpKind::collective
          ? 1.0
          : static_cast<double>(dag.group(GroupId{dag.record(id).device}).size());
  if (kind != OpKind::delay) bytes_ += 2.0 * members * static_cast<double>(dag.payload(id).value);
  if (bytes_ > 0x1p62) node.refuse("more than 2^62 bytes up to here", "a step that moves fewer");
}

OpId OpReader::add(OpKind kind, const Node& node, std::span<const OpId> after, ExecDag& dag) const {
  const auto device = [&](std::string_view key) {
    DeviceId id;
    get(node[key], id, device_number);
    return id;
  };
  switch (kind) {
    case OpKind::compute: {
      node.only({"op", "pass", "device", "work", "micro_batch", "after"});
      Compute op;
      get(node["pass"], op.pass);
      get(node["work"], op.work, index_of(works_));
      get(node["micro_batch"], op.micro_batch);
      op.device = device("device");
      return dag.add(op, after);
    }
    case OpKind::update:
      node.only({"op", "device", "slice", "after"});
      return dag.add(Update{device("device"), slice(node["slice"])}, after);
    case OpKind::local: {
      node.only({"op", "does", "device", "from", "to", "after"});
      Local op{{}, device("device"), slice(node["from"]), slice(node["to"])};
      get(node["does"], op.kind);
      // Between tensors the region of `to` counts.
      const auto is_bucket = [&](const Slice& one) {
        return dag.tensor(one.tensor).kind == Tensor::Kind::bucket;
      };
      const bool reads = op.kind == LocalKind::copy || op.kind == LocalKind::add;
      if (reads && (is_bucket(op.from) || is_bucket(op.to))) {
        check_alike(node["to"], op.from, op.to, dag);
      }
      return dag.add(op, after);
    }
    case OpKind::transfer: {
      node.only({"op", "from", "to", "slice", "target", "add", "stream", "bytes", "after"});
      const Transfer op{device("from"), device("to"), slice(node["slice"]), slice(node["target"]),
                        node["add"].boolean()};
      check_alike(node["target"], op.slice, op.target, dag);
      return dag.add(op, stream(node), after);
    }
    case OpKind::collective:
      return add_collective(node, after, dag);
    case OpKind::delay: {
      node.only({"op", "device", "time_ps", "after"});
      constexpr Limits up_to_1000_seconds{0, 1'000'000'000'000'000};
      const double picoseconds = static_cast<double>(node["time_ps"].integer(up_to_1000_seconds));
      return dag.add(Delay{device("device"), Seconds{picoseconds * 1e-12}}, after);
    }
  }
  throw BrokenInvariant("an operation kind outside its enum");
}

OpId OpReader::add_collective(const Node& node, std::span<const OpId> after, ExecDag& dag) const {
  node.only({"op", "does", "group", "slice", "target", "shares", "stream", "bytes", "after"});
  Collective op;
  get(node["does"], op.kind);
  get(node["group"], op.group, index_of(groups_));
  op.slice = slice(node["slice"]);
  op.target = slice(node["target"]);
  const bool whole = op.kind == CollectiveKind::all_reduce || op.kind == CollectiveKind::broadcast;
  if (whole) {
    if (node.find("shares")) {
      node["shares"].refuse(fmt::format("accepted: none for {}", to_text(op.kind)));
    }
    check_alike(node["target"], op.slice, op.target, dag);
    return dag.add(op, {}, stream(node), after);
  }
  const Node at = node["shares"];
  const Shares& used = (*shares_)[static_cast<std::size_t>(at.integer(index_of(shares_->size())))];
  check_shares(at, op, used, dag);
  return dag.add(op, used, stream(node), after);
}

Stream OpReader::stream(const Node& node) {
  Stream stream{};
  get(node["stream"], stream);
  return stream;
}

void OpReader::check_alike(const Node& target, const Slice& slice, const Slice& to,
                           const ExecDag& dag) {
  const Tensor& a = dag.tensor(slice.tensor);
  const Tensor& b = dag.tensor(to.tensor);
  const bool from_bucket = a.kind == Tensor::Kind::bucket,
             to_bucket = b.kind == Tensor::Kind::bucket;
  if (slice.region != to.region) target.refuse("accepted: a slice of the same region");
  if (from_bucket != to_bucket || (from_bucket && dag.bucket(a.index) != dag.bucket(b.index))) {
    target.refuse("accepted: a slice of the same contents");
  }
}

void OpReader::check_shares(const Node& node, const Collective& op, const Shares& used,
                            const ExecDag& dag) {
  const std::size_t members = dag.group(op.group).size();
  const std::size_t needs = op.kind == CollectiveKind::all_to_all ? members : 0;
  if (used.regions.size() != members || used.needs.size() != needs) {
    node.refuse(
        fmt::format("shares with {} regions and {} needs", used.regions.size(), used.needs.size()),
        fmt::format("{} and {} for {} in a group of {}", members, needs, to_text(op.kind),
                    members));
  }
  const Tensor& tensor = dag.tensor(op.slice.tensor);
  if (tensor.kind == Tensor::Kind::bucket &&
      (op.kind == CollectiveKind::all_to_all || op.slice.tensor != op.target.tensor)) {
    node.refuse("shares of a bucket", "a bucket is gathered or scattered in its place");
  }
  const Region whole = whole_tensor(dag, tensor);
  double held = 0, needed = 0;
  for (const RegionId id : used.regions) {
    check_inside(node, dag.region(id), whole);
    held += elements(dag.region(id));
  }
  for (const RegionId id : used.needs) {
    check_inside(node, dag.region(id), whole);
    needed += elements(dag.region(id));
  }
  // Every member may hold all that another one needs.
  const double most = std::max(held, needed * static_cast<double>(members));
  if (most > 0x1p58) node.refuse(fmt::format("shares of {:.3g} elements", most), "at most 2^58");
}

}  // namespace parsim::json
