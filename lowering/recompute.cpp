#include "lowering/recompute.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/errors.hpp"
#include "lowering/memory.hpp"

namespace parsim::lowering {

namespace {

struct Segments {
  std::vector<std::size_t> begins;  ///< empty: there are none
  double kept = 0;                  ///< bytes
};

/// The segmentation that keeps least with a peak of at most `most`. Fewer bytes kept before an
/// element are always better, so one number per element describes a partial solution.
Segments segments_within(const std::vector<Checkpoint>& chain, double most) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const std::size_t count = chain.size();
  std::vector<double> kept(count + 1, never);
  std::vector<std::size_t> begin(count + 1);
  kept[0] = 0;
  for (std::size_t end = 1; end <= count; ++end) {
    double all = 0, stays = 0;
    for (std::size_t first = end; first-- > 0;) {
      const bool crosses = chain[first].last_reader >= end;
      all += crosses ? chain[first].whole : chain[first].bytes;
      if (crosses) stays += chain[first].whole;
      if (all > most) break;
      if (kept[first] + all > most || kept[first] + stays >= kept[end]) continue;
      kept[end] = kept[first] + stays;
      begin[end] = first;
    }
  }
  Segments found;
  if (kept[count] == never) return found;
  found.kept = kept[count];
  for (std::size_t end = count; end > 0; end = begin[end]) found.begins.push_back(begin[end]);
  std::reverse(found.begins.begin(), found.begins.end());
  return found;
}

/// The most micro-batches that a stage has gone forward through and not yet back.
std::int64_t most_in_flight(const Schedule& schedule, std::int32_t stage) {
  std::int64_t now = 0, most = 1;
  for (const RankList& list : schedule.rank_lists) {
    now = 0;
    for (const Slot& slot : list.slots) {
      if (slot.stage != stage) continue;
      if (slot.direction == Direction::weights) continue;  // the next backward has let go
      now += slot.direction == Direction::forward ? 1 : -1;
      most = std::max(most, now);
    }
  }
  return most;
}

/// Whether the stage goes backward through every micro-batch right after it went forward.
bool backward_follows_forward(const Schedule& schedule, std::int32_t stage) {
  for (const RankList& list : schedule.rank_lists) {
    for (std::size_t s = 0; s < list.slots.size(); ++s) {
      const Slot& slot = list.slots[s];
      if (slot.stage != stage || slot.direction != Direction::forward) continue;
      const Slot back{stage, slot.micro_batch, Direction::backward};
      if (s + 1 == list.slots.size() || list.slots[s + 1] != back) return false;
    }
  }
  return true;
}

}  // namespace

bool gathers_for_each_pass(const Layer& reader, Framework framework) {
  if (reader.kind.as<Attention>() != nullptr) return true;
  return of_megatron(framework) && reader.kind.as<Dense>() != nullptr &&
         reader.out.region_axis(Dim::expert) == 0;
}

std::vector<bool> dropped_outputs(const Network& network, const Plan& plan) {
  std::vector<bool> dropped(network.layers.size());
  const bool any = std::any_of(plan.layers.begin(), plan.layers.end(),
                               [](const LayerPlan& layer) { return layer.recompute; });
  if (!any) return dropped;
  const GradientFlow flow = gradient_flow(network);
  const auto readers = consumers(network);
  const std::vector<std::int32_t>& stage = plan.schedule.stage_of_layer;
  for (std::size_t l = 0; l < dropped.size(); ++l) {
    dropped[l] = plan.layers[l].recompute && !flow.source[l] &&
                 std::all_of(readers[l].begin(), readers[l].end(), [&](const Consumer& reader) {
                   return stage[reader.layer.index()] == stage[l];
                 });
  }
  return dropped;
}

std::vector<LayerVisit> backward_visits(const Network& network, const GradientFlow& flow,
                                        const std::vector<bool>& dropped,
                                        std::span<const LayerId> members) {
  std::vector<LayerVisit> visits;
  std::vector<bool> there(network.layers.size());
  const std::function<void(LayerId)> bring = [&](LayerId id) {
    if (!dropped[id.index()] || there[id.index()]) return;
    there[id.index()] = true;
    for (const LayerId producer : network[id].inputs) bring(producer);
    visits.push_back({id, true});
  };
  for (std::size_t m = members.size(); m-- > 0;) {
    if (!flow.wants[members[m].index()]) continue;
    for (const LayerId producer : network[members[m]].inputs) bring(producer);
    visits.push_back({members[m], false});
  }
  return visits;
}

