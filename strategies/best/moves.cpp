#include "strategies/best/moves.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "strategies/blocks.hpp"
#include "strategies/buckets.hpp"
#include "strategies/plan_support.hpp"

namespace parsim::strategies {

namespace {

/// Of bucket_sizes; larger ones are for ZeRO 3 (add_other_buckets).
constexpr std::size_t moved_sizes = 7;

bool single_stage(const Plan& plan) {
  return plan.schedule.rank_lists.size() == 1 &&
         std::all_of(plan.schedule.stage_of_layer.begin(), plan.schedule.stage_of_layer.end(),
                     [](std::int32_t stage) { return stage == 0; });
}

/// Whether they differ in memory options only.
bool same_cuts(const Plan& a, const Plan& b) {
  return std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(),
                    [](const LayerPlan& one, LayerPlan other) {
                      other.zero = one.zero;
                      other.recompute = one.recompute;
                      return one == other;
                    });
}

/// Where layers may begin to differ: with blocks, or else with layers that have weights.
std::vector<std::size_t> seams(const Network& network) {
  if (!first_layers_of_blocks(network).empty()) return units_of(network, Granularity::block);
  std::vector<std::size_t> seams{0};
  for (std::size_t l = 1; l < network.layers.size(); ++l) {
    if (!network.layers[l].parameters.empty()) seams.push_back(l);
  }
  return seams;
}

/// The same layers of every block, of the longest runs first.
void add_runs_within_blocks(const Network& network, std::vector<std::vector<LayerRun>>& runs) {
  const std::vector<std::int64_t> blocks = blocks_of(network);
  std::vector<LayerRun> whole;
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    if (!block_of(network, LayerId{l})) continue;
    if (l == 0 || blocks[l] != blocks[l - 1]) whole.push_back({l, l});
    whole.back().end = l + 1;
  }
  if (whole.empty()) return;
  std::size_t longest = 0;
  for (const LayerRun& block : whole) longest = std::max(longest, block.end - block.first);
  std::size_t length = 1;
  while (2 * length < longest) length *= 2;
  for (; length > 0; length /= 2) {
    for (std::size_t first = 0; first < longest; ++first) {
      std::vector<LayerRun>& all = runs.emplace_back();
      for (const LayerRun& block : whole) {
        const std::size_t begin = block.first + first;
        if (begin < block.end) all.push_back({begin, std::min(block.end, begin + length)});
      }
    }
  }
}

/// Layers where stages begin within blocks already, and none was asked for.
std::optional<Granularity> granularity_of(const StrategyInput& input, const Plan& plan) {
  if (input.granularity) return input.granularity;
  const std::vector<std::int64_t> blocks = blocks_of(input.network);
  const std::vector<std::int32_t>& stages = plan.schedule.stage_of_layer;
  for (std::size_t l = 1; l < blocks.size(); ++l) {
    if (blocks[l] == blocks[l - 1] && stages[l] != stages[l - 1]) return Granularity::layer;
  }
  return {};
}

/// Runs of layers that one may give other cuts together, the most promising first.
std::vector<std::vector<LayerRun>> runs_worth_a_try(const Network& network) {
  const std::vector<std::size_t> begins = seams(network);
  const std::size_t layers = network.layers.size();
  std::vector<std::vector<LayerRun>> all;
  if (!first_layers_of_blocks(network).empty() && begins.size() > 2) {
    const LayerRun before{0, begins[1]}, after{begins.back(), layers};
    all = {{after}, {before}, {before, after}, {{before.end, after.first}}};
    for (std::size_t first = after.first; first < layers; ++first) {
      for (std::size_t end = first + 1; end <= layers; ++end) all.push_back({{first, end}});
    }
  }
  for (std::size_t seam = 1; seam < begins.size(); seam += 1 + seam / 4) {
    all.push_back({{begins[begins.size() - seam], layers}});
    all.push_back({{0, begins[seam]}});
  }
  add_runs_within_blocks(network, all);
  for (std::size_t unit = 0; unit < begins.size(); ++unit) {
    all.push_back({{begins[unit], unit + 1 < begins.size() ? begins[unit + 1] : layers}});
  }
  std::vector<std::vector<LayerRun>> runs;
  for (std::vector<LayerRun>& one : all) {
    if (std::find(runs.begin(), runs.end(), one) == runs.end()) runs.push_back(std::move(one));
  }
  return runs;
}

