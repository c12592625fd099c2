#include <fmt/format.h>

#include "app/predict_published.hpp"
#include "app/published_machines.hpp"

namespace parsim {

namespace {

std::string of_throughput(const Claim& claim, double error, std::optional<double> baseline) {
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
