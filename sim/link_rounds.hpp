// Rounds of colour refinement of links by the flows that cross them, of which each looks only at
// what the one before changed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/alike_units.hpp"
#include "sim/color.hpp"
#include "sim/flow_lists.hpp"
#include "sim/open_hops.hpp"

namespace parsim::sim {

/// What rounds look at; must outlive them.
struct LinkRoundsInput {
  const RouteTable& table;
  const FlowLists& lists;
  std::span<const Communication> communications;
  const RouteHops& hops;
  std::size_t link_count;                      ///< in both directions
  const std::vector<std::size_t>& used_links;  ///< by Hop::index()
  const AlikeUnits* units = nullptr;           ///< null: the DAG is whole
};

/// Refines classes of links: those of one class then carry as many flows of each class of flows,
/// which are of communications with flows of the same classes. What a communication waits for is
/// not looked at.
///
/// When a class divides, its largest part keeps its colour. So a difference that travels along a
/// ring, from link to link in dozens of rounds, changes few colours in each, and only the flows
/// over these links are looked at again. The classes after each round are those of a round that
/// gives all links new colours.
///
/// Checked: tests/sim/link_rounds_test.cpp
class LinkRounds {
 public:
  explicit LinkRounds(const LinkRoundsInput& input);
  /// One round. links: by Hop::index(), as the last round left them; of the first round, any.
  void refine(std::vector<Color>& links);

 private:
  /// Communications with the same flows and times.
  struct Kind {
    std::size_t list = 0;
    bool within = false;
    Color times = 0, count = 0;
    Color color = 0;  ///< with which its flows are carried
  };
  /// A flow of a list.
  struct ListedFlow {
    std::uint32_t list = 0, flow = 0;
  };
  /// Items by owner, all in one list.
  template <class Item>
  struct Index {
    std::vector<std::size_t> ends;  ///< by owner
    std::vector<Item> items;
    [[nodiscard]] std::span<const Item> of(std::size_t owner) const {
      const std::size_t first = owner == 0 ? 0 : ends[owner - 1];
      return std::span(items).subspan(first, ends[owner] - first);
    }
  };

  /// walk(add) calls add(owner, item) for each, the same ones in the same order whenever called.
  template <class Item, class Walk>
  static Index<Item> index_of(std::size_t owners, Walk walk);
  void find_kinds();
  void find_changed_routes(const std::vector<Color>& links);
  [[nodiscard]] Color color_of(std::size_t route, const std::vector<Color>& links) const;
  [[nodiscard]] const OpFlow& at(ListedFlow flow) const {
    return in_.lists.of(flow.list)[flow.flow];
  }
  void color_lists();
  void color_kinds();
  void carry();
  void carry(const Kind& kind, const OpFlow& flow, Color color);
  /// Those of equal `colors` that have another signature than most of these get colours of their
  /// own; in the first round, all.
  void divide(std::vector<Color>& colors, const std::vector<Color>& signatures) const;

  LinkRoundsInput in_;
  Color round_ = 0;
  std::vector<Color> seen_links_;     ///< as the last round saw them
  Index<std::uint32_t> open_routes_;  ///< by hop: those that it is an open hop of
  Index<ListedFlow> flows_of_;        ///< by route
  Index<std::uint32_t> kinds_of_;     ///< by list
  std::vector<std::size_t> first_hops_, changed_routes_;
  std::vector<bool> route_changed_;
  std::vector<Color> routes_, old_routes_, lists_, kind_colors_, carried_, within_;
  std::vector<Kind> kinds_;
};

}  // namespace parsim::sim
