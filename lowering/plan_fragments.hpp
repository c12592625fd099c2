// The fragments of a whole plan. Private to lowering/.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lowering/fragments.hpp"
#include "lowering/recompute.hpp"

namespace parsim::lowering {

/// The fragments of a plan, found again where the plan before had others.
struct PlanFragments {
  /// pricer    null: fragments have no prices
  /// returns   false: how gradients return is left out
  PlanFragments(const Network& network_, const Cluster& cluster_, Pricer* pricer,
                bool returns = true)
      : network(network_),
        cluster(cluster_),
        structure(network_),
        pricer_(pricer),
        returns_(returns) {}
  /// The plan must outlive what is done with the fragments.
  void find(const Plan& wanted) {
    find_layers(wanted);
    find_rest();
  }
  /// `layers` alone, for a plan that may not be worth the rest.
  void find_layers(const Plan& wanted);
  /// Everything else of the plan whose layers were found last.
  void find_rest();

  const Network& network;
  const Cluster& cluster;
  Structure structure;
  const Plan* plan = nullptr;
  std::vector<Slot> order;
  std::vector<std::vector<LayerId>> members;  ///< of a stage
  std::vector<bool> dropped;
  std::vector<std::vector<LayerVisit>> forward_visits, backward_visits;  ///< of a stage
  std::vector<const LayerFragment*> layers;
  std::vector<const FanOut*> fans;
  std::vector<const SumFragment*> sums;

  [[nodiscard]] const FanOut::Edge& edge(LayerId reader, std::size_t input) const {
    const LayerId producer = network[reader].inputs[input];
    return fans[producer.index()]
        ->edges[static_cast<std::size_t>(structure.reader_index[reader.index()][input])];
  }

 private:
  void find_order();

  Pricer* pricer_;
  bool returns_;
  std::map<std::int64_t, Fragments> by_samples_;
  Fragments* fragments_ = nullptr;      ///< of this size of micro-batch
  Plan previous_;                       ///< what the tables above belong to
  std::int64_t previous_samples_ = -1;  ///< of its micro-batches
  std::vector<std::int32_t> numbers_;
  std::vector<bool> changed_, stale_;  ///< layers whose sums, whose readers are to be found again
  std::vector<std::vector<ParameterId>> buckets_;
  std::vector<const std::vector<SumFragment>*> sums_of_bucket_;
};

}  // namespace parsim::lowering
