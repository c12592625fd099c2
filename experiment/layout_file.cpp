#include "experiment/layout_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/request.hpp"
#include "strategies/blocks.hpp"
#include "topologies/document.hpp"

namespace parsim::experiment {

namespace {

constexpr std::int64_t most_micro_batches_of_a_file = 65'536;
constexpr std::int64_t most_samples = 1'000'000'000;
constexpr std::int64_t most_shares_of_group = 1'000'000;
constexpr std::int64_t most_devices = 1'000'000'000;

using topologies::key;
using topologies::Keys;

/// "node", or a number of devices.
struct ZeroGroupValue {};
void put_special_schema(json::Writer& out, const ZeroGroupValue&) {
  out.key("anyOf").open_array();
  json::put_schema(out, std::int64_t{}, json::Limits{1, most_devices});
  out.open_object();
  out.key("const").text("node");
  out.close_object();
  out.close_array();
}

const Keys& stage_keys() {
  using Groups = std::vector<std::vector<std::string>>;
  static const Keys keys{
      {key<std::string>("blocks", "as 0-11"),
       key<std::string>("layers", "the first and the last, as conv1-pool2"),
       key<Groups>("groups", "devices of each replica; none of a further model chunk"),
       key<std::vector<std::int64_t>>(
           "samples", json::Rule({0, most_samples}, "of a micro-batch for each group")),
       key<std::vector<std::vector<std::int64_t>>>(
           "parts",
           json::Rule({1, most_shares_of_group}, "of each layer for each device of a group"))},
      {{{"blocks"}, {"layers"}}}};
  return keys;
}

const Keys& layout_keys() {
  constexpr json::Limits micro_batches{1, most_micro_batches_of_a_file};
  static const Keys keys{
      {key<std::int64_t>("micro_batches", micro_batches),
       key<strategies::PipelineSchedule>("schedule"),
       key<std::int64_t>("vp", json::Rule({1}, "model chunks of each device")),
       key<std::int64_t>("cp", json::Rule({1, most_devices}, "parts of the tokens")),
       key<strategies::ContextExchange>("cp_comm"), key<std::int64_t>("zero", json::Limits{0, 3}),
       key<ZeroGroupValue>("zero_group"), key<strategies::Recompute>("recompute"),
       key<strategies::ShareRule>("shares"), key<strategies::PipelineSends>("sends"),
       topologies::required<std::vector<topologies::TableOf<stage_keys>>>("stages")}};
  return keys;
}

/// The layers of a stage, first and last.
struct LayerRange {
  std::size_t first = 0, last = 0;
};

class LayoutReader {
 public:
  LayoutReader(const topologies::Value& root, std::string file, const Network& network,
               const Cluster& cluster)
      : file_(std::move(file)),
        top_(root, file_, "", layout_keys()),
        network_(network),
        cluster_(cluster),
        blocks_(strategies::first_layers_of_blocks(network)) {}

  LayoutFile read() && {
    LayoutFile result;
    if (const auto number = whole(top_, "micro_batches", layout_keys().limits("micro_batches"))) {
      result.micro_batches = static_cast<std::int32_t>(*number);
      result.micro_batches_at = top_.where("micro_batches");
    }
    if (const auto number = whole(top_, "zero", layout_keys().limits("zero"))) {
      result.zero_stage = static_cast<std::int32_t>(*number);
    }
    if (const auto number = whole(top_, "cp", layout_keys().limits("cp"))) {
      result.context = static_cast<std::int32_t>(*number);
    }
    if (const auto word = top_.maybe_text("cp_comm")) {
      result.context_exchange =
          parse_spelling<strategies::ContextExchange>(*word, top_.where("cp_comm"));
    }
    result.zero_group = zero_group();
    if (const auto word = top_.maybe_text("schedule")) {
      result.schedule = parse_spelling<strategies::PipelineSchedule>(*word, top_.where("schedule"));
    }
    if (const auto word = top_.maybe_text("recompute")) {
      result.recompute = parse_spelling<strategies::Recompute>(*word, top_.where("recompute"));
    }
    if (const auto word = top_.maybe_text("shares")) {
      result.shares = parse_spelling<strategies::ShareRule>(*word, top_.where("shares"));
    }
    if (const auto word = top_.maybe_text("sends")) {
      result.sends = parse_spelling<strategies::PipelineSends>(*word, top_.where("sends"));
    }
    const std::vector<topologies::Value>& stages = top_.list("stages");
    if (stages.empty()) {
      throw InputError(top_.where("stages"), "no stage", "accepted: one [[stages]] or more");
    }
    const std::size_t pipeline = devices_in_pipeline(stages.size(), result.layout);
    std::size_t next = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const bool last = s + 1 == stages.size();
      const topologies::Fields fields(stages[s], file_, "stages", stage_keys());
      strategies::LayoutStage& stage = result.layout.stages.emplace_back();
      stage.first = next;
      next = end_of(fields, next, last);
      if (s < pipeline) {
        read_groups(fields, stage);
        read_parts(fields, stage);
      } else {
        take_groups(fields, result.layout, s - pipeline);
      }
      read_samples(fields, stage, result);
    }
    return result;
  }

