#include "experiment/failures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <variant>
#include <vector>

#include "core/errors.hpp"
#include "lowering/memory.hpp"

namespace parsim::experiment {

namespace {

constexpr std::string_view accepted_writes =
    "accepted: how long a checkpoint stops the training, as in 60s, or the rate of the storage, as "
    "in 20GB/s";

/// A rate has a '/', a time has none.
std::variant<Seconds, BytesPerSecond> parse_write(const std::string& text) {
  const std::string where = "--checkpoint-write";
  if (text.find('/') == std::string::npos) return parse_seconds(text, where);
  const BytesPerSecond rate = parse_rate(text, where);
  if (rate.value > 0) return rate;
  throw InputError(where, fmt::format("'{}'", text), std::string(accepted_writes));
}

/// Of a GPU without one of its own as the option says.
std::optional<Seconds> mtbf_of(const FailureOptions& options, const Cluster& cluster,
                               DeviceId device) {
  const std::optional<Seconds> own = cluster[device].upkeep.mtbf;
  return own || cluster.model(device).kind != DeviceKind::gpu ? own : options.mtbf;
}

}  // namespace

Seconds young_interval(const FailureRates& rates) {
  return Seconds{std::sqrt(2 * rates.write.count() * rates.mtbf.count())};
}

Seconds daly_interval(const FailureRates& rates) {
  if (rates.write >= 2 * rates.mtbf) return rates.mtbf;
  const double x = rates.write / (2 * rates.mtbf);
  return young_interval(rates) * (1 + std::sqrt(x) / 3 + x / 9) - rates.write;
}

double goodput(const FailureRates& rates, Seconds interval) {
  const double all = std::expm1((interval + rates.write) / rates.mtbf);
  return interval / rates.mtbf * std::exp(-(rates.restart / rates.mtbf)) / all;
}

Goodput goodput_of(const FailureRates& rates, Seconds step) {
  Goodput found{rates, young_interval(rates), daly_interval(rates)};
  constexpr double most = 1e15;  // steps that a double still tells apart
  const auto down = static_cast<std::int64_t>(std::clamp(found.daly / step, 1.0, most));
  found.steps_between = goodput(rates, static_cast<double>(down) * step) >=
                                goodput(rates, static_cast<double>(down + 1) * step)
                            ? down
                            : down + 1;
  found.interval = static_cast<double>(found.steps_between) * step;
  found.share = goodput(rates, found.interval);
  return found;
}

Bytes checkpoint_bytes(const Network& network, Precision precision, Optimizer optimizer) {
  return {parameter_count(network) *
          (element_bytes(precision) + lowering::optimizer_bytes(precision, optimizer))};
}

void check_failures(const FailureOptions& options, const Cluster& cluster) {
  if (options.write.empty()) return;
  (void)parse_write(options.write);
  if (options.mtbf && *options.mtbf <= Seconds{}) {
    throw InputError("--mtbf", "'0s'", "accepted: a positive time");
  }
  for (const DeviceId device : devices_of(cluster, DeviceKind::gpu)) {
    if (mtbf_of(options, cluster, device)) continue;
    throw InputError("--mtbf",
                     fmt::format("missing, and '{}' of cluster '{}' has no mtbf of its own",
                                 cluster[device].name, cluster.name),
                     "accepted: the mean time between failures of one GPU, as in 50000h, or mtbf = "
                     "\"50000 h\" of each GPU's type, of GPUs in a cluster file");
  }
}

FailureRates failure_rates(const FailureOptions& options, const Cluster& cluster,
                           std::span<const Seconds> busy, Bytes checkpoint) {
  double failures_per_second = 0;
  std::vector<bool> computes(cluster.nodes.size());
  const auto add = [&](const std::optional<Seconds>& mtbf) {
    if (mtbf) failures_per_second += 1 / mtbf->count();
  };
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    if (busy[d] <= Seconds{}) continue;
    add(mtbf_of(options, cluster, DeviceId{d}));
    computes[cluster.devices[d].node.index()] = true;
  }
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    if (computes[n]) add(cluster.nodes[n].upkeep.mtbf);
  }
  const auto write = parse_write(options.write);
  const auto* const time = std::get_if<Seconds>(&write);
  return {Seconds{1 / failures_per_second},
          time != nullptr ? *time : checkpoint / std::get<BytesPerSecond>(write), options.restart};
}

}  // namespace parsim::experiment
