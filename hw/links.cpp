#include "hw/links.hpp"

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"

namespace parsim::hw {

std::vector<Bytes> message_sizes(Bytes largest) {
  constexpr std::int64_t first = std::int64_t{4} << 10, last = std::int64_t{256} << 20;
  std::vector<Bytes> sizes;
  for (std::int64_t size = first; size <= std::min(last, largest.value); size *= 4) {
    sizes.emplace_back(Bytes{size});
  }
  return sizes;
}

namespace {

constexpr std::int64_t element = 4;  // of fp32

/// Without operations; its one tensor is so large.
ExecDag dag_of_numbers(std::string name, Bytes bytes, TensorId& tensor) {
  Network network;
  network.name = name;
  add_layer(network, "numbers", Learned{vector_shape(bytes.value / element)}, {});
  ExecDag dag(std::move(network), 1, Precision::fp32, Optimizer::sgd);
  dag.strategy = std::move(name);
  tensor = dag.intern(Tensor{Tensor::Kind::parameter, 0, -1});
  return dag;
}

Slice first_bytes(ExecDag& dag, TensorId tensor, Bytes bytes) {
  return {tensor, Role::weight, 0, dag.intern(Region{{0, bytes.value / element}})};
}

}  // namespace

ExecDag link_dag(std::size_t devices, const std::vector<Bytes>& sizes) {
  TensorId tensor;
  ExecDag dag = dag_of_numbers("links", sizes.empty() ? Bytes{element} : sizes.back(), tensor);
  for (std::size_t from = 0; from < devices; ++from) {
    for (std::size_t to = 0; to < devices; ++to) {
      if (from == to) continue;
      for (const Bytes size : sizes) {
        const Slice slice = first_bytes(dag, tensor, size);
        dag.add(Transfer{DeviceId{from}, DeviceId{to}, slice, slice, false}, Stream::pipeline, {});
      }
    }
  }
  return dag;
}

ExecDag walk_dag(std::size_t devices, Bytes weights) {
  TensorId tensor;
  ExecDag dag = dag_of_numbers("walks", weights, tensor);
  const Slice slice = first_bytes(dag, tensor, weights);
  for (std::size_t d = 0; d < devices; ++d) dag.add(Update{DeviceId{d}, slice}, {});
  return dag;
}

std::optional<LinkFit> fit_link(DeviceId from, DeviceId to,
                                const std::vector<std::pair<Bytes, Seconds>>& times) {
  // Normal equations of sum(((latency + bytes · slope) / time - 1)²).
  double w = 0, wx = 0, wxx = 0, v = 0, vx = 0;
  for (const auto& [bytes, time] : times) {
    if (time <= Seconds{}) return std::nullopt;
    const double one = 1 / time.count(), x = static_cast<double>(bytes.value) * one;
    w += one * one;
    wx += one * x;
    wxx += x * x;
    v += one;
    vx += x;
  }
  const double determinant = w * wxx - wx * wx;
  if (times.size() < 2 || !(determinant > 0)) return std::nullopt;
  double latency = (v * wxx - vx * wx) / determinant;
  double slope = (w * vx - wx * v) / determinant;
  if (latency < 0) {  // a line through the origin
    latency = 0;
    slope = vx / wxx;
  }
  if (!(slope > 0)) return std::nullopt;
  LinkFit fit{from, to, Seconds{latency}, BytesPerSecond{1 / slope}, 0};
  for (const auto& [bytes, time] : times) {
    const Seconds line = fit.latency + bytes / fit.rate;
    fit.largest_error = std::max(fit.largest_error, std::abs(line / time - 1));
  }
  return fit;
}

std::vector<std::pair<BytesPerSecond, Seconds>> star_links(std::size_t devices,
                                                           const std::vector<LinkFit>& fits) {
  // With l the latencies of links, a fit is l[from] + l[to]. Half the sum of a device's fits, both
  // ways, is (n-2) · l[d] + sum(l); that of all fits is 2 (n-1) · sum(l).
  if (devices < 2 || fits.size() != devices * (devices - 1)) return {};
  std::vector<double> sums(devices, 0);
  std::vector<BytesPerSecond> rates(devices);
  double all = 0;
  for (const LinkFit& fit : fits) {
    for (const DeviceId device : {fit.from, fit.to}) {
      sums[device.index()] += fit.latency.count() / 2;
      rates[device.index()] = std::max(rates[device.index()], fit.rate);
    }
    all += fit.latency.count();
  }
  const auto n = static_cast<double>(devices);
  const double total = all / (2 * (n - 1));  // of all links' latencies
  constexpr Seconds least{0.5e-7};           // a link without latency is none
  std::vector<std::pair<BytesPerSecond, Seconds>> links;
  for (std::size_t d = 0; d < devices; ++d) {
    const Seconds latency{devices == 2 ? total / 2 : (sums[d] - total) / (n - 2)};
    links.emplace_back(rates[d], std::max(least, latency));
  }
  return links;
}

}  // namespace parsim::hw
