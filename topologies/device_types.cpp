#include "topologies/device_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <vector>

#include "core/errors.hpp"
#include "topologies/changes.hpp"
#include "topologies/cluster_keys.hpp"
#include "topologies/embedded.hpp"
#include "topologies/pattern.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

/// "data sheet: P100 white paper" of `sources.memory`.
Provenance read_source(const std::string& key, const std::string& text, const std::string& where) {
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) {
    throw InputError(where, fmt::format("'{}' does not begin with a label", text),
                     "accepted: 'measured: …', 'data sheet: …' or 'guessed: …'");
  }
  return {key, parse_label(text.substr(0, colon), where), text.substr(colon + 2)};
}

std::vector<Provenance> read_provenance(const Fields& fields, const DeviceModel& base) {
  std::vector<Provenance> found;
  const auto label = fields.maybe_text("label");
  const auto source = fields.maybe_text("source");
  if (label || source || base.provenance.empty()) {
    found.push_back({"*", label ? parse_label(*label, fields.where("label")) : Label::guessed,
                     source.value_or("given in " + fields.file())});
  } else {
    found = base.provenance;
  }
  if (const Value* each = fields.find("sources")) {
    const Fields sources(*each, fields.file(), "device_types.sources", number_source_keys());
    for (const std::string_view key : number_source_keys().names()) {
      const auto text = sources.maybe_text(key);
      if (text) found.push_back(read_source(std::string(key), *text, sources.where(key)));
    }
  }
  return found;
}

template <class Quantity>
Quantity positive(Quantity value, const std::string& where) {
  if (value.value > 0) return value;
  throw InputError(where, "the number is 0", "accepted: a positive number");
}

constexpr std::array<std::string_view, 4> upkeep_keys = {"price", "power", "idle_power", "mtbf"};

/// Sets what a cluster file has under `key`.
void set_upkeep(Upkeep& upkeep, std::string_view key, const std::string& text,
                const std::string& where) {
  if (key == "price") {
    upkeep.price = positive(parse_price(text, where), where);
  } else if (key == "mtbf") {
    upkeep.mtbf = parse_seconds(text, where);
    if (*upkeep.mtbf <= Seconds{}) {
      throw InputError(where, "the number is 0", "accepted: a positive number");
    }
  } else {
    (key == "power" ? upkeep.power : upkeep.idle_power) = positive(parse_power(text, where), where);
  }
}

void check_idle(std::optional<Watts> idle, std::optional<Watts> power, const std::string& where) {
  if (!idle || !power || *idle <= *power) return;
  throw InputError(where, fmt::format("{}, and power is {}", to_text(*idle), to_text(*power)),
                   "accepted: at most the power");
}

}  // namespace

void limit_power(DeviceModel& model, Watts limit, const std::string& where) {
  const std::optional<Watts> power = model.upkeep.power, idle = model.upkeep.idle();
  if (!power) {
    throw InputError(where, fmt::format("'{}' without a power", model.name),
                     "accepted: together with power, that of the card without the limit");
  }
  if (limit.value > power->value || limit.value <= idle->value) {
    throw InputError(
        where, to_text(limit),
        fmt::format("accepted: up to the card's {}, and more than the {} that it draws "
                    "without kernels",
                    to_text(*power), to_text(*idle)));
  }
  const double clock = std::cbrt((limit.value - idle->value) / (power->value - idle->value));
  for (FlopsPerSecond& peak : model.peak) peak = peak * clock;
  model.fp8_peak = model.fp8_peak * clock;
  model.upkeep.power = limit;
  model.upkeep.idle_power = idle;
}

Upkeep read_upkeep(const Fields& fields, Upkeep known) {
  for (const std::string_view key : upkeep_keys) {
    if (fields.find(key) != nullptr) set_upkeep(known, key, fields.text(key), fields.where(key));
  }
  check_idle(known.idle_power, known.power, fields.where("idle_power"));
  return known;
}

