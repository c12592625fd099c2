#include "hw/memory_plan.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/errors.hpp"

namespace parsim::hw {

namespace {

/// What is known to have ended when a stream operation begins: by stream, so many of its own.
class Clocks {
 public:
  explicit Clocks(const Dispatch& order) : streams_(order.streams.size()) {
    std::vector<std::int32_t> counts(streams_);
    std::vector<std::vector<std::int32_t>> ended(streams_, std::vector<std::int32_t>(streams_));
    for (const StreamOp& stream_op : order.stream_ops) {
      const auto stream = static_cast<std::size_t>(stream_op.stream);
      std::vector<std::int32_t>& clock = ended[stream];
      for (const std::uint32_t wait : order.waits_of(stream_op)) {
        for (std::size_t s = 0; s < streams_; ++s) {
          clock[s] = std::max(clock[s], begun_[wait * streams_ + s]);
        }
        std::int32_t& own = clock[static_cast<std::size_t>(order.stream_ops[wait].stream)];
        own = std::max(own, positions_[wait] + 1);
      }
      begun_.insert(begun_.end(), clock.begin(), clock.end());
      positions_.push_back(counts[stream]++);
      clock[stream] = positions_.back() + 1;
    }
  }
  /// So many operations of the stream have ended before the stream operation begins.
  [[nodiscard]] std::int32_t ended(std::uint32_t stream_op, std::int32_t stream) const {
    return begun_[stream_op * streams_ + static_cast<std::size_t>(stream)];
  }
  [[nodiscard]] std::int32_t position(std::uint32_t stream_op) const {
    return positions_[stream_op];
  }

 private:
  std::size_t streams_;
  std::vector<std::int32_t> begun_;      ///< by stream operation and stream
  std::vector<std::int32_t> positions_;  ///< by stream operation: number in its stream
};

/// A tensor's uses.
struct Life {
  StoreKey key;
  std::size_t bytes = 0;
  OpId first;
  Use first_use = Use::names;
  Region first_region;
  std::vector<std::uint32_t> uses;  ///< stream operations, ascending
  bool ordered = true;              ///< the first one comes before all others
  bool once = true;                 ///< the first operation uses it in one way only
  std::optional<std::pair<OpId, std::uint32_t>> dropped;  ///< where its last use is over
};

class Planner {
 public:
  Planner(const ExecDag& dag, const Dispatch& order, const Stores& stores,
          std::int64_t element_bytes, std::size_t alignment, const MemoryRules& rules)
      : dag_(dag), order_(order), stores_(stores), clocks_(order), rules_(rules) {
    ensure(!rules.reuse || !rules.zero_at_start, "what is reused cannot be zero from the start");
    for (const auto& [key, store] : stores.all) {
      Life life;
      life.key = key;
      const bool wide = key.role == Role::optimizer_state || holds_statistics(key);
      const std::int64_t each = wide ? 4 : element_bytes;
      const auto bytes = static_cast<std::size_t>(store.box.volume() * each);
      life.bytes = (bytes + alignment - 1) / alignment * alignment;
      numbers_[key] = lives_.size();
      lives_.push_back(std::move(life));
    }
    find_uses();
  }

  MemoryPlan plan() {
    MemoryPlan out;
    out.devices.resize(static_cast<std::size_t>(stores_.devices));
    out.begins_as_zero.resize(dag_.size());
    std::vector<std::vector<const Life*>> passing(out.devices.size());
    for (const bool zeroed : {true, false}) {
      for (const Life& life : lives_) {
        if (begins_as_zero(life) && zero_from_start(life) != zeroed) continue;
        if (!begins_as_zero(life) && zeroed) continue;
        MemoryPlan::Device& device = out.devices[life.key.device.index()];
        if (rules_.reuse && passes(life)) {
          passing[life.key.device.index()].push_back(&life);
        } else {
          out.places[life.key].push_back({life.first, device.total});
          device.total += life.bytes;
          if (zeroed) device.zeroed = device.total;
        }
      }
    }
    for (const Life& life : lives_) {
      if (!life.uses.empty() && life.ordered && life.once) {
        out.first_uses.emplace(life.key, life.first);
      }
      if (life.dropped) out.given_back.emplace(life.key, life.dropped->first);
      if (!begins_as_zero(life) || zero_from_start(life) || life.uses.empty()) continue;
      const bool covers = life.first_use == Use::overwrites &&
                          life.first_region.contains(stores_.all.at(life.key).box);
      if (!covers) out.begins_as_zero[life.first.index()].push_back(life.key);
    }
    for (std::size_t d = 0; d < out.devices.size(); ++d) {
      out.devices[d].least = out.devices[d].total + most_in_use(passing[d]);
      out.devices[d].total += place(passing[d], out.devices[d].total, out.places);
    }
    for (auto& [key, places] : out.places) {
      std::sort(places.begin(), places.end(),
                [](const auto& a, const auto& b) { return a.from < b.from; });
    }
    return out;
  }

