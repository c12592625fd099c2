// The layer-wise search's model of the cluster: an order of the devices, their speeds, and the
// rates between them.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/routes.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies::layer_wise {

/// How tensors are resharded between producers and readers.
///
///     pairs         a device that lacks bytes gets them from those that have them
///     collectives   cuts along one dimension only: their exchanges are whole collectives, which
///                   find better ways than pairs do; the rate is that of an all-gather
enum class Exchanges : std::uint8_t { pairs, collectives };

/// Whose numbers: of the paper's equations, or this project's.
///
///     paper   devices in id order, node by node; links fully used, no latency, a card alone
///     own     fast nodes and devices first; a card that several devices share gives each its part
class ClusterModel {
 public:
  ClusterModel(const StrategyInput& input, SearchCosts costs,
               Exchanges exchanges = Exchanges::pairs);
  ClusterModel(const ClusterModel&) = delete;
  ClusterModel& operator=(const ClusterModel&) = delete;

  /// Where part k goes: a node's devices stand together, so that few parts stay in one node. That
  /// part k is on device k, row-major, is a RECONSTRUCTION: the paper does not say.
  [[nodiscard]] const std::vector<DeviceId>& devices() const { return devices_; }
  /// By position: samples per second of the whole network, relative; all 1 in the paper's costs.
  [[nodiscard]] const std::vector<double>& speeds() const { return speeds_; }
  /// By position: number of the node, ascending.
  [[nodiscard]] const std::vector<std::size_t>& nodes() const { return nodes_; }
  [[nodiscard]] std::size_t node_count() const { return nodes_.empty() ? 0 : nodes_.back() + 1; }
  /// By position: seconds per byte that arrives from a device of its node, or of another.
  [[nodiscard]] const std::vector<double>& inside() const { return inside_; }
  [[nodiscard]] const std::vector<double>& outside() const { return outside_; }
  /// Whether these rates are those of all devices.
  [[nodiscard]] bool even() const { return even_; }
  [[nodiscard]] Exchanges exchanges() const { return exchanges_; }
  /// Of one exchange of tensors; zero in the paper's costs.
  [[nodiscard]] Seconds latency() const { return latency_; }
  /// Position of a device; it must be a worker.
  [[nodiscard]] std::size_t position(DeviceId device) const;

  /// Time to sum `payload` bytes that every member of `group` holds, by `input.sync`:
  ///
  ///     ring     2(n-1)/n · payload / slowest link between neighbours (paper), or
  ///              CostModel::collective (own)
  ///     server   Σ over members of 2 · payload / b(member, server): every copy is sent and
  ///              returned, one after another (Jia et al. 2018, section 5.1, with figure 3: exactly
  ///              proportional to the copies)
  ///
  /// One member: nothing.
  [[nodiscard]] Seconds sum_time(std::span<const DeviceId> group, Bytes payload);

 private:
  void order_devices();
  void measure_speeds();
  void measure_rates();
  void measure_collectives();
  [[nodiscard]] double seconds_per_byte(std::size_t from, std::size_t to);

  const StrategyInput& input_;
  SearchCosts costs_;
  Exchanges exchanges_;
  Routes routes_;
  Sync sync_;
  std::vector<DeviceId> devices_;
  std::vector<double> speeds_, inside_, outside_;
  std::vector<std::size_t> nodes_;
  std::vector<std::size_t> position_;  ///< by device id
  bool even_ = false;
  Seconds latency_{};
  std::map<std::pair<std::vector<DeviceId>, std::int64_t>, Seconds> sums_;  ///< by sum_time's input
};

/// Time of forward and backward of one part of a layer, as lowering makes kernels of it.
/// data   the gradient of some operand is wanted
[[nodiscard]] Seconds part_time(const StrategyInput& input, LayerId layer, const Region& part,
                                DeviceId device, bool data);

/// By layer: whether it leads back to a parameter, so that its gradient is wanted.
[[nodiscard]] std::vector<bool> wanted_gradients(const Network& network);
/// Whether the gradient of some operand of the layer is wanted.
[[nodiscard]] bool wants_data(const Network& network, LayerId layer,
                              const std::vector<bool>& wanted);

}  // namespace parsim::strategies::layer_wise
