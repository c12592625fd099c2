#include <fmt/format.h>

#include <cmath>

#include "sim/sim.hpp"
#include "validation/predict_published.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_plan.hpp"

namespace parsim {

namespace {

/// Transformers under FSDP or Megatron's three ways, see validation/published_plan.hpp; "" for
/// others.
std::string of_transformer(const Claim& claim, double error) {
  if (!has_layout(claim)) return {};
  if (has_layout_file(claim)) return {};
  const RunLayout run = layout_of(claim);
  // Of an iteration's time, less is faster.
  const bool too_fast = (error > 0) != (claim.unit == "ms");
  if (column_says(claim, "parallelism", "FSDP")) {
    constexpr std::int64_t many_tokens = 8192;
    if (count_column(claim, "seq_len", 1) >= many_tokens) {
      return "attention's kernel: which version ran is assumed, and its pace is a guess";
    }
    if (!too_fast) return "";
    constexpr std::int64_t few_tokens = 8192;
    if (run.micro_batch * count_column(claim, "seq_len", 1) <= few_tokens) {
      return "FSDP's collectives run on the GPU's multiprocessors and slow down concurrent "
             "kernels, "
             "which is not modelled";
    }
    return "memory that is nearly full, clipping and an optimizer of many kernels are not modelled";
  }
  if (too_fast && run.tensor > 1) {
    return "blocks go forward again without the products that a group sums, which Megatron makes "
           "again";
  }
  if (!too_fast && run.pipeline > 1) {
    return "between stages every GPU of a group sends all that the next one needs, and gradients "
           "of "
           "two readers apart; Megatron-DeepSpeed sends a part from each, once";
  }
  return "kernels of fp16 are guessed for this card";
}

std::string of_throughput(const Claim& claim, double error, std::optional<double> baseline) {
  if (std::string reason = of_transformer(claim, error); !reason.empty()) return reason;
  const double linear = baseline ? claim.expected / *baseline : 1;
  const bool several = count_column(claim, "nodes", 1) > 1;
  if (error > 0 && !several && linear < 0.85) {
    return fmt::format(
        "{} reaches {:.0f} % of linear within one machine: its input pipeline or the host limits "
        "it, which is not modelled",
        column(claim, "framework"), 100 * linear);
  }
  if (error > 0 && several) {
    return "between machines: contention on the path to the network card, and whatever already "
           "slows the framework on one machine, are not modelled";
  }
  if (error < 0) {
    return "gradients are exchanged faster, or hidden better, than modelled: the order of "
           "variables and copies within the host are the framework's own";
  }
  return "one factor for all kernels; the framework's overlap of gradients is not known";
}

std::string of_step(const Claim& claim, double error) {
  if (column(claim, "precision").find("FP16") != std::string::npos) {
    return "16-bit storage with 32-bit arithmetic has no coefficients on this card";
  }
  const std::string network = network_of(claim);
  if (column(claim, "cudnn").empty()) {
    return "the library's version and algorithms of this run are not in the row: the median of the "
           "card's fits is taken";
  }
  if (network.starts_with("alexnet") || network == "overfeat") {
    return "kernels of 11x11 and 5x5: which of direct, FFT and Winograd the library takes is not "
           "modelled";
  }
  if (network == "googlenet") {
    return "the published GoogLeNet has no batch normalisation, ours has; many small kernels";
  }
  return error < 0 ? "batch of 16: launches and small kernels take longer than modelled"
                   : "one factor for all 3x3 convolutions of a library version";
}

std::string of_collective(const Claim& claim, double error) {
  const std::int64_t size = count_column(claim, "size_bytes", 1);
  if (size < 64 * 1024) return "launch and latency of this system, not of its links";
  if (size < 64 * 1024 * 1024) {
    return "middle sizes: the choice of protocol and the filling of the pipeline";
  }
  const bool several = count_column(claim, "nodes", 1) > 1;
  if (error < 0 && several && column_says(claim, "interconnect", "EFA")) {
    return "EFA: how many messages its NCCL plugin keeps under way is not modelled, only what each "
           "of them waits; newer versions on the same machines are twice as fast in middle sizes";
  }
  if (error < 0 && several && column_says(claim, "interconnect", "TCPX ")) {
    return "TCP between GPUs: 8 channels with 4 sockets and one thread each, by the source's "
           "settings, and a kernel that unpacks pages; NCCL's model knows neither";
  }
  if (error < 0 && several && column_says(claim, "interconnect", "TCP")) {
    return "TCP between GPUs does not reach the rate of its network cards";
  }
  if (error < 0 && column_says(claim, "machine", "Bessemer") &&
      column_says(claim, "nccl_version", "2.8.3")) {
    return "NCCL 2.8.3 takes a fifth longer than 2.4.2 on this very machine";
  }
  if (error > 0 && !column(claim, uncalibrated).empty()) {
    const double root = 1e6 * LibraryTerms{}.per_root_byte.count();
    return fmt::format(
        "the square-root term of no system in particular is {:.0f} us here; most systems have less",
        root * std::sqrt(static_cast<double>(size)));
  }
  return error < 0 ? "this system does not reach the rate of its links"
                   : "this system does better than its links are taken to";
}

}  // namespace

std::string suspected_reason(const Claim& claim, double error, std::optional<double> baseline) {
  if (claim.quantity == "throughput") return of_throughput(claim, error, baseline);
  if (claim.quantity == "step-time") return of_step(claim, error);
  return of_collective(claim, error);
}

}  // namespace parsim
