// A Hugging Face config.json as keys and values with their lines. It has far more keys than a plan
// needs, so unknown ones are no error: those that may change a shape become a warning. A missing
// key is refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace parsim::networks::hugging_face {

class Config {
 public:
  /// Throws InputError with `file:line:column` for what is not a JSON object.
  Config(std::string text, std::string file);
  ~Config();
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  [[nodiscard]] const std::string& file() const { return file_; }
  /// "config.json:12:hidden_size".
  [[nodiscard]] std::string where(std::string_view key) const;
  /// True if the key is there and not null.
  [[nodiscard]] bool has(std::string_view key) const;

  /// A whole number in [1, most].
  [[nodiscard]] std::int64_t count(std::string_view key, std::int64_t most) const;
  [[nodiscard]] std::int64_t count_or(std::string_view key, std::int64_t fallback,
                                      std::int64_t most) const;
  /// The same in [0, most].
  [[nodiscard]] std::int64_t number_or(std::string_view key, std::int64_t fallback,
                                       std::int64_t most) const;
  /// A number in [0, 1).
  [[nodiscard]] double rate_or(std::string_view key, double fallback) const;
  [[nodiscard]] bool flag_or(std::string_view key, bool fallback) const;
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::string text_or(std::string_view key, std::string_view fallback) const;
  /// Entries of an object; 0 if it is absent.
  [[nodiscard]] std::int64_t entries(std::string_view key) const;
  /// Keys that were not read and may change shapes of the model, sorted; the many keys known to
  /// leave shapes alone are not among them.
  [[nodiscard]] std::vector<std::string> unread_shapes() const;

 private:
  struct Values;
  [[nodiscard]] std::int64_t whole(std::string_view key, std::int64_t least,
                                   std::int64_t most) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view accepted) const;

  std::string text_, file_;
  std::unique_ptr<Values> values_;
};

}  // namespace parsim::networks::hugging_face
