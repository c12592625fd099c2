// Which machines a budget and a power limit allow: the candidates of 'parsim buy'.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "experiment/offers.hpp"

namespace parsim::experiment {

/// Machines of a cluster that are equal but for their names, and for where their network links end.
struct MachineGroup {
  /// "8 x v100-sxm2", "8 v100-sxm2"; with " like fast0", their first, if others have the same.
  std::string text, short_text;
  std::vector<NodeId> nodes;
  std::optional<Watts> power{};         ///< of one
  std::optional<MoneyPerHour> price{};  ///< of one, as its file says
};
/// In the order of their first machines.
[[nodiscard]] std::vector<MachineGroup> machine_groups(const Cluster& cluster);

/// How many machines: of each group those that are kept, of each offer those that are bought or
/// rented.
struct Purchase {
  std::vector<std::int64_t> kept, taken;
  friend bool operator==(const Purchase&, const Purchase&) = default;
};

struct PurchaseLimits {
  Money budget{};                ///< of all purchases, or of a rent for all the years
  bool rent_by_run = false;      ///< a rent is not for all the years: the budget does not bound it
  std::optional<Watts> power{};  ///< of what is kept and bought
  double years = 4;
  bool joinable = true;              ///< bought machines can be linked to those that are kept
  std::size_t most = 500;            ///< candidates
  std::int64_t most_gpus = 250'000;  ///< of the offers, in all candidates that are not thinned
};

struct Purchases {
  std::vector<Purchase> all;  ///< in lexicographic order, none without a machine
  bool thinned = false;       ///< only counts that are 0, a power of two or the most possible
};

/// All purchases within the limits: any number of machines kept, with any of the offers that are
/// bought, or machines of one offer that is rented, alone, since they stand elsewhere. Throws
/// InputError for a limit of power where a power is not known, and for more candidates than
/// `limits.most` even where they are thinned.
[[nodiscard]] Purchases purchases(std::span<const MachineGroup> own, std::span<const Offer> offers,
                                  const PurchaseLimits& limits);

/// The most that one machine of the offer draws; nothing where it is not known.
[[nodiscard]] std::optional<Watts> power_of(const Offer& offer);

/// The cluster of a purchase: the kept machines of `own`, the first of each group, and what is
/// taken, on own's first switch between machines, or else on a new one.
[[nodiscard]] Cluster cluster_of(const Purchase& purchase, const Cluster* own,
                                 std::span<const MachineGroup> groups,
                                 std::span<const Offer> offers);
/// Whether `own` has a switch between machines, or no machine.
[[nodiscard]] bool is_joinable(const Cluster* own);

/// "keep 1/2 (8 v100-sxm2), buy 1 dgx-a100", "rent 2 p4d".
[[nodiscard]] std::string text_of(const Purchase& purchase, std::span<const MachineGroup> groups,
                                  std::span<const Offer> offers);

}  // namespace parsim::experiment