void set_device_memory(Cluster& cluster, std::string_view pattern, const std::string& text,
                       const std::string& where) {
  const Bytes memory = parse_bytes(text, where);
  if (memory.value <= 0) {
    throw InputError(where, fmt::format("'{}'", text), "accepted: a positive size");
  }
  for (const std::size_t i : matching(cluster.devices, pattern, where)) {
    cluster.devices[i].memory = memory;
  }
}

void set_device_upkeep(Cluster& cluster, std::string_view pattern, std::string_view key,
                       const std::string& text, const std::string& where) {
  for (const std::size_t i : matching(cluster.devices, pattern, where)) {
    Device& device = cluster.devices[i];
    if (key == "price" && device.node.valid() && cluster.nodes[device.node.index()].upkeep.price) {
      throw InputError(where,
                       fmt::format("the price of machine '{}' stands for its devices",
                                   cluster.nodes[device.node.index()].name),
                       "accepted: nodes.NAME.price=PRICE");
    }
    set_upkeep(device.upkeep, key, text, where);
    check_idle(device.upkeep.idle_power, device.upkeep.power, where);
  }
}

void set_node_upkeep(Cluster& cluster, std::string_view pattern, std::string_view key,
                     const std::string& text, const std::string& where) {
  for (const std::size_t i : matching(cluster.nodes, pattern, where)) {
    set_upkeep(cluster.nodes[i].upkeep, key, text, where);
  }
}

LinkPower read_link_power(const Fields& fields, LinkPower known) {
  const auto power = fields.maybe_text("power"), idle = fields.maybe_text("idle_power");
  return with_power(known, power, fields.where("power"), idle, fields.where("idle_power"));
}

LinkPower with_power(LinkPower known, const std::optional<std::string>& power,
                     const std::string& power_where, const std::optional<std::string>& idle,
                     const std::string& idle_where) {
  if (power) known.power = positive(parse_power(*power, power_where), power_where);
  if (idle) known.idle_power = parse_power(*idle, idle_where);
  if (known.idle_power && !known.power) {
    throw InputError(idle_where, "a link without 'power'", "accepted: together with power");
  }
  check_idle(known.idle_power, known.power, idle_where);
  return known;
}

void set_link_power(Cluster& cluster, std::string_view pattern,
                    const std::optional<std::string>& power, const std::optional<std::string>& idle,
                    const std::string& where) {
  for (const std::size_t i : matching(cluster.links, pattern, where)) {
    cluster.links[i].power = with_power(cluster.links[i].power, power, where, idle, where);
  }
}

Label parse_label(const std::string& text, const std::string& where) {
  if (const auto label = from_text<Label>(text)) return *label;
  const auto known = spellings_of<Label>();
  const std::vector<std::string> words(known.begin(), known.end());
  throw InputError(where, fmt::format("unknown label '{}'", text),
                   fmt::format("accepted: {}{}", join(words), did_you_mean(text, words)));
}

namespace {

/// TPUs, Gaudi, Trainium, and Apple's chips, "apple-m3" or "m2-ultra" (an m40 is a GPU of
/// NVIDIA's).
bool has_other_kernels(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::string_view others[] = {"tpu", "gaudi", "hpu", "trainium", "trn", "apple"};
  const auto begins = [&](std::string_view other) { return lower.starts_with(other); };
  if (std::any_of(std::begin(others), std::end(others), begins)) return true;
  if (lower.size() < 2 || lower[0] != 'm' || lower[1] < '1' || lower[1] > '9') return false;
  const std::string_view variant = std::string_view(lower).substr(2);
  constexpr std::string_view variants[] = {"", "pro", "max", "ultra"};
  const std::string_view word =
      variant.substr(std::min(variant.find_first_not_of("- "), variant.size()));
  return std::find(std::begin(variants), std::end(variants), word) != std::end(variants);
}

}  // namespace

