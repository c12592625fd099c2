// Whether attention is one kernel: what a network leaves open, its devices decide.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/cluster.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim::experiment {

/// The cluster's first type of GPU that is too old for fused attention, or null: below compute
/// capability 7.5. FlashAttention 1 needs Turing (7.5), FlashAttention 2, PyTorch's flash kernels
/// since 2.2 and cuDNN's Ampere (8.0; READMEs of Dao-AILab/flash-attention, PyTorch's
/// sdp_utils.cpp, cuDNN's support matrix). On V100 and older, Megatron-LM, DeepSpeed and NVIDIA's
/// BERT multiply, scale and normalise in kernels of their own. What runs there, too, is PyTorch's
/// memory-efficient kernel (from 5.0 on, in scaled_dot_product_attention): attention=fused stands
/// for it.
[[nodiscard]] const DeviceModel* too_old_for_fused_attention(const Cluster& cluster);

/// Whether a GPU of the cluster is new enough. Then all of its GPUs run fused attention by default:
/// scaled_dot_product_attention chooses a kernel on each device, the memory-efficient one on those
/// that are too old. A plan that leaves the old GPUs out must not pay for them.
[[nodiscard]] bool any_runs_fused_attention(const Cluster& cluster);

/// A network as it is trained on a cluster.
struct NetworkOnDevices {
  Network network;
  bool by_default = false;               ///< how attention works was left open
  const DeviceModel* because = nullptr;  ///< of the cluster, too old for fused attention
};

/// `network` is the named network with fused attention by default. Where the user left attention
/// open and all GPUs are too old for it, attention scores are materialized; with a plan attention
/// is as in the plan.
[[nodiscard]] NetworkOnDevices on_devices(Network network, const std::string& name,
                                          const std::map<std::string, std::int64_t>& dims,
                                          const Cluster& cluster, const std::optional<Plan>& plan);

/// What a user should know of how attention runs: that scores are kept, or that old GPUs are taken
/// to have a fused kernel. `because` is NetworkOnDevices'.
[[nodiscard]] std::optional<std::string> attention_warning(const Network& network,
                                                           const DeviceModel* because);

/// "fused" or "eager"; nothing for a network without attention.
[[nodiscard]] std::optional<std::string> attention_of(const Network& network);

}  // namespace parsim::experiment