 private:
  void find_uses() {
    const std::vector<bool> trained = trained_layers(dag_.network);
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      const OpId op{i};
      if (order_.stream_ops_of(op).empty()) continue;  // another process's
      for_each_use(dag_, op, trained, [&](const TensorSlice& slice, Use use) {
        const auto found = numbers_.find(slice.key);
        if (slice.region.empty() || use == Use::names || found == numbers_.end()) return;
        const std::uint32_t stream_op = stream_op_of(op, slice.key.device);
        if (is_drop(op) && ends_with(lives_[found->second], slice, stream_op)) {
          lives_[found->second].dropped = {op, stream_op};
          return;
        }
        if (begins_anew(lives_[found->second], slice, use, stream_op)) {
          Life next;
          next.key = slice.key;
          next.bytes = lives_[found->second].bytes;
          found->second = lives_.size();
          lives_.push_back(std::move(next));
        }
        Life& life = lives_[found->second];
        if (life.uses.empty()) {
          life.first = op;
          life.first_use = use;
          life.first_region = slice.region;
        } else if (life.first == op) {
          life.first_use = Use::reads;  // of several parts
          life.once = false;
        }
        if (life.uses.empty() || life.uses.back() != stream_op) life.uses.push_back(stream_op);
      });
    }
    for (Life& life : lives_) {
      for (std::size_t u = 1; u < life.uses.size(); ++u) {
        life.ordered = life.ordered && is_before(life.uses[0], life.uses[u]);
      }
    }
  }

  [[nodiscard]] bool is_drop(OpId id) const {
    if (dag_.kind(id) != OpKind::local) return false;
    return std::get<Local>(dag_.op(id)).kind == LocalKind::drop;
  }
  /// Whether a drop of the slice comes after all uses of a whole gradient that may give way.
  [[nodiscard]] bool ends_with(const Life& life, const TensorSlice& slice,
                               std::uint32_t stream_op) const {
    return rules_.reuse && begins_as_zero(life) && is_large(life) && !life.uses.empty() &&
           !life.dropped && slice.region.contains(stores_.all.at(slice.key).box) &&
           std::all_of(life.uses.begin(), life.uses.end(),
                       [&](std::uint32_t use) { return is_before(use, stream_op); });
  }

  /// Whether an operation is the first to use a dropped gradient again, or writes an activation
  /// anew, whose earlier uses are all over.
  [[nodiscard]] bool begins_anew(const Life& life, const TensorSlice& slice, Use use,
                                 std::uint32_t stream_op) const {
    if (life.dropped) {
      ensure(is_before(life.dropped->second, stream_op), "what is dropped is used after that");
      return true;
    }
    return rules_.reuse && use == Use::overwrites && life.key.role == Role::activation &&
           !life.uses.empty() && slice.region.contains(stores_.all.at(slice.key).box) &&
           std::all_of(life.uses.begin(), life.uses.end(),
                       [&](std::uint32_t other) { return is_before(other, stream_op); });
  }

  /// The operation's on the device; else its only one, which reaches there.
  [[nodiscard]] std::uint32_t stream_op_of(OpId op, DeviceId device) const {
    const std::uint32_t first = order_.first_stream_op[op.index()];
    const std::uint32_t end = order_.first_stream_op[op.index() + 1];
    for (std::uint32_t t = first; t < end; ++t) {
      const auto stream = static_cast<std::size_t>(order_.stream_ops[t].stream);
      if (order_.streams[stream].device == device) return t;
    }
    return first;
  }

  [[nodiscard]] bool is_before(std::uint32_t a, std::uint32_t b) const {
    return clocks_.ended(b, order_.stream_ops[a].stream) > clocks_.position(a);
  }
  [[nodiscard]] bool is_over(const Life& a, const Life& b) const {
    return std::all_of(a.uses.begin(), a.uses.end(),
                       [&](std::uint32_t use) { return is_before(use, b.uses[0]); });
  }
  [[nodiscard]] bool conflict(const Life& a, const Life& b) const {
    return !is_over(a, b) && !is_over(b, a);
  }