 private:
  static std::optional<std::int64_t> whole(const topologies::Fields& fields, std::string_view key,
                                           json::Limits limits) {
    if (fields.find(key) == nullptr) return std::nullopt;
    return fields.integer_or(key, limits.least, limits);
  }

  /// How many of the stages are on different devices.
  std::size_t devices_in_pipeline(std::size_t stages, strategies::Layout& layout) const {
    const auto chunks = whole(top_, "vp", {1, static_cast<std::int64_t>(stages)}).value_or(1);
    const std::size_t divisor = static_cast<std::size_t>(chunks);
    if (stages % divisor != 0) {
      throw InputError(top_.where("vp"), fmt::format("{} for {} stages", chunks, stages),
                       "accepted: a divisor of the number of stages");
    }
    layout.chunks = static_cast<std::int32_t>(chunks);
    return stages / divisor;
  }

  /// Where the next stage begins, for a stage that begins at `begin`.
  std::size_t end_of(const topologies::Fields& fields, std::size_t begin, bool last) const {
    const bool by_block = fields.find("blocks") != nullptr;
    if (by_block == (fields.find("layers") != nullptr)) {
      throw InputError(fields.where(by_block ? "layers" : "blocks"),
                       by_block ? "both blocks and layers" : "neither blocks nor layers",
                       "accepted: one of them: blocks = \"0-11\", or layers = \"conv1-pool2\"");
    }
    const std::string_view key = by_block ? "blocks" : "layers";
    const LayerRange range = by_block ? blocks_named(fields) : layers_named(fields);
    // Data and loss need not be named.
    const auto named_by_nobody = [&](std::size_t from, std::size_t to) {
      return std::all_of(
          network_.layers.begin() + static_cast<std::ptrdiff_t>(from),
          network_.layers.begin() + static_cast<std::ptrdiff_t>(to), [](const Layer& layer) {
            return layer.kind.as<Input>() != nullptr || layer.kind.as<Loss>() != nullptr;
          });
    };
    if (range.first < begin || (range.first > begin && !named_by_nobody(begin, range.first))) {
      throw InputError(fields.where(key),
                       fmt::format("begins with {}", name_of(range.first, by_block)),
                       fmt::format("accepted: stages that follow one another: {} comes next",
                                   name_of(begin, by_block)));
    }
    const std::size_t count = network_.layers.size();
    if (!last) return range.last + 1;
    if (!named_by_nobody(range.last + 1, count)) {
      throw InputError(
          fields.where(key),
          fmt::format("the last stage ends before {}", name_of(range.last + 1, by_block)),
          "accepted: stages that have all of the network");
    }
    return count;
  }

