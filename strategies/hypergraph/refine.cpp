#include "strategies/hypergraph/refine.hpp"

#include <algorithm>
#include <limits>
#include <queue>

namespace parsim::strategies::hypergraph {

namespace {

/// Rounding noise of the overload's running sum.
constexpr double noise = 1e-12;

struct Move {
  std::int64_t gain = 0;
  Vertex vertex = 0;
  std::int32_t to = -1;
  std::int32_t stamp = 0;
  /// Largest gain on top; ties by vertex.
  friend bool operator<(const Move& a, const Move& b) {
    return a.gain != b.gain ? a.gain < b.gain : a.vertex > b.vertex;
  }
};

/// The best move of a vertex that leaves no part more overloaded (`loose`: by more than a vertex's
/// weight); to = -1 if there is none.
Move best_move(const Hypergraph& graph, const Assignment& now, const Limits& limits, Vertex v,
               bool loose, std::vector<std::int64_t>& gains) {
  Move best{std::numeric_limits<std::int64_t>::min(), v, -1, 0};
  if (graph.fixed_part(v) >= 0) return best;
  now.gains(v, gains);
  const bool relieves = now.relieves(v);
  for (std::int32_t to = 0; to < limits.parts; ++to) {
    if (to == now.part(v) || gains[at(to)] <= best.gain) continue;
    if (!now.has_capacity(v, to, loose) && (!relieves || now.added_overload(v, to) > -noise)) {
      continue;
    }
    best.gain = gains[at(to)];
    best.to = to;
  }
  return best;
}

}  // namespace

Assignment::Assignment(const Hypergraph& graph, const Limits& limits, Parts parts)
    : graph_(graph),
      limits_(limits),
      parts_(std::move(parts)),
      reading_(graph.readers.size() * at(limits.parts), 0),
      own_(reading_.size(), 0),
      set_cost_(graph.readers.size(), 0),
      weights_(part_weights(graph, parts_, limits.parts)),
      cost_(connectivity_cost(graph, parts_)),
      overload_(hypergraph::overload(limits, weights_)) {
  first_weight_.reserve(at(graph.vertices) + 1);
  for (Vertex v = 0; v < graph.vertices; ++v) {
    first_weight_.push_back(vertex_weights_.size());
    for (std::int32_t c = 0; c < limits.constraints; ++c) {
      if (graph.weight(v, c) != 0) vertex_weights_.push_back({c, graph.weight(v, c)});
    }
  }
  first_weight_.push_back(vertex_weights_.size());
  for (std::size_t set = 0; set < graph.readers.size(); ++set) {
    const auto id = static_cast<std::int32_t>(set);
    for (const Vertex v : graph.readers[set]) ++reading_[slot(id, part(v))];
    for (const Source& source : graph.sources[set]) {
      own_[slot(id, part(source.vertex))] += source.cost;
      set_cost_[set] += source.cost;
    }
  }
}

void Assignment::gains(Vertex v, std::vector<std::int64_t>& to) const {
  const std::int32_t from = part(v);
  to.assign(at(limits_.parts), 0);
  std::int64_t leaving = 0;
  for (const Incidence& role : graph_.roles[at(v)]) {
    const std::int64_t all = set_cost_[at(role.set)];
    const std::int32_t moved = role.reader ? 1 : 0;
    const std::size_t first = slot(role.set, 0), a = first + at(from);
    if (reading_[a] > 0) leaving += all - own_[a];
    if (reading_[a] > moved) leaving -= all - own_[a] + role.cost;
    // What reads already receives less; a new reader receives all but its own.
    for (std::size_t b = 0; b < to.size(); ++b) {
      const std::int64_t received = role.reader ? all - own_[first + b] - role.cost : 0;
      to[b] += reading_[first + b] > 0 ? role.cost : -received;
    }
  }
  for (std::int64_t& gain : to) gain += leaving;
  to[at(from)] = 0;
}

std::int64_t Assignment::gain(Vertex v, std::int32_t to) const {
  std::vector<std::int64_t> all;
  gains(v, all);
  return all[at(to)];
}

double Assignment::added_overload(Vertex v, std::int32_t to) const {
  double added = 0;
  if (to == part(v)) return added;
  for (const auto& [c, w] : weights(v)) {
    const auto excess = [&](std::int32_t part, std::int64_t change) {
      const std::size_t i = limits_.index(part, c);
      return std::max<std::int64_t>(0, weights_[i] + change - limits_.caps[i]);
    };
    const std::int64_t change =
        excess(to, w) - excess(to, 0) + excess(part(v), -w) - excess(part(v), 0);
    added += static_cast<double>(change) / limits_.totals[at(c)];
  }
  return added;
}

bool Assignment::relieves(Vertex v) const {
  const auto own = weights(v);
  return std::any_of(own.begin(), own.end(), [&](const Weight& one) {
    const std::size_t i = limits_.index(part(v), one.constraint);
    return weights_[i] > limits_.caps[i];
  });
}

bool Assignment::too_heavy(std::int32_t part) const {
  for (std::int32_t c = 0; c < limits_.constraints; ++c) {
    const std::size_t i = limits_.index(part, c);
    if (weights_[i] > limits_.caps[i]) return true;
  }
  return false;
}

bool Assignment::has_capacity(Vertex v, std::int32_t to, bool loose) const {
  for (const auto& [c, w] : weights(v)) {
    const std::size_t i = limits_.index(to, c);
    if (weights_[i] + (loose ? 0 : w) > limits_.caps[i]) return false;
  }
  return true;
}

void Assignment::move(Vertex v, std::int32_t to, std::int64_t gain) {
  const std::int32_t from = part(v);
  gained_.clear();
  if (to == from) return;
  cost_ -= gain;
  overload_ += added_overload(v, to);
  if (overload_ < noise) overload_ = 0;
  for (const Incidence& role : graph_.roles[at(v)]) {
    const std::size_t a = slot(role.set, from), b = slot(role.set, to);
    own_[a] -= role.cost;
    own_[b] += role.cost;
    if (role.reader) {
      --reading_[a];
      ++reading_[b];
    }
    const bool left = role.reader && reading_[a] == 0, came = role.reader && reading_[b] == 1;
    // Entering a part that reads the net costs less; the only reader in a part saves more by
    // leaving.
    const bool all_readers = came || (role.cost > 0 && reading_[b] == 0);
    const bool last_reader = reading_[a] == 1 && (role.reader || role.cost > 0);
    if (left || came || all_readers || last_reader) {
      gained_.push_back({role.set, left || came, all_readers, last_reader ? from : -1});
    }
  }
  for (const auto& [c, w] : weights(v)) {
    weights_[limits_.index(from, c)] -= w;
    weights_[limits_.index(to, c)] += w;
  }
  parts_[at(v)] = to;
}

void rebalance(const Hypergraph& graph, Assignment& assignment, const Limits& limits) {
  struct Relief {
    double price = 0;
    Vertex vertex = 0;
    std::int32_t to = 0;
  };
  std::vector<std::int64_t> gains;
  std::vector<Relief> reliefs;
  // Each round takes some overload away; the number of rounds is a bound, not a plan.
  for (int round = 0; round < 50 && assignment.overload() > 0; ++round) {
    reliefs.clear();
    for (Vertex v = 0; v < graph.vertices; ++v) {
      if (graph.fixed_part(v) >= 0 || !assignment.too_heavy(assignment.part(v))) continue;
      Relief best{std::numeric_limits<double>::max(), v, -1};
      bool priced = false;
      for (std::int32_t to = 0; to < limits.parts; ++to) {
        const double removed = -assignment.added_overload(v, to);
        if (removed < noise) continue;
        if (!priced) assignment.gains(v, gains);
        priced = true;
        const auto loss = static_cast<double>(-gains[at(to)]);
        // A gain is the better the more it removes, too.
        const double price = loss > 0 ? loss / removed : loss * removed;
        if (price < best.price) best = {price, v, to};
      }
      if (best.to >= 0) reliefs.push_back(best);
    }
    if (reliefs.empty()) return;
    std::stable_sort(reliefs.begin(), reliefs.end(),
                     [](const Relief& a, const Relief& b) { return a.price < b.price; });
    // Prices change with every move: only the cheaper half is believed.
    const std::size_t believed = (reliefs.size() + 1) / 2;
    bool moved = false;
    for (std::size_t i = 0; i < believed && assignment.overload() > 0; ++i) {
      if (assignment.added_overload(reliefs[i].vertex, reliefs[i].to) > -noise) continue;
      assignment.move(reliefs[i].vertex, reliefs[i].to);
      moved = true;
    }
    if (!moved) return;
  }
}

namespace {

/// One pass. True if it left a better state.
bool pass(const Hypergraph& graph, Assignment& now, const Limits& limits, std::int32_t patience,
          bool loose) {
  std::vector<bool> locked(at(graph.vertices), false);
  std::vector<std::int32_t> stamps(at(graph.vertices), 0), seen(at(graph.vertices), -1);
  std::vector<std::int64_t> gains;
  std::vector<Move> first;
  for (Vertex v = 0; v < graph.vertices; ++v) {
    const Move move = best_move(graph, now, limits, v, loose, gains);
    if (move.to >= 0) first.push_back(move);
  }
  std::priority_queue<Move> queue(std::less<Move>{}, std::move(first));
  std::vector<Move> undo;  // where vertices came from, and what going back gains
  std::size_t kept = 0;
  double least_overload = now.overload();
  std::int64_t least_cost = now.cost();
  bool better = false;
  std::int32_t idle = 0;
  while (!queue.empty() && idle < patience) {
    const Move top = queue.top();
    queue.pop();
    if (locked[at(top.vertex)] || top.stamp != stamps[at(top.vertex)]) continue;
    // Capacity may have changed since the move was priced.
    Move move = best_move(graph, now, limits, top.vertex, loose, gains);
    if (move.to < 0) continue;
    if (move.gain < top.gain) {
      move.stamp = ++stamps[at(top.vertex)];
      queue.push(move);
      continue;
    }
    undo.push_back({-move.gain, move.vertex, now.part(move.vertex), 0});
    now.move(move.vertex, move.to, move.gain);
    locked[at(move.vertex)] = true;
    const bool lighter = now.overload() < least_overload - noise;
    const bool cheaper = now.overload() <= least_overload + noise && now.cost() < least_cost;
    if (lighter || cheaper) {
      least_overload = now.overload();
      least_cost = now.cost();
      kept = undo.size();
      better = true;
      idle = 0;
    } else {
      ++idle;
    }
    const auto update = [&](Vertex v) {
      if (locked[at(v)] || seen[at(v)] == static_cast<std::int32_t>(undo.size())) return;
      seen[at(v)] = static_cast<std::int32_t>(undo.size());
      Move next = best_move(graph, now, limits, v, loose, gains);
      next.stamp = ++stamps[at(v)];
      if (next.to >= 0) queue.push(next);
    };
    // Only gains that may have grown; one that fell is found when its move is tried.
    for (const Assignment::Gained& gained : now.gained()) {
      if (gained.all_readers || gained.last_reader_in >= 0) {
        for (const Vertex v : graph.readers[at(gained.set)]) {
          if (gained.all_readers || now.part(v) == gained.last_reader_in) update(v);
        }
      }
      if (gained.sources) {
        for (const Source& source : graph.sources[at(gained.set)]) update(source.vertex);
      }
    }
  }
  for (std::size_t i = undo.size(); i-- > kept;) {
    now.move(undo[i].vertex, undo[i].to, undo[i].gain);
  }
  return better;
}

}  // namespace

void refine(const Hypergraph& graph, Assignment& assignment, const Limits& limits,
            std::int32_t patience) {
  if (limits.parts < 2) return;
  // On coarse graphs a pass may overfill a part by one vertex where strict ones find nothing any
  // more: exchanges of heavy vertices need it. Only balanced states are kept.
  constexpr std::int32_t few = 400;
  constexpr int most_passes = 20;
  bool loose = false;
  for (int i = 0; i < most_passes; ++i) {
    const bool better = pass(graph, assignment, limits, patience, loose);
    if (!better && (loose || graph.vertices > few)) break;
    loose = !better;
  }
}

}  // namespace parsim::strategies::hypergraph
