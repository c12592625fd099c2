// A request resolved: network, cluster and costs, loaded and checked, from which plans are made and
// on which they run (experiment/run.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"
#include "experiment/request.hpp"
#include "experiment/step_interval.hpp"

namespace parsim::experiment {

/// Everything a plan is made from and simulated on. Holds references into itself: never moves.
class Experiment {
 public:
  /// Loads network and cluster, applies overrides, reads the plan file if there is one. Throws
  /// InputError for what does not exist, cannot be read or does not fit together.
  explicit Experiment(const Request& request);
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  [[nodiscard]] strategies::StrategyInput strategy_input() const;
  /// What the step costs: stragglers included, which strategies do not know of.
  [[nodiscard]] const CostModel& step_cost() const { return slowed ? *slowed : *cost; }
  /// How the step is simulated: with what is slow for a while, which strategies do not know either.
  [[nodiscard]] sim::SimOptions step_options() const;
  /// What is known of how far prices are from measured ones.
  [[nodiscard]] Spreads spreads() const;
  /// One line on costs and disturbances, for reports.
  [[nodiscard]] std::string step_summary() const;

  Request request;  ///< network and cluster named in any case
  Network network;
  bool attention_by_default = false;  ///< attention kernels chosen from the GPUs, not by the user
  Cluster cluster;
  std::unique_ptr<CostModel> cost;
  bool has_layer_times = false;               ///< in the cost model, from --profile
  std::optional<RunCalibration> calibration;  ///< with --calibrate-with
  std::unique_ptr<CostModel> slowed;          ///< null unless a device is slow for the whole step
  Stragglers stragglers;
  std::optional<Plan> plan;           ///< of the plan file
  std::optional<LayoutFile> layout;   ///< of the layout file
  std::int64_t batch = 0;             ///< in use: as asked, chosen, or the plan's
  DeviceId server;                    ///< invalid unless named
  std::vector<std::string> warnings;  ///< what was not taken at face value
  Seconds preparation{};              ///< wall clock of building the cost model

 private:
  /// Throws InputError for a plan that is not the network's or not valid; warns of another cluster.
  void check_plan(const Plan& checked, const std::string& file);
  void read_layout_file();
  void assume_what_scripts_decide();
  void check_layout_batch();
};

/// What the first embedding makes of a sample; 0 for a network without one.
[[nodiscard]] std::int64_t tokens_per_sample(const Network& network);

}  // namespace parsim::experiment
