// Hypergraph partitioning of the network: blocks of filters, or of filters and samples, are
// vertices, what they exchange is nets, and a partition with few words cut and balanced work is the
// plan. A RECONSTRUCTION of Eserol 2019 ("Fast and efficient model parallelism for deep
// convolutional neural networks"), of which only the abstract was available: it partitions a
// network's nodes with a hypergraph partitioner and trains them in a pipelined manner.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "strategies/hypergraph/search.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"

namespace parsim {

Plan plan_hypergraph(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  // The partitioner's tables grow with devices x sets of readers.
  constexpr std::size_t most_devices = 256;
  if (devices.size() > most_devices) {
    throw InputError("strategy 'hypergraph'", fmt::format("{} devices", devices.size()),
                     fmt::format("at most {}", most_devices));
  }
  if (input.micro_batches &&
      (*input.micro_batches < 1 || input.batch % *input.micro_batches != 0)) {
    throw InputError("strategy 'hypergraph'",
                     fmt::format("batch {} in {} micro-batches", input.batch, *input.micro_batches),
                     "a number of micro-batches that divides the batch");
  }
  std::vector<hypergraph::Recipe> recipes = hypergraph::recipes_of(input, devices.size());
  std::size_t tried = recipes.size();
  if (devices.size() == 1) tried = 1;
  const bool stopped =
      input.budget && static_cast<std::size_t>(std::max<std::int64_t>(1, *input.budget)) < tried;
  if (stopped) tried = static_cast<std::size_t>(std::max<std::int64_t>(1, *input.budget));
  const std::vector<hypergraph::Start> starts =
      devices.size() == 1 ? std::vector<hypergraph::Start>{} : hypergraph::starts_of(input);
  std::vector<Plan> plans;
  for (std::size_t i = 0; i < tried; ++i) {
    plans.push_back(hypergraph::candidate_of(input, recipes[i], starts).plan);
    if (input.simulator == nullptr && fits(input, plans.back())) {
      // Nobody to compare them by time: the first that fits, as best_by_simulation would choose.
      tried = i + 1;
      break;
    }
  }
  Plan best = std::move(plans[best_by_simulation(input, plans)]);
  best.notes.push_back(
      input.simulator == nullptr
          ? fmt::format("the first that fits of {} candidates; none was simulated", tried)
          : fmt::format("the fastest of {} simulated candidates", tried));
  if (stopped)
    best.notes.push_back(fmt::format("stopped at the budget of {} plan evaluations", tried));
  return best;
}

}  // namespace parsim
