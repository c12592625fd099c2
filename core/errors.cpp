#include "core/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace parsim {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string lower_case(std::string_view text) {
  std::string small(text);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

/// what() would end at a NUL.
std::string without_nul(std::string text) {
  std::replace(text.begin(), text.end(), '\0', '?');
  return text;
}

}  // namespace

InputError::InputError(std::string_view place, std::string_view what_stands_there,
                       std::string_view what_is_right)
    : std::runtime_error(
          without_nul(what_is_right.empty()
                          ? fmt::format("{}: {}", place, what_stands_there)
                          : fmt::format("{}: {}; {}", place, what_stands_there, what_is_right))),
      where(place),
      found(what_stands_there),
      accepted(what_is_right) {}

void ensure(bool holds, std::string_view meaning) {
  if (!holds) throw BrokenInvariant(std::string(meaning));
}

std::string did_you_mean(std::string_view found, std::span<const std::string> known) {
  constexpr std::size_t longest_compared = 200;  // hostile input: the distance is quadratic
  if (found.size() > longest_compared) return {};
  const std::string* nearest = nullptr;
  const std::string small = lower_case(found);
  // Capitals are the smallest slip: 'H100-SXM5' is h100-sxm5, 'gbit/s' is Gbit/s.
  for (const std::string& word : known) {
    if (lower_case(word) == small) return fmt::format("; did you mean '{}'?", word);
  }
  // The beginning of a name ("a100" of a100-pcie) is a better hint than a near miss of another
  // (a10).
  constexpr std::size_t shortest_beginning = 3;
  if (found.size() >= shortest_beginning) {
    constexpr std::size_t most_named = 5;
    std::string names;
    std::size_t count = 0;
    const auto longer = [&](const std::string& word) {
      return lower_case(word).starts_with(small);
    };
    const auto all = std::min<std::size_t>(
        most_named, static_cast<std::size_t>(std::count_if(known.begin(), known.end(), longer)));
    for (const std::string& word : known) {
      if (!longer(word) || count == all) continue;
      names += fmt::format("{}'{}'", count == 0 ? "" : count + 1 == all ? " or " : ", ", word);
      ++count;
    }
    if (count > 0) return fmt::format("; did you mean {}?", names);
  }
  std::pair<std::size_t, std::size_t> least{std::max<std::size_t>(2, found.size() / 3) + 1, 0};
  for (const std::string& word : known) {
    const std::pair distance{edit_distance(small, lower_case(word)), edit_distance(found, word)};
    if (distance < least) {
      least = distance;
      nearest = &word;
    }
  }
  return nearest == nullptr ? std::string{} : fmt::format("; did you mean '{}'?", *nearest);
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

}  // namespace parsim
