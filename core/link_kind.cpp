#include "core/link_kind.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "core/cluster.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim {

namespace {

constexpr double micro = 1e-6;
/// Seconds; no InfiniBand path has links that slow, and no link over TCP is faster.
constexpr double tcp_latency = 10 * micro;
/// What x16 of a generation carries at most, in bytes/s.
constexpr double pcie3_most = 16e9, pcie4_most = 32e9;
/// Where no system of a family tells: NCCL's own share of the data sheet's rate is between 0.76
/// (PCIe) and 0.82 (NVLink).
constexpr double no_system_efficiency = 0.8;

LinkKind nvlink_of(const DeviceModel& model) {
  const double architecture = to_number<double>(model.architecture).value_or(7);
  if (architecture < 7) return LinkKind::nvlink1;
  if (architecture < 8) return LinkKind::nvlink2;
  if (architecture < 9) return LinkKind::nvlink3;
  return architecture < 10 ? LinkKind::nvlink4 : LinkKind::nvlink5;
}

std::optional<LinkKind> guessed_kind(const Cluster& cluster, const Link& link) {
  const auto device = [&](const Port& port) {
    return port.kind == Port::Kind::device ? &cluster.model(DeviceId{port.index}) : nullptr;
  };
  const auto node = [&](const Port& port) {
    const auto index = static_cast<std::size_t>(port.index);
    return port.kind == Port::Kind::device ? cluster.devices[index].node
                                           : cluster.switches[index].node;
  };
  const DeviceModel *a = device(link.a), *b = device(link.b);
  const auto is = [](const DeviceModel* model, DeviceKind kind) {
    return model != nullptr && model->kind == kind;
  };
  if (is(a, DeviceKind::cpu) || is(b, DeviceKind::cpu)) return std::nullopt;
  const NodeId one = node(link.a), other = node(link.b);
  if (one != other || !one.valid()) {
    return link.latency.count() >= tcp_latency ? LinkKind::tcp : LinkKind::infiniband;
  }
  if (a == nullptr && b == nullptr) return std::nullopt;
  const DeviceModel& gpu = a != nullptr ? *a : *b;
  const bool modules = a != nullptr && b != nullptr && is_module(*a) && is_module(*b);
  if (modules || link.rate > fastest_pcie) return nvlink_of(gpu);
  return pcie_kind(link.rate, lacks_peer_access(gpu));
}

/// Median of what is known, of two in the middle the smaller one: costs have a long tail upwards.
/// Nothing if nothing is known.
template <class Member>
std::optional<double> median_of(const std::vector<const MeasuredLinks*>& rows, Member member) {
  std::vector<double> values;
  for (const MeasuredLinks* row : rows) {
    if (row->*member >= 0) values.push_back(row->*member);
  }
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

}  // namespace

bool is_module(const DeviceModel& model) {
  // Those of which no card for a slot is sold are not called SXM.
  constexpr std::string_view modules_only[] = {"gh200", "gb200", "gb300", "b300", "h20"};
  const std::string& type = model.measured_type();
  return type.find("sxm") != std::string::npos ||
         std::find(std::begin(modules_only), std::end(modules_only), type) !=
             std::end(modules_only);
}

bool lacks_peer_access(const DeviceModel& model) {
  constexpr std::string_view cards[] = {"rtx-2080", "rtx-2080ti", "titan-rtx", "rtx-3090",
                                        "rtx-4090"};
  return std::find(std::begin(cards), std::end(cards), model.measured_type()) != std::end(cards);
}

LinkKind pcie_kind(BytesPerSecond rate, bool through_host) {
  if (rate.value <= pcie3_most) return through_host ? LinkKind::pcie3_host : LinkKind::pcie3;
  if (rate.value <= pcie4_most) return through_host ? LinkKind::pcie4_host : LinkKind::pcie4;
  return through_host ? LinkKind::pcie5_host : LinkKind::pcie5;
}

std::optional<LinkKind> port_kind(const DeviceModel& model) {
  const auto architecture = to_number<double>(model.architecture);
  if (model.kind != DeviceKind::gpu || !architecture) return std::nullopt;
  if (is_module(model)) return nvlink_of(model);
  const LinkKind newest = *architecture < 9 ? LinkKind::pcie4 : LinkKind::pcie5;
  const LinkKind slot = *architecture < 8 ? LinkKind::pcie3 : newest;
  return pcie_kind(*port_rate(slot), lacks_peer_access(model));
}

std::optional<BytesPerSecond> port_rate(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink1:  // 4 of 20 GB/s
      return BytesPerSecond{80e9};
    case LinkKind::nvlink2:  // 6 of 25
      return BytesPerSecond{150e9};
    case LinkKind::nvlink3:  // 12 of 25
      return BytesPerSecond{300e9};
    case LinkKind::nvlink4:  // 18 of 25
      return BytesPerSecond{450e9};
    case LinkKind::nvlink5:  // 18 of 50
      return BytesPerSecond{900e9};
    case LinkKind::pcie3:
    case LinkKind::pcie3_host:
      return BytesPerSecond{15.75e9};
    case LinkKind::pcie4:
    case LinkKind::pcie4_host:
      return BytesPerSecond{31.5e9};
    case LinkKind::pcie5:
    case LinkKind::pcie5_host:
      return BytesPerSecond{63e9};
    case LinkKind::infiniband:
    case LinkKind::roce:
    case LinkKind::efa:
    case LinkKind::tcp:
    case LinkKind::slingshot:
      return std::nullopt;
  }
  throw BrokenInvariant("a link kind outside its enum");
}

