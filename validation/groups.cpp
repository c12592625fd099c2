#include "validation/groups.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "validation/validation.hpp"

namespace parsim::validation {

namespace {

/// Predictions that differ by less are the same: floating-point sums in another order.
constexpr double same = 1e-9;

PlanGroup group_of(const std::string& name, const std::vector<const PlanRun*>& all) {
  PlanGroup group;
  group.group = name;
  std::set<std::string> plans;
  std::vector<double> measured, predicted;
  const PlanRun *best = nullptr, *chosen = nullptr;
  double least_predicted = 0;
  for (const PlanRun* run : all) {
    if (!run->measured_s) {
      group.fits_wrongly += run->fits ? 1 : 0;
      continue;
    }
    if (!run->predicted_s) continue;
    plans.insert(run->plan);
    measured.push_back(*run->measured_s);
    predicted.push_back(*run->predicted_s);
    group.over_wrongly += run->fits ? 0 : 1;
    if (best == nullptr || *run->measured_s < *best->measured_s) best = run;
    if (run->fits && (least_predicted == 0 || *run->predicted_s < least_predicted)) {
      least_predicted = *run->predicted_s;
    }
  }
  group.plans = plans.size();
  for (const PlanRun* run : all) {
    if (!run->measured_s || !run->predicted_s || !run->fits) continue;
    const bool tied = *run->predicted_s <= least_predicted * (1 + same);
    if (tied && (chosen == nullptr || *run->measured_s > *chosen->measured_s)) chosen = run;
  }
  if (best != nullptr) group.best = best->name;
  if (chosen != nullptr) {
    group.chosen = chosen->name;
    group.regret = *chosen->measured_s / *best->measured_s - 1;
  }
  group.spearman = spearman(measured, predicted);
  return group;
}

}  // namespace

std::vector<PlanGroup> plan_groups(std::span<const PlanRun> runs, std::size_t least) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const PlanRun*>> by_group;
  for (const PlanRun& run : runs) {
    std::vector<const PlanRun*>& members = by_group[run.group];
    if (members.empty()) order.push_back(run.group);
    members.push_back(&run);
  }
  std::vector<PlanGroup> groups;
  for (const std::string& name : order) {
    PlanGroup group = group_of(name, by_group[name]);
    if (group.plans >= least) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace parsim::validation
