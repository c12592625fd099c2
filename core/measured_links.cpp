#include <array>

#include "core/link_kind.hpp"

namespace parsim {

namespace {

constexpr double unknown = -1;
// Sources of the rows (validation/measurements/README.md).
constexpr std::string_view azure = "microsoft/superbenchmark, one process for 8 GPUs";
constexpr std::string_view sheffield = "rcgsheffield/sheffield_hpc";
constexpr std::string_view aws = "aws-samples/awsome-distributed-training";
constexpr std::string_view efa_on_p4d = "aws-samples/aws-efa-eks";
constexpr std::string_view deepops = "NVIDIA/deepops";
constexpr std::string_view google = "GoogleCloudPlatform/cluster-toolkit";
constexpr std::string_view modern = "ai-dynamo/aiconfigurator @095f58a";
constexpr std::string_view deepbench = "baidu-research/DeepBench @da81ba78";
constexpr std::string_view sailor = "eth-easl/sailor @cf2c8e3, messages over 1 Gbit/s Ethernet";
constexpr std::string_view sailor_rings =
    "eth-easl/sailor @cf2c8e3, all-reduce of 210 MiB and more";

// TCP by hand: from 128 MiB on a3-highgpu reaches 0.72 to 0.73 of what line rate predicts, and
// Sailor's largest messages 114.9 of 125 MB/s. Through the host's memory by hand, too: large sums
// over 4 GPUs reach 5.0 of 15.75 GB/s (over 2 GPUs 4.1, over 8 GPUs 5.3), of RTX 3090 in pairs with
// NVLink 9.3 of 31.5; messages in one direction alone reach twice that. The rest:
// validation/fit_links.py prints these numbers; those of aiconfigurator's machines, about: they are
// from all of its sizes and versions, of which a quarter is built in. Without an efficiency:
// multicasts alone were measured (p5 of one machine), the bottleneck is another link (dual root:
// between sockets), or sizes end too early.
constexpr std::array table = {
    MeasuredLinks{LinkKind::nvlink3, "Azure ND A100 v4 (8x A100-SXM4-40GB)", 0.815, 23.8, 0.0040,
                  azure},
    MeasuredLinks{LinkKind::nvlink3, "4x A100-SXM4-80GB node, Sheffield Stanage", 0.904, 5.8,
                  0.0106, sheffield},
    MeasuredLinks{LinkKind::nvlink3, "8 x A100-SXM4-80GB, NVSwitch", 0.798, 4.4, 0.0042, modern},
    MeasuredLinks{LinkKind::nvlink4, "8 x H100-SXM5-80GB, NVSwitch", 0.875, 0.0, 0.0021, modern},
    MeasuredLinks{LinkKind::nvlink4, "AWS p5.48xlarge (Batch)", unknown, 2.3, unknown, aws},
    MeasuredLinks{LinkKind::nvlink5, "8 x B200-SXM, NVSwitch", 0.775, 3.7, 0.0011, modern},
    MeasuredLinks{LinkKind::pcie3, "4x V100-PCIe-32GB node without NVLink (Sheffield Bessemer)",
                  0.653, 6.4, 0, sheffield},
    MeasuredLinks{LinkKind::pcie3,
                  "10-GPU PCIe3 server, single root: 1 socket, 2 PLX switches with 5 GPUs each",
                  0.714, unknown, 0, deepbench},
    MeasuredLinks{LinkKind::pcie4, "8 x L40S, PCIe", 0.672, 0, 0, modern},
    MeasuredLinks{LinkKind::pcie3_host, "8 x Titan RTX (Sailor)", 0.317, unknown, unknown,
                  sailor_rings},
    MeasuredLinks{LinkKind::pcie3_host, "8 x RTX 2080 Ti (Sailor)", 0.317, unknown, unknown,
                  sailor_rings},
    MeasuredLinks{LinkKind::pcie4_host, "8 x RTX 3090 (Sailor)", 0.295, unknown, unknown,
                  sailor_rings},
    MeasuredLinks{LinkKind::infiniband, "DGX A100", 0.984, 20.5, 0.0111, deepops},
    MeasuredLinks{LinkKind::efa, "AWS p4de.24xlarge", 1, 28.3, 0.0841, aws},
    MeasuredLinks{LinkKind::efa, "AWS p5.48xlarge", 1, 40, 0.0188, aws},
    MeasuredLinks{LinkKind::efa, "AWS p4d.24xlarge (EKS)", 1, 86.2, 0.2348, efa_on_p4d},
    MeasuredLinks{LinkKind::roce, "GCP a3-megagpu-8g", 0.955, 62.2, 0.0014, google},
    MeasuredLinks{LinkKind::tcp, "GCP a3-highgpu-8g", 0.73, unknown, unknown, google},
    MeasuredLinks{LinkKind::tcp, "rtx-mix", 0.919, unknown, unknown, sailor},
};

}  // namespace

std::span<const MeasuredLinks> measured_links() { return table; }

}  // namespace parsim
