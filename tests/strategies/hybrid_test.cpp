// GABRA's allocation against exhaustive search, its closed form against a second one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "core/plan.hpp"
#include "strategies/hybrid/allocation.hpp"
#include "strategies/stages.hpp"
#include "tests/support/approx.hpp"

namespace parsim::strategies::hybrid {

namespace {

/// Numbers in [0, 1) that are the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t count) { return engine_() % count; }
  double unit() { return static_cast<double>(engine_() % 100'000) / 100'000; }

 private:
  std::mt19937_64 engine_;
};

/// Layers and devices in numbers: four kinds of devices in nodes of two, slow ways between nodes;
/// memory that binds in every third world.
struct World {
  std::vector<std::size_t> kinds;
  std::vector<std::vector<double>> layer_s;  ///< by kind, layer: of a sample
  std::vector<double> launch_s;              ///< by kind: of a layer
  std::vector<double> boundary_bytes, weight_bytes;
  std::vector<double> capacity_bytes;
  double near_s = 0, far_s = 0;

  World(Random& random, std::size_t layers, std::size_t devices) {
    constexpr std::size_t kind_count = 4;
    const double scale = 0.5 + random.unit();
    for (std::size_t kind = 0; kind < kind_count; ++kind) {
      layer_s.emplace_back();
      launch_s.push_back(1e-5 * random.unit());
    }
    for (std::size_t l = 0; l < layers; ++l) {
      const double work = 1e-3 * (0.1 + random.unit());
      for (std::size_t kind = 0; kind < kind_count; ++kind) {
        // Kinds differ in speed, and each likes some layers more than others.
        layer_s[kind].push_back(work * static_cast<double>(1 + kind) * (0.7 + 0.6 * random.unit()));
      }
      boundary_bytes.push_back(l == 0 ? 0 : 1e5 * random.unit());
      weight_bytes.push_back(1e7 * random.unit());
    }
    const bool tight = random.below(3) == 0;
    for (std::size_t d = 0; d < devices; ++d) {
      kinds.push_back(random.below(kind_count));
      capacity_bytes.push_back((tight ? 6e7 : 1e12) * (0.5 + random.unit()));
    }
    near_s = 1e-10 * scale;
    far_s = 1e-9 * (0.5 + 4 * random.unit());
  }

  [[nodiscard]] Problem problem(const std::vector<std::size_t>& first, std::size_t replicas,
                                std::int64_t micro_batches, std::int64_t samples) const {
    Problem p;
    p.parts = first.size();
    p.replicas = replicas;
    p.micro_batches = micro_batches;
    p.samples = samples;
    p.kinds = kinds;
    p.capacity_bytes = capacity_bytes;
    p.link = [near = near_s, far = far_s](std::size_t a, std::size_t b) {
      return a / 2 == b / 2 ? LinkCost{1e-6, near} : LinkCost{5e-6, far};
    };
    const std::size_t layers = weight_bytes.size();
    for (std::size_t i = 0; i < first.size(); ++i) {
      const std::size_t end = i + 1 < first.size() ? first[i + 1] : layers;
      p.time_s.emplace_back(layer_s.size());
      p.weight_bytes.push_back(0);
      p.memory_bytes.push_back({0, 1e5});
      for (std::size_t l = first[i]; l < end; ++l) {
        for (std::size_t kind = 0; kind < layer_s.size(); ++kind) {
          p.time_s[i][kind].fixed += launch_s[kind];
          p.time_s[i][kind].per_sample += layer_s[kind][l];
        }
        p.weight_bytes[i] += weight_bytes[l];
        p.memory_bytes[i].fixed += 3 * weight_bytes[l];
      }
      p.boundary_bytes.push_back(end < layers ? boundary_bytes[end] : 0);
    }
    return p;
  }

