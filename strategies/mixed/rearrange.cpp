#include "strategies/mixed/rearrange.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "strategies/mixed/search.hpp"
#include "strategies/shares.hpp"

namespace parsim::strategies::mixed {

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();

/// Stages x blocks of programmes for one climb, about a second.
constexpr std::size_t most_work = 30'000'000;

/// Stages by their shapes in a table.
using Sequence = std::vector<std::size_t>;

/// Where the stages of a sequence begin.
struct Borders {
  std::vector<std::size_t> first_block;
  double step = impossible;
};

/// Shapes with what they cost, and the best borders between stages.
class Table {
 public:
  Table(const StrategyInput& input, StageCosts& costs, std::int32_t micro_batches)
      : costs_(costs),
        micro_batches_(micro_batches),
        samples_(input.batch / micro_batches),
        least_(least_samples(input)),
        form_(input, micro_batches),
        rounds_(form_.rounds),
        blocks_(costs.blocks()) {}

  /// The shape of these members; nothing if one of its devices had no sample.
  std::optional<std::size_t> add(const StageShape& wanted) {
    std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> key;
    for (const Member& member : wanted.members) {
      key.emplace_back(member.of_class, member.tensor, member.count);
    }
    const auto [at, fresh] = index_.try_emplace(std::move(key));
    if (!fresh) return at->second;
    StageShape shape = wanted;
    for (Member& member : shape.members) member.samples.clear();
    if (!share_samples(costs_, samples_, least_, shape)) return std::nullopt;
    at->second = shapes_.size();
    shapes_.push_back({shape, costs_.times(shape), costs_.afterwards(shape),
                       costs_.most_in_flight(shape, micro_batches_)});
    return at->second;
  }
  [[nodiscard]] const StageShape& shape(std::size_t of) const { return shapes_[of].shape; }
  /// Stages x blocks of all programmes so far.
  [[nodiscard]] std::size_t work() const { return work_; }

  /// The best borders for these stages, if their step is shorter than the limit. A programme from
  /// the last block to the first for each of some bounds on the period, as in best_pipelines.
  Borders cut(const Sequence& stages, double limit) {
    Borders best;
    best.step = limit;
    if (stages.size() > blocks_) return best;
    if (rounds_ <= 0) {
      programme(stages, impossible, best);
      return best;
    }
    // Periods may be no longer than this; then the shortest that there is, and somewhat longer ones
    // for which the sum is less.
    double most = limit / rounds_, least = 0;
    const double sum = programme(stages, most, best);
    if (sum == impossible) return best;
    most = std::min(most, (best.step - sum) / rounds_);
    constexpr double near = 0.9, exact = 0.003;
    for (double middle = near * most; most - least > exact * most; middle = (least + most) / 2) {
      (programme(stages, middle, best) == impossible ? least : most) = middle;
    }
    for (const double longer : {1.01, 1.02, 1.04, 1.08, 1.16, 1.32}) {
      if (sum + rounds_ * longer * most >= best.step) break;
      programme(stages, longer * most, best);
    }
    return best;
  }

 private:
  struct Known {
    StageShape shape;
    std::vector<double> times, afterwards;  // see StageCosts
    std::vector<std::int32_t> in_flight;
  };
  /// The stages from one on, the first of them beginning with some block.
  struct Cell {
    double sum = impossible, path = 0, period = 0, after = 0, out = 0, busy = 0;  // as of Suffix
    std::size_t end = 0;
  };

