// What to buy, rent or retire for a job: candidates of experiment/purchases.hpp with their steps.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiment/purchases.hpp"
#include "experiment/run.hpp"

namespace parsim::experiment {

struct BuyRequest {
  Job job;
  std::vector<Offer> offers;
  std::optional<Cluster> own;
  PurchaseLimits limits;
  bool quiet = false;
  std::function<void()> poll{};
};

/// A purchase and one training run on it. Machines work all hours of their years: a run costs its
/// hours' share of what is bought, its hours of rent and of what the own cluster's file says, and
/// its electricity, but that of what is rented. With Job::runs it costs that part of what is
/// bought, and a rent is paid while runs go on.
struct BuyRow {
  Purchase purchase;
  std::string text;
  std::size_t gpus = 0;
  Money price{};                 ///< of what is bought
  Money fixed{};                 ///< part of the price that a run costs however long it takes
  MoneyPerHour per_hour{};       ///< of everything else, without electricity
  std::optional<Watts> power{};  ///< the most of what is kept and bought; nothing of what is rented
  bool rented = false;
  RunResult run{};  ///< simulated
  Seconds time{};   ///< of a training run
  Money cost{};
  std::optional<Joules> energy{};
  double probability = 0;  ///< that no other row costs less
  bool cheapest = false;   ///< no candidate is both cheaper and faster
  bool of_own = false;     ///< the same among those that buy and rent nothing

  /// What the run costs if its step takes `factor` times as long.
  [[nodiscard]] Money cost_at(double factor) const { return fixed + (cost - fixed) * factor; }
};

struct BuyAnswer {
  std::vector<BuyRow> rows;  ///< the cheapest first
  std::size_t candidates = 0, hopeless = 0, unfit = 0, unsearched = 0, late = 0, costly = 0,
              estimated = 0;
  bool thinned = false;
  std::string question;  ///< "resnet50, batch 256, fp32, momentum"
};

/// Every candidate gets a lower bound (least_step). Those that an estimate of another dominates in
/// cost and time are hopeless. The others' plans of data parallelism (equal and proportional
/// shares, ZeRO 3, of transformers with accumulated gradients) are estimated, and for the cheapest
/// bounds of those that may still win also plans of the strategies that search, tensor and
/// pipeline. Simulated are those that may still be the cheapest, and those that no other beats in
/// both cost and time. Throws InputError for what purchases() and Experiment refuse.
[[nodiscard]] BuyAnswer buy(const BuyRequest& request);

}  // namespace parsim::experiment
