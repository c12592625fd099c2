#include "validation/framework_step.hpp"

#include <algorithm>
#include <array>
#include <random>

#include "core/errors.hpp"
#include "core/json_ops.hpp"
#include "validation/framework_script.hpp"

namespace parsim {

namespace framework {

namespace {

constexpr std::size_t none = static_cast<std::size_t>(-1);

constexpr std::array copy_streams{Stream::gradient, Stream::tensor, Stream::pipeline,
                                  Stream::pipeline_back};

bool gives_gradients(Pass pass) { return pass == Pass::backward || pass == Pass::backward_weights; }

}  // namespace

Script::Script(const ExecDag& plain, const Cluster& cluster, Exchange exchange,
               const std::string& where)
    : plain_(plain),
      cluster_(cluster),
      exchange_(exchange),
      out_(plain.network, plain.batch, plain.precision, plain.optimizer, plain.reduce_precision),
      gpus_(devices_of(cluster, DeviceKind::gpu)),
      numbers_(cluster.devices.size()) {
  out_.strategy = plain.strategy;
  out_.cluster = plain.cluster;
  std::map<NodeId, std::vector<DeviceId>> machines;
  for (const DeviceId gpu : gpus_) {
    std::vector<DeviceId>& machine = machines[cluster[gpu].node];
    numbers_[gpu.index()] = machine.size();
    machine.push_back(gpu);
  }
  if (exchange == Exchange::instances) {
    for (auto& [node, machine] : machines) machines_.push_back(std::move(machine));
  } else {
    machines_.push_back(gpus_);
  }
  if (exchange == Exchange::host || exchange == Exchange::instances) find_cpus(where);
  find_variables();
}

ExecDag Script::step() && {
  read_variables();
  std::vector<OpId> renamed(plain_.size());
  const std::vector<std::vector<std::size_t>> complete = completed_by();
  for (std::size_t i = 0; i < plain_.size(); ++i) {
    const OpId id{i};
    if (plain_.kind(id) == OpKind::compute) {
      renamed[i] = compute(id, renamed);
    } else if (plain_.kind(id) == OpKind::local) {
      renamed[i] = local(id, renamed);
    }
    for (const std::size_t v : complete[i]) send_gradients(v);
  }
  finish();
  return std::move(out_);
}

void Script::find_cpus(const std::string& where) {
  for (const std::vector<DeviceId>& machine : machines_) {
    const NodeId node = cluster_[machine.front()].node;
    for (const DeviceId cpu : devices_of(cluster_, DeviceKind::cpu)) {
      if (cluster_[cpu].node == node) {
        cpus_.push_back(cpu);
        break;
      }
    }
  }
  if (cpus_.size() < machines_.size()) {
    throw InputError(where, "variables on the CPU of a machine without one",
                     "accepted: a machine whose description has a CPU");
  }
}

void Script::find_variables() {
  std::size_t first = 0;
  std::vector<std::int64_t> on_gpu(gpus_.size()), on_cpu(machines_.size());
  const auto least_loaded = [](std::vector<std::int64_t>& load, std::int64_t elements) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += elements;
    return static_cast<std::size_t>(least - load.begin());
  };
  for (std::size_t l = 0; l < out_.network.layers.size(); ++l) {
    const std::vector<ParameterId>& parameters = out_.network.layers[l].parameters;
    if (parameters.empty()) continue;
    std::vector<std::pair<ParameterId, RegionId>> contents;
    for (const ParameterId id : parameters) {
      contents.emplace_back(id, out_.intern(json::whole_parameter(out_.network[id])));
    }
    const TensorId bucket = out_.add_bucket(std::move(contents));
    Variable variable{LayerId{l}, {bucket, Role::weight, 0, {}}, {}, 0, first};
    variable.gradient = {bucket, Role::weight_gradient, 0, {}};
    variable.elements = out_.elements(variable.weight);
    first += parameters.size();
    gpu_of_.push_back(exchange_ == Exchange::gpus ? least_loaded(on_gpu, variable.elements) : 0);
    server_of_.push_back(least_loaded(on_cpu, variable.elements));
    variables_.push_back(variable);
  }
  sent_.resize(variables_.size());
  read_.assign(variables_.size(), std::vector<OpId>(cluster_.devices.size()));
  last_.assign(variables_.size(), std::vector<OpId>(cluster_.devices.size()));
  variable_of_.assign(out_.network.layers.size(), none);
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    variable_of_[variables_[v].layer.index()] = v;
  }
}

