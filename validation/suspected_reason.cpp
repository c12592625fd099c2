#include <fmt/format.h>

#include "validation/predict_published.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {

namespace {

/// Of rates that are predicted too high although a row fits their kernels, so that these are not
/// the reason.
std::string of_throughput(const ValidationRow& row) {
  const Claim& claim = row.claim;
  if (row.error() < 0 || claim.unit == "ms" || !row.calibrated) return {};
  if (machines_of(claim) > 1) {
    return "between machines: contention on the path to the network card is not modelled";
  }
  if (!row.baseline_measured) return {};
  const double linear = claim.expected / *row.baseline;
  if (linear >= 0.85) return {};
  return fmt::format(
      "measured, {} reaches {:.0f} % of linear within one machine; its input pipeline and host are "
      "not modelled",
      column(claim, "framework"), 100 * linear);
}

std::string of_collective(const Claim& claim) {
  const std::int64_t size = count_column(claim, "size_bytes", 1);
  if (size < 64 * 1024) return "small: launch and latency, which links say little of";
  if (size >= 64 * 1024 * 1024) return {};
  return "medium sizes: the choice of protocol and the filling of the pipeline";
}

}  // namespace

std::string suspected_reason(const ValidationRow& row) {
  if (std::string said = column(row.claim, "reason"); !said.empty()) return said;
  if (row.claim.quantity == "throughput") return of_throughput(row);
  return row.claim.quantity == "collective-time" ? of_collective(row.claim) : std::string();
}

}  // namespace parsim::validation
