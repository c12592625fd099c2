// A Hugging Face config.json: the keys that some type of model reads, with their ranges, are listed
// once for the reader and the JSON Schema. It has far more keys than a plan needs, so others are no
// error: those that may change a shape become a warning. A missing key is refused by name.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_get.hpp"
#include "core/json_keys.hpp"

namespace parsim::networks::hugging_face {

struct Design;

/// A row of the table in hugging_face.cpp: a type of model and the function that writes it down.
struct ModelType {
  std::string_view name{};
  void (*build)(Design&) = nullptr;
};
void get_special(const json::Node& node, ModelType& type);
[[nodiscard]] bool is_model_type(std::string_view name);
void put_special_schema(json::Writer& out, const ModelType& type);

/// In [0, 1).
struct Rate {
  double value = 0;
};
void get_special(const json::Node& node, Rate& rate);
void put_special_schema(json::Writer& out, const Rate& rate);

/// An object of which only the size is read.
struct Members {
  std::int64_t count = 0;
};
void get_special(const json::Node& node, Members& members);
void put_special_schema(json::Writer& out, const Members& members);

/// The words that transformers has for ways to compute four functions.
// clang-format off
enum class HiddenAct : std::uint8_t {
  gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, quick_gelu, silu, swish, relu, tanh
};
// clang-format on
constexpr std::array<std::string_view, 9> spellings(HiddenAct) {
  return {"gelu",  "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "silu",
          "swish", "relu",     "tanh"};
}

enum class AttentionKernels : std::uint8_t { eager, sdpa, flash_2, flash_3, flex };
constexpr std::array<std::string_view, 5> spellings(AttentionKernels) {
  return {"eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"};
}

enum class Scoring : std::uint8_t { softmax, sigmoid };
constexpr std::array<std::string_view, 2> spellings(Scoring) { return {"softmax", "sigmoid"}; }

/// Keys are read one by one, so that a type of model refuses only what it needs; every key that is
/// asked for is in the list. Errors are InputError with `file:line:key`.
class Config {
 public:
  static constexpr std::int64_t as_listed = std::numeric_limits<std::int64_t>::max();

  /// Throws InputError with `file:line:column` for what is not a JSON object. Of a model of several
  /// modalities, whose own type nothing here builds, its "text_config" is read.
  Config(const std::string& text, std::string file);

  [[nodiscard]] const std::string& file() const { return file_; }
  /// "config.json:12:hidden_size".
  [[nodiscard]] std::string where(std::string_view key) const;
  /// Throws InputError if the key is missing; null may stand for a default.
  void require(std::string_view key) const;
  /// The type of the whole, if what is read is its "text_config".
  [[nodiscard]] const std::string& text_of() const { return text_of_; }
  /// True if the key is there and not null.
  [[nodiscard]] bool has(std::string_view key) const;

  /// True if the key is there and null.
  [[nodiscard]] bool is_null(std::string_view key) const;

  [[nodiscard]] ModelType model_type() const;
  /// A whole number that must be there, in its range or up to a smaller `most`.
  [[nodiscard]] std::int64_t count(std::string_view key, std::int64_t most = as_listed) const;
  /// The same, or `otherwise` if that is positive and the key is absent or null.
  [[nodiscard]] std::int64_t count_or(std::string_view key, std::int64_t otherwise) const {
    return otherwise > 0 ? value_or(key, otherwise) : count(key);
  }
  template <class T>
  [[nodiscard]] T value_or(std::string_view key, T fallback, std::int64_t most = as_listed) const {
    const json::Rule listed = rule(key, most);
    if (has(key)) json::get(*find(key), fallback, listed);
    return fallback;
  }
  /// Keys that were not read and may change shapes of the model, sorted; the many keys known to
  /// leave shapes alone are not among them.
  [[nodiscard]] std::vector<std::string> unread_shapes() const;

 private:
  [[nodiscard]] std::optional<json::Node> find(std::string_view key) const;
  /// The same of a key that must be there.
  [[nodiscard]] json::Node required(std::string_view key, std::string_view accepted) const;
  [[nodiscard]] static json::Rule rule(std::string_view key, std::int64_t most);

  [[nodiscard]] json::Node top() const;

  std::string file_;
  json::Document document_;
  std::string text_of_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace parsim::networks::hugging_face
