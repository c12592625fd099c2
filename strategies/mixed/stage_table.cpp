#include "strategies/mixed/stage_table.hpp"

#include <algorithm>

#include "strategies/shares.hpp"

namespace parsim::strategies::mixed {

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();

/// Where Placement puts stages of one machine or less.
class Machines {
 public:
  explicit Machines(const std::vector<DeviceClass>& classes) {
    for (const DeviceClass& one : classes) {
      std::vector<std::size_t>& free = free_.emplace_back();
      for (const auto& machine : one.machines) free.push_back(machine.size());
    }
  }
  /// The machine that all devices are on, if there is one.
  std::optional<std::size_t> take(const Member& member) {
    std::vector<std::size_t>& free = free_[member.of_class];
    std::optional<std::size_t> fullest;
    for (std::size_t m = 0; m < free.size(); ++m) {
      const bool room = free[m] / member.tensor >= member.count;
      if (room && (!fullest || free[m] < free[*fullest])) fullest = m;
    }
    if (fullest) {
      free[*fullest] -= member.devices();
      return fullest;
    }
    for (std::size_t left = member.devices(); left > 0;) {
      std::size_t& most = *std::max_element(free.begin(), free.end());
      const std::size_t taken = std::min(left, most);
      if (taken == 0) break;
      most -= taken;
      left -= taken;
    }
    return std::nullopt;
  }

 private:
  std::vector<std::vector<std::size_t>> free_;  ///< by class, then machine
};

}  // namespace

StageTable::StageTable(const StrategyInput& input, const std::vector<DeviceClass>& classes,
                       StageCosts& costs, std::int32_t micro_batches)
    : classes_(classes),
      costs_(costs),
      micro_batches_(micro_batches),
      samples_(input.batch / micro_batches),
      least_(least_samples(input)),
      form_(input, micro_batches),
      rounds_(form_.rounds),
      blocks_(costs.blocks()) {}

std::optional<std::size_t> StageTable::add(const StageShape& wanted) {
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
  shapes_.push_back({shape, costs_.times(shape), costs_.weights(shape), costs_.afterwards(shape),
                     costs_.most_in_flight(shape, micro_batches_)});
  return at->second;
}

Borders StageTable::cut(const Sequence& stages, double limit) {
  Borders best;
  best.step = limit;
  if (stages.size() > blocks_) return best;
  const std::vector<Link> to_next = links(stages);
  if (rounds_ <= 0) {
    programme(stages, to_next, impossible, best);
    return best;
  }
  // Periods may be no longer than this; then the shortest that there is, and somewhat longer ones
  // for which the sum is less.
  double most = limit / rounds_, least = 0;
  const double sum = programme(stages, to_next, most, best);
  if (sum == impossible) return best;
  if (!best.first_block.empty()) most = std::min(most, (best.step - sum) / rounds_);
  constexpr double near = 0.9, exact = 0.003;
  for (double middle = near * most; most - least > exact * most; middle = (least + most) / 2) {
    (programme(stages, to_next, middle, best) == impossible ? least : most) = middle;
  }
  for (const double longer : {1.01, 1.02, 1.04, 1.08, 1.16, 1.32}) {
    if (sum + rounds_ * longer * most >= best.step) break;
    programme(stages, to_next, longer * most, best);
  }
  return best;
}

std::optional<ShapedPipeline> StageTable::priced(ShapedPipeline pipeline, double limit) {
  Sequence stages;
  for (const StageShape& shape : pipeline.shapes) {
    const std::optional<std::size_t> known = add(shape);
    if (!known) return std::nullopt;
    stages.push_back(*known);
  }
  const std::vector<Link> to_next = links(stages);
  std::vector<Cell> cells(stages.size());
  bool fits = true;
  for (std::size_t s = stages.size(), end = blocks_; s-- > 0;) {
    const bool last = s + 1 == stages.size();
    const std::size_t begin = pipeline.first_block[s];
    const std::int32_t needed = form_.in_flight(s, stages.size());
    fits = fits && shapes_[stages[s]].in_flight[begin * (blocks_ + 1) + end] >= needed;
    cells[s] = before(stages, s, begin, end, last ? Link{} : to_next[s], impossible,
                      last ? nullptr : &cells[s + 1]);
    end = begin;
  }
  if (fits) {
    pipeline.step = step_of(stages, cells);
    return pipeline;
  }
  const Borders borders = cut(stages, limit);
  if (borders.first_block.empty()) return std::nullopt;
  return this->pipeline(stages, borders);
}

ShapedPipeline StageTable::pipeline(const Sequence& stages, const Borders& borders) const {
  ShapedPipeline one;
  for (const std::size_t stage : stages) one.shapes.push_back(shapes_[stage].shape);
  one.first_block = borders.first_block;
  one.step = borders.step;
  return one;
}

std::vector<bool> StageTable::together(const Sequence& stages) const {
  std::vector<bool> result;
  Machines machines(classes_);
  std::optional<std::size_t> before;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::vector<Member>& members = shapes_[stages[s]].shape.members;
    std::optional<std::size_t> machine;
    for (const Member& member : members) machine = machines.take(member);
    if (members.size() > 1) machine.reset();
    if (s > 0) {
      const Member& last = shapes_[stages[s - 1]].shape.members[0];
      const bool alike = last.of_class == members[0].of_class;
      result.push_back(alike && machine && machine == before);
    }
    before = machine;
  }
  return result;
}

std::vector<StageTable::Link> StageTable::links(const Sequence& stages) {
  const std::vector<bool> on_one_machine = together(stages);
  std::vector<Link> all;
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    all.push_back({&sends(stages[s], stages[s + 1], on_one_machine[s]), on_one_machine[s]});
  }
  return all;
}

