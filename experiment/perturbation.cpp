#include "experiment/perturbation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/options.hpp"
#include "experiment/request.hpp"

namespace parsim::experiment {

namespace {

constexpr std::string_view straggler_form =
    "accepted: NAME=FACTOR, NAME=FACTOR@FROM or NAME=FACTOR@FROM-TO, as in gpu3=2@2ms-5ms";
constexpr double largest_factor = 1000;

/// Index of a device, or behind all devices of a link.
std::size_t find_place(const Cluster& cluster, const std::string& name) {
  std::vector<std::string> names;
  for (const Device& device : cluster.devices) names.push_back(device.name);
  for (const Link& link : cluster.links) names.push_back(link.name);
  const auto links = names.begin() + std::ssize(cluster.devices);
  const auto device = std::find(names.begin(), links, name);
  const auto link = std::find(links, names.end(), name);
  if (device != links && link != names.end()) {
    throw InputError("--straggler",
                     fmt::format("'{}' is a device and a link of cluster '{}'", name, cluster.name),
                     "accepted: a name that only one of them has");
  }
  if (device == links && link == names.end()) {
    refuse_name("--straggler", "device or link", name, cluster, names);
  }
  return static_cast<std::size_t>((device != links ? device : link) - names.begin());
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

std::string common_memory_text(const CommonMemory& memory, const Cluster& cluster) {
  std::vector<std::string> names;
  for (const MemoryPart& part : memory.parts) {
    names.push_back(cluster.devices.at(part.device.index()).name);
  }
  return fmt::format("{} share {} of memory", join(names), to_text(memory.rate()));
}

Stragglers parse_stragglers(const Cluster& cluster, const std::vector<std::string>& texts) {
  const std::size_t devices = cluster.devices.size();
  std::map<std::size_t, std::vector<SlowPeriod>> places;
  Stragglers stragglers;
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      throw InputError("--straggler", fmt::format("'{}'", text), straggler_form);
    }
    const std::string name = text.substr(0, equals);
    const std::size_t place = find_place(cluster, name);
    const SlowPeriod period = parse_period(text.substr(equals + 1), "--straggler " + name);
    for (const SlowPeriod& other : places[place]) {
      if (period.from >= other.to || other.from >= period.to) continue;
      throw InputError("--straggler", fmt::format("periods of '{}' overlap", name),
                       "accepted: periods that do not overlap");
    }
    places[place].push_back(period);
    const bool throughout = period == SlowPeriod{.factor = period.factor};
    if (place >= devices || !throughout) stragglers.others.push_back(text);
  }
  for (const auto& [place, periods] : places) {
    const bool link = place >= devices;
    const SlowPeriod& first = periods.front();
    if (!link && first == SlowPeriod{.factor = first.factor}) {
      stragglers.factors.resize(devices, 1);
      stragglers.factors[place] = first.factor;
      continue;
    }
    std::vector<SlowPeriods>& list = link ? stragglers.links : stragglers.devices;
    list.resize(link ? cluster.links.size() : devices);
    list[link ? place - devices : place] = SlowPeriods(periods);
  }
  return stragglers;
}

}  // namespace parsim::experiment
