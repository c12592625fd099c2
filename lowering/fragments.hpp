// Fragments of a step: what a layer, an edge from a layer to a reader, a tensor with all its
// readers, and a bucket of gradients do under given layer plans. Each is made once, by one
// function, and remembered; the walk puts them in order. Private to lowering/.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/alike_units.hpp"
#include "core/hash.hpp"
#include "core/kernel_times.hpp"
#include "lowering/chunks.hpp"
#include "lowering/communication.hpp"
#include "lowering/estimate.hpp"
#include "lowering/gradient_flow.hpp"
#include "lowering/reshard.hpp"
#include "lowering/ring.hpp"
#include "lowering/structure.hpp"
#include "lowering/sync.hpp"

namespace parsim::lowering {

/// A layer under one layer plan. Times in seconds, by cell; empty without prices.
struct LayerFragment {
  LayerPlan plan;
  /// Number of the first fragment whose plan is the same but for sums of gradients and sharded
  /// states: what moves between layers follows from these numbers.
  std::int32_t moves = 0;
  std::vector<Cell> cells;
  std::vector<DeviceId> devices;        ///< of the cells, contiguous because walks read them most
  std::vector<std::int32_t> canonical;  ///< first cell with the same part on the same device
  std::vector<double> forward, backward, weights;  ///< backward: all of it, or the data gradient
  bool partial_sums = false;                       ///< the contraction is cut
  /// The sum of partial sums. Of a loss its devices gather the statistics of their classes instead.
  struct Sum {
    std::vector<std::int32_t> cells;  ///< of a loss those of one device next to each other
    std::vector<DeviceId> devices;    ///< one: it only copies
    Region region;
    std::vector<Region> statistics;  ///< of a loss, by device: what it gives
  };
  std::vector<Sum> sums;
  std::vector<Ring> rings;  ///< of ring attention
  /// With rings: seconds by cell and block. `forward` and `backward` are their sums.
  std::vector<std::vector<double>> block_forward, block_backward;
  std::vector<Chunks> chunks;  ///< by cell, of a product that overlaps with communication
  /// With chunks: seconds by cell and chunk, as above; backward of partial sums alone.
  std::vector<std::vector<double>> chunk_forward, chunk_backward;
};

/// A tensor and its readers, under the layer plans of all of them. A movement's price is that of
/// the movement itself; of a scatter_gather that of the gathering, if there is one.
struct FanOut {
  struct Arrival {
    Movement movement;
    PricedCommunication price;
    std::vector<PricedCommunication> legs;
    std::size_t first_leg = 0;  ///< among those of all arrivals
    std::int32_t edge = 0;      ///< of the first reader that needs it
    bool again = false;         ///< dropped after forward, moved again in backward
    GatherRing ring;            ///< for products in chunks; its dates follow the legs'
  };
  /// How the producer's partial sums are summed: by an all-reduce, or, where each device needs a
  /// share of its own, by a reduce-scatter.
  struct PartsSum {
    std::vector<Region> shares;  ///< by device of the sum; empty: an all-reduce
    PricedCommunication price;
    ScatteredChunks chunks;  ///< or chunk by chunk
  };
  std::vector<PartsSum> sums;  ///< as in LayerFragment::sums
  std::vector<Arrival> arrivals;
  std::size_t legs = 0;  ///< of all arrivals
  /// Contributions of one kind to one cell that wait in a receive buffer until its device adds
  /// them: the hull of their regions.
  struct Store {
    std::int32_t cell = 0;  ///< of the producer, canonical
    bool partial_sum = false;
    Region region;
    double seconds = 0;  ///< of the addition
  };
  /// A movement of contributions to the producer.
  struct Return {
    Movement movement;
    bool alone = false;  ///< it completes the gradient itself
    PricedCommunication price;
    PricedCommunication sum;                ///< of a scatter_gather: the reduce-scatter before it
    std::vector<PricedCommunication> legs;  ///< of a scatter_gather
    std::vector<std::vector<std::int32_t>> leg_after;  ///< without a sum: its own sender's cells
    GatherRing ring;                   ///< for products in chunks; then leg_after is by member
    std::vector<std::int32_t> after;   ///< cells of the reader
    std::vector<std::int32_t> feeds;   ///< canonical cells whose gradient it completes
    std::vector<std::int32_t> stores;  ///< or the stores that it fills
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
      Region region;
      double seconds = 0;
      std::vector<std::int32_t> after;  ///< cells of the reader
    };
    std::vector<Addition> additions;
    std::vector<Store> stores;
    std::vector<Return> returns;  ///< `after` are devices
  } joint;
};