/// The layer's cut by sample, if that is its only one.
Cut* sample_cut(LayerPlan& layer) {
  return layer.cuts.size() == 1 && layer.cuts[0].dim == Dim::sample ? layer.cuts.data() : nullptr;
}

}  // namespace

Moves::Moves(const StrategyInput& input, const Plan& start, std::span<const Plan> templates,
             std::uint64_t seed)
    : input_(input),
      readers_(consumers(input.network)),
      units_(units_of(input.network, granularity_of(input, start))),
      by_block_(gathers_blocks(input)),
      random_(seed) {
  if (!single_stage(start)) return;
  for (const Plan& lender : templates) {
    if (!single_stage(lender) || lender.schedule.micro_batches != start.schedule.micro_batches) {
      continue;
    }
    const auto lends_the_same = [&](const Plan* other) { return same_cuts(*other, lender); };
    if (std::none_of(lenders_.begin(), lenders_.end(), lends_the_same)) lenders_.push_back(&lender);
  }
  runs_ = runs_worth_a_try(input.network);
}

std::size_t Moves::listed() const {
  return moved_sizes + (lenders_.empty() ? 2 * units_.size() : runs_.size() * lenders_.size());
}

bool Moves::propose(Plan& plan, std::size_t change) {
  forget();
  if (change < moved_sizes) return change_buckets(plan, change);
  change -= moved_sizes;
  if (lenders_.empty()) return move_unit(plan, change / 2, change % 2);
  return borrow(plan, *lenders_[change % lenders_.size()], runs_[change / lenders_.size()]);
}

bool Moves::propose(Plan& plan) {
  forget();
  // Layers and their borders are where the time is; the rest is tried now and then.
  switch (random_.below(8)) {
    case 0:
      return shift_samples(plan);
    case 1:
      return change_buckets(plan, random_.below(moved_sizes));
    default:
      return lenders_.empty() ? move_border(plan) : borrow_layers(plan);
  }
}

void Moves::take_back(Plan& plan) {
  for (auto old = old_.rbegin(); old != old_.rend(); ++old) {
    plan.layers[old->layer] = std::move(old->plan);
    plan.schedule.stage_of_layer[old->layer] = old->stage;
  }
  if (buckets_changed_) plan.buckets = std::move(old_buckets_);
  forget();
}

void Moves::forget() {
  old_.clear();
  buckets_changed_ = false;
}

void Moves::set(Plan& plan, std::size_t layer, LayerPlan wanted, std::int32_t stage) {
  std::int32_t& now = plan.schedule.stage_of_layer[layer];
  wanted.zero = plan.layers[layer].zero;  // memory options are the plan's own
  wanted.recompute = plan.layers[layer].recompute;
  if (plan.layers[layer] == wanted && now == stage) return;
  old_.push_back({layer, std::move(plan.layers[layer]), now});
  plan.layers[layer] = std::move(wanted);
  now = stage;
}

bool Moves::borrow_layers(Plan& plan) {
  const Plan& lender = *lenders_[random_.below(lenders_.size())];
  const std::size_t count = plan.layers.size();
  const std::size_t first = random_.below(count);
  // 1, 2, 4 … layers in a row: resharding costs at both ends, so that one layer alone seldom pays.
  std::size_t length = 1;
  while (length < count && random_.below(2) == 0) length *= 2;
  return borrow(plan, lender, std::array{LayerRun{first, std::min(count, first + length)}});
}

