#include "report/page/certainty.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"
#include "report/context.hpp"

namespace parsim::report {

namespace {

using Result = const experiment::RunResult&;

constexpr double may_be = 0.05;      ///< 90 % intervals leave as much on either side
constexpr double sure = 0.95;        ///< of the probability of being the fastest
constexpr double same_time = 0.005;  ///< of the step: less than any measurement can tell apart

double chance_of(Result plan) { return plan.probability_fastest.value_or(0); }

/// "ZeRO 1", "no ZeRO".
std::string zero_words(Result plan) {
  const std::int32_t zero = plan.degrees.zero.value_or(0);
  return zero == 0 ? "no ZeRO" : fmt::format("ZeRO {}", zero);
}

/// "58 %": of its memory that the fullest GPU uses.
std::string memory_words(Result plan) {
  const experiment::DeviceResult* const fullest = plan.fullest();
  if (fullest == nullptr) return "0 %";
  return fmt::format("{:.0f} %", 100 * static_cast<double>(fullest->peak().value) /
                                     static_cast<double>(fullest->capacity.value));
}

/// Plans that may be the fastest, the best first, apart from those that are as one with another.
std::vector<const experiment::RunResult*> contenders(
    const std::vector<const experiment::RunResult*>& plans) {
  std::vector<const experiment::RunResult*> found = {plans.front()};
  for (const experiment::RunResult* plan : plans) {
    Result last = *found.back();
    // Such plans share one probability.
    const bool again = plan->step_time == last.step_time && plan->parts == last.parts;
    if (!again && chance_of(*plan) >= may_be) found.push_back(plan);
  }
  return found;
}

/// "ZeRO 1 (53 %) and no ZeRO (47 %, 'tensor') take the same time within 0.5 %; ...".
std::string between_equal_stages(const std::vector<const experiment::RunResult*>& same) {
  Result best = *same.front();
  const bool by_zero = std::all_of(same.begin() + 1, same.end(), [&](const auto* plan) {
    strategies::Degrees degrees = plan->degrees;
    degrees.zero = best.degrees.zero;
    return degrees == best.degrees && zero_words(*plan) != zero_words(best);
  });
  const bool tie = std::all_of(same.begin(), same.end(), [&](const auto* plan) {
    return std::abs(plan->step_time / best.step_time - 1) < same_time;
  });
  std::vector<std::string> names, memory;
  for (const experiment::RunResult* plan : same) {
    const std::string name = by_zero ? zero_words(*plan) : plan->strategy;
    names.push_back(fmt::format("{} ({:.0f} %)", name, 100 * chance_of(*plan)));
    memory.push_back(fmt::format("{} needs {}", name, memory_words(*plan)));
  }
  return fmt::format("With these stages, {} {}. Of a GPU's memory, {}. ", join(names, " or "),
                     tie ? "is a tie in time" : "is open", join(memory));
}

}  // namespace

std::vector<const experiment::RunResult*> fitting(const Page& page) {
  std::vector<const experiment::RunResult*> plans;
  for (const StrategySection& section : page.sections) {
    if (section.result.fits() && section.result.same_plan_as.empty()) {
      plans.push_back(&section.result);
    }
  }
  return plans;
}

std::string who_is_fastest(const std::vector<const experiment::RunResult*>& plans) {
  if (plans.size() < 2 || !plans.front()->probability_fastest) return {};
  Result best = *plans.front();
  std::vector<const experiment::RunResult*> same;
  std::vector<std::string> rivals;
  double together = 0;
  for (const experiment::RunResult* plan : contenders(plans)) {
    if (plan == &best || !same_stages(best, *plan).empty()) {
      same.push_back(plan);
      together += chance_of(*plan);
    } else {
      rivals.push_back(fmt::format("{} ({:.0f} %)", plan->strategy, 100 * chance_of(*plan)));
    }
  }
  const bool several = same.size() > 1;
  std::string out =
      fmt::format("{}{:.0f} % likely to be the fastest of these plans{}. ",
                  several ? "This split into stages is " : "", 100 * together,
                  rivals.empty() ? "" : fmt::format("; it may also be {}", join(rivals, " or ")));
  if (several) out += between_equal_stages(same);
  const bool overlaps = std::any_of(plans.begin(), plans.end(), [&](const auto* plan) {
    return plan != &best && same_stages(best, *plan).empty() &&
           plan->step_time * plan->interval.low < best.step_time * best.interval.high;
  });
  if (together >= sure && overlaps) {
    out +=
        "Intervals of other plans overlap, but plans share most of the error: their order is "
        "surer than their times. ";
  }
  return out;
}

}  // namespace parsim::report
