// Before the walk: finds the fragments of a plan and allocates the table of its times.
#include <algorithm>

#include "lowering/estimate/walk.hpp"
#include "lowering/issue_order.hpp"

namespace parsim::lowering {

namespace {

/// Fragments are forgotten beyond this: some hundred bytes each.
constexpr std::size_t most_cells_kept = 1'000'000;

}  // namespace

void Estimator::State::begin(const Plan& wanted) {
  plan = &wanted;
  const Schedule& schedule = wanted.schedule;
  const bool other_schedule = by_samples.empty() || schedule != previous.schedule;
  if (other_schedule) {
    order = issue_order(input.network, schedule);
    members.clear();
    for (std::size_t l = 0; l < schedule.stage_of_layer.size(); ++l) {
      const auto stage = static_cast<std::size_t>(schedule.stage_of_layer[l]);
      if (stage >= members.size()) members.resize(stage + 1);
      members[stage].emplace_back(l);
    }
    previous.schedule = schedule;
  }
  std::vector<bool> drops = dropped_outputs(input.network, wanted);
  if (other_schedule || drops != dropped) {
    dropped = std::move(drops);
    visits.clear();
    for (const std::vector<LayerId>& stage : members) {
      visits.push_back(backward_visits(input.network, structure.flow, dropped, stage));
    }
  }
  const std::int64_t samples = wanted.batch / schedule.micro_batches;
  bool fresh = samples != previous_samples;  // nothing of the last plan helps
  if (!by_samples.empty() && by_samples.begin()->second.cells_kept() > most_cells_kept) {
    by_samples.clear();
    fresh = true;
  }
  Fragments& fragments =
      by_samples.try_emplace(samples, input, structure, communications, samples).first->second;
  previous_samples = -1;  // a refusal half-way leaves nothing to build on
  find_fragments(wanted, fragments, fresh);
  previous_samples = samples;
  lay_out();
  collect_sums();
}

/// Finds the fragments of a plan; only those of layers that differ from the last plan.
void Estimator::State::find_fragments(const Plan& wanted, Fragments& fragments, bool fresh) {
  const std::size_t count = wanted.layers.size();
  if (fresh) {
    previous.layers.assign(count, {});
    numbers.assign(count, -1);
    layers.assign(count, nullptr);
    fans.assign(count, nullptr);
  }
  std::vector<bool> changed(count, false), stale(count, false);
  for (std::size_t l = 0; l < count; ++l) {
    if (layers[l] != nullptr && wanted.layers[l] == previous.layers[l]) continue;
    const std::int32_t number = fragments.layer(LayerId{l}, wanted.layers[l]);
    previous.layers[l] = wanted.layers[l];
    changed[l] = true;
    numbers[l] = number;
    layers[l] = &fragments.layer(LayerId{l}, number);
    stale[l] = true;
    for (const LayerId producer : input.network.layers[l].inputs) stale[producer.index()] = true;
  }
  for (std::size_t l = 0; l < count; ++l) {
    if (stale[l] && !structure.flow.source[l]) fans[l] = &fragments.fan_out(LayerId{l}, numbers);
  }
  const bool same_buckets = !fresh && wanted.buckets == previous.buckets && !buckets.empty();
  if (!same_buckets) {
    buckets = bucket_order(input.network, wanted);
    previous.buckets = wanted.buckets;
    sums_of_bucket.assign(buckets.size(), nullptr);
  }
  sums.clear();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const auto touched = [&](ParameterId id) {
      const std::vector<LayerId>& users = structure.users[id.index()];
      return std::any_of(users.begin(), users.end(),
                         [&](LayerId user) { return changed[user.index()]; });
    };
    if (sums_of_bucket[b] == nullptr ||
        std::any_of(buckets[b].begin(), buckets[b].end(), touched)) {
      sums_of_bucket[b] = &fragments.sums(buckets[b], numbers);
    }
    for (const SumFragment& sum : *sums_of_bucket[b]) sums.push_back(&sum);
  }
}

void Estimator::State::lay_out() {
  const auto micro = static_cast<std::size_t>(plan->schedule.micro_batches);
  offsets.resize(layers.size() * micro);
  waiting_in.resize(offsets.size());
  joined.resize(offsets.size());
  last_backward.resize(layers.size());
  std::size_t size = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::size_t cells = layers[l]->cells.size();
    const std::size_t arrivals = fans[l] == nullptr ? 0 : fans[l]->arrivals.size();
    const std::size_t legs = fans[l] == nullptr ? 0 : fans[l]->legs;
    last_backward[l].assign(cells, 0);
    for (std::size_t m = 0; m < micro; ++m) {
      offsets[l * micro + m] = {size, size + cells, size + 2 * cells, size + 2 * cells + arrivals};
      waiting_in[l * micro + m].clear();
      joined[l * micro + m].clear();
      size += 2 * cells + arrivals + legs;
    }
  }
  table.assign(size, not_yet);
  queues.assign(input.cluster.devices.size() * static_cast<std::size_t>(queues_per_device), 0);
  links.assign(2 * input.cluster.links.size(), 0);
  latest = 0;
}

void Estimator::State::collect_sums() {
  sums_of_layer.resize(layers.size());
  for (std::vector<std::size_t>& list : sums_of_layer) list.clear();
  backward_left.assign(sums.size(), 0);
  pushed.resize(sums.size());
  mirrors_done.resize(sums.size());
  returned.assign(sums.size(), false);
  for (std::size_t s = 0; s < sums.size(); ++s) {
    pushed[s].clear();
    mirrors_done[s].clear();
    for (const LayerId id : sums[s]->group.layers) {
      if (!structure.flow.reaches_loss[id.index()]) continue;
      sums_of_layer[id.index()].push_back(s);
      backward_left[s] += plan->schedule.micro_batches;
    }
  }
}

}  // namespace parsim::lowering