bool Moves::borrow(Plan& plan, const Plan& lender, std::span<const LayerRun> runs) {
  for (const LayerRun& run : runs) {
    for (std::size_t l = run.first; l < run.end; ++l) set(plan, l, lender.layers[l], 0);
  }
  return !old_.empty();
}

bool Moves::shift_samples(Plan& plan) {
  // All layers with the same cut change together, else the shift would cost resharding.
  std::vector<std::size_t> cut;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (sample_cut(plan.layers[l]) != nullptr) cut.push_back(l);
  }
  if (cut.empty()) return false;
  const LayerPlan like = plan.layers[cut[random_.below(cut.size())]];
  std::vector<std::int64_t> sizes = like.cuts[0].sizes;
  const std::size_t from = random_.below(sizes.size()), to = random_.below(sizes.size());
  if (from == to || sizes[from] == 0) return false;
  const std::int64_t most = std::max<std::int64_t>(1, sizes[from] / 4);
  const auto moved = static_cast<std::int64_t>(random_.below(static_cast<std::size_t>(most))) + 1;
  sizes[from] -= moved;
  sizes[to] += moved;
  for (const std::size_t l : cut) {
    if (plan.layers[l].cuts != like.cuts || plan.layers[l].devices != like.devices) continue;
    LayerPlan changed = plan.layers[l];
    changed.cuts[0].sizes = sizes;
    set(plan, l, std::move(changed), plan.schedule.stage_of_layer[l]);
  }
  return true;
}

std::vector<std::size_t> Moves::neighbours(const Plan& plan, std::size_t unit) const {
  const std::size_t begin = units_[unit],
                    end = unit + 1 < units_.size() ? units_[unit + 1] : plan.layers.size();
  const std::vector<std::int32_t>& stage = plan.schedule.stage_of_layer;
  std::vector<std::size_t> neighbours;
  for (std::size_t l = begin; l < end; ++l) {
    for (const LayerId input : input_.network.layers[l].inputs) {
      if (stage[input.index()] != stage[l]) neighbours.push_back(input.index());
    }
    for (const Consumer& reader : readers_[l]) {
      if (stage[reader.layer.index()] != stage[l]) neighbours.push_back(reader.layer.index());
    }
  }
  return neighbours;
}

bool Moves::move_border(Plan& plan) {
  const std::size_t layer = random_.below(plan.layers.size());
  const auto after = std::upper_bound(units_.begin(), units_.end(), layer);
  const auto unit = static_cast<std::size_t>(after - units_.begin()) - 1;
  const std::size_t count = neighbours(plan, unit).size();
  return count > 0 && move_unit(plan, unit, random_.below(count));
}

bool Moves::move_unit(Plan& plan, std::size_t unit, std::size_t which) {
  const std::vector<std::size_t> all = neighbours(plan, unit);
  if (which >= all.size()) return false;
  const LayerPlan wanted = plan.layers[all[which]];
  // A cut by channel would have other sizes here.
  const bool fits = std::all_of(wanted.cuts.begin(), wanted.cuts.end(), [](const Cut& cut) {
    return cut.dim == Dim::sample || cut.dim == Dim::replica;
  });
  if (!fits) return false;
  const std::int32_t to = plan.schedule.stage_of_layer[all[which]];
  const std::size_t end = unit + 1 < units_.size() ? units_[unit + 1] : plan.layers.size();
  for (std::size_t l = units_[unit]; l < end; ++l) set(plan, l, wanted, to);
  return true;
}

bool Moves::change_buckets(Plan& plan, std::size_t size) {
  if (input_.bucket || (by_block_ && plan.layers[0].zero.stage == 3)) return false;
  StrategyInput asked = input_;
  asked.bucket = bucket_sizes[size];
  old_buckets_ = std::exchange(plan.buckets, gradient_buckets(asked));
  buckets_changed_ = true;
  return plan.buckets != old_buckets_ || (take_back(plan), false);
}

}  // namespace parsim::strategies
