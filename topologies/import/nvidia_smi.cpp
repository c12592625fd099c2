// The matrix of `nvidia-smi topo -m` has, for every pair of devices, how near they are. NVLinks are
// counted; of PCIe only the kind of path is known, from which a tree follows: devices on one PCIe
// switch, switches below one host bridge, bridges of one CPU, CPUs of the machine.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>

#include "core/errors.hpp"
#include "topologies/builder.hpp"
#include "topologies/import/gpus.hpp"
#include "topologies/import/import.hpp"
#include "topologies/import/smi_matrix.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

class SmiReader {
 public:
  SmiReader(std::string_view text, const std::string& file, const ImportOptions& options)
      : file_(file), options_(options), matrix_(parse_smi_matrix(text, file)) {}

  Imported read() && { return build(); }

 private:
  [[nodiscard]] std::string where(std::int64_t line, std::string_view what) const {
    return fmt::format("{}:{}:{}", file_, line, what);
  }
  [[nodiscard]] std::size_t count() const { return matrix_.names.size(); }

  /// Classes of devices whose path is `farthest` or nearer; result[i] is the smallest member of
  /// i's.
  [[nodiscard]] std::vector<std::size_t> classes(SmiWay farthest) const {
    std::vector<std::size_t> parent(count());
    std::iota(parent.begin(), parent.end(), std::size_t{0});
    const auto root = [&](std::size_t i) {
      while (parent[i] != i) i = parent[i];
      return i;
    };
    const auto join = [&](std::size_t i, std::size_t j) {
      const auto [low, high] = std::minmax({root(i), root(j)});
      parent[high] = low;
    };
    for (std::size_t i = 0; i < count(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const SmiWay way = matrix_.cells[i][j].way;
        // GPUs with NVLink have no PCIe path in the matrix; CPU affinity still gives their socket.
        const bool same_cpus = way == SmiWay::nvlink && farthest == SmiWay::node &&
                               matrix_.affinity[i] == matrix_.affinity[j];
        if (way <= farthest || same_cpus) join(i, j);
      }
    }
    for (std::size_t i = 0; i < count(); ++i) parent[i] = root(i);
    for (std::size_t i = 0; i < count(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const SmiWay way = matrix_.cells[i][j].way;
        if (parent[i] != parent[j] || way == SmiWay::nvlink || way <= farthest) continue;
        throw InputError(
            where(matrix_.lines[i], matrix_.names[i] + "." + matrix_.names[j]),
            fmt::format("{} and {} are near the same devices, but far from each other",
                        matrix_.names[i], matrix_.names[j]),
            "accepted: a tree, in which two devices that share a switch with a third share it with "
            "each other");
      }
    }
    return parent;
  }

  [[nodiscard]] std::int64_t total_nvlinks(std::size_t i) const {
    std::int64_t all = 0;
    for (const SmiCell& cell : matrix_.cells[i]) all += cell.nvlinks;
    return all;
  }

  /// True if GPUs have more NVLinks to others than a GPU has in all: they lead to an NVSwitch.
  [[nodiscard]] bool has_nvswitch(const std::vector<std::size_t>& gpus,
                                  std::int64_t capability) const {
    const std::int64_t most = std::max<std::int64_t>(nvlinks_of(capability), 1);
    return std::any_of(gpus.begin(), gpus.end(),
                       [&](std::size_t i) { return total_nvlinks(i) > most; });
  }

  const DeviceModel& model_of(std::size_t i, std::vector<std::string>& notes) {
    if (options_.device != nullptr) return *options_.device;
    const auto product = matrix_.products.find(matrix_.names[i]);
    if (product != matrix_.products.end()) {
      const KnownGpu* known = gpu_of_product(product->second);
      if (known == nullptr) {
        throw InputError(
            fmt::format("{}:{}", file_, matrix_.names[i]),
            fmt::format("'{}' is not in the device table", product->second),
            "accepted: FILE,device=NAME with a similar GPU (see 'parsim list devices')");
      }
      const std::string name(known->model);
      return models_.try_emplace(name, device_model(name, file_)).first->second;
    }
    return guessed_of_nvlinks(i, notes);
  }

