// One run: a plan is lowered, simulated, checked and summed up. What reports are made of.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/profile.hpp"
#include "core/timeline.hpp"
#include "experiment/checks.hpp"
#include "experiment/choices.hpp"
#include "experiment/experiment.hpp"
#include "experiment/step_interval.hpp"
#include "experiment/two_jobs.hpp"
#include "experiment/upkeep.hpp"
#include "experiment/utilization.hpp"
#include "lowering/memory.hpp"
#include "sim/communication_sources.hpp"
#include "strategies/degrees.hpp"

namespace parsim::experiment {

class Progress;

struct DeviceResult {
  std::string name, model;
  DeviceKind kind = DeviceKind::gpu;
  DeviceUse use;
  lowering::MemoryUse memory;
  Bytes capacity{};
  lowering::Headroom headroom{};

  [[nodiscard]] Bytes peak() const { return memory.total(); }
  [[nodiscard]] lowering::Verdict verdict() const { return headroom.verdict(peak(), capacity); }
  /// What is missing; 0 if the plan fits.
  [[nodiscard]] Bytes lacking() const {
    return verdict() == lowering::Verdict::over ? peak() - headroom.usable(capacity) : Bytes{};
  }
};

/// The directed link that works the largest part of the step.
struct LinkUse {
  std::string link, from, to;
  double utilisation = 0.0;  ///< bytes / (rate x step time), slow periods considered, 0 to 1
};

/// A strategy's row. With `error` the strategy has no plan for this input and only the name counts.
struct RunResult {
  std::string strategy, error;
  Seconds step_time{};
  double samples_per_second = 0.0;
  double read_by_host = 0.0;  ///< samples a second, of the machine that reads most
  StepFlops flops{};
  StepUpkeep upkeep{};
  Bytes moved{};
  std::int64_t messages = 0;
  std::int64_t operations = 0, simulated_operations = 0;  ///< the others are equal to one of them
  std::optional<sim::Engine> engine;                    ///< that simulated it; nothing for formulas
  std::vector<DeviceResult> devices;                    ///< by DeviceId
  std::optional<DeviceRows> device_rows;                ///< as asked
  std::optional<LinkUse> bottleneck;                    ///< nothing if nothing moves
  std::optional<Seconds> search_time, simulation_time;  ///< wall clock, unless left out
  std::array<double, origins.size()> cost_shares{};     ///< of kernel time, by Origin; sums to 1
  std::string cost_summary, cost_accuracy;
  /// With --collectives measured, --algorithm or --protocol only.
  std::optional<sim::CommunicationSources> communication;
  Bounds bounds;
  StepParts parts{};                          ///< what the step depends on
  std::vector<StepParts> by_model{};          ///< as parts_by_model has them
  StepInterval interval{};                    ///< factors of step_time, see step_interval()
  std::optional<double> probability_fastest;  ///< in a comparison, of a plan that fits
  std::optional<Seconds> lower_bound;         ///< of any plan's step, see least_step()
  std::string checks;                         ///< one line
  std::vector<std::string> notes;             ///< of the plan
  std::int64_t micro_batches = 1;
  strategies::Degrees degrees;
  std::vector<strategies::StageSummary> stages;
  std::vector<Choice> choices;  ///< that degrees leave out; none that does nothing here
  /// Whose launch files carry the plan; nothing where it was not asked.
  std::optional<std::vector<std::string>> trainers;
  std::string plan_id;                ///< equal for equal plans
  std::string same_plan_as;           ///< an earlier row with an equal plan; "" if there is none
  std::optional<Goodput> goodput;     ///< with --checkpoint-write
  std::optional<TwoJobs> two_jobs;    ///< with --beside
  std::optional<Spread> jittered;     ///< the step with kernel times that vary, with --jitter
  std::optional<Spread> measured;     ///< the step on real hardware, with --hw
  std::string measured_note;          ///< why there is none
  std::vector<Bytes> measured_bytes;  ///< of devices' memory that it took; empty: not known

