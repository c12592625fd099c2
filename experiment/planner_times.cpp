#include "experiment/planner_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/errors.hpp"
#include "core/json_reader.hpp"
#include "core/number_range.hpp"
#include "core/text.hpp"

namespace parsim::experiment {

namespace {

using What = LayerTime::What;
constexpr std::int64_t most = std::int64_t{1} << 30;
constexpr std::string_view accepted =
    "accepted: a profile of 'parsim calibrate', layer times as CSV, or those of Sailor, Metis or "
    "Galvatron";

/// Forward and backward seconds.
struct Both {
  double forward = 0, backward = 0;
};

/// Of 0, or of a number as in a table of layer times.
double time_of(const json::Node& node) {
  const double number = node.number();
  if (number == 0 || (number >= least_number && number <= most_number)) return number;
  node.refuse(fmt::format("accepted: 0, or a number of {} to {}", least_number, most_number));
}

/// The first and the last layer, and the mean of those between.
void add_layers(const std::vector<Both>& layers, LayerTime one, const std::string& file,
                std::vector<LayerTime>& times) {
  if (layers.size() < 3) {
    throw InputError(file, fmt::format("{} layers", layers.size()),
                     "accepted: what is before the blocks, blocks, and what is after them");
  }
  const auto add = [&](What what, const Both& both) {
    one.what = what;
    one.forward = Seconds{both.forward};
    one.backward = Seconds{both.backward};
    times.push_back(one);
  };
  Both block;
  const double blocks = static_cast<double>(layers.size() - 2);
  for (std::size_t i = 1; i + 1 < layers.size(); ++i) {
    block.forward += layers[i].forward / blocks;
    block.backward += layers[i].backward / blocks;
  }
  add(What::before, layers.front());
  add(What::block, block);
  add(What::after, layers.back());
}

std::vector<LayerTime> read_sailor(const json::Node& root, const LayerTime& any,
                                   const std::string& file) {
  std::vector<LayerTime> times;
  root.each_member([&](const std::string& samples, const json::Node& groups) {
    groups.each_member([&](const std::string& group, const json::Node& layers) {
      LayerTime one = any;
      one.samples = parse_whole(samples, groups.location(), 1, most);
      one.group = static_cast<std::size_t>(parse_whole(group, layers.location(), 1, most));
      std::map<std::int64_t, Both> by_layer;
      layers.each_member([&](const std::string& layer, const json::Node& three) {
        by_layer[parse_whole(layer, three.location(), 0, most)] = {time_of(three.item(0, 3)),
                                                                   time_of(three.item(1, 3))};
      });
      std::vector<Both> in_order;
      for (const auto& [layer, both] : by_layer) in_order.push_back(both);
      add_layers(in_order, one, file, times);
    });
  });
  return times;
}

/// The number after `mark` in the file's name.
std::int64_t number_in_name(const std::string& file, std::string_view mark) {
  const std::string name = file.substr(file.rfind('/') + 1);
  const std::size_t at = name.rfind(mark);
  const std::string digits = at == std::string::npos ? "" : name.substr(at + mark.size());
  const auto number =
      to_number<std::int64_t>(digits.substr(0, digits.find_first_not_of("0123456789")));
  if (number && *number > 0 && *number <= most) return *number;
  throw InputError(file, fmt::format("a profile of Metis without '{}N' in its name", mark),
                   "accepted: its own names, as in DeviceType.A100_tp2_bs1.json");
}

std::vector<LayerTime> read_metis(const json::Node& root, LayerTime one, const std::string& file) {
  constexpr double forward = 1.0 / 3;  // two of the three products of a layer are gradients
  one.group = static_cast<std::size_t>(number_in_name(file, "_tp"));
  one.samples = number_in_name(file, "_bs");
  std::vector<Both> layers;
  root["execution_time"]["layer_compute_total_ms"].each([&](const json::Node& layer) {
    const double seconds = 1e-3 * time_of(layer);
    layers.push_back({forward * seconds, (1 - forward) * seconds});
  });
  std::vector<LayerTime> times;
  add_layers(layers, one, file, times);
  return times;
}

/// "layertype_0_bsz8_seq4096": the part and the samples; nothing for keys of other things.
std::optional<std::pair<What, std::int64_t>> galvatron_key(const std::string& key,
                                                           std::int64_t tokens) {
  for (const auto& [head, what] : {std::pair("layertype_0_bsz", What::block),
                                   std::pair("layertype_other_bsz", What::around)}) {
    const std::string tail = fmt::format("_seq{}", tokens);
    if (!key.starts_with(head) || !key.ends_with(tail)) continue;
    const std::size_t begin = std::string_view(head).size();
    const auto samples =
        to_number<std::int64_t>(key.substr(begin, key.size() - tail.size() - begin));
    if (samples && *samples > 0 && *samples <= most) return std::pair(what, *samples);
  }
  return std::nullopt;
}

std::vector<LayerTime> read_galvatron(const json::Node& root, LayerTime one,
                                      const std::string& file, std::int64_t tokens) {
  constexpr double backward = 2;  // over forward
  std::vector<LayerTime> times;
  root.each_member([&](const std::string& key, const json::Node& milliseconds) {
    const auto found = galvatron_key(key, tokens);
    if (!found) return;
    one.what = found->first;
    one.samples = found->second;
    one.forward = Seconds{1e-3 * time_of(milliseconds) * static_cast<double>(one.samples)};
    one.backward = backward * one.forward;
    times.push_back(one);
  });
  if (!times.empty()) return times;
  throw InputError(file, fmt::format("no layer times for samples of {} tokens", tokens),
                   "accepted: a profile of Galvatron with layertype_0_bszN_seqN of that length");
}

}  // namespace

bool is_planner_times(std::string_view text) {
  const auto contains = [&](std::string_view word) { return text.find(word) != text.npos; };
  if (contains("\"layer_compute_total_ms\"") || contains("\"layertype_")) return true;
  const std::size_t key = text.find('"') + 1;  // npos + 1 is 0
  const std::size_t end = key == 0 ? key : text.find_first_not_of("0123456789", key);
  return end != text.npos && end > key && text[end] == '"';
}

std::vector<LayerTime> read_planner_times(const std::string& text, const std::string& file,
                                          const PlannerSetting& setting) {
  const json::Document document(text, file, json::Origin::elsewhere);
  const json::Node root = document.root();
  LayerTime any;
  any.device = setting.device;
  any.precision = setting.precision;
  if (root.kind() == json::Kind::object && root.children() > 0) {
    if (root.find("execution_time")) return read_metis(root, any, file);
    bool numbers = true, types = false;
    root.each_member([&](const std::string& key, const json::Node&) {
      numbers = numbers && to_number<std::int64_t>(key).has_value();
      types = types || key.starts_with("layertype_");
    });
    if (types) return read_galvatron(root, any, file, setting.tokens);
    if (numbers) return read_sailor(root, any, file);
  }
  throw InputError(file, "no profile that is known", std::string(accepted));
}

}  // namespace parsim::experiment
