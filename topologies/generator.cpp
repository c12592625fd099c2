#include "topologies/generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/errors.hpp"
#include "topologies/document.hpp"
#include "topologies/topologies.hpp"

namespace parsim {

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

/// A positive number that is small enough for a count of devices.
std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (number < 1 || number > most_devices) return std::nullopt;
  return number;
}

}  // namespace

Cluster run_generator(const std::string& call, const std::string& where) {
  const std::string_view name = std::string_view(call).substr(0, call.find(':'));
  std::vector<std::string> names;
  for (const Generator& generator : generators()) {
    if (generator.name == name) return generator.build(GeneratorCall(generator, call, where));
    names.emplace_back(generator.name);
  }
  throw InputError(where, fmt::format("unknown generator '{}'", name),
                   fmt::format("accepted: {}{}", join(names), suggestion(name, names)));
}

std::string summary(const Generator& generator) {
  std::string text =
      fmt::format("{}:{} {}; options:", generator.name, generator.shape, generator.meaning);
  for (const Option& option : generator.options) {
    text += fmt::format(" {}{}{} ({}),", option.key, option.fallback.empty() ? "" : "=",
                        option.fallback, option.meaning);
  }
  text.pop_back();
  return text;
}

GeneratorCall::GeneratorCall(const Generator& generator, std::string text, std::string where)
    : generator_(generator), text_(std::move(text)), where_(std::move(where)) {
  const std::size_t colon = text_.find(':');
  const std::string usage = fmt::format("write {}:{},key=value,…", generator.name, generator.shape);
  if (colon == std::string::npos) {
    throw InputError(where_, fmt::format("'{}' needs a size", text_), usage);
  }
  std::vector<std::string> known;
  for (const Option& option : generator.options) known.emplace_back(option.key);
  const std::vector<std::string> parts = split(std::string_view(text_).substr(colon + 1), ',');
  shape_ = parts.front();
  if (shape_.empty() || shape_.find('=') != std::string::npos) {
    throw InputError(where_, fmt::format("'{}' does not begin with a size", text_), usage);
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    if (equals == std::string::npos) {
      throw InputError(where_, fmt::format("'{}' is not of the form key=value", parts[i]), usage);
    }
    const std::string key = parts[i].substr(0, equals);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw InputError(where_, fmt::format("{} has no option '{}'", generator.name, key),
                       fmt::format("accepted: {}{}", join(known), suggestion(key, known)));
    }
    if (find(key) != nullptr) {
      throw InputError(this->where(key), fmt::format("'{}' is given twice", key), "once");
    }
    given_.push_back({key, parts[i].substr(equals + 1), true});
  }
  for (const Option& option : generator.options) {
    if (option.fallback.empty() || find(option.key) != nullptr) continue;
    given_.push_back({std::string(option.key), std::string(option.fallback), false});
  }
}

std::string GeneratorCall::where(std::string_view key) const {
  return fmt::format("{}:{}", where_, key);
}

std::vector<std::int64_t> GeneratorCall::shape(std::size_t least, std::size_t most) const {
  const std::vector<std::string> parts = split(shape_, 'x');
  std::vector<std::int64_t> numbers;
  std::int64_t product = 1;
  for (const std::string& part : parts) {
    const auto number = parse_count(part);
    if (!number || parts.size() < least || parts.size() > most) {
      throw InputError(where_, fmt::format("'{}' is not a size of {}", shape_, generator_.name),
                       fmt::format("{}:{} with numbers of 1 to {}", generator_.name,
                                   generator_.shape, most_devices));
    }
    numbers.push_back(*number);
    product *= *number;
    if (product > most_devices) {
      throw InputError(where_, fmt::format("'{}' is more than {} devices", shape_, most_devices),
                       fmt::format("at most {} devices", most_devices));
    }
  }
  return numbers;
}

const GeneratorCall::Given* GeneratorCall::find(std::string_view key) const {
  const auto found = std::find_if(given_.begin(), given_.end(),
                                  [&](const Given& given) { return given.key == key; });
  return found == given_.end() ? nullptr : &*found;
}

bool GeneratorCall::has(std::string_view key) const { return find(key) != nullptr; }

const std::string& GeneratorCall::value(std::string_view key) const {
  const Given* given = find(key);
  if (given != nullptr) return given->value;
  throw InputError(where_, fmt::format("'{}' lacks {}=…", text_, key),
                   fmt::format("write {}:{},{}=…", generator_.name, generator_.shape, key));
}

BytesPerSecond GeneratorCall::rate(std::string_view key) const {
  const BytesPerSecond rate = parse_rate(value(key), where(key));
  if (rate.value > 0) return rate;
  throw InputError(where(key), fmt::format("'{}' is 0", value(key)), "a positive rate");
}

Seconds GeneratorCall::latency(std::string_view key) const {
  return parse_seconds(value(key), where(key));
}

std::int64_t GeneratorCall::integer(std::string_view key, std::int64_t least,
                                    std::int64_t most) const {
  const auto number = parse_count(value(key));
  if (number && *number >= least && *number <= most) return *number;
  throw InputError(where(key), fmt::format("'{}' does not fit", value(key)),
                   fmt::format("a whole number of {} to {}", least, most));
}

BytesPerSecond GeneratorCall::rate_or(std::string_view key, BytesPerSecond otherwise) const {
  return has(key) ? rate(key) : otherwise;
}

Seconds GeneratorCall::latency_or(std::string_view key, Seconds otherwise) const {
  return has(key) ? latency(key) : otherwise;
}

std::int64_t GeneratorCall::integer_or(std::string_view key, std::int64_t otherwise,
                                       std::int64_t least, std::int64_t most) const {
  return has(key) ? integer(key, least, most) : otherwise;
}

std::vector<GeneratorCall::Share> GeneratorCall::mix() const {
  const std::vector<std::string> parts = split(value("device"), '+');
  std::vector<Share> shares;
  for (const std::string& part : parts) {
    const std::size_t star = part.find('*');
    const DeviceModel& model = device_model(part.substr(0, star), where("device"));
    if (star == std::string::npos && parts.size() == 1) return {{&model, 0}};
    const auto count =
        star == std::string::npos ? std::nullopt : parse_count(part.substr(star + 1));
    if (!count) {
      throw InputError(where("device"), fmt::format("'{}' lacks a count", part),
                       "a mix as in p100-sxm2*4+v100-sxm2*4");
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
  throw InputError(where("device"), fmt::format("'{}' is {} devices", value("device"), sum),
                   fmt::format("counts that sum to {}", count));
}

const DeviceModel* GeneratorCall::cpu() const {
  if (has("cpu")) return &device_model(value("cpu"), where("cpu"));
  if (const Given* rate = find("cpu-rate"); rate != nullptr && rate->by_user) {
    throw InputError(where("cpu-rate"), "cpu-rate is given, but no cpu",
                     "add cpu=xeon-e5-2600, or leave cpu-rate out");
  }
  return nullptr;
}

Provenance GeneratorCall::provenance(std::string_view key) const {
  const Given* given = find(key);
  if (given == nullptr) return {"*", Label::guessed, fmt::format("follows from '{}'", text_)};
  return {"*", Label::guessed,
          given->by_user ? fmt::format("{}={} of the call", key, given->value)
                         : fmt::format("default of {}: {}={}", generator_.name, key, given->value)};
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

}  // namespace parsim
