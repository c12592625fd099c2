#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "tests/support/interpreter.hpp"

namespace parsim::testing {
namespace {

/// Operations that must end before each one starts, by dependency or because they stand before it
/// in a queue.
std::vector<std::vector<OpId>> waits_for(const ExecDag& dag) {
  std::vector<std::vector<OpId>> waits(dag.size());
  std::map<Queue, OpId> last;
  std::vector<Queue> occupied;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    waits[i].assign(dag.predecessors(id).begin(), dag.predecessors(id).end());
    queues(dag, id, occupied);
    std::set<Queue> once(occupied.begin(), occupied.end());
    for (const Queue& queue : once) {
      const auto [entry, fresh] = last.try_emplace(queue, id);
      if (!fresh) waits[i].push_back(entry->second);
      entry->second = id;
    }
  }
  return waits;
}

/// before[i] has bit j set if operation j ends before operation i starts.
class HappensBefore {
 public:
  explicit HappensBefore(const ExecDag& dag)
      : words_((dag.size() + 63) / 64), bits_(dag.size() * words_) {
    const auto waits = waits_for(dag);
    for (std::size_t i = 0; i < waits.size(); ++i) {
      for (const OpId id : waits[i]) {
        for (std::size_t w = 0; w < words_; ++w) {
          bits_[i * words_ + w] |= bits_[id.index() * words_ + w];
        }
        bits_[i * words_ + id.index() / 64] |= 1ULL << (id.index() % 64);
      }
    }
  }
  [[nodiscard]] bool ordered(OpId a, OpId b) const {
    const std::size_t first = std::min(a, b).index();
    const std::size_t second = std::max(a, b).index();
    return first == second || ((bits_[second * words_ + first / 64] >> (first % 64)) & 1U) != 0;
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

std::string_view role_name(Role role) {
  constexpr std::array<std::string_view, 6> names{"activation", "gradient",        "partial sum",
                                                  "weight",     "weight gradient", "state"};
  return names[static_cast<std::size_t>(role)];
}

}  // namespace

Memory::Memory(const ExecDag& dag) : dag_(dag) {
  std::set<DeviceId> seen;
  std::vector<Queue> occupied;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    if (const auto* compute = std::get_if<Compute>(&op)) {
      micro_batches_ = std::max(micro_batches_, compute->micro_batch + 1);
    }
    queues(dag, OpId{i}, occupied);
    for (const Queue& queue : occupied) seen.insert(queue.device);
  }
  devices_.assign(seen.begin(), seen.end());
}

Region Memory::whole_of(const StoreKey& key) const {
  const Tensor& tensor = key.tensor;
  if (key.role == Role::statistics) {
    const Layer& loss = dag_.network[LayerId{tensor.index}];
    const Shape& scores = dag_.network[loss.inputs[0]].out;
    const std::int64_t classes = contraction_extent(loss.kind, std::array{scores});
    return loss_statistics(scores, {whole(loss.out, samples()), {}}, {0, classes});
  }
  switch (tensor.kind) {
    case Tensor::Kind::output:
      return whole(dag_.network[LayerId{tensor.index}].out, samples());
    case Tensor::Kind::edge: {
      const Layer& layer = dag_.network[LayerId{tensor.index}];
      const LayerId producer = layer.inputs[static_cast<std::size_t>(tensor.input)];
      return whole(dag_.network[producer].out, samples());
    }
    case Tensor::Kind::parameter:
      return box_of(dag_.network[ParameterId{tensor.index}].extents);
    case Tensor::Kind::bucket:
      break;
  }
  ensure(false, "buckets have no store of their own");
  return {};
}

Memory::Store& Memory::store(const StoreKey& key) {
  const auto [entry, fresh] = stores_.try_emplace(key);
  if (fresh) {
    entry->second.values = Block(whole_of(key));
    entry->second.written.assign(entry->second.values.values().size(), 0);
  }
  return entry->second;
}

void Memory::note(const StoreKey& key, Access::Kind kind, const Region& region) {
  if (op_.valid() && !region.empty()) log_[key].push_back({kind, op_, region});
}

bool Memory::has(const StoreKey& key, const Region& region) const {
  const auto found = stores_.find(key);
  if (region.empty()) return true;
  if (found == stores_.end()) return false;
  bool all = true;
  for_each_index(region, [&](const Index& index) {
    all = all && found->second.written[found->second.values.offset(index)] != 0;
  });
  return all;
}

Block Memory::read(const StoreKey& key, const Region& region) {
  Store& from = store(key);
  note(key, Access::Kind::read, region);
  const bool must_exist =
      key.role == Role::activation || key.role == Role::weight || key.role == Role::statistics;
  if (must_exist && !has(key, region)) {
    ensure(false, fmt::format("{} reads {} over {}, which was never written there",
                              op_.valid() ? describe(dag_, op_) : "the test", describe(dag_, key),
                              to_text(region)));
  }
  return from.values.piece(region);
}

void Memory::write(const StoreKey& key, const Block& block) {
  Store& to = store(key);
  note(key, Access::Kind::write, block.box());
  if (key.role == Role::activation) {
    std::size_t next = 0;
    for_each_index(block.box(), [&](const Index& index) {
      const double value = block.values()[next++];
      const bool again = to.written[to.values.offset(index)] != 0;
      ensure(!again || std::abs(to.values.at(index) - value) <= 1e-9 * (1 + std::abs(value)),
             "an activation is written again with another value");
    });
  }
  to.values.paste(block);
  for_each_index(block.box(), [&](const Index& index) { to.written[to.values.offset(index)] = 1; });
}

void Memory::add(const StoreKey& key, const Block& block) {
  Store& to = store(key);
  note(key, Access::Kind::add, block.box());
  to.values.add(block);
  for_each_index(block.box(), [&](const Index& index) { to.written[to.values.offset(index)] = 1; });
}

void Memory::forget(const StoreKey& key, const Region& region) {
  Store& from = store(key);
  for_each_index(region, [&](const Index& index) { from.written[from.values.offset(index)] = 0; });
}

std::vector<OpId> issue_order(const ExecDag& dag) {
  std::vector<OpId> order;
  for (std::size_t i = 0; i < dag.size(); ++i) order.emplace_back(i);
  return order;
}

std::vector<OpId> random_order(const ExecDag& dag, std::uint64_t seed) {
  const auto waits = waits_for(dag);
  std::vector<std::vector<OpId>> followers(dag.size());
  std::vector<std::size_t> missing(dag.size());
  std::vector<OpId> ready;
  std::vector<OpId> order;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    missing[i] = waits[i].size();
    for (const OpId id : waits[i]) followers[id.index()].emplace_back(i);
    if (waits[i].empty()) ready.emplace_back(i);
  }
  std::mt19937_64 random(seed);
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const OpId id = ready.back();
    ready.pop_back();
    order.push_back(id);
    for (const OpId next : followers[id.index()]) {
      if (--missing[next.index()] == 0) ready.push_back(next);
    }
  }
  ensure(order.size() == dag.size(), "dependencies and queues make no cycle");
  return order;
}