/// A tensor and one of its readers, under the layer plans of both: what does not depend on other
/// readers.
struct EdgeFragment {
  const LayerFragment* home = nullptr;  ///< of the producer
  const LayerFragment* reader = nullptr;
  Consumer consumer;     ///< the first one of those that are alike
  bool aligned = false;  ///< each cell of the reader finds its need in the cell of the same index
  bool gradient = false;
  GradientReturn back;  ///< by itself
  // Made when first asked for.
  std::vector<FanOut::Return> returns;  ///< of `back`, as if they alone completed the gradients
  /// Where its needs come from if they are not aligned and no reader before has brought anything.
  struct Alone {
    Sources sources;
    std::vector<FanOut::Arrival> arrivals;
  };
  std::optional<Alone> alone;
};

[[nodiscard]] inline CollectiveKind kind_of(const LayerFragment::Sum& sum,
                                            const FanOut::PartsSum& how) {
  if (!sum.statistics.empty()) return CollectiveKind::all_gather;
  return how.shares.empty() ? CollectiveKind::all_reduce : CollectiveKind::reduce_scatter;
}

/// Gradients that are summed together. Holders are the group's devices, then its mirrors.
struct SumFragment {
  SyncGroup group;
  /// If `group` is a part of it, of one unit; without contents and layers, which are the same.
  std::shared_ptr<const SyncGroup> of_all_units;
  std::vector<DeviceId> holders;
  /// The kernels that a holder waits for.
  struct AwaitedKernel {
    LayerId layer;
    std::int32_t cell = 0;
  };
  std::vector<std::vector<AwaitedKernel>> kernels;
  std::vector<std::size_t> mirror_source;  ///< by mirror: the device that sends it the sum
  struct Prices {
    /// An all-reduce, or by ZeRO group the reduce-scatter of sharded states.
    std::vector<PricedCommunication> sums;
    std::vector<PricedCommunication> replica_sums;   ///< by rank: of a share over several groups
    std::vector<PricedCommunication> gathers;        ///< of sharded weights, by ZeRO group
    std::vector<PricedCommunication> to_mirror;      ///< by mirror
    std::vector<PricedCommunication> pushes, pulls;  ///< with a server: by device; by holder
    std::vector<double> updates;                     ///< by holder, or of the server alone
    std::vector<double> copies;                      ///< by device: of its share of the sum
  };
  /// Of all sums of as many elements over the same devices: those of like layers, say.
  std::shared_ptr<const Prices> prices;

  [[nodiscard]] const SyncGroup& whole() const { return of_all_units ? *of_all_units : group; }
  /// The devices of a ZeRO group: within one unit, or of all of them.
  [[nodiscard]] const std::vector<DeviceId>& zero_group(std::size_t number) const {
    if (group.sums_apart()) return whole().apart[number];
    return (group.summed_twice && group.apart.empty() ? group : whole()).zero_groups[number];
  }
  /// Those of the kept unit's devices that hold a share, by ZeRO group.
  [[nodiscard]] std::vector<DeviceId> holders_of(std::size_t rank) const {
    if (group.apart.empty()) return group.holders_of(rank);
    std::vector<DeviceId> all = whole().holders_of(rank);
    std::erase_if(all, [&](DeviceId device) { return group.find(device) == group.devices.size(); });
    return all;
  }
};

