// Equal replicas of a plan: searches price one of each class. Private to lowering/.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/alike_units.hpp"
#include "core/cost_model.hpp"
#include "core/plan.hpp"
#include "core/routes.hpp"
#include "lowering/communication.hpp"

namespace parsim::lowering {

/// What a communication among devices of all units occupies, as kept units see it: their devices'
/// queues, and the hops that are their own or no unit's. False if hops of one class of units are
/// loaded differently.
[[nodiscard]] bool reduce(const AlikeUnits& units, PricedCommunication& communication);

/// Finds the units of plans for one cluster and cost model, which must outlive it.
class UnitFinder {
 public:
  /// cost        null: devices of one model are alike, and links do not matter: for memory alone
  /// most_units  fewer units than were found before, which turned out to differ: then each unit
  ///             must also reach its next one over as good links as any other
  UnitFinder(const Cluster& cluster, const CostModel* cost,
             std::size_t most_units = std::numeric_limits<std::size_t>::max());
  /// A plan's kept units as a plan for their samples, and all units.
  struct Folded {
    Plan plan;
    const AlikeUnits* units = nullptr;
  };
  /// As many units as possible; false if none are alike. `folded` keeps its memory.
  [[nodiscard]] bool fold(const Plan& plan, Folded& folded);
  /// The units of the plan that was folded last do not sum alike. Folded again, it has others, or
  /// none.
  ///
  /// apart   by device: a number; units with others have other shares of its states. Empty: they
  ///         differ otherwise
  void refuse(const Plan& plan, std::vector<std::uint64_t> apart);

 private:
  /// A cut by sample with its devices.
  struct List {
    Cut cut;
    SharedList<DeviceId> devices;
  };
  /// Which parts of each list the kept units have.
  struct Recipe {
    const AlikeUnits* units = nullptr;  ///< null: none
    std::vector<std::vector<std::size_t>> kept;
    std::shared_ptr<Recipe> if_sharded;  ///< of plans that shard states; null: this one
    std::vector<std::uint64_t> apart;    ///< by device, see tell_apart; empty: all alike
  };
  using Key = std::vector<std::int64_t>;

  [[nodiscard]] bool find_lists(const Plan& plan);
  [[nodiscard]] Recipe recipe_of(const Plan& plan, std::vector<std::uint64_t> apart);
  /// ends   of the units, in samples
  [[nodiscard]] std::optional<Recipe> in_units(const std::vector<std::int64_t>& ends,
                                               const Plan& plan,
                                               const std::vector<std::uint64_t>& apart);
  /// alike   by unit: a number that those have in common whose parts and devices are alike
  [[nodiscard]] const AlikeUnits* units_of(std::vector<std::vector<DeviceId>> devices,
                                           const std::vector<std::size_t>& alike);
  [[nodiscard]] std::optional<std::vector<std::size_t>> by_ways(
      const std::vector<std::vector<DeviceId>>& devices, const std::vector<std::size_t>& alike);
  [[nodiscard]] bool find_hops(AlikeUnits& units);
  [[nodiscard]] bool nexts_alike(const AlikeUnits& units);

  const Cluster& cluster_;
  const CostModel* cost_;
  std::size_t most_units_;
  Routes routes_;
  std::vector<List> lists_;           ///< of the last plan
  std::vector<std::size_t> list_of_;  ///< by layer
  std::map<Key, Recipe> recipes_;
  Recipe* last_ = nullptr;
  bool last_shards_ = false;
  /// By devices of each unit and which are alike; null: none.
  std::map<std::pair<std::vector<std::vector<DeviceId>>, std::vector<std::size_t>>,
           std::unique_ptr<AlikeUnits>>
      known_;
};

}  // namespace parsim::lowering
