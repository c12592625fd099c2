#include "experiment/layer_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/experiment.hpp"
#include "experiment/options.hpp"
#include "experiment/planner_times.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {

namespace {

/// Letters and digits alone, all small.
std::string letters_of(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    const auto plain = static_cast<unsigned char>(c);
    if (std::isalnum(plain) != 0) letters += static_cast<char>(std::tolower(plain));
  }
  return letters;
}

using What = LayerTime::What;

constexpr std::pair<std::string_view, What> what_words[] = {
    {"before", What::before}, {"block", What::block}, {"after", What::after}};

Seconds time_of(const CsvTable& table, const CsvTable::Row& row, std::string_view column) {
  const double seconds = table.number(row, column);
  if (seconds >= 0) return Seconds{seconds};
  throw InputError(fmt::format("{}:{}:{}", table.file, row.line, column),
                   fmt::format("{} s", seconds), "accepted: 0 or more");
}

}  // namespace

bool is_layer_times(const std::string& path, std::string_view text) {
  return path.ends_with(".csv") || (path.ends_with(".json") && is_planner_times(text));
}

std::vector<LayerTime> layer_times_of(const std::string& text, const std::string& file,
                                      const Network& network, const Cluster& cluster,
                                      Precision precision) {
  if (file.ends_with(".csv")) return read_layer_times(text, file);
  std::set<std::string> types;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
    types.insert(cluster.model(gpu).name);
  }
  if (types.size() != 1) {
    throw InputError(file,
                     fmt::format("times of one type of device, and GPUs of {} types", types.size()),
                     "accepted: a cluster of one type, or layer times as CSV, which names them");
  }
  return read_planner_times(text, file, {*types.begin(), precision, tokens_per_sample(network)});
}

std::vector<LayerTime> read_layer_times(std::string_view text, const std::string& file) {
  const CsvTable table = read_csv(text, file);
  for (const std::string_view name :
       {"device", "precision", "samples", "tp", "layers", "forward_s", "backward_s"}) {
    if (table.has(name)) continue;
    throw InputError(file, fmt::format("no column '{}'", name),
                     "accepted: device, precision, samples, tp, layers, forward_s, backward_s");
  }
  constexpr std::int64_t most = std::int64_t{1} << 30;
  std::vector<LayerTime> times;
  std::map<std::tuple<std::string, Precision, std::int64_t, std::size_t, What>, std::size_t> lines;
  for (const CsvTable::Row& row : table.rows) {
    const auto where = [&](std::string_view column) {
      return fmt::format("{}:{}:{}", file, row.line, column);
    };
    LayerTime& time = times.emplace_back();
    time.device = table.at(row, "device");
    time.precision = parse_spelling<Precision>(table.at(row, "precision"), where("precision"));
    time.samples = parse_whole(table.at(row, "samples"), where("samples"), 1, most);
    time.group = static_cast<std::size_t>(parse_whole(table.at(row, "tp"), where("tp"), 1, most));
    time.what = parse_word(table.at(row, "layers"), where("layers"), what_words);
    time.forward = time_of(table, row, "forward_s");
    time.backward = time_of(table, row, "backward_s");
    const auto [known, fresh] = lines.try_emplace(
        {time.device, time.precision, time.samples, time.group, time.what}, row.line);
    if (fresh) continue;
    throw InputError(fmt::format("{}:{}", file, row.line),
                     fmt::format("the same device, precision, samples, tp and layers as in line {}",
                                 known->second),
                     "accepted: one row for each setting");
  }
  return times;
}

std::optional<std::vector<DeviceId>> group_in(const Cluster& cluster, const std::string& type,
                                              std::size_t size) {
  std::map<NodeId, std::vector<DeviceId>> by_node;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    if (cluster.model(DeviceId{d}).name != type) continue;
    std::vector<DeviceId>& group = by_node[cluster.devices[d].node];
    group.emplace_back(d);
    if (group.size() == size) return group;
  }
  return std::nullopt;
}

std::vector<std::string> layer_times_warnings(const std::vector<LayerTime>& times,
                                              const std::string& file, const Cluster& cluster,
                                              Precision precision) {
  std::set<std::string> types;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
    types.insert(cluster.model(gpu).name);
  }
  std::vector<std::string> warnings;
  // Metis' names of files: "DeviceType.A100_tp1_bs1.json".
  constexpr std::string_view before = "DeviceType.";
  if (const std::size_t at = file.rfind(before); at != std::string::npos) {
    const std::string word = file.substr(at + before.size());
    const std::string said = word.substr(0, word.find('_'));
    const auto other = [&](const std::string& type) {
      return letters_of(type).find(letters_of(said)) == std::string::npos;
    };
    if (!said.empty() && std::all_of(types.begin(), types.end(), other)) {
      warnings.push_back(fmt::format("{}: times of {} by its name count as those of {}", file, said,
                                     fmt::join(types, ", ")));
    }
  }
  std::set<std::string> asked;
  for (const LayerTime& time : times) asked.insert(time.device);
  std::vector<std::string> known(types.begin(), types.end());
  for (const DeviceModel& model : topologies::device_models()) known.push_back(model.name);
  for (const std::string& type : asked) {
    if (std::find(known.begin(), known.end(), type) != known.end()) continue;
    warnings.push_back(fmt::format("{}: times of '{}' are left out: no such type of device{}", file,
                                   type, did_you_mean(type, known)));
  }
  for (const std::string& type : types) {
    std::set<std::size_t> groups;
    for (const LayerTime& time : times) {
      if (time.device == type && time.precision == precision) groups.insert(time.group);
    }
    for (const std::size_t group : groups) {
      if (group_in(cluster, type, group)) continue;
      warnings.push_back(fmt::format(
          "{}: times of groups of {} {} are left out: no machine has as many", file, group, type));
    }
    const bool has = std::any_of(times.begin(), times.end(), [&](const LayerTime& time) {
      return time.device == type && time.precision == precision;
    });
    if (has) continue;
    warnings.push_back(fmt::format("{}: no times of {} in {}: its kernels take the model's times",
                                   file, type, to_text(precision)));
  }
  return warnings;
}

}  // namespace parsim::experiment