namespace {

/// Whether an operation computes something again. While it does, its output need not be there.
bool computes_again(const ExecDag& dag, OpId id) {
  const auto recomputes = [&](OpId kernel) {
    const Op op = dag.op(kernel);
    const auto* compute = std::get_if<Compute>(&op);
    return compute != nullptr && compute->pass == Pass::recompute;
  };
  const Op op = dag.op(id);
  const auto* sum = std::get_if<Collective>(&op);
  const auto* copy = std::get_if<Local>(&op);
  const bool sums_parts = (sum != nullptr && sum->slice.role == Role::partial_sum) ||
                          (copy != nullptr && copy->from.role == Role::partial_sum);
  if (!sums_parts) return recomputes(id);
  const auto kernels = dag.predecessors(id);
  return std::any_of(kernels.begin(), kernels.end(), recomputes);
}

/// Activations may be written again (a larger piece that overlaps one that has arrived), always
/// with the same values. So a read needs earlier writes of all its elements, and later ones do not
/// disturb it, unless they compute it again.
void find_early_reads(const ExecDag& dag, const HappensBefore& before, const StoreKey& key,
                      const std::vector<Access>& accesses, std::vector<std::string>& found) {
  for (const Access& read : accesses) {
    if (read.kind != Access::Kind::read) continue;
    Block seen(read.region);
    for (const Access& write : accesses) {
      if (write.kind == Access::Kind::read || write.op == read.op) continue;
      if (computes_again(dag, write.op) && !intersect(read.region, write.region).empty() &&
          !before.ordered(write.op, read.op)) {
        found.push_back(fmt::format("{} may read {} over {} while it is computed again",
                                    describe(dag, read.op), describe(dag, key),
                                    to_text(read.region)));
      }
      if (write.op > read.op || !before.ordered(write.op, read.op)) continue;
      for_each_index(intersect(read.region, write.region),
                     [&](const Index& index) { seen.at(index) = 1; });
    }
    if (std::find(seen.values().begin(), seen.values().end(), 0) == seen.values().end()) continue;
    found.push_back(fmt::format("{} may read {} over {} before it is written",
                                describe(dag, read.op), describe(dag, key), to_text(read.region)));
  }
}

void find_conflicts(const ExecDag& dag, const HappensBefore& before, const StoreKey& key,
                    const std::vector<Access>& accesses, std::vector<std::string>& found) {
  for (std::size_t a = 0; a < accesses.size(); ++a) {
    for (std::size_t b = a + 1; b < accesses.size(); ++b) {
      const Access& one = accesses[a];
      const Access& two = accesses[b];
      if (one.kind == two.kind && one.kind != Access::Kind::write) continue;
      if (before.ordered(one.op, two.op)) continue;
      if (intersect(one.region, two.region).empty()) continue;
      found.push_back(fmt::format("{} and {} touch {} over {} and {} in no order",
                                  describe(dag, one.op), describe(dag, two.op), describe(dag, key),
                                  to_text(one.region), to_text(two.region)));
    }
  }
}

}  // namespace