  [[nodiscard]] bool fits() const;
  /// Step over lower bound, less 1; nothing where there is no bound or the plan does not fit.
  [[nodiscard]] std::optional<double> gap() const;
  /// Nothing where a price, or a power (in joules), is not known.
  [[nodiscard]] std::optional<double> cost_per_million_samples() const;
  [[nodiscard]] std::optional<double> energy_per_million_samples() const;
  /// Of the device that is worst off; `over` if there is no plan.
  [[nodiscard]] lowering::Verdict verdict() const;
  /// The device that uses the largest part of what it may fill, ties to the lower id; null if there
  /// is none.
  [[nodiscard]] const DeviceResult* fullest() const;
};

/// A run with what it was made from, for traces and files.
struct Run {
  RunResult result;
  ExecDag dag;
  Timeline timeline;
  /// By Hop::index(): bytes / what the link could have carried during the step; empty if not told.
  std::vector<double> hop_use{};
};

/// A plan and the wall clock of finding it: of the search, and of simulating its finalists.
struct Planned {
  Plan plan;
  Seconds search_time{}, simulation_time{};
};
/// The strategy that the experiment's layout file stands for: it is not in the table.
[[nodiscard]] const strategies::Strategy& layout_strategy();
/// Asks strategies one after the other. What one has found out, plans and prices, the next need
/// not.
class Planner {
 public:
  /// once   only one plan is asked for: known() stays empty, for large ones take long to copy
  explicit Planner(const Experiment& experiment, bool once = false);
  /// Throws InputError if the strategy has no plan for the input.
  [[nodiscard]] Planned plan(const strategies::Strategy& strategy, Progress* progress = nullptr);
  /// A plan of a strategy that was asked elsewhere.
  void remember(const Plan& plan) { known_.push_back(plan); }
  /// From now on searches have this.
  void divide_searches(decltype(strategies::StrategyInput::at_once) at_once) {
    at_once_ = std::move(at_once);
  }
  /// All plans that strategies of the table have made.
  [[nodiscard]] const std::vector<Plan>& known() const { return known_; }

 private:
  const Experiment& experiment_;
  bool once_;
  decltype(strategies::StrategyInput::at_once) at_once_;
  std::vector<Plan> known_;
  lowering::PriceCache prices_;
};
/// Asks one strategy alone.
[[nodiscard]] Planned make_plan(const Experiment& experiment, const strategies::Strategy& strategy,
                                Progress* progress = nullptr);

/// Which operations a run has.
///   all     of every device: for traces, files and hardware
///   folded  of one of several equal replicas, where the plan has some and the simulator finds that
///           they stay equal: the result is the same for a fraction of the time and memory
enum class Operations : std::uint8_t { all, folded };

/// Lowers, simulates and checks a plan. Throws SimulationError, or BrokenInvariant for a result
/// that cannot be.
[[nodiscard]] Run run_plan(const Experiment& experiment, const Planned& planned,
                           Operations wanted = Operations::all);
/// The step time of run_plan without its checks and its other results, which take longer than the
/// simulation where devices are many. Folds.
[[nodiscard]] Seconds simulated_step(const Experiment& experiment, const Plan& plan);

/// Means over the GPUs: a mixed cluster's slow devices must not hide that the fast ones wait.
[[nodiscard]] DeviceUse mean_use(const RunResult& result);
/// Means over the GPUs that compute; over all where none does.
[[nodiscard]] DeviceUse mean_use_of_working(const RunResult& result);

/// "needs 2.10 GiB more (gpu3 and 7 others)" of the device that needs most, or "fits" or "tight".
[[nodiscard]] std::string memory_verdict(const RunResult& result);

/// Name of the device or switch at one end of a link.
[[nodiscard]] std::string port_name(const Cluster& cluster, const Port& port);

}  // namespace parsim::experiment
