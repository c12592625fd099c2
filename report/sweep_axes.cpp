#include "report/sweep_axes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/text.hpp"

namespace parsim::report {

namespace {

using Indices = std::vector<std::uint32_t>;

/// Values numbered as they come first.
SweepAxis axis_of(const SweepInput& input) {
  SweepAxis axis{{input.name}, {}, {}, {}};
  std::map<std::string, std::uint32_t> known;
  for (const std::string& value : input.of_point) {
    const auto [at, added] = known.emplace(value, known.size());
    if (added) axis.values.push_back(value);
    axis.of_point.push_back(at->second);
  }
  return axis;
}

/// Whether points that agree in `a` agree in `b`.
bool determines(const Indices& a, const Indices& b) {
  constexpr std::uint32_t unknown = std::numeric_limits<std::uint32_t>::max();
  Indices b_of(a.size(), unknown);
  for (std::size_t p = 0; p < a.size(); ++p) {
    std::uint32_t& known = b_of[a[p]];
    if (known == unknown) known = b[p];
    if (known != b[p]) return false;
  }
  return true;
}

/// Whether points that agree in all of `several` agree in `one`.
bool together_determine(const std::vector<const SweepAxis*>& several, const SweepAxis& one) {
  std::map<Indices, std::uint32_t> known;
  for (std::size_t p = 0; p < one.of_point.size(); ++p) {
    Indices key;
    for (const SweepAxis* axis : several) key.push_back(axis->of_point[p]);
    if (known.emplace(std::move(key), one.of_point[p]).first->second != one.of_point[p]) {
      return false;
    }
  }
  return true;
}

/// Whether every value of `a` has that of `b` in it: "devices.*.price=2 /h" has "2 /h".
bool spells_out(const SweepAxis& a, const SweepAxis& b) {
  for (std::size_t v = 0; v < a.values.size(); ++v) {
    if (a.values[v].size() <= b.values[v].size() ||
        a.values[v].find(b.values[v]) == std::string::npos) {
      return false;
    }
  }
  return true;
}

/// One axis of several that change together; the number of values is the same, and their order.
SweepAxis joined(const std::vector<SweepAxis>& group) {
  SweepAxis all{{}, std::vector<std::string>(group.front().values.size()), {}, {}};
  all.of_point = group.front().of_point;
  for (const SweepAxis& axis : group) {
    const bool longer = std::any_of(group.begin(), group.end(), [&](const SweepAxis& other) {
      return spells_out(axis, other);
    });
    if (longer) continue;
    all.names.push_back(axis.names.front());
    for (std::size_t v = 0; v < all.values.size(); ++v) {
      all.values[v] += (all.values[v].empty() ? "" : ", ") + axis.values[v];
    }
  }
  return all;
}

/// Without axes that others together say.
std::vector<SweepAxis> independent(const std::vector<SweepAxis>& axes) {
  std::vector<bool> composed(axes.size()), follows(axes.size());
  for (std::size_t a = 0; a < axes.size(); ++a) {
    std::vector<const SweepAxis*> parts;
    for (const SweepAxis& other : axes) {
      if (&other != &axes[a] && determines(axes[a].of_point, other.of_point)) {
        parts.push_back(&other);
      }
    }
    composed[a] = !parts.empty() && together_determine(parts, axes[a]);
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    for (std::size_t b = 0; b < axes.size(); ++b) {
      if (a != b && !composed[b] && determines(axes[b].of_point, axes[a].of_point)) {
        follows[a] = true;
      }
    }
  }
  std::vector<SweepAxis> kept;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (!composed[a] && !follows[a]) kept.push_back(axes[a]);
  }
  return kept;
}

}  // namespace

std::vector<std::string> differing_parts(const std::vector<std::string>& texts) {
  std::map<std::string, std::size_t> seen;
  for (const std::string& text : texts) {
    std::set<std::string> parts;
    for (const std::string& part : split_at(text, ',')) parts.insert(part);
    for (const std::string& part : parts) ++seen[part];
  }
  std::vector<std::string> short_texts;
  for (const std::string& text : texts) {
    std::vector<std::string> kept;
    for (const std::string& part : split_at(text, ',')) {
      if (seen[part] < texts.size()) kept.push_back(part);
    }
    short_texts.push_back(join(kept, ","));
    if (short_texts.back().empty()) return texts;
  }
  const std::set<std::string> distinct(short_texts.begin(), short_texts.end());
  return distinct.size() == texts.size() ? short_texts : texts;
}

std::vector<SweepAxis> axes_of(const std::vector<SweepInput>& inputs) {
  std::vector<std::vector<SweepAxis>> groups;
  for (const SweepInput& input : inputs) {
    SweepAxis axis = axis_of(input);
    if (axis.values.size() < 2) continue;
    // Numbered as they come first, values that change together have the same numbers.
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.front().of_point == axis.of_point;
    });
    if (same == groups.end()) {
      groups.push_back({std::move(axis)});
    } else {
      same->push_back(std::move(axis));
    }
  }
  std::vector<SweepAxis> axes;
  for (const auto& group : groups) axes.push_back(joined(group));
  axes = independent(axes);
  for (SweepAxis& axis : axes) axis.headings = differing_parts(axis.values);
  return axes;
}

}  // namespace parsim::report
