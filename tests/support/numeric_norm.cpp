#include <cmath>
#include <map>

#include "core/errors.hpp"
#include "tests/support/numeric_kinds.hpp"

namespace parsim::testing {
namespace {

constexpr double epsilon = 1e-5;

/// Elements that share mean and variance share a key: their index with the averaged axes set to 0.
struct Grouping {
  std::array<bool, Region::max_rank> averaged{};
  std::size_t channel_axis = 1;  ///< of scale and shift
  std::int64_t channels_per_group = 1;
  std::int64_t expected = 0;  ///< elements of a whole group; 0 = whatever is at hand (batch)
};

Grouping grouping(const PartInput& input, const Norm& norm) {
  const Shape& shape = input.inputs[0];
  const std::size_t rank = shape.axes.size() + 1;
  Grouping g;
  g.channel_axis = norm.kind == NormKind::layer ? rank - 1 : shape.region_axis(Dim::channel);
  const std::int64_t channels = shape.axes[g.channel_axis - 1].extent;
  for (std::size_t a = 1; a < rank; ++a) {
    g.averaged[a] = (a == g.channel_axis) == (norm.kind == NormKind::layer);
  }
  if (norm.kind == NormKind::batch) {
    g.averaged[0] = true;
    return g;
  }
  if (norm.kind == NormKind::group) g.channels_per_group = channels / norm.size;
  g.expected = g.channels_per_group;
  for (std::size_t a = 1; a < rank; ++a) {
    if (g.averaged[a]) g.expected *= shape.axes[a - 1].extent;
  }
  return g;
}

Index key_of(const Grouping& g, const Index& index, std::size_t rank) {
  Index key{};
  for (std::size_t a = 0; a < rank; ++a) key[a] = g.averaged[a] ? 0 : index[a];
  if (!g.averaged[g.channel_axis]) key[g.channel_axis] /= g.channels_per_group;
  return key;
}

struct Statistics {
  double count = 0, mean = 0, variance = 0;
  double gradient_sum = 0;      ///< Σ ĝ, where ĝ = gradient · scale
  double gradient_times_x = 0;  ///< Σ ĝ·x̂
};

std::map<Index, Statistics> statistics(const Block& x, const Grouping& g) {
  const std::size_t rank = x.box().rank();
  std::map<Index, Statistics> all;
  for_each_index(x.box(), [&](const Index& i) {
    Statistics& s = all[key_of(g, i, rank)];
    s.count += 1;
    s.mean += x.at(i);
  });
  for (auto& [key, s] : all) {
    ensure(g.expected == 0 || std::llround(s.count) == g.expected,
           "a normalisation that does not see its whole group");
    s.mean /= s.count;
  }
  for_each_index(x.box(), [&](const Index& i) {
    Statistics& s = all[key_of(g, i, rank)];
    s.variance += (x.at(i) - s.mean) * (x.at(i) - s.mean) / s.count;
  });
  return all;
}

// Local response normalisation: y = x · d^(−3/4), d = 1 + 1/size · Σ x² over the neighbouring
// channels. The factor of the sum is 1 instead of the customary 1e-4 so that a neglected neighbour
// shows.
constexpr double response_power = 0.75;

double response_scale(const PartInput& input, const Norm& norm, const Index& index) {
  const std::int64_t channels = input.inputs[0].axes[0].extent;
  double sum = 0;
  for (std::int64_t c = index[1] - norm.size / 2; c <= index[1] + (norm.size - 1) / 2; ++c) {
    if (c < 0 || c >= channels) continue;
    Index neighbour = index;
    neighbour[1] = c;
    const double x = input.activations[0].at(neighbour);
    sum += x * x;
  }
  return 1 + sum / static_cast<double>(norm.size);
}

Block response_forward(const PartInput& input, const Norm& norm) {
  Block out(input.part.out);
  for_each_index(out.box(), [&](const Index& i) {
    out.at(i) =
        input.activations[0].at(i) * std::pow(response_scale(input, norm, i), -response_power);
  });
  return out;
}

PartGradients response_backward(const PartInput& input, const Norm& norm, const Block& gradient) {
  PartGradients result = zero_gradients(input);
  const Block& x = input.activations[0];
  const std::int64_t channels = input.inputs[0].axes[0].extent;
  for_each_index(input.part.out, [&](const Index& i) {
    const double d = response_scale(input, norm, i);
    result.activations[0].at(i) += gradient.at(i) * std::pow(d, -response_power);
    // ∂y/∂x_c through the sum: −(3/4) · x · d^(−7/4) · 2 x_c / size
    const double through_sum = gradient.at(i) * x.at(i) * -response_power *
                               std::pow(d, -response_power - 1) * 2 /
                               static_cast<double>(norm.size);
    for (std::int64_t c = i[1] - norm.size / 2; c <= i[1] + (norm.size - 1) / 2; ++c) {
      if (c < 0 || c >= channels) continue;
      Index neighbour = i;
      neighbour[1] = c;
      result.activations[0].at(neighbour) += through_sum * x.at(neighbour);
    }
  });
  return result;
}

}  // namespace

Block norm_forward(const PartInput& input, const Norm& norm) {
  if (norm.kind == NormKind::local_response) return response_forward(input, norm);
  const Grouping g = grouping(input, norm);
  const Block& x = input.activations[0];
  const auto all = statistics(x, g);
  Block out(input.part.out);
  for_each_index(out.box(), [&](const Index& i) {
    const Statistics& s = all.at(key_of(g, i, out.box().rank()));
    double y = (x.at(i) - s.mean) / std::sqrt(s.variance + epsilon);
    if (norm.affine) {
      const Index channel{i[g.channel_axis]};
      y = y * input.parameters[0].at(channel) + input.parameters[1].at(channel);
    }
    out.at(i) = y;
  });
  return out;
}

// With x̂ = (x − mean)/σ over a group of n elements and y = x̂·scale + shift for those of the part:
//
//     ∂L/∂x_j = (ĝ_j − Σĝ/n − x̂_j · Σ(ĝ·x̂)/n) / σ,   ĝ = gradient · scale, 0 outside the part
PartGradients norm_backward(const PartInput& input, const Norm& norm, const Block& out_gradient) {
  if (norm.kind == NormKind::local_response) return response_backward(input, norm, out_gradient);
  const Grouping g = grouping(input, norm);
  const Block& x = input.activations[0];
  const std::size_t rank = x.box().rank();
  auto all = statistics(x, g);
  PartGradients result = zero_gradients(input);
  Block scaled(x.box());
  for_each_index(input.part.out, [&](const Index& i) {
    Statistics& s = all.at(key_of(g, i, rank));
    const double normal = (x.at(i) - s.mean) / std::sqrt(s.variance + epsilon);
    double gradient = out_gradient.at(i);
    if (norm.affine) {
      const Index channel{i[g.channel_axis]};
      result.parameters[0].at(channel) += gradient * normal;
      result.parameters[1].at(channel) += gradient;
      gradient *= input.parameters[0].at(channel);
    }
    scaled.at(i) = gradient;
    s.gradient_sum += gradient;
    s.gradient_times_x += gradient * normal;
  });
  for_each_index(x.box(), [&](const Index& i) {
    const Statistics& s = all.at(key_of(g, i, rank));
    const double sigma = std::sqrt(s.variance + epsilon);
    const double normal = (x.at(i) - s.mean) / sigma;
    result.activations[0].at(i) =
        (scaled.at(i) - s.gradient_sum / s.count - normal * s.gradient_times_x / s.count) / sigma;
  });
  return result;
}

}  // namespace parsim::testing
