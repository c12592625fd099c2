// Flows of many communications, of which most are equal: the same collective in every layer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/color.hpp"
#include "sim/prepared_dag.hpp"

namespace parsim::sim {

/// Equal lists are kept once.
class FlowLists {
 public:
  /// The list's number, from 0.
  std::size_t add(std::span<const OpFlow> flows) {
    Color color = flows.size();
    for (const OpFlow& flow : flows) {
      color = mix(color, static_cast<Color>(flow.route));
      color = mix(mix(color, static_cast<Color>(flow.payload.value)), flow.wait);
    }
    const auto [begin, end] = known_.equal_range(color);
    const auto same = std::find_if(begin, end, [&](const auto& entry) {
      return std::ranges::equal(of(entry.second), flows, equal);
    });
    if (same != end) return same->second;
    flows_.insert(flows_.end(), flows.begin(), flows.end());
    ends_.push_back(flows_.size());
    known_.emplace(color, ends_.size() - 1);
    return ends_.size() - 1;
  }
  [[nodiscard]] std::span<const OpFlow> of(std::size_t list) const {
    const std::size_t first = list == 0 ? 0 : ends_[list - 1];
    return std::span(flows_).subspan(first, ends_[list] - first);
  }
  [[nodiscard]] std::size_t count() const { return ends_.size(); }
  [[nodiscard]] std::size_t flow_count() const { return flows_.size(); }

 private:
  static bool equal(const OpFlow& a, const OpFlow& b) {
    return a.route == b.route && a.payload == b.payload && a.wait == b.wait;
  }

  std::vector<OpFlow> flows_;
  std::vector<std::size_t> ends_;  ///< by list
  std::unordered_multimap<Color, std::size_t> known_;
};

/// Ways over links that stand for their classes, each as often as it is crossed.
struct Ways {
  RouteTable table;
  std::map<std::vector<std::size_t>, std::size_t> known;
  std::size_t number(std::vector<Hop> way) {
    std::sort(way.begin(), way.end(), [](Hop a, Hop b) { return a.index() < b.index(); });
    std::vector<std::size_t> key;
    for (const Hop hop : way) key.push_back(hop.index());
    const auto [entry, fresh] = known.try_emplace(std::move(key), table.routes.size());
    if (fresh) {
      Route& route = table.whole_routes.emplace_back();
      route.hops = std::move(way);
      table.routes.push_back(&route);
    }
    return entry->second;
  }
};

}  // namespace parsim::sim
