#include <algorithm>
#include <map>

#include "core/errors.hpp"
#include "validation/framework_script.hpp"

namespace parsim::framework {

DeviceId Script::adder(std::size_t v, const std::vector<DeviceId>& machine) const {
  switch (exchange_) {
    case Exchange::host:
      return cpus_.front();
    case Exchange::gpus:
      return gpus_[gpu_of_[v]];
    case Exchange::round_robin:
    case Exchange::instances:
      return machine[variables_[v].first % machine.size()];
    case Exchange::all_reduce:
    case Exchange::all_reduce_last:
      break;
  }
  throw BrokenInvariant("collectives have no adder");
}

void Script::send_gradients(std::size_t v) {
  order_.push_back(v);
  if (exchange_ == Exchange::all_reduce_last) return;
  for (const std::vector<DeviceId>& machine : machines_) {
    const DeviceId to = adder(v, machine);
    for (const DeviceId gpu : machine) {
      const OpId last = last_[v][gpu.index()];
      sent_[v].push_back(
          to == gpu ? last : copy(gpu, to, variables_[v].gradient, true, std::span(&last, 1)));
    }
  }
  if (exchange_ == Exchange::host) update(cpus_.front(), v, add_up(v, cpus_.front(), sent_[v]));
}

std::vector<OpId> Script::add_up(std::size_t v, DeviceId device, const std::vector<OpId>& arrived) {
  if (arrived.size() < 2) return arrived;
  const Slice& gradient = variables_[v].gradient;
  std::vector<OpId> after = arrived;
  for (std::size_t left = arrived.size() + 3; left > 0; left -= std::min<std::size_t>(left, 2)) {
    const LocalKind kind = left > 1 ? LocalKind::copy : LocalKind::zero;  // two touches, or one
    after = {out_.add(Local{kind, device, gradient, gradient}, after)};
  }
  return after;
}

OpId Script::update(DeviceId device, std::size_t v, const std::vector<OpId>& after) {
  return out_.add(Update{device, variables_[v].weight}, after);
}

void Script::finish() {
  if (exchange_ == Exchange::host) return;
  if (exchange_ == Exchange::all_reduce_last) {
    reduce_all();
    return;
  }
  if (exchange_ == Exchange::gpus) {
    for (const std::size_t v : order_) {
      const DeviceId home = adder(v, gpus_);
      update(home, v, add_up(v, home, sent_[v]));
    }
    return;
  }
  // By variable in the order of gradients, then by machine.
  std::vector<std::vector<std::vector<OpId>>> sums(variables_.size());
  for (const std::size_t v : order_) {
    auto from = sent_[v].begin();
    for (const std::vector<DeviceId>& machine : machines_) {
      const auto end = from + static_cast<std::ptrdiff_t>(machine.size());
      sums[v].push_back(add_up(v, adder(v, machine), {from, end}));
      from = end;
    }
  }
  if (exchange_ == Exchange::round_robin) {
    for (const std::size_t v : order_) give_back(v, sums[v].front());
    return;
  }
  // Queues are in order: what comes back must not hold up what is to be sent.
  constexpr std::size_t behind = 16;
  std::vector<std::vector<OpId>> arrived(variables_.size());
  for (std::size_t i = 0; i < order_.size() + behind; ++i) {
    if (i < order_.size()) arrived[order_[i]] = to_server(order_[i], sums[order_[i]]);
    if (i >= behind) from_server(order_[i - behind], arrived[order_[i - behind]]);
  }
}

void Script::reduce_all() {
  std::map<DeviceId, OpId> tails;
  for (std::size_t i = 0; i < out_.size(); ++i) {
    if (out_.kind(OpId{i}) != OpKind::compute) continue;
    tails[std::get<Compute>(out_.op(OpId{i})).device] = OpId{i};
  }
  std::vector<OpId> after;
  for (const auto& [gpu, tail] : tails) after.push_back(tail);
  const GroupId all = out_.intern(gpus_);
  for (const std::size_t v : order_) {
    const Slice& gradient = variables_[v].gradient;
    std::vector<OpId> sum = after;
    if (gpus_.size() > 1) {
      sum = {out_.add(Collective{CollectiveKind::all_reduce, all, gradient, gradient}, {},
                      Stream::gradient, after)};
    }
    for (const DeviceId gpu : gpus_) update(gpu, v, sum);
  }
}

void Script::give_back(std::size_t v, const std::vector<OpId>& sum) {
  const DeviceId from = adder(v, gpus_);
  for (const DeviceId gpu : gpus_) {
    const bool own = gpu == from;
    update(gpu, v, own ? sum : std::vector{copy(from, gpu, variables_[v].gradient, false, sum)});
  }
}

std::vector<OpId> Script::to_server(std::size_t v, const std::vector<std::vector<OpId>>& sums) {
  const DeviceId server = cpus_[server_of_[v]];
  std::vector<OpId> arrived;
  for (std::size_t m = 0; m < machines_.size(); ++m) {
    const DeviceId from = adder(v, machines_[m]);
    OpId last = copy(from, cpus_[m], variables_[v].gradient, true, sums[m]);
    if (cpus_[m] != server) {
      last =
          out_.add(Transfer{cpus_[m], server, variables_[v].gradient, variables_[v].gradient, true},
                   Stream::gradient, std::vector{last});
    }
    arrived.push_back(last);
  }
  return arrived;
}

void Script::from_server(std::size_t v, const std::vector<OpId>& arrived) {
  const DeviceId server = cpus_[server_of_[v]];
  std::vector<OpId> updated;
  for (const OpId sum : arrived) updated.push_back(update(server, v, {sum}));
  for (std::size_t m = 0; m < machines_.size(); ++m) {
    std::vector<OpId> here = updated;
    if (cpus_[m] != server) {
      const Slice& weight = variables_[v].weight;
      here = {out_.add(Transfer{server, cpus_[m], weight, weight, false}, Stream::tensor, here)};
    }
    for (const DeviceId gpu : machines_[m]) {
      (void)copy(cpus_[m], gpu, variables_[v].weight, false, here);
    }
  }
}

}  // namespace parsim::framework
