#include "networks/onnx_roles.hpp"

#include <algorithm>
#include <set>

namespace parsim::networks::onnx_reader {

std::vector<Dim> map_roles(std::size_t rank) {
  std::vector<Dim> roles(rank, Dim::other);
  const std::vector<Dim> spatial{Dim::width, Dim::height, Dim::depth};  // from the last axis
  for (std::size_t i = 0; i < spatial.size() && i + 1 < rank; ++i) roles[rank - 1 - i] = spatial[i];
  if (rank > 0) roles[0] = Dim::channel;
  return roles;
}

std::vector<Dim> input_roles(std::size_t rank, Element element, bool map) {
  if (map || rank == 3 || rank == 4) return map_roles(rank);
  if (rank == 1) return {element == Element::real ? Dim::channel : Dim::token};
  if (rank == 2) return {Dim::token, Dim::channel};
  return std::vector<Dim>(rank, Dim::other);
}

std::vector<Dim> learned_roles(const Extents& extents) {
  std::vector<Dim> roles(extents.size(), Dim::other);
  if (extents.size() == 1) roles = {Dim::channel};
  if (extents.size() == 2) roles = {Dim::token, Dim::channel};
  if (extents.size() > 2 && std::all_of(extents.begin() + 1, extents.end(),
                                        [](std::int64_t extent) { return extent == 1; })) {
    roles[0] = Dim::channel;
  }
  return roles;
}

namespace {

/// Roles of the axes that a run of axes turns into.
std::vector<Dim> regrouped(const std::vector<Dim>& from, std::size_t count) {
  if (from.size() == count) return from;
  std::vector<Dim> to(count, Dim::other);
  const bool places = std::all_of(from.begin(), from.end(), [](Dim dim) {
    return dim == Dim::token || dim == Dim::depth || dim == Dim::height || dim == Dim::width;
  });
  const std::vector<Dim> space{Dim::depth, Dim::height, Dim::width};
  if (count == 1) {
    if (std::find(from.begin(), from.end(), Dim::channel) != from.end()) to = {Dim::channel};
    if (places) to = {Dim::token};
  } else if (from.size() == 1 && from[0] == Dim::channel) {
    to[count - 1] = Dim::channel;
    to[count - 2] = Dim::head;
  } else if (places && count <= 3) {
    std::copy(space.end() - static_cast<std::ptrdiff_t>(count), space.end(), to.begin());
  }
  return to;
}

}  // namespace

std::vector<Dim> reshaped_roles(const Shape& from, const Extents& to) {
  std::vector<Dim> roles(to.size(), Dim::other);
  std::size_t i = 0, j = 0;
  // Runs of axes with equal products correspond; axes of extent 1 have no role.
  while (i < from.axes.size() && j < to.size()) {
    std::vector<Dim> source;
    std::vector<std::size_t> target;
    std::int64_t left = 1, right = 1;
    do {
      const bool more_left = i < from.axes.size() && (left <= right || j == to.size());
      if (more_left) {
        left *= from.axes[i].extent;
        if (from.axes[i].extent != 1) source.push_back(from.axes[i].dim);
        ++i;
      } else {
        right *= to[j];
        if (to[j] != 1) target.push_back(j);
        ++j;
      }
    } while (left != right && (i < from.axes.size() || j < to.size()));
    if (source.empty() || target.empty()) continue;
    const std::vector<Dim> found = regrouped(source, target.size());
    for (std::size_t k = 0; k < target.size(); ++k) roles[target[k]] = found[k];
  }
  return roles;
}

Shape shape_of(const Extents& extents, const std::vector<Dim>& roles) {
  Shape shape;
  std::set<Dim> seen;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    Dim role = i < roles.size() ? roles[i] : Dim::other;
    if (role != Dim::other && !seen.insert(role).second) role = Dim::other;
    shape.axes.push_back({role, extents[i]});
  }
  return shape;
}

}  // namespace parsim::networks::onnx_reader
