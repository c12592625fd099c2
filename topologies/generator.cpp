#include "topologies/generator.hpp"

#include <fmt/format.h>

#include <optional>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "topologies/device_types.hpp"
#include "topologies/document.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

/// A positive number that is small enough for a count of devices.
std::optional<std::int64_t> parse_count(std::string_view text) {
  const auto number = to_number<std::int64_t>(text);
  return number && *number >= 1 && *number <= most_devices ? number : std::nullopt;
}

/// What stands between the name and the options: "2x4".
std::string shape_of(const Generator& generator, const std::string& text,
                     const std::string& where) {
  const std::size_t colon = text.find(':');
  const std::string usage = fmt::format("write {}:{},key=value,…", generator.name, generator.shape);
  if (colon == std::string::npos) {
    throw InputError(where, fmt::format("'{}' needs a size", text), usage);
  }
  const std::string shape = text.substr(colon + 1, text.find(',', colon) - colon - 1);
  if (shape.empty() || shape.find('=') != std::string::npos) {
    throw InputError(where, fmt::format("'{}' does not begin with a size", text), usage);
  }
  return shape;
}

}  // namespace

Cluster run_generator(const std::string& call, const std::string& where,
                      std::span<const DeviceModel> types) {
  const std::string_view name = std::string_view(call).substr(0, call.find(':'));
  std::vector<std::string> names;
  for (const Generator& generator : generators()) {
    if (generator.name == name)
      return generator.build(GeneratorCall(generator, call, where, types));
    names.emplace_back(generator.name);
  }
  throw InputError(where, fmt::format("unknown generator '{}'", name),
                   fmt::format("accepted: {}{}", join(names), did_you_mean(name, names)));
}

std::string summary(const Generator& generator) {
  return fmt::format("{}:{} {}; {}", generator.name, generator.shape, generator.meaning,
                     summary_of(generator.options));
}

GeneratorCall::GeneratorCall(const Generator& generator, const std::string& text,
                             const std::string& where, std::span<const DeviceModel> types)
    : generator_(generator),
      types_(types),
      shape_(shape_of(generator, text, where)),
      options_(text, fmt::format("{}:{},", generator.name, generator.shape), generator.options,
               std::span<const std::string>(split_at(text, ',')).subspan(1), where) {}

std::vector<std::int64_t> GeneratorCall::shape(std::size_t least, std::size_t most) const {
  const std::vector<std::string> parts = split_at(shape_, 'x');
  std::vector<std::int64_t> numbers;
  std::int64_t product = 1;
  for (const std::string& part : parts) {
    const auto number = parse_count(part);
    if (!number || parts.size() < least || parts.size() > most) {
      throw InputError(where(), fmt::format("'{}' is not a size of {}", shape_, generator_.name),
                       fmt::format("accepted: {}:{} with numbers from 1 to {}", generator_.name,
                                   generator_.shape, most_devices));
    }
    numbers.push_back(*number);
    product *= *number;
    if (product > most_devices) {
      throw InputError(where(), fmt::format("'{}' has more than {} devices", shape_, most_devices),
                       fmt::format("accepted: at most {} devices", most_devices));
    }
  }
  return numbers;
}

std::vector<std::int64_t> GeneratorCall::integers(std::string_view key, std::int64_t least,
                                                  std::int64_t most) const {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : split_at(options_.value(key), '+')) {
    numbers.push_back(parse_whole(part, where(key), least, most));
  }
  return numbers;
}

BytesPerSecond GeneratorCall::rate(std::string_view key) const {
  const BytesPerSecond rate = parse_rate(options_.value(key), where(key));
  if (rate.value > 0) return rate;
  throw InputError(where(key), fmt::format("'{}' is 0", options_.value(key)),
                   "accepted: a positive rate");
}

Seconds GeneratorCall::latency(std::string_view key) const {
  return parse_seconds(options_.value(key), where(key));
}

LinkKind parse_link_kind(std::string_view text, const std::string& where) {
  if (const auto kind = from_text<LinkKind>(text)) return *kind;
  const auto known = spellings_of<LinkKind>();
  const std::vector<std::string> names(known.begin(), known.end());
  throw InputError(where, fmt::format("unknown kind of link '{}'", text),
                   fmt::format("accepted: {}{}", join(names), did_you_mean(text, names)));
}

std::optional<LinkKind> GeneratorCall::kind(std::string_view key) const {
  if (!has(key)) return std::nullopt;
  return parse_link_kind(options_.value(key), where(key));
}

BytesPerSecond GeneratorCall::rate_or(std::string_view key, BytesPerSecond otherwise) const {
  return has(key) ? rate(key) : otherwise;
}

Seconds GeneratorCall::latency_or(std::string_view key, Seconds otherwise) const {
  return has(key) ? latency(key) : otherwise;
}

