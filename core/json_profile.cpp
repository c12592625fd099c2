// Machines, profiles and measurements as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/json_support.hpp"
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
  visit("begin", interval.begin, Limits{0, std::int64_t{1} << 44});
  visit("end", interval.end, Limits{0, std::int64_t{1} << 44});
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

void fields(auto& visit, Of<KernelSample> auto& sample) {
  visit("device", sample.device);
  visit("layer", sample.kind);
  visit("inputs", sample.inputs);
  visit("pass", sample.pass);
  visit("precision", sample.precision);
  visit("contraction", sample.part.contraction);
  visit("time", sample.time);
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
}

namespace {

constexpr std::array<std::string_view, 1> kernel_keys{"out"};

void put_kernel(Writer& out, const KernelSample& sample) {
  out.open_object();
  put_fields(out, sample);
  std::vector<Interval> axes;
  for (std::size_t a = 0; a < sample.part.out.rank(); ++a) axes.push_back(sample.part.out[a]);
  out.key("out");
  put(out, axes);
  out.close_object();
}

KernelSample get_kernel(const Node& node) {
  KernelSample sample;
  get_fields(node, sample, kernel_keys);
  const Node out = node["out"];
  std::vector<Interval> axes;
  get(out, axes);
  const Shape shape = shape_made(sample.kind, sample.inputs, node);
  if (axes.size() != shape.axes.size() + 1) {
    out.refuse(fmt::format("accepted: {} axes", shape.axes.size() + 1));
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const Interval& axis = axes[a];
    const bool inside = axis.end > axis.begin && (a == 0 || axis.end <= shape.axes[a - 1].extent);
    if (!inside) out.refuse("accepted: a part of the layer's output");
    sample.part.out.push_back(axis);
  }
  return sample;
}

// The cluster of a machine is a star; its members are spelled out here, because a cluster has no
// other JSON than its own file format, which belongs to topologies/.
void put_machine(Writer& out, const Machine& machine) {
  out.key("backend").text(machine.backend);
  out.key("name").text(machine.name);
  out.key("versions");
  put(out, machine.versions);
  out.key("clocks").text(machine.clocks);
  out.key("devices").open_array();
  const Cluster& cluster = machine.cluster;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const DeviceModel& model = cluster.model(DeviceId{d});
    const Link& link = cluster.links[d];
    out.open_object();
    out.key("name").text(cluster.devices[d].name);
    out.key("model").text(model.name);
    out.key("architecture").text(model.architecture);
    out.key("multiprocessors").integer(model.multiprocessors);
    out.key("peak_flops_per_s").open_array();
    for (const FlopsPerSecond peak : model.peak) out.number(peak.value);
    out.close_array();
    out.key("memory_bytes_per_s").number(model.memory_rate.value);
    out.key("memory_bytes").integer(model.memory.value);
    out.key("link_bytes_per_s").number(link.rate.value);
    out.key("link_latency_s").number(link.latency.count());
    out.close_object();
  }
  out.close_array();
}

constexpr std::array<std::string_view, 5> machine_keys{"backend", "name", "versions", "clocks",
                                                       "devices"};

Machine get_machine(const Node& node) {
  Machine machine;
  get(node["backend"], machine.backend);
  get(node["name"], machine.name);
  get(node["versions"], machine.versions);
  get(node["clocks"], machine.clocks);
  std::vector<std::pair<BytesPerSecond, Seconds>> links;
  Cluster& cluster = machine.cluster;
  cluster.name = machine.name;
  cluster.nodes.push_back({"node"});
  node["devices"].each([&](const Node& entry) {
    entry.only({"name", "model", "architecture", "multiprocessors", "peak_flops_per_s",
                "memory_bytes_per_s", "memory_bytes", "link_bytes_per_s", "link_latency_s"});
    DeviceModel model;
    get(entry["model"], model.name);
    get(entry["architecture"], model.architecture);
    get(entry["multiprocessors"], model.multiprocessors);
    for (std::size_t p = 0; p < model.peak.size(); ++p) {
      model.peak[p] = {entry["peak_flops_per_s"].item(p, model.peak.size()).number()};
    }
    model.memory_rate = {entry["memory_bytes_per_s"].number()};
    model.memory = {entry["memory_bytes"].integer({0, std::int64_t{1} << 50})};
    model.provenance = {{"*", Label::guessed, "asked of the device by parsim-hw"}};
    Device device;
    get(entry["name"], device.name);
    device.node = NodeId{0};
    device.memory = model.memory;
    std::size_t index = 0;
    while (index < cluster.models.size() && cluster.models[index].name != model.name) ++index;
    if (index == cluster.models.size()) cluster.models.push_back(model);
    device.model = static_cast<std::int32_t>(index);
    cluster.devices.push_back(device);
    links.emplace_back(BytesPerSecond{entry["link_bytes_per_s"].number()},
                       Seconds{entry["link_latency_s"].number()});
  });
  connect_as_star(machine, links);
  validate(cluster, node.location());
  return machine;
}

// Pairs that slow each other down; all others have the factor 1.
void put_interference(Writer& out, const Interference& interference) {
  out.open_object();
  for (const InterferencePair& pair : interference_pairs) {
    const double factor = interference.of(pair.activity, pair.during);
    if (factor != 1) out.key(to_text(pair)).number(factor);
  }
  out.close_object();
}

