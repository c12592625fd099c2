#include "topologies/pattern.hpp"

#include <fmt/format.h>

#include "core/errors.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0;
  std::size_t star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      // The last star takes one character more; earlier ones need never be tried again.
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void refuse_unmatched(std::string_view pattern, const std::vector<std::string>& names,
                      std::string_view where) {
  constexpr std::size_t most_shown = 8;
  const std::span<const std::string> all(names);
  throw InputError(where, fmt::format("'{}' matches no name", pattern),
                   fmt::format("accepted: {}{}, with * for any characters{}",
                               join(all.first(std::min(most_shown, all.size()))),
                               all.size() > most_shown ? ", …" : "", did_you_mean(pattern, names)));
}

void PortNames::add(const std::string& name, Port port) {
  // A name that occurs twice is refused later, with the whole cluster; until then the first counts.
  index_.emplace(name, names_.size());
  names_.push_back(name);
  ports_.push_back(port);
}

std::vector<Port> PortNames::match(std::string_view pattern, std::string_view where) const {
  // Plain names first: quick, and right for a name that itself contains a star.
  if (const auto exact = index_.find(std::string(pattern)); exact != index_.end()) {
    return {ports_[exact->second]};
  }
  std::vector<Port> found;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (matches(pattern, names_[i])) found.push_back(ports_[i]);
  }
  if (found.empty()) refuse_unmatched(pattern, names_, where);
  return found;
}

}  // namespace parsim::topologies
