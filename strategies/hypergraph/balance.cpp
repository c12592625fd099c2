#include "strategies/hypergraph/balance.hpp"

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"

namespace parsim::strategies::hypergraph {

namespace {

/// Shares as fractions of one for every constraint, part-major.
std::vector<double> fractions(std::int32_t parts, std::int32_t constraints,
                              const std::vector<double>& shares) {
  const auto p = static_cast<std::size_t>(parts), nc = static_cast<std::size_t>(constraints);
  std::vector<double> all(p * nc, 1.0);
  ensure(shares.empty() || shares.size() == p || shares.size() == p * nc,
         "shares are a number for each part, or for each part and constraint");
  if (!shares.empty()) {
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = shares.size() == all.size() ? shares[i] : shares[i / nc];
  }
  for (std::size_t c = 0; c < nc; ++c) {
    double sum = 0;
    for (std::size_t q = 0; q < p; ++q) sum += all[q * nc + c];
    ensure(sum > 0, "shares are not all zero");
    for (std::size_t q = 0; q < p; ++q) all[q * nc + c] /= sum;
  }
  return all;
}

}  // namespace

Limits limits_of(const Hypergraph& graph, std::int32_t parts, const std::vector<double>& shares,
                 double tolerance) {
  Limits limits{parts, graph.constraints, {}, {}};
  const std::vector<double> targets = fractions(parts, graph.constraints, shares);
  for (const std::int64_t total : graph.total_weights())
    limits.totals.push_back(std::max(1.0, static_cast<double>(total)));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double target = targets[i] * limits.totals[i % limits.totals.size()];
    // A part in a million more: a target that is a whole number must not be lost to rounding.
    limits.caps.push_back(
        static_cast<std::int64_t>(std::floor(target * (1 + tolerance) * (1 + 1e-6))));
  }
  return limits;
}

double overload(const Limits& limits, const std::vector<std::int64_t>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > limits.caps[i])
      sum += static_cast<double>(weights[i] - limits.caps[i]) /
             limits.totals[i % limits.totals.size()];
  }
  return sum;
}

double imbalance(const Hypergraph& graph, const Parts& parts, std::int32_t count,
                 const std::vector<double>& shares) {
  const std::vector<double> targets = fractions(count, graph.constraints, shares);
  const std::vector<std::int64_t> totals = graph.total_weights();
  const std::vector<std::int64_t> weights = part_weights(graph, parts, count);
  double worst = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double target = targets[i] * static_cast<double>(totals[i % totals.size()]);
    if (weights[i] == 0 || target <= 0) continue;
    worst = std::max(worst, static_cast<double>(weights[i]) / target - 1);
  }
  return worst;
}

}  // namespace parsim::strategies::hypergraph
