#include "sim/link_rounds.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "sim/runners.hpp"

namespace parsim::sim {

namespace {

Color color_of_flow(Color operation, Color route, const OpFlow& flow) {
  return mix(mix(mix(operation, route), static_cast<Color>(flow.payload.value)), flow.wait);
}

}  // namespace

template <class Item, class Walk>
LinkRounds::Index<Item> LinkRounds::index_of(std::size_t owners, Walk walk) {
  Index<Item> index;
  index.ends.assign(owners + 1, 0);
  walk([&](std::size_t owner, Item) { ++index.ends[owner + 1]; });
  for (std::size_t i = 1; i <= owners; ++i) index.ends[i] += index.ends[i - 1];
  index.items.resize(index.ends[owners]);
  // ends[i] is where the next item of i goes; in the end that is where those of i end.
  walk([&](std::size_t owner, Item item) { index.items[index.ends[owner]++] = item; });
  return index;
}

LinkRounds::LinkRounds(const LinkRoundsInput& input) : in_(input) {
  const std::vector<const Route*>& routes = in_.table.routes;
  routes_.resize(routes.size());
  old_routes_.resize(routes.size());
  route_changed_.resize(routes.size());
  lists_.resize(in_.lists.count());
  carried_.resize(in_.link_count);
  within_.resize(in_.units == nullptr ? 0 : carried_.size());
  std::size_t hops = 0;
  for (const Route* route : routes) {
    first_hops_.push_back(hops);
    hops += route->hops.size();
  }
  open_routes_ = index_of<std::uint32_t>(carried_.size(), [&](auto add) {
    for (std::size_t r = 0; r < routes.size(); ++r) {
      for (std::size_t h = 0; h < routes[r]->hops.size(); ++h) {
        if (in_.hops.open[first_hops_[r] + h])
          add(routes[r]->hops[h].index(), static_cast<std::uint32_t>(r));
      }
    }
  });
  flows_of_ = index_of<ListedFlow>(routes.size(), [&](auto add) {
    for (std::uint32_t list = 0; list < lists_.size(); ++list) {
      for (std::uint32_t flow = 0; const OpFlow& one : in_.lists.of(list))
        add(one.route, ListedFlow{list, flow++});
    }
  });
  find_kinds();
  kinds_of_ = index_of<std::uint32_t>(lists_.size(), [&](auto add) {
    for (std::uint32_t i = 0; i < kinds_.size(); ++i) add(kinds_[i].list, i);
  });
}

void LinkRounds::find_kinds() {
  std::vector<Color> colors;
  for (const Communication& one : in_.communications) {
    colors.push_back(
        mix(mix(mix(mix(0, static_cast<Color>(one.list)), one.longest_wait), one.least),
            static_cast<Color>(one.within)));
  }
  const std::vector<std::int32_t> first = first_of_colors(colors);
  std::vector<std::size_t> kind_of(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto like = static_cast<std::size_t>(first[i]);
    if (like == i) {
      const Communication& one = in_.communications[i];
      kind_of[i] = kinds_.size();
      kinds_.push_back({one.list, one.within, mix(mix(0, one.longest_wait), one.least), 0, 0});
    }
    kinds_[kind_of[i] = kind_of[like]].count += 1;
  }
  kind_colors_.resize(kinds_.size());
}

void LinkRounds::refine(std::vector<Color>& links) {
  find_changed_routes(links);
  color_lists();
  if (round_ == 0 || !changed_routes_.empty()) color_kinds();
  carry();
  std::vector<Color> colors, signatures;
  for (const std::size_t link : in_.used_links) {
    colors.push_back(links[link]);
    signatures.push_back(carried_[link]);
    if (in_.units != nullptr && in_.units->hop_unit[link] >= 0)
      signatures.back() += within_[in_.units->hop_origin[link]];
  }
  seen_links_ = links;
  divide(colors, signatures);
  for (std::size_t i = 0; i < colors.size(); ++i) links[in_.used_links[i]] = colors[i];
  for (const std::size_t route : changed_routes_) route_changed_[route] = false;
  ++round_;
}

void LinkRounds::find_changed_routes(const std::vector<Color>& links) {
  changed_routes_.clear();
  const auto change = [&](std::size_t route) {
    if (route_changed_[route]) return;
    route_changed_[route] = true;
    changed_routes_.push_back(route);
    old_routes_[route] = std::exchange(routes_[route], color_of(route, links));
  };
  for (std::size_t route = 0; round_ == 0 && route < routes_.size(); ++route) change(route);
  for (std::size_t link = 0; round_ > 0 && link < links.size(); ++link) {
    if (links[link] == seen_links_[link]) continue;
    for (const std::uint32_t route : open_routes_.of(link)) change(route);
  }
}

// Sums of colours are those of multisets: their order does not matter.

Color LinkRounds::color_of(std::size_t route, const std::vector<Color>& links) const {
  Color color = in_.hops.slowest[route];
  std::size_t hop_number = first_hops_[route];
  for (const Hop hop : in_.table.routes[route]->hops) {
    if (in_.hops.open[hop_number++]) color += splitmix64(links[hop.index()]);
  }
  return color;
}

void LinkRounds::color_lists() {
  for (const std::size_t route : changed_routes_) {
    for (const ListedFlow flow : flows_of_.of(route)) {
      lists_[flow.list] += color_of_flow(0, routes_[route], at(flow));
      if (round_ > 0) lists_[flow.list] -= color_of_flow(0, old_routes_[route], at(flow));
    }
  }
}

void LinkRounds::color_kinds() {
  std::vector<Color> own;
  for (const Kind& kind : kinds_) own.push_back(mix(lists_[kind.list], kind.times));
  divide(kind_colors_, own);
}

/// All flows of kinds with another colour, and of others those over routes with another one.
void LinkRounds::carry() {
  const auto changed = [&](std::size_t kind) {
    return round_ == 0 || kinds_[kind].color != kind_colors_[kind];
  };
  for (const std::size_t route : changed_routes_) {
    for (const ListedFlow flow : flows_of_.of(route)) {
      for (const std::uint32_t kind : kinds_of_.of(flow.list)) {
        if (!changed(kind)) carry(kinds_[kind], at(flow), kind_colors_[kind]);
      }
    }
  }
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    if (!changed(i)) continue;
    for (const OpFlow& flow : in_.lists.of(kinds_[i].list)) carry(kinds_[i], flow, kind_colors_[i]);
    kinds_[i].color = kind_colors_[i];
  }
}