LinkFamily family_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink1:
    case LinkKind::nvlink2:
    case LinkKind::nvlink3:
    case LinkKind::nvlink4:
    case LinkKind::nvlink5:
      return LinkFamily::nvlink;
    case LinkKind::pcie3:
    case LinkKind::pcie4:
    case LinkKind::pcie5:
      return LinkFamily::pcie;
    case LinkKind::pcie3_host:
    case LinkKind::pcie4_host:
    case LinkKind::pcie5_host:
      return LinkFamily::pcie_host;
    case LinkKind::infiniband:
    case LinkKind::roce:
    case LinkKind::efa:
    case LinkKind::tcp:
    case LinkKind::slingshot:
      return LinkFamily::network;
  }
  throw BrokenInvariant("a link kind outside its enum");
}

namespace {

LinkNumbers medians(LinkKind kind, std::string_view without) {
  std::vector<const MeasuredLinks*> own, family, alike;  // alike: inside a machine, or outside
  const bool outside = family_of(kind) == LinkFamily::network;
  for (const MeasuredLinks& row : measured_links()) {
    if (!without.empty() && row.system == without) continue;
    if (row.kind == kind) own.push_back(&row);
    if (family_of(row.kind) == family_of(kind)) family.push_back(&row);
    if ((family_of(row.kind) == LinkFamily::network) == outside) alike.push_back(&row);
  }
  LinkNumbers numbers;
  const auto of_kind = median_of(own, &MeasuredLinks::efficiency);
  numbers.efficiency =
      of_kind ? *of_kind
              : median_of(family, &MeasuredLinks::efficiency).value_or(no_system_efficiency);
  numbers.launch = Seconds{median_of(alike, &MeasuredLinks::launch).value_or(0) * micro};
  numbers.per_root_byte = Seconds{median_of(family, &MeasuredLinks::root).value_or(0) * micro};
  numbers.systems = static_cast<std::int32_t>(std::count_if(
      own.begin(), own.end(), [](const MeasuredLinks* row) { return row->efficiency >= 0; }));
  return numbers;
}

}  // namespace

LinkNumbers link_numbers(LinkKind kind, std::string_view without) {
  if (!without.empty()) return medians(kind, without);
  // Every message between GPUs asks.
  static const auto of_all = [] {
    std::array<LinkNumbers, spellings(LinkKind{}).size()> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = medians(static_cast<LinkKind>(i), {});
    return all;
  }();
  return of_all[static_cast<std::size_t>(kind)];
}

BytesPerSecond effective_rate(std::optional<LinkKind> kind, BytesPerSecond rate) {
  return kind ? rate * link_numbers(*kind).efficiency : rate;
}

void guess_link_kinds(Cluster& cluster) {
  for (Link& link : cluster.links) {
    if (link.kind) continue;
    link.kind = guessed_kind(cluster, link);
    link.kind_guessed = link.kind.has_value();
  }
}

void leave_system_out(Cluster& cluster, std::string_view system) {
  for (Link& link : cluster.links) {
    if (!link.kind || link.line_rate.value <= 0) continue;
    link.rate = BytesPerSecond{link.line_rate.value * link_numbers(*link.kind, system).efficiency};
  }
}

}  // namespace parsim
