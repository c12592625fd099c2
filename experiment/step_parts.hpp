// What a step's time depends on, by what its prices come from.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "core/spelling.hpp"
#include "core/timeline.hpp"

namespace parsim::experiment {

/// Prices whose errors have a common cause.
///   measured       kernels of a profile
///   products       matrix products, by measurements or a model of this card
///   convolutions   by a model of this card
///   attention      fused attention, by a model of this card
///   memory         kernels bound by memory: element-wise, norms, softmax, updates, copies
///   borrowed       any kernel, by the model of another card
///   inside         collectives and messages inside a machine
///   between        the same between machines
///   launches       what collectives would take without any payload
///   gaps           delays, and waiting that no operation explains
enum class CostClass : std::uint8_t {
  measured,
  products,
  convolutions,
  attention,
  memory,
  borrowed,
  inside,
  between,
  launches,
  gaps
};
constexpr std::array<std::string_view, 10> spellings(CostClass) {
  return {"measured", "products", "convolutions", "attention", "memory",
          "borrowed", "inside",   "between",      "launches",  "gaps"};
}
inline constexpr std::size_t cost_classes = spellings(CostClass{}).size();

/// Shares of a step, by CostClass; they sum to 1 unless the step takes no time.
///
/// Of the chain of operations that made the step as long as it is (core/critical_chain.hpp): as
/// long as this chain stays the longest, the share of a class is d ln(step) / d ln(price) for one
/// factor on all prices of the class.
using StepParts = std::array<double, cost_classes>;

/// Of a compute, update or local operation.
[[nodiscard]] CostClass class_of_kernel(const ExecDag& dag, OpId id, const CostModel& cost);

[[nodiscard]] StepParts step_parts(const ExecDag& dag, const Timeline& timeline,
                                   const CostModel& cost, const Cluster& cluster);

/// Where devices of several models work: of each model, the shares of the step that its busiest
/// device computes and waits for communication, by class; the rest it is idle. Communication is
/// divided among its classes as in `chain`, the step's parts.
///
/// waits   by DeviceId, what a device waits for communication
[[nodiscard]] std::vector<StepParts> parts_by_model(const ExecDag& dag, const Timeline& timeline,
                                                    const CostModel& cost, const Cluster& cluster,
                                                    const StepParts& chain,
                                                    const std::function<Seconds(DeviceId)>& waits);

}  // namespace parsim::experiment
