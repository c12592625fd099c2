#include "strategies/best/joint_borders.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "lowering/gradient_flow.hpp"
#include "strategies/blocks.hpp"
#include "strategies/move_borders.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"

namespace parsim::strategies {

namespace {

using First = std::vector<std::size_t>;   ///< by stage its first layer
using Counts = std::vector<std::size_t>;  ///< of blocks, by rank list or stage

constexpr double unbounded = std::numeric_limits<double>::infinity();

std::size_t end_of(const First& first, std::size_t index, std::size_t layers) {
  return index + 1 < first.size() ? first[index + 1] : layers;
}

/// Whether two runs of layers differ in their weights alone.
bool are_alike(const Network& network, std::size_t a, std::size_t b, std::size_t count) {
  for (std::size_t l = 0; l < count; ++l) {
    const Layer& one = network.layers[a + l];
    const Layer& other = network.layers[b + l];
    if (one.kind != other.kind || one.out != other.out) return false;
  }
  return true;
}

/// What the devices of a rank list take for a micro-batch and need of memory, by how many blocks
/// they have. Times are those of kernels alone: what it leads to is then priced as a whole.
struct LoadModel {
  double around = 0, block = 0;  ///< times, without recomputation
  std::vector<double> again;     ///< of a block, by rule of recomputation
  /// By rule, bytes that its fullest device needs beyond what it may use: lacking + n * each.
  std::vector<double> lacking, each;

