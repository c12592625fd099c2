// Workspaces of cuDNN's plans for described devices: no GPU, no driver.
#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "hw/convolutions.hpp"
#include "hw/cuda/convolution.hpp"
#include "hw/cuda/described.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

namespace {

std::string library_name() {
  constexpr std::size_t major = 10000, minor = 100;
  const std::size_t version = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}", version / major, version % major / minor, version % minor);
}

}  // namespace

Workspaces library_workspaces(const std::vector<ExecDag>& dags,
                              const std::vector<std::string>& models) {
  Workspaces result{library_name(), {}};
  // Rows of one comparison ask for many of the same.
  struct Asked {
    ConvShape shape;
    std::int64_t bytes;  ///< -1: no plan
  };
  std::map<std::string, std::vector<Asked>> known;
  for (const ExecDag& dag : dags) {
    const Convolutions asked = convolutions(dag);
    std::vector<Workspace>& row = result.rows.emplace_back(models.size());
    for (std::size_t d = 0; d < models.size(); ++d) {
      const std::string description = description_of(models[d]);
      row[d].known = !description.empty();
      if (!row[d].known || d >= asked.by_device.size()) continue;
      for (const std::size_t s : asked.by_device[d]) {
        const ConvShape& shape = asked.shapes[s];
        std::vector<Asked>& plans = known[models[d]];
        auto plan = std::find_if(plans.begin(), plans.end(),
                                 [&](const Asked& entry) { return entry.shape == shape; });
        if (plan == plans.end()) {
          const auto made = ConvPlan::describe(description, shape);
          plans.push_back({shape, made ? made->workspace_bytes() : -1});
          plan = std::prev(plans.end());
        }
        ++row[d].shapes;
        if (plan->bytes < 0) ++row[d].unplanned;
        row[d].bytes = std::max(row[d].bytes, Bytes{plan->bytes});
      }
    }
  }
  return result;
}

}  // namespace parsim::hw
