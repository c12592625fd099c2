#include "core/call.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim {

std::string summary_of(std::span<const Option> options) {
  std::string text = "options:";
  for (const Option& option : options) {
    text += fmt::format(" {}{}{} ({}),", option.key, option.fallback.empty() ? "" : "=",
                        option.fallback, option.meaning);
  }
  text.pop_back();
  return text;
}

CallOptions::CallOptions(std::string text, std::string start, std::span<const Option> known,
                         std::span<const std::string> parts, std::string where)
    : text_(std::move(text)), start_(std::move(start)), where_(std::move(where)) {
  std::vector<std::string> keys;
  for (const Option& option : known) keys.emplace_back(option.key);
  for (const std::string& part : parts) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      throw InputError(where_, fmt::format("'{}' is not of the form key=value", part),
                       fmt::format("write {}key=value,…", start_));
    }
    const std::string key = part.substr(0, equals);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      const auto renamed = std::find_if(known.begin(), known.end(), [&](const Option& option) {
        return !option.former.empty() && option.former == key;
      });
      throw InputError(
          where_, fmt::format("{} has no option '{}'", text_.substr(0, text_.find(':')), key),
          fmt::format("accepted: {}{}", join(keys),
                      renamed == known.end() ? did_you_mean(key, keys)
                                             : fmt::format("; did you mean '{}'?", renamed->key)));
    }
    if (find(key) != nullptr) {
      throw InputError(this->where(key), fmt::format("'{}' is given twice", key),
                       "accepted: each option once");
    }
    values_.push_back({key, part.substr(equals + 1), true});
  }
  for (const Option& option : known) {
    if (option.fallback.empty() || find(option.key) != nullptr) continue;
    values_.push_back({std::string(option.key), std::string(option.fallback), false});
  }
}

std::string CallOptions::where(std::string_view key) const {
  return fmt::format("{}:{}", where_, key);
}

const CallOptions::Value* CallOptions::find(std::string_view key) const {
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [&](const Value& value) { return value.key == key; });
  return found == values_.end() ? nullptr : &*found;
}

const std::string& CallOptions::value(std::string_view key) const {
  const Value* value = find(key);
  if (value != nullptr) return value->text;
  throw InputError(where_, fmt::format("'{}' needs {}=…", text_, key),
                   fmt::format("write {}{}=…", start_, key));
}

std::int64_t CallOptions::integer(std::string_view key, std::int64_t least,
                                  std::int64_t most) const {
  const auto number = to_number<std::int64_t>(value(key));
  if (number && *number >= least && *number <= most) return *number;
  throw InputError(where(key), fmt::format("'{}'", value(key)),
                   fmt::format("accepted: a whole number from {} to {}", least, most));
}

std::int64_t CallOptions::integer_or(std::string_view key, std::int64_t otherwise,
                                     std::int64_t least, std::int64_t most) const {
  return has(key) ? integer(key, least, most) : otherwise;
}

double CallOptions::rate(std::string_view key) const {
  const auto number = to_number<double>(value(key));
  if (number && *number >= 0 && *number < 1) return *number;
  throw InputError(where(key), fmt::format("'{}'", value(key)),
                   "accepted: a number from 0 to below 1");
}

bool CallOptions::either(std::string_view key, const std::string& first,
                         const std::string& second) const {
  const std::string& word = value(key);
  if (word == first || word == second) return word == first;
  const std::string known[] = {first, second};
  throw InputError(where(key), fmt::format("'{}'", word),
                   fmt::format("accepted: {}{}", join(known), did_you_mean(word, known)));
}

}  // namespace parsim