/// What fragments are priced by.
struct Pricer {
  explicit Pricer(const StepInput& step)
      : input(step),
        weights(input.network, input.precision),
        kernels(input.network, input.cost, input.precision, input.reduce_precision),
        communications(input.cluster, input.cost) {}
  StepInput input;
  Fp8Weights weights;
  KernelTimes kernels;
  PriceCache::Counts counts;
  CommunicationPricer communications;
};

/// All fragments of one size of micro-batch, under one framework.
class Fragments {
 public:
  /// pricer    null: fragments have no prices
  /// returns   false: how gradients return is left out
  Fragments(const Network& network, const Cluster& cluster, const Structure& structure,
            std::int64_t samples, Framework framework, Pricer* pricer, bool returns);

  /// Number of the layer's fragment for a plan, among those of all layers like it.
  std::int32_t layer(LayerId id, const LayerPlan& plan);
  [[nodiscard]] const LayerFragment& layer(LayerId id, std::int32_t number) const {
    return layers_[structure_.like[id.index()].index()][static_cast<std::size_t>(number)];
  }
  /// `numbers` by layer, as above. References stay valid.
  const FanOut& fan_out(LayerId producer, const std::vector<std::int32_t>& numbers);
  /// Of all units unless `units` is null, as the first one sees them, whose layers `numbers` are.
  /// Null if the units do not sum alike.
  const std::vector<SumFragment>* sums(const std::vector<ParameterId>& bucket,
                                       const std::vector<std::int32_t>& numbers,
                                       const AlikeUnits* units);
  /// By device, numbers that differ where its shares of states do, of the sums of units since the
  /// last call that were refused for that. Empty: none.
  [[nodiscard]] std::vector<std::uint64_t> take_apart() { return std::exchange(apart_, {}); }
  /// Cells in all that is remembered: a measure of its size.
  [[nodiscard]] std::size_t cells_kept() const { return cells_kept_; }