std::vector<std::size_t> checkpoint_segments(const std::vector<Checkpoint>& chain,
                                             std::int64_t in_flight) {
  double least = 0, all = 0;
  for (const Checkpoint& element : chain) {
    least = std::max(least, element.bytes - 1);
    all += element.whole;
  }
  // The fewer bytes, the sooner each try ends: up from the least, then between the last two.
  double most = std::max(2 * least, 1.0);
  Segments best = segments_within(chain, most);
  while (best.begins.empty() && most < all) {
    least = most;
    most = std::min(2 * most, all);
    best = segments_within(chain, most);
  }
  while (most - least > 0.5) {
    const double middle = (least + most) / 2;
    if (Segments found = segments_within(chain, middle); found.begins.empty()) {
      least = middle;
    } else {
      best = std::move(found);
      most = middle;
    }
  }
  most = std::floor(most);  // bytes are whole
  if (in_flight == 1) return best.begins;
  // A higher peak of one micro-batch keeps less of the others.
  const auto others = static_cast<double>(in_flight - 1);
  constexpr double step = 1.05;
  double lowest = most + others * best.kept;
  for (double peak = most * step; peak < std::min(all * step, lowest); peak *= step) {
    Segments found = segments_within(chain, std::min(peak, all));
    const double whole = std::min(peak, all) + others * found.kept;
    if (whole >= lowest) continue;
    lowest = whole;
    best = std::move(found);
  }
  return best.begins;
}

void recompute_segments(const Network& network, Plan& plan) {
  const std::size_t count = network.layers.size();
  const GradientFlow flow = gradient_flow(network);
  const auto readers = consumers(network);
  const std::vector<std::int32_t>& stage_of = plan.schedule.stage_of_layer;
  std::vector<std::vector<std::size_t>> members;  // layers by stage
  for (std::size_t l = 0; l < count; ++l) {
    const auto stage = static_cast<std::size_t>(stage_of[l]);
    members.resize(std::max(members.size(), stage + 1));
    members[stage].push_back(l);
  }
  const std::int64_t element = element_bytes(plan.precision);
  const std::vector<std::int64_t> bytes = kept_bytes(network, plan.precision);
  // Functions that work in place have the memory of what they read.
  std::vector<std::size_t> owner(count);
  for (std::size_t l = 0; l < count; ++l) {
    owner[l] = l;
    if (!works_in_place(network.layers[l].kind)) continue;
    const std::size_t producer = network.layers[l].inputs[0].index();
    if (stage_of[producer] == stage_of[l]) owner[l] = owner[producer];
  }
  for (std::size_t s = 0; s < members.size(); ++s) {
    std::vector<std::size_t> position(count, 0);
    for (std::size_t p = 0; p < members[s].size(); ++p) position[members[s][p]] = p;
    std::vector<Checkpoint> chain(members[s].size());
    for (std::size_t p = 0; p < chain.size(); ++p) {
      const std::size_t l = members[s][p];
      Checkpoint& memory = chain[position[owner[l]]];
      if (owner[l] == l && !flow.source[l]) {
        const auto elements = static_cast<double>(network.layers[l].out.elements());
        memory.bytes = elements * static_cast<double>(bytes[l]);
        memory.whole = elements * static_cast<double>(std::max(bytes[l], element));
      }
      for (const Consumer& reader : readers[l]) {
        const std::size_t reads = reader.layer.index();
        memory.last_reader = std::max(
            memory.last_reader, stage_of[reads] == stage_of[l] ? position[reads] : chain.size());
      }
    }
    const std::vector<std::size_t> begins =
        checkpoint_segments(chain, most_in_flight(plan.schedule, static_cast<std::int32_t>(s)));
    for (std::size_t b = 0; b < begins.size(); ++b) {
      const bool last = b + 1 == begins.size();
      const std::size_t end = last ? chain.size() : begins[b + 1];
      const bool kept =
          last && backward_follows_forward(plan.schedule, static_cast<std::int32_t>(s));
      for (std::size_t p = begins[b]; p < end; ++p) {
        const std::size_t l = members[s][p];
        plan.layers[l].recompute =
            !kept && !flow.source[l] && chain[position[owner[l]]].last_reader < end;
      }
    }
  }
}

std::vector<LayerId> attention_scores(const Network& network) {
  std::vector<bool> among(network.layers.size());
  for (const Layer& layer : network.layers) {
    if (layer.kind.as<MatMul>() == nullptr) continue;
    // Back from the operand that weighs the values to the matmul that made it; masks are smaller or
    // inputs.
    std::vector<LayerId> path{layer.inputs[0]};
    bool softmax = false, product = false;
    for (std::size_t p = 0; p < path.size(); ++p) {
      const Layer& step = network[path[p]];
      softmax = softmax || step.kind.as<Softmax>() != nullptr;
      if (step.kind.as<MatMul>() != nullptr) {
        product = true;
        continue;
      }
      for (const LayerId producer : step.inputs) {
        const bool alike = network[producer].out.elements() == step.out.elements() &&
                           network[producer].kind.as<Input>() == nullptr;
        if (alike && std::find(path.begin(), path.end(), producer) == path.end()) {
          path.push_back(producer);
        }
      }
    }
    if (!softmax || !product) continue;
    for (const LayerId id : path) among[id.index()] = true;
  }
  std::vector<LayerId> scores;
  for (std::size_t l = 0; l < among.size(); ++l) {
    if (among[l]) scores.emplace_back(l);
  }
  return scores;
}

void recompute_attention(const Network& network, Plan& plan) {
  for (LayerPlan& layer : plan.layers) layer.recompute = false;
  for (const LayerId id : attention_scores(network)) plan.layers[id.index()].recompute = true;
}

}  // namespace parsim::lowering
