#include "experiment/buy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "core/errors.hpp"
#include "experiment/lower_bound.hpp"
#include "experiment/progress.hpp"
#include "strategies/blocks.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
/// Estimates and simulations of the best plans differ by less (docs/money.md).
constexpr double slack = 1.1;
constexpr std::size_t most_simulated = 12, most_on_front = 8;
/// Candidates for which strategies are asked that search for a second or more.
constexpr std::size_t most_searched = 12, most_tried = 30, most_vain = 2;
/// GPUs up to which an estimate takes about a second at most.
constexpr std::size_t most_quick = 512;

/// A candidate on the way to a row.
struct Entry {
  BuyRow row;
  double bound = 0;  ///< of the step, seconds
  double step = infinite;
  std::optional<Plan> plan{};
  bool bare = false;    ///< buys and rents nothing
  bool closed = false;  ///< late, too costly or hopeless already by its bound
  bool searched = false;
};

/// A strategy that is asked for a plan.
struct Quick {
  std::string_view strategy;
  std::optional<std::int32_t> zero{};
  strategies::ShareRule shares = strategies::ShareRule::equal;
  /// Replicas of one GPU each, which accumulate gradients over micro-batches.
  std::optional<strategies::Recompute> accumulates{};
};

/// The most micro-batches, up to 64, that give each of `gpus` a sample of each: a divisor of the
/// batch.
std::int32_t micro_batches_of_one(std::int64_t batch, std::int64_t gpus) {
  std::int64_t most = std::clamp<std::int64_t>(batch / gpus, 1, 64);
  while (batch % most != 0) --most;
  return static_cast<std::int32_t>(most);
}

class Buyer {
 public:
  explicit Buyer(const BuyRequest& request)
      : request_(request),
        steps_(std::ceil(static_cast<double>(request.job.samples) /
                         static_cast<double>(request.job.batch))) {
    if (request.own) groups_ = machine_groups(*request.own);
  }