  /// Equal load by the mean over the devices, as step 1 of the method has it.
  [[nodiscard]] std::vector<std::size_t> equal_load(std::size_t parts) const {
    std::vector<double> until{0};
    for (std::size_t l = 0; l < weight_bytes.size(); ++l) {
      double sum = 0;
      for (const std::size_t kind : kinds) sum += layer_s[kind][l];
      until.push_back(until.back() + sum);
    }
    return chain_split(std::vector(parts, until));
  }
};

/// The closed form once more, as it is written down: replica by replica, pair by pair.
Fitness plainly(const Problem& p, const Genes& genes, const std::vector<std::int64_t>& shares) {
  const auto device = [&](std::size_t r, std::size_t i) { return genes[r * p.parts + i]; };
  const auto time = [&](std::size_t r, std::size_t i) {
    const Affine& t = p.time_s[i][p.kinds[device(r, i)]];
    return shares[r] == 0 ? 0 : t.fixed + t.per_sample * static_cast<double>(shares[r]);
  };
  const auto busy = [&](std::size_t d) {
    double sum = 0;
    for (std::size_t r = 0; r < p.replicas; ++r) {
      for (std::size_t i = 0; i < p.parts; ++i) sum += device(r, i) == d ? time(r, i) : 0;
    }
    return sum;
  };
  const auto message = [&](std::size_t r, std::size_t i) {
    if (i + 1 >= p.parts || device(r, i) == device(r, i + 1)) return 0.0;
    const LinkCost link = p.link(device(r, i), device(r, i + 1));
    return link.latency_s + static_cast<double>(shares[r]) * p.boundary_bytes[i] * link.s_per_byte;
  };
  double pipelines = 0, sync = 0;
  for (std::size_t r = 0; r < p.replicas; ++r) {
    if (shares[r] == 0) continue;
    double slowest = 0, sum = 0;
    for (std::size_t i = 0; i < p.parts; ++i) {
      slowest = std::max({slowest, busy(device(r, i)), message(r, i)});
      sum += time(r, i) + 2 * message(r, i);
    }
    // A device with parts of several replicas is busy longer than one of them takes.
    const double last = std::max(slowest, sum);
    pipelines = std::max(pipelines, static_cast<double>(p.micro_batches - 1) * slowest + last);
  }
  for (std::size_t i = 0; i < p.parts; ++i) {
    std::vector<bool> holds(p.devices(), false);
    for (std::size_t r = 0; r < p.replicas; ++r) {
      if (shares[r] > 0) holds[device(r, i)] = true;
    }
    const auto n = static_cast<double>(std::count(holds.begin(), holds.end(), true));
    double latency = 0, slowest = 0;
    for (std::size_t a = 0; a < p.devices(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if (!holds[a] || !holds[b]) continue;
        latency = std::max(latency, p.link(a, b).latency_s);
        slowest = std::max(slowest, p.link(a, b).s_per_byte);
      }
    }
    sync = std::max(sync, 2 * (n - 1) * latency + 2 * (n - 1) / n * p.weight_bytes[i] * slowest);
  }
  Fitness result{0, Seconds{pipelines + sync}};
  for (std::size_t d = 0; d < p.devices(); ++d) {
    double bytes = 0;
    for (std::size_t r = 0; r < p.replicas; ++r) {
      for (std::size_t i = 0; i < p.parts; ++i) {
        if (device(r, i) == d && shares[r] > 0) bytes += p.memory_bytes[i].at(shares[r]);
      }
    }
    result.lacking_bytes += std::max(0.0, bytes - p.capacity_bytes[d]);
  }
  return result;
}

/// The best of all allocations.
Fitness exhaustive(const Problem& problem) {
  Genes genes(problem.parts * problem.replicas, 0);
  Fitness best = fitness(problem, genes);
  for (;;) {
    std::size_t g = 0;
    while (g < genes.size() && ++genes[g] == problem.devices()) genes[g++] = 0;
    if (g == genes.size()) return best;
    const Fitness value = fitness(problem, genes);
    if (value.better_than(best)) best = value;
  }
}

struct Size {
  std::size_t parts, replicas, devices;
};

/// parts x replicas up to 6; the largest only now and then: 6 devices make 46,656 allocations.
Size any_size(Random& random, int round) {
  if (round % 50 == 0) return {2, 3, 6};
  if (round % 50 == 25) return {3, 2, 6};
  const std::vector<Size> sizes{{1, 2, 4}, {1, 3, 5}, {2, 1, 4}, {2, 1, 6}, {2, 2, 4}, {2, 2, 5},
                                {3, 1, 4}, {3, 1, 6}, {4, 1, 4}, {4, 1, 5}, {1, 4, 4}, {5, 1, 5}};
  return sizes[random.below(sizes.size())];
}

Problem any_problem(Random& random, int round) {
  const Size size = any_size(random, round);
  const World world(random, size.parts + 3 + random.below(4), size.devices);
  return world.problem(world.equal_load(size.parts), size.replicas,
                       static_cast<std::int64_t>(1 + random.below(8)),
                       static_cast<std::int64_t>(1 + random.below(32)));
}

}  // namespace

// Two parts (30 and 10 ms a sample on the slow kind, 10 and 5 on the fast), two replicas, three
// micro-batches of 4 samples. Fast devices 0 and 1, slow ones 2 and 3. A way takes 1 ms and 1 ms a
// byte; a sample's boundary is 2 bytes, weights are 8 and 16.
TEST_CASE("hybrid: the closed form by hand") {
  Problem p;
  p.parts = p.replicas = 2;
  p.micro_batches = 3;
  p.samples = 4;
  p.kinds = {0, 0, 1, 1};
  p.time_s = {{{0, .010}, {0, .030}}, {{0, .005}, {0, .010}}};
  p.boundary_bytes = {2, 0};
  p.weight_bytes = {8, 16};
  p.memory_bytes = {{100, 10}, {50, 10}};
  p.capacity_bytes = {1000, 1000, 55, 1000};
  p.link = [](std::size_t, std::size_t) { return LinkCost{.001, .001}; };
  // Slowest parts 10 and 30 ms: 3 samples to the first replica and 1 to the second.
  const Genes genes{0, 1, 2, 3};
  CHECK(replica_shares(p, genes) == std::vector<std::int64_t>{3, 1});
  // First replica: 2 · 30 + (30 + 15) + 2 (1 + 6) = 119 ms. Second: 2 · 30 + (30 + 10) + 2 (1 + 2)
  // = 106. Sums over two devices: 2 · 1 + 1 · 16 · 1 = 18 ms for the second part.
  const Fitness value = fitness(p, genes);
  CHECK(value.step.count() == testing::approx(.137));
  // Device 2 needs 100 + 10 of 55 bytes.
  CHECK(value.lacking_bytes == 55);
  // Both parts of the second replica on device 2: 40 ms busy. Its speed is 1/40 against 1/10: of 4
  // samples 0.8, so 1 again: 2 · 40 + 40 = 120 ms and no message, 1 ms later than the other
  // replica.
  CHECK(fitness(p, {0, 1, 2, 2}).step.count() == testing::approx(.138));
}

TEST_CASE("hybrid: the closed form equals a second implementation") {
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    const Problem problem = any_problem(random, round);
    Genes genes(problem.parts * problem.replicas);
    for (std::size_t& gene : genes) gene = random.below(problem.devices());
    const std::vector<std::int64_t> shares = replica_shares(problem, genes);
    const Fitness value = fitness(problem, genes, shares), plain = plainly(problem, genes, shares);
    CHECK(value.step.count() == testing::approx(plain.step.count()).epsilon(1e-12));
    CHECK(value.lacking_bytes == testing::approx(plain.lacking_bytes).epsilon(1e-12));
  }
}

