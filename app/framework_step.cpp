#include "app/framework_step.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "core/errors.hpp"
#include "core/json_ops.hpp"

namespace parsim {

namespace {

/// The parameters of a layer: what moves as one.
struct Variable {
  LayerId layer;
  Slice weight, gradient;
  std::int64_t elements = 0;
  std::size_t first = 0;  ///< number of its first parameter, in the order of layers
};

constexpr std::array copy_streams{Stream::gradient, Stream::tensor, Stream::pipeline,
                                  Stream::pipeline_back};

class Script {
 public:
  Script(const ExecDag& plain, const Cluster& cluster, Exchange exchange, const std::string& where)
      : plain_(plain),
        cluster_(cluster),
        exchange_(exchange),
        out_(plain.network, plain.batch, plain.precision, plain.optimizer),
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

  ExecDag step() && {
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

 private:
  void find_cpus(const std::string& where) {
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

  void find_variables() {
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

  /// By whom the gradients of a variable are added up within a machine.
  [[nodiscard]] DeviceId adder(std::size_t v, const std::vector<DeviceId>& machine) const {
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
  /// A GPU has one stream per direction; towards a CPU, pairs of GPUs share one.
  OpId copy(DeviceId from, DeviceId to, const Slice& slice, bool add, std::span<const OpId> after) {
    const bool up = cluster_.model(to).kind == DeviceKind::cpu;
    const bool down = cluster_.model(from).kind == DeviceKind::cpu;
    const std::size_t lane = up && down ? 0
                             : up       ? numbers_[from.index()] / 2
                             : down     ? numbers_[to.index()] / 2
                                        : numbers_[from.index()];
    return out_.add(Transfer{from, to, slice, slice, add}, copy_streams[lane % copy_streams.size()],
                    after);
  }

  void read_variables() {
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

  /// The variables whose gradients are complete once an operation of `plain_` has been issued.
  [[nodiscard]] std::vector<std::vector<std::size_t>> completed_by() const {
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
  static bool gives_gradients(Pass pass) {
    return pass == Pass::backward || pass == Pass::backward_weights;
  }

  [[nodiscard]] std::vector<OpId> followed(OpId id, const std::vector<OpId>& renamed) const {
    std::vector<OpId> after;
    for (const OpId before : plain_.predecessors(id)) {
      if (renamed[before.index()].valid()) after.push_back(renamed[before.index()]);
    }
    return after;
  }

  OpId compute(OpId id, const std::vector<OpId>& renamed) {
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

  OpId local(OpId id, const std::vector<OpId>& renamed) {
    Local op = std::get<Local>(plain_.op(id));
    for (Slice* slice : {&op.from, &op.to}) {
      slice->tensor = out_.intern(plain_.tensor(slice->tensor));
      if (slice->region.valid()) slice->region = out_.intern(plain_.region(slice->region));
    }
    return out_.add(op, followed(id, renamed));
  }

  void send_gradients(std::size_t v) {
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

  /// Reads all gradients, writes their sum, and scales it: n + 3 gradients' bytes.
  std::vector<OpId> add_up(std::size_t v, DeviceId device, const std::vector<OpId>& arrived) {
    if (arrived.size() < 2) return arrived;
    const Slice& gradient = variables_[v].gradient;
    std::vector<OpId> after = arrived;
    for (std::size_t left = arrived.size() + 3; left > 0; left -= std::min<std::size_t>(left, 2)) {
      const LocalKind kind = left > 1 ? LocalKind::copy : LocalKind::zero;  // two touches, or one
      after = {out_.add(Local{kind, device, gradient, gradient}, after)};
    }
    return after;
  }
  OpId update(DeviceId device, std::size_t v, const std::vector<OpId>& after) {
    return out_.add(Update{device, variables_[v].weight}, after);
  }

  /// What GPUs do once they have been given all kernels.
  void finish() {
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
    std::vector<std::vector<OpId>> arrived(variables_.size());
    for (std::size_t i = 0; i < order_.size() + behind; ++i) {
      if (i < order_.size()) arrived[order_[i]] = to_server(order_[i], sums[order_[i]]);
      if (i >= behind) from_server(order_[i - behind], arrived[order_[i - behind]]);
    }
  }

  void reduce_all() {
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

  void give_back(std::size_t v, const std::vector<OpId>& sum) {
    const DeviceId from = adder(v, gpus_);
    for (const DeviceId gpu : gpus_) {
      const bool own = gpu == from;
      update(gpu, v, own ? sum : std::vector{copy(from, gpu, variables_[v].gradient, false, sum)});
    }
  }

  /// Every machine's sum, with the server of the variable.
  std::vector<OpId> to_server(std::size_t v, const std::vector<std::vector<OpId>>& sums) {
    const DeviceId server = cpus_[server_of_[v]];
    std::vector<OpId> arrived;
    for (std::size_t m = 0; m < machines_.size(); ++m) {
      const DeviceId from = adder(v, machines_[m]);
      OpId last = copy(from, cpus_[m], variables_[v].gradient, true, sums[m]);
      if (cpus_[m] != server) {
        last = out_.add(
            Transfer{cpus_[m], server, variables_[v].gradient, variables_[v].gradient, true},
            Stream::gradient, std::vector{last});
      }
      arrived.push_back(last);
    }
    return arrived;
  }

  /// The server applies each machine's sum; when it has applied all, every GPU reads the variable.
  void from_server(std::size_t v, const std::vector<OpId>& arrived) {
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

  static constexpr std::size_t behind = 16;
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  const ExecDag& plain_;
  const Cluster& cluster_;
  Exchange exchange_;
  ExecDag out_;
  std::vector<DeviceId> gpus_;
  std::vector<std::size_t> numbers_;             ///< by device: which GPU of its machine
  std::vector<std::vector<DeviceId>> machines_;  ///< GPUs of each; one of all but for `instances`
  std::vector<DeviceId> cpus_;                   ///< by machine
  std::vector<Variable> variables_;
  std::vector<std::size_t> variable_of_;         ///< by layer
  std::vector<std::size_t> gpu_of_, server_of_;  ///< by variable
  std::vector<std::vector<OpId>> read_, last_;   ///< by variable and device
  std::vector<std::vector<OpId>> sent_;          ///< by variable: by machine and GPU
  std::vector<std::size_t> order_;               ///< of complete gradients
};

}  // namespace

ExecDag with_exchange(ExecDag plain, const Cluster& cluster, Exchange exchange,
                      const std::string& where) {
  if (exchange == Exchange::all_reduce) return plain;
  return Script(plain, cluster, exchange, where).step();
}

}  // namespace parsim
