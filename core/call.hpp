// Calls: something from one line, `name:key=value,…`. What takes calls lists its options; this
// reads their values and refuses the rest. Generators of clusters and networks by formula share it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parsim {

/// One `key=value` that a call takes.
struct Option {
  std::string_view key;
  std::string_view fallback;  ///< value if absent; "" if it must be given or follows from others
  std::string_view meaning;
  std::string_view former = {};  ///< an earlier spelling, which is refused with a did-you-mean
};

/// "options: key=default (meaning), …".
[[nodiscard]] std::string summary_of(std::span<const Option> options);

/// The options of one call: known keys only, each at most once, defaults filled in.
class CallOptions {
 public:
  struct Value {
    std::string key, text;
    bool by_user = false;
  };

  /// text     the whole call
  /// start    what it begins with, for messages: "star:N,", "gpt:"
  /// parts    its `key=value` parts
  /// where    location of the text, for messages
  ///
  /// Throws InputError for a part without '=', a key that is not known (with did-you-mean) or one
  /// that is given twice.
  CallOptions(std::string text, std::string start, std::span<const Option> known,
              std::span<const std::string> parts, std::string where);

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::string& where() const { return where_; }
  /// Location of an option in messages: "--cluster:rate".
  [[nodiscard]] std::string where(std::string_view key) const;

  /// Null if the option was not given and has no default.
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Throws InputError if there is none.
  [[nodiscard]] const std::string& value(std::string_view key) const;
  /// A whole number of [least, most].
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t least,
                                     std::int64_t most) const;
  /// The same, with what stands for an absent option.
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t otherwise,
                                        std::int64_t least, std::int64_t most) const;
  /// A number of [0, 1).
  [[nodiscard]] double rate(std::string_view key) const;
  /// True if the value is the first of two words, false if the second.
  [[nodiscard]] bool either(std::string_view key, const std::string& first,
                            const std::string& second) const;

 private:
  std::string text_, start_, where_;
  std::vector<Value> values_;
};

}  // namespace parsim