std::vector<std::string> races(const ExecDag& dag, const Memory& memory) {
  const HappensBefore before(dag);
  std::vector<std::string> found;
  for (const auto& [key, accesses] : memory.log()) {
    const bool repeats = key.role == Role::activation;
    (repeats ? find_early_reads : find_conflicts)(dag, before, key, accesses, found);
  }
  return found;
}

std::string describe(const ExecDag& dag, const StoreKey& key) {
  const Tensor& tensor = key.tensor;
  std::string name;
  if (tensor.kind == Tensor::Kind::parameter) {
    name = dag.network[ParameterId{tensor.index}].name;
  } else if (tensor.kind == Tensor::Kind::bucket) {
    name = fmt::format("bucket {}", tensor.index);
  } else {
    name = dag.network[LayerId{tensor.index}].name;
    if (tensor.kind == Tensor::Kind::edge) name += fmt::format(" operand {}", tensor.input);
  }
  return fmt::format("{} of '{}', micro-batch {}, on device {}", role_name(key.role), name,
                     key.micro_batch, key.device.value);
}

std::string describe(const ExecDag& dag, OpId id) {
  const Op op = dag.op(id);
  if (const auto* compute = std::get_if<Compute>(&op)) {
    constexpr std::array<std::string_view, 5> passes{"forward", "backward", "backward data",
                                                     "backward weights", "recompute"};
    const Work& work = dag.work(compute->work);
    return fmt::format("op {} ({} of '{}' {} m{} on device {})", id.value,
                       passes[static_cast<std::size_t>(compute->pass)],
                       dag.network[work.layer].name, to_text(dag.region(work.out)),
                       compute->micro_batch, compute->device.value);
  }
  const auto slice_text = [&](const Slice& slice, DeviceId device) {
    return describe(dag, {device, dag.tensor(slice.tensor), slice.role, slice.micro_batch});
  };
  if (const auto* update = std::get_if<Update>(&op)) {
    return fmt::format("op {} (update of {})", id.value, slice_text(update->slice, update->device));
  }
  if (const auto* local = std::get_if<Local>(&op)) {
    return fmt::format("op {} (local, to {})", id.value, slice_text(local->to, local->device));
  }
  if (const auto* transfer = std::get_if<Transfer>(&op)) {
    return fmt::format("op {} ({} from device {} to {})", id.value,
                       transfer->add ? "addition" : "transfer", transfer->from.value,
                       slice_text(transfer->target, transfer->to));
  }
  if (const auto* collective = std::get_if<Collective>(&op)) {
    return fmt::format("op {} ({} to {} and others)", id.value, to_text(collective->kind),
                       slice_text(collective->target, dag.group(collective->group)[0]));
  }
  return fmt::format("op {} (delay)", id.value);
}

}  // namespace parsim::testing
