// NCCL's description of one machine. Rates are NCCL's own constants: what collectives reach rather
// than what the wires carry, as in the built-in DGX machines.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/errors.hpp"
#include "topologies/builder.hpp"
#include "topologies/device_types.hpp"
#include "topologies/import/gpus.hpp"
#include "topologies/import/import.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

constexpr std::int64_t largest_index = 1'000'000;  // of a GPU, a NUMA node, a rate in Mbit/s
constexpr std::int64_t most_lanes = 64, most_nvlinks = 1024, largest_capability = 1000;

class NcclReader {
 public:
  NcclReader(const Element& root, const std::string& file, const ImportOptions& options)
      : system_(root, file),
        options_(options),
        builder_(std::filesystem::path(file).stem().string(), file) {
    node_ = builder_.add_node(builder_.cluster().name);
    guessed_latency_ = "NCCL 2.28's src/graph/topo.h and topo.cc; latency guessed";
  }

  Imported read() && {
    const std::vector<XmlTag> cpus = system_.children({"cpu"});
    for (const XmlTag& cpu : cpus) read_socket(cpu);
    join_sockets();
    join_bridges();
    // The tree is in bus order; GPUs are numbered.
    std::sort(gpus_.begin(), gpus_.end(),
              [](const Gpu& a, const Gpu& b) { return a.number < b.number; });
    for (Gpu& gpu : gpus_) add_gpu(gpu);
    for (const Gpu& gpu : gpus_) read_nvlinks(gpu);
    join_gpus();
    if (cards_ > 0) {
      notes_.push_back(fmt::format("{} network card{} not connected: a cluster file joins machines",
                                   cards_, cards_ == 1 ? "" : "s"));
    }
    return {std::move(builder_).finish(), std::move(notes_)};
  }

 private:
  struct Socket {
    XmlTag tag;
    SwitchId id;
  };
  struct Gpu {
    XmlTag pci, tag;
    std::int64_t number = 0;
    SwitchId parent, socket;
    BytesPerSecond rate{};
    std::int32_t source = -1;
    std::int64_t capability = 0;
    DeviceId id{};
  };
  struct Bundle {
    std::int64_t count = 0;
    std::string where;
  };

  std::int32_t from_nccl(Label label, const std::string& what) {
    return builder_.add_provenance({"*", label, fmt::format("{}: {}", what, guessed_latency_)});
  }

  void read_socket(const XmlTag& cpu) {
    const std::string host = cpu.text_or("host_hash", "");
    if (sockets_.empty()) host_ = host;
    if (host != host_) {
      throw InputError(cpu.where("host_hash"), fmt::format("'{}', but '{}' before", host, host_),
                       "accepted: one machine per file; a cluster file joins several");
    }
    const std::int64_t number = cpu.integer_or("numaid", 0, -1, largest_index);
    // Virtual machines without NUMA say -1.
    const std::string name = number < 0 ? "numa" : fmt::format("numa{}", number);
    if (!names_.insert(name).second) {
      throw InputError(cpu.where("numaid"), fmt::format("a second <cpu> with numaid {}", number),
                       "accepted: each number once");
    }
    const SwitchId id = builder_.add_switch(name, node_);
    sockets_.push_back({cpu, id});
    for (const XmlTag& child : cpu.children({"pci", "nic"})) {
      child.name() == "pci" ? read_pci(child, id, id) : read_cards(child, id, BytesPerSecond{});
    }
  }

