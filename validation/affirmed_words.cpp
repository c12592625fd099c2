#include "validation/affirmed_words.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "experiment/trainer_words.hpp"

namespace parsim::validation {

namespace {

constexpr std::string_view ends_of_items = ",;()[]{}+|";

template <std::size_t n>
bool is_one_of(std::string_view word, const std::array<std::string_view, n>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr std::array<std::string_view, 12> before{"no",        "not",     "non",    "without",
                                                  "neither",   "nor",     "never",  "disable",
                                                  "disabling", "instead", "rather", "unlike"};
constexpr std::array<std::string_view, 7> after_no{"using", "use", "with", "any",
                                                   "the",   "of",  "than"};
constexpr std::array<std::string_view, 6> behind{"off",   "disabled", "deactivated",
                                                 "false", "unused",   "inactive"};
constexpr std::array<std::string_view, 8> before_off{"is",       "was", "are", "turned",
                                                     "switched", "set", "to",  "being"};
constexpr std::array<std::string_view, 7> in_use{"used",   "enabled",   "allowed",  "on",
                                                 "active", "available", "supported"};

struct Word {
  std::size_t begin, end;
  std::string text;
  std::string gap;  ///< between it and the word before
};

std::vector<Word> words_of(const std::string& text) {
  std::vector<Word> words;
  std::string gap;
  for (std::size_t at = 0; at < text.size();) {
    if (text.substr(at, 3) == "w/o" && (at + 3 == text.size() || text[at + 3] == ' ') &&
        (at == 0 || !gap.empty())) {
      words.push_back({at, at + 3, "without", std::exchange(gap, "")});
      at += 3;
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(" \t,;:()[]{}=/+|", at), text.size());
    if (end == at) {
      gap += text[at++];
      continue;
    }
    words.push_back({at, end, text.substr(at, end - at), std::exchange(gap, "")});
    at = end;
  }
  return words;
}

bool starts_item(const Word& word) {
  return word.gap.find_first_of(ends_of_items) != std::string::npos;
}

/// "non-compiled", "--no-compile", "TF32-off".
bool denies_itself(std::string_view word) {
  while (word.starts_with('-')) word.remove_prefix(1);
  if (word.starts_with("no_shard") || word.starts_with("no-shard")) return false;
  constexpr std::array<std::string_view, 6> heads{"no-", "non-", "not-",
                                                  "no_", "non_", "uncompiled"};
  return word.ends_with("-off") || word.ends_with("_off") ||
         std::any_of(heads.begin(), heads.end(),
                     [&](std::string_view head) { return word.starts_with(head); });
}

/// Whether words[at] denies the word before it: "off", "is disabled", "= False", "not used".
bool denies_before(const std::vector<Word>& words, std::size_t at) {
  const Word& word = words[at];
  if (is_one_of(word.text, behind)) return true;
  if (word.text == "not" && at + 1 < words.size() && !starts_item(words[at + 1]))
    return is_one_of(words[at + 1].text, in_use);
  const bool is_value = word.gap.find_first_of("=:") != std::string::npos;
  const bool last = at + 1 == words.size() || starts_item(words[at + 1]);
  // The stage 0 of "ZeRO=0" is a number.
  const std::string& name = words[at - 1].text;
  const bool zero = to_number<double>(word.text) == 0.0 && name.find("zero") == name.npos &&
                    name.find("stage") == name.npos;
  return is_value && ((word.text == "no" && last) || word.text == "none" || zero);
}

}  // namespace

std::string affirmed(std::string_view text) {
  std::string small = experiment::lower_case(std::string(text));
  const std::vector<Word> words = words_of(small);
  std::vector<bool> denied(words.size(), false);
  for (std::size_t i = 0; i < words.size(); ++i) {
    denied[i] = denied[i] || denies_itself(words[i].text);
    if (i > 0 && !starts_item(words[i]) && denies_before(words, i)) {
      std::size_t of = i - 1;
      while (of > 0 && is_one_of(words[of].text, before_off) && !starts_item(words[of])) --of;
      denied[of] = true;
      continue;
    }
    if (!is_one_of(words[i].text, before)) continue;
    const auto follows = [&](std::size_t at) {
      return at < words.size() && !starts_item(words[at]);
    };
    std::size_t of = i + 1;
    while (follows(of) && is_one_of(words[of].text, after_no)) ++of;
    if (!follows(of) || words[of].text.starts_with("shard")) continue;
    denied[of] = true;
    while (follows(of + 1)) {  // "no FP8 or TF32", "no FP8/TF32"
      const bool also = words[of + 1].text == "or" || words[of + 1].text == "nor";
      if (!also && words[of + 1].gap != "/") break;
      of += also ? 2 : 1;
      if (follows(of)) denied[of] = true;
    }
  }
  for (std::size_t i = words.size(); i-- > 0;) {
    if (denied[i]) small.replace(words[i].begin, words[i].end - words[i].begin, "~");
  }
  return small;
}

}  // namespace parsim::validation
