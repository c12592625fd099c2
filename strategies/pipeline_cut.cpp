#include "strategies/pipeline_cut.hpp"

#include <algorithm>
#include <limits>

#include "core/errors.hpp"

namespace parsim::strategies {

namespace {

constexpr double unbounded = std::numeric_limits<double>::infinity();

class Cutter {
 public:
  explicit Cutter(const ChainCosts& costs)
      : costs_(costs), stages_(costs.until.size()), layers_(costs.until.at(0).size() - 1) {
    ensure(layers_ >= stages_, "every stage of a pipeline gets a layer");
  }

  /// The least possible largest load or hand-over.
  [[nodiscard]] double least_bound() const {
    std::vector<double> best(layers_ + 1, unbounded), next;
    best[0] = 0;
    for (std::size_t s = 0; s < stages_; ++s) {
      next.assign(layers_ + 1, unbounded);
      for (std::size_t end = s + 1; end <= layers_; ++end) {
        for (std::size_t begin = end; begin-- > s;) {
          const double load = load_of(s, begin, end);
          if (load >= next[end]) break;  // and more so for those that begin earlier
          next[end] = std::min(next[end], std::max({best[begin], load, hand_over(s, begin)}));
        }
      }
      best.swap(next);
    }
    return best[layers_];
  }

  /// The least sum where no load or hand-over is above the bound; no stages if that cannot be.
  [[nodiscard]] PipelineCut within(double bound, std::int32_t micro_batches) const {
    std::vector<std::vector<double>> best(stages_ + 1, std::vector<double>(layers_ + 1, unbounded));
    std::vector<std::vector<std::size_t>> cut(stages_ + 1, std::vector<std::size_t>(layers_ + 1));
    best[0][0] = 0;
    const std::vector<std::size_t> last = last_ends(bound), first = first_begins(bound);
    for (std::size_t s = 0; s < stages_; ++s) {
      const double* const until = costs_.until[s].data();
      const double* const before = best[s].data();
      for (std::size_t end = first[s + 1]; end <= last[s + 1]; ++end) {
        double least = unbounded;
        for (std::size_t begin = std::min(end, last[s] + 1); begin-- > first[s];) {
          const double load = until[end] - until[begin];
          if (load > bound) break;
          // Without what is handed over: most are no better.
          if (before[begin] + load > least) continue;
          const double handed = hand_over(s, begin);
          if (handed > bound) continue;
          const double sum = before[begin] + load + 2 * handed;
          if (sum > least) continue;  // among equals the earlier cut
          least = sum;
          cut[s + 1][end] = begin;
        }
        best[s + 1][end] = least;
      }
    }
    PipelineCut found;
    if (best[stages_][layers_] == unbounded) return found;
    found.first.resize(stages_);
    double slowest = 0;
    std::size_t end = layers_;
    for (std::size_t s = stages_; s-- > 0;) {
      const std::size_t begin = cut[s + 1][end];
      slowest = std::max({slowest, load_of(s, begin, end), hand_over(s, begin)});
      end = found.first[s] = begin;
    }
    found.step = best[stages_][layers_] + (micro_batches - 1) * slowest;
    return found;
  }

  /// No cut's loads add up to less.
  [[nodiscard]] double least_sum() const {
    double sum = 0;
    for (std::size_t l = 0; l < layers_; ++l) {
      double least = unbounded;
      for (std::size_t s = 0; s < stages_; ++s) least = std::min(least, load_of(s, l, l + 1));
      sum += least;
    }
    return sum;
  }

 private:
  // By number of stages: where these end at the latest, and where the others begin at the earliest,
  // with a layer for each. Cuts beyond are part of none within the bound.
  [[nodiscard]] std::vector<std::size_t> last_ends(double bound) const {
    std::vector<std::size_t> last{0};
    for (std::size_t s = 0; s < stages_; ++s) {
      std::size_t end = last[s];
      while (end < layers_ - (stages_ - s - 1) && load_of(s, last[s], end + 1) <= bound) ++end;
      last.push_back(end);
    }
    return last;
  }
  [[nodiscard]] std::vector<std::size_t> first_begins(double bound) const {
    std::vector<std::size_t> first(stages_ + 1, layers_);
    for (std::size_t s = stages_; s-- > 0;) {
      std::size_t begin = first[s + 1];
      while (begin > s && load_of(s, begin - 1, first[s + 1]) <= bound) --begin;
      first[s] = begin;
    }
    return first;
  }
  [[nodiscard]] double load_of(std::size_t stage, std::size_t begin, std::size_t end) const {
    return costs_.until[stage][end] - costs_.until[stage][begin];
  }
  [[nodiscard]] double hand_over(std::size_t stage, std::size_t begin) const {
    return stage == 0 ? 0 : costs_.hand_over[stage][begin];
  }

  const ChainCosts& costs_;
  std::size_t stages_, layers_;
};

}  // namespace

PipelineCut pipeline_cut(const ChainCosts& costs, std::int32_t micro_batches) {
  const Cutter cutter(costs);
  if (micro_batches == 1) return cutter.within(unbounded, 1);  // no stage waits for the slowest
  constexpr double wider = 1.05;
  const double least = cutter.least_bound();
  const double sum = cutter.least_sum();
  PipelineCut best;
  // A cut whose slowest is below a bound costs little more than the one found within the bound.
  for (double bound = least * (1 + 1e-12);; bound *= wider) {
    if (!best.first.empty() && sum + (micro_batches - 1) * bound / wider >= best.step) return best;
    PipelineCut found = cutter.within(bound, micro_batches);
    if (!found.first.empty() && (best.first.empty() || found.step < best.step)) {
      best = std::move(found);
    }
    if (bound <= 0) return best;
  }
}

ChainCosts costs_of_units(const ChainCosts& costs, const std::vector<std::size_t>& units) {
  const std::size_t layers = costs.until.at(0).size() - 1;
  ChainCosts of_units;
  for (std::size_t s = 0; s < costs.until.size(); ++s) {
    std::vector<double>& until = of_units.until.emplace_back();
    std::vector<double>& handed = of_units.hand_over.emplace_back();
    for (const std::size_t layer : units) {
      until.push_back(costs.until[s][layer]);
      if (s > 0) handed.push_back(costs.hand_over[s][layer]);
    }
    until.push_back(costs.until[s][layers]);
  }
  return of_units;
}

PipelineCut pipeline_cut(const ChainCosts& costs, std::int32_t micro_batches,
                         const std::vector<std::size_t>& units) {
  const std::size_t layers = costs.until.at(0).size() - 1;
  if (units.size() == layers) return pipeline_cut(costs, micro_batches);
  PipelineCut cut = pipeline_cut(costs_of_units(costs, units), micro_batches);
  for (std::size_t& first : cut.first) first = units[first];
  return cut;
}

}  // namespace parsim::strategies
