#include "sim/contention.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/errors.hpp"
#include "sim/prepared_dag.hpp"

namespace parsim {

namespace {

/// Ends this close to the clock are due: engines round dates.
constexpr double due_slack = 1e-12;

void take_out(std::vector<std::uint32_t>& list, std::uint32_t value) {
  const auto found = std::find(list.begin(), list.end(), value);
  ensure(found != list.end(), "an operation leaves a device on which it runs");
  list.erase(found);
}

}  // namespace

Contention::Contention(const ExecDag& dag, const Interference& interference,
                       const std::vector<CommonMemory>& common_memory, const Slowdowns& slowdowns,
                       std::size_t devices)
    : dag_(dag),
      interference_(interference),
      slowdowns_(slowdowns),
      memories_(common_memory.size()),
      devices_(devices),
      index_of_(dag.size(), -1) {
  for (std::size_t m = 0; m < common_memory.size(); ++m) {
    memories_[m].rate = common_memory[m].rate().value;
    for (const MemoryPart& part : common_memory[m].parts) {
      OnDevice& here = devices_.at(part.device.index());
      here.memory = &memories_[m];
      here.weight = common_memory[m].rate_together(part).value;
      here.most = common_memory[m].rate_alone(part).value;
    }
  }
}

Contention::Index Contention::begin(OpId op, Seconds date, Seconds alone) {
  if (free_.empty()) {
    free_.push_back(static_cast<Index>(running_.size()));
    running_.emplace_back();
  }
  const Index index = free_.back();
  free_.pop_back();
  running_[index] = {};
  running_[index].op = op;
  running_[index].left = alone.count();
  running_[index].since = date.count();
  index_of_[op.index()] = static_cast<std::int32_t>(index);
  return index;
}

void Contention::members(OpId op) {
  const OpRecord& record = dag_.record(op);
  if (dag_.kind(op) == OpKind::collective) {
    members_ = dag_.group(GroupId{record.device});
  } else {
    members_ = {DeviceId{record.device}, DeviceId{record.to}};
  }
}

double Contention::slowdown(const Running& running) const {
  if (!running.message) {
    const bool slowed = running.activity && !devices_[running.device.index()].messages.empty();
    return slowed ? interference_.of(*running.activity, Activity::communication) : 1;
  }
  double worst = 1;
  for (const Activity kind : {Activity::tensor, Activity::memory}) {
    if (running.kernels[static_cast<std::size_t>(kind)] == 0) continue;
    worst = std::max(worst, interference_.of(Activity::communication, kind));
  }
  return worst;
}

double Contention::factor_of(const Running& running) const {
  const double factor = slowdown(running);
  if (running.memory == nullptr) return factor;
  return std::max(factor, running.demand / (running.weight * running.memory->level));
}

/// An operation that has just begun claims bandwidth of the memory that all its parts share, if
/// any.
void Contention::claim(Index index, std::span<const DeviceId> parts, double bytes) {
  Running& running = running_[index];
  Memory* memory = devices_[parts.front().index()].memory;
  if (memory == nullptr || bytes <= 0 || running.left <= 0) return;
  double weight = 0, most = 0;
  for (const DeviceId part : parts) {
    const OnDevice& here = devices_[part.index()];
    if (here.memory != memory) return;
    weight += here.weight;
    most += here.most;
  }
  running.memory = memory;
  running.weight = weight;
  running.demand = std::min(bytes / running.left, most);
  memory->claims.push_back(index);
}

/// Shares a memory again after its claims have changed.
void Contention::share(Memory* memory, double date) {
  if (memory == nullptr) return;
  claims_.clear();
  for (const Index index : memory->claims) {
    const Running& running = running_[index];
    claims_.push_back({running.weight, running.demand / slowdown(running)});
  }
  memory->level = memory_level(claims_, memory->rate);
  for (const Index index : memory->claims) change_speed(index, date);
}

void Contention::share_of(std::span<const DeviceId> members, double date) {
  const Memory* last = nullptr;
  for (const DeviceId member : members) {
    Memory* memory = devices_[member.index()].memory;
    if (memory != last) share(memory, date);
    last = memory;
  }
}

/// Work until `date` counts at the old speed.
void Contention::change_speed(Index index, double date) {
  Running& running = running_[index];
  const double factor = factor_of(running);
  if (factor == running.factor) return;
  if (date > running.since) {
    const Seconds from{running.since}, to{date};
    const Seconds done =
        running.device.valid() ? slowdowns_.of(running.device).work(from, to) : to - from;
    running.left = std::max(0.0, running.left - done.count() / running.factor);
    running.since = date;
  }
  running.factor = factor;
  schedule(index);
}

void Contention::schedule(Index index) {
  Running& running = running_[index];
  running.version = ++version_;
  const Seconds since{running.since}, rest{running.left * running.factor};
  const Seconds end =
      running.device.valid() ? slowdowns_.of(running.device).end(since, rest) : since + rest;
  const double date = std::max(end.count(), running.flows_end);
  if (std::isinf(date)) return;
  due_.push_back({date, running.op, index, running.version});
  std::push_heap(due_.begin(), due_.end(), std::greater<>());
  if (due_.size() > 64 + 4 * (running_.size() - free_.size())) forget_void_ends();
}

void Contention::start_kernel(OpId op, Seconds date, Seconds alone, double bytes) {
  const Index index = begin(op, date, alone);
  Running& running = running_[index];
  running.activity = kernel_activity(dag_, op);
  running.device = kernel_device(dag_, op);
  if (running.activity) {
    OnDevice& here = devices_[running.device.index()];
    here.kernels.push_back(index);
    claim(index, std::array{running.device}, bytes);
    share(here.memory, date.count());
    for (const Index message : here.messages) {
      ++running_[message].kernels[static_cast<std::size_t>(*running.activity)];
      change_speed(message, date.count());
      share(running_[message].memory, date.count());
    }
  }
  running.factor = factor_of(running);
  schedule(index);
}

void Contention::start_message(OpId op, Seconds date, Seconds alone, double bytes) {
  const Index index = begin(op, date, alone);
  running_[index].message = true;
  running_[index].flows_end = never.count();
  members(op);
  for (const DeviceId member : members_) {
    OnDevice& here = devices_[member.index()];
    here.messages.push_back(index);
    for (const Index kernel : here.kernels) {
      ++running_[index].kernels[static_cast<std::size_t>(*running_[kernel].activity)];
      change_speed(kernel, date.count());
    }
  }
  claim(index, movers(dag_, op), bytes);
  share_of(members_, date.count());
  running_[index].factor = factor_of(running_[index]);
}

void Contention::flows_ended(OpId op, Seconds date) {
  const auto index = static_cast<Index>(index_of_[op.index()]);
  running_[index].flows_end = date.count();
  schedule(index);
}

void Contention::leave(Index index, double date) {
  const Running running = running_[index];
  index_of_[running.op.index()] = -1;
  running_[index].version = 0;
  free_.push_back(index);
  if (running.memory != nullptr) take_out(running.memory->claims, index);
  if (running.message) {
    members(running.op);
    for (const DeviceId member : members_) {
      OnDevice& here = devices_[member.index()];
      take_out(here.messages, index);
      for (const Index kernel : here.kernels) change_speed(kernel, date);
    }
    share_of(members_, date);
  } else if (running.activity) {
    OnDevice& here = devices_[running.device.index()];
    take_out(here.kernels, index);
    share(running.memory, date);
    for (const Index message : here.messages) {
      --running_[message].kernels[static_cast<std::size_t>(*running.activity)];
      change_speed(message, date);
      share(running_[message].memory, date);
    }
  }
}

Seconds Contention::next() {
  while (!due_.empty() && running_[due_.front().running].version != due_.front().version) {
    std::pop_heap(due_.begin(), due_.end(), std::greater<>());
    due_.pop_back();
  }
  return due_.empty() ? never : Seconds{due_.front().date};
}

std::optional<Contention::End> Contention::pop(Seconds date) {
  const Seconds first = next();
  if (first == never || first > date * (1 + due_slack)) return std::nullopt;
  const Due due = due_.front();
  std::pop_heap(due_.begin(), due_.end(), std::greater<>());
  due_.pop_back();
  leave(due.running, due.date);
  return End{first, due.op};
}

/// Operations whose speed changes often would fill the heap with outdated ends.
void Contention::forget_void_ends() {
  std::erase_if(due_, [&](const Due& due) { return running_[due.running].version != due.version; });
  std::make_heap(due_.begin(), due_.end(), std::greater<>());
}

}  // namespace parsim
