// What the user wants simulated, as values: from the arguments of a command to a Request, and from
// a Request to the Scene it plays in (network, cluster and costs, loaded and resolved).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"
#include "core/profile.hpp"
#include "experiment/layout_file.hpp"
#include "experiment/options.hpp"
#include "experiment/perturbation.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"

namespace parsim {

/// What the user asked for. Absent optionals were not given.
struct Request {
  std::string verb;
  std::string network, cluster;  ///< as given; empty: as the plan file says
  std::map<std::string, std::int64_t> dims;
  std::vector<std::string> overrides;   ///< "devices.gpu3.memory=8GiB"
  std::vector<std::string> strategies;  ///< empty: all of the table
  std::string plan_file;
  std::string layout_file;           ///< of --layout
  std::set<std::string_view> given;  ///< of the options that a layout file may decide, too
  std::optional<std::int64_t> batch;
  Precision precision = Precision::fp32;
  Precision reduce_precision = Precision::fp32;
  Optimizer optimizer = Optimizer::momentum;
  std::optional<Sync::Kind> sync;
  std::string server;
  std::optional<std::int32_t> micro_batches;
  std::optional<PipelineSchedule> schedule;
  std::optional<Bytes> bucket;
  std::optional<ShareRule> shares;
  std::optional<Rounding> rounding;
  std::optional<SearchCosts> search_costs;
  std::optional<DegreeRule> degrees;
  std::optional<std::int32_t> parts;
  std::optional<std::int32_t> tensor;
  std::optional<std::int64_t> budget;
  std::int32_t zero_stage = 0;
  Recompute recompute = Recompute::none;
  Headroom headroom{};
  std::string costs = cost_sources().front().name;  ///< of kernels
  SimOptions sim;
  std::vector<std::string> collective_times;  ///< as given
  std::optional<std::size_t> first_gpus;      ///< only so many of the cluster's
  std::vector<std::string> command;           ///< as typed, without the program
  std::string profile;                        ///< file of --profile
  double jitter = 0;                          ///< of kernel times: standard deviation over mean
  std::int64_t runs = 20;                     ///< with jitter
  std::vector<std::string> slow;              ///< "gpu3=1.5", "link3=2@2ms-5ms"
  std::vector<std::string> interference;      ///< "tensor/communication=1.2"
  bool launch_interval_given = false;         ///< else a profile's counts
  bool hardware = false;                      ///< --hw
  std::optional<Machine> machine;  ///< with --hw: what was found; stands in for --cluster
  std::uint64_t seed = 1;
  bool timings = true;
  bool wide = false;  ///< all columns for people, too
};

/// Reads the options of simulate, compare and plan. Throws InputError for a value that cannot be
/// read and for options that exclude or need each other.
[[nodiscard]] Request make_request(const Arguments& arguments);

/// Everything a plan is made from and simulated on. Holds references into itself: never moves.
class Scene {
 public:
  /// Loads network and cluster, applies overrides, reads the plan file if there is one. Throws
  /// InputError for whatever does not exist, cannot be read or does not fit together.
  explicit Scene(const Request& request);
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  [[nodiscard]] StrategyInput strategy_input() const;
  /// What the step costs: stragglers included, which strategies do not know of.
  [[nodiscard]] const CostModel& step_cost() const { return slowed ? *slowed : *cost; }
  /// How the step is simulated: with what is slow for a while, which strategies do not know either.
  [[nodiscard]] SimOptions step_options() const;
  /// One line on costs and disturbances, for reports.
  [[nodiscard]] std::string step_summary() const;

  Request request;  ///< network and cluster named in any case
  Network network;
  bool attention_by_default = false;  ///< the devices decided, not the user
  Cluster cluster;
  std::unique_ptr<CostModel> cost, slowed;  ///< null unless a device is slow for the whole step
  Stragglers stragglers;
  std::optional<Plan> plan;           ///< of the plan file
  std::optional<LayoutFile> layout;   ///< of the layout file
  std::int64_t batch = 0;             ///< chosen, not asked for; the plan's if there is a plan
  DeviceId server;                    ///< invalid unless named
  std::vector<std::string> warnings;  ///< what was not taken at face value
  Seconds preparation{};              ///< wall clock of building the cost model

 private:
  void read_layout_file();
};

/// `load_network`, but values for dimensions that a built-in network does not have are refused.
[[nodiscard]] Network load_network_with(const std::string& name,
                                        const std::map<std::string, std::int64_t>& dims,
                                        std::string_view where);
/// --fidelity, --engine, --collectives (with the files of --collective-times), --algorithm,
/// --protocol and --nccl-version. Throws InputError for those that exclude each other.
[[nodiscard]] SimOptions parse_sim_options(const Arguments& arguments);
/// "2.18" or "2.18.6". Throws InputError for anything but a version of NCCL 2.
[[nodiscard]] NcclVersion parse_nccl_version(std::string_view text, std::string_view where);
/// "all-reduce", …
[[nodiscard]] CollectiveKind parse_collective(std::string_view word, std::string_view where);
/// The same, or nothing for "send-receive".
[[nodiscard]] std::optional<CollectiveKind> parse_exchange(std::string_view word,
                                                           std::string_view where);
/// "NAME=NUMBER" texts of --dim. Throws InputError for anything else or a name given twice.
[[nodiscard]] std::map<std::string, std::int64_t> parse_dims(const std::vector<std::string>& texts);
/// `load_cluster` with its overrides applied. `notes` receives what a foreign file left open.
[[nodiscard]] Cluster load_cluster_with(const std::string& name,
                                        const std::vector<std::string>& overrides,
                                        std::string_view where,
                                        std::vector<std::string>* notes = nullptr);
/// Sets one number of a cluster: "devices.NAME.memory=8GiB". Throws InputError for another key, an
/// unknown device or a size without a unit.
void apply_override(Cluster& cluster, const std::string& text);

/// Throws InputError with a "did you mean" if the cluster has no device of that name.
[[nodiscard]] DeviceId find_device(const Cluster& cluster, std::string_view name,
                                   std::string_view where);

/// Throws InputError if an option of the request made no difference to any of the plans: an option
/// without effect is a misunderstanding. `plans` are those of the strategies that could make one.
void check_used(const Request& request, const Network& network, const std::vector<Plan>& plans);

/// "auto", "ring" or "ps", as on the command line.
[[nodiscard]] std::string to_text(Sync::Kind kind);
/// The words of --schedule, --recompute and --shares.
[[nodiscard]] PipelineSchedule parse_schedule(std::string_view word, std::string_view where);
[[nodiscard]] Recompute parse_recompute(std::string_view word, std::string_view where);
[[nodiscard]] ShareRule parse_share_rule(std::string_view word, std::string_view where);
/// "gpipe" or "1f1b".
[[nodiscard]] std::string to_text(PipelineSchedule schedule);
/// "equal" or "proportional".
[[nodiscard]] std::string to_text(ShareRule rule);
[[nodiscard]] std::string to_text(Recompute recompute);
/// "largest-remainder" or "released".
[[nodiscard]] std::string to_text(Rounding rounding);
/// "own" or "paper".
[[nodiscard]] std::string to_text(SearchCosts costs);
/// "p2p", "hops", "macro" or "analytic".
[[nodiscard]] std::string to_text(Fidelity fidelity);
/// "simgrid" or "fast".
[[nodiscard]] std::string to_text(Engine engine);
/// "nccl", "ideal" or "measured".
[[nodiscard]] std::string to_text(CollectiveCost cost);

}  // namespace parsim
