// What a host of a SimGrid platform is like: as parsim wrote it, a known type, or a guess from its
// speed.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "topologies/device_types.hpp"
#include "topologies/import/platform.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

/// A host that says nothing but its speed. All but that is a guess: a V100 has 17 FLOP/s for each
/// byte per second of its memory.
DeviceModel model_of_speed(const PlatformPoint& host, const std::string& file) {
  constexpr double flops_per_byte = 17;
  constexpr std::int64_t memory = std::int64_t{16} << 30;
  DeviceModel model;
  // Exact, because hosts of one name are one type.
  const double tera = host.speed.value / 1e12;
  model.name = tera >= 1 ? fmt::format("host-{}Tf", tera) : fmt::format("host-{}Gf", 1e3 * tera);
  model.multiprocessors = static_cast<std::int32_t>(host.cores);
  model.peak.fill(host.speed);
  model.memory_rate = {host.speed.value / flops_per_byte};
  model.memory = Bytes{memory};
  model.provenance = {{"*", Label::guessed,
                       fmt::format("speed of a host in {}; memory and its rate guessed", file)}};
  return model;
}

/// The model from props that parsim wrote; nothing without them.
std::optional<DeviceModel> model_of_props(const PlatformPoint& host, const std::string& name,
                                          const std::string& file) {
  using namespace platform_key;
  if (!prop_of(host.props, fp32)) return std::nullopt;
  const auto text = [&](std::string_view key) {
    const auto value = prop_of(host.props, key);
    if (value) return *value;
    throw InputError(host.where, fmt::format("the prop '{}' is missing", key),
                     "accepted: all props that 'show cluster --format simgrid' writes");
  };
  const auto where = [&](std::string_view key) { return fmt::format("{}.{}", host.where, key); };
  DeviceModel model;
  model.name = name;
  model.kind = text(kind) == "cpu" ? DeviceKind::cpu : DeviceKind::gpu;
  model.base = prop_of(host.props, base).value_or("");
  model.architecture = prop_of(host.props, architecture).value_or("");
  model.multiprocessors = static_cast<std::int32_t>(
      parse_bytes(text(multiprocessors) + " B", where(multiprocessors)).value);
  model.peak = {
      parse_flops_rate(text(fp32), where(fp32)), parse_flops_rate(text(tf32), where(tf32)),
      parse_flops_rate(text(fp16), where(fp16)), parse_flops_rate(text(bf16), where(bf16))};
  if (const auto rate = prop_of(host.props, fp8)) {
    model.fp8_peak = parse_flops_rate(*rate, where(fp8));
  }
  model.memory_rate = parse_rate(text(memory_rate), where(memory_rate));
  model.memory = parse_bytes(text(model_memory), where(model_memory));
  model.provenance = {{"*", Label::guessed, "given in " + file}};
  return model;
}

}  // namespace

std::optional<std::string> prop_of(const Props& props, std::string_view key) {
  const auto found = props.find(key);
  if (found == props.end()) return std::nullopt;
  return found->second;
}

DeviceModel model_of_host(const PlatformPoint& host, const std::string& file) {
  const auto name = prop_of(host.props, platform_key::model);
  if (!name) return model_of_speed(host, file);
  const auto given = model_of_props(host, *name, file);
  if (!given) return device_model(*name, host.where);
  for (const DeviceModel& known : device_models()) {
    DeviceModel bare = known;
    bare.provenance = given->provenance;
    bare.upkeep = given->upkeep;
    if (bare == *given) return known;  // with its sources
  }
  return *given;
}

}  // namespace parsim::topologies
