#include "strategies/mixed/candidates.hpp"

#include <algorithm>

namespace parsim::strategies::mixed {

Candidates::Candidates(const Cluster& cluster, std::vector<MixedStages> all) : cluster_(cluster) {
  for (MixedStages& one : all) alike_[key_of(one)].layouts.push_back(std::move(one));
}

Candidates::Promising Candidates::best_of(bool waits, double limit) {
  constexpr std::size_t enough = 12;
  constexpr double further = 0.99, unknown = 0.9;
  const double ratio = std::min(further * least_ratio_, learned_ < enough ? unknown : 1);
  Promising best;
  for (auto& [key, one] : alike_) {
    if (std::get<bool>(key) != waits || one.next == one.layouts.size()) continue;
    const MixedStages& layout = one.layouts[one.next];
    const auto alike = least_correction_.find(kinds_of(layout));
    const double guess = alike == least_correction_.end() ? 1 : alike->second;
    const double step = layout.step * one.correction.value_or(guess);
    if (step * ratio >= limit) continue;
    if (best.from == nullptr || step < best.step) best = {&one, step};
  }
  return best;
}

std::optional<MixedStages> Candidates::next(double limit) {
  Promising best = best_of(turn_, limit);
  if (best.from == nullptr) best = best_of(!turn_, limit);
  turn_ = !turn_;
  if (best.from == nullptr) return std::nullopt;
  expected_ = best.step;
  return best.from->layouts[best.from->next++];
}

void Candidates::learn(const MixedStages& layout, double step) {
  ++learned_;
  least_ratio_ = std::min(least_ratio_, step / expected_);
  const double correction = step / layout.step;
  alike_.at(key_of(layout)).correction = correction;
  const auto [least, first] = least_correction_.try_emplace(kinds_of(layout), correction);
  if (!first) least->second = std::min(correction, least->second);
}

Candidates::Kinds Candidates::kinds_of(const MixedStages& mixed) const {
  Kinds kinds{mixed.waits, mixed.micro_batches, {}};
  for (const LayoutStage& stage : mixed.layout.stages) {
    std::get<std::set<std::size_t>>(kinds).insert(
        static_cast<std::size_t>(cluster_[stage.groups[0][0]].model));
  }
  return kinds;
}

Candidates::Key Candidates::key_of(const MixedStages& mixed) const {
  Key key{mixed.waits, mixed.micro_batches, {}};
  for (const LayoutStage& stage : mixed.layout.stages) {
    std::get<std::set<Shape>>(key).insert(
        {static_cast<std::size_t>(cluster_[stage.groups[0][0]].model), stage.groups.size(),
         stage.groups[0].size()});
  }
  return key;
}

}  // namespace parsim::strategies::mixed