  BuyAnswer run() && {
    PurchaseLimits limits = request_.limits;
    limits.joinable = is_joinable(own());
    limits.rent_by_run = request_.job.runs.has_value();
    Purchases all = purchases(groups_, request_.offers, limits);
    answer_.thinned = all.thinned;
    answer_.candidates = all.all.size();
    Progress progress(2 * all.all.size() + most_tried, request_.quiet, request_.poll);
    for (Purchase& purchase : all.all) {
      progress.next("bounds");
      add(std::move(purchase));
    }
    const auto sort_by = [&](auto key) {
      std::stable_sort(entries_.begin(), entries_.end(),
                       [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
    };
    sort_by([&](const Entry& entry) {
      return std::pair(is_large(entry) ? entry.row.gpus : 0, money(entry, entry.bound));
    });
    for (Entry& entry : entries_) {
      progress.next("estimates");
      estimate(entry);
    }
    sort_by([&](const Entry& entry) { return money(entry, entry.bound); });
    search(progress);
    count();
    choose();
    for (Entry& entry : entries_) simulate(entry);
    finish();
    return std::move(answer_);
  }

 private:
  [[nodiscard]] const Cluster* own() const { return request_.own ? &*request_.own : nullptr; }

  /// Of a training run with such a step; electricity as if all devices computed all the time.
  [[nodiscard]] double money(const Entry& entry, double step) const {
    double per_hour = entry.row.per_hour.value;
    if (request_.job.kilowatt_hour && !entry.row.rented) {
      per_hour += request_.job.kilowatt_hour->value * entry.row.power.value_or(Watts{}).value / 1e3;
    }
    return entry.row.fixed.value + per_hour * steps_ * step / hour.count();
  }

  [[nodiscard]] std::unique_ptr<Experiment> experiment_of(const Purchase& purchase) const {
    Arguments arguments = request_.job.arguments;
    Cluster cluster = cluster_of(purchase, own(), groups_, request_.offers);
    arguments.values["--cluster"] = {cluster.name};
    Request asked = make_request(arguments);
    asked.built_cluster = std::move(cluster);
    asked.poll = request_.poll;
    if (!asked.given.contains("--engine")) asked.sim.engine = sim::Engine::fast;
    return std::make_unique<Experiment>(asked);
  }

  void price(const Purchase& purchase, BuyRow& row) const {
    const auto add_power = [&](std::int64_t count, std::optional<Watts> power) {
      const auto times = static_cast<double>(count);
      row.power = row.power && power ? std::optional(*row.power + times * *power) : std::nullopt;
    };
    row.power = Watts{};
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (purchase.kept[g] == 0) continue;
      add_power(purchase.kept[g], groups_[g].power);
      row.per_hour +=
          static_cast<double>(purchase.kept[g]) * groups_[g].price.value_or(MoneyPerHour{});
    }
    for (std::size_t o = 0; o < request_.offers.size(); ++o) {
      const Offer& offer = request_.offers[o];
      const auto count = static_cast<double>(purchase.taken[o]);
      if (purchase.taken[o] == 0) continue;
      if (offer.rent) {
        row.per_hour += count * *offer.rent;
        row.rented = true;
        row.power.reset();
        continue;
      }
      add_power(purchase.taken[o], power_of(offer));
      row.price += count * *offer.price;
      if (const auto runs = request_.job.runs) {
        row.fixed += count / static_cast<double>(*runs) * *offer.price;
      } else {
        row.per_hour.value += count * offer.price->value / (request_.limits.years * (year / hour));
      }
    }
  }

  void add(Purchase purchase) {
    Entry entry;
    const std::unique_ptr<Experiment> experiment = experiment_of(purchase);
    price(purchase, entry.row);
    const std::vector<DeviceId> gpus = devices_of(experiment->cluster, DeviceKind::gpu);
    entry.row.gpus = gpus.size();
    entry.row.text = experiment->cluster.name;
    entry.bare = std::all_of(purchase.taken.begin(), purchase.taken.end(),
                             [](std::int64_t count) { return count == 0; });
    entry.bound = least_step(experiment->strategy_input(), gpus).value_or(Seconds{}).count();
    entry.row.purchase = std::move(purchase);
    if (answer_.question.empty()) {
      answer_.question = fmt::format("{}, batch {}, {}, {}", experiment->network.name,
                                     experiment->batch, to_text(experiment->request.precision),
                                     to_text(experiment->request.optimizer));
    }
    entries_.push_back(std::move(entry));
  }

  [[nodiscard]] bool is_late(double step) const {
    const Seconds run{steps_ * step};
    if (request_.job.within && run > *request_.job.within) return true;
    const Seconds all = static_cast<double>(request_.job.runs.value_or(1)) * run;
    return all > request_.limits.years * year;
  }
  /// The rent of all runs is more than the budget.
  [[nodiscard]] bool is_costly(const Entry& entry, double step) const {
    if (!entry.row.rented || !request_.job.runs) return false;
    return static_cast<double>(*request_.job.runs) * money(entry, step) >
           request_.limits.budget.value;
  }

  /// True if what is known already costs less and takes less time.
  [[nodiscard]] bool is_dominated(const Entry& entry) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& known) {
      // Sub-clusters of the own cluster are compared with each other.
      return known.step != infinite && (known.bare || !entry.bare) &&
             slack * known.step <= entry.bound &&
             slack * money(known, known.step) <= money(entry, entry.bound);
    });
  }

  /// More GPUs than samples, and so many that an estimate takes long.
  [[nodiscard]] bool is_large(const Entry& entry) const {
    return entry.row.gpus > std::max(most_quick, static_cast<std::size_t>(request_.job.batch));
  }
  /// Whether with every machine of `part`, and perhaps more.
  [[nodiscard]] static bool has_all_of(const Purchase& whole, const Purchase& part) {
    const auto each = [](const std::vector<std::int64_t>& more,
                         const std::vector<std::int64_t>& less) {
      return std::equal(more.begin(), more.end(), less.begin(), std::greater_equal<>());
    };
    return each(whole.kept, part.kept) && each(whole.taken, part.taken);
  }
  /// Once each GPU has a sample at most, more of them can only share samples. True if twice as many
  /// were no faster, and this one has all of these and more.
  [[nodiscard]] bool is_saturated(const Entry& entry) const {
    if (!is_large(entry)) return false;
    const auto with_less = [&](const Entry& whole, auto holds) {
      return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& part) {
        return part.step != infinite && part.row.gpus < whole.row.gpus &&
               has_all_of(whole.row.purchase, part.row.purchase) && holds(part);
      });
    };
    return with_less(entry, [&](const Entry& twice) {
      return is_large(twice) && with_less(twice, [&](const Entry& once) {
               return once.row.gpus >= static_cast<std::size_t>(request_.job.batch) &&
                      2 * once.row.gpus <= twice.row.gpus && once.step <= twice.step;
             });
    });
  }

  void estimate(Entry& entry) {
    const bool late = is_late(entry.bound), costly = is_costly(entry, entry.bound);
    entry.closed = late || costly || is_dominated(entry) || is_saturated(entry);
    if (entry.closed) {
      ++(late ? answer_.late : costly ? answer_.costly : answer_.hopeless);
      return;
    }
    ++answer_.estimated;
    improve(entry, {Quick{"data"}, Quick{"data", {}, strategies::ShareRule::proportional},
                    Quick{"data", 3}});
    constexpr auto equal = strategies::ShareRule::equal;
    if (!is_large(entry)) {
      improve(entry, {Quick{"tensor", 3, equal, strategies::Recompute::none},
                      Quick{"tensor", 3, equal, strategies::Recompute::full}});
    }
    if (is_large(entry)) improve(entry, {Quick{"tensor"}});
  }

  /// Asks the strategies that take longer, too, where they can change the answer.
  void search(Progress& progress) {
    std::size_t found = 0, tried = 0, vain = 0;
    for (Entry& entry : entries_) {
      if (found == most_searched || tried == most_tried) return;
      const bool open = !entry.closed && !is_large(entry) && !is_dominated(entry);
      if (!open || slack * entry.bound >= entry.step) continue;
      const double before = entry.step;
      if (before != infinite && vain == most_vain) continue;
      progress.next("searches");
      ++tried;
      entry.searched = true;
      improve(entry, {Quick{"tensor"}, Quick{"tensor", 1}, Quick{"pipeline"}});
      vain += entry.step == before ? 1 : 0;
      found += entry.plan ? 1 : 0;
    }
  }

  /// Counts the candidates without a plan, and forgets those that take too long or cost too much.
  void count() {
    for (Entry& entry : entries_) {
      if (entry.closed) continue;
      if (!entry.plan) {
        ++(entry.searched ? answer_.unfit : answer_.unsearched);
      } else if (is_late(entry.step)) {
        ++answer_.late;
        entry.step = infinite;
      } else if (is_costly(entry, entry.step)) {
        ++answer_.costly;
        entry.step = infinite;
      }
    }
    std::erase_if(entries_, [](const Entry& entry) { return entry.step == infinite; });
  }

  /// False if the job's options or the network leave nothing to accumulate, or to recompute.
  static bool accumulate(strategies::Recompute recompute, strategies::StrategyInput& input) {
    const bool degrees = input.tensor_parallel || input.pipeline_parallel || input.data_parallel ||
                         input.context_parallel || input.micro_batches;
    const auto gpus = std::ssize(devices_of(input.cluster, DeviceKind::gpu));
    const std::int32_t count = micro_batches_of_one(input.batch, gpus);
    const bool blocks = !strategies::first_layers_of_blocks(input.network).empty();
    if (degrees || count == 1 || !blocks) return false;
    if (input.recompute && *input.recompute != recompute) return false;
    input.tensor_parallel = input.pipeline_parallel = 1;
    input.micro_batches = count;
    input.recompute = recompute;
    return true;
  }

  /// Takes the best plan that fits, if one is better than what the entry has.
  void improve(Entry& entry, const std::vector<Quick>& ways) const {
    const std::unique_ptr<Experiment> experiment = experiment_of(entry.row.purchase);
    const std::vector<std::string>& asked = experiment->request.strategies;
    const strategies::StrategyInput plain = experiment->strategy_input();
    lowering::PriceCache prices(plain.step());
    for (const Quick& way : ways) {
      const std::string name(way.strategy);
      const bool equal = way.shares == strategies::ShareRule::equal;
      if (!asked.empty() && std::find(asked.begin(), asked.end(), name) == asked.end()) continue;
      if (!equal && experiment->cluster.models.size() == 1) continue;
      if (way.zero && plain.zero_stage) continue;
      strategies::StrategyInput input = plain;
      input.prices = &prices;
      if (way.zero) input.zero_stage = way.zero;
      if (!equal) input.shares = way.shares;
      if (way.accumulates && !accumulate(*way.accumulates, input)) continue;
      try {
        lowering::Estimator estimator(input.step());
        Plan plan =
            strategies::with_memory_options(input, strategies::strategy(name, "buy").plan(input));
        const strategies::Price price = strategies::estimated_price(input, estimator, plan);
        if (!price.better_than({0, Seconds{entry.step}})) continue;
        entry.step = price.step.count();
        entry.plan = std::move(plan);
      } catch (const InputError&) {  // no plan for this input
      }
    }
  }

  /// Marks the entries that no other one beats in money and time; of those in `among`.
  template <class Among, class Mark>
  void mark_front(const Among& among, const Mark& mark) {
    std::vector<Entry*> sorted;
    for (Entry& entry : entries_) {
      if (among(entry)) sorted.push_back(&entry);
    }
    std::stable_sort(sorted.begin(), sorted.end(), [this](const Entry* a, const Entry* b) {
      return std::pair(money(*a, a->step), a->step) < std::pair(money(*b, b->step), b->step);
    });
    double fastest = infinite;
    for (Entry* entry : sorted) {
      if (entry->step >= fastest) continue;
      fastest = entry->step;
      mark(*entry);
    }
  }

  void mark_fronts() {
    for (Entry& entry : entries_) entry.row.cheapest = entry.row.of_own = false;
    mark_front([](const Entry&) { return true; }, [](Entry& entry) { entry.row.cheapest = true; });
    mark_front([](const Entry& entry) { return entry.bare; },
               [](Entry& entry) { entry.row.of_own = true; });
  }

  /// Keeps what is simulated.
  void choose() {
    mark_fronts();
    std::stable_sort(entries_.begin(), entries_.end(), [this](const Entry& a, const Entry& b) {
      return std::pair(money(a, a.step), a.step) < std::pair(money(b, b.step), b.step);
    });
    if (entries_.empty()) return;
    const double least = money(entries_.front(), entries_.front().step);
    std::size_t number = 0, fronts = 0, own = 0;
    std::erase_if(entries_, [&](const Entry& entry) {
      const bool wins = number < most_simulated &&
                        money(entry, entry.step) <= strategies::hopeless_estimate * least;
      number += wins ? 1 : 0;
      const bool front = entry.row.cheapest && fronts++ < most_on_front;
      const bool bare = entry.row.of_own && own++ < most_on_front;
      return !wins && !front && !bare;
    });
  }

  void simulate(Entry& entry) {
    if (request_.poll) request_.poll();
    const std::unique_ptr<Experiment> experiment = experiment_of(entry.row.purchase);
    BuyRow& row = entry.row;
    row.run = run_plan(*experiment, {*entry.plan, {}, {}}, Operations::folded).result;
    spreads_ = experiment->spreads();
    entry.step = row.run.step_time.count();
    row.time = Seconds{steps_ * entry.step};
    row.cost = row.fixed + row.per_hour * row.time;
    if (row.run.upkeep.energy) row.energy = *row.run.upkeep.energy * steps_;
    if (row.rented || !request_.job.kilowatt_hour) return;
    if (!row.energy) {
      throw InputError("--job",
                       fmt::format("electricity, and the power of '{}' is not known", row.text),
                       "accepted: without electricity, or with the power of every GPU");
    }
    constexpr double joules_each = 3.6e6;
    row.cost.value += row.energy->value / joules_each * request_.job.kilowatt_hour->value;
  }

  void finish() {
    mark_fronts();
    std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.row.cost.value, a.row.time) < std::pair(b.row.cost.value, b.row.time);
    });
    std::vector<Contender> contenders;
    for (const Entry& entry : entries_) {
      contenders.push_back(
          {Seconds{entry.row.cost.value}, entry.row.run.parts, entry.row.run.by_model});
    }
    std::vector<double> probabilities;
    if (!entries_.empty()) probabilities = probabilities_of_fastest(contenders, spreads_);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].row.probability = probabilities[i];
      answer_.rows.push_back(std::move(entries_[i].row));
    }
  }

  const BuyRequest& request_;
  const double steps_;  ///< of a training run
  std::vector<MachineGroup> groups_;
  std::vector<Entry> entries_;
  Spreads spreads_;
  BuyAnswer answer_;
};

}  // namespace

BuyAnswer buy(const BuyRequest& request) { return Buyer(request).run(); }

}  // namespace parsim::experiment