const DeviceModel& find_device_type(std::span<const DeviceModel> known, std::string_view name,
                                    std::string_view where) {
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const DeviceModel& model) { return model.name == name; });
  if (found != known.end()) return *found;
  if (has_other_kernels(name)) {
    throw InputError(where, fmt::format("no model of the kernels of '{}'", name),
                     "accepted: GPUs of 'parsim list devices'; to add a device, describe its rates "
                     "as [[device_types]] of a cluster file, and its kernels are priced like those "
                     "of the most similar GPU");
  }
  std::vector<std::string> names;
  for (const DeviceModel& model : known) names.push_back(model.name);
  throw InputError(where, fmt::format("unknown device '{}'", name),
                   fmt::format("accepted: {}{}", join(names), did_you_mean(name, names)));
}

DeviceModel read_device_type(const Value& entry, const std::string& file,
                             std::span<const DeviceModel> known) {
  const Fields fields(entry, file, "device_types", device_type_keys());
  DeviceModel model;
  const auto base = fields.maybe_text("base");
  if (base) {
    model = find_device_type(known, *base, fields.where("base"));
    model.base = model.measured_type();
  }
  model.provenance = read_provenance(fields, model);
  model.name = fields.text("name");
  if (const auto kind = fields.maybe_text("kind")) {
    const auto known_kind = from_text<DeviceKind>(*kind);
    if (!known_kind) {
      throw InputError(fields.where("kind"), fmt::format("unknown kind '{}'", *kind),
                       "accepted: gpu, cpu");
    }
    model.kind = *known_kind;
  }
  model.architecture = fields.text_or("architecture", model.architecture);
  model.multiprocessors = static_cast<std::int32_t>(
      fields.integer_or("multiprocessors", model.multiprocessors,
                        {base ? 0 : 1, device_type_keys().limits("multiprocessors").most}));
  // fp32 comes first, because the others are emulated at its rate unless given.
  for (std::size_t i = 0; i < model.peak.size(); ++i) {
    const std::string_view precision = peak_keys[i];
    const bool required = !base && i == 0;
    const auto text = required ? fields.text(precision) : fields.maybe_text(precision);
    const std::string where = fields.where(precision);
    if (text) model.peak[i] = positive(parse_flops_rate(*text, where), where);
    if (!text && !base) model.peak[i] = model.peak[0];
  }
  // Nobody emulates FP8: without a rate a device has none.
  if (const auto text = fields.maybe_text(peak_keys.back())) {
    const std::string where = fields.where(peak_keys.back());
    model.fp8_peak = positive(parse_flops_rate(*text, where), where);
  }
  if (!base || fields.find("memory") != nullptr) {
    const std::string where = fields.where("memory");
    model.memory = positive(parse_bytes(fields.text("memory"), where), where);
  }
  if (!base || fields.find("memory_rate") != nullptr) {
    const std::string where = fields.where("memory_rate");
    model.memory_rate = positive(parse_rate(fields.text("memory_rate"), where), where);
  }
  model.upkeep = read_upkeep(fields, model.upkeep);
  if (const auto text = fields.maybe_text("power_limit")) {
    const std::string where = fields.where("power_limit");
    limit_power(model, parse_power(*text, where), where);
  }
  return model;
}

const std::vector<DeviceModel>& device_models() {
  static const std::vector<DeviceModel> table = [] {
    const EmbeddedFile& file = topologies_files().front();
    const std::string name(file.path);
    const Value document = parse_toml(file.text, name);
    std::vector<DeviceModel> models;
    for (const Value& entry : Fields(document, name, "", cluster_keys()).list("device_types")) {
      models.push_back(read_device_type(entry, name, models));
    }
    return models;
  }();
  return table;
}

const DeviceModel& device_model(std::string_view name, std::string_view where) {
  return find_device_type(device_models(), name, where);
}

}  // namespace parsim::topologies