  /// Takes the best borders with periods within the bound where they are better than `best`. The
  /// sum of what it finds; impossible, if there are none.
  double programme(const Sequence& stages, double bound, Borders& best) {
    const std::size_t count = stages.size(), ends = blocks_ + 1;
    work_ += count * ends;
    std::vector<Cell> cells(count * ends);
    for (std::size_t s = count; s-- > 0;) {
      const bool last = s + 1 == count;
      const std::size_t last_begin = s == 0 ? 0 : blocks_ - (count - s);
      const StageCosts::Send* send = last ? nullptr : sends(stages[s], stages[s + 1]).data();
      for (std::size_t begin = s; begin <= last_begin; ++begin) {
        extend(stages, s, begin, send, bound, cells);
      }
    }
    const Cell& whole = cells[0];
    if (whole.sum == impossible) return impossible;
    const double step = whole.sum + rounds_ * whole.period + whole.after;
    if (step < best.step) {
      best.step = step;
      best.first_block.clear();
      for (std::size_t s = 0, begin = 0; s < count; ++s) {
        best.first_block.push_back(begin);
        begin = cells[s * ends + begin].end;
      }
    }
    return whole.sum;
  }

  /// The best end of stage `s` if it begins with a block.
  ///
  /// send   to the next stage, by its first block; null of the last stage
  void extend(const Sequence& stages, std::size_t s, std::size_t begin,
              const StageCosts::Send* send, double bound, std::vector<Cell>& cells) {
    const bool last = send == nullptr;
    const std::size_t ends = blocks_ + 1, count = stages.size();
    const Known& known = shapes_[stages[s]];
    const std::int32_t needed = form_.in_flight(s, count);
    Cell& best = cells[s * ends + begin];
    const double* loads = &known.times[begin * ends];
    for (std::size_t end = last ? blocks_ : begin + 1; end + (count - s - 1) <= blocks_; ++end) {
      const double load = loads[end];
      if (load > bound || known.in_flight[begin * ends + end] < needed) break;
      const Cell* next = last ? nullptr : &cells[(s + 1) * ends + end];
      if (!last && next->sum == impossible) continue;
      Cell one;
      one.sum = form_.of_sum * load;
      one.path = form_.of_path * load;
      one.period = one.busy = load;
      one.after = known.afterwards[begin * ends + end];
      if (!last) {
        one.sum += next->sum + 2 * send[end].time;
        one.path += next->path + 2 * send[end].time;
        const double blocked = form_.of_send * send[end].time;
        one.busy += blocked;
        one.period = std::max(
            {one.busy, next->period, send[end].on_links + next->out, next->busy + blocked});
        one.after = std::max(one.after, next->after - form_.of_last * load - send[end].time);
        one.out = send[end].on_links;
      }
      one.period = std::max(one.period, form_.in_turn(one.path, s, count));
      if (one.period > bound) continue;
      if (s == 0 && !last) one.after += shared(stages.front(), stages.back());
      one.end = end;
      if (one.sum + one.after < best.sum + best.after) best = one;
    }
  }

  double shared(std::size_t first, std::size_t last) {
    const auto [at, fresh] = shared_.try_emplace({first, last});
    if (fresh) at->second = costs_.shared_sum(shapes_[first].shape, shapes_[last].shape);
    return at->second;
  }
  /// From a shape to another one, by the first block of the latter.
  const std::vector<StageCosts::Send>& sends(std::size_t from, std::size_t to) {
    const auto [at, fresh] = sends_.try_emplace({from, to});
    if (!fresh) return at->second;
    std::map<double, StageCosts::Send> by_bytes;  // as many between most blocks
    at->second.resize(blocks_ + 1);
    for (std::size_t block = 1; block < blocks_; ++block) {
      const auto [known, first] = by_bytes.try_emplace(costs_.bytes_across(block));
      if (first) known->second = costs_.send(shapes_[from].shape, shapes_[to].shape, block);
      at->second[block] = known->second;
    }
    return at->second;
  }

  StageCosts& costs_;
  std::int32_t micro_batches_;
  std::int64_t samples_, least_;
  ClosedForm form_;
  double rounds_;  ///< of it
  std::size_t blocks_;
  std::size_t work_ = 0;
  std::vector<Known> shapes_;
  std::map<std::vector<std::tuple<std::size_t, std::size_t, std::size_t>>,
           std::optional<std::size_t>>
      index_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<StageCosts::Send>> sends_;
  std::map<std::pair<std::size_t, std::size_t>, double> shared_;
};

/// The changes of a sequence.
class Changes {
 public:
  Changes(const StrategyInput& input, const std::vector<DeviceClass>& classes, Table& table)
      : input_(input), classes_(classes), table_(table) {}