std::vector<GeneratorCall::Share> GeneratorCall::mix() const {
  const std::vector<std::string> parts = split_at(options_.value("device"), '+');
  std::vector<Share> shares;
  for (const std::string& part : parts) {
    const std::size_t star = part.find('*');
    const DeviceModel& model = find_device_type(types_, part.substr(0, star), where("device"));
    if (star == std::string::npos && parts.size() == 1) return {{&model, 0}};
    const auto count =
        star == std::string::npos ? std::nullopt : parse_count(part.substr(star + 1));
    if (!count) {
      throw InputError(where("device"), fmt::format("'{}' needs a count", part),
                       "accepted: a mix such as p100-sxm2*4+v100-sxm2*4");
    }
    shares.push_back({&model, *count});
  }
  return shares;
}

std::int64_t GeneratorCall::devices_given() const {
  std::int64_t sum = 0;
  for (const Share& share : mix()) sum += share.count;
  return sum;
}

std::vector<const DeviceModel*> GeneratorCall::devices(std::int64_t count) const {
  std::vector<const DeviceModel*> models;
  for (const Share& share : mix()) {
    const std::int64_t copies = share.count == 0 ? count : share.count;
    if (static_cast<std::int64_t>(models.size()) + copies > count) break;
    models.insert(models.end(), static_cast<std::size_t>(copies), share.model);
  }
  const std::int64_t sum = devices_given();
  if (sum == 0 || sum == count) return models;
  throw InputError(where("device"),
                   fmt::format("'{}' has {} devices", options_.value("device"), sum),
                   fmt::format("accepted: counts that add up to {}", count));
}

const DeviceModel* GeneratorCall::cpu() const {
  if (has("cpu")) return &find_device_type(types_, options_.value("cpu"), where("cpu"));
  if (const CallOptions::Value* rate = options_.find("cpu-rate");
      rate != nullptr && rate->by_user) {
    throw InputError(where("cpu-rate"), "cpu-rate without cpu",
                     "accepted: with a CPU, such as cpu=xeon-e5-2600");
  }
  return nullptr;
}

Provenance GeneratorCall::provenance(std::string_view key) const {
  const CallOptions::Value* given = options_.find(key);
  if (given == nullptr) return {"*", Label::guessed, fmt::format("follows from '{}'", text())};
  if (!given->by_user) return default_provenance(key, given->text);
  return {"*", Label::guessed, fmt::format("{}={} of the call", key, given->text)};
}

Provenance GeneratorCall::default_provenance(std::string_view key, std::string_view value) const {
  return {"*", Label::guessed,
          fmt::format("{} {}: {}={}", default_of, generator_.name, key, value)};
}

std::vector<const DeviceModel*> GeneratorCall::devices_of_machines(std::int64_t machines,
                                                                   std::int64_t each) const {
  const std::int64_t given = devices_given();
  if (given == 0 || given == machines * each) return devices(machines * each);
  if (given != each) {
    throw InputError(where("device"), fmt::format("the counts add up to {}", given),
                     fmt::format("accepted: counts that add up to {} (the devices of one machine) "
                                 "or to {} (of all machines)",
                                 each, machines * each));
  }
  const std::vector<const DeviceModel*> one = devices(each);
  std::vector<const DeviceModel*> all;
  for (std::int64_t i = 0; i < machines; ++i) all.insert(all.end(), one.begin(), one.end());
  return all;
}

double GeneratorCall::factor(std::string_view key, double least, double most) const {
  const std::string& text = options_.value(key);
  const auto number = to_number<double>(text);
  if (number && *number >= least && *number <= most) return *number;
  throw InputError(where(key), fmt::format("'{}'", text),
                   fmt::format("accepted: a number from {:g} to {:g}", least, most));
}

std::vector<Option> with_common_options(std::vector<Option> own) {
  own.insert(own.begin(), {"device", "", "one type, or a mix as in p100-sxm2*4+v100-sxm2*4"});
  own.push_back({"cpu", "", "adds a CPU of that type"});
  own.push_back({"cpu-rate", "12GB/s", "its link"});
  return own;
}

void add_host(ClusterBuilder& builder, const GeneratorCall& call, const DeviceModel& model,
              SwitchId at, BytesPerSecond rate, Seconds latency, std::int32_t provenance) {
  const std::size_t number = builder.cluster().nodes.size();
  const NodeId node = builder.add_node(fmt::format("n{}", number));
  const DeviceId device = builder.add_device(fmt::format("gpu{}", number), model, node);
  builder.add_link(Port::of(device), Port::of(at), rate, latency, provenance);
  add_cpu(builder, call, fmt::format("cpu{}", number), node, at, latency);
}

void add_cpu(ClusterBuilder& builder, const GeneratorCall& call, const std::string& name,
             NodeId node, SwitchId at, Seconds latency) {
  const DeviceModel* model = call.cpu();
  if (model == nullptr) return;
  const DeviceId cpu = builder.add_device(name, *model, node);
  builder.add_link(Port::of(cpu), Port::of(at), call.rate("cpu-rate"), latency,
                   builder.add_provenance(call.provenance("cpu-rate")));
}

}  // namespace parsim::topologies