std::vector<std::string> pair_words() {
  std::vector<std::string> words;
  for (const InterferencePair& pair : interference_pairs) words.push_back(to_text(pair));
  return words;
}

void put_sample(Writer& out, const InterferenceSample& sample) {
  out.open_object();
  out.key("device").text(sample.device);
  out.key("pair").text(to_text(interference_pairs.at(sample.pair)));
  out.key("alone");
  put(out, sample.alone);
  out.key("beside");
  put(out, sample.during);
  out.close_object();
}

InterferenceSample get_sample(const Node& node) {
  node.only({"device", "pair", "alone", "beside"});
  InterferenceSample sample;
  std::string word;
  get(node["device"], sample.device);
  get(node["pair"], word);
  const std::vector<std::string> words = pair_words();
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) node["pair"].refuse("accepted: " + join(words));
  sample.pair = static_cast<std::size_t>(found - words.begin());
  get(node["alone"], sample.alone);
  get(node["beside"], sample.during);
  return sample;
}

Interference get_interference(const Node& node) {
  const std::vector<std::string> words = pair_words();
  const std::vector<std::string_view> keys(words.begin(), words.end());
  node.only(keys);
  Interference interference;
  for (const InterferencePair& pair : interference_pairs) {
    const auto factor = node.find(to_text(pair));
    if (!factor) continue;
    if (factor->number() < 1) factor->refuse("accepted: a number from 1");
    interference.set(pair.activity, pair.during, factor->number());
  }
  return interference;
}

/// Times that rates follow from, of devices that the machine has, each once.
void get_common_memory(const Node& list, Profile& profile) {
  std::vector<bool> seen(profile.machine.cluster.devices.size());
  list.each([&](const Node& node) {
    CommonMemory& memory = profile.common_memory.emplace_back();
    get(node, memory);
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

constexpr std::string_view machine_format = "parsim-machine";
constexpr std::string_view profile_format = "parsim-profile";
constexpr std::string_view measurements_format = "parsim-measurements";
constexpr std::int64_t profile_version = 1;

std::vector<std::string_view> all_keys(std::initializer_list<std::string_view> besides) {
  std::vector<std::string_view> keys(heading_keys.begin(), heading_keys.end());
  keys.insert(keys.end(), machine_keys.begin(), machine_keys.end());
  keys.insert(keys.end(), besides.begin(), besides.end());
  return keys;
}

template <class Body>
std::string written(std::string_view format, const Machine& machine, Body body) {
  Writer out;
  out.open_object();
  put_heading(out, format, profile_version);
  put_machine(out, machine);
  body(out);
  out.close_object();
  return out.take();
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
  return json::written(json::machine_format, machine, [](json::Writer&) {});
}

std::string to_json(const Profile& profile) {
  return json::written(json::profile_format, profile.machine, [&](json::Writer& out) {
    out.key("launch");
    json::put(out, profile.launch);
    out.key("kernels").open_array();
    for (const KernelSample& sample : profile.kernels) json::put_kernel(out, sample);
    out.close_array();
    out.key("memory");
    json::put(out, profile.memory);
    out.key("messages");
    json::put(out, profile.messages);
    if (profile.interference.any()) {
      out.key("interference");
      json::put_interference(out, profile.interference);
    }
    if (!profile.interference_samples.empty()) {
      out.key("interference_samples").open_array();
      for (const InterferenceSample& sample : profile.interference_samples) {
        json::put_sample(out, sample);
      }
      out.close_array();
    }
    if (!profile.common_memory.empty()) {
      out.key("common_memory");
      json::put(out, profile.common_memory);
    }
    if (!profile.links.empty()) {
      out.key("links");
      json::put(out, profile.links);
    }
  });
}

std::string to_json(const Measurements& measurements) {
  return json::written(json::measurements_format, measurements.machine, [&](json::Writer& out) {
    out.key("runs");
    json::put(out, measurements.runs);
  });
}

Machine machine_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(json::machine_format, json::profile_version);
  root.only(json::all_keys({}));
  return json::get_machine(root);
}

Profile profile_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(json::profile_format, json::profile_version);
  root.only(json::all_keys({"launch", "kernels", "memory", "messages", "interference",
                            "interference_samples", "common_memory", "links"}));
  Profile profile;
  profile.machine = json::get_machine(root);
  json::get(root["launch"], profile.launch);
  root["kernels"].each(
      [&](const json::Node& node) { profile.kernels.push_back(json::get_kernel(node)); });
  json::get(root["memory"], profile.memory);
  json::get(root["messages"], profile.messages);
  if (const auto node = root.find("interference")) {
    profile.interference = json::get_interference(*node);
  }
  if (const auto list = root.find("interference_samples")) {
    list->each([&](const json::Node& node) {
      profile.interference_samples.push_back(json::get_sample(node));
    });
  }
  if (const auto list = root.find("common_memory")) json::get_common_memory(*list, profile);
  if (const auto list = root.find("links")) json::get(*list, profile.links);
  return profile;
}

Measurements measurements_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(json::measurements_format, json::profile_version);
  root.only(json::all_keys({"runs"}));
  Measurements measurements;
  measurements.machine = json::get_machine(root);
  json::get(root["runs"], measurements.runs);
  return measurements;
}

}  // namespace parsim