  /// Infinite if so many blocks never fit. As recomputing_less has it.
  [[nodiscard]] double load(std::size_t blocks) const {
    const auto n = static_cast<double>(blocks);
    const auto lacks = [&](std::size_t rule) { return lacking[rule] + n * each[rule]; };
    std::size_t rule = 0;
    while (rule < again.size() && lacks(rule) > 0) ++rule;
    if (rule == again.size()) return unbounded;
    double more = n, before = 0;
    if (rule > 0) {
      const double over = lacks(rule - 1);
      more = std::clamp(std::ceil(over / (over - lacks(rule)) * n), 1.0, n);
      before = again[rule - 1];
    }
    return around + n * block + more * again[rule] + (n - more) * before;
  }
};

/// Counts of blocks with loads of at most `most` each, with the least sum of squares; empty if
/// there are none.
Counts evenest(const std::vector<std::vector<double>>& loads, std::size_t blocks, double most) {
  const std::size_t parts = loads.size();
  std::vector<double> least(blocks + 1, unbounded), next;
  std::vector<Counts> taken(parts, Counts(blocks + 1));
  least[0] = 0;
  for (std::size_t s = 0; s < parts; ++s) {
    next.assign(blocks + 1, unbounded);
    for (std::size_t all = s + 1; all <= blocks; ++all) {
      for (std::size_t own = 1; own <= all; ++own) {
        const double load = loads[s][own];
        if (load > most || least[all - own] + load * load >= next[all]) continue;
        next[all] = least[all - own] + load * load;
        taken[s][all] = own;
      }
    }
    least.swap(next);
  }
  if (least[blocks] == unbounded) return {};
  Counts counts(parts);
  for (std::size_t s = parts, left = blocks; s-- > 0;) left -= counts[s] = taken[s][left];
  return counts;
}

/// A plan whose stages are runs of blocks, with what is around these in the first and last one.
class BlockStages {
 public:
  /// rules   of recomputation, the least first
  BlockStages(const StrategyInput& input, lowering::Estimator& estimator, const Plan& plan,
              std::span<const Recompute> rules)
      : input_(input),
        estimator_(estimator),
        plan_(plan),
        rules_(rules),
        units_(units_of(input.network, Granularity::block)),
        blocks_(first_layers_of_blocks(input.network)) {
    const std::vector<RankList>& lists = plan.schedule.rank_lists;
    const auto first = first_layers_of_stages(plan);
    if (!first || lists.size() < 2 || blocks_.empty()) return;
    for (std::size_t s = 0; s < first->size(); ++s) {
      const auto begin = std::lower_bound(blocks_.begin(), blocks_.end(), (*first)[s]);
      const auto end =
          std::lower_bound(blocks_.begin(), blocks_.end(), end_of(*first, s, plan.layers.size()));
      if (begin == end || *begin != (*first)[s]) return;
      of_stages_.push_back(static_cast<std::size_t>(end - begin));
    }
    list_of_.assign(first->size(), lists.size());
    for (std::size_t d = 0; d < lists.size(); ++d) {
      for (const Slot& slot : lists[d].slots) list_of_[static_cast<std::size_t>(slot.stage)] = d;
    }
    counts_.assign(lists.size(), 0);
    chunks_.assign(lists.size(), 0);
    for (std::size_t s = 0; s < first->size(); ++s) {
      if (list_of_[s] == lists.size()) return;
      counts_[list_of_[s]] += of_stages_[s];
      ++chunks_[list_of_[s]];
    }
    known_ = std::find(chunks_.begin(), chunks_.end(), 0) == chunks_.end();
  }
  /// Whether the plan is one.
  [[nodiscard]] bool known() const { return known_; }
  /// With other numbers of blocks, recomputing as before; nothing if they differ too much (recut).
  [[nodiscard]] std::optional<Plan> with(const Counts& counts) const {
    Counts of_stages = of_stages_;
    for (std::size_t d = 0; d < counts.size(); ++d) {
      std::size_t now = counts_[d];
      for (; now < counts[d]; ++now) ++of_stages[least_stage(of_stages, d)];
      for (; now > counts[d]; --now) --of_stages[most_stage(of_stages, d)];
    }
    First first{0};
    std::size_t block = 0;
    for (std::size_t s = 0; s + 1 < of_stages.size(); ++s) {
      if (of_stages[s] == 0) return std::nullopt;
      first.push_back(blocks_[block += of_stages[s]]);
    }
    return recut(input_.network, units_, plan_, first);
  }
  /// The most promising numbers of blocks, the best first.
  [[nodiscard]] std::vector<Counts> promising(std::size_t most) {
    const std::vector<LoadModel> models = all_models();
    if (models.empty()) return {};
    std::vector<std::vector<double>> loads;
    std::set<double> limits;
    for (std::size_t d = 0; d < models.size(); ++d) {
      std::vector<double>& own = loads.emplace_back(chunks_[d], unbounded);
      while (own.size() <= blocks_.size()) own.push_back(models[d].load(own.size()));
      limits.insert(own.begin(), own.end());
    }
    limits.erase(unbounded);
    const std::vector<double> sorted(limits.begin(), limits.end());
    const auto first = std::partition_point(sorted.begin(), sorted.end(), [&](double limit) {
      return evenest(loads, blocks_.size(), limit).empty();
    });
    const auto rating = [&](const Counts& counts) {
      double longest = 0, fill = 0;
      for (std::size_t d = 0; d < counts.size(); ++d) {
        longest = std::max(longest, loads[d][counts[d]]);
        fill += loads[d][counts[d]] / static_cast<double>(chunks_[d]);
      }
      return (plan_.schedule.micro_batches - 1) * longest + fill;
    };
    const double now = rating(counts_);
    std::vector<std::pair<double, Counts>> rated;
    for (auto limit = first; limit != sorted.end() && limit - first < farthest; ++limit) {
      Counts counts = evenest(loads, blocks_.size(), *limit);
      const double then = rating(counts);
      if (then < near * now) rated.emplace_back(then, std::move(counts));
    }
    std::sort(rated.begin(), rated.end());
    rated.erase(std::unique(rated.begin(), rated.end()), rated.end());
    std::vector<Counts> best;
    for (auto& [time, counts] : rated) {
      if (best.size() < most && counts != counts_) best.push_back(std::move(counts));
    }
    return best;
  }

 private:
  static constexpr std::ptrdiff_t farthest = 12;  ///< limits of the largest load that are tried
  static constexpr double near = 1.005;           ///< times the rating of the plan

  /// Of a rank list the stage with the fewest blocks, the last one of several; or with the most,
  /// the first one: later ones have fewer micro-batches in flight.
  [[nodiscard]] std::size_t least_stage(const Counts& of_stages, std::size_t list) const {
    std::size_t least = of_stages.size();
    for (std::size_t s = 0; s < of_stages.size(); ++s) {
      if (list_of_[s] != list) continue;
      if (least == of_stages.size() || of_stages[s] <= of_stages[least]) least = s;
    }
    return least;
  }
  [[nodiscard]] std::size_t most_stage(const Counts& of_stages, std::size_t list) const {
    std::size_t most = of_stages.size();
    for (std::size_t s = 0; s < of_stages.size(); ++s) {
      if (list_of_[s] != list) continue;
      if (most == of_stages.size() || of_stages[s] > of_stages[most]) most = s;
    }
    return most;
  }