  /// A PCIe device: a bridge with others below it, a GPU, or a network card.
  // NOLINTNEXTLINE(misc-no-recursion): as deep as the tree of tags, which is bounded
  void read_pci(const XmlTag& pci, SwitchId parent, SwitchId socket) {
    const std::string& busid = pci.text("busid");
    if (!names_.insert(busid).second) {
      throw InputError(pci.where("busid"), fmt::format("the bus id '{}' occurs twice", busid),
                       "accepted: each device once");
    }
    const std::string speed = pci.text_or("link_speed", "");
    const bool known = pcie_speed_known(speed);
    // Linux writes "Unknown", NCCL nothing.
    if (!known && !speed.empty() && !speed.starts_with("Unknown") &&
        speed.find("GT/s") == std::string::npos) {
      throw InputError(
          pci.where("link_speed"), fmt::format("'{}'", speed),
          "accepted: transfers per lane, as in \"16.0 GT/s PCIe\", or \"\" if unknown");
    }
    const BytesPerSecond rate = pcie_rate(speed, pci.integer_or("link_width", 0, 0, most_lanes));
    const std::int32_t source =
        from_nccl(known ? Label::data_sheet : Label::guessed,
                  fmt::format("PCIe, {} on {} lanes, 3/4 of it as NCCL counts on",
                              known ? speed : "speed unknown, taken as 8 GT/s",
                              pci.text_or("link_width", "unknown")));
    const std::vector<XmlTag> children = pci.children({"pci", "gpu", "nic", "pcilink"});
    SwitchId bridge;
    for (const XmlTag& child : children) {
      if (child.name() == "gpu") {
        read_gpu({pci, child, 0, parent, socket, rate, source});
      } else if (child.name() == "nic") {
        read_cards(child, parent, rate, source);
      } else if (child.name() == "pcilink") {
        shortcuts_.emplace_back(busid, child);
      } else {
        if (!bridge.valid()) {
          bridge = builder_.add_switch("pci-" + busid, node_);
          builder_.add_link(Port::of(bridge), Port::of(parent), rate, pcie_latency, source);
          bridges_.emplace(busid, bridge);
        }
        read_pci(child, bridge, socket);
      }
    }
  }

  void read_gpu(Gpu gpu) {
    gpu.number = gpu.tag.integer("dev", 0, largest_index);
    if (!names_.insert(fmt::format("gpu{}", gpu.number)).second) {
      throw InputError(gpu.tag.where("dev"), fmt::format("a second GPU with dev {}", gpu.number),
                       "accepted: each number once");
    }
    gpu.capability = gpu.tag.integer_or("sm", 0, 0, largest_capability);
    gpus_.push_back(gpu);
  }

  void add_gpu(Gpu& gpu) {
    const KnownGpu* known =
        gpu_of_pci(gpu.pci.text_or("vendor", ""), gpu.pci.text_or("device", ""));
    std::optional<Bytes> memory;
    if (options_.device == nullptr && known != nullptr && known->memory_gib > 0) {
      memory = Bytes{known->memory_gib << 30};
    }
    const DeviceModel& model = model_of(gpu, known);
    gpu.id = builder_.add_device(fmt::format("gpu{}", gpu.number), model, node_, memory);
    add_slot(builder_, Port::of(gpu.id), model, Port::of(gpu.parent), gpu.rate, gpu.source);
    if (gpu.capability == 0) gpu.capability = capability_of(model);
    gpu_at_.emplace(gpu.pci.text("busid"), gpu.id);
  }

  /// One entry per name, so that a guess and a certainty of the same type do not become two.
  const DeviceModel& model_of(const Gpu& gpu, const KnownGpu* known) {
    if (options_.device != nullptr) return *options_.device;
    if (known != nullptr) {
      const std::string name(known->model);
      return models_.try_emplace(name, device_model(name, gpu.pci.where("device"))).first->second;
    }
    std::int64_t nvlinks = 0;
    for (const XmlTag& link : gpu.tag.children({"nvlink", "xgmi", "c2c"})) {
      if (link.name() == "nvlink") nvlinks += link.integer_or("count", 1, 1, most_nvlinks);
    }
    const std::optional<std::string> name = guess_of_capability(gpu.capability, nvlinks);
    if (!name) {
      throw InputError(gpu.tag.where("sm"),
                       fmt::format("PCI device '{}' with compute capability {} is not in the "
                                   "device table",
                                   gpu.pci.text_or("device", ""), gpu.capability),
                       "accepted: FILE,device=NAME with a similar GPU (see 'parsim list devices')");
    }
    const std::string from =
        fmt::format("sm {} and {} NVLinks in {}", gpu.capability, nvlinks, gpu.tag.file());
    const auto [at, is_new] =
        models_.try_emplace(*name, guessed_model(device_model(*name, gpu.tag.where()), from));
    if (is_new) notes_.push_back(fmt::format("{}: type guessed from {}", *name, from));
    return at->second;
  }