/// A flow that the last round saw with other colours, or never.
void LinkRounds::carry(const Kind& kind, const OpFlow& flow, Color color) {
  Color more = color_of_flow(color, routes_[flow.route], flow);
  if (round_ > 0) {
    const std::vector<Color>& routes = route_changed_[flow.route] ? old_routes_ : routes_;
    more -= color_of_flow(kind.color, routes[flow.route], flow);
  }
  std::vector<Color>& carried = kind.within ? within_ : carried_;
  for (const Hop hop : in_.table.routes[flow.route]->hops)
    carried[hop.index()] += kind.count * more;
}

void LinkRounds::divide(std::vector<Color>& colors, const std::vector<Color>& signatures) const {
  std::vector<Color> both;
  for (std::size_t i = 0; i < colors.size(); ++i)
    both.push_back(mix(mix(colors[i], signatures[i]), round_));
  if (round_ == 0) {
    colors = std::move(both);
    return;
  }
  const std::vector<std::int32_t> first = first_of_colors(both);
  std::vector<std::size_t> counts(first.size());
  for (const std::int32_t one : first) ++counts[static_cast<std::size_t>(one)];
  std::unordered_map<Color, std::size_t> largest;  // part of each class, by its first member
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (counts[i] == 0) continue;
    std::size_t& most = largest.try_emplace(colors[i], i).first->second;
    if (counts[i] > counts[most]) most = i;
  }
  for (std::size_t i = first.size(); i-- > 0;) {
    const auto part = static_cast<std::size_t>(first[i]);
    if (largest.at(colors[part]) != part) colors[i] = both[i];
  }
}

}  // namespace parsim::sim