  /// By rank list and rule, bytes beyond what the fullest device may use; negative: free.
  [[nodiscard]] std::vector<std::vector<double>> lacking(const Plan& plan) {
    std::vector<std::vector<double>> all(counts_.size());
    for (const Recompute rule : rules_) {
      Plan marked = plan;
      recompute(input_.network, rule, marked, input_.recompute_every);
      const auto uses = estimated_memory(estimator_, marked);
      for (std::size_t d = 0; d < all.size(); ++d) {
        double most = -unbounded;
        for (const DeviceId device : plan.schedule.rank_lists[d].devices) {
          most = std::max(most, static_cast<double>(uses[device.index()].total().value -
                                                    input_.usable_memory(device).value));
        }
        all[d].push_back(most);
      }
    }
    return all;
  }
  /// One block more or less for each; nothing if some have too few.
  [[nodiscard]] std::optional<Counts> others() const {
    for (const std::ptrdiff_t sign : {1, -1}) {
      Counts counts;
      for (std::size_t d = 0; d < counts_.size(); ++d) {
        std::ptrdiff_t change = d % 2 == 0 ? sign : -sign;
        const bool odd = counts_.size() % 2 == 1;
        if (odd && d + 2 == counts_.size()) change = sign;
        if (odd && d + 1 == counts_.size()) change = -2 * sign;
        counts.push_back(counts_[d] + static_cast<std::size_t>(change));
        const auto now = static_cast<std::ptrdiff_t>(counts_[d]);
        if (now + change < static_cast<std::ptrdiff_t>(chunks_[d])) counts.clear();
        if (counts.empty()) break;
      }
      if (!counts.empty()) return counts;
    }
    return std::nullopt;
  }
  [[nodiscard]] double time_of(const Plan& plan, const lowering::GradientFlow& flow,
                               std::size_t l) const {
    const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
    double longest = 0;
    std::set<std::pair<std::int32_t, std::int64_t>> seen;  // models, elements
    for (const Cell& cell : cells(input_.network, LayerId{l}, plan.layers[l], samples)) {
      const std::int32_t model = input_.cluster[cell.device].model;
      if (!seen.insert({model, cell.part.out.volume()}).second) continue;
      longest =
          std::max(longest, layer_time(input_, flow, LayerId{l}, cell.part, cell.device).count());
    }
    return longest;
  }
  [[nodiscard]] std::vector<LoadModel> all_models() {
    constexpr double forward = 1.0 / 3;  // of a layer's time
    const std::optional<Counts> different = others();
    const std::optional<Plan> other = different ? with(*different) : std::nullopt;
    if (!other) return {};
    const auto here = lacking(plan_), there = lacking(*other);
    const lowering::GradientFlow flow = lowering::gradient_flow(input_.network);
    std::vector<double> times;
    for (std::size_t l = 0; l < plan_.layers.size(); ++l) times.push_back(time_of(plan_, flow, l));
    std::vector<LoadModel> models(counts_.size());
    const auto list_of = [&](std::size_t l) {
      return list_of_[static_cast<std::size_t>(plan_.schedule.stage_of_layer[l])];
    };
    const auto model_of = [&](std::size_t l) -> LoadModel& { return models[list_of(l)]; };
    const auto share_of = [&](std::size_t l) {  // of a block's
      return 1 / static_cast<double>(counts_[list_of(l)]);
    };
    for (std::size_t l = 0; l < times.size(); ++l) {
      const bool within = block_of(input_.network, LayerId{l}).has_value();
      (within ? model_of(l).block : model_of(l).around) += times[l] * (within ? share_of(l) : 1);
    }
    for (std::size_t r = 0; r < rules_.size(); ++r) {
      Plan marked = plan_;
      recompute(input_.network, rules_[r], marked, input_.recompute_every);
      for (LoadModel& model : models) model.again.push_back(0);
      for (std::size_t l = 0; l < times.size(); ++l) {
        if (marked.layers[l].recompute)
          model_of(l).again.back() += forward * times[l] * share_of(l);
      }
    }
    for (std::size_t s = 0; s < models.size(); ++s) {
      const auto now = static_cast<double>(counts_[s]), then = static_cast<double>((*different)[s]);
      for (std::size_t r = 0; r < rules_.size(); ++r) {
        const double each = (there[s][r] - here[s][r]) / (then - now);
        models[s].each.push_back(each);
        models[s].lacking.push_back(here[s][r] - now * each);
      }
    }
    return models;
  }

