#include "core/json_ops.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/json_support.hpp"

namespace parsim::json {

namespace {

constexpr Limits any_size{0, std::numeric_limits<std::int64_t>::max()};
constexpr Limits up_to_1000_seconds{0, 1'000'000'000'000'000};

}  // namespace

Region whole_parameter(const Parameter& parameter) {
  Region region;
  for (const std::int64_t extent : parameter.extents) region.push_back({0, extent});
  return region;
}

Region whole_slice(const ExecDag& dag, const Slice& slice) {
  const Network& network = dag.network;
  const Tensor& tensor = dag.tensor(slice.tensor);
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
  if (slice.role == Role::statistics) {
    const Shape& scores = network[network[layer].inputs[0]].out;
    const std::int64_t classes = scores.axes[class_axis(scores) - 1].extent;
    return loss_statistics(scores, {whole(network[layer].out, dag.batch), {}}, {0, classes});
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

void fields(auto& visit, Of<OpEntry> auto& op) {
  static constexpr TableSizes any;
  const TableSizes& sizes = op.sizes == nullptr ? any : *op.sizes;
  const Limits slice = index_of(sizes.slices);
  visit.constant("op", to_text(op.kind));
  switch (op.kind) {
    case OpKind::compute:
      visit("pass", op.pass);
      visit("device", op.device, device_number);
      visit("work", op.what, index_of(sizes.works));
      visit("micro_batch", op.micro_batch);
      break;
    case OpKind::update:
      visit("device", op.device, device_number);
      visit("slice", op.what, slice);
      break;
    case OpKind::local:
      visit("does", op.local);
      visit("device", op.device, device_number);
      visit("from", op.what, slice);
      visit("to", op.target, slice);
      break;
    case OpKind::transfer:
      visit("from", op.device, device_number);
      visit("to", op.to, device_number);
      visit("slice", op.what, slice);
      visit("target", op.target, slice);
      visit("add", op.add);
      visit("stream", op.stream);
      visit("bytes", op.bytes, any_size);
      break;
    case OpKind::collective:
      visit("does", op.collective);
      visit("group", op.group, index_of(sizes.groups));
      visit("slice", op.what, slice);
      visit("target", op.target, slice);
      visit.optional_or("shares", op.shares, -1, index_of(sizes.shares));
      visit("stream", op.stream);
      visit("bytes", op.bytes, any_size);
      break;
    case OpKind::delay:
      visit("device", op.device, device_number);
      visit("time_ps", op.picoseconds, up_to_1000_seconds);
      break;
  }
  visit("after", op.after, Rule(index_of(op.earlier), "operations that come before"));
}

std::vector<OpEntry> each_kind(const OpEntry&) {
  std::vector<OpEntry> kinds(spellings_of<OpKind>().size());
  for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i].kind = static_cast<OpKind>(i);
  return kinds;
}

void read_kind(const Node& node, OpEntry& entry) { get(node["op"], entry.kind); }

void put_special(Writer& out, const OpEntry& entry) {
  out.open_object();
  put_fields(out, entry);
  out.close_object();
}

void get_special(const Node& node, OpEntry& entry) { get_fields(node, entry); }

void put_special_schema(Writer& out, const OpEntry& entry) {
  put_kinds_schema(out, each_kind(entry));
}

OpEntry entry_of(const ExecDag& dag, OpId id) {
  const OpRecord& record = dag.record(id);
  OpEntry entry;
  entry.kind = dag.kind(id);
  entry.pass = static_cast<Pass>(record.sub);
  entry.local = static_cast<LocalKind>(record.sub);
  entry.collective = static_cast<CollectiveKind>(record.sub);
  entry.add = record.sub == 1;
  entry.stream = dag.stream(id);
  entry.device = DeviceId{record.device};
  entry.group = record.device;
  entry.to = DeviceId{record.to};
  entry.shares = record.to;
  entry.what = record.what;
  entry.target = record.target;
  entry.micro_batch = record.target;
  entry.bytes = record.payload;
  entry.picoseconds = record.payload;
  const std::span<const OpId> before = dag.predecessors(id);
  entry.after.assign(before.begin(), before.end());
  return entry;
}

OpReader::OpReader(const std::vector<Slice>& slices, const std::vector<Shares>& shares,
                   const TableSizes& sizes)
    : slices_(&slices), shares_(&shares) {
  entry_.sizes = &sizes;
}

void OpReader::read(const Node& node, ExecDag& dag) {
  entry_.earlier = dag.size();
  get(node, entry_);
  const OpId id = add(node, dag);
  const bool moves = entry_.kind == OpKind::transfer || entry_.kind == OpKind::collective;
  if (moves && entry_.bytes != dag.payload(id).value) {
    node["bytes"].refuse(fmt::format("its slices make {}", dag.payload(id).value));
  }
  // Each member receives at most twice the payload from every other member (all-reduce). Sums over
  // the DAG are 64-bit numbers elsewhere.
  const double members = entry_.kind != OpKind::collective
                             ? 1.0
                             : static_cast<double>(dag.group(GroupId{entry_.group}).size());
  if (entry_.kind != OpKind::delay) {
    bytes_ += 2.0 * members * static_cast<double>(dag.payload(id).value);
  }
  if (bytes_ > 0x1p62) node.refuse("more than 2^62 bytes up to here", "a step that moves fewer");
}

OpId OpReader::add(const Node& node, ExecDag& dag) const {
  const OpEntry& entry = entry_;
  switch (entry.kind) {
    case OpKind::compute:
      return dag.add(Compute{WorkId{entry.what}, entry.pass, entry.device, entry.micro_batch},
                     entry.after);
    case OpKind::update: {
      const Slice& updated = slice(entry.what);
      if (updated.role != Role::weight) {
        node["slice"].refuse(fmt::format("{}", entry.what), "accepted: a slice of weights");
      }
      return dag.add(Update{entry.device, updated}, entry.after);
    }
    case OpKind::local: {
      const Local op{entry.local, entry.device, slice(entry.what), slice(entry.target)};
      // Between tensors the region of `to` counts.
      const auto is_bucket = [&](const Slice& one) {
        return dag.tensor(one.tensor).kind == Tensor::Kind::bucket;
      };
      const bool reads = op.kind == LocalKind::copy || op.kind == LocalKind::add;
      if (reads && (is_bucket(op.from) || is_bucket(op.to))) {
        check_alike(node["to"], op.from, op.to, dag);
      }
      return dag.add(op, entry.after);
    }
    case OpKind::transfer: {
      const Transfer op{entry.device, entry.to, slice(entry.what), slice(entry.target), entry.add};
      check_alike(node["target"], op.slice, op.target, dag);
      return dag.add(op, entry.stream, entry.after);
    }
    case OpKind::collective:
      return add_collective(node, dag);
    case OpKind::delay:
      return dag.add(Delay{entry.device, Seconds{static_cast<double>(entry.picoseconds) * 1e-12}},
                     entry.after);
  }
  throw BrokenInvariant("an operation kind outside its enum");
}

OpId OpReader::add_collective(const Node& node, ExecDag& dag) const {
  const Collective op{entry_.collective, GroupId{entry_.group}, slice(entry_.what),
                      slice(entry_.target)};
  const bool whole = op.kind == CollectiveKind::all_reduce || op.kind == CollectiveKind::broadcast;
  if (whole) {
    if (entry_.shares >= 0) {
      node["shares"].refuse(fmt::format("accepted: none for {}", to_text(op.kind)));
    }
    check_alike(node["target"], op.slice, op.target, dag);
    return dag.add(op, {}, entry_.stream, entry_.after);
  }
  const Node at = node["shares"];
  const Shares& used = (*shares_)[static_cast<std::size_t>(entry_.shares)];
  check_shares(at, op, used, dag);
  return dag.add(op, used, entry_.stream, entry_.after);
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
  const Region whole = whole_slice(dag, op.slice);
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
