#include "strategies/hybrid/allocation.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/errors.hpp"
#include "core/plan.hpp"

namespace parsim::strategies::hybrid {

namespace {

/// Every pair of holders of a part is looked at up to this many; beyond, neighbours only.
constexpr std::size_t all_pairs_up_to = 64;

/// Slowest route between any two of the devices, because any ring may use it.
LinkCost slowest_link(const Problem& problem, const std::vector<std::size_t>& devices) {
  LinkCost slowest;
  const auto meet = [&](std::size_t a, std::size_t b) {
    if (a == b) return;
    const LinkCost link = problem.link(a, b);
    slowest.latency_s = std::max(slowest.latency_s, link.latency_s);
    slowest.s_per_byte = std::max(slowest.s_per_byte, link.s_per_byte);
  };
  for (std::size_t i = 1; i < devices.size(); ++i) {
    const std::size_t first = devices.size() <= all_pairs_up_to ? 0 : i - 1;
    for (std::size_t j = first; j < i; ++j) meet(devices[j], devices[i]);
  }
  return slowest;
}

double all_reduce_s(const Problem& problem, const Genes& genes,
                    const std::vector<std::int64_t>& shares, std::size_t part) {
  std::vector<std::size_t> holders;
  for (std::size_t r = 0; r < problem.replicas; ++r) {
    if (shares[r] > 0) holders.push_back(genes[r * problem.parts + part]);
  }
  std::sort(holders.begin(), holders.end());
  holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
  if (holders.size() < 2) return 0;
  const LinkCost link = slowest_link(problem, holders);
  const auto n = static_cast<double>(holders.size());
  return 2 * (n - 1) * link.latency_s +
         2 * (n - 1) / n * problem.weight_bytes[part] * link.s_per_byte;
}

}  // namespace

std::vector<std::int64_t> replica_shares(const Problem& problem, const Genes& genes) {
  const auto replicas = static_cast<std::int64_t>(problem.replicas);
  const std::int64_t usual = std::max<std::int64_t>(1, problem.samples / replicas);
  std::vector<double> speeds;
  std::vector<double> load(problem.devices());
  for (std::size_t r = 0; r < problem.replicas; ++r) {
    const std::size_t* const mine = &genes[r * problem.parts];
    for (std::size_t i = 0; i < problem.parts; ++i) load[mine[i]] = 0;
    for (std::size_t i = 0; i < problem.parts; ++i) {
      load[mine[i]] += problem.time_s[i][problem.kinds[mine[i]]].at(usual);
    }
    double slowest = 0;
    for (std::size_t i = 0; i < problem.parts; ++i) slowest = std::max(slowest, load[mine[i]]);
    speeds.push_back(slowest > 0 ? 1 / slowest : 1);
  }
  return proportional_split(problem.samples, speeds);
}

Fitness fitness(const Problem& problem, const Genes& genes,
                const std::vector<std::int64_t>& shares) {
  std::vector<double> load(problem.devices(), 0.0), memory(problem.devices(), 0.0);
  for (std::size_t g = 0; g < genes.size(); ++g) {
    const std::int64_t samples = shares[g / problem.parts];
    if (samples == 0) continue;
    const std::size_t part = g % problem.parts;
    load[genes[g]] += problem.time_s[part][problem.kinds[genes[g]]].at(samples);
    memory[genes[g]] += problem.memory_bytes[part].at(samples);
  }
  double longest = 0;
  for (std::size_t r = 0; r < problem.replicas; ++r) {
    if (shares[r] == 0) continue;
    const std::size_t* const mine = &genes[r * problem.parts];
    double bottleneck = 0, once = 0;
    for (std::size_t i = 0; i < problem.parts; ++i) {
      once += problem.time_s[i][problem.kinds[mine[i]]].at(shares[r]);
      bottleneck = std::max(bottleneck, load[mine[i]]);
      if (i + 1 == problem.parts || mine[i] == mine[i + 1]) continue;
      const LinkCost link = problem.link(mine[i], mine[i + 1]);
      const double message = link.latency_s + static_cast<double>(shares[r]) *
                                                  problem.boundary_bytes[i] * link.s_per_byte;
      once += 2 * message;
      bottleneck = std::max(bottleneck, message);
    }
    const auto further = static_cast<double>(problem.micro_batches - 1);
    longest = std::max(longest, further * bottleneck + std::max(bottleneck, once));
  }
  double sync = 0;
  for (std::size_t i = 0; i < problem.parts; ++i) {
    sync = std::max(sync, all_reduce_s(problem, genes, shares, i));
  }
  Fitness result{0, Seconds{longest + sync}};
  for (std::size_t d = 0; d < problem.devices(); ++d) {
    result.lacking_bytes += std::max(0.0, memory[d] - problem.capacity_bytes[d]);
  }
  return result;
}

Fitness fitness(const Problem& problem, const Genes& genes) {
  return fitness(problem, genes, replica_shares(problem, genes));
}

Genes greedy(const Problem& problem) {
  const std::int64_t usual =
      std::max<std::int64_t>(1, problem.samples / static_cast<std::int64_t>(problem.replicas));
  const auto time = [&](std::size_t part, std::size_t device) {
    return problem.time_s[part][problem.kinds[device]].at(usual);
  };
  std::vector<std::size_t> by_length(problem.parts);
  std::iota(by_length.begin(), by_length.end(), std::size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](std::size_t a, std::size_t b) { return time(a, 0) > time(b, 0); });
  ensure(problem.parts * problem.replicas <= problem.devices(), "a free device for every gene");
  Genes genes(problem.parts * problem.replicas);
  std::vector<bool> taken(problem.devices(), false);
  for (const std::size_t part : by_length) {
    std::vector<std::size_t> fastest;
    for (std::size_t d = 0; d < problem.devices(); ++d) {
      if (!taken[d]) fastest.push_back(d);
    }
    std::stable_sort(fastest.begin(), fastest.end(),
                     [&](std::size_t a, std::size_t b) { return time(part, a) < time(part, b); });
    for (std::size_t r = 0; r < problem.replicas; ++r) {
      genes[r * problem.parts + part] = fastest[r];
      taken[fastest[r]] = true;
    }
  }
  return genes;
}

}  // namespace parsim::strategies::hybrid
