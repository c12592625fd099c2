#include "experiment/many_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "lowering/lower.hpp"

namespace parsim::experiment {

namespace {

/// How many parts that are not empty cuts make.
struct Parts {
  double samples = 1;  ///< along samples
  double others = 1;   ///< along all other dimensions that count
  [[nodiscard]] double all() const { return samples * others; }
};

/// `output`: only parts that differ in what they hold of the output.
Parts parts_of(const LayerPlan& layer, bool output) {
  Parts parts;
  for (const Cut& cut : layer.cuts) {
    const bool copies = cut.dim == Dim::replica || cut.dim == Dim::in_channel;
    if (output && copies) continue;
    const auto empty = std::count(cut.sizes.begin(), cut.sizes.end(), 0);
    (cut.dim == Dim::sample ? parts.samples : parts.others) *=
        static_cast<double>(std::ssize(cut.sizes) - empty);
  }
  return parts;
}

std::vector<DeviceId> sorted_devices(const LayerPlan& layer) {
  std::vector<DeviceId> devices = layer.devices;
  std::sort(devices.begin(), devices.end());
  return devices;
}

}  // namespace

double messages_between_groups(const Network& network, const Plan& plan) {
  double messages = 0;
  for (std::size_t r = 0; r < plan.layers.size(); ++r) {
    const LayerPlan& reader = plan.layers[r];
    for (const LayerId producer : network[LayerId{r}].inputs) {
      const LayerPlan& other = plan.layers[producer.index()];
      const bool same_devices =
          other.devices == reader.devices || sorted_devices(other) == sorted_devices(reader);
      if (same_devices && other.cuts == reader.cuts) continue;
      const Parts to = parts_of(reader, false);
      // Parts may be empty: devices of the plan that take no part in the layer.
      if (same_devices && parts_of(other, false).all() == to.all()) continue;
      const Parts from = parts_of(other, true);
      messages += from.others * to.others * std::max(from.samples, to.samples);
    }
  }
  constexpr double there_and_back = 2;
  return there_and_back * messages * static_cast<double>(plan.schedule.micro_batches);
}

std::string warning_of_many_messages(const Network& network, const Cluster& cluster,
                                     const Plan& plan) {
  constexpr double many = 1e6;
  double messages = messages_between_groups(network, plan);
  if (messages < many) return {};
  if (const std::optional<Plan> one = lowering::one_replica(cluster, plan))
    messages = messages_between_groups(network, *one);
  if (messages < many) return {};
  constexpr double seconds_each = 7e-6, gigabytes_each = 0.6e-6;
  const double seconds = messages * seconds_each;
  return fmt::format(
      "the plan of '{}' sends about {:.2g} million messages a step between layers on different "
      "devices: its simulation takes about {:.0f} {} and {:.2g} GB; fewer devices or another "
      "strategy take less",
      plan.strategy, messages / 1e6, seconds < 120 ? seconds : seconds / 60,
      seconds < 120 ? "s" : "min", messages * gigabytes_each);
}

}  // namespace parsim::experiment
