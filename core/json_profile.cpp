// Machines, profiles and measurements as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/json_support.hpp"
#include "core/number_range.hpp"
#include "core/profile.hpp"

namespace parsim {

namespace json {

void fields(auto& visit, Of<Spread> auto& spread) {
  visit("median_s", spread.median);
  visit("low_s", spread.low);
  visit("high_s", spread.high);
  visit("samples", spread.samples);
}

void fields(auto& visit, Of<Version> auto& version) {
  visit("name", version.name);
  visit("version", version.version);
}

void fields(auto& visit, Of<Interval> auto& interval) {
  visit("begin", interval.begin, bounds);
  visit("end", interval.end, bounds);
}

void fields(auto& visit, Of<MemorySample> auto& sample) {
  visit("device", sample.device);
  visit("touched_bytes", sample.touched.value, Limits{0, std::int64_t{1} << 50});
  visit("time", sample.time);
}

void fields(auto& visit, Of<MessageSample> auto& sample) {
  visit("kind", sample.kind);
  visit("devices", sample.devices);
  visit("payload_bytes", sample.payload.value, Limits{0, std::int64_t{1} << 50});
  visit("time", sample.time);
}

/// A kernel as in the file: the part of the output by axis, the sample first.
struct KernelEntry {
  KernelSample sample{};
  std::vector<Interval> out{};
};

void fields(auto& visit, Of<KernelEntry> auto& entry) {
  auto& sample = entry.sample;
  visit("device", sample.device);
  visit("layer", sample.kind);
  visit("inputs", sample.inputs);
  visit("pass", sample.pass);
  visit("precision", sample.precision);
  visit("contraction", sample.part.contraction);
  visit("time", sample.time);
  visit("out", entry.out);
}

void fields(auto& visit, Of<MemoryPart> auto& part) {
  visit("device", part.device);
  visit("alone", part.alone);
  visit("together", part.together);
}

void fields(auto& visit, Of<CommonMemory> auto& memory) {
  visit("touched_bytes", memory.touched.value, Limits{1, std::int64_t{1} << 50});
  visit("parts", memory.parts);
}

void fields(auto& visit, Of<LinkFit> auto& link) {
  visit("from", link.from);
  visit("to", link.to);
  visit("latency_s", link.latency);
  visit("bytes_per_s", link.rate.value);
  visit("largest_error", link.largest_error);
}

void fields(auto& visit, Of<Measurement> auto& run) {
  visit("network", run.network);
  visit("strategy", run.strategy);
  visit("error", run.error);
  visit("fits", run.fits);
  visit("step", run.step);
  visit("step_with_events", run.step_with_events);
  visit("spans", run.timeline.spans);
  visit.optional("device_bytes", run.device_bytes,
                 Rule(Limits{0, std::int64_t{1} << 50}, "memory that the step took, by device"));
  visit.optional("settings", run.settings, "batch, precisions and optimizer of the step");
}

/// Pairs that slow each other down; all others have the factor 1.
const std::vector<std::string>& pair_words() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> texts;
    for (const InterferencePair& pair : interference_pairs) texts.push_back(to_text(pair));
    return texts;
  }();
  return words;
}

void fields(auto& visit, Of<Interference> auto& interference) {
  for (std::size_t i = 0; i < interference_pairs.size(); ++i) {
    const auto [activity, during] = interference_pairs[i];
    auto& factor =
        interference.factors[static_cast<std::size_t>(activity)][static_cast<std::size_t>(during)];
    visit.optional_or(pair_words()[i], factor, 1.0, Limits{1});
  }
}

struct PairName {
  std::size_t pair = 0;
};
void put_special(Writer& out, const PairName& name) { out.text(pair_words().at(name.pair)); }
void get_special(const Node& node, PairName& name) {
  const std::vector<std::string_view> words(pair_words().begin(), pair_words().end());
  name.pair = node.word(words);
}
void put_special_schema(Writer& out, const PairName&) {
  out.key("enum");
  put(out, pair_words());
}

/// An InterferenceSample as in the file.
struct PairEntry {
  std::string device{};
  PairName pair{};
  Spread alone{}, during{};
};

void fields(auto& visit, Of<PairEntry> auto& entry) {
  visit("device", entry.device);
  visit("pair", entry.pair);
  visit("alone", entry.alone);
  visit("beside", entry.during);
}

/// A device of a machine with its link to the switch. The cluster of a machine is a star; it is
/// written device by device, because the file format of clusters belongs to topologies/.
struct DeviceEntry {
  std::string name{}, model{}, architecture{};
  std::int32_t multiprocessors = 0;
  std::array<double, std::tuple_size_v<decltype(DeviceModel::peak)>> peak{};
  double memory_rate = 0;
  std::int64_t memory = 0;
  double link_rate = 0, link_latency = 0;
};

void fields(auto& visit, Of<DeviceEntry> auto& device) {
  visit("name", device.name);
  visit("model", device.model);
  visit("architecture", device.architecture);
  visit("multiprocessors", device.multiprocessors);
  visit("peak_flops_per_s", device.peak, "fp32, tf32, fp16, bf16");
  visit("memory_bytes_per_s", device.memory_rate);
  visit("memory_bytes", device.memory, Limits{0, std::int64_t{1} << 50});
  visit("link_bytes_per_s", device.link_rate);
  visit("link_latency_s", device.link_latency);
}