namespace {

void compare_with_exhaustive(std::uint64_t seed) {
  Random random(seed);
  int lacking = 0, missed = 0;
  for (int round = 0; round < 110; ++round) {
    const Problem problem = any_problem(random, round);
    const Found found = search(problem, {}, 1);
    const Fitness best = exhaustive(problem);
    CAPTURE(round);
    CHECK(found.fitness.lacking_bytes == best.lacking_bytes);
    CHECK(found.fitness.step.count() == testing::approx(best.step.count()).epsilon(1e-12));
    missed += best.better_than(found.fitness) ? 1 : 0;
    lacking += best.lacking_bytes > 0 ? 1 : 0;
  }
  MESSAGE("110 problems, ", missed, " missed; in ", lacking, " nothing fits");
}

}  // namespace

TEST_CASE("hybrid: the genetic search finds the optimum of all allocations of small problems") {
  compare_with_exhaustive(5);
}

TEST_CASE("hybrid: the genetic search finds the optimum of as many others") {
  compare_with_exhaustive(6);
}

TEST_CASE("hybrid: the search never gets worse than its seeds or itself, and repeats itself") {
  Random random(17);
  for (int round = 0; round < 5; ++round) {
    const World world(random, 24, 16);
    const std::size_t parts = 1 + random.below(8);
    const Problem problem = world.problem(world.equal_load(parts), 16 / parts, 8, 32);
    const Found found = search(problem, {}, static_cast<std::uint64_t>(round));
    CHECK(found.fitness == fitness(problem, found.genes));
    CHECK_FALSE(fitness(problem, greedy(problem)).better_than(found.fitness));
    for (std::size_t g = 1; g < found.best_by_generation.size(); ++g) {
      CHECK_FALSE(found.best_by_generation[g - 1].better_than(found.best_by_generation[g]));
    }
    const Found again = search(problem, {}, static_cast<std::uint64_t>(round));
    CHECK(again.genes == found.genes);
    // Also from where another search ended.
    const Found further = search(problem, {found.genes}, 99);
    CHECK_FALSE(found.fitness.better_than(further.fitness));
  }
}

