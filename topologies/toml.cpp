// TOML to the tree of document.hpp; the only file that sees toml++.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "core/errors.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

namespace {

std::string described(toml::node_type type) {
  switch (type) {
    case toml::node_type::floating_point:
      return "a bare number";
    default:
      return "a date or time";
  }
}

// toml++ bounds the nesting, so the recursion is bounded too.
Value convert(const toml::node& node) {
  Value value;
  value.line = node.source().begin.line;
  if (const auto* text = node.as_string()) {
    value.kind = Value::Kind::text;
    value.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.kind = Value::Kind::integer;
    value.integer = integer->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value.kind = Value::Kind::boolean;
    value.integer = boolean->get() ? 1 : 0;
  } else if (const auto* list = node.as_array()) {
    value.kind = Value::Kind::list;
    for (const toml::node& item : *list) value.items.push_back(convert(item));
  } else if (const auto* table = node.as_table()) {
    value.kind = Value::Kind::table;
    // toml++ keeps keys sorted; the order of the file reads better in messages.
    std::vector<std::pair<const toml::key*, const toml::node*>> entries;
    for (auto&& [key, item] : *table) entries.emplace_back(&key, &item);
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      const auto left = a.first->source().begin, right = b.first->source().begin;
      return std::pair(left.line, left.column) < std::pair(right.line, right.column);
    });
    for (const auto& [key, item] : entries) {
      value.keys.emplace_back(key->str());
      value.items.push_back(convert(*item));
      value.items.back().line = key->source().begin.line;
    }
  } else {
    value.text = described(node.type());
  }
  return value;
}

/// Behind the string that begins at `begin`; the end of the text if it never ends.
std::size_t end_of_quotes(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const std::string three(3, quote);
  const bool lines = text.substr(begin, three.size()) == three;
  const std::string_view close = lines ? std::string_view(three) : text.substr(begin, 1);
  for (std::size_t at = begin + close.size(); at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text.substr(at, close.size()) == close) {
      return at + close.size();
    } else if (!lines && text[at] == '\n') {
      return at;  // the parser refuses it
    }
  }
  return text.size();
}

/// toml++ goes as deep into the stack as a key has parts.
void check_dotted_keys(std::string_view text, const std::string& file) {
  constexpr int most = 256, most_dots = most - 1;
  constexpr std::string_view between = "=,[]{}";
  std::int64_t number = 1;
  int dots = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {  // what stands in quotes is one part
      const std::size_t end = end_of_quotes(text, at);
      number += std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                           text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
      at = end - 1;
      continue;
    }
    if (c == '#') at = std::min(text.find('\n', at), text.size()) - 1;
    if (c == '\n') ++number;
    if (c == '\n' || between.find(c) != std::string_view::npos) dots = 0;
    if (c == '.' && ++dots > most_dots) {
      throw InputError(fmt::format("{}:{}", file, number), "a key of too many parts",
                       fmt::format("accepted: {} at most", most));
    }
  }
}

}  // namespace

Value parse_toml(std::string_view text, const std::string& file) {
  check_dotted_keys(text, file);
  try {
    return convert(toml::parse(text, file));
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    throw InputError(fmt::format("{}:{}:{}", file, at.line, at.column), error.description(),
                     "accepted: TOML 1.0");
  }
}

}  // namespace parsim::topologies
