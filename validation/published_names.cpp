#include "validation/published_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "networks/networks.hpp"
#include "topologies/topologies.hpp"
#include "validation/measurements.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {

namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string letters_of(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (is_alnum(c)) kept += lower(c);
  }
  return kept;
}

/// Without the maker and product line, which parsim's names do not have.
std::string_view without_maker(std::string_view text) {
  for (const std::string_view maker : {"nvidia", "tesla", "geforce", "amd", "instinct"}) {
    const std::string_view head = text.substr(0, maker.size());
    if (letters_of(head) != maker) continue;
    text.remove_prefix(maker.size());
    while (text.starts_with(' ') || text.starts_with('-')) text.remove_prefix(1);
  }
  return text;
}

/// A name and the text that stands for it.
struct Found {
  std::string name;
  std::string from;  ///< the alias, or the name itself
};

/// The alias, or the longest of parsim's names that the text begins with in any spelling.
template <class Catalogue>
std::optional<Found> find_name(AliasKind kind, const Claim& claim, std::string_view own,
                               const Catalogue& ours) {
  std::string best;
  for (const auto& entry : ours) {
    const bool longer = letters_of(entry.name).size() > letters_of(best).size();
    if (longer && begins_with_name(kind, own, entry.name)) best = entry.name;
  }
  const std::string hint = fmt::format("{} {}", column(claim, "framework"), claim.source);
  // "H100 NVL" is our h100-nvl, not the H100 of the aliases.
  std::string from;
  const std::optional<std::string> alias = resolve_alias(kind, own, hint, best, &from);
  if (alias && (best.empty() || letters_of(best) != letters_of(own))) return Found{*alias, from};
  if (best.empty()) return std::nullopt;
  return Found{best, best};
}

template <class Catalogue>
std::vector<std::string> names_in(const Catalogue& ours) {
  std::vector<std::string> names;
  for (const auto& entry : ours) names.push_back(entry.name);
  return names;
}

[[noreturn]] void refuse_name(const Claim& claim, std::string_view key, std::string_view own,
                              const std::vector<std::string>& names) {
  throw InputError(location_of(claim, key), fmt::format("unknown {} '{}'", key, column(claim, key)),
                   fmt::format("accepted: a name of validation/aliases.toml or of 'parsim list'{}",
                               did_you_mean(letters_of(own), names)));
}

/// Without "8x " at the beginning, which must be the GPUs of the row or of a machine.
std::string_view without_count(const Claim& claim, std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::size_t at = std::min(text.find_first_not_of(' ', digits), text.size());
  const bool times = digits > 0 && at < text.size() && lower(text[at]) == 'x' &&
                     at + 1 < text.size() && text[at + 1] == ' ';
  if (!times) return text;
  const std::string count(text.substr(0, digits));
  at = std::min(text.find_first_not_of(' ', at + 1), text.size());
  const std::int64_t gpus = count_column(claim, "n_gpus", 1);
  for (const std::int64_t known : {gpus, count_column(claim, "gpus_per_node", gpus)}) {
    if (count == fmt::format("{}", known)) return text.substr(at);
  }
  throw InputError(location_of(claim, "gpu"), fmt::format("'{}', but n_gpus is {}", text, gpus),
                   "accepted: n_gpus, or GPUs of a machine (gpus_per_node), before the name, or "
                   "the name alone");
}

enum class Brackets { read, skipped };

/// Lower-case words after the letters and digits of `name`; a number and what follows it are two
/// words.
std::vector<std::string> words_after(std::string_view text, std::string_view name,
                                     Brackets brackets) {
  std::vector<std::string> words{""};
  std::size_t left = letters_of(name).size();
  int open = 0;
  for (const char c : text) {
    open += c == '(' ? 1 : 0;
    open -= c == ')' && open > 0 ? 1 : 0;
    if (left > 0) {
      left -= is_alnum(c) ? 1 : 0;
      continue;
    }
    const bool kept = (open == 0 || brackets == Brackets::read) && (is_alnum(c) || c == '.');
    const bool after_number =
        !words.back().empty() && std::all_of(words.back().begin(), words.back().end(),
                                             [](char d) { return is_digit(d) || d == '.'; });
    if (!kept || (after_number && !is_digit(c) && c != '.')) words.emplace_back();
    if (kept) words.back() += lower(c);
  }
  std::erase(words, "");
  return words;
}

