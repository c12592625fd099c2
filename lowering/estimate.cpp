#include "lowering/estimate.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/errors.hpp"
#include "core/hash.hpp"
#include "lowering/timer.hpp"
#include "lowering/walk_passes.hpp"
#include "lowering/walk_sums.hpp"

namespace parsim::lowering {

struct PriceCache::State {
  using Key = std::vector<std::int32_t>;
  struct Hash {
    // Not noexcept: tables keep its result.
    std::size_t operator()(const Key& key) const { return hash_of(key); }
  };
  /// A step's time, or less of one that was given up.
  struct Known {
    double seconds = 0;
    bool exact = false;
  };

  explicit State(const StepInput& input)
      : pricer(input),
        store(input.network, input.cluster, &pricer),
        unpriced(input.network, input.cluster, nullptr, false),
        units(input.cluster, &input.cost),
        layouts(unpriced, input.folds ? &units : nullptr),
        repeated(input.network.layers.size(), 0) {
    for (const LayerId like : store.structure().like) ++repeated[like.index()];
  }

  /// Number of an equal value among those seen before.
  template <class Value>
  static std::int32_t number(std::vector<Value>& seen, const Value& value) {
    const auto found = std::find(seen.begin(), seen.end(), value);
    const auto index = static_cast<std::int32_t>(found - seen.begin());
    if (found == seen.end()) seen.push_back(value);
    return index;
  }
  /// All that a plan's step follows from.
  Key key_of(const PlanFragments& parts, LinkSharing sharing) {
    const Plan& plan = *parts.plan;
    const Schedule& schedule = plan.schedule;
    Key key{static_cast<std::int32_t>(sharing),
            static_cast<std::int32_t>(plan.batch),
            static_cast<std::int32_t>(plan.batch >> 32),
            schedule.micro_batches,
            schedule.blocking_sends ? 1 : 0,
            static_cast<std::int32_t>(schedule.reduce_every),
            schedule.late_gathers ? 1 : 0,
            parts.units == nullptr ? -1 : parts.units->number,
            number(rank_lists, schedule.rank_lists),
            number(buckets, plan.buckets)};
    key.insert(key.end(), parts.numbers.begin(), parts.numbers.end());
    key.insert(key.end(), schedule.stage_of_layer.begin(), schedule.stage_of_layer.end());
    for (std::size_t l = 0; l < plan.layers.size(); ++l) {
      if (plan.layers[l].recompute) key.push_back(static_cast<std::int32_t>(l));
    }
    return key;
  }

  Pricer pricer;
  FragmentStore store, unpriced;
  UnitFinder units;
  PlanFragments layouts;                       ///< of `unpriced`
  std::int64_t forgotten = 0;                  ///< by the store when the first of `steps` was added
  std::unordered_map<Key, Known, Hash> steps;  ///< looked up only
  std::vector<std::int32_t> repeated;  ///< by the first of layers that are alike: how many are
  std::vector<std::vector<RankList>> rank_lists;
  std::vector<std::vector<std::vector<ParameterId>>> buckets;
};

PriceCache::PriceCache(const StepInput& input) : state_(std::make_unique<State>(input)) {}
PriceCache::~PriceCache() = default;
const PriceCache::Counts& PriceCache::counts() const { return state_->pricer.counts; }

std::vector<MemoryUse> PriceCache::memory(const Plan& plan) {
  state_->layouts.find(plan);
  return memory_use(state_->layouts);
}

std::optional<Seconds> PriceCache::layer_time(LayerId layer, const Part& part, DeviceId device) {
  constexpr std::int32_t few = 8;
  Pricer& pricer = state_->pricer;
  const Structure& structure = state_->store.structure();
  const LayerId like = structure.like[layer.index()];
  if (state_->repeated[like.index()] < few) return std::nullopt;
  return pricer.kernels.of_all(like, part, passes_of(pricer.input.network, structure.flow, like),
                               device);
}

struct Estimator::State {
  State(const StepInput& input, LinkSharing link_sharing)
      : own(input.prices == nullptr ? std::make_unique<PriceCache>(input) : nullptr),
        prices(*(own ? *own : *input.prices).state_),
        sharing(link_sharing),
        poll(input.poll),
        as_run(input.as_run),
        timer(input.cluster, sharing),
        parts(prices.store, input.folds ? &prices.units : nullptr),
        walk(parts, timer) {
    const StepInput& of = prices.pricer.input;
    ensure(&of.network == &input.network && &of.cluster == &input.cluster &&
               &of.cost == &input.cost && of.precision == input.precision &&
               of.reduce_precision == input.reduce_precision && of.optimizer == input.optimizer &&
               of.folds == input.folds,
           "estimators share the prices of one input");
  }
  const Plan& run_of(const Plan& asked) { return as_run ? run = as_run(asked) : asked; }
  std::unique_ptr<PriceCache> own;
  PriceCache::State& prices;
  LinkSharing sharing;
  std::function<void()> poll;
  std::function<Plan(const Plan&)> as_run;
  Plan run;  ///< what it made last
  Timer timer;
  PlanFragments parts;
  Walk<Timer> walk;
};

Estimator::Estimator(const StepInput& input, LinkSharing sharing)
    : state_(std::make_unique<State>(input, sharing)) {}
Estimator::~Estimator() = default;

Seconds Estimator::step_time(const Plan& asked, Seconds limit) {
  if (state_->poll) state_->poll();
  const Plan& plan = state_->run_of(asked);
  PriceCache::State& prices = state_->prices;
  PlanFragments& parts = state_->parts;
  PriceCache::Counts& counts = prices.pricer.counts;
  ++counts.plans;
  parts.find_layers(plan);
  if (std::exchange(prices.forgotten, prices.store.forgotten()) != prices.store.forgotten()) {
    prices.steps.clear();  // the fragments have new numbers
  }
  PriceCache::State::Known& known = prices.steps[prices.key_of(parts, state_->sharing)];
  if (known.exact || Seconds{known.seconds} >= limit) {
    ++counts.known;
    return Seconds{known.seconds};
  }
  state_->timer.give_up_at(limit);
  state_->walk.run();
  counts.needed += static_cast<std::int64_t>(2 * parts.layers.size() + parts.sums.size());
  known = {state_->timer.latest().count(), !state_->timer.gives_up()};
  return Seconds{known.seconds};
}

std::vector<MemoryUse> Estimator::memory(const Plan& asked) {
  if (state_->poll) state_->poll();
  state_->parts.find(state_->run_of(asked));
  return memory_use(state_->parts);
}

}  // namespace parsim::lowering