  const DeviceModel& guessed_of_nvlinks(std::size_t i, std::vector<std::string>& notes) {
    std::int64_t links = total_nvlinks(i), least = links, gpus = 0, partners = 0;
    for (std::size_t j = 0; j < count(); ++j) {
      if (j == i || !is_smi_gpu(matrix_.names[j])) continue;
      ++gpus;
      least = std::min(least, matrix_.cells[i][j].nvlinks);
      if (matrix_.cells[i][j].nvlinks > 0) ++partners;
    }
    NvlinkShape shape = partners == 1 ? NvlinkShape::bridge : NvlinkShape::mesh;
    // Between all pairs the same number: an NVSwitch, and the number is all a GPU has.
    const bool evenly = gpus > 1 && least > 0 && least * gpus == links;
    if (evenly && types_of_nvlinks(links, shape, partners).empty()) {
      shape = NvlinkShape::switches;
      links = least;
    }
    const std::vector<std::string> types = types_of_nvlinks(links, shape, partners);
    std::string found = fmt::format("{} NVLink{}", links, links == 1 ? "" : "s");
    if (shape == NvlinkShape::switches) {
      found += " to every other GPU";
    } else if (partners > 0) {
      found += fmt::format(" to {} other{}", partners, partners == 1 ? "" : "s");
    }
    const auto generation = [&](const std::string& type) {
      return capability_of(device_model(type, file_));
    };
    const bool fair = !types.empty() && std::all_of(types.begin(), types.end(), [&](const auto& t) {
      return generation(t) == generation(types.front());
    });
    if (!fair) {
      throw InputError(fmt::format("{}:{}:{}", file_, matrix_.lines[i], matrix_.names[i]),
                       fmt::format("cannot tell the type of the GPU from {}", found),
                       fmt::format("accepted: the output of 'nvidia-smi -L' before the matrix, or "
                                   "FILE,device=NAME{}{}",
                                   types.empty() ? "" : ", such as ", join(types, " or ")));
    }
    const std::string from = fmt::format("{} in {}", found, file_);
    const std::string& name = types.front();
    const auto [at, is_new] =
        models_.try_emplace(name, guessed_model(device_model(name, file_), from));
    if (is_new) {
      const std::string others = join(std::span(types).subspan(1), " or ");
      notes.push_back(
          fmt::format("{}: type guessed from {}{}", name, from,
                      others.empty() ? "" : fmt::format(" (FILE,device=NAME for {})", others)));
    }
    return at->second;
  }

  Imported build();
  void build_tree(ClusterBuilder& builder, NodeId node, const std::vector<Port>& ports);
  void build_nvlinks(ClusterBuilder& builder, NodeId node, const std::vector<Port>& ports);

  /// Of a network card, whose rate the file does not have: that of the machine's first GPU.
  [[nodiscard]] std::int64_t capability_of_port(const ClusterBuilder& builder, Port port) const {
    const Cluster& cluster = builder.cluster();
    if (port.kind == Port::Kind::device) {
      return capability_of(cluster.model(DeviceId{port.index}));
    }
    return capability_of(cluster.model(DeviceId{0}));
  }

  const std::string& file_;
  const ImportOptions& options_;
  SmiMatrix matrix_;
  std::map<std::string, DeviceModel> models_;
};

Imported SmiReader::build() {
  Imported imported;
  ClusterBuilder builder(std::filesystem::path(file_).stem().string(), file_);
  const NodeId node = builder.add_node(builder.cluster().name);
  std::vector<Port> ports;
  std::size_t cards = 0;
  for (std::size_t i = 0; i < count(); ++i) {
    std::string name = matrix_.names[i];
    if (is_smi_gpu(name)) {
      name.replace(0, 3, "gpu");
      const KnownGpu* known = nullptr;
      const auto product = matrix_.products.find(matrix_.names[i]);
      if (options_.device == nullptr && product != matrix_.products.end()) {
        known = gpu_of_product(product->second);
      }
      std::optional<Bytes> memory;
      if (known != nullptr && known->memory_gib > 0) memory = Bytes{known->memory_gib << 30};
      ports.push_back(
          Port::of(builder.add_device(name, model_of(i, imported.notes), node, memory)));
    } else {
      ports.push_back(Port::of(builder.add_switch(name, node)));
      ++cards;
    }
  }
  build_nvlinks(builder, node, ports);
  build_tree(builder, node, ports);
  imported.notes.push_back(
      "the file has no rates: NVLink and PCIe rates are those that NCCL assumes for such GPUs "
      "(guessed)");
  if (cards > 0) {
    imported.notes.push_back(
        fmt::format("{} network card{} not connected: a cluster file joins machines", cards,
                    cards == 1 ? "" : "s"));
  }
  imported.cluster = std::move(builder).finish();
  return imported;
}

