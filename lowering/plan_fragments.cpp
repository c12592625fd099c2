#include "lowering/plan_fragments.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/errors.hpp"
#include "lowering/issue_order.hpp"

namespace parsim::lowering {

namespace {

/// Fragments are forgotten beyond this: some hundred bytes each.
constexpr std::size_t most_cells_kept = 1'000'000;

}  // namespace

Fragments& FragmentStore::of(std::int64_t samples, Framework framework) {
  std::size_t kept = 0;
  for (const auto& [of, fragments] : kept_) kept += fragments.cells_kept();
  if (kept > most_cells_kept) {
    kept_.clear();
    ++forgotten_;
  }
  return kept_
      .try_emplace({samples, framework}, network_, cluster_, structure_, samples, framework,
                   pricer_, returns_)
      .first->second;
}

void PlanFragments::find_layers(const Plan& wanted) {
  wanted_ = &wanted;
  const bool folds = finder_ != nullptr && finder_->fold(wanted, folded_);
  units = folds ? folded_.units : nullptr;
  use(folds ? folded_.plan : wanted);
}

void PlanFragments::use(const Plan& wanted) {
  plan = &wanted;
  const std::size_t count = wanted.layers.size();
  const std::int64_t samples = wanted.batch / wanted.schedule.micro_batches;
  // Nothing of the last plan helps.
  bool fresh = samples != previous_samples_ || wanted.framework != previous_.framework;
  fragments_ = &store_.of(samples, wanted.framework);
  previous_.framework = wanted.framework;
  fresh = fresh || std::exchange(forgotten_, store_.forgotten()) != store_.forgotten();
  previous_samples_ = -1;  // a refusal half-way leaves nothing to build on
  if (fresh) {
    previous_.layers.assign(count, {});
    numbers.assign(count, -1);
    layers.assign(count, nullptr);
    fans.assign(count, nullptr);
    edges_.assign(structure.first_edge.back() + 1, nullptr);
    changed_.assign(count, false);
    stale_.assign(count, false);
    buckets_.clear();
  }
  for (std::size_t l = 0; l < count; ++l) {
    if (layers[l] != nullptr && wanted.layers[l] == previous_.layers[l]) continue;
    const std::int32_t number = fragments_->layer(LayerId{l}, wanted.layers[l]);
    previous_.layers[l] = wanted.layers[l];
    if (number == numbers[l]) continue;
    const LayerFragment* const before =
        std::exchange(layers[l], &fragments_->layer(LayerId{l}, number));
    changed_[l] = true;
    numbers[l] = number;
    if (before != nullptr && before->moves == layers[l]->moves) continue;
    stale_[l] = true;
    for (const LayerId producer : network.layers[l].inputs) stale_[producer.index()] = true;
  }
  previous_samples_ = samples;
}

void PlanFragments::find_order() {
  const Schedule& schedule = plan->schedule;
  const bool other_schedule = rounds.empty() || schedule != previous_.schedule;
  if (other_schedule) {
    rounds = issue_order(network, schedule);
    find_rows();
    members.clear();
    forward_visits.clear();
    for (std::size_t l = 0; l < schedule.stage_of_layer.size(); ++l) {
      const auto stage = static_cast<std::size_t>(schedule.stage_of_layer[l]);
      if (stage >= members.size()) members.resize(stage + 1);
      members[stage].emplace_back(l);
    }
    for (const std::vector<LayerId>& stage : members) {
      std::vector<LayerVisit>& visits = forward_visits.emplace_back();
      for (const LayerId id : stage) {
        if (!structure.flow.source[id.index()]) visits.push_back({id, true});
      }
    }
    previous_.schedule = schedule;
  }
  std::vector<bool> drops = dropped_outputs(network, *plan);
  if (!other_schedule && drops == dropped) return;
  dropped = std::move(drops);
  backward_visits.clear();
  for (const std::vector<LayerId>& stage : members) {
    backward_visits.push_back(lowering::backward_visits(network, structure.flow, dropped, stage));
  }
}

void PlanFragments::find_rows() {
  const auto count = static_cast<std::size_t>(plan->schedule.micro_batches);
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> last(count, none);  // round
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    for (const Slot& slot : rounds[r]) last[static_cast<std::size_t>(slot.micro_batch)] = r;
  }
  begun.assign(rounds.size(), {});
  row_of.assign(count, none);
  rows = 0;
  std::vector<std::size_t> free;
  std::vector<std::vector<std::size_t>> ended(rounds.size());  // rows
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    for (const Slot& slot : rounds[r]) {
      const auto m = static_cast<std::size_t>(slot.micro_batch);
      if (row_of[m] != none) continue;
      if (free.empty()) free.push_back(rows++);
      row_of[m] = free.back();
      free.pop_back();
      begun[r].push_back(slot.micro_batch);
      ended[last[m]].push_back(row_of[m]);
    }
    free.insert(free.end(), ended[r].begin(), ended[r].end());
  }
}

void PlanFragments::find_rest() {
  const bool folded = units != nullptr;
  try {
    // Units may turn out to have other shares of the states than those that they are like.
    for (; units != nullptr; find_layers(*wanted_)) {
      if (find_rest_of_plan()) return;
    }
  } catch (const InputError&) {  // refused again below, for all devices
    units = nullptr;
  }
  if (folded) use(*wanted_);
  ensure(find_rest_of_plan(), "all devices of a plan make up its sums");
}

void PlanFragments::find_fan_out(LayerId producer) {
  const FanOut& fan = fragments_->fan_out(producer, numbers);
  fans[producer.index()] = &fan;
  const std::vector<Consumer>& readers = structure.readers[producer.index()];
  for (std::size_t r = 0; r < readers.size(); ++r)
    edges_[structure.first_edge[readers[r].layer.index()] + readers[r].input] = &fan.edges[r];
}

bool PlanFragments::find_rest_of_plan() {
  const std::int64_t samples = std::exchange(previous_samples_, -1);
  find_order();
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (stale_[l] && !structure.flow.source[l]) find_fan_out(LayerId{l});
  }
  const bool other_units = std::exchange(previous_units_, units) != units;
  if (buckets_.empty() || other_units || plan->buckets != previous_.buckets) {
    buckets_ = bucket_order(network, *plan);
    previous_.buckets = plan->buckets;
    sums_of_bucket_.assign(buckets_.size(), nullptr);
  }
  sums.clear();
  bool alike = true;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto touched = [&](ParameterId id) {
      const std::vector<LayerId>& users = structure.users[id.index()];
      return std::any_of(users.begin(), users.end(),
                         [&](LayerId user) { return changed_[user.index()]; });
    };
    if (sums_of_bucket_[b] == nullptr ||
        std::any_of(buckets_[b].begin(), buckets_[b].end(), touched)) {
      sums_of_bucket_[b] = fragments_->sums(buckets_[b], numbers, units);
      alike = alike && sums_of_bucket_[b] != nullptr;
    }
    if (!alike) continue;  // how all buckets differ is asked at once
    for (const SumFragment& sum : *sums_of_bucket_[b]) sums.push_back(&sum);
  }
  if (!alike) {
    buckets_.clear();
    finder_->refuse(*wanted_, fragments_->take_apart());
    return false;
  }
  changed_.assign(layers.size(), false);
  stale_.assign(layers.size(), false);
  previous_samples_ = samples;
  return true;
}

}  // namespace parsim::lowering
