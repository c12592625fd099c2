// How values of options are read that are neither words nor plain numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/number_range.hpp"
#include "experiment/option_member.hpp"
#include "experiment/read_files.hpp"

namespace parsim::experiment::option_member {

Json source(const std::string& given, const std::string& name) {
  if (given.empty()) return nullptr;
  Json json = {{"given", given}, {"name", name}, {"fnv1a64", nullptr}};
  const std::string hash = hash_of_files(given);
  if (!hash.empty()) json["fnv1a64"] = hash;
  return json;
}

lowering::Headroom parse_headroom(const std::string& text, std::string_view flag) {
  constexpr double most = 0.9;
  lowering::Headroom headroom;
  if (text.ends_with('B')) {
    headroom.bytes = parse_bytes(text, std::string(flag));
  } else {
    headroom.share = parse_share(text, flag, 0, most, ", or a size, as in 2GiB");
  }
  return headroom;
}

double parse_factor(const std::string& text, std::string_view flag, std::int64_t least,
                    std::int64_t most) {
  const auto number = to_number<double>(text);
  const bool too_little = number && *number != 0 && *number < least_number;
  if (number && !too_little && *number >= static_cast<double>(least) &&
      *number <= static_cast<double>(most)) {
    return *number;
  }
  throw InputError(flag, fmt::format("'{}'", text),
                   fmt::format("accepted: a number from {} to {}", least, most));
}

std::vector<double> parse_numbers(const std::string& text, std::string_view flag) {
  std::vector<double> numbers;
  for (const std::string& word : split_at(text, ',')) {
    const auto number = to_number<double>(word);
    if (!number || !(*number > 0) || !std::isfinite(*number)) {
      throw InputError(flag, fmt::format("'{}' in '{}'", word, text),
                       "accepted: positive numbers, as in 70,25,5");
    }
    numbers.push_back(*number);
  }
  return numbers;
}

void check_word(const std::string& text, const Option& option) {
  const Texts words = option.words();
  if (words.empty() || std::find(words.begin(), words.end(), text) != words.end()) return;
  refuse_word(text, option.flag, words);
}

void check_precision(const std::string& text, std::string_view where) {
  constexpr std::string_view narrow[] = {"mxfp8", "mxfp4", "nvfp4"};
  if (std::find(std::begin(narrow), std::end(narrow), text) == std::end(narrow)) return;
  throw InputError(
      where,
      fmt::format("'{}' is not modelled: its kernels, its conversions and what is kept "
                  "in which format have no prices",
                  text),
      "accepted: fp32, tf32, fp16, bf16, fp8, fp8-delayed, fp8-blockwise");
}

}  // namespace parsim::experiment::option_member

namespace parsim::experiment {

ZeroGroup parse_zero_group(const std::string& text, std::string_view where) {
  if (text == "node") return {0, true};
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) {
    throw InputError(where, fmt::format("'{}'", text), "accepted: a whole number, or node");
  }
  return {static_cast<std::int32_t>(
              parse_whole(text, where, 1, std::numeric_limits<std::int32_t>::max())),
          false};
}

}  // namespace parsim::experiment
