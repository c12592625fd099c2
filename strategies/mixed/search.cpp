#include "strategies/mixed/search.hpp"

#include <limits>
#include <unordered_map>

namespace parsim::strategies::mixed {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::size_t bits_of_class = 10, most_classes = 4;
/// Of more shapes, those of the same devices count as one where only sends to them matter.
constexpr std::size_t few_shapes = 64;
/// So many suffixes of a state are kept on small clusters: the closed form is not exact.
constexpr std::size_t most_alike = 8;
/// How far from the best a pipeline may be that is still worth an estimate.
constexpr double near = 1.1, near_on_few = 1.5;

/// A pipeline's stages from some block to the last one.
struct Suffix {
  double sum = 0;     ///< loads as far as ClosedForm::of_sum, and sends there and back
  double path = 0;    ///< likewise ClosedForm::of_path
  double period = 0;  ///< see best_pipelines
  double after = 0;   ///< from the end of the first stage's last backward to the step's end
  double out = 0;     ///< what its first stage's machines send on, on links
  double busy = 0;    ///< its first stage with a micro-batch, if it waits for what it sends on
  std::uint64_t used = 0;
  std::uint32_t shape = 0, last = 0, stages = 0;  ///< shapes of its first and its last stage
  std::uint32_t end = 0, next = 0;                ///< where the suffix behind its first stage is
};

class Search {
  /// The least times of shapes with the same devices, as StageCosts::times.
  struct Kind {
    std::uint64_t used;
    std::vector<double> times;
  };

 public:
  Search(const StrategyInput& input, const std::vector<DeviceClass>& classes, StageCosts& costs,
         const std::vector<StageShape>& shapes, std::int32_t micro_batches, double limit,
         Detail detail, std::int64_t& steps)
      : classes_(classes),
        costs_(costs),
        shapes_(shapes),
        form_(input, micro_batches),
        rounds_(form_.rounds),
        stages_(static_cast<std::uint32_t>(input.pipeline_parallel.value_or(0))),
        blocks_(costs.blocks()),
        exact_(detail == Detail::all),
        limit_(limit),
        steps_(steps),
        sends_(shapes.size() * shapes.size()) {
    const bool by_shape = exact_ || shapes.size() <= few_shapes;
    for (const StageShape& shape : shapes) {
      times_.push_back(costs.times(shape));
      afterwards_.push_back(costs.afterwards(shape));
      in_flight_.push_back(costs.most_in_flight(shape, micro_batches));
      std::uint64_t used = 0;
      for (const Member& member : shape.members) used += count(member.of_class, member.devices());
      used_.push_back(used);
      const auto known = std::find(used_.begin(), used_.end(), used) - used_.begin();
      kind_.push_back(static_cast<std::uint32_t>(by_shape ? kind_.size() : known));
      add_kind(used, times_.back());
    }
    least_sum_.assign(blocks_ + 1, 0);
    for (std::size_t b = 0; b < blocks_; ++b) {
      double least = never;
      for (std::size_t s = 0; s < shapes.size(); ++s) least = std::min(least, time(s, b, b + 1));
      least_sum_[b + 1] = least_sum_[b] + form_.of_sum * least;
    }
  }

  void add_kind(std::uint64_t used, const std::vector<double>& times) {
    const auto known = std::find_if(kinds_of_devices_.begin(), kinds_of_devices_.end(),
                                    [&](const Kind& kind) { return kind.used == used; });
    if (known == kinds_of_devices_.end()) {
      kinds_of_devices_.push_back({used, times});
      return;
    }
    for (std::size_t i = 0; i < times.size(); ++i) {
      known->times[i] = std::min(known->times[i], times[i]);
    }
  }

  std::vector<Pipeline> run(std::size_t wanted) {
    double longest = 0;
    for (const auto& times : times_) longest = std::max(longest, times[blocks_]);
    std::vector<Pipeline> found;
    double before = 0;
    // Steps within so much are alike: a step is no shorter than the loads and its rounds.
    const double alike = exact_ ? 0.02 : 0.08;
    for (double bound = rounds_ > 0 ? least_period() : longest; before < longest;
         bound += alike * (least_sum_[blocks_] / rounds_ + bound)) {
      // What has not been found takes longer than `before` for each micro-batch.
      if (least_sum_[blocks_] + rounds_ * before >= limit_) break;
      search(std::min(bound, longest), before);
      if (steps_ <= 0) return found;
      for (Pipeline& pipeline : collect(wanted)) {
        limit_ = std::min(limit_, pipeline.step * (exact_ ? near_on_few : near));
        found.push_back(std::move(pipeline));
      }
      found = best_of(std::move(found), wanted);
      if (found.size() == wanted) limit_ = std::min(limit_, found.back().step);
      before = bound;
    }
    return found;
  }

