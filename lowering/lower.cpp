#include "lowering/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lowering/dag_sink.hpp"
#include "lowering/folded_runs.hpp"
#include "lowering/machine_reads.hpp"
#include "lowering/walk_passes.hpp"
#include "lowering/walk_sums.hpp"

namespace parsim::lowering {

namespace {

/// `finder`: null if operations of all devices are wanted; `ranks`: not null to fold equal ones,
/// of which there are fewer where they turn out to differ; `memory`: null if it is not asked for.
ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan, UnitFinder* finder,
              RankSearch* ranks, std::vector<MemoryUse>* memory) {
  validate(plan, network, cluster, fmt::format("plan of strategy '{}'", plan.strategy));
  FragmentStore store(network, cluster, nullptr);
  PlanFragments parts(store, finder);
  parts.find_layers(plan);
  for (;;) {
    ExecDag dag(network, plan.batch, plan.precision, plan.optimizer, plan.reduce_precision);
    dag.strategy = plan.strategy;
    dag.cluster = plan.cluster;
    dag.reads = machine_reads(network, cluster, plan);
    DagSink sink(dag, ranks);
    Walk<DagSink>(parts, sink).run();
    sink.end();
    if (sink.gives_up()) {
      ranks->learn(sink.folding().ranks(), sink.folding().differs());
      continue;
    }
    if (memory != nullptr) *memory = memory_use(parts);
    return dag;
  }
}

/// Units or ranks that differ in their devices.
bool several_devices(const Fold& fold, const Cluster& cluster, const CostModel& cost) {
  if (fold.units != nullptr && fold.units->classes.size() > 1) return true;
  if (fold.ranks == nullptr) return false;
  const std::vector<DeviceId>& first = fold.ranks->devices[0];
  const auto alike = [&](DeviceId a, DeviceId b) {
    return cluster[a].model == cluster[b].model && cost.alike(a) == cost.alike(b);
  };
  return std::any_of(
      fold.ranks->devices.begin(), fold.ranks->devices.end(), [&](const auto& devices) {
        return !std::equal(first.begin(), first.end(), devices.begin(), devices.end(), alike);
      });
}

}  // namespace

ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan) {
  return lower(network, cluster, plan, nullptr, nullptr, nullptr);
}

Lowered lower_with_memory(const Network& network, const Cluster& cluster, const Plan& plan) {
  std::vector<MemoryUse> memory;
  ExecDag dag = lower(network, cluster, plan, nullptr, nullptr, &memory);
  return {std::move(dag), std::move(memory)};
}

namespace {

Lowered lower_folded(const Network& network, const Cluster& cluster, const CostModel& cost,
                     const Plan& plan, Folding folding, UnitFinder& finder,
                     std::shared_ptr<KernelTimes> times) {
  std::vector<MemoryUse> memory;
  RankSearch ranks{&cost, folding.most_ranks, {}, std::move(times)};
  ExecDag dag =
      lower(network, cluster, plan, &finder, folding.most_ranks > 1 ? &ranks : nullptr, &memory);
  return {std::move(dag), std::move(memory)};
}

}  // namespace

Lowered lower_folded(const Network& network, const Cluster& cluster, const CostModel& cost,
                     const Plan& plan, Folding folding) {
  UnitFinder finder(cluster, &cost, folding.most_units);
  return lower_folded(network, cluster, cost, plan, folding, finder, nullptr);
}

std::optional<Plan> one_replica(const Cluster& cluster, const Plan& plan) {
  UnitFinder finder(cluster, nullptr);
  UnitFinder::Folded folded;
  if (!finder.fold(plan, folded)) return std::nullopt;
  return std::move(folded.plan);
}

namespace {

/// The first micro-batches of a plan with so many that to lower all of them for nothing, where
/// devices turn out not to be alike, takes much longer than to find that out with these; none if
/// there are not so many.
std::optional<Plan> sample_of(const Plan& plan) {
  constexpr std::size_t many_cells =
      50'000;  // layers x devices x micro-batches: a tenth of a second
  constexpr std::int32_t few_of_all = 8;
  const auto devices = static_cast<std::int32_t>(plan.schedule.rank_lists.size());
  const std::int32_t count = 2 * devices;  // each stage does every kind of pass
  if (plan.schedule.micro_batches < few_of_all * count) return std::nullopt;
  std::size_t cells = 0;
  for (const LayerPlan& layer : plan.layers) cells += layer.devices.size();
  if (cells * static_cast<std::size_t>(plan.schedule.micro_batches) < many_cells) {
    return std::nullopt;
  }
  return shortened(plan, count);
}

/// Into which layers are cut last.
std::size_t most_parts(const Plan& plan) {
  std::size_t most = 1;
  for (const LayerPlan& layer : plan.layers) {
    if (!layer.cuts.empty()) most = std::max(most, layer.cuts.back().sizes.size());
  }
  return most;
}

}  // namespace

