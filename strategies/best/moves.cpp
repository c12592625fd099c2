#include "strategies/best/moves.hpp"

#include <algorithm>

#include "strategies/blocks.hpp"
#include "strategies/plan_support.hpp"

namespace parsim::strategies {

namespace {

bool single_stage(const Plan& plan) {
  return plan.schedule.rank_lists.size() == 1 &&
         std::all_of(plan.schedule.stage_of_layer.begin(), plan.schedule.stage_of_layer.end(),
                     [](std::int32_t stage) { return stage == 0; });
}

/// The layer's cut by sample, if that is its only one.
Cut* sample_cut(LayerPlan& layer) {
  return layer.cuts.size() == 1 && layer.cuts[0].dim == Dim::sample ? layer.cuts.data() : nullptr;
}

}  // namespace

Moves::Moves(const StrategyInput& input, std::span<const Plan> templates, std::uint64_t seed)
    : input_(input),
      templates_(templates),
      readers_(consumers(input.network)),
      units_(units_of(input.network, input.granularity)),
      random_(seed) {}

bool Moves::propose(Plan& plan) {
  old_.clear();
  buckets_changed_ = false;
  // Layers and their borders are where the time is; the rest is tried now and then.
  switch (random_.below(8)) {
    case 0:
      return shift_samples(plan);
    case 1:
      return change_buckets(plan);
    default:
      return single_stage(plan) ? borrow_layers(plan) : move_border(plan);
  }
}

void Moves::take_back(Plan& plan) {
  for (auto old = old_.rbegin(); old != old_.rend(); ++old) {
    plan.layers[old->layer] = std::move(old->plan);
    plan.schedule.stage_of_layer[old->layer] = old->stage;
  }
  if (buckets_changed_) plan.buckets = std::move(old_buckets_);
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
  if (templates_.empty()) return false;
  const Plan& lender = templates_[random_.below(templates_.size())];
  if (!single_stage(lender) || lender.schedule.micro_batches != plan.schedule.micro_batches) {
    return false;
  }
  const std::size_t count = plan.layers.size();
  const std::size_t first = random_.below(count);
  // 1, 2, 4 … layers in a row: resharding costs at both ends, so that one layer alone seldom pays.
  std::size_t length = 1;
  while (length < count && random_.below(2) == 0) length *= 2;
  for (std::size_t l = first; l < std::min(count, first + length); ++l) {
    set(plan, l, lender.layers[l], 0);
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

bool Moves::move_border(Plan& plan) {
  const std::size_t layers = plan.layers.size(), layer = random_.below(layers);
  const auto after = std::upper_bound(units_.begin(), units_.end(), layer);
  const std::size_t begin = *(after - 1), end = after == units_.end() ? layers : *after;
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
  if (neighbours.empty()) return false;
  const std::size_t neighbour = neighbours[random_.below(neighbours.size())];
  const LayerPlan wanted = plan.layers[neighbour];
  // A cut by channel would have other sizes here.
  const bool fits = std::all_of(wanted.cuts.begin(), wanted.cuts.end(), [](const Cut& cut) {
    return cut.dim == Dim::sample || cut.dim == Dim::replica;
  });
  if (!fits) return false;
  const std::int32_t to = stage[neighbour];
  for (std::size_t l = begin; l < end; ++l) set(plan, l, wanted, to);
  return true;
}

bool Moves::change_buckets(Plan& plan) {
  constexpr std::int64_t mebi = 1024 * 1024;
  constexpr std::int64_t sizes[] = {0, mebi, 4 * mebi, 10 * mebi, 25 * mebi, 50 * mebi, 100 * mebi};
  StrategyInput asked = input_;
  asked.bucket = Bytes{sizes[random_.below(std::size(sizes))]};
  old_buckets_ = std::exchange(plan.buckets, gradient_buckets(asked));
  buckets_changed_ = true;
  return plan.buckets != old_buckets_ || (take_back(plan), false);
}

}  // namespace parsim::strategies