 private:
  static std::uint64_t count(std::size_t of_class, std::uint64_t devices) {
    return devices << (of_class * bits_of_class);
  }
  static std::uint64_t count_in(std::uint64_t used, std::size_t of_class) {
    return used >> (of_class * bits_of_class) & ((std::uint64_t{1} << bits_of_class) - 1);
  }
  [[nodiscard]] double time(std::size_t shape, std::size_t begin, std::size_t end) const {
    return times_[shape][begin * (blocks_ + 1) + end];
  }

  /// If all devices were busy all the time, each with the kind of group that it is fastest in; less
  /// a tenth, because groups of several classes may be better.
  [[nodiscard]] double least_period() const {
    std::vector<double> rate(classes_.size(), 0);  // networks a second
    for (std::size_t s = 0; s < shapes_.size(); ++s) {
      const Member& member = shapes_[s].members[0];
      if (shapes_[s].members.size() > 1) continue;
      const double size = static_cast<double>(classes_[member.of_class].size());
      rate[member.of_class] = std::max(
          rate[member.of_class], size / static_cast<double>(member.devices()) / times_[s][blocks_]);
    }
    double all = 0;
    for (const double one : rate) all += one;
    return 0.9 / all;
  }

  /// Pipelines of periods up to `bound`; those up to `before` have been found.
  void search(double bound, double before) {
    before_ = before;
    suffixes_.assign(blocks_ + 1, {});
    index_.assign(blocks_ + 1, {});
    rest_.assign(blocks_ + 1, {});
    for (std::size_t s = 0; s < shapes_.size(); ++s) extend(s, Suffix{}, blocks_, 0, bound);
    for (std::size_t b = blocks_ - 1; b > 0; --b) {
      for (std::size_t i = 0; i < suffixes_[b].size(); ++i) {
        const Suffix suffix = suffixes_[b][i];
        if (suffix.sum + rest(b, suffix.used, bound) + rounds_ * std::max(suffix.period, before) >
            limit_) {
          continue;
        }
        for (std::size_t s = 0; s < shapes_.size(); ++s) {
          if (has_room(suffix.used, used_[s])) extend(s, suffix, b, i, bound);
        }
        if (steps_ <= 0) return;
      }
    }
  }

  [[nodiscard]] bool has_room(std::uint64_t used, std::uint64_t more) const {
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      if (count_in(used, c) + count_in(more, c) > classes_[c].size()) return false;
    }
    return true;
  }

  /// Loads of stages with the first blocks on the devices that are not used, none above the bound,
  /// at least; their sends take more.
  double rest(std::size_t blocks, std::uint64_t used, double bound) {
    if (blocks == 0) return 0;
    const auto [known, added] = rest_[blocks].try_emplace(used, never);
    if (!added) return known->second;
    double least = never;
    for (const Kind& kind : kinds_of_devices_) {
      if (!has_room(used, kind.used)) continue;
      const std::uint64_t more = used_after(used, kind.used);
      for (std::size_t begin = blocks; begin-- > 0;) {
        --steps_;
        const double load = kind.times[begin * (blocks_ + 1) + blocks];
        if (load > bound || form_.of_sum * load >= least) break;
        least = std::min(least, form_.of_sum * load + rest(begin, more, bound));
      }
    }
    return rest_[blocks][used] = least;
  }

  /// Puts stages of a shape before a suffix that begins with block `end`.
  void extend(std::size_t shape, const Suffix& suffix, std::size_t end, std::size_t at,
              double bound) {
    const bool first = suffix.stages == 0;
    const bool last_allowed = suffix.stages + 1 == stages_;
    if (stages_ > 0 && suffix.stages >= stages_) return;
    StageCosts::Send send;
    if (!first) send = sends(shape, suffix.shape, end);
    const double blocked = form_.of_send * send.time;
    const double on_links = std::max(send.on_links + suffix.out, first ? 0 : suffix.busy + blocked);
    if (on_links > bound) return;
    const std::size_t stages = suffix.stages + 1;  // those before it are not known
    const std::int32_t needed = form_.in_flight(0, stages);
    for (std::size_t begin = end; begin-- > 0;) {
      --steps_;
      const double load = time(shape, begin, end);
      if (load + blocked > bound) break;
      if (stages_ > 0 && (begin == 0) != last_allowed) continue;
      if (in_flight_[shape][begin * (blocks_ + 1) + end] < needed) break;
      Suffix more = suffix;
      more.sum += form_.of_sum * load + 2 * send.time;
      more.path += form_.of_path * load + 2 * send.time;
      more.busy = load + blocked;
      more.period =
          std::max({suffix.period, more.busy, on_links, form_.in_turn(more.path, 0, stages)});
      if (more.period > bound) continue;
      more.used = used_after(suffix.used, used_[shape]);
      if (more.sum + least_sum_[begin] + rounds_ * std::max(more.period, before_) > limit_)
        continue;
      const double all = more.sum + rest(begin, more.used, bound);
      if (all + rounds_ * std::max(more.period, before_) > limit_) continue;
      more.after = std::max(afterwards_[shape][begin * (blocks_ + 1) + end],
                            suffix.after - form_.of_last * load - send.time);
      if (first) more.last = static_cast<std::uint32_t>(shape);
      if (begin == 0 && !first) more.after += shared(shape, suffix.last);
      more.out = send.on_links;
      more.shape = static_cast<std::uint32_t>(shape);
      ++more.stages;
      more.end = static_cast<std::uint32_t>(end);
      more.next = static_cast<std::uint32_t>(at);
      keep(begin, more);
    }
  }

