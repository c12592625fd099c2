#include "strategies/group_splits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lowering/sync.hpp"

namespace parsim::strategies {

std::size_t GroupCuts::most() const {
  std::size_t most = 0;
  for (const auto& [units, parts] : sizes) most = std::max(most, units.size());
  return most;
}

namespace {

/// Where parts of any group end, after 0.
std::vector<std::int64_t> borders_of(const GroupCuts& cuts) {
  std::set<std::int64_t> borders{0};
  for (const auto& [units, parts] : cuts.sizes) {
    std::int64_t at = 0;
    for (const std::int64_t part : parts) borders.insert(at += part);
  }
  return {borders.begin(), borders.end()};
}

}  // namespace

Cut GroupCuts::finest() const {
  Cut cut{dim, {}};
  if (dim == Dim::replica) {
    cut.sizes = std::vector<std::int64_t>(most(), 1);
    return cut;
  }
  std::vector<std::int64_t> sizes = borders_of(*this);
  std::adjacent_difference(sizes.begin(), sizes.end(), sizes.begin());
  sizes.erase(sizes.begin());
  cut.sizes = std::move(sizes);
  return cut;
}

std::vector<std::size_t> GroupCuts::members(const tensor::DeviceUnits& units) const {
  std::vector<std::size_t> owners;
  if (dim == Dim::replica) {
    for (std::size_t p = 0; p < most(); ++p) owners.push_back(std::min(p, units.size() - 1));
    return owners;
  }
  const std::vector<std::int64_t> borders = borders_of(*this);
  for (std::size_t p = 0; p + 1 < borders.size(); ++p) {
    std::size_t owner = 0;
    if (units.size() > 1) {
      const std::vector<std::int64_t>& parts = sizes.at(units);
      for (std::int64_t end = parts[0]; end <= borders[p]; end += parts[++owner]) continue;
    }
    owners.push_back(owner);
  }
  return owners;
}

const std::vector<GroupCuts>& GroupSplits::of(std::set<tensor::DeviceUnits> groups) {
  groups.erase(tensor::DeviceUnits{1});
  const auto [at, fresh] = cuts_.try_emplace(groups);
  if (!fresh) return at->second;
  const std::size_t count = input_.network.layers.size();
  std::vector<GroupCuts>& all = at->second;
  all.resize(count);
  std::vector<bool> disagree(count);
  for (const tensor::DeviceUnits& units : groups) {
    const std::vector<std::vector<Cut>> split = tensor::split(input_, units);
    for (std::size_t l = 0; l < count; ++l) {
      const Cut& cut = split[l].at(0);
      if (!all[l].sizes.empty() && all[l].dim != cut.dim) disagree[l] = true;
      all[l].dim = cut.dim;
      all[l].sizes[units] = cut.sizes;
    }
  }
  all_compute(all, disagree);
  return all;
}

void GroupSplits::all_compute(std::vector<GroupCuts>& all, std::vector<bool>& marked) {
  const std::ptrdiff_t split_differently = std::count(marked.begin(), marked.end(), true);
  if (split_differently == 0) return;
  const std::vector<std::vector<LayerId>> users = lowering::users_of_parameters(input_.network);
  for (bool more = true; std::exchange(more, false);) {
    for (const std::vector<LayerId>& layers : users) {
      const auto by_all = [&](LayerId id) -> bool { return marked[id.index()]; };
      if (std::none_of(layers.begin(), layers.end(), by_all)) continue;
      for (const LayerId id : layers) {
        more = more || !marked[id.index()];
        marked[id.index()] = true;
      }
    }
  }
  for (std::size_t l = 0; l < marked.size(); ++l) {
    if (marked[l]) all[l].dim = Dim::replica;
  }
  notes_.push_back(fmt::format(
      "{} layers, which groups of different size would split differently, are computed by all "
      "devices of a group",
      split_differently));
}

}  // namespace parsim::strategies
