#include "validation/interconnect_column.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "topologies/card_links.hpp"
#include "topologies/topologies.hpp"
#include "validation/affirmed_words.hpp"
#include "validation/measurements.hpp"
#include "validation/published_machines.hpp"
#include "validation/table_formats.hpp"

namespace parsim::validation {

namespace {

std::string plain(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) kept += static_cast<char>(std::tolower(byte));
  }
  return kept;
}

InsideLinks nvlink_of(const Claim& claim, std::string_view text, const DeviceModel& model) {
  if (const auto links = topologies::card_links(model)) return {links->kind, links->gigabytes};
  throw InputError(location_of(claim, "interconnect"),
                   fmt::format("'{}', and {} has no NVLink", text, model.name),
                   "accepted: PCIe, as in 'PCIe gen4', or a GPU with NVLink in column gpu");
}

/// Of x16 what the text's lanes are: "PCIe gen4 x8".
double share_of_lanes(std::string_view interconnect) {
  std::string text = affirmed(interconnect);
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return std::string_view(",;()+/").find(c) != std::string_view::npos; }, ' ');
  for (const std::string_view word : split_at_blanks(text)) {
    const std::size_t at = word.rfind('x');
    const bool slot = at == 0 || word.starts_with("gen") || word.starts_with("pcie");
    if (at == word.npos || !slot) continue;
    if (const auto lanes = to_number<int>(word.substr(at + 1)))
      if (*lanes == 1 || *lanes == 2 || *lanes == 4 || *lanes == 8) return *lanes / 16.0;
  }
  return 1;
}

/// x16 unless the text says less. The T4s of Amazon's g4dn cannot reach each other's memory either,
/// as the named cluster has it.
InsideLinks pcie_of(const Claim& claim, std::string_view interconnect, const DeviceModel& model) {
  const bool old = model.architecture < std::string("8") && model.architecture.size() == 3;
  LinkKind slot = old ? LinkKind::pcie3 : LinkKind::pcie4;
  if (names(interconnect, "gen3")) slot = LinkKind::pcie3;
  if (names(interconnect, "gen4")) slot = LinkKind::pcie4;
  if (names(interconnect, "gen5")) slot = LinkKind::pcie5;
  const BytesPerSecond rate{port_rate(slot)->value * share_of_lanes(interconnect)};
  const bool through_host = lacks_peer_access(model) || names(column(claim, "machine"), "g4dn");
  return {pcie_kind(rate, through_host), rate.value / 1e9, false};
}

bool names_fabric(std::string_view text) {
  return names(text, "infinityfabric") || names(text, "xgmi");
}

/// Modules on Infinity Fabric only (OAM); MI100 and MI210 are cards, of which bridges are sold.
bool has_fabric(const DeviceModel& model) {
  constexpr std::string_view modules[] = {"mi250", "mi250x", "mi300x"};
  const std::string& type = model.measured_type();
  return std::find(std::begin(modules), std::end(modules), type) != std::end(modules);
}

/// Parts of a text between commas and '+': "NVLink4 + 8x400 Gb/s".
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (const std::string& part : split_at(text, '+')) {
    for (std::string& piece : split_at(part, ',')) parts.push_back(std::move(piece));
  }
  return parts;
}

bool has_rate_in_bytes(std::string_view part) {
  return part.find("GB/s") != std::string_view::npos;
}

void drop_blanks(std::string_view& text) {
  while (text.ends_with(' ')) text.remove_suffix(1);
}

/// Removes the number at the end of `text` and returns it, if there is one.
std::optional<double> take_number(std::string_view& text) {
  drop_blanks(text);
  const std::size_t begin = text.find_last_not_of("0123456789.") + 1;  // npos + 1 is 0
  const auto number = to_number<double>(text.substr(begin));
  if (number) text = text.substr(0, begin);
  return number;
}

/// GB/s of a GPU in each direction. MI300X: seven links of 64 GB/s (its data sheet in the device
/// table: 896 GB/s both ways together). GCDs of MI250 and cards with bridges have links of several
/// numbers to their neighbours.
InsideLinks fabric_of(const Claim& claim, std::string_view text, const DeviceModel& model) {
  for (const std::string& part : parts_of(text)) {
    if (!names_fabric(part) || !has_rate_in_bytes(part)) continue;
    std::string_view before = std::string_view(part).substr(0, part.find("GB/s"));
    const std::optional<double> rate = take_number(before);
    if (rate && *rate > 0) return {LinkKind::nvlink2, *rate};
  }
  if (model.measured_type() == "mi300x") return {LinkKind::nvlink2, 7 * 64.0};
  throw InputError(
      location_of(claim, "interconnect"),
      text.empty() ? fmt::format("empty, but {} are modules on Infinity Fabric", model.name)
                   : fmt::format("'{}', whose rate between {} is not known", text, model.name),
      "accepted: the rate of a GPU in each direction, as in 'Infinity Fabric 150 GB/s', or PCIe");
}

constexpr std::string_view accepted_links =
    "accepted: a text that names NVLink, NVSwitch, Infinity Fabric or PCIe, and between machines "
    "ports with their rate, as in 'NVLink4 + 8x400 Gb/s' or 'NVLink4 + 400 Gb/s per GPU'";