/// True for a form that the card does not have: "pcie" of h100-sxm5, "sxm4" of h100-sxm5.
bool contradicts(std::string_view word, std::string_view device) {
  const auto has = [&](std::string_view part) { return device.find(part) != device.npos; };
  if (word == "pcie") return has("sxm");
  if (!word.starts_with("sxm")) return false;
  const std::size_t at = device.find("sxm");
  if (at == device.npos) return has("pcie") || has("nvl");
  const bool numbered = at + 3 < device.size() && is_digit(device[at + 3]);
  return numbered && word.size() > 3 && word[3] != device[at + 3];
}

bool describes_card(std::string_view word, std::string_view device) {
  constexpr std::string_view plain[] = {
      "sxm",    "sxm2",      "sxm3",       "sxm4",        "sxm5",   "sxm6",   "pcie",
      "oam",    "g",         "gb",         "gib",         "w",      "at",     "hbm",
      "hbm2",   "hbm2e",     "hbm3",       "hbm3e",       "gddr5",  "gddr5x", "gddr6",
      "gddr6x", "gddr7",     "gpu",        "gpus",        "tensor", "core",   "grace",
      "hopper", "superchip", "generation", "workstation", "server", "edition"};
  if (std::find(std::begin(plain), std::end(plain), word) != std::end(plain))
    return !contradicts(word, device);
  return is_digit(word.front());
}

/// True for words after a network's name that change neither its layers nor their sizes.
bool says_nothing_of(std::string_view word, std::string_view network) {
  constexpr std::string_view plain[] = {"hf",    "base",    "instruct",    "chat",     "it",
                                        "model", "network", "pretraining", "training", "imagenet"};
  if (word == "v1.5") return network.starts_with("resnet") && !network.ends_with("_v1");
  return std::find(std::begin(plain), std::end(plain), word) != std::end(plain);
}

}  // namespace

std::string named_network(const Claim& claim) {
  const std::string text = column(claim, "model");
  std::string_view own = without_maker(text);
  own.remove_prefix(own.rfind('/') + 1);  // of Hugging Face's "owner/name"; npos + 1 is 0
  const auto& ours = networks::all();
  const std::optional<Found> found = find_name(AliasKind::network, claim, own, ours);
  if (!found) refuse_name(claim, "model", own, names_in(ours));
  for (const std::string& word : words_after(own, found->from, Brackets::read)) {
    if (says_nothing_of(word, found->name)) continue;
    throw InputError(location_of(claim, "model"),
                     fmt::format("unknown word '{}' after the network's name in '{}'", word, text),
                     "accepted: a name of validation/aliases.toml or of 'parsim list' alone, or "
                     "column network, which also takes calls such as llama-3-8b:layers=4");
  }
  return found->name;
}

std::optional<std::string> known_gpu(const Claim& claim) {
  const std::string text = column(claim, "gpu");
  const std::string_view own = without_maker(without_count(claim, text));
  const auto& ours = topologies::device_models();
  const std::optional<Found> found = find_name(AliasKind::device, claim, own, ours);
  if (!found) return std::nullopt;
  for (const std::string& word : words_after(own, found->from, Brackets::skipped)) {
    if (describes_card(word, found->name)) continue;
    std::string name = found->from;
    std::transform(name.begin(), name.end(), name.begin(), lower);
    throw InputError(location_of(claim, "gpu"),
                     fmt::format("unknown word '{}' after the GPU's name in '{}'", word, text),
                     fmt::format("accepted: its form (SXM, PCIe), memory (80GB, HBM3) and power "
                                 "(500 W), and notes in brackets{}",
                                 did_you_mean(name, names_in(ours))));
  }
  return found->name;
}

std::string gpu_without_count(const Claim& claim) {
  const std::string text = column(claim, "gpu");
  return std::string(without_count(claim, text));
}

std::string named_gpu(const Claim& claim) {
  std::optional<std::string> known = known_gpu(claim);
  if (known) return *std::move(known);
  refuse_name(claim, "gpu", without_maker(column(claim, "gpu")),
              names_in(topologies::device_models()));
}

}  // namespace parsim::validation