Plan shortened(const Plan& plan, std::int32_t count) {
  Plan shorter = plan;
  shorter.batch = plan.batch / plan.schedule.micro_batches * count;
  shorter.schedule.micro_batches = count;
  for (RankList& list : shorter.schedule.rank_lists) {
    std::erase_if(list.slots, [&](const Slot& slot) { return slot.micro_batch >= count; });
  }
  return shorter;
}

struct FoldedRuns::State {
  const Network& network;
  const Cluster& cluster;
  const CostModel& cost;
  std::map<std::size_t, UnitFinder> finders{};  ///< by the most units
  struct Way {
    Folding folding{};
    bool again = false;
  };
  /// How the last plan ran, by the most units that plans have; without units by the parts that
  /// layers are cut into last. Plans on the same devices often differ in options that do not matter
  /// here.
  std::map<std::pair<const AlikeUnits*, std::size_t>, Way> ways{};
  /// By the precisions of plans, with which ranks are compared.
  std::map<std::pair<Precision, Precision>, std::shared_ptr<KernelTimes>> times{};
  UnitFinder& finder(std::size_t most_units) {
    return finders.try_emplace(most_units, cluster, &cost, most_units).first->second;
  }
};

FoldedRuns::FoldedRuns(const Network& network, const Cluster& cluster, const CostModel& cost)
    : state_(std::make_unique<State>(State{network, cluster, cost})) {}
FoldedRuns::~FoldedRuns() = default;

PlanRun FoldedRuns::run(const Plan& plan, Executor& engine) {
  const Network& network = state_->network;
  const Cluster& cluster = state_->cluster;
  const CostModel& cost = state_->cost;
  // Ranks first; then the most units: machines, say. If their links are not alike, those of a leaf
  // switch may be. Of several kinds one has a slow device, and links next to it differ, too.
  // Ranks may be alike where no units are.
  Folding folding;
  constexpr std::size_t many_operations = 100'000;
  bool again = false;  // as many as possible, of any links
  UnitFinder::Folded coarser;
  const bool folds = state_->finder(folding.most_units).fold(plan, coarser);
  const std::pair<const AlikeUnits*, std::size_t> way{folds ? coarser.units : nullptr,
                                                      folds ? 0 : most_parts(plan)};
  std::shared_ptr<KernelTimes>& times = state_->times[{plan.precision, plan.reduce_precision}];
  if (times == nullptr) {
    times = std::make_shared<KernelTimes>(network, cost, plan.precision, plan.reduce_precision);
  }
  auto known = state_->ways.find(way);
  if (known == state_->ways.end()) {
    if (const std::optional<Plan> sample = sample_of(plan)) {
      (void)run(*sample, engine);
      known = state_->ways.find(way);
    }
  }
  bool remembered = known != state_->ways.end();
  if (remembered) {
    folding = known->second.folding;
    again = known->second.again;
  }
  const auto keep = [&] { state_->ways[way] = {folding, again}; };
  for (bool first = !remembered;;) {
    PlanRun run{lower_folded(network, cluster, cost, plan, folding,
                             state_->finder(folding.most_units), times),
                {}};
    const Fold& fold = run.lowered.dag.fold;
    if (!fold) {
      keep();
      run.timeline = engine.run(run.lowered.dag);
      return run;
    }
    const bool several = several_devices(fold, cluster, cost);
    const auto are_units = [&](std::size_t most) {
      return state_->finder(most).fold(plan, coarser);
    };
    // What is made and prepared of many operations is of use if nothing else is left to try.
    again =
        again || (first && !several && fold.ranks == nullptr &&
                  run.lowered.dag.size() > many_operations && !are_units(fold.units->count() - 1));
    const FoldedLinks links = again || several ? FoldedLinks::any : FoldedLinks::alike;
    if (std::optional<Timeline> timeline = engine.run_folded(run.lowered.dag, links)) {
      keep();
      run.timeline = *std::move(timeline);
      return run;
    }
    first = std::exchange(remembered, false);
    if (first) {  // from the beginning
      folding = {};
      again = false;
      continue;
    }
    if (fold.ranks != nullptr) {
      folding.most_ranks = fold.ranks->count() - 1;
    } else {
      folding.most_units = again ? 1 : fold.units->count() - 1;
      folding.most_ranks = again ? Folding{}.most_ranks : 1;
    }
    if (!again && !several && !are_units(folding.most_units)) {
      folding = {};
      again = true;
    }
  }
}

PlanRun run_folded(const Network& network, const Cluster& cluster, const CostModel& cost,
                   const Plan& plan, Executor& engine) {
  return FoldedRuns(network, cluster, cost).run(plan, engine);
}

}  // namespace parsim::lowering