  [[nodiscard]] std::set<Sequence> of(const Sequence& stages) {
    found_.clear();
    for (std::size_t s = 0; s < stages.size(); ++s) {
      reorder(stages, s);
      for (const std::vector<std::size_t>& others : instead(stages[s])) {
        replace(stages, s, 1, others);
      }
      if (s + 1 < stages.size() && stages[s] == stages[s + 1]) {
        for (const std::size_t joined : twice(stages[s])) replace(stages, s, 2, {joined});
      }
      replace(stages, s, 1, {});
    }
    change_all(stages);
    add_idle(stages);
    found_.erase(stages);
    return std::move(found_);
  }

 private:
  void reorder(const Sequence& stages, std::size_t s) {
    for (std::size_t to = 0; to < stages.size(); ++to) {
      Sequence moved = stages;
      moved.erase(moved.begin() + static_cast<std::ptrdiff_t>(s));
      moved.insert(moved.begin() + static_cast<std::ptrdiff_t>(to), stages[s]);
      add(std::move(moved));
      Sequence swapped = stages;
      std::swap(swapped[s], swapped[to]);
      add(std::move(swapped));
    }
  }

  void replace(const Sequence& stages, std::size_t s, std::size_t count,
               const std::vector<std::size_t>& others) {
    Sequence changed(stages.begin(), stages.begin() + static_cast<std::ptrdiff_t>(s));
    changed.insert(changed.end(), others.begin(), others.end());
    changed.insert(changed.end(), stages.begin() + static_cast<std::ptrdiff_t>(s + count),
                   stages.end());
    add(std::move(changed));
  }

  /// Every stage of a class, or of a shape, changed alike.
  void change_all(const Sequence& stages) {
    for (const std::size_t shape : std::set<std::size_t>(stages.begin(), stages.end())) {
      for (const std::vector<std::size_t>& others : instead(shape)) {
        Sequence changed;
        for (const std::size_t stage : stages) {
          if (stage != shape) changed.push_back(stage);
          if (stage == shape) changed.insert(changed.end(), others.begin(), others.end());
        }
        add(std::move(changed));
      }
      for (const std::size_t joined : twice(shape)) {
        Sequence changed;
        for (std::size_t s = 0; s < stages.size(); ++s) {
          const bool pair = s + 1 < stages.size() && stages[s] == shape && stages[s + 1] == shape;
          changed.push_back(pair ? joined : stages[s]);
          if (pair) ++s;
        }
        add(std::move(changed));
      }
    }
  }

  /// Idle devices as another stage, or in the place of one.
  void add_idle(const Sequence& stages) {
    std::set<std::size_t> shapes(stages.begin(), stages.end());
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      for (std::size_t devices = classes_[c].of_machine(); devices > 0; devices /= 2) {
        for (std::size_t tensor = 1; tensor <= devices; tensor *= 2) {
          if (devices % tensor != 0) continue;
          if (const auto one = shape_of(c, tensor, devices / tensor)) shapes.insert(*one);
        }
        if (devices % 2 != 0) break;
      }
    }
    for (const std::size_t shape : shapes) {
      for (std::size_t s = 0; s <= stages.size(); ++s) {
        replace(stages, s, 0, {shape});
        if (s < stages.size()) replace(stages, s, 1, {shape});
      }
    }
  }

  /// What one stage may become: two halves, or the same devices with another tensor degree.
  [[nodiscard]] std::vector<std::vector<std::size_t>> instead(std::size_t shape) {
    std::vector<std::vector<std::size_t>> all;
    const StageShape& of = table_.shape(shape);
    if (of.members.size() > 1) return all;
    const Member member = of.members[0];
    const auto take = [&](std::optional<std::size_t> one, std::size_t times) {
      if (one) all.emplace_back(times, *one);
    };
    if (member.count % 2 == 0) {
      take(shape_of(member.of_class, member.tensor, member.count / 2), 2);
      take(shape_of(member.of_class, member.tensor * 2, member.count / 2), 1);
    }
    if (member.tensor % 2 == 0) {
      take(shape_of(member.of_class, member.tensor / 2, member.count), 2);
      take(shape_of(member.of_class, member.tensor / 2, member.count * 2), 1);
    }
    return all;
  }

