// Reading claims from TOML.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <iterator>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "validation/embedded.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

namespace {

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  std::vector<Claim> read(std::string_view text) {
    try {
      const toml::table root = toml::parse(text, file_);
      for (const auto& [key, node] : root) {
        if (key.str() != "set" || !node.is_array()) refuse(node, key.str(), "[[set]]");
        for (const toml::node& set : *node.as_array()) read_set(set);
      }
    } catch (const toml::parse_error& error) {
      throw InputError(fmt::format("{}:{}", file_, error.source().begin.line),
                       std::string(error.description()), "accepted: TOML");
    }
    return std::move(claims_);
  }

 private:
  void read_set(const toml::node& node) {
    if (!node.is_table()) refuse(node, "set", "[[set]]");
    const toml::table& set = *node.as_table();
    Claim base;
    base.set = required_text(set, "name");
    base.source = required_text(set, "source");
    base.quantity = required_text(set, "quantity");
    base.unit = set["unit"].value_or(std::string());
    if (const toml::node* origin = set.get("origin")) {
      const auto known = from_text<ClaimOrigin>(origin->value_or(std::string()));
      if (!known) refuse(*origin, "origin", R"("published" or "own")");
      base.origin = *known;
    }
    for (const auto& [key, value] : set) {
      if (key.str() == "claims") continue;
      constexpr std::string_view read[] = {"name", "source", "quantity", "unit", "origin"};
      if (std::find(std::begin(read), std::end(read), key.str()) == std::end(read)) {
        base.what[std::string(key.str())] = text(value, key.str());
      }
    }
    const toml::array* claims = set["claims"].as_array();
    if (claims == nullptr) refuse(node, "claims", "[[set.claims]]");
    for (const toml::node& claim : *claims) {
      if (!claim.is_table()) refuse(claim, "claims", "[[set.claims]]");
      read_claims(base, *claim.as_table());
    }
  }

  void read_claims(const Claim& base, const toml::table& table) {
    const std::string name = required_text(table, "case");
    const toml::node* expected = table.get("expected");
    if (expected == nullptr) refuse(table, "expected", "a number, or a list of them");
    const std::size_t count = expected->is_array() ? expected->as_array()->size() : 1;
    for (std::size_t i = 0; i < count; ++i) {
      Claim claim = base;
      claim.name = name;
      claim.expected = number(at(*expected, i), "expected");
      for (const auto& [key, node] : table) {
        const std::string_view k = key.str();
        if (k == "case" || k == "expected") continue;
        const bool list = node.is_array();
        const std::size_t length = list ? node.as_array()->size() : count;
        if (k == "within") {
          if (i < length) claim.within = number(at(node, i), k);
          continue;
        }
        if (length != count) refuse(node, k, fmt::format("a list of {} like 'expected'", count));
        (k == "reason" ? claim.reason : claim.what[std::string(k)]) = text(at(node, i), k);
        if (list && k != "reason") claim.name += fmt::format(", {} {}", k, text(at(node, i), k));
      }
      if (expected->is_array() && claim.name == name) claim.name += fmt::format(", {}", i + 1);
      claims_.push_back(std::move(claim));
    }
  }

  static const toml::node& at(const toml::node& node, std::size_t i) {
    return node.is_array() ? (*node.as_array())[i] : node;
  }

  std::string required_text(const toml::table& table, std::string_view key) const {
    const toml::node* node = table.get(key);
    if (node == nullptr || !node->is_string()) refuse(table, key, "a string");
    return node->as_string()->get();
  }
  double number(const toml::node& node, std::string_view key) const {
    const auto value = node.value<double>();
    if (!value) refuse(node, key, "a number");
    return *value;
  }
  std::string text(const toml::node& node, std::string_view key) const {
    if (const auto* value = node.as_string()) return value->get();
    if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
    if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
    refuse(node, key, "a string or a number");
  }
  [[noreturn]] void refuse(const toml::node& node, std::string_view key,
                           const std::string& accepted) const {
    throw InputError(fmt::format("{}:{}", file_, node.source().begin.line),
                     fmt::format("'{}' is missing or wrong", key), "accepted: " + accepted);
  }

  std::string file_;
  std::vector<Claim> claims_;
};

}  // namespace

std::vector<Claim> read_claims(std::string_view toml, const std::string& file) {
  return Reader(file).read(toml);
}

std::vector<Claim> paper_claims() {
  std::vector<Claim> all;
  for (const EmbeddedFile& file : validation_files()) {
    if (!file.path.starts_with("validation/papers/")) continue;
    for (Claim& claim : read_claims(file.text, std::string(file.path))) {
      all.push_back(std::move(claim));
    }
  }
  return all;
}

}  // namespace parsim::validation