  [[nodiscard]] bool is_large(const Life& life) const {
    return life.key.role != Role::weight_gradient || life.bytes >= rules_.small;
  }
  static bool begins_as_zero(const Life& life) {
    return life.key.role == Role::gradient || life.key.role == Role::partial_sum ||
           life.key.role == Role::weight_gradient;
  }
  /// Its bytes may be another's before and after it is used.
  [[nodiscard]] bool passes(const Life& life) const {
    if (life.uses.empty() || !life.ordered) return false;
    if (life.key.role == Role::gradient || life.key.role == Role::partial_sum) return true;
    if (life.key.role == Role::weight_gradient) return is_large(life);
    if (life.key.role != Role::activation) return false;
    return life.key.tensor.kind != Tensor::Kind::output ||
           dag_.network[LayerId{life.key.tensor.index}].kind.as<Input>() == nullptr;
  }
  [[nodiscard]] bool zero_from_start(const Life& life) const {
    const bool stays = life.key.role == Role::weight_gradient && !(rules_.reuse && passes(life));
    return rules_.zero_at_start || stays || !life.ordered || life.uses.empty();
  }

  /// Of those in use at one tensor's beginning no two share bytes.
  [[nodiscard]] std::size_t most_in_use(const std::vector<const Life*>& lives) const {
    std::size_t most = 0;
    for (const Life* now : lives) {
      std::size_t sum = 0;
      for (const Life* other : lives) {
        const bool begun =
            other->uses[0] == now->uses[0] || is_before(other->uses[0], now->uses[0]);
        if (begun && !is_over(*other, *now)) sum += other->bytes;
      }
      most = std::max(most, sum);
    }
    return most;
  }

  /// Places them from `begin` on; returns the bytes beyond it.
  std::size_t place(std::vector<const Life*> lives, std::size_t begin,
                    std::map<StoreKey, std::vector<MemoryPlan::Place>>& places) const {
    std::optional<std::size_t> best;
    std::vector<std::pair<const Life*, std::size_t>> found;
    for (const bool by_size : {true, false}) {
      std::sort(lives.begin(), lives.end(), [&](const Life* a, const Life* b) {
        const auto first = [](const Life* life) { return life->uses[0]; };
        return by_size
                   ? std::tuple(b->bytes, first(a), a->key) < std::tuple(a->bytes, first(b), b->key)
                   : std::tuple(first(a), b->bytes, a->key) <
                         std::tuple(first(b), a->bytes, b->key);
      });
      std::vector<std::size_t> at;
      std::size_t end = 0;
      for (std::size_t n = 0; n < lives.size(); ++n) {
        std::vector<std::pair<std::size_t, std::size_t>> taken;
        for (std::size_t o = 0; o < n; ++o) {
          if (conflict(*lives[o], *lives[n])) taken.emplace_back(at[o], at[o] + lives[o]->bytes);
        }
        std::sort(taken.begin(), taken.end());
        std::size_t offset = 0;
        for (const auto& [from, to] : taken) {
          if (from >= offset + lives[n]->bytes) break;
          offset = std::max(offset, to);
        }
        at.push_back(offset);
        end = std::max(end, offset + lives[n]->bytes);
      }
      if (best && *best <= end) break;
      best = end;
      found.clear();
      for (std::size_t n = 0; n < lives.size(); ++n) found.emplace_back(lives[n], begin + at[n]);
    }
    for (const auto& [life, offset] : found) places[life->key].push_back({life->first, offset});
    return best.value_or(0);
  }

  const ExecDag& dag_;
  const Dispatch& order_;
  const Stores& stores_;
  Clocks clocks_;
  MemoryRules rules_;
  std::vector<Life> lives_;  ///< in the order of their keys
  std::map<StoreKey, std::size_t> numbers_;
};

}  // namespace

std::size_t MemoryPlan::offset(const StoreKey& key, OpId op) const {
  const std::vector<Place>& all = places.at(key);
  std::size_t n = all.size() - 1;
  while (n > 0 && op < all[n].from) --n;
  return all[n].offset;
}

MemoryPlan plan_memory(const ExecDag& dag, const Dispatch& order, const Stores& stores,
                       std::int64_t element_bytes, std::size_t alignment,
                       const MemoryRules& rules) {
  return Planner(dag, order, stores, element_bytes, alignment, rules).plan();
}

}  // namespace parsim::hw