  [[nodiscard]] std::string name_of(std::size_t layer, bool by_block) const {
    if (layer >= network_.layers.size()) return "nothing";
    if (!by_block) return fmt::format("layer '{}'", network_.layers[layer].name);
    const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), layer);
    return fmt::format("block {}", after - blocks_.begin() - 1);
  }

  [[nodiscard]] LayerRange blocks_named(const topologies::Fields& fields) const {
    const std::string text = fields.text("blocks");
    if (blocks_.empty()) {
      throw InputError(fields.where("blocks"),
                       fmt::format("network '{}' is not made of blocks", network_.name),
                       fmt::format("accepted: layers by name: layers = \"{}-{}\"",
                                   network_.layers[0].name, network_.layers.back().name));
    }
    const std::size_t dash = text.find('-');
    const auto number = [&](std::string_view digits) -> std::optional<std::size_t> {
      const auto value = to_number<std::size_t>(digits);
      return value && *value < blocks_.size() ? value : std::nullopt;
    };
    const std::string_view whole_text = text;
    const auto first = number(whole_text.substr(0, dash));
    const auto last = dash == std::string::npos ? first : number(whole_text.substr(dash + 1));
    if (!first || !last || *last < *first) {
      throw InputError(
          fields.where("blocks"), fmt::format("'{}'", text),
          fmt::format("accepted: \"FIRST-LAST\" or one block, of 0 to {}", blocks_.size() - 1));
    }
    const bool to_the_end = *last + 1 == blocks_.size();
    return {blocks_[*first], (to_the_end ? network_.layers.size() : blocks_[*last + 1]) - 1};
  }

  [[nodiscard]] std::optional<std::size_t> layer_named(std::string_view name) const {
    const auto found = std::find_if(network_.layers.begin(), network_.layers.end(),
                                    [&](const Layer& layer) { return layer.name == name; });
    if (found == network_.layers.end()) return std::nullopt;
    return static_cast<std::size_t>(found - network_.layers.begin());
  }

  /// "first-last" or one name; names may have dashes themselves.
  [[nodiscard]] LayerRange layers_named(const topologies::Fields& fields) const {
    const std::string text = fields.text("layers");
    if (const auto only = layer_named(text)) return {*only, *only};
    for (std::size_t dash = text.find('-'); dash != std::string::npos;
         dash = text.find('-', dash + 1)) {
      const auto first = layer_named(std::string_view(text).substr(0, dash));
      const auto last = layer_named(std::string_view(text).substr(dash + 1));
      if (first && last && *first <= *last) return {*first, *last};
    }
    std::vector<std::string> names;
    for (const Layer& layer : network_.layers) names.push_back(layer.name);
    const std::size_t dash = text.find('-');
    const std::string head = text.substr(0, dash);
    const bool head_known = layer_named(head).has_value();
    const std::string wrong =
        head_known && dash != std::string::npos ? text.substr(dash + 1) : head;
    throw InputError(
        fields.where("layers"), fmt::format("'{}'", text),
        fmt::format("accepted: \"FIRST-LAST\" or one layer, by the names of 'parsim show network "
                    "{}', the first not after the last{}",
                    network_.name, did_you_mean(wrong, names)));
  }

  DeviceId device(const topologies::Value& item, const std::string& where) {
    if (item.kind != topologies::Value::Kind::text) {
      throw InputError(where, fmt::format("{} instead of a device", item.described()),
                       "accepted: names of devices in quotes");
    }
    const DeviceId found = find_device(cluster_, item.text, where);
    if (std::find(used_.begin(), used_.end(), found) != used_.end()) {
      throw InputError(where, fmt::format("device '{}' is in two groups", item.text),
                       "accepted: each device in one group");
    }
    used_.push_back(found);
    return found;
  }

  void read_groups(const topologies::Fields& fields, strategies::LayoutStage& stage) {
    for (const topologies::Value& item : fields.list("groups")) {
      const std::string where = fmt::format("{}:{}:stages.groups", file_, item.line);
      if (item.kind != topologies::Value::Kind::list || item.items.empty()) {
        throw InputError(
            where,
            item.kind == topologies::Value::Kind::list ? "a group without devices"
                                                       : item.described() + " instead of a group",
            "accepted: a list of devices for each replica: [[\"gpu0\", \"gpu1\"], [\"gpu2\"]]");
      }
      std::vector<DeviceId>& group = stage.groups.emplace_back();
      for (const topologies::Value& one : item.items) {
        group.push_back(device(one, fmt::format("{}:{}:stages.groups", file_, one.line)));
      }
    }
    if (stage.groups.empty()) {
      throw InputError(
          fields.where("groups"), "no groups",
          "accepted: a list of devices for each replica: [[\"gpu0\", \"gpu1\"], [\"gpu2\"]]");
    }
  }

  /// A further model chunk has the devices of the first one.
  static void take_groups(const topologies::Fields& fields, strategies::Layout& layout,
                          std::size_t from) {
    if (fields.find("groups") != nullptr) {
      throw InputError(fields.where("groups"), "groups of a further model chunk",
                       fmt::format("accepted: none, the devices are those of stage {}", from));
    }
    layout.stages.back().groups = layout.stages[from].groups;
    layout.stages.back().parts = layout.stages[from].parts;
    if (fields.find("parts") != nullptr) {
      throw InputError(fields.where("parts"), "parts of a further model chunk",
                       fmt::format("accepted: none, they are those of stage {}", from));
    }
  }

  /// "5, 3": a device's share of each layer in relation to those of its group.
  void read_parts(const topologies::Fields& fields, strategies::LayoutStage& stage) const {
    if (fields.find("parts") == nullptr) return;
    const std::string where = fields.where("parts");
    for (const topologies::Value& item : fields.list("parts")) {
      if (item.kind != topologies::Value::Kind::list) {
        throw InputError(where, item.described() + " instead of a list",
                         "accepted: a list for each group: [[5, 3], [1, 1]]");
      }
      std::vector<std::int64_t>& parts = stage.parts.emplace_back();
      for (const topologies::Value& one : item.items) {
        const bool good = one.kind == topologies::Value::Kind::integer && one.integer >= 1 &&
                          one.integer <= most_shares_of_group;
        if (!good) {
          throw InputError(where, one.described(),
                           fmt::format("accepted: whole numbers of 1 to {}", most_shares_of_group));
        }
        parts.push_back(one.integer);
      }
      const std::size_t g = stage.parts.size() - 1;
      if (g < stage.groups.size() && parts.size() != stage.groups[g].size()) {
        throw InputError(where,
                         fmt::format("{} parts for {}", parts.size(),
                                     counted(std::ssize(stage.groups[g]), "device")),
                         "accepted: one for each device of the group");
      }
    }
    if (stage.parts.size() != stage.groups.size()) {
      throw InputError(
          where, fmt::format("parts of {} groups for {}", stage.parts.size(), stage.groups.size()),
          "accepted: a list for each group: [[5, 3], [1, 1]]");
    }
  }

  [[nodiscard]] std::optional<ZeroGroup> zero_group() const {
    const topologies::Value* value = top_.find("zero_group");
    if (value == nullptr) return std::nullopt;
    if (value->kind == topologies::Value::Kind::text && value->text == "node") {
      return ZeroGroup{0, true};
    }
    const bool good = value->kind == topologies::Value::Kind::integer && value->integer >= 1 &&
                      value->integer <= most_devices;
    if (!good) {
      throw InputError(top_.where("zero_group"), value->described(),
                       "accepted: a whole number of 1 or more, or \"node\"");
    }
    return ZeroGroup{static_cast<std::int32_t>(value->integer), false};
  }

  void read_samples(const topologies::Fields& fields, strategies::LayoutStage& stage,
                    LayoutFile& result) const {
    if (fields.find("samples") == nullptr) return;
    const std::string where = fields.where("samples");
    for (const topologies::Value& item : fields.list("samples")) {
      const bool good = item.kind == topologies::Value::Kind::integer && item.integer >= 0 &&
                        item.integer <= most_samples;
      if (!good) {
        throw InputError(where, item.described(),
                         fmt::format("accepted: whole numbers of 0 to {}", most_samples));
      }
      stage.samples.push_back(item.integer);
    }
    if (stage.samples.size() != stage.groups.size()) {
      throw InputError(
          where, fmt::format("{} samples for {} groups", stage.samples.size(), stage.groups.size()),
          "accepted: one for each group");
    }
    const std::int64_t sum =
        std::accumulate(stage.samples.begin(), stage.samples.end(), std::int64_t{0});
    if (sum == 0) throw InputError(where, "no samples at all", "accepted: one sample or more");
    if (result.samples && *result.samples != sum) {
      throw InputError(where, fmt::format("{} samples of a micro-batch", sum),
                       fmt::format("accepted: {}, as at {}", *result.samples, result.samples_at));
    }
    if (!result.samples) result.samples_at = where;
    result.samples = sum;
  }

  std::string file_;
  topologies::Fields top_;
  const Network& network_;
  const Cluster& cluster_;
  std::vector<std::size_t> blocks_;  ///< by block its first layer
  std::vector<DeviceId> used_;
};

}  // namespace