/// Throws InputError for a text that does not say what connects GPUs.
[[noreturn]] void refuse_interconnect(const Claim& claim, std::string_view text) {
  const std::vector<std::string> known = {"NVLink", "NVSwitch", "PCIe", "xGMI"};
  std::string hint;
  for (const std::string& word : split_at(text, ' ')) {
    if (hint.empty() && std::find(known.begin(), known.end(), word) == known.end()) {
      hint = did_you_mean(word, known);
    }
  }
  throw InputError(location_of(claim, "interconnect"), fmt::format("'{}'", text),
                   fmt::format("{}{}", accepted_links, hint));
}

}  // namespace

bool names(std::string_view text, std::string_view word) {
  return plain(affirmed(text)).find(plain(word)) != std::string::npos;
}

InsideLinks inside_links(const Claim& claim, const std::string& text, const DeviceModel& model,
                         std::int64_t each) {
  const std::string letters = plain(text);
  // Also of a text that names the bridges of other pairs.
  const bool without = letters.find("withoutnvlink") != letters.npos;
  const bool nvlink = (text.empty() && is_module(model)) ||
                      ((names(text, "nvlink") || names(text, "nvswitch")) && !without);
  const bool of_some = names(text, "bridge") || names(text, "pairs") ||
                       (names(text, "pcie") && !names(text, "nvswitch") && !is_module(model));
  if (nvlink && each > 2 && of_some) {
    throw InputError(location_of(claim, "interconnect"),
                     fmt::format("'{}' has NVLink between some of {} GPUs", text, each),
                     "accepted: the links of most pairs alone, as in 'PCIe gen4', or column "
                     "cluster with a file of all links");
  }
  if (nvlink && (each > 1 || topologies::card_links(model))) return nvlink_of(claim, text, model);
  if (each > 1 && (names_fabric(text) || (text.empty() && has_fabric(model)))) {
    return fabric_of(claim, text, model);
  }
  const bool denied = letters.find("nvlink") != letters.npos;
  if (each > 1 && !text.empty() && !names(text, "pcie") && !denied) {
    refuse_interconnect(claim, text);
  }
  return pcie_of(claim, text, model);
}

NetworkPorts ports_between(const Claim& claim, std::string_view text, std::int64_t gpus) {
  if (text.empty()) {
    throw InputError(location_of(claim, "interconnect"), "empty, but the row has several machines",
                     std::string(accepted_links));
  }
  const auto& [ports, refusal] = read_ports(text);
  if (!ports && !refusal.empty()) {
    throw InputError(location_of(claim, "interconnect"), fmt::format("'{}': {}", text, refusal),
                     std::string(accepted_links));
  }
  if (!ports) refuse_interconnect(claim, text);
  return {ports->each_gpu ? ports->count * gpus : ports->count, ports->gigabits, false,
          ports->kind};
}

std::optional<LinkKind> named_network_kind(std::string_view interconnect,
                                           std::string_view machine) {
  const std::optional<NetworkPorts> ports = read_ports(interconnect).ports;
  if (ports && ports->kind) return ports->kind;
  return names(machine, "AWS") ? std::optional(LinkKind::tcp) : std::nullopt;
}

/// EFA: aws/aws-ofi-nccl (commit 2daf7d3). A message takes 20 us on p5 (src/tuner/
/// nccl_ofi_model.cpp, measured by AWS) and 75 us on p4 (src/platform-aws.cpp: the value passed to
/// NCCL; the plugin sends and receives there instead of writing); 1 us of it are the links of each
/// machine.
double port_latency(LinkKind kind, const DeviceModel& model) {
  if (kind != LinkKind::efa) return 2;
  return (model.architecture.starts_with("9") ? 20.0 : 75.0) / 2 - 1;
}

namespace {

/// What is assumed of the row, or "". Throws InputError for a row that cannot be predicted.
std::string assumed_of(const Claim& claim) {
  const bool named = !column(claim, "cluster").empty() || !column(claim, "layout_file").empty();
  const bool kernel = claim.quantity == "kernel-time" || claim.quantity == "step-time";
  if (named || kernel || count_column(claim, "n_gpus", 1) == 1 || nodes_of(claim) > 1 ||
      !interconnect_of(claim).empty() || is_of_format(claim) ||
      resolve_alias(AliasKind::cluster, column(claim, "machine"))) {
    return {};
  }
  const DeviceModel& model = topologies::device_model(device_of(claim), "gpu");
  if (is_module(model)) return {};
  const InsideLinks links = inside_links(claim, {}, model, 2);
  return fmt::format("{} of {:.4g} GB/s each way between {}",
                     links.modules ? "Infinity Fabric" : "PCIe", links.rate, model.name);
}

}  // namespace

std::string assumed_links(const std::vector<Claim>& rows) {
  std::map<std::string, std::int64_t> assumed;
  for (const Claim& claim : rows) {
    try {
      if (const std::string links = assumed_of(claim); !links.empty()) ++assumed[links];
    } catch (const InputError&) {
      continue;  // predicting the row gives the reason
    }
  }
  std::vector<std::string> texts;
  for (const auto& [links, count] : assumed) {
    texts.push_back(
        fmt::format("{} without interconnect: taken as {}", counted(count, "row"), links));
  }
  return join(texts, "; ");
}

}  // namespace parsim::validation