  /// The ports of a network card; a virtual one, listed under several sockets, belongs to the
  /// first.
  void read_cards(const XmlTag& nic, SwitchId parent, BytesPerSecond rate,
                  std::int32_t source = -1) {
    for (const XmlTag& net : nic.children({"net", "gin", "rma", "coll"})) {
      if (net.name() != "net") continue;
      const std::string& name = net.text("name");
      const BytesPerSecond speed{
          static_cast<double>(net.integer_or("speed", 0, 0, 100 * largest_index)) * 1e6 / 8};
      if (!names_.insert(name).second) continue;
      const SwitchId card = builder_.add_switch(name, node_);
      ++cards_;
      if (rate.value > 0) {
        builder_.add_link(Port::of(card), Port::of(parent), rate, pcie_latency, source);
      } else if (speed.value > 0) {  // without a PCIe device only its own speed is known
        builder_.add_link(Port::of(card), Port::of(parent), speed, pcie_latency,
                          from_nccl(Label::data_sheet, "the card's speed"));
      } else {
        throw InputError(net.where("speed"),
                         "a network card with neither a PCIe device nor a speed",
                         "accepted: a speed in Mbit/s");
      }
    }
  }

  void read_nvlinks(const Gpu& gpu) {
    for (const XmlTag& link : gpu.tag.children({"nvlink", "xgmi", "c2c"})) {
      if (link.name() == "c2c") continue;  // to the memory of the GPU's own CPU
      const std::int64_t count = link.integer_or("count", 1, 1, most_nvlinks);
      const std::string& target = link.text("target");
      const std::string kind = link.text_or("tclass", "0x03");
      if (kind.starts_with("0x03") || link.name() == "xgmi") {
        const auto other = gpu_at_.find(target);
        if (other == gpu_at_.end()) {
          notes_.push_back(
              fmt::format("{}: the GPU at {} is not in the file; the NVLink is left out",
                          link.where(), target));
          continue;
        }
        if (other->second == gpu.id) {
          throw InputError(link.where("target"), "an NVLink from a GPU to itself",
                           "accepted: another GPU");
        }
        add(bundles_[{gpu.id, other->second}], count, link);
      } else if (kind.starts_with("0x068000")) {
        add(to_switch_[gpu.id], count, link);
      } else if (kind.starts_with("0x068001")) {
        add(to_socket_[gpu.id], count, link);
      } else {
        throw InputError(link.where("tclass"), fmt::format("'{}'", kind),
                         "accepted: 0x03… (GPU), 0x068000 (NVSwitch), 0x068001 (CPU)");
      }
    }
  }
  static void add(Bundle& bundle, std::int64_t count, const XmlTag& link) {
    bundle.count += count;
    if (bundle.where.empty()) bundle.where = link.where("count");
  }

  [[nodiscard]] const Gpu& of(DeviceId id) const {
    for (const Gpu& gpu : gpus_) {
      if (gpu.id == id) return gpu;
    }
    throw BrokenInvariant("every device of a dump is one of its GPUs");
  }

  void join_gpus() {
    for (const auto& [ends, bundle] : bundles_) {
      const auto back = bundles_.find({ends.second, ends.first});
      const std::int64_t other = back == bundles_.end() ? 0 : back->second.count;
      if (other != bundle.count) {
        throw InputError(bundle.where,
                         fmt::format("{} NVLinks from {} to {}, but {} back", bundle.count,
                                     builder_.name_of(Port::of(ends.first)),
                                     builder_.name_of(Port::of(ends.second)), other),
                         "accepted: as many in both directions");
      }
      if (ends.second < ends.first) continue;
      builder_.add_link(Port::of(ends.first), Port::of(ends.second),
                        nvlink_rate(of(ends.first).capability), nvlink_latency, nvlink_source(),
                        bundle.count);
    }
    SwitchId nvswitch;
    for (const auto& [id, bundle] : to_switch_) {
      if (!nvswitch.valid()) nvswitch = builder_.add_switch(free_name("nvswitch"), node_);
      join_as_one(id, Port::of(nvswitch), bundle);
    }
    for (const auto& [id, bundle] : to_socket_) join_as_one(id, Port::of(of(id).socket), bundle);
  }
  /// All NVLinks into a switch are one link: the switch does not block.
  void join_as_one(DeviceId id, Port other, const Bundle& bundle) {
    builder_.add_link(Port::of(id), other,
                      nvlink_rate(of(id).capability) * static_cast<double>(bundle.count),
                      nvlink_latency, nvlink_source());
  }
  std::int32_t nvlink_source() {
    return from_nccl(Label::data_sheet, "NVLinks as counted in the file");
  }
  std::string free_name(std::string name) {
    while (!names_.insert(name).second) name += '_';
    return name;
  }

