// Names with `*`, by which links and overrides of a file select devices, switches and links.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/cluster.hpp"

namespace parsim::topologies {

/// True if `*` of the pattern, each standing for any characters or none, can be filled in to give
/// the name. Takes at most the product of both lengths.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name);

/// Throws the InputError for a pattern that matches none of `names`.
[[noreturn]] void refuse_unmatched(std::string_view pattern, const std::vector<std::string>& names,
                                   std::string_view where);

/// The devices and switches that a pattern may match.
class PortNames {
 public:
  void add(const std::string& name, Port port);
  /// In the order of addition. Throws InputError if there is none.
  [[nodiscard]] std::vector<Port> match(std::string_view pattern, std::string_view where) const;

 private:
  std::vector<std::string> names_;
  std::vector<Port> ports_;
  std::unordered_map<std::string, std::size_t> index_;  ///< asked only
};

/// Positions of the devices or links whose name matches. Throws InputError if there is none.
template <class Named>
[[nodiscard]] std::vector<std::size_t> matching(const std::vector<Named>& all,
                                                std::string_view pattern, std::string_view where) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (matches(pattern, all[i].name)) found.push_back(i);
  }
  if (found.empty()) {
    std::vector<std::string> names;
    for (const Named& each : all) names.push_back(each.name);
    refuse_unmatched(pattern, names, where);
  }
  return found;
}

}  // namespace parsim::topologies
