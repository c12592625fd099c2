#include "experiment/trainer_hosts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/trainer_file.hpp"

namespace parsim::experiment {

namespace {

namespace fs = std::filesystem;

class Hosts {
 public:
  Hosts(std::string file, const Cluster& cluster) : file_(std::move(file)), cluster_(cluster) {}

  void add(std::string_view line, std::int64_t number) {
    line_ = number;
    line = without_byte_order_mark(line);
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') return;
    line = line.substr(begin);
    const std::string name(line.substr(0, line.find_first_of(" \t\r#")));
    const std::vector<DeviceId> gpus = gpus_of(name);
    const std::string_view slots_at = "slots=", gpus_at = "gpus ";
    const auto after = [&](std::string_view what) -> std::optional<std::string_view> {
      const std::size_t at = line.find(what);
      if (at == std::string_view::npos) return std::nullopt;
      std::string_view rest = line.substr(at + what.size());
      return rest.substr(0, rest.find_first_of(" \t\r"));
    };
    const auto slots = to_number<std::size_t>(after(slots_at).value_or(""));
    if (!slots) refuse(fmt::format("'{}'", line), "NAME slots=NUMBER");
    std::vector<std::size_t> numbers;
    if (*slots > gpus.size()) {
      refuse(fmt::format("{} slots", *slots),
             fmt::format("at most the {} of '{}'", counted(std::ssize(gpus), "GPU"), name));
    }
    if (const auto list = after(gpus_at)) {
      for (const std::string& one : split_at(*list, ',')) {
        numbers.push_back(to_number<std::size_t>(one).value_or(gpus.size()));
      }
    } else {
      for (std::size_t g = 0; g < *slots; ++g) numbers.push_back(g);
    }
    for (const std::size_t gpu : numbers) {
      if (gpu >= gpus.size() || numbers.size() != *slots) {
        refuse(fmt::format("{} slots", *slots),
               fmt::format("at most the {} of '{}'", counted(std::ssize(gpus), "GPU"), name));
      }
      devices_.push_back(gpus[gpu]);
    }
  }

  [[nodiscard]] std::vector<DeviceId> take() {
    if (devices_.empty()) refuse("no machine", "lines of NAME slots=NUMBER");
    return std::move(devices_);
  }

 private:
  [[noreturn]] void refuse(const std::string& found, const std::string& accepted) const {
    throw InputError(fmt::format("{}:{}", file_, line_), found, "accepted: " + accepted);
  }

  std::vector<DeviceId> gpus_of(const std::string& name) {
    std::vector<std::string> names;
    for (const Node& node : cluster_.nodes) names.push_back(node.name);
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      refuse(fmt::format("'{}' is no machine of cluster '{}'", name, cluster_.name),
             "names of its machines" + did_you_mean(name, names));
    }
    if (!seen_.insert(name).second) {
      refuse(fmt::format("machine '{}' a second time", name), "each machine in one line");
    }
    std::vector<DeviceId> gpus;
    const NodeId node{static_cast<std::size_t>(found - names.begin())};
    for (const DeviceId device : devices_of(cluster_, DeviceKind::gpu)) {
      if (cluster_[device].node == node) gpus.push_back(device);
    }
    return gpus;
  }

  std::string file_;
  const Cluster& cluster_;
  std::int64_t line_ = 0;
  std::set<std::string> seen_;
  std::vector<DeviceId> devices_;
};

}  // namespace

std::optional<std::string> hostfile_of(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  std::vector<fs::path> places{folder / "hostfile"};
  if (folder.filename() == "train" && folder.parent_path().filename() == "conf") {
    places.push_back(folder.parent_path().parent_path() / "hostfile");
  }
  std::error_code error;
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place, error)) return place.string();
  }
  return std::nullopt;
}

std::vector<DeviceId> devices_of_hosts(const std::string& file, const Cluster& cluster) {
  const std::optional<std::string> hostfile = hostfile_of(file);
  if (!hostfile) return devices_of(cluster, DeviceKind::gpu);
  Hosts hosts(*hostfile, cluster);
  std::int64_t number = 0;
  for (const std::string& line : split_at(read_file(*hostfile, "--plan"), '\n')) {
    hosts.add(line, ++number);
  }
  return hosts.take();
}

std::string trainer_file_in(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  for (const std::string_view name : trainer_files) {
    std::string inside = fmt::format("{}/{}", path, name);
    if (std::filesystem::is_regular_file(inside, error)) return inside;
  }
  throw InputError(path, "a folder without a file of a trainer",
                   fmt::format("accepted: one with {}", fmt::join(trainer_files, ", ")));
}

}  // namespace parsim::experiment
