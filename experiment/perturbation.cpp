#include "experiment/perturbation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/options.hpp"

namespace parsim {

namespace {

constexpr std::string_view straggler_form =
    "accepted: NAME=FACTOR, NAME=FACTOR@FROM or NAME=FACTOR@FROM-TO, as in gpu3=2@2ms-5ms";
constexpr double largest_factor = 1000;

template <class Entry>
std::optional<std::size_t> position_of(const std::vector<Entry>& entries, std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  if (found == entries.end()) return std::nullopt;
  return static_cast<std::size_t>(found - entries.begin());
}

[[noreturn]] void refuse_unknown(const Cluster& cluster, const std::string& name) {
  std::vector<std::string> names;
  for (const Device& device : cluster.devices) names.push_back(device.name);
  for (const Link& link : cluster.links) names.push_back(link.name);
  constexpr std::size_t listed = 16;
  const std::string some = join(std::span(names).first(std::min(listed, names.size())));
  throw InputError("--straggler",
                   fmt::format("no device or link '{}' in cluster '{}'", name, cluster.name),
                   fmt::format("accepted: {}{}{}", some, names.size() > listed ? ", …" : "",
                               did_you_mean(name, names)));
}

/// A device, or else a link.
struct Place {
  bool device = false;
  std::size_t index = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};

Place find_place(const Cluster& cluster, const std::string& name) {
  const auto device = position_of(cluster.devices, name), link = position_of(cluster.links, name);
  if (device && link) {
    throw InputError("--straggler",
                     fmt::format("'{}' is a device and a link of cluster '{}'", name, cluster.name),
                     "accepted: a name that only one of them has");
  }
  if (!device && !link) refuse_unknown(cluster, name);
  return {device.has_value(), device ? *device : *link};
}

/// Where TO begins in "FROM-TO"; a minus sign behind an e belongs to a number.
std::size_t dash_in(const std::string& dates) {
  for (std::size_t i = 1; i < dates.size(); ++i) {
    if (dates[i] == '-' && dates[i - 1] != 'e' && dates[i - 1] != 'E') return i;
  }
  return std::string::npos;
}

SlowPeriod parse_period(const std::string& text, const std::string& where) {
  SlowPeriod period;
  const std::size_t at = text.find('@');
  period.factor = parse_real(text.substr(0, at), where, 1, largest_factor);
  if (at == std::string::npos) return period;
  const std::string dates = text.substr(at + 1);
  const std::size_t dash = dash_in(dates);
  period.from = parse_seconds(dates.substr(0, dash), where);
  if (dash != std::string::npos) period.to = parse_seconds(dates.substr(dash + 1), where);
  if (period.to <= period.from) {
    throw InputError(where, fmt::format("'{}' ends before it begins", dates),
                     "accepted: FROM-TO with FROM < TO");
  }
  return period;
}

/// Throws InputError if two periods of one name have a date in common.
void check_apart(std::vector<SlowPeriod> periods, const std::string& name) {
  std::sort(periods.begin(), periods.end(),
            [](const SlowPeriod& a, const SlowPeriod& b) { return a.from < b.from; });
  for (std::size_t i = 1; i < periods.size(); ++i) {
    if (periods[i].from >= periods[i - 1].to) continue;
    throw InputError("--straggler", fmt::format("periods of '{}' overlap", name),
                     "accepted: periods that do not overlap");
  }
}

}  // namespace

Interference parse_interference(const std::vector<std::string>& texts, const Interference& known) {
  std::vector<std::string> words;
  for (const InterferencePair& pair : interference_pairs) words.push_back(to_text(pair));
  Interference interference = known;
  std::set<std::string> given;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      throw InputError("--interference", fmt::format("'{}'", text),
                       "accepted: PAIR=FACTOR, as in tensor/communication=1.2");
    }
    const std::string word = text.substr(0, equals);
    const auto found = std::find(words.begin(), words.end(), word);
    if (found == words.end()) refuse_word(word, "--interference", words);
    if (!given.insert(word).second) {
      throw InputError("--interference", fmt::format("'{}' given twice", word), "accepted: once");
    }
    const InterferencePair& pair =
        interference_pairs.at(static_cast<std::size_t>(found - words.begin()));
    interference.set(
        pair.activity, pair.during,
        parse_real(text.substr(equals + 1), "--interference " + word, 1, largest_factor));
  }
  return interference;
}

std::vector<std::string> interference_texts(const Interference& interference) {
  std::vector<std::string> texts;
  for (const InterferencePair& pair : interference_pairs) {
    const double factor = interference.of(pair.activity, pair.during);
    if (factor != 1) texts.push_back(fmt::format("{}={}", to_text(pair), factor));
  }
  return texts;
}

std::string to_text(const CommonMemory& memory, const Cluster& cluster) {
  std::vector<std::string> names;
  for (const MemoryPart& part : memory.parts) {
    names.push_back(cluster.devices.at(part.device.index()).name);
  }
  return fmt::format("{} share {} of memory", join(names), to_text(memory.rate()));
}

Stragglers parse_stragglers(const Cluster& cluster, const std::vector<std::string>& texts) {
  struct Asked {
    std::string name, text;
    std::vector<SlowPeriod> periods;
  };
  std::map<Place, Asked> places;
  Stragglers stragglers;
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      throw InputError("--straggler", fmt::format("'{}'", text), straggler_form);
    }
    const std::string name = text.substr(0, equals);
    const Place place = find_place(cluster, name);
    const SlowPeriod period = parse_period(text.substr(equals + 1), "--straggler " + name);
    Asked& asked = places[place];
    asked.name = name;
    asked.periods.push_back(period);
    if (!place.device || period.from > Seconds{0} || std::isfinite(period.to.count())) {
      stragglers.others.push_back(text);
    }
  }
  for (const auto& [place, asked] : places) {
    check_apart(asked.periods, asked.name);
    const SlowPeriod& first = asked.periods.front();
    if (place.device && first == SlowPeriod{.factor = first.factor}) {
      stragglers.factors.resize(cluster.devices.size(), 1);
      stragglers.factors[place.index] = first.factor;
      continue;
    }
    std::vector<SlowPeriods>& list =
        place.device ? stragglers.slowdowns.devices : stragglers.slowdowns.links;
    list.resize(place.device ? cluster.devices.size() : cluster.links.size());
    list[place.index] = SlowPeriods(asked.periods);
  }
  return stragglers;
}

}  // namespace parsim