  /// Bridges joined by a <pcilink>, from either side or both, are one PCIe switch. As in NCCL, a
  /// link to an unknown target is ignored.
  void join_bridges() {
    constexpr BytesPerSecond inside_a_switch{5000e9};  // LOC_BW
    std::set<std::pair<SwitchId, SwitchId>> joined;
    for (const auto& [busid, link] : shortcuts_) {
      const std::string& target = link.text("target");
      const auto from = bridges_.find(busid), to = bridges_.find(target);
      if (busid == target)
        throw InputError(link.where("target"), "a link from a bridge to itself",
                         "accepted: another bridge");
      if (from == bridges_.end() || to == bridges_.end()) {
        notes_.push_back(fmt::format("{}: no PCIe bridge with devices at {}; the link is left out",
                                     link.where(), from == bridges_.end() ? busid : target));
        continue;
      }
      if (!joined.insert(std::minmax(from->second, to->second)).second) continue;
      builder_.add_link(Port::of(from->second), Port::of(to->second), inside_a_switch, pcie_latency,
                        from_nccl(Label::guessed, "bridges of one PCIe switch"));
    }
  }

  void join_sockets() {
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      for (std::size_t j = i + 1; j < sockets_.size(); ++j) {
        builder_.add_link(Port::of(sockets_[i].id), Port::of(sockets_[j].id),
                          between_sockets(sockets_[i].tag), pcie_latency,
                          from_nccl(Label::data_sheet, "between CPUs of this kind"));
      }
    }
  }

  /// Source: ncclTopoGetInterCpuBw and the models of CPUs in NCCL 2.28's src/graph.
  static BytesPerSecond between_sockets(const XmlTag& cpu) {
    constexpr double power = 32e9, arm = 6e9, amd = 16e9, zhaoxin = 6e9, other = 6e9;
    const std::string arch = cpu.text_or("arch", "x86_64"), vendor = cpu.text_or("vendor", "");
    if (arch == "ppc64") return {power};
    if (arch == "arm64" || arch == "aarch64") return {arm};
    if (vendor == "AuthenticAMD") return {amd};
    if (vendor.find("hanghai") != std::string::npos) return {zhaoxin};
    if (vendor == "GenuineIntel") {
      constexpr std::pair<std::int64_t, double> rates[] = {
          {0xCF, 40e9}, {0x8F, 22e9}, {0x55, 10e9}};  // Emerald and Sapphire Rapids, Skylake
      const std::int64_t model = cpu.integer_or("modelid", 0, -1, largest_index);
      for (const auto& [least, rate] : rates) {
        if (model >= least) return {rate};
      }
    }
    return {other};
  }

  XmlTag system_;
  const ImportOptions& options_;
  ClusterBuilder builder_;
  NodeId node_;
  std::string host_, guessed_latency_;
  std::set<std::string> names_;  ///< of devices, switches and bus ids
  std::vector<Socket> sockets_;
  std::map<std::string, SwitchId> bridges_;                ///< by bus id
  std::vector<std::pair<std::string, XmlTag>> shortcuts_;  ///< bus id of the owner, <pcilink>
  std::vector<Gpu> gpus_;
  std::map<std::string, DeviceId> gpu_at_;  ///< by bus id
  std::map<std::string, DeviceModel> models_;
  std::map<std::pair<DeviceId, DeviceId>, Bundle> bundles_;
  std::map<DeviceId, Bundle> to_switch_, to_socket_;
  std::int64_t cards_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

Imported import_nccl(const Element& root, const std::string& file, const ImportOptions& options) {
  return NcclReader(root, file, options).read();
}

}  // namespace parsim::topologies
