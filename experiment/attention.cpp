#include "experiment/attention.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "lowering/recompute.hpp"
#include "networks/networks.hpp"

namespace parsim::experiment {

const DeviceModel* too_old_for_fused_attention(const Cluster& cluster) {
  constexpr double least = 7.5;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
    // What has no compute capability is another maker's, whose libraries have such kernels.
    const auto capability = to_number<double>(cluster.model(gpu).architecture);
    if (capability && *capability < least) return &cluster.model(gpu);
  }
  return nullptr;
}

NetworkOnDevices on_devices(Network network, const std::string& name,
                            const std::map<std::string, std::int64_t>& dims, const Cluster& cluster,
                            const std::optional<Plan>& plan) {
  NetworkOnDevices result{std::move(network), false, nullptr};
  const std::size_t fused_layers = result.network.layers.size();
  if (attention_of(result.network) != "fused") return result;
  Network eager = networks::load_network(name, dims, "--network", {.fused_attention = false});
  result.by_default = eager.layers.size() != fused_layers;
  if (!result.by_default) return result;
  const DeviceModel* const old = too_old_for_fused_attention(cluster);
  const bool want_eager = plan ? plan->layers.size() == eager.layers.size() : old != nullptr;
  if (!want_eager) return result;
  result.network = std::move(eager);
  result.because = old;
  return result;
}

std::optional<std::string> attention_of(const Network& network) {
  if (!lowering::attention_scores(network).empty()) return "eager";
  const bool fused = std::any_of(network.layers.begin(), network.layers.end(),
                                 [](const Layer& l) { return l.kind.as<Attention>() != nullptr; });
  if (fused) return "fused";
  return std::nullopt;
}

}  // namespace parsim::experiment
