#include "experiment/layer_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "core/timeline.hpp"
#include "experiment/experiment.hpp"
#include "experiment/options.hpp"
#include "experiment/planner_times.hpp"
#include "lowering/lower.hpp"
#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"

namespace parsim::experiment {

namespace {

using What = LayerTime::What;
constexpr std::size_t whats = 3;

constexpr std::pair<std::string_view, What> what_words[] = {
    {"before", What::before}, {"block", What::block}, {"after", What::after}};
Seconds time_of(const CsvTable& table, const CsvTable::Row& row, std::string_view column) {
  const double seconds = table.number(row, column);
  if (seconds >= 0) return Seconds{seconds};
  throw InputError(fmt::format("{}:{}:{}", table.file, row.line, column),
                   fmt::format("{} s", seconds), "accepted: 0 or more");
}

/// Devices of one type in one machine.
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

/// What a part takes in one direction, of a step in which its kernels take the model's times.
struct Modelled {
  double kernels = 0;  ///< on the group's first device
  double all = 0;      ///< until the next part begins, exchange included

  /// Of the kernels, such that all of it takes `measured`.
  [[nodiscard]] double factor(double measured) const {
    constexpr double least = 0.05;
    if (kernels <= 0) return 1;
    return std::max(least, (measured - (all - kernels)) / kernels);
  }
};

/// A step of one group without replicas.
class GroupStep {
 public:
  GroupStep(const Network& network, const Cluster& cluster, const CostModel& model,
            const sim::SimOptions& options, const LayerTime& setting, std::vector<DeviceId> group)
      : model_(model), first_(group[0]), blocks_(strategies::blocks_of(network)) {
    count_ = *std::max_element(blocks_.begin(), blocks_.end());
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      if (const auto block = strategies::block_of(network, LayerId{l}))
        count_ = std::max(count_, *block + 1);
    }
    strategies::StrategyInput input{network, cluster, model};
    input.batch = setting.samples;
    input.precision = setting.precision;
    dag_ = lowering::lower(network, cluster,
                           strategies::plan_layout(input, {{{0, {std::move(group)}, {}}}}));
    timeline_ = sim::make_simulator(cluster, model, options)->run(dag_);
    measure();
  }

  [[nodiscard]] const Modelled& of(What what, bool forward) const {
    return modelled_[static_cast<std::size_t>(what)][forward ? 1 : 0];
  }
  [[nodiscard]] std::int64_t blocks() const { return count_; }

  /// Adds the kernels' times, times factors by part and direction; those known already stay.
  void add_samples(const std::array<std::array<double, 2>, whats>& factors,
                   const std::string& device, std::set<std::vector<std::int64_t>>& known,
                   std::vector<KernelSample>& samples) const {
    const Network& network = dag_.network;
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      if (dag_.kind(OpId{i}) != OpKind::compute) continue;
      const Compute op = std::get<Compute>(dag_.op(OpId{i}));
      const LayerId id = dag_.work(op.work).layer;
      const std::vector<Shape> inputs = input_shapes(network, id);
      const Part part = dag_.part(op.work);
      std::vector<std::int64_t> signature = kernel_signature(
          network[id].kind, inputs, network[id].out, part, op.pass, dag_.precision);
      if (!known.insert(std::move(signature)).second) continue;
      const Seconds time = device_time(dag_, OpId{i}, model_).time;
      const double factor =
          factors[static_cast<std::size_t>(what_of(id))][op.pass == Pass::forward ? 1 : 0];
      const Seconds scaled = factor * time;
      samples.push_back({device,
                         network[id].kind,
                         inputs,
                         part,
                         op.pass,
                         dag_.precision,
                         {scaled, scaled, scaled, 1}});
    }
  }

 private:
  [[nodiscard]] What what_of(LayerId id) const {
    const std::int64_t block = blocks_[id.index()];
    return block < 0 ? What::before : block < count_ ? What::block : What::after;
  }

  /// Parts follow one another on the first device: each lasts until the next one's first kernel.
  void measure() {
    std::optional<std::pair<What, bool>> now;
    Seconds since{}, end{};
    const auto close = [&](Seconds at) {
      if (now) {
        modelled_[static_cast<std::size_t>(now->first)][now->second ? 1 : 0].all +=
            (at - since).count();
      }
      since = at;
    };
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      const OpId id{i};
      if (dag_.kind(id) != OpKind::compute) continue;
      const Compute op = std::get<Compute>(dag_.op(id));
      if (op.device != first_) continue;
      const std::pair part{what_of(dag_.work(op.work).layer), op.pass == Pass::forward};
      if (part != now) close(timeline_.spans[i].start);
      now = part;
      end = timeline_.spans[i].end;
      modelled_[static_cast<std::size_t>(part.first)][part.second ? 1 : 0].kernels +=
          device_time(dag_, id, model_).time.count();
    }
    close(end);
  }

  const CostModel& model_;
  DeviceId first_;
  std::vector<std::int64_t> blocks_;
  std::int64_t count_ = 0;
  ExecDag dag_;
  Timeline timeline_;
  std::array<std::array<Modelled, 2>, whats> modelled_{};
};

}  // namespace

bool is_layer_times(const std::string& path) {
  if (path.ends_with(".csv")) return true;
  if (!path.ends_with(".json")) return false;
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return is_planner_times(text);
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
  }
  return times;
}

Profile profile_of(const std::vector<LayerTime>& times, const Network& network,
                   const Cluster& cluster, const CostModel& model, sim::SimOptions options,
                   const std::string& file) {
  if (strategies::first_layers_of_blocks(network).empty()) {
    throw InputError(file,
                     fmt::format("times of blocks for network '{}', which has none", network.name),
                     "accepted: with a network made of blocks");
  }
  options.engine = sim::Engine::fast;
  Profile profile;
  profile.machine.name = file;
  profile.machine.backend = "times of layers";
  std::map<std::tuple<std::string, Precision, std::int64_t, std::size_t>,
           std::vector<const LayerTime*>>
      settings;
  for (const LayerTime& time : times) {
    settings[{time.device, time.precision, time.samples, time.group}].push_back(&time);
  }
  std::map<std::string, std::set<std::vector<std::int64_t>>> known;  // by device
  for (const auto& [setting, parts] : settings) {
    const LayerTime& one = *parts[0];
    auto group = group_in(cluster, one.device, one.group);
    if (!group) continue;
    const GroupStep step(network, cluster, model, options, one, *std::move(group));
    std::array<std::array<double, 2>, whats> factors{};
    for (auto& both : factors) both = {1, 1};
    for (const LayerTime* part : parts) {
      const double number = part->what == What::block ? static_cast<double>(step.blocks()) : 1;
      auto& both = factors[static_cast<std::size_t>(part->what)];
      both = {step.of(part->what, false).factor(number * part->backward.count()),
              step.of(part->what, true).factor(number * part->forward.count())};
    }
    step.add_samples(factors, one.device, known[one.device], profile.kernels);
  }
  return profile;
}

}  // namespace parsim::experiment
