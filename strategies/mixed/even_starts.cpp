#include "strategies/mixed/even_starts.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace parsim::strategies::mixed {

namespace {

/// Stages x blocks of programmes, about a third of a second.
constexpr std::size_t most_even_work = 10'000'000;

/// The stages of one class.
struct Run {
  std::size_t shape = 0, stages = 0;
  double rate = 0;  ///< networks a second, of all of them
};

/// By order of classes, their runs.
struct Start {
  std::vector<Run> runs;
  double period = 0;  ///< of a micro-batch, at least
};

class Starts {
 public:
  Starts(const StrategyInput& input, const std::vector<DeviceClass>& classes, StageCosts& costs,
         StageTable& table)
      : input_(input), classes_(classes), costs_(costs), table_(table) {}

  /// All of them, those of the shortest periods first.
  std::vector<Start> all() {
    const std::int64_t samples = input_.batch / table_.micro_batches();
    for (std::int64_t replicas = 1; replicas <= samples; replicas *= 2) {
      if (input_.data_parallel.value_or(static_cast<std::int32_t>(replicas)) != replicas) continue;
      runs_.assign(classes_.size(), {});
      for (std::size_t c = 0; c < classes_.size(); ++c) {
        for (std::size_t tensor = 1; tensor <= classes_[c].of_machine(); tensor *= 2) {
          add_run(c, tensor, static_cast<std::size_t>(replicas));
        }
      }
      combine(std::vector<bool>(classes_.size(), false), {});
    }
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Start& a, const Start& b) { return a.period < b.period; });
    return std::move(found_);
  }

 private:
  void add_run(std::size_t of_class, std::size_t tensor, std::size_t replicas) {
    const auto asked = static_cast<std::size_t>(input_.tensor_parallel.value_or(0));
    const DeviceClass& of = classes_[of_class];
    const std::size_t machine = of.of_machine(), devices = tensor * replicas;
    if ((asked > 0 && tensor != asked) || devices > of.size()) return;
    const std::size_t machines = (replicas + machine / tensor - 1) / (machine / tensor);
    const std::size_t stages = devices <= machine ? of.machines.size() * (machine / devices)
                                                  : of.machines.size() / machines;
    if (stages == 0) return;
    const std::optional<std::size_t> shape = table_.add({{{of_class, tensor, replicas, {}}}});
    if (!shape) return;
    const double time =
        costs_.whole_time(of_class, tensor, table_.shape(*shape).members[0].most_samples());
    runs_[of_class].push_back({*shape, stages, static_cast<double>(stages) / time});
  }

  /// Goes on with any class that is not there yet.
  void combine(const std::vector<bool>& used, const Start& start) {
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      if (used[c]) continue;
      std::vector<bool> with = used;
      with[c] = true;
      for (const Run& run : runs_[c]) {
        Start more = start;
        more.runs.push_back(run);
        double rate = 0;
        std::size_t stages = 0;
        for (const Run& one : more.runs) {
          rate += one.rate;
          stages += one.stages;
        }
        if (stages > costs_.blocks()) continue;
        more.period = 1 / rate;
        const auto asked = static_cast<std::size_t>(input_.pipeline_parallel.value_or(0));
        if (asked == 0 || stages == asked) found_.push_back(more);
        combine(with, more);
      }
    }
  }

  const StrategyInput& input_;
  const std::vector<DeviceClass>& classes_;
  StageCosts& costs_;
  StageTable& table_;
  std::vector<std::vector<Run>> runs_;  ///< by class, for a number of replicas
  std::vector<Start> found_;
};

}  // namespace

std::vector<ShapedPipeline> even_starts(const StrategyInput& input,
                                        const std::vector<DeviceClass>& classes, StageCosts& costs,
                                        StageTable& table, std::size_t count, double limit) {
  constexpr double near = 1.2;
  const double rounds = table.micro_batches() - 1;
  const std::size_t work_before = table.work();
  std::vector<ShapedPipeline> best;
  for (const Start& start : Starts(input, classes, costs, table).all()) {
    if (rounds * start.period >= limit || table.work() - work_before > most_even_work) break;
    Sequence stages;
    for (const Run& run : start.runs) stages.insert(stages.end(), run.stages, run.shape);
    const Borders borders = table.cut(stages, limit);
    if (borders.first_block.empty()) continue;
    limit = std::min(limit, near * borders.step);
    best.push_back(table.pipeline(stages, borders));
  }
  std::stable_sort(best.begin(), best.end(), [](const ShapedPipeline& a, const ShapedPipeline& b) {
    return a.step < b.step;
  });
  best.resize(std::min(best.size(), count));
  return best;
}

}  // namespace parsim::strategies::mixed
