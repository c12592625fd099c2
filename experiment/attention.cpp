#include "experiment/attention.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "lowering/recompute.hpp"
#include "networks/networks.hpp"

namespace parsim::experiment {

namespace {

bool is_too_old(const DeviceModel& gpu) {
  constexpr double least = 7.5;
  // What has no compute capability is another maker's, whose libraries have such kernels.
  const auto capability = to_number<double>(gpu.architecture);
  return capability && *capability < least;
}

}  // namespace

const DeviceModel* too_old_for_fused_attention(const Cluster& cluster) {
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
    if (is_too_old(cluster.model(gpu))) return &cluster.model(gpu);
  }
  return nullptr;
}

bool any_runs_fused_attention(const Cluster& cluster) {
  const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
  return std::any_of(gpus.begin(), gpus.end(),
                     [&](DeviceId gpu) { return !is_too_old(cluster.model(gpu)); });
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
  const bool all_old = old != nullptr && !any_runs_fused_attention(cluster);
  const bool want_eager = plan ? plan->layers.size() == eager.layers.size() : all_old;
  if (!want_eager) {
    result.because = old;
    return result;
  }
  result.network = std::move(eager);
  result.because = old;
  return result;
}

std::optional<std::string> attention_warning(const Network& network, const DeviceModel* because) {
  const bool eager = !lowering::attention_scores(network).empty();
  if (!eager && because == nullptr) return std::nullopt;
  const std::string old = because == nullptr
                              ? ""
                              : fmt::format("{} (compute capability {}; fused kernels need 7.5)",
                                            because->name, because->architecture);
  if (!eager) {
    return fmt::format(
        "attention is fused on all GPUs, also on {}, which are taken to run PyTorch's "
        "memory-efficient kernel; attention=eager in a formula or \"attn_implementation\": "
        "\"eager\" in a config.json is for trainers that keep the scores",
        old);
  }
  return fmt::format(
      "attention is eager{}: its scores are written, read and kept for the backward pass "
      "(unless --recompute drops them), which takes more time and memory than a fused kernel",
      old.empty() ? "" : ", the default for " + old);
}

std::optional<std::string> attention_of(const Network& network) {
  if (!lowering::attention_scores(network).empty()) return "eager";
  const bool fused = std::any_of(network.layers.begin(), network.layers.end(),
                                 [](const Layer& l) { return l.kind.as<Attention>() != nullptr; });
  if (fused) return "fused";
  return std::nullopt;
}

}  // namespace parsim::experiment