OpId Script::copy(DeviceId from, DeviceId to, const Slice& slice, bool add,
                  std::span<const OpId> after) {
  const bool up = cluster_.model(to).kind == DeviceKind::cpu;
  const bool down = cluster_.model(from).kind == DeviceKind::cpu;
  const std::size_t lane = up && down ? 0
                           : up       ? numbers_[from.index()] / 2
                           : down     ? numbers_[to.index()] / 2
                                      : numbers_[from.index()];
  return out_.add(Transfer{from, to, slice, slice, add}, copy_streams[lane % copy_streams.size()],
                  after);
}

void Script::read_variables() {
  if (exchange_ != Exchange::host && exchange_ != Exchange::gpus) return;
  std::mt19937_64 random(1);  // any order is as good as another
  std::vector<std::vector<std::size_t>> orders(gpus_.size());
  for (std::vector<std::size_t>& order : orders) {
    for (std::size_t v = 0; v < variables_.size(); ++v) order.push_back(v);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  }
  for (std::size_t k = 0; k < variables_.size(); ++k) {
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      const std::size_t v = orders[g][k];
      const DeviceId home = adder(v, gpus_);
      if (home == gpus_[g]) continue;
      read_[v][gpus_[g].index()] = copy(home, gpus_[g], variables_[v].weight, false, {});
    }
  }
}

std::vector<std::vector<std::size_t>> Script::completed_by() const {
  std::vector<std::size_t> last(variables_.size(), none);
  for (std::size_t i = 0; i < plain_.size(); ++i) {
    if (plain_.kind(OpId{i}) != OpKind::compute) continue;
    const Compute op = std::get<Compute>(plain_.op(OpId{i}));
    const std::size_t v = variable_of_[plain_.work(op.work).layer.index()];
    if (v != none && gives_gradients(op.pass)) last[v] = i;
  }
  std::vector<std::vector<std::size_t>> complete(plain_.size());
  for (std::size_t v = 0; v < last.size(); ++v) {
    if (last[v] != none) complete[last[v]].push_back(v);
  }
  return complete;
}

std::vector<OpId> Script::followed(OpId id, const std::vector<OpId>& renamed) const {
  std::vector<OpId> after;
  for (const OpId before : plain_.predecessors(id)) {
    if (renamed[before.index()].valid()) after.push_back(renamed[before.index()]);
  }
  return after;
}

OpId Script::compute(OpId id, const std::vector<OpId>& renamed) {
  Compute op = std::get<Compute>(plain_.op(id));
  Work work = plain_.work(op.work);
  work.out = out_.intern(plain_.region(work.out));
  op.work = out_.intern(work);
  std::vector<OpId> after = followed(id, renamed);
  const std::size_t v = variable_of_[work.layer.index()];
  if (v != none && op.pass == Pass::forward && read_[v][op.device.index()].valid()) {
    after.push_back(read_[v][op.device.index()]);
  }
  const OpId added = out_.add(op, after);
  if (v != none && gives_gradients(op.pass)) last_[v][op.device.index()] = added;
  return added;
}

OpId Script::local(OpId id, const std::vector<OpId>& renamed) {
  Local op = std::get<Local>(plain_.op(id));
  for (Slice* slice : {&op.from, &op.to}) {
    slice->tensor = out_.intern(plain_.tensor(slice->tensor));
    if (slice->region.valid()) slice->region = out_.intern(plain_.region(slice->region));
  }
  return out_.add(op, followed(id, renamed));
}

}  // namespace framework

ExecDag with_exchange(ExecDag plain, const Cluster& cluster, Exchange exchange,
                      const std::string& where) {
  if (exchange == Exchange::all_reduce) return plain;
  return framework::Script(plain, cluster, exchange, where).step();
}

}  // namespace parsim
