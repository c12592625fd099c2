#include "sim/contention.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/errors.hpp"
#include "core/profile.hpp"
#include "sim/prepared_dag.hpp"

namespace parsim::sim {

namespace {

/// Ends this close to the clock are due: engines round dates.
constexpr double due_slack = 1e-12;

template <class Running>
void take_out(std::vector<Running*>& list, Running* running) {
  const auto found = std::find(list.begin(), list.end(), running);
  ensure(found != list.end(), "an operation leaves a device on which it runs");
  list.erase(found);
}

std::vector<DeviceId> members(const ExecDag& dag, OpId message) {
  const OpRecord& record = dag.record(message);
  if (dag.kind(message) == OpKind::collective) return dag.group(GroupId{record.device});
  return {DeviceId{record.device}, DeviceId{record.to}};
}

}  // namespace

Contention::Contention(const ExecDag& dag, const Slowdowns& slowdowns, std::size_t devices)
    : dag_(dag),
      slowdowns_(slowdowns),
      memories_(slowdowns.common_memory.size()),
      devices_(devices),
      running_of_(dag.size()) {
  for (std::size_t m = 0; m < memories_.size(); ++m) {
    const CommonMemory& common = slowdowns.common_memory[m];
    memories_[m].rate = common.rate().value;
    for (const MemoryPart& part : common.parts) {
      OnDevice& here = devices_.at(part.device.index());
      here.memory = &memories_[m];
      here.weight = common.rate_together(part).value;
      here.most = common.rate_alone(part).value;
    }
  }
}

Contention::Running& Contention::begin(OpId op, Seconds date, Seconds alone) {
  if (free_.empty()) free_.push_back(&running_.emplace_back());
  Running& running = *free_.back();
  free_.pop_back();
  running = {};
  running.op = op;
  running.left = alone;
  running.since = date;
  running_of_[op.index()] = &running;
  return running;
}

double Contention::interference(const Running& running) const {
  const Interference& factors = slowdowns_.interference;
  if (!running.message) {
    const bool slowed = running.activity && !devices_[running.device.index()].messages.empty();
    return slowed ? factors.of(*running.activity, Activity::communication) : 1;
  }
  double worst = 1;
  for (const Activity kind : {Activity::tensor, Activity::memory}) {
    if (running.kernels[static_cast<std::size_t>(kind)] == 0) continue;
    worst = std::max(worst, factors.of(Activity::communication, kind));
  }
  return worst;
}

/// An operation that has just begun claims bandwidth of the memory that all its parts share, if
/// any.
void Contention::claim(Running& running, std::span<const DeviceId> parts, double bytes) {
  running.interference = interference(running);
  SharedMemory* memory = devices_[parts.front().index()].memory;
  if (memory == nullptr || bytes <= 0 || running.left <= Seconds{0}) return;
  double weight = 0, most = 0;
  for (const DeviceId part : parts) {
    const OnDevice& here = devices_[part.index()];
    if (here.memory != memory) return;
    weight += here.weight;
    most += here.most;
  }
  running.memory = memory;
  running.weight = weight;
  running.demand = std::min(bytes / running.left.count(), most);
  memory->users.push_back(&running);
}

/// Shares a memory again after its users have changed.
void Contention::share(SharedMemory* memory, Seconds date) {
  if (memory == nullptr) return;
  memory->share();
  for (RunningWork* user : memory->users) change_speed(static_cast<Running&>(*user), date);
}

void Contention::share_of(std::span<const DeviceId> members, Seconds date) {
  const SharedMemory* last = nullptr;
  for (const DeviceId member : members) {
    SharedMemory* memory = devices_[member.index()].memory;
    if (memory != last) share(memory, date);
    last = memory;
  }
}

/// A kernel begins (1) or ends (-1) on a device of a message.
void Contention::count(Running& message, Activity kernel, int change, Seconds date) {
  message.kernels[static_cast<std::size_t>(kernel)] += change;
  change_speed(message, date);
  share(message.memory, date);
}

void Contention::change_speed(Running& running, Seconds date) {
  running.interference = interference(running);
  if (running.update(date)) schedule(running);
}

void Contention::schedule(Running& running) {
  running.version = ++version_;
  const double date = std::max(running.end().count(), running.flows_end);
  if (std::isinf(date)) return;
  due_.push_back({date, running.op, &running, running.version});
  std::push_heap(due_.begin(), due_.end(), std::greater<>());
  if (due_.size() > 64 + 4 * (running_.size() - free_.size())) forget_void_ends();
}

void Contention::start_kernel(OpId op, Seconds date, Seconds alone, double bytes) {
  Running& running = begin(op, date, alone);
  running.activity = kernel_activity(dag_, op);
  running.device = kernel_device(dag_, op);
  running.periods = &slowdowns_.of(running.device);
  if (running.activity) {
    OnDevice& here = devices_[running.device.index()];
    here.kernels.push_back(&running);
    claim(running, std::array{running.device}, bytes);
    share(here.memory, date);
    for (Running* message : here.messages) count(*message, *running.activity, 1, date);
  }
  running.update(date);
  schedule(running);
}

void Contention::start_message(OpId op, Seconds date, Seconds alone, double bytes) {
  Running& running = begin(op, date, alone);
  running.message = true;
  running.flows_end = never.count();
  const std::vector<DeviceId> all = members(dag_, op);
  for (const DeviceId member : all) {
    OnDevice& here = devices_[member.index()];
    here.messages.push_back(&running);
    for (Running* kernel : here.kernels) {
      ++running.kernels[static_cast<std::size_t>(*kernel->activity)];
      change_speed(*kernel, date);
    }
  }
  claim(running, movers(dag_, op), bytes);
  share_of(all, date);
  running.update(date);
}

void Contention::flows_ended(OpId op, Seconds date) {
  Running& running = *running_of_[op.index()];
  running.flows_end = date.count();
  schedule(running);
}

void Contention::leave(Running& running, Seconds date) {
  running_of_[running.op.index()] = nullptr;
  running.version = 0;
  free_.push_back(&running);
  if (running.memory != nullptr) {
    take_out<RunningWork>(running.memory->users, &running);
  }
  if (running.message) {
    const std::vector<DeviceId> all = members(dag_, running.op);
    for (const DeviceId member : all) {
      OnDevice& here = devices_[member.index()];
      take_out(here.messages, &running);
      for (Running* kernel : here.kernels) change_speed(*kernel, date);
    }
    share_of(all, date);
  } else if (running.activity) {
    OnDevice& here = devices_[running.device.index()];
    take_out(here.kernels, &running);
    share(running.memory, date);
    for (Running* message : here.messages) count(*message, *running.activity, -1, date);
  }
}

Seconds Contention::next() {
  while (!due_.empty() && !due_.front().valid()) {
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
  leave(*due.running, first);
  return End{first, due.op};
}

/// Operations whose speed changes often would fill the heap with outdated ends.
void Contention::forget_void_ends() {
  std::erase_if(due_, [](const Due& due) { return !due.valid(); });
  std::make_heap(due_.begin(), due_.end(), std::greater<>());
}

}  // namespace parsim::sim