struct MachineEntry {
  std::string backend{}, name{};
  std::vector<Version> versions{};
  std::string clocks{};
  std::vector<DeviceEntry> devices{};
};

void list_machine(auto& visit, auto& machine) {
  visit("backend", machine.backend);
  visit("name", machine.name);
  visit("versions", machine.versions);
  visit("clocks", machine.clocks);
  visit("devices", machine.devices);
}

constexpr std::string_view machine_format = "parsim-machine";
constexpr std::string_view profile_format = "parsim-profile";
constexpr std::string_view measurements_format = "parsim-measurements";
constexpr std::int64_t profile_version = 1;

void fields(auto& visit, Of<MachineEntry> auto& machine) {
  visit.constant("format", machine_format);
  visit.constant("version", profile_version);
  list_machine(visit, machine);
}

struct ProfileEntry {
  MachineEntry machine{};
  Profile profile{};  ///< without the machine, kernels and interference samples
  std::vector<KernelEntry> kernels{};
  std::vector<PairEntry> pairs{};
};

void fields(auto& visit, Of<ProfileEntry> auto& entry) {
  auto& profile = entry.profile;
  visit.constant("format", profile_format);
  visit.constant("version", profile_version);
  list_machine(visit, entry.machine);
  visit("launch", profile.launch);
  visit("kernels", entry.kernels);
  visit("memory", profile.memory);
  visit("messages", profile.messages);
  visit.optional("interference", profile.interference,
                 "time of the first while the second runs on the same device, over its time "
                 "alone; absent: 1");
  visit.optional("interference_samples", entry.pairs, "what interference follows from");
  visit.optional("common_memory", profile.common_memory,
                 "GPUs partitioned into several devices: memory bandwidth of each part alone, and "
                 "of all together");
  visit.optional("links", profile.links, "messages take about latency + bytes / rate");
}

struct MeasurementsEntry {
  MachineEntry machine{};
  std::vector<Measurement> runs{};
};

void fields(auto& visit, Of<MeasurementsEntry> auto& entry) {
  visit.constant("format", measurements_format);
  visit.constant("version", profile_version);
  list_machine(visit, entry.machine);
  visit("runs", entry.runs);
}

namespace {

MachineEntry machine_entry(const Machine& machine) {
  MachineEntry entry{machine.backend, machine.name, machine.versions, machine.clocks};
  const Cluster& cluster = machine.cluster;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const DeviceModel& model = cluster.model(DeviceId{d});
    const Link& link = cluster.links[d];
    DeviceEntry& device = entry.devices.emplace_back();
    device = {
        cluster.devices[d].name, model.name,         model.architecture, model.multiprocessors, {},
        model.memory_rate.value, model.memory.value, link.rate.value,    link.latency.count()};
    for (std::size_t p = 0; p < device.peak.size(); ++p) device.peak[p] = model.peak[p].value;
  }
  return entry;
}

Machine machine_of(MachineEntry entry, const Node& node) {
  Machine machine{std::move(entry.backend),
                  std::move(entry.name),
                  std::move(entry.versions),
                  std::move(entry.clocks),
                  {}};
  std::vector<std::pair<BytesPerSecond, Seconds>> links;
  Cluster& cluster = machine.cluster;
  cluster.name = machine.name;
  cluster.nodes.push_back({"node"});
  for (const DeviceEntry& given : entry.devices) {
    DeviceModel model;
    model.name = given.model;
    model.architecture = given.architecture;
    model.multiprocessors = given.multiprocessors;
    for (std::size_t p = 0; p < model.peak.size(); ++p) model.peak[p] = {given.peak[p]};
    // Tensor cores multiply FP8 since 8.9, twice as fast as fp16 (NVIDIA's architecture papers of
    // Ada, Hopper and Blackwell).
    if (compute_capability(model).value_or(0) >= 8.9) {
      model.fp8_peak = 2 * model.peak[static_cast<std::size_t>(Precision::fp16)];
    }
    model.memory_rate = {given.memory_rate};
    model.memory = {given.memory};
    model.provenance = {{"*", Label::guessed, "asked of the device by parsim-hw"}};
    Device device;
    device.name = given.name;
    device.node = NodeId{0};
    device.memory = model.memory;
    std::size_t index = 0;
    while (index < cluster.models.size() && cluster.models[index].name != model.name) ++index;
    if (index == cluster.models.size()) cluster.models.push_back(model);
    device.model = static_cast<std::int32_t>(index);
    cluster.devices.push_back(device);
    links.emplace_back(BytesPerSecond{given.link_rate}, Seconds{given.link_latency});
  }
  connect_as_star(machine, links);
  validate(cluster, node.location());
  return machine;
}

