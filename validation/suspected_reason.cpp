#include <fmt/format.h>

#include "validation/predict_published.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {

namespace {

std::string of_throughput(const Claim& claim, double error, std::optional<double> baseline) {
  if (error < 0 || claim.unit == "ms") return {};
  if (machines_of(claim) > 1) {
    return "between machines: contention on the path to the network card, and whatever already "
           "slows the framework on one machine, are not modelled";
  }
  const double linear = baseline ? claim.expected / *baseline : 1;
  if (linear >= 0.85) return {};
  return fmt::format(
      "{} reaches {:.0f} % of linear within one machine: its input pipeline or the host limits it, "
      "which is not modelled",
      column(claim, "framework"), 100 * linear);
}

std::string of_collective(const Claim& claim) {
  const std::int64_t size = count_column(claim, "size_bytes", 1);
  if (size < 64 * 1024) return "launch and latency of this system, not of its links";
  if (size >= 64 * 1024 * 1024) return {};
  return "medium sizes: the choice of protocol and the filling of the pipeline";
}

}  // namespace

std::string suspected_reason(const Claim& claim, double error, std::optional<double> baseline) {
  if (std::string said = column(claim, "reason"); !said.empty()) return said;
  if (claim.quantity == "throughput") return of_throughput(claim, error, baseline);
  return claim.quantity == "collective-time" ? of_collective(claim) : std::string();
}

}  // namespace parsim::validation