  /// What two of them may become: one of twice the replicas or twice the tensor degree.
  [[nodiscard]] std::vector<std::size_t> twice(std::size_t shape) {
    std::vector<std::size_t> all;
    const StageShape& of = table_.shape(shape);
    if (of.members.size() > 1) return all;
    const Member member = of.members[0];
    if (const auto one = shape_of(member.of_class, member.tensor, member.count * 2)) {
      all.push_back(*one);
    }
    if (const auto one = shape_of(member.of_class, member.tensor * 2, member.count)) {
      all.push_back(*one);
    }
    return all;
  }

  [[nodiscard]] std::optional<std::size_t> shape_of(std::size_t of_class, std::size_t tensor,
                                                    std::size_t count) {
    const auto asked = static_cast<std::size_t>(input_.tensor_parallel.value_or(0));
    const auto replicas = static_cast<std::size_t>(input_.data_parallel.value_or(0));
    if ((asked > 0 && tensor != asked) || (replicas > 0 && count != replicas)) return std::nullopt;
    if (tensor > classes_[of_class].of_machine()) return std::nullopt;
    if (tensor * count > classes_[of_class].size()) return std::nullopt;
    return table_.add({{{of_class, tensor, count, {}}}});
  }

  void add(Sequence stages) {
    const auto asked = static_cast<std::size_t>(input_.pipeline_parallel.value_or(0));
    if (stages.empty() || (asked > 0 && stages.size() != asked)) return;
    std::vector<std::size_t> used(classes_.size(), 0);
    for (const std::size_t stage : stages) {
      for (const Member& member : table_.shape(stage).members) {
        used[member.of_class] += member.devices();
        if (used[member.of_class] > classes_[member.of_class].size()) return;
      }
    }
    found_.insert(std::move(stages));
  }

  const StrategyInput& input_;
  const std::vector<DeviceClass>& classes_;
  Table& table_;
  std::set<Sequence> found_;
};

}  // namespace

std::vector<ShapedPipeline> rearranged(const StrategyInput& input,
                                       const std::vector<DeviceClass>& classes, StageCosts& costs,
                                       std::int32_t micro_batches, const ShapedPipeline& start,
                                       std::size_t count, double limit) {
  Table table(input, costs, micro_batches);
  Changes changes(input, classes, table);
  Sequence now;
  for (const StageShape& shape : start.shapes) {
    const std::optional<std::size_t> known = table.add(shape);
    if (!known) return {};
    now.push_back(*known);
  }
  constexpr double near = 1.02;  // the closed form is not exact
  std::map<Sequence, Borders> seen{{now, {start.first_block, start.step}}};
  for (bool better = true; std::exchange(better, false);) {
    if (input.poll) input.poll();
    for (const Sequence& one : changes.of(now)) {
      if (table.work() > most_work) break;
      const double step = seen.at(now).step;
      const auto [at, fresh] = seen.try_emplace(one);
      if (!fresh) continue;
      at->second = table.cut(one, std::min(limit, near * step));
      if (at->second.first_block.empty() || at->second.step >= step) continue;
      now = one;
      better = true;
      break;
    }
  }
  std::vector<ShapedPipeline> all;
  for (const auto& [stages, borders] : seen) {
    if (borders.first_block.empty()) continue;
    ShapedPipeline& one = all.emplace_back();
    for (const std::size_t stage : stages) one.shapes.push_back(table.shape(stage));
    one.first_block = borders.first_block;
    one.step = borders.step;
  }
  std::stable_sort(all.begin(), all.end(), [](const ShapedPipeline& a, const ShapedPipeline& b) {
    return a.step < b.step;
  });
  all.resize(std::min(all.size(), count));
  return all;
}

}  // namespace parsim::strategies::mixed