// GABRA allocates for a given cut. How far that is from the best over all cuts, numbers of parts
// and replicas is not bounded by anything; it is printed.
TEST_CASE("hybrid: the gap to the joint optimum over cuts, replicas and devices") {
  Random random(23);
  constexpr std::size_t layers = 5, devices = 4;
  double largest = 1, log_sum = 0;
  int count = 0, optimal = 0;
  for (int round = 0; round < 20; ++round) {
    const World world(random, layers, devices);
    Fitness best, found;
    bool first_time = true;
    for (std::size_t parts = 1; parts <= 3; ++parts) {
      const Fitness ours =
          search(world.problem(world.equal_load(parts), devices / parts, 4, 8), {}, 1).fitness;
      if (first_time || ours.better_than(found)) found = ours;
      // All cuts: the later parts begin at any increasing layers.
      std::vector<std::size_t> first(parts);
      const std::function<void(std::size_t)> cut = [&](std::size_t i) {
        if (i == parts) {
          for (std::size_t replicas = 1; parts * replicas <= devices; ++replicas) {
            const Fitness value = exhaustive(world.problem(first, replicas, 4, 8));
            if (first_time || value.better_than(best)) best = value;
            first_time = false;
          }
          return;
        }
        const std::size_t from = i == 0 ? 0 : first[i - 1] + 1;
        for (std::size_t l = from; l < (i == 0 ? 1 : layers); ++l) {
          first[i] = l;
          cut(i + 1);
        }
      };
      cut(0);
    }
    CHECK_FALSE(found.better_than(best));  // else the exhaustive search would have missed it
    if (found.lacking_bytes > 0) continue;
    const double gap = found.step / best.step;
    largest = std::max(largest, gap);
    log_sum += std::log(gap);
    ++count;
    optimal += gap < 1 + 1e-9 ? 1 : 0;
  }
  MESSAGE("gap of equal load and GABRA to the joint optimum: ", optimal, " of ", count,
          " optimal, geometric mean ", std::exp(log_sum / count), ", largest ", largest);
  CHECK(count > 5);
}

}  // namespace parsim::strategies::hybrid