  /// On large clusters what is left of a class that the pipeline leaves counts as used.
  [[nodiscard]] std::uint64_t used_after(std::uint64_t before, std::uint64_t more) const {
    std::uint64_t used = before + more;
    if (exact_) return used;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      const bool left = count_in(before, c) > 0 && count_in(more, c) == 0;
      if (left) used += count(c, classes_[c].size() - count_in(used, c));
    }
    return used;
  }

  void keep(std::size_t begin, const Suffix& suffix) {
    constexpr std::size_t bits_of_shape = 12, bits_of_count = 8;
    const std::uint64_t stages = exact_ || stages_ > 0 ? suffix.stages : 0;
    const std::uint64_t last = exact_ ? shapes_[suffix.last].members[0].of_class : 0;
    const std::uint64_t key =
        suffix.used | std::uint64_t{kind_[suffix.shape]} << (bits_of_class * most_classes) |
        stages << (bits_of_class * most_classes + bits_of_shape) |
        last << (bits_of_class * most_classes + bits_of_shape + bits_of_count);
    std::vector<std::size_t>& alike = index_[begin][key];
    std::vector<Suffix>& all = suffixes_[begin];
    const std::size_t most = exact_ ? most_alike : 1;
    if (alike.size() < most) {
      alike.push_back(all.size());
      all.push_back(suffix);
      return;
    }
    const auto cost = [](const Suffix& one) { return one.sum + one.after; };
    const std::size_t worst = *std::max_element(
        alike.begin(), alike.end(),
        [&](std::size_t i, std::size_t j) { return cost(all[i]) < cost(all[j]); });
    if (cost(suffix) < cost(all[worst])) all[worst] = suffix;
  }

  [[nodiscard]] double step_of(const Suffix& suffix) const {
    return suffix.sum + rounds_ * suffix.period + suffix.after;
  }

  /// The best pipelines of the last search.
  std::vector<Pipeline> collect(std::size_t wanted) {
    std::vector<Pipeline> all;
    std::vector<const Suffix*> whole;
    for (const Suffix& suffix : suffixes_[0]) whole.push_back(&suffix);
    std::stable_sort(whole.begin(), whole.end(),
                     [&](const Suffix* a, const Suffix* b) { return step_of(*a) < step_of(*b); });
    for (std::size_t i = 0; i < std::min(wanted, whole.size()); ++i) {
      Pipeline& pipeline = all.emplace_back();
      pipeline.step = step_of(*whole[i]);
      std::size_t begin = 0;
      for (const Suffix* suffix = whole[i];; suffix = &suffixes_[suffix->end][suffix->next]) {
        pipeline.stages.push_back({suffix->shape, begin});
        begin = suffix->end;
        if (begin == blocks_) break;
      }
    }
    return all;
  }

  static std::vector<Pipeline> best_of(std::vector<Pipeline> all, std::size_t wanted) {
    std::stable_sort(all.begin(), all.end(),
                     [](const Pipeline& a, const Pipeline& b) { return a.step < b.step; });
    std::vector<Pipeline> best;
    const auto same = [](const Pipeline& a, const Pipeline& b) {
      return std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                        [](const Stage& x, const Stage& y) {
                          return x.shape == y.shape && x.first_block == y.first_block;
                        });
    };
    for (Pipeline& one : all) {
      if (best.size() == wanted) break;
      const bool known = std::any_of(best.begin(), best.end(),
                                     [&](const Pipeline& other) { return same(one, other); });
      if (!known) best.push_back(std::move(one));
    }
    return best;
  }

  double shared(std::size_t first, std::size_t last) {
    const auto [at, fresh] = shared_.try_emplace({first, last});
    if (fresh) at->second = costs_.shared_sum(shapes_[first], shapes_[last]);
    return at->second;
  }

  const StageCosts::Send& sends(std::size_t from, std::size_t to, std::size_t block) {
    // The bytes between blocks are the same everywhere, if the blocks are.
    auto& known = sends_[from * shapes_.size() + to];
    const auto [at, fresh] = known.try_emplace(costs_.bytes_across(block));
    if (fresh) at->second = costs_.send(shapes_[from], shapes_[to], block);
    return at->second;
  }

  const std::vector<DeviceClass>& classes_;
  StageCosts& costs_;
  const std::vector<StageShape>& shapes_;
  ClosedForm form_;
  double rounds_;         ///< of it
  std::uint32_t stages_;  ///< asked for; 0: any number
  std::size_t blocks_;
  bool exact_;
  double limit_;         ///< on the step
  std::int64_t& steps_;  ///< left
  double before_ = 0;    ///< see search
  std::vector<Kind> kinds_of_devices_;
  std::vector<std::unordered_map<std::uint64_t, double>> rest_;  ///< by blocks and used devices
  std::vector<double> least_sum_;                     ///< loads of the first n blocks, at least
  std::vector<std::vector<double>> times_;            ///< by shape, see StageCosts::times
  std::vector<std::vector<double>> afterwards_;       ///< likewise
  std::vector<std::vector<std::int32_t>> in_flight_;  ///< likewise
  std::vector<std::uint64_t> used_;                   ///< by shape: devices by class
  std::vector<std::uint32_t> kind_;                   ///< by shape: what counts for sends to it
  std::vector<std::map<double, StageCosts::Send>> sends_;
  std::map<std::pair<std::size_t, std::size_t>, double> shared_;
  std::vector<std::vector<Suffix>> suffixes_;  ///< by first block
  std::vector<std::unordered_map<std::uint64_t, std::vector<std::size_t>>> index_;
};

}  // namespace

