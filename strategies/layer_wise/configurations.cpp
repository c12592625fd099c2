#include "strategies/layer_wise/configurations.hpp"

#include <algorithm>

namespace parsim::strategies::layer_wise {

namespace {

/// left   what the product of the other degrees divides, or may be at most
void extend(const Degrees& most, std::int64_t left, DegreeRule rule, std::size_t dim,
            Configuration& now, std::vector<Configuration>& all) {
  if (dim == searched_dims.size()) {
    all.push_back(now);
    return;
  }
  for (std::int64_t degree = std::min(left, most[dim]); degree >= 1; --degree) {
    if (rule == DegreeRule::dividing && left % degree != 0) continue;
    now.degrees[dim] = degree;
    extend(most, left / degree, rule, dim + 1, now, all);
  }
  now.degrees[dim] = 1;
}

/// Elements of a flattened tensor that belong to one channel; 1 for every other layer.
std::int64_t grain(const Network& network, LayerId id, Dim dim) {
  const Layer& layer = network[id];
  if (dim != Dim::channel || layer.kind.as<Flatten>() == nullptr) return 1;
  const Shape& in = network[layer.inputs[0]].out;
  if (in.axes.empty() || in.axes[0].extent == 0) return 1;
  return std::max<std::int64_t>(1, in.elements() / in.axes[0].extent);
}

std::int64_t extent_of(const Network& network, LayerId id, Dim dim, std::int64_t batch) {
  return dim == Dim::sample ? batch : network[id].out.extent(dim);
}

}  // namespace

std::vector<Configuration> configurations(const Degrees& most, std::int64_t devices,
                                          DegreeRule rule) {
  std::vector<Configuration> all;
  Configuration now;
  extend(most, devices, rule, 0, now, all);
  return all;
}

Degrees most_parts(const Network& network, LayerId id, std::int64_t batch) {
  const Layer& layer = network[id];
  const std::vector<Dim> allowed = cuttable_dims(layer.kind, input_shapes(network, id), layer.out);
  Degrees most;
  for (std::size_t d = 0; d < searched_dims.size(); ++d) {
    const Dim dim = searched_dims[d];
    const bool may = std::find(allowed.begin(), allowed.end(), dim) != allowed.end();
    const std::int64_t extent = extent_of(network, id, dim, batch) / grain(network, id, dim);
    most[d] = may ? std::max<std::int64_t>(1, extent) : 1;
  }
  return most;
}

std::vector<Cut> cuts(const Network& network, LayerId id, const Configuration& configuration,
                      std::int64_t batch, std::span<const double> speeds) {
  std::vector<Cut> result;
  const std::int64_t parts = configuration.parts();
  std::int64_t stride = parts;  // parts with the same indices of the dimensions so far
  for (std::size_t d = 0; d < searched_dims.size(); ++d) {
    const std::int64_t degree = configuration.degrees[d];
    if (degree == 1) continue;
    stride /= degree;
    std::vector<double> shares(static_cast<std::size_t>(degree), 0);
    for (std::int64_t part = 0; part < parts; ++part) {
      shares[static_cast<std::size_t>(part / stride % degree)] +=
          speeds[static_cast<std::size_t>(part)];
    }
    const std::int64_t unit = grain(network, id, searched_dims[d]);
    const std::int64_t extent = extent_of(network, id, searched_dims[d], batch);
    const bool equal = std::all_of(speeds.begin(), speeds.begin() + parts,
                                   [&](double speed) { return speed == speeds[0]; });
    std::vector<std::int64_t> sizes = equal ? even_split(extent / unit, shares.size())
                                            : proportional_split(extent / unit, shares);
    for (std::int64_t& size : sizes) size *= unit;
    result.push_back({searched_dims[d], std::move(sizes)});
  }
  return result;
}

std::vector<Region> boxes(const Network& network, LayerId id, const Configuration& configuration,
                          std::int64_t batch, std::span<const double> speeds) {
  const Shape& out = network[id].out;
  std::vector<Region> all{whole(out, batch)};
  for (const Cut& cut : cuts(network, id, configuration, batch, speeds)) {
    const std::size_t axis = cut.dim == Dim::sample ? 0 : out.region_axis(cut.dim);
    std::vector<Region> finer;
    finer.reserve(all.size() * cut.sizes.size());
    for (const Region& box : all) {
      std::int64_t begin = 0;
      for (const std::int64_t size : cut.sizes) {
        finer.push_back(box);
        finer.back()[axis] = {begin, begin + size};
        begin += size;
      }
    }
    all = std::move(finer);
  }
  return all;
}

}  // namespace parsim::strategies::layer_wise