void SmiReader::build_nvlinks(ClusterBuilder& builder, NodeId node,
                              const std::vector<Port>& ports) {
  std::vector<std::size_t> gpus;
  for (std::size_t i = 0; i < count(); ++i) {
    if (is_smi_gpu(matrix_.names[i])) gpus.push_back(i);
  }
  const std::int32_t source = builder.add_provenance(
      {"*", Label::guessed,
       fmt::format("NVLinks counted in {}, each as NCCL 2.28 counts on; latency guessed", file_)});
  const std::int64_t capability = capability_of_port(builder, ports[gpus.front()]);
  if (has_nvswitch(gpus, capability)) {
    const Port nvswitch = Port::of(builder.add_switch("nvswitch", node));
    for (const std::size_t i : gpus) {
      std::int64_t links = 0;
      for (const SmiCell& cell : matrix_.cells[i]) links = std::max(links, cell.nvlinks);
      if (links == 0) continue;
      builder.add_link(
          ports[i], nvswitch,
          nvlink_rate(capability_of_port(builder, ports[i])) * static_cast<double>(links),
          nvlink_latency, source);
    }
    return;
  }
  for (const std::size_t i : gpus) {
    for (const std::size_t j : gpus) {
      if (j <= i || matrix_.cells[i][j].nvlinks == 0) continue;
      builder.add_link(ports[i], ports[j], nvlink_rate(capability_of_port(builder, ports[i])),
                       nvlink_latency, source, matrix_.cells[i][j].nvlinks);
    }
  }
}

void SmiReader::build_tree(ClusterBuilder& builder, NodeId node, const std::vector<Port>& ports) {
  const std::int32_t source = builder.add_provenance(
      {"*", Label::guessed,
       fmt::format("PCIe of the GPU's generation on 16 lanes; the way as in {}", file_)});
  // Skylake's; the file does not name the CPU.
  constexpr BytesPerSecond between_sockets{10e9};
  std::map<std::string_view, int> numbers;
  const auto rate = [&](Port port) {
    constexpr std::int64_t lanes = 16;
    return pcie_rate(fmt::format("{} PCIe", pcie_speed_of(capability_of_port(builder, port))),
                     lanes);
  };
  const std::vector<std::size_t> sockets = classes(SmiWay::node), bridges = classes(SmiWay::phb),
                                 roots = classes(SmiWay::pxb), switches = classes(SmiWay::pix);
  const auto size = [](const std::vector<std::size_t>& groups, std::size_t i) {
    return std::count(groups.begin(), groups.end(), groups[i]);
  };
  std::vector<Port> parent(count()), all_sockets;
  // A switch for each class, above its members and below what was above them.
  const auto add_level = [&](const std::vector<std::size_t>& groups, std::string_view name,
                             auto wanted) {
    std::map<std::size_t, Port> made;
    for (std::size_t i = 0; i < count(); ++i) {
      if (groups[i] != i || !wanted(i)) continue;  // each class once, by its smallest member
      const Port port =
          Port::of(builder.add_switch(fmt::format("{}{}", name, numbers[name]++), node));
      if (parent[i].index >= 0) {
        builder.add_link(port, parent[i], rate(ports[i]), pcie_latency, source);
      } else {
        for (const Port other : all_sockets) {
          builder.add_link(other, port, between_sockets, pcie_latency, source);
        }
        all_sockets.push_back(port);
      }
      made.emplace(i, port);
    }
    for (std::size_t i = 0; i < count(); ++i) {
      const auto at = made.find(groups[i]);
      if (at != made.end()) parent[i] = at->second;
    }
  };
  add_level(sockets, "socket", [](std::size_t) { return true; });
  // One host bridge for all of a socket is the socket, one for one PCIe switch is that.
  add_level(bridges, "bridge", [&](std::size_t i) {
    return size(bridges, i) > size(roots, i) && size(bridges, i) < size(sockets, i);
  });
  add_level(roots, "pcie", [&](std::size_t i) {
    return size(roots, i) > 1 && size(roots, i) > size(switches, i);
  });
  add_level(switches, "pcie", [&](std::size_t i) { return size(switches, i) > 1; });
  for (std::size_t i = 0; i < count(); ++i) {
    if (ports[i].kind == Port::Kind::device) {
      const DeviceModel& model = builder.cluster().model(DeviceId{ports[i].index});
      add_slot(builder, ports[i], model, parent[i], rate(ports[i]), source);
    } else {
      builder.add_link(ports[i], parent[i], rate(ports[i]), pcie_latency, source);
    }
  }
}

}  // namespace

Imported import_nvidia_smi(std::string_view text, const std::string& file,
                           const ImportOptions& options) {
  return SmiReader(text, file, options).read();
}

}  // namespace parsim::topologies