ClosedForm::ClosedForm(const StrategyInput& input, std::int32_t number)
    : rounds(number - 1), schedule(input.schedule_or_default()), micro_batches(number) {
  if (input.pipeline_sends == PipelineSends::blocking) of_send = 2;  // there and back
  if (!is_zero_bubble(schedule)) return;
  // A load is a third each of forward, backward for inputs, and backward for weights, which fills
  // what is idle before and after.
  rounds += 2.0 / 3;
  of_sum = of_last = 1.0 / 3;
  of_path = 2.0 / 3;
}

std::int32_t ClosedForm::in_flight(std::size_t stage, std::size_t stages) const {
  if (schedule == PipelineSchedule::gpipe) return micro_batches;
  return std::min(micro_batches, most_in_flight(schedule, static_cast<std::int32_t>(stage),
                                                static_cast<std::int32_t>(stages)));
}

double ClosedForm::apart(std::size_t first, std::size_t last, std::size_t stages) const {
  const auto from = static_cast<double>(last + 1 - first);
  if (schedule != PipelineSchedule::zero_bubble_h2) return from;
  return last + 1 == stages ? 2 * from - 1 : 2 * from;
}

double ClosedForm::in_turn(double path, std::size_t stage, std::size_t stages) const {
  if (schedule == PipelineSchedule::gpipe) return 0;
  return path / apart(stage, stages - 1, stages);
}

double ClosedForm::in_turn(const std::vector<double>& loads, const std::vector<double>& paths,
                           const std::vector<double>& sends) const {
  double most = 0;
  if (schedule == PipelineSchedule::gpipe) return most;
  for (std::size_t s = 0; s < loads.size(); ++s) {
    double all = loads[s] - paths[s];
    for (std::size_t last = s; last < loads.size(); ++last) {
      all += paths[last];
      most = std::max(most, all / apart(s, last, loads.size()));
      if (last + 1 < loads.size()) all += 2 * sends[last];
    }
  }
  return most;
}

std::vector<Pipeline> best_pipelines(const StrategyInput& input,
                                     const std::vector<DeviceClass>& classes, StageCosts& costs,
                                     const std::vector<StageShape>& shapes,
                                     std::int32_t micro_batches, std::size_t count, double limit,
                                     Detail detail, std::int64_t& steps) {
  if (shapes.empty() || classes.size() > most_classes) return {};
  return Search(input, classes, costs, shapes, micro_batches, limit, detail, steps).run(count);
}

}  // namespace parsim::strategies::mixed
