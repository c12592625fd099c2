// The fragments of a whole plan. Private to lowering/.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "lowering/fragments.hpp"
#include "lowering/recompute.hpp"
#include "lowering/unit_finder.hpp"

namespace parsim::lowering {

/// The fragments of all plans of a network, by size of micro-batch and framework.
class FragmentStore {
 public:
  /// pricer    null: fragments have no prices
  /// returns   false: how gradients return is left out
  FragmentStore(const Network& network, const Cluster& cluster, Pricer* pricer, bool returns = true)
      : network_(network),
        cluster_(cluster),
        structure_(network),
        pricer_(pricer),
        returns_(returns) {}
  FragmentStore(const FragmentStore&) = delete;
  FragmentStore& operator=(const FragmentStore&) = delete;

  [[nodiscard]] const Network& network() const { return network_; }
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  [[nodiscard]] const Structure& structure() const { return structure_; }
  /// Forgets all fragments first if they are too many.
  [[nodiscard]] Fragments& of(std::int64_t samples, Framework framework);
  /// How often fragments were forgotten.
  [[nodiscard]] std::int64_t forgotten() const { return forgotten_; }

 private:
  const Network& network_;
  const Cluster& cluster_;
  Structure structure_;
  Pricer* pricer_;
  bool returns_;
  std::map<std::pair<std::int64_t, Framework>, Fragments> kept_;
  std::int64_t forgotten_ = 0;
};

/// The fragments of a plan, found again where the plan before had others.
struct PlanFragments {
  /// finder   null: of all devices. Else of one unit, where a plan has several that are alike; its
  ///          sums of gradients are those of all units.
  explicit PlanFragments(FragmentStore& store, UnitFinder* finder = nullptr)
      : network(store.network()),
        cluster(store.cluster()),
        structure(store.structure()),
        store_(store),
        finder_(finder) {}
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
  const Structure& structure;
  const Plan* plan = nullptr;  ///< whose fragments these are: of a unit, if there are several
  const AlikeUnits* units = nullptr;             ///< null: the plan is the wanted one
  std::vector<std::vector<Slot>> rounds;         ///< see issue_order
  std::vector<std::vector<std::int32_t>> begun;  ///< by round, the micro-batches that begin in it
  std::vector<std::size_t> row_of;  ///< of a micro-batch; of those under way each has its own
  std::size_t rows = 0;
  std::vector<std::vector<LayerId>> members;  ///< of a stage
  std::vector<bool> dropped;
  std::vector<std::vector<LayerVisit>> forward_visits, backward_visits;  ///< of a stage
  std::vector<std::int32_t> numbers;  ///< of the layers' fragments
  std::vector<const LayerFragment*> layers;
  std::vector<const FanOut*> fans;
  std::vector<const SumFragment*> sums;

  /// By input; null for what a source produces.
  [[nodiscard]] const FanOut::Edge* const* edges_of(LayerId reader) const {
    return &edges_[structure.first_edge[reader.index()]];
  }
  [[nodiscard]] const FanOut::Edge& edge(LayerId reader, std::size_t input) const {
    return *edges_of(reader)[input];
  }

 private:
  void use(const Plan& of);
  void find_order();
  void find_rows();
  void find_fan_out(LayerId producer);
  [[nodiscard]] bool find_rest_of_plan();

  FragmentStore& store_;
  UnitFinder* finder_;
  UnitFinder::Folded folded_;
  const Plan* wanted_ = nullptr;
  std::int64_t forgotten_ = 0;              ///< by the store when the tables were filled
  Fragments* fragments_ = nullptr;          ///< of this size of micro-batch
  Plan previous_;                           ///< what the tables above belong to
  std::int64_t previous_samples_ = -1;      ///< of its micro-batches
  std::vector<const FanOut::Edge*> edges_;  ///< by input of each layer, see Structure::first_edge
  std::vector<bool> changed_, stale_;  ///< layers whose sums, whose readers are to be found again
  std::vector<std::vector<ParameterId>> buckets_;
  const AlikeUnits* previous_units_ = nullptr;
  std::vector<const std::vector<SumFragment>*> sums_of_bucket_;
};

}  // namespace parsim::lowering