 private:
  [[nodiscard]] std::int32_t moves(LayerId id, const std::vector<std::int32_t>& numbers) const {
    return layer(id, numbers[id.index()]).moves;
  }
  void count_made() const {
    if (pricer_ != nullptr) ++pricer_->counts.made;
  }
  using Key = std::vector<std::int32_t>;
  using SumKey = std::vector<std::int64_t>;
  struct Hash {
    // Not noexcept: tables keep its result.
    std::size_t operator()(const Key& key) const { return hash_of(key); }
  };
  [[nodiscard]] LayerFragment make_layer(LayerId id, const LayerPlan& plan);
  /// What the devices of the last of its sums gather.
  void give_statistics(LayerId loss, LayerFragment& fragment) const;
  void price(LayerFragment& fragment, LayerId id);
  void price_rings(LayerFragment& fragment, LayerId id, bool back);
  void price_chunks(LayerFragment& fragment, LayerId id);
  /// Empty unless it is an all-gather of one box from each.
  [[nodiscard]] GatherRing gather_ring(const Movement& movement, const std::vector<Cell>& cells);
  void scatter_chunks(const LayerFragment& home, const LayerFragment::Sum& sum,
                      FanOut::PartsSum& how) const;
  /// Number of an edge's fragment, among those of all layers like the producer.
  std::int32_t edge(LayerId producer, const Consumer& reader,
                    const std::vector<std::int32_t>& numbers);
  [[nodiscard]] EdgeFragment make_edge(LayerId producer, const Consumer& reader,
                                       const std::vector<std::int32_t>& numbers);
  const EdgeFragment::Alone& alone(EdgeFragment& edge);
  const std::vector<FanOut::Return>& returns(EdgeFragment& edge);
  [[nodiscard]] FanOut::Arrival priced_arrival(const Movement& movement, const EdgeFragment& edge);
  [[nodiscard]] FanOut make_fan_out(const LayerFragment& home,
                                    const std::vector<EdgeFragment*>& edges);
  /// How the partial sums of a layer are summed, and what its cells hold of the output afterwards.
  [[nodiscard]] std::vector<FanOut::PartsSum> make_parts_sums(const LayerFragment& home,
                                                              std::span<const Need> needs,
                                                              std::vector<Cell>& cells) const;
  void make_joint(FanOut::Joint& joint, const std::vector<const LayerFragment*>& readers,
                  const JointReturn& joint_return, const LayerFragment& home,
                  const std::vector<std::int32_t>& additions);
  /// `senders`: by device, what its contributions wait for.
  [[nodiscard]] std::vector<FanOut::Return> priced_returns(
      const GradientReturn& back, const LayerFragment& home,
      const std::map<DeviceId, std::vector<std::int32_t>>& senders);
  /// What the returns complete, or which stores they fill where more is added, by cell `additions`.
  void settle(std::vector<FanOut::Return>& returns, std::vector<FanOut::Store>& stores,
              const LayerFragment& home, const std::vector<std::int32_t>& additions) const;
  [[nodiscard]] std::optional<std::vector<SumFragment>> make_sums(
      const std::vector<ParameterId>& bucket, const std::vector<std::int32_t>& numbers,
      const AlikeUnits* units);
  /// Splits the states of a group of kept units' devices, which becomes a part of that of all
  /// units. False if others have other shares.
  ///
  /// key   of the group, see sum_key
  [[nodiscard]] bool split_over_units(const AlikeUnits& units, const ZeroGroup& how,
                                      const SumKey& key, SumFragment& sum, SyncGroup& group);
  void tell_apart(const SyncGroup& whole);
  /// Null if units would not communicate alike.
  [[nodiscard]] std::shared_ptr<const SumFragment::Prices> price(const SumFragment& sum,
                                                                 const AlikeUnits* units) const;
  [[nodiscard]] PricedCommunication priced(const Movement& movement);
  [[nodiscard]] std::vector<PricedCommunication> priced(const std::vector<Leg>& legs);
  /// Seconds of work on a device that touches `factor` times the elements of a region.
  [[nodiscard]] double local(DeviceId device, const Region& region, std::int64_t factor) const;
  /// By the reader's cells.
  [[nodiscard]] std::vector<Need> needs(const EdgeFragment& edge) const;

  const Network& network_;
  const Cluster& cluster_;
  const Structure& structure_;
  std::int64_t samples_;
  bool whole_sends_;  ///< see TensorLayout
  Pricer* pricer_;
  bool returns_;
  std::int64_t element_ = 0;
  std::size_t cells_kept_ = 0;
  std::vector<std::uint64_t> apart_;
  // By layer, for the first of those that are alike.
  std::vector<std::deque<LayerFragment>> layers_;
  std::vector<std::unordered_map<Key, std::int32_t, Hash>> numbers_;  ///< looked up only
  std::vector<std::unordered_map<Key, std::int32_t, Hash>> moves_;    ///< likewise
  // By producer, for the first of those that are alike; by what it moves, and its edges' numbers.
  std::vector<std::deque<EdgeFragment>> edges_;
  std::vector<std::unordered_map<Key, std::int32_t, Hash>> edge_numbers_;  ///< looked up only
  std::vector<std::unordered_map<Key, FanOut, Hash>> fan_outs_;            ///< looked up only
  /// Looked up only; nothing where units do not sum alike.
  std::unordered_map<Key, std::optional<std::vector<SumFragment>>, Hash> sums_;
  /// What groups of as many elements have in common: those of all units, and their part of the kept
  /// ones.
  struct Split {
    std::shared_ptr<const SyncGroup> whole;  ///< null: others have other shares
    SyncGroup kept;
  };
  std::map<SumKey, Split> splits_;
  std::map<SumKey, std::shared_ptr<const SumFragment::Prices>> sum_prices_;
};

}  // namespace parsim::lowering
