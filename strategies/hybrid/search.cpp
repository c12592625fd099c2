// The genetic search over allocations. All constants are ours.
#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "core/hash.hpp"
#include "core/random.hpp"
#include "strategies/hybrid/allocation.hpp"

namespace parsim::strategies::hybrid {

namespace {

constexpr std::size_t population_size = 50, elite = 2, tournament = 3;
constexpr int most_generations = 200, patience = 30, most_repairs = 4;
/// Independent searches of a problem small enough to be descended; one of a larger one.
constexpr std::uint64_t restarts = 3;
constexpr std::size_t most_neighbours = 2048;
constexpr double crossover_rate = 0.8, reassign_rate = 0.05, swap_rate = 0.2;

struct Individual {
  Genes genes;
  Fitness fitness;
};

/// A round of descending is a fitness for each two genes and two devices.
bool small(const Problem& problem) {
  const std::size_t pairs = problem.parts * problem.replicas * problem.devices();
  return pairs * pairs / 2 <= most_neighbours;
}

class Evolution {
 public:
  Evolution(const Problem& problem, std::uint64_t seed, std::int64_t& evaluations)
      : problem_(problem), random_(seed), evaluations_(evaluations) {}

  Found run(const std::vector<Genes>& seeds) {
    for (const Genes& genes : seeds) add(genes);
    for (std::size_t i = 0; i < population_size && (evaluations_ > 0 || population_.empty()); ++i)
      add(i % 2 == 0 ? injective() : any());
    sort();
    Found found{population_[0].genes, population_[0].fitness, {}};
    int idle = 0;
    for (int generation = 0; generation < most_generations && idle < patience && evaluations_ > 0;
         ++generation) {
      next_generation();
      const bool better = population_[0].fitness.better_than(found.fitness);
      idle = better ? 0 : idle + 1;
      if (better) {
        found.genes = population_[0].genes;
        found.fitness = population_[0].fitness;
      }
      found.best_by_generation.push_back(found.fitness);
    }
    if (small(problem_)) descend(found);
    return found;
  }

 private:
  bool chance(double probability) {
    constexpr std::size_t resolution = 1U << 20;
    return static_cast<double>(random_.below(resolution)) <
           probability * static_cast<double>(resolution);
  }

  void add(Genes genes) {
    const Fitness value = fitness(problem_, genes);
    --evaluations_;
    seen_.insert(hash_of(genes));
    population_.push_back({std::move(genes), value});
  }

  /// Best first; equals stay in order.
  void sort() {
    std::stable_sort(
        population_.begin(), population_.end(),
        [](const Individual& a, const Individual& b) { return a.fitness.better_than(b.fitness); });
  }

  Genes any() {
    Genes genes(problem_.parts * problem_.replicas);
    for (std::size_t& gene : genes) gene = random_.below(problem_.devices());
    return genes;
  }

  /// Every gene on a device of its own.
  Genes injective() {
    Genes devices(problem_.devices());
    std::iota(devices.begin(), devices.end(), std::size_t{0});
    const std::size_t genes = problem_.parts * problem_.replicas;
    for (std::size_t g = 0; g < genes; ++g) {
      std::swap(devices[g], devices[g + random_.below(devices.size() - g)]);
    }
    devices.resize(genes);
    return devices;
  }

  /// The best of a few; the population is sorted.
  const Genes& parent(const std::vector<Individual>& from) {
    std::size_t best = from.size();
    for (std::size_t i = 0; i < tournament; ++i) best = std::min(best, random_.below(from.size()));
    return from[best].genes;
  }

  void next_generation() {
    const std::vector<Individual> old = std::exchange(population_, {});
    population_.assign(old.begin(),
                       old.begin() + static_cast<std::ptrdiff_t>(std::min(elite, old.size())));
    while (population_.size() < old.size() && evaluations_ > 0) {
      Genes child = parent(old);
      const Genes& other = parent(old);
      if (chance(crossover_rate)) {  // between two points; one of them may be an end
        std::size_t from = random_.below(child.size() + 1), to = random_.below(child.size() + 1);
        if (from > to) std::swap(from, to);
        for (std::size_t g = from; g < to; ++g) child[g] = other[g];
      }
      for (std::size_t& gene : child) {
        if (chance(reassign_rate)) gene = random_.below(problem_.devices());
      }
      if (chance(swap_rate)) {
        std::swap(child[random_.below(child.size())], child[random_.below(child.size())]);
      }
      // Nothing is tried twice, as long as a few more mutations help it.
      for (int i = 0; i < most_repairs && seen_.contains(hash_of(child)); ++i) {
        child[random_.below(child.size())] = random_.below(problem_.devices());
      }
      add(std::move(child));
    }
    sort();
  }

  /// To where no reassignment of one gene or two improves.
  void descend(Found& found) {
    const std::size_t genes = found.genes.size(), devices = problem_.devices();
    const auto improves = [&](const Genes& candidate) {
      if (evaluations_-- <= 0) return false;
      const Fitness value = fitness(problem_, candidate);
      if (!value.better_than(found.fitness)) return false;
      found.genes = candidate;
      found.fitness = value;
      return true;
    };
    for (bool better = true; better;) {
      better = false;
      for (std::size_t g = 0; g < genes; ++g) {
        for (std::size_t d = 0; d < devices; ++d) {
          Genes candidate = found.genes;
          candidate[g] = d;
          better = improves(candidate) || better;
        }
        for (std::size_t pair = 0; pair < g * devices * devices; ++pair) {
          Genes candidate = found.genes;
          candidate[g] = pair % devices;
          candidate[pair / (devices * devices)] = pair / devices % devices;
          better = improves(candidate) || better;
        }
      }
    }
    found.best_by_generation.push_back(found.fitness);
  }

  const Problem& problem_;
  Random random_;
  std::int64_t& evaluations_;  ///< left
  std::vector<Individual> population_;
  std::unordered_set<std::uint64_t> seen_;  ///< hashes; never iterated
};

}  // namespace

Found search(const Problem& problem, std::vector<Genes> seeds, std::uint64_t seed,
             std::int64_t* evaluations) {
  std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
  std::int64_t& left = evaluations == nullptr ? unlimited : *evaluations;
  seeds.push_back(greedy(problem));
  Genes by_replica, by_part;
  for (std::size_t r = 0; r < problem.replicas; ++r) {
    for (std::size_t i = 0; i < problem.parts; ++i) {
      by_replica.push_back(r * problem.parts + i);
      by_part.push_back(i * problem.replicas + r);
    }
  }
  seeds.push_back(std::move(by_replica));
  seeds.push_back(std::move(by_part));
  Found best = Evolution(problem, seed, left).run(seeds);
  for (std::uint64_t run = 1; run < (small(problem) ? restarts : 1) && left > 0; ++run) {
    // Without the seeds, which draw every population to themselves.
    const Found found = Evolution(problem, seed + (run << 32), left).run({});
    if (found.fitness.better_than(best.fitness)) {
      best.genes = found.genes;
      best.fitness = found.fitness;
    }
    best.best_by_generation.push_back(best.fitness);
  }
  return best;
}

}  // namespace parsim::strategies::hybrid