  const StrategyInput& input_;
  lowering::Estimator& estimator_;
  const Plan& plan_;
  std::span<const Recompute> rules_;
  std::vector<std::size_t> units_, blocks_;  ///< first layers
  Counts of_stages_, counts_, chunks_;       ///< the last two by rank list
  std::vector<std::size_t> list_of_;         ///< by stage
  bool known_ = false;
};

}  // namespace

std::optional<First> first_layers_of_stages(const Plan& plan) {
  const std::vector<std::int32_t>& stages = plan.schedule.stage_of_layer;
  First first;
  for (std::size_t l = 0; l < stages.size(); ++l) {
    const auto stage = static_cast<std::size_t>(stages[l]);
    if (stage == first.size()) first.push_back(l);
    if (stage + 1 != first.size()) return std::nullopt;
  }
  return first;
}

std::optional<Plan> recut(const Network& network, const std::vector<std::size_t>& units,
                          const Plan& plan, const First& first) {
  const std::vector<std::int32_t>& before = plan.schedule.stage_of_layer;
  Plan other = plan;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const std::size_t begin = units[u], end = end_of(units, u, plan.layers.size());
    const auto stage = static_cast<std::int32_t>(
        std::upper_bound(first.begin(), first.end(), begin) - first.begin() - 1);
    if (before[begin] == stage) continue;
    std::optional<std::size_t> like;
    for (std::size_t v = 0; v < units.size() && !like; ++v) {
      const std::size_t own = units[v];
      const bool there =
          before[own] == stage && end_of(units, v, plan.layers.size()) - own == end - begin;
      if (there && are_alike(network, begin, own, end - begin)) like = own;
    }
    if (!like) return std::nullopt;
    for (std::size_t l = begin; l < end; ++l) {
      other.layers[l] = plan.layers[*like + l - begin];
      other.schedule.stage_of_layer[l] = stage;
    }
  }
  return other;
}

std::optional<PricedPlan> with_joint_borders(const StrategyInput& input,
                                             lowering::Estimator& estimator,
                                             const PricedPlan& start) {
  constexpr std::size_t most_cuts = 8, most_work = 10'000'000;  // a second or two of walking
  if (!start.price.fits() || input.granularity == Granularity::layer) return std::nullopt;
  const MemorySearch memory(input, estimator);
  const StrategyInput plain = as_planned(input);
  const std::span<const Recompute> rules = memory.rules_with(start.memory.recompute);
  BlockStages stages(plain, estimator, start.plan, rules);
  if (!stages.known()) return std::nullopt;
  PricedPlan best = start;
  const auto improves = [&](const Counts& other) {
    std::optional<Plan> plan = stages.with(other);
    if (!plan) return false;
    recompute(input.network, rules.back(), *plan, input.recompute_every);
    plan = memory.with_less_recompute(*std::move(plan), rules.back());
    if (!accepted(input, *plan)) return false;
    const Price price = estimated_price(plain, estimator, *plan, best.price);
    if (!price.better_than(best.price)) return false;
    best.plan = *std::move(plan);
    best.price = price;
    return true;
  };
  bool better = false;
  const std::size_t cuts = std::clamp(most_work / walk_of(start.plan), std::size_t{1}, most_cuts);
  for (const Counts& other : stages.promising(cuts)) better = improves(other) || better;
  if (!better) return std::nullopt;
  const bool marked = std::any_of(best.plan.layers.begin(), best.plan.layers.end(),
                                  [](const LayerPlan& layer) { return layer.recompute; });
  if (rules.size() > 1) best.memory.recompute = marked ? rules.back() : Recompute::none;
  best.origin += ", other borders";
  return best;
}

void add_joint_borders(const StrategyInput& input, lowering::Estimator& estimator,
                       std::vector<PricedPlan>& sorted) {
  constexpr std::size_t most = 3;
  constexpr double near = 1.05;
  std::set<std::tuple<std::size_t, std::int32_t, PipelineSchedule>> kinds;
  std::vector<PricedPlan> found;
  for (const PricedPlan& one : sorted) {
    const Schedule& order = one.plan.schedule;
    const std::size_t stages = order.rank_lists.size();
    if (kinds.size() == most || one.price.step > near * sorted.front().price.step) break;
    if (stages < 2 || !kinds.insert({stages, order.micro_batches, one.schedule}).second) continue;
    if (auto other = with_joint_borders(input, estimator, one)) found.push_back(*std::move(other));
  }
  for (PricedPlan& one : found) sorted.push_back(std::move(one));
  sort_by_price(sorted);
}

}  // namespace parsim::strategies
