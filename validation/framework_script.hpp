// The step of a training script, built from a lowered data-parallel plan:
// validation/framework_step.cpp keeps the kernels, validation/framework_gradients.cpp exchanges
// gradients.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "validation/framework_step.hpp"

namespace parsim::framework {

/// The parameters of a layer: what moves as one.
struct Variable {
  LayerId layer;
  Slice weight, gradient;
  std::int64_t elements = 0;
  std::size_t first = 0;  ///< number of its first parameter, in the order of layers
};

/// See with_exchange.
class Script {
 public:
  Script(const ExecDag& plain, const Cluster& cluster, Exchange exchange, const std::string& where);

  ExecDag step() &&;

 private:
  void find_cpus(const std::string& where);
  void find_variables();
  void read_variables();
  /// The variables whose gradients are complete once an operation of `plain_` has been issued.
  [[nodiscard]] std::vector<std::vector<std::size_t>> completed_by() const;
  [[nodiscard]] std::vector<OpId> followed(OpId id, const std::vector<OpId>& renamed) const;
  OpId compute(OpId id, const std::vector<OpId>& renamed);
  OpId local(OpId id, const std::vector<OpId>& renamed);
  /// A GPU has one stream per direction; towards a CPU, pairs of GPUs share one.
  OpId copy(DeviceId from, DeviceId to, const Slice& slice, bool add, std::span<const OpId> after);
  OpId update(DeviceId device, std::size_t v, const std::vector<OpId>& after);

  /// By whom the gradients of a variable are added up within a machine.
  [[nodiscard]] DeviceId adder(std::size_t v, const std::vector<DeviceId>& machine) const;
  void send_gradients(std::size_t v);
  /// Reads all gradients, writes their sum, and scales it: n + 3 gradients' bytes.
  std::vector<OpId> add_up(std::size_t v, DeviceId device, const std::vector<OpId>& arrived);
  /// What GPUs do once they have been given all kernels.
  void finish();
  void reduce_all();
  void give_back(std::size_t v, const std::vector<OpId>& sum);
  /// Every machine's sum, with the server of the variable.
  std::vector<OpId> to_server(std::size_t v, const std::vector<std::vector<OpId>>& sums);
  /// The server applies each machine's sum; when it has applied all, every GPU reads the variable.
  void from_server(std::size_t v, const std::vector<OpId>& arrived);

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

}  // namespace parsim::framework