/// Refuses `node` unless `out` is a part of what the layer makes.
KernelSample kernel_of(KernelEntry entry, const Node& node) {
  KernelSample sample = std::move(entry.sample);
  const Node out = node["out"];
  const Shape shape = shape_made(sample.kind, sample.inputs, node);
  if (entry.out.size() != shape.axes.size() + 1) {
    out.refuse(fmt::format("accepted: {} axes", shape.axes.size() + 1));
  }
  for (std::size_t a = 0; a < entry.out.size(); ++a) {
    const Interval& axis = entry.out[a];
    const bool inside = axis.end > axis.begin && (a == 0 || axis.end <= shape.axes[a - 1].extent);
    if (!inside) out.refuse("accepted: a part of the layer's output");
    sample.part.out.push_back(axis);
  }
  return sample;
}

/// Checks the times that rates follow from; devices are of the machine, each once.
void check_common_memory(const Node& list, const Profile& profile) {
  std::vector<bool> seen(profile.machine.cluster.devices.size());
  std::size_t next = 0;
  list.each([&](const Node& node) {
    const CommonMemory& memory = profile.common_memory[next++];
    std::size_t at = 0;
    node["parts"].each([&](const Node& part_node) {
      const MemoryPart& part = memory.parts[at++];
      if (part.device.index() >= seen.size()) {
        part_node["device"].refuse(fmt::format("accepted: 0 to {}", seen.size() - 1));
      }
      if (seen[part.device.index()]) part_node["device"].refuse("accepted: each device once");
      seen[part.device.index()] = true;
      for (const char* key : {"alone", "together"}) {
        const Node time = part_node[key]["median_s"];
        if (!(time.number() > 0)) time.refuse("accepted: a number above 0");
      }
    });
  });
}

}  // namespace

}  // namespace json

void connect_as_star(Machine& machine,
                     const std::vector<std::pair<BytesPerSecond, Seconds>>& links) {
  Cluster& cluster = machine.cluster;
  ensure(links.size() == cluster.devices.size(), "every device of a star has a link");
  cluster.switches = {{"switch", NodeId{0}}};
  cluster.provenances = {{"*", Label::measured, "measured by parsim-hw, or guessed before that"}};
  cluster.links.clear();
  for (std::size_t d = 0; d < links.size(); ++d) {
    cluster.links.push_back({cluster.devices[d].name + "-switch", Port::of(DeviceId{d}),
                             Port::of(SwitchId{0}), links[d].first, links[d].second, 0});
  }
}

std::string to_json(const Machine& machine) {
  return json::text_of_file(json::machine_entry(machine));
}

std::string to_json(const Profile& profile) {
  json::ProfileEntry entry{json::machine_entry(profile.machine), profile};
  for (const KernelSample& sample : profile.kernels) {
    json::KernelEntry& kernel = entry.kernels.emplace_back(json::KernelEntry{sample});
    for (std::size_t a = 0; a < sample.part.out.rank(); ++a) {
      kernel.out.push_back(sample.part.out[a]);
    }
  }
  for (const InterferenceSample& sample : profile.interference_samples) {
    entry.pairs.push_back({sample.device, {sample.pair}, sample.alone, sample.during});
  }
  return json::text_of_file(entry);
}

std::string to_json(const Measurements& measurements) {
  return json::text_of_file(
      json::MeasurementsEntry{json::machine_entry(measurements.machine), measurements.runs});
}

Machine machine_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(json::machine_format, json::profile_version);
  json::MachineEntry entry;
  json::get_fields(root, entry);
  return json::machine_of(std::move(entry), root);
}

Profile profile_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(json::profile_format, json::profile_version);
  json::ProfileEntry entry;
  json::get_fields(root, entry);
  Profile profile = std::move(entry.profile);
  profile.machine = json::machine_of(std::move(entry.machine), root);
  std::size_t next = 0;
  root["kernels"].each([&](const json::Node& node) {
    profile.kernels.push_back(json::kernel_of(std::move(entry.kernels[next++]), node));
  });
  for (json::PairEntry& pair : entry.pairs) {
    profile.interference_samples.push_back(
        {std::move(pair.device), pair.pair.pair, pair.alone, pair.during});
  }
  if (const auto list = root.find("common_memory")) json::check_common_memory(*list, profile);
  return profile;
}

Measurements measurements_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(json::measurements_format, json::profile_version);
  json::MeasurementsEntry entry;
  json::get_fields(root, entry);
  for (std::size_t i = 0; i < entry.runs.size(); ++i) {
    const Measurement& run = entry.runs[i];
    // Predictions are divided by it.
    constexpr Seconds shortest{least_number};
    if (!run.error.empty() || run.step.median >= shortest) continue;
    root["runs"].item(i, entry.runs.size())["step"]["median_s"].refuse(
        fmt::format("{} s", run.step.median.count()), "accepted: a step that takes time");
  }
  return {json::machine_of(std::move(entry.machine), root), std::move(entry.runs)};
}

std::string machine_schema() {
  return json::schema_of_file<json::MachineEntry>("What parsim-hw says of a machine");
}

std::string profile_schema() {
  return json::schema_of_file<json::ProfileEntry>("What parsim calibrate -o writes");
}

std::string measurements_schema() {
  return json::schema_of_file<json::MeasurementsEntry>("Steps as parsim-hw measured them");
}

}  // namespace parsim