LayoutFile read_layout(std::string_view text, const std::string& file, const Network& network,
                       const Cluster& cluster) {
  const topologies::Value root = topologies::parse_document(text, file);
  return LayoutReader(root, file, network, cluster).read();
}

std::string layout_schema() {
  return topologies::table_schema("A file of --layout, in TOML or JSON", layout_keys());
}

void take_decisions(const LayoutFile& file, strategies::StrategyInput& input) {
  if (file.micro_batches) input.micro_batches = file.micro_batches;
  if (file.schedule) input.schedule = *file.schedule;
  if (file.sends) input.pipeline_sends = *file.sends;
  if (!input.bucket) input.bucket = file.usual_bucket;
  if (file.bucket) input.bucket = *file.bucket;
  if (file.reduce_every) input.reduce_every = *file.reduce_every;
  if (file.context) input.context_parallel = *file.context;
  if (file.context_exchange) input.context_exchange = *file.context_exchange;
  if (file.zero_stage) input.zero_stage = *file.zero_stage;
  const bool accumulates =
      input.micro_batches.value_or(1) > 1 && input.reduce_every == ReduceEvery::step;
  if (file.keeps_while_accumulating && accumulates) input.zero_stage = 1;
  if (file.zero_group) input.zero_group = *file.zero_group;
  if (file.recompute) input.recompute = *file.recompute;
  if (file.shares) input.shares = *file.shares;
  if (file.sequence_parallel) input.sequence_parallel = *file.sequence_parallel;
  if (file.tensor_overlap) input.tensor_overlap = *file.tensor_overlap;
  if (file.expert_parallel) input.expert_parallel = *file.expert_parallel;
  if (file.expert_tensor_parallel) input.expert_tensor_parallel = *file.expert_tensor_parallel;
  if (file.recompute_every) input.recompute_every = *file.recompute_every;
}

void check_keys(const LayoutFile& layout, const std::string& file,
                const strategies::StrategyOptions& input) {
  const auto refuse = [&](bool when, std::string_view key, std::string_view found,
                          std::string_view accepted) {
    if (!when) return;
    throw InputError(fmt::format("{}:{}", file, key), fmt::format("unused {}", found),
                     fmt::format("accepted: {}", accepted));
  };
  const std::vector<strategies::LayoutStage>& stages = layout.layout.stages;
  refuse(
      layout.context_exchange && layout.context.value_or(input.context_parallel.value_or(1)) == 1,
      "cp_comm", "without cp", "together with cp, or --cp, of 2 or more");
  refuse(layout.sends && stages.size() == 1, "sends", "by a single stage", "with several stages");
  refuse(layout.schedule && layout.micro_batches.value_or(input.micro_batches.value_or(1)) == 1,
         "schedule", "with one micro-batch", "together with micro_batches of 2 or more");
  const bool shared = std::any_of(stages.begin(), stages.end(), [](const auto& stage) {
    return stage.groups.size() > 1 && stage.samples.empty();
  });
  refuse(layout.shares && !shared, "shares", "where no replicas without samples share any",
         "with several replicas of a stage, without samples");
}

}  // namespace parsim::experiment
