// How options of the table set members of a Request, through a path of pointers to members.
// Private to option_table.cpp and option_values.cpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "core/text.hpp"
#include "experiment/experiment.hpp"
#include "experiment/options.hpp"
#include "sim/nccl.hpp"

namespace parsim::experiment::option_member {

using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string>;

/// A name and, if it is a file, the hash of its content; null if nothing was given.
[[nodiscard]] Json source(const std::string& given, const std::string& name);
/// A size has a unit, a share is a bare number or in percent.
[[nodiscard]] lowering::Headroom parse_headroom(const std::string& text, std::string_view flag);

/// A number from `least` to `most`.
[[nodiscard]] double parse_factor(const std::string& text, std::string_view flag,
                                  std::int64_t least, std::int64_t most);

/// Positive numbers, as in 70,25,5.
[[nodiscard]] std::vector<double> parse_numbers(const std::string& text, std::string_view flag);

/// Throws InputError if the option accepts a closed set of words and this is none of them.
void check_word(const std::string& text, const Option& option);

/// Throws InputError for formats of 8 and 4 bits, saying why they are not accepted.
void check_precision(const std::string& text, std::string_view where);

template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;

// From text to the member's type.

template <class T>
T parse(const std::string& text, const Option& option) {
  if constexpr (is_optional<T>) {
    return parse<typename T::value_type>(text, option);
  } else if constexpr (std::is_enum_v<T>) {
    if (!option.value.empty()) check_word(text, option);  // less than the enum has
    if constexpr (std::is_same_v<T, Precision>) check_precision(text, option.flag);
    return parse_spelling<T>(text, option.flag);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(parse_whole(text, option.flag, option.rules.least, option.rules.most));
  } else if constexpr (std::is_same_v<T, double>) {
    // A share, unless the row of the table gives the numbers it may have.
    if (option.rules.most != OptionRules{}.most) {
      return parse_factor(text, option.flag, option.rules.least, option.rules.most);
    }
    constexpr double least = 1e-4, most = 1;
    return parse_share(text, option.flag, least, most);
  } else if constexpr (std::is_same_v<T, Bytes>) {
    return parse_bytes(text, std::string(option.flag));
  } else if constexpr (std::is_same_v<T, Seconds>) {
    return parse_seconds(text, std::string(option.flag));
  } else if constexpr (std::is_same_v<T, lowering::Headroom>) {
    return parse_headroom(text, option.flag);
  } else if constexpr (std::is_same_v<T, ZeroGroup>) {
    return parse_zero_group(text, option.flag);
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return parse_numbers(text, option.flag);
  } else if constexpr (std::is_same_v<T, sim::NcclVersion>) {
    return parse_nccl_version(text, option.flag);
  } else {
    static_assert(std::is_same_v<T, std::string>);
    check_word(text, option);
    return text;
  }
}

template <class T>
void read_into(T& value, const Option& option, const Texts& texts) {
  if constexpr (std::is_same_v<T, bool>) {
    value = !value;  // a flag says the opposite of the default
  } else if constexpr (std::is_same_v<T, Texts>) {
    value = texts;
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::int64_t>>) {
    value = parse_dims(texts);
  } else {
    value = parse<T>(texts.back(), option);
  }
}

// From the member to JSON and to text.

template <class T>
Json json_of(const T& value) {
  if constexpr (is_optional<T>) {
    return value ? json_of(*value) : Json(nullptr);
  } else if constexpr (std::is_enum_v<T> || std::is_same_v<T, sim::NcclVersion>) {
    return std::string(to_text(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.empty() ? Json(nullptr) : Json(value);
  } else if constexpr (std::is_same_v<T, Bytes>) {
    return value.value;
  } else if constexpr (std::is_same_v<T, Seconds>) {
    return value.count();
  } else if constexpr (std::is_same_v<T, lowering::Headroom>) {
    return {{"share", value.bytes ? Json(nullptr) : Json(value.share)},
            {"bytes", json_of(value.bytes)}};
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return value.empty() ? Json(nullptr) : Json(value);
  } else if constexpr (std::is_same_v<T, ZeroGroup>) {
    return value.all() ? Json(nullptr) : value.node ? Json("node") : Json(value.ranks);
  } else {
    return value;
  }
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_enum_v<T> || std::is_same_v<T, Bytes>) {
    return std::string(to_text(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, lowering::Headroom>) {
    return fmt::format("{:g}%", 100 * value.share);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return fmt::format("{}", value);
  } else {
    return {};
  }
}

/// The JSON Schema of what json_of makes of a T.
template <class T>
Json schema_of(const Option& option) {
  if constexpr (is_optional<T>) {
    return {{"anyOf", {schema_of<typename T::value_type>(option), {{"type", "null"}}}}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, Bytes>) {
    return {{"type", "integer"}, {"minimum", 0}};
  } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, Seconds>) {
    return {{"type", "number"}, {"minimum", 0}};
  } else if constexpr (std::is_same_v<T, Texts>) {
    return {{"type", "array"}, {"items", {{"type", "string"}}}};
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return {{"type", {"array", "null"}}, {"items", {{"type", "number"}, {"exclusiveMinimum", 0}}}};
  } else if constexpr (std::is_same_v<T, ZeroGroup>) {
    return {{"anyOf",
             {{{"type", "integer"}, {"minimum", 1}}, {{"const", "node"}}, {{"type", "null"}}}}};
  } else if (const Texts words = option.words(); !words.empty()) {
    return {{"enum", words}};
  } else {
    return {{"type", {"string", "null"}}};
  }
}

// Members of a Request, through a path of pointers to members.

template <auto... path>
struct Access {
  using Value = std::remove_cvref_t<decltype((std::declval<Request&>().*....*path))>;

  static void read(Request& request, const Option& option, const Texts& texts) {
    read_into((request.*....*path), option, texts);
  }
  static Json schema(const Option& option) { return schema_of<Value>(option); }
  static Json file_schema(const Option& /*option*/) {
    return {{"anyOf", {{{"$ref", "#/$defs/source"}}, {{"type", "null"}}}}};
  }
  static Json json(const Request& request, const Experiment* /*experiment*/) {
    return json_of((request.*....*path));
  }
  static Json file(const Request& request, const Experiment* /*experiment*/) {
    const std::string& name = (request.*....*path);
    return source(name, name);
  }
  static Texts spelled() {
    if constexpr (is_optional<Value>) {
      return spelled_by<typename Value::value_type>();
    } else {
      return spelled_by<Value>();
    }
  }
  static std::string fallback() {
    const Request request;
    return text_of((request.*....*path));
  }

 private:
  template <class T>
  static Texts spelled_by() {
    if constexpr (Spelled<T>) {
      const auto words = spellings_of<T>();
      return {words.begin(), words.end()};
    } else {
      return {};
    }
  }
};

template <auto... path>
constexpr OptionMember member{Access<path...>::read, Access<path...>::json, Access<path...>::schema,
                              Access<path...>::spelled, Access<path...>::fallback};
/// The same of a file that is read, with its hash.
template <auto... path>
constexpr OptionMember file_member{Access<path...>::read, Access<path...>::file,
                                   Access<path...>::file_schema, Access<path...>::spelled,
                                   Access<path...>::fallback};

constexpr OptionMember recorded(OptionMember of, Json (*json)(const Request&, const Experiment*)) {
  of.json = json;
  return of;
}
/// A member of the simulator's options.
template <auto part>
constexpr OptionMember simulated = member<&Request::sim, part>;

}  // namespace parsim::experiment::option_member