/// Takes the best borders with periods within the bound where they are better than `best`. The
/// sum of what it finds; impossible, if there are none.
double StageTable::programme(const Sequence& stages, const std::vector<Link>& links, double bound,
                             Borders& best) {
  const std::size_t count = stages.size(), ends = blocks_ + 1;
  work_ += count * ends;
  std::vector<Cell> cells(count * ends);
  for (std::size_t s = count; s-- > 0;) {
    const bool last = s + 1 == count;
    const Link link = last ? Link{} : links[s];
    const std::int32_t needed = form_.in_flight(s, count);
    const Known& known = shapes_[stages[s]];
    const std::size_t last_begin = s == 0 ? 0 : blocks_ - (count - s);
    for (std::size_t begin = s; begin <= last_begin; ++begin) {
      Cell& least = cells[s * ends + begin];
      for (std::size_t end = last ? blocks_ : begin + 1; end + (count - s - 1) <= blocks_; ++end) {
        const std::size_t at = begin * ends + end;
        if (known.times[at] > bound || known.in_flight[at] < needed) break;
        const Cell* next = last ? nullptr : &cells[(s + 1) * ends + end];
        if (!last && next->sum == impossible) continue;
        // Most are no better even if nothing but their own updates comes after them.
        const double behind = last ? 0 : next->sum + 2 * (*link.sends)[end].time;
        const double sum = form_.outside(known.times[at], known.weights[at]) + behind;
        if (sum + known.afterwards[at] >= least.sum + least.after) continue;
        const Cell one = before(stages, s, begin, end, link, bound, next);
        const double path = form_.path(known.times[at], known.weights[at]);
        if (one.period > bound || form_.exceeds(one.excess, known.times[at], path)) continue;
        if (one.sum + one.after < least.sum + least.after) least = one;
      }
    }
  }
  const Cell& whole = cells[0];
  if (whole.sum == impossible) return impossible;
  if (whole.sum + rounds_ * whole.period + whole.after >= best.step) return whole.sum;
  std::vector<std::size_t> first;
  std::vector<Cell> chosen;
  for (std::size_t s = 0, begin = 0; s < count; ++s) {
    first.push_back(begin);
    chosen.push_back(cells[s * ends + begin]);
    begin = chosen.back().end;
  }
  const double step = step_of(stages, chosen);
  if (step < best.step) best = {std::move(first), step};
  return whole.sum;
}

/// Stage s with these blocks before the next ones; `next` is null of the last stage.
StageTable::Cell StageTable::before(const Sequence& stages, std::size_t s, std::size_t begin,
                                    std::size_t end, const Link& link, double bound,
                                    const Cell* next) {
  const Known& known = shapes_[stages[s]];
  const std::size_t at = begin * (blocks_ + 1) + end;
  const double load = known.times[at], path = form_.path(load, known.weights[at]);
  Cell one;
  one.end = end;
  one.period = one.busy = load;
  one.sum = form_.outside(load, known.weights[at]);
  one.excess = ClosedForm::excess(path, bound);
  one.after = known.afterwards[at];
  if (next == nullptr) return one;
  const StageCosts::Send& send = (*link.sends)[end];
  one.handed = send.time;
  one.sum += next->sum + 2 * one.handed;
  one.excess = form_.excess(path, bound, one.handed, next->excess);
  one.after = std::max(one.after, next->after - form_.of_last * load - one.handed);
  // What the stages of a machine hand over among each other takes none of its links.
  one.out = link.together ? next->out : send.on_links;
  const double crossing = link.together ? 0 : send.on_links + next->out;
  const double blocked = form_.of_send * send.time;
  one.busy += blocked;
  one.period = std::max({one.busy, next->period, crossing, next->busy + blocked});
  if (s == 0) one.after += shared(stages.front(), stages.back());
  return one;
}

/// With the period that any stages need, however long.
double StageTable::step_of(const Sequence& stages, const std::vector<Cell>& cells) {
  std::vector<double> loads, paths, handed;
  for (std::size_t s = 0, begin = 0; s < stages.size(); ++s) {
    const Known& known = shapes_[stages[s]];
    const std::size_t at = begin * (blocks_ + 1) + cells[s].end;
    loads.push_back(known.times[at]);
    paths.push_back(form_.path(known.times[at], known.weights[at]));
    handed.push_back(cells[s].handed);
    begin = cells[s].end;
  }
  const Cell& whole = cells.front();
  const double in_turn = form_.in_turn(loads, paths, handed);
  return whole.sum + rounds_ * std::max(whole.period, in_turn) + whole.after;
}

double StageTable::shared(std::size_t first, std::size_t last) {
  const auto [at, fresh] = shared_.try_emplace({first, last});
  if (fresh) at->second = costs_.shared_sum(shapes_[first].shape, shapes_[last].shape);
  return at->second;
}

const std::vector<StageCosts::Send>& StageTable::sends(std::size_t from, std::size_t to,
                                                       bool together) {
  const auto [at, fresh] = sends_.try_emplace({from, to, together});
  if (!fresh) return at->second;
  std::map<double, StageCosts::Send> by_bytes;  // as many between most blocks
  at->second.resize(blocks_ + 1);
  for (std::size_t block = 1; block < blocks_; ++block) {
    const auto [known, first] = by_bytes.try_emplace(costs_.bytes_across(block));
    if (first) {
      known->second = costs_.send(shapes_[from].shape, shapes_[to].shape, block, together);
    }
    at->second[block] = known->second;
  }
  return at->second;
}

}  // namespace parsim::strategies::mixed
