#include "core/exec_dag.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/errors.hpp"
#include "core/hash.hpp"

namespace parsim {

namespace {

template <class IdType, class Value, class Index>
IdType intern_in(const Value& value, std::vector<Value>& table, Index& index) {
  const auto [entry, fresh] = index.try_emplace(value, static_cast<std::int32_t>(table.size()));
  if (fresh) table.push_back(value);
  return IdType{entry->second};
}

std::uint8_t bits(auto enumerator) { return static_cast<std::uint8_t>(enumerator); }

}  // namespace

std::size_t ExecDag::Hash::operator()(const Region& v) const noexcept {
  return std::hash<Region>{}(v);
}
std::size_t ExecDag::Hash::operator()(const Tensor& v) const noexcept {
  return hash_combine(static_cast<std::size_t>(v.kind), v.index, v.input);
}
std::size_t ExecDag::Hash::operator()(const Slice& v) const noexcept {
  return hash_combine(static_cast<std::size_t>(v.role), v.tensor.value, v.micro_batch,
                      v.region.value);
}
std::size_t ExecDag::Hash::operator()(const std::vector<DeviceId>& v) const noexcept {
  std::size_t state = v.size();
  for (const DeviceId id : v) state = hash_combine(state, id.value);
  return state;
}

RegionId ExecDag::intern(const Region& region) {
  return intern_in<RegionId>(region, regions_, region_index_);
}
TensorId ExecDag::intern(const Tensor& tensor) {
  return intern_in<TensorId>(tensor, tensors_, tensor_index_);
}
WorkId ExecDag::intern(const Work& work) {
  // Equal works stand close together, if there are any (replicas of a part). A lookup table of all
  // of them would take more memory than the works themselves.
  constexpr std::size_t looked_back = 64;
  const CompactWork row = compact(work);
  const std::size_t first = works_.size() > looked_back ? works_.size() - looked_back : 0;
  const auto found =
      std::find(works_.begin() + static_cast<std::ptrdiff_t>(first), works_.end(), row);
  const auto index = static_cast<std::size_t>(found - works_.begin());
  if (found == works_.end()) works_.push_back(row);
  return WorkId{index};
}

ExecDag::CompactWork ExecDag::compact(const Work& work) {
  CompactWork row{work.layer, work.out, -1, work.edges_to_partial_sum};
  const Contraction contraction{{work.contraction_begin, work.contraction_end},
                                work.zigzag,
                                work.class_parts,
                                work.class_part};
  if (contraction == Contraction{}) return row;
  const auto found = std::find(contractions_.begin(), contractions_.end(), contraction);
  row.contraction = static_cast<std::int32_t>(found - contractions_.begin());
  if (found == contractions_.end()) contractions_.push_back(contraction);
  return row;
}

Work ExecDag::work(WorkId id) const {
  const CompactWork& row = works_[id.index()];
  Work work{row.layer, row.out, 0, 0, row.edges_to_partial_sum};
  if (row.contraction < 0) return work;
  const Contraction& contraction = contractions_[static_cast<std::size_t>(row.contraction)];
  work.contraction_begin = static_cast<std::int32_t>(contraction.share.begin);
  work.contraction_end = static_cast<std::int32_t>(contraction.share.end);
  work.zigzag = contraction.zigzag;
  work.class_parts = contraction.class_parts;
  work.class_part = contraction.class_part;
  return work;
}

GroupId ExecDag::intern(const std::vector<DeviceId>& group) {
  return intern_in<GroupId>(group, groups_, group_index_);
}
std::int32_t ExecDag::intern(const Slice& slice) {
  return intern_in<Id<Slice>>(slice, slices_, slice_index_).value;
}

TensorId ExecDag::add_bucket(std::vector<std::pair<ParameterId, RegionId>> contents) {
  buckets_.push_back(std::move(contents));
  return intern(Tensor{Tensor::Kind::bucket, static_cast<std::int32_t>(buckets_.size()) - 1, -1});
}

std::vector<std::pair<ParameterId, Region>> ExecDag::bucket_parts(std::int32_t index,
                                                                  RegionId range) const {
  std::vector<std::pair<ParameterId, Region>> parts;
  std::int64_t begin = 0;
  for (const auto& [parameter, id] : bucket(index)) {
    const Region& part = region(id);
    if (!range.valid()) {
      parts.emplace_back(parameter, part);
      continue;
    }
    const Interval wanted = region(range)[0];
    const Interval here = intersect(wanted, {begin, begin + part.volume()});
    for (const Region& piece : row_major_pieces(part, {here.begin - begin, here.end - begin})) {
      parts.emplace_back(parameter, piece);
    }
    begin += part.volume();
  }
  return parts;
}

std::int64_t ExecDag::elements(const Slice& slice) const {
  const Tensor& what = tensor(slice.tensor);
  if (what.kind != Tensor::Kind::bucket || slice.region.valid()) {
    return region(slice.region).volume();
  }
  std::int64_t sum = 0;
  for (const auto& [parameter, part] : bucket(what.index)) sum += region(part).volume();
  return sum;
}

OpId ExecDag::append(OpRecord record, std::span<const OpId> after) {
  for (const OpId id : after)
    ensure(id.valid() && id.index() < records_.size(), "predecessors exist already");
  record.first_predecessor = static_cast<std::uint32_t>(predecessors_.size());
  predecessors_.insert(predecessors_.end(), after.begin(), after.end());
  records_.push_back(record);
  return OpId{records_.size() - 1};
}

OpId ExecDag::add(const Compute& op, std::span<const OpId> after) {
  ensure(op.work.valid() && op.work.index() < works_.size(), "a kernel's work exists");
  OpRecord record;
  record.kind = bits(OpKind::compute);
  record.stream = bits(Stream::compute);
  record.sub = bits(op.pass);
  record.device = op.device.value;
  record.what = op.work.value;
  record.target = op.micro_batch;
  return append(record, after);
}

OpId ExecDag::add(const Update& op, std::span<const OpId> after) {
  OpRecord record;
  record.kind = bits(OpKind::update);
  record.device = op.device.value;
  record.what = intern(op.slice);
  record.payload = elements(op.slice) * element_bytes(op.slice.role);
  return append(record, after);
}

OpId ExecDag::add(const Local& op, std::span<const OpId> after) {
  OpRecord record;
  record.kind = bits(OpKind::local);
  record.sub = bits(op.kind);
  record.device = op.device.value;
  record.what = intern(op.from);
  record.target = intern(op.to);
  // A copy reads and writes, an addition reads twice and writes, dropping does neither.
  constexpr std::array<std::int64_t, 3> touches{2, 3, 0};
  record.payload =
      touches.at(static_cast<std::size_t>(op.kind)) * elements(op.to) * element_bytes(op.to.role);
  return append(record, after);
}

OpId ExecDag::add(const Transfer& op, Stream stream, std::span<const OpId> after) {
  OpRecord record;
  record.kind = bits(OpKind::transfer);
  record.stream = bits(stream);
  record.sub = op.add ? 1 : 0;
  record.device = op.from.value;
  record.to = op.to.value;
  record.what = intern(op.slice);
  record.target = intern(op.target);
  record.payload = elements(op.slice) * element_bytes(op.slice.role);
  return append(record, after);
}

OpId ExecDag::add(const Collective& op, const Shares& shares, Stream stream,
                  std::span<const OpId> after) {
  ensure(op.group.valid() && op.group.index() < groups_.size(), "a collective's group exists");
  OpRecord record;
  record.kind = bits(OpKind::collective);
  record.stream = bits(stream);
  record.sub = bits(op.kind);
  record.device = op.group.value;
  record.what = intern(op.slice);
  record.target = intern(op.target);
  std::int64_t sum = 0;
  if (op.kind == CollectiveKind::all_reduce || op.kind == CollectiveKind::broadcast) {
    sum = elements(op.slice);
  } else {
    const std::size_t members = group(op.group).size();
    ensure(shares.regions.size() == members, "one region for each member");
    if (op.kind == CollectiveKind::all_to_all) {
      ensure(shares.needs.size() == members, "one needed region for each member");
      for (std::size_t i = 0; i < members; ++i) {
        for (std::size_t j = 0; j < members; ++j) {
          if (i != j) sum += intersect(region(shares.needs[i]), region(shares.regions[j])).volume();
        }
      }
    } else {
      for (const RegionId id : shares.regions) sum += region(id).volume();
    }
    // Layers that reshard alike share one table entry; searching the last few finds nearly all of
    // them.
    constexpr std::size_t looked_back = 16;
    const std::size_t first = shares_.size() > looked_back ? shares_.size() - looked_back : 0;
    std::size_t at = first;
    while (at < shares_.size() && !(shares_[at] == shares)) ++at;
    if (at == shares_.size()) shares_.push_back(shares);
    record.to = static_cast<std::int32_t>(at);
  }
  record.payload = sum * element_bytes(op.slice.role);
  return append(record, after);
}

OpId ExecDag::add(const Delay& op, std::span<const OpId> after) {
  OpRecord record;
  record.kind = bits(OpKind::delay);
  record.device = op.device.value;
  record.payload = std::llround(op.time.count() * 1e12);
  return append(record, after);
}

Op ExecDag::op(OpId id) const {
  const OpRecord& r = records_[id.index()];
  const auto slice = [this](std::int32_t index) {
    return slices_[static_cast<std::size_t>(index)];
  };
  switch (static_cast<OpKind>(r.kind)) {
    case OpKind::compute:
      return Compute{WorkId{r.what}, static_cast<Pass>(r.sub), DeviceId{r.device}, r.target};
    case OpKind::update:
      return Update{DeviceId{r.device}, slice(r.what)};
    case OpKind::local:
      return Local{static_cast<LocalKind>(r.sub), DeviceId{r.device}, slice(r.what),
                   slice(r.target)};
    case OpKind::transfer:
      return Transfer{DeviceId{r.device}, DeviceId{r.to}, slice(r.what), slice(r.target),
                      r.sub == 1};
    case OpKind::collective:
      return Collective{static_cast<CollectiveKind>(r.sub), GroupId{r.device}, slice(r.what),
                        slice(r.target)};
    case OpKind::delay:
      break;
  }
  return Delay{DeviceId{r.device}, Seconds{static_cast<double>(r.payload) * 1e-12}};
}

std::span<const OpId> ExecDag::predecessors(OpId id) const {
  const std::size_t first = records_[id.index()].first_predecessor;
  const std::size_t last = id.index() + 1 < records_.size()
                               ? records_[id.index() + 1].first_predecessor
                               : predecessors_.size();
  return std::span(predecessors_).subspan(first, last - first);
}

const Shares& ExecDag::shares(OpId id) const {
  static const Shares none;
  const OpRecord& r = records_[id.index()];
  const bool has = static_cast<OpKind>(r.kind) == OpKind::collective && r.to >= 0;
  return has ? shares_[static_cast<std::size_t>(r.to)] : none;
}

Part ExecDag::part(WorkId id) const {
  const Work& w = work(id);
  return {region(w.out), {w.contraction_begin, w.contraction_end}, w.zigzag};
}

std::size_t ExecDag::bytes_in_memory() const {
  std::size_t bytes = records_.size() * sizeof(OpRecord) + predecessors_.size() * sizeof(OpId) +
                      regions_.size() * sizeof(Region) + works_.size() * sizeof(CompactWork) +
                      slices_.size() * sizeof(Slice) + tensors_.size() * sizeof(Tensor);
  for (const auto& group : groups_) bytes += group.size() * sizeof(DeviceId);
  for (const auto& bucket : buckets_) bytes += bucket.size() * sizeof(bucket[0]);
  for (const Shares& shares : shares_)
    bytes += (shares.regions.size() + shares.needs.size()) * sizeof(RegionId);
  return bytes;
}

ExecDag::Tables ExecDag::tables() const {
  std::vector<Work> works;
  works.reserve(works_.size());
  for (std::size_t w = 0; w < works_.size(); ++w) works.push_back(work(WorkId{w}));
  return {network, batch,    precision,     reduce_precision, optimizer, strategy,
          cluster, records_, predecessors_, regions_,         tensors_,  std::move(works),
          slices_, groups_,  buckets_,      shares_};
}

ExecDag ExecDag::from_tables(Tables tables) {
  ExecDag dag(std::move(tables.network), tables.batch, tables.precision, tables.optimizer,
              tables.reduce_precision);
  dag.strategy = std::move(tables.strategy);
  dag.cluster = std::move(tables.cluster);
  dag.records_ = std::move(tables.records);
  dag.predecessors_ = std::move(tables.predecessors);
  dag.regions_ = std::move(tables.regions);
  dag.tensors_ = std::move(tables.tensors);
  for (const Work& work : tables.works) dag.works_.push_back(dag.compact(work));
  dag.slices_ = std::move(tables.slices);
  dag.groups_ = std::move(tables.groups);
  dag.buckets_ = std::move(tables.buckets);
  dag.shares_ = std::move(tables.shares);
  const auto index = [](const auto& table, auto& map) {
    for (std::size_t i = 0; i < table.size(); ++i)
      map.try_emplace(table[i], static_cast<std::int32_t>(i));
  };
  index(dag.regions_, dag.region_index_);
  index(dag.tensors_, dag.tensor_index_);
  index(dag.slices_, dag.slice_index_);
  index(dag.groups_, dag.group_index_);
  return dag;
}

bool ExecDag::in_each_unit(OpId id) const {
  if (fold.units == nullptr) return false;
  return kind(id) != OpKind::collective ||
         fold.units->within_kept(group(GroupId{record(id).device}));
}

std::int64_t ExecDag::units(OpId id) const {
  if (!in_each_unit(id)) return 1;
  const std::int32_t device = record(id).device;
  return std::ssize(fold.units->units_like(
      kind(id) == OpKind::collective ? group(GroupId{device})[0] : DeviceId{device}));
}

std::int64_t ExecDag::count(OpId id) const {
  std::int64_t all = units(id);
  if (fold.ranks != nullptr && kind(id) != OpKind::collective)
    all *= std::ssize(fold.ranks->units_like(DeviceId{record(id).device}));
  return all;
}

bool operator==(const ExecDag& a, const ExecDag& b) {
  return a.network == b.network && a.batch == b.batch && a.precision == b.precision &&
         a.reduce_precision == b.reduce_precision && a.optimizer == b.optimizer &&
         a.strategy == b.strategy && a.cluster == b.cluster && a.records_ == b.records_ &&
         a.predecessors_ == b.predecessors_ && a.regions_ == b.regions_ &&
         a.tensors_ == b.tensors_ && a.works_ == b.works_ && a.slices_ == b.slices_ &&
         a.groups_ == b.groups_ && a.buckets_ == b.buckets_ && a.shares_ == b.shares_;
}

}  // namespace parsim
