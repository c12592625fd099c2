#include "strategies/mixed/rearrange.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "strategies/shares.hpp"

namespace parsim::strategies::mixed {

namespace {

/// Stages x blocks of programmes for one climb, about a second.
constexpr std::size_t most_work = 30'000'000;

/// The changes of a sequence.
class Changes {
 public:
  Changes(const StrategyInput& input, const std::vector<DeviceClass>& classes, StageTable& table)
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
  StageTable& table_;
  std::set<Sequence> found_;
};

}  // namespace

std::set<Sequence> changed_sequences(const StrategyInput& input,
                                     const std::vector<DeviceClass>& classes, StageTable& table,
                                     const Sequence& stages) {
  return Changes(input, classes, table).of(stages);
}

std::vector<ShapedPipeline> rearranged(const StrategyInput& input,
                                       const std::vector<DeviceClass>& classes, StageTable& table,
                                       const ShapedPipeline& start, std::size_t count,
                                       double limit) {
  Changes changes(input, classes, table);
  Sequence now;
  for (const StageShape& shape : start.shapes) {
    const std::optional<std::size_t> known = table.add(shape);
    if (!known) return {};
    now.push_back(*known);
  }
  constexpr double near = 1.02;  // the closed form is not exact
  const std::size_t work_before = table.work();
  std::map<Sequence, Borders> seen{{now, {start.first_block, start.step}}};
  for (bool better = true; std::exchange(better, false);) {
    if (input.poll) input.poll();
    for (const Sequence& one : changes.of(now)) {
      if (table.work() - work_before > most_work) break;
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
    if (!borders.first_block.empty()) all.push_back(table.pipeline(stages, borders));
  }
  std::stable_sort(all.begin(), all.end(), [](const ShapedPipeline& a, const ShapedPipeline& b) {
    return a.step < b.step;
  });
  all.resize(std::min(all.size(), count));
  return all;
}

}  // namespace parsim::strategies::mixed
