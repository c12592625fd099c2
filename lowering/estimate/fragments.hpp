// The parts of an estimate that are remembered: what a layer, a tensor with its readers, and a
// bucket of gradients cost under given layer plans. Private to the estimator.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "lowering/estimate.hpp"
#include "lowering/estimate/communication.hpp"
#include "lowering/gradient_flow.hpp"
#include "lowering/reshard.hpp"
#include "lowering/sync.hpp"

namespace parsim::lowering {

/// A layer under one layer plan. Times in seconds, by cell.
struct LayerFragment {
  LayerPlan plan;
  std::vector<Cell> cells;
  std::vector<DeviceId> devices;        ///< of the cells, contiguous because walks read them most
  std::vector<std::int32_t> canonical;  ///< first cell with the same part on the same device
  std::vector<double> forward, backward, weights;  ///< backward: all of it, or the data gradient
  /// The sum of partial sums.
  struct Sum {
    std::vector<std::int32_t> cells;
    PricedCommunication communication;
  };
  std::vector<Sum> sums;
};

/// A tensor and its readers, under the layer plans of all of them.
struct FanOut {
  /// One transfer of a scatter_gather.
  struct Leg {
    PricedCommunication communication;
    std::vector<std::int32_t> after;  ///< as those of its arrival or return
  };
  struct Arrival {
    PricedCommunication communication;    ///< of a scatter_gather: the gathering
    std::vector<std::int32_t> producers;  ///< cells that must be ready
    std::vector<Leg> legs;
    std::size_t first_leg = 0;  ///< among those of all arrivals
  };
  std::vector<Arrival> arrivals;
  std::size_t legs = 0;  ///< of all arrivals
  /// Contributions that wait on a device until they are added.
  struct Store {
    std::int32_t cell = 0;  ///< of the producer, canonical
    double seconds = 0;     ///< of the addition
  };
  /// A movement of contributions to the producer.
  struct Return {
    PricedCommunication communication;  ///< of a scatter_gather: the gathering, if there is one
    PricedCommunication sum;            ///< of a scatter_gather: the reduce-scatter before its legs
    std::vector<Leg> legs;              ///< without a sum each waits for its own sender's cells
    std::vector<std::int32_t> after;    ///< cells of the reader
    std::vector<std::int32_t> feeds;    ///< canonical cells whose gradient it completes
    std::vector<std::int32_t> stores;   ///< or the stores that it fills
  };
  struct Edge {
    Sources sources;
    bool gradient = false, direct = true;
    std::vector<std::pair<std::int32_t, std::int32_t>> feeds;  ///< reader's cell, canonical cell
    std::vector<Store> stores;
    std::vector<Return> returns;
  };
  std::vector<Edge> edges;  ///< in the order of consumers()
  /// Edges whose contributions return together once all are there, see joint_return.
  struct Joint {
    std::vector<std::int32_t> edges;  ///< positions; empty: no joint return
    std::int32_t devices = 0;         ///< that contribute; numbered from 0 here
    /// Kernels of the first edge's reader: cell and device.
    std::vector<std::pair<std::int32_t, std::int32_t>> kernels;
    /// Adds the contributions of another edge's reader to the buffer of the first one.
    struct Addition {
      std::int32_t edge = 0, device = 0;  ///< index in `edges`, number of the device here
      DeviceId where;
      double seconds = 0;
      std::vector<std::int32_t> after;  ///< cells of the reader
    };
    std::vector<Addition> additions;
    std::vector<Store> stores;
    std::vector<Return> returns;  ///< `after` are devices
  } joint;
};

/// Gradients that are summed together.
struct SumFragment {
  SyncGroup group;
  /// The kernels that a device (of the group's, then of its mirrors) waits for.
  struct AwaitedKernel {
    LayerId layer;
    std::int32_t cell = 0;
  };
  std::vector<std::vector<AwaitedKernel>> kernels;
  PricedCommunication all_reduce;
  std::vector<PricedCommunication> pushes, pulls;  ///< by device; pulls: mirrors behind the devices
  std::vector<double> updates;                     ///< by device, or of the server alone
};

/// Facts about the network alone.
struct Structure {
  explicit Structure(const Network& network);
  GradientFlow flow;
  std::vector<std::vector<Consumer>> readers;           ///< by layer
  std::vector<std::vector<std::int32_t>> reader_index;  ///< [layer][input]: position in readers
  std::vector<std::vector<LayerId>> users;              ///< by parameter
};

/// All fragments of one size of micro-batch.
class Fragments {
 public:
  Fragments(const StepInput& input, const Structure& structure, CommunicationPricer& communications,
            std::int64_t samples);

  /// Number of the layer's fragment for a plan.
  std::int32_t layer(LayerId id, const LayerPlan& plan);
  [[nodiscard]] const LayerFragment& layer(LayerId id, std::int32_t number) const {
    return layers_[id.index()][static_cast<std::size_t>(number)];
  }
  /// `numbers` by layer, as above. References stay valid.
  const FanOut& fan_out(LayerId producer, const std::vector<std::int32_t>& numbers);
  const std::vector<SumFragment>& sums(const std::vector<ParameterId>& bucket,
                                       const std::vector<std::int32_t>& numbers);
  /// Cells in all that is remembered: a measure of its size.
  [[nodiscard]] std::size_t cells_kept() const { return cells_kept_; }

 private:
  using Key = std::vector<std::int32_t>;
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  [[nodiscard]] LayerFragment make_layer(LayerId id, const LayerPlan& plan);
  [[nodiscard]] FanOut make_fan_out(LayerId producer, const std::vector<std::int32_t>& numbers);
  void make_joint(FanOut::Joint& joint, const std::vector<const LayerFragment*>& readers,
                  const JointReturn& joint_return, const LayerFragment& home,
                  const std::vector<std::int32_t>& additions);
  /// `senders`: by device, what its contributions wait for.
  void make_returns(std::vector<FanOut::Store>& stores, std::vector<FanOut::Return>& returns,
                    const GradientReturn& back, const LayerFragment& home,
                    const std::map<DeviceId, std::vector<std::int32_t>>& senders,
                    const std::vector<std::int32_t>& additions);
  [[nodiscard]] std::vector<SumFragment> make_sums(const std::vector<ParameterId>& bucket,
                                                   const std::vector<std::int32_t>& numbers);
  [[nodiscard]] Bytes bytes_of(const Region& region) const;
  [[nodiscard]] std::vector<Need> needs(const Consumer& reader,
                                        const LayerFragment& fragment) const;

  const StepInput& input_;
  const Structure& structure_;
  CommunicationPricer& communications_;
  std::int64_t samples_, element_;
  std::size_t cells_kept_ = 0;
  std::vector<std::deque<LayerFragment>> layers_;
  std::vector<std::unordered_map<Key, std::int32_t, Hash>> numbers_;  ///< looked up only
  std::vector<std::unordered_map<Key, FanOut, Hash>> fan_outs_;       ///< looked up only
  std::unordered_map<Key, std::vector<SumFragment>, Hash> sums_;      ///< looked up only
};

}  // namespace parsim::lowering
