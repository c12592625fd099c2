// What the user wants simulated, as values: from the arguments of a command to a Request.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"
#include "core/profile.hpp"
#include "experiment/calibration.hpp"
#include "experiment/failures.hpp"
#include "experiment/layout_file.hpp"
#include "experiment/options.hpp"
#include "experiment/perturbation.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"

namespace parsim::experiment {

/// --hw-backend, --hw-partition and --hw-measured, as given.
struct HardwareOptions {
  std::string backend = "auto", partition, measured;
};

/// What 'collective' times.
struct CollectiveOptions {
  std::string kind;           ///< no option but its argument
  std::optional<Bytes> size;  ///< payload; absent: `default_payload`
  std::string sizes;          ///< "1KiB..1GiB"
  std::optional<std::int64_t> devices;
};
constexpr Bytes default_payload{100 * 1024 * 1024};

/// What 'validate' compares with.
struct ValidationOptions {
  bool papers = false, published = false, from_scratch = false, quick = false;
  std::vector<std::string> data;  ///< files of measurements
};

/// Which devices results list.
///   all      every one
///   classes  one of those that do and hold the same, with their number
enum class DeviceRows : std::uint8_t { all, classes };
constexpr std::array<std::string_view, 2> spellings(DeviceRows) { return {"all", "classes"}; }

/// What the user asked for; the table of options says which member belongs to which option. Absent
/// optionals and empty texts were not given.
struct Request : strategies::StrategyOptions {
  std::string verb;
  std::vector<std::string> command;  ///< as typed, without the program
  std::set<std::string_view> given;  ///< flags
  std::string network, cluster;      ///< as given; empty: as the plan file says
  std::map<std::string, std::int64_t> dims;
  std::vector<std::string> overrides;   ///< "devices.gpu3.memory=8GiB"
  std::vector<std::string> strategies;  ///< of the table, aliases resolved; empty: all
  std::map<std::string, std::int32_t> zero_of_alias;  ///< by strategy, unless --zero is given
  std::vector<std::string> notes;                     ///< on what the user wrote
  std::string plan_or_trainer_file, layout_file;      ///< of --plan and --layout
  std::string beside;                                 ///< plan file of another job
  std::optional<std::int64_t> batch;
  std::string scaling;  ///< "1,2,4"
  std::string server;
  std::string costs = sim::cost_sources().front().name;  ///< of kernels
  std::string profile;
  std::string partition;  ///< file with the partition that is `hypergraph`'s plan; "": it searches
  std::vector<std::string> calibrate_with;  ///< files of measured steps
  sim::SimOptions sim{.collectives = sim::CollectiveCost::nccl, .engine = sim::Engine::automatic};
  std::vector<std::string> collective_times;
  double expert_imbalance = 1;            ///< see ExpertDense
  double input_rate = 0;                  ///< samples/s that a machine's host feeds; 0: keeps up
  double jitter = 0;                      ///< of kernel times: standard deviation over mean
  std::int64_t runs = 20;                 ///< with jitter
  std::vector<std::string> stragglers;    ///< "gpu3=1.5", "link3=2@2ms-5ms"
  std::vector<std::string> interference;  ///< "tensor/communication=1.2"
  FailureOptions failures;
  bool hardware = false;  ///< --hw
  HardwareOptions hw;
  CollectiveOptions collective;
  std::string trace;  ///< of import; no option but its argument
  ValidationOptions validation;
  std::optional<std::int64_t> top;  ///< layers to list
  bool timings = true;
  bool wide = false;                      ///< all columns for people, too
  std::optional<DeviceRows> device_rows;  ///< unset: classes in tables of many devices
  std::string columns;  ///< "strategy,step,MFU": those of the table, in this order
  // Not options:
  /// Where a flag is absent, language models have what they are usually trained with: half
  /// precision, AdamW, one sequence per GPU. Only `make_request` knows which flags are.
  bool usual_settings = false;
  std::string plan_file;  ///< of --plan, if it is no trainer's, which becomes `layout_file`
  std::optional<Cluster> built_cluster;   ///< stands in for --cluster
  std::optional<std::size_t> first_gpus;  ///< only so many of the cluster's
  std::vector<FittedStep> fitted;         ///< what --calibrate-with fits
  std::optional<Machine> machine;         ///< with --hw: what was found; stands in for --cluster
  std::function<void()> poll;             ///< of the Arguments
  std::string launcher;                   ///< of --launch: the trainer that is to run the plan
  /// Whether `best` may choose a plan; empty: any.
  std::function<bool(const Network&, const Cluster&, const Plan&)> accepts;
  std::vector<strategies::Strategy> own_strategies;  ///< of the Arguments
};

/// The options of any verb, each as its row of the table says. Throws InputError for a value that
/// cannot be read, and for options of the simulator that exclude each other.
[[nodiscard]] Request read_options(const Arguments& arguments);

/// The same for simulate, compare, plan and explain. Throws InputError for options that exclude or
/// need each other.
[[nodiscard]] Request make_request(const Arguments& arguments);

/// `load_network`, but values for dimensions that a built-in network does not have are refused.
[[nodiscard]] Network load_network_with(const std::string& name,
                                        const std::map<std::string, std::int64_t>& dims,
                                        std::string_view where);
/// "2.18" or "2.18.6". Throws InputError for anything but a version of NCCL 2.
[[nodiscard]] sim::NcclVersion parse_nccl_version(std::string_view text, std::string_view where);
/// A plan file's network, dimensions and cluster stand in for those that are not given. It may be
/// about another cluster, but never about another network: throws InputError for other dimensions.
void take_question(const Plan& plan, const std::string& file, Request& request);
/// Of a plan file: made for another cluster, or for another network of the same name.
[[nodiscard]] std::vector<std::string> plan_warnings(const Plan& plan, const std::string& file,
                                                     const Network& network,
                                                     const Cluster& cluster);
/// "NAME=NUMBER" texts of --dim. Throws InputError for anything else or a name given twice.
[[nodiscard]] std::map<std::string, std::int64_t> parse_dims(const std::vector<std::string>& texts,
                                                             std::string_view where = "--dim");
[[nodiscard]] std::vector<std::string> dim_texts(const std::map<std::string, std::int64_t>& dims);
/// `load_cluster` with its overrides applied. `notes` receives what a foreign file left open.
[[nodiscard]] Cluster load_cluster_with(const std::string& name,
                                        const std::vector<std::string>& overrides,
                                        std::string_view where,
                                        std::vector<std::string>* notes = nullptr);
/// Sets a number of all devices, machines or links whose name matches: "devices.*.price=2.5 /h",
/// "nodes.n0.power=6kW", "links.n0.*.power=10W". Throws InputError for another key, an unknown name
/// or a number without a unit.
void apply_override(Cluster& cluster, const std::string& text);

/// Throws InputError: the cluster has no `what` of that name, only `names`.
[[noreturn]] void refuse_name(std::string_view where, std::string_view what, std::string_view name,
                              const Cluster& cluster, const std::vector<std::string>& names);
/// Throws InputError with a "did you mean" if the cluster has no device of that name.
[[nodiscard]] DeviceId find_device(const Cluster& cluster, std::string_view name,
                                   std::string_view where);

/// Throws InputError if an option of the request made no difference to any of the plans: an option
/// without effect is a misunderstanding, but for what `best` was free not to choose. `plans` are
/// those of the strategies that could make one.
void check_used(const Request& request, const Network& network, std::span<const Plan> plans);

}  // namespace parsim::experiment
