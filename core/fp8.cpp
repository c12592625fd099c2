#include "core/fp8.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace parsim {

namespace {

bool reads(const Layer& layer, LayerId producer) {
  return std::find(layer.inputs.begin(), layer.inputs.end(), producer) != layer.inputs.end();
}

/// An output head or a router: what reads the product is a loss or a softmax.
bool decides(const Network& network, LayerId id) {
  for (std::size_t next = id.index() + 1; next < network.layers.size(); ++next) {
    const Layer& reader = network.layers[next];
    if (!reads(reader, id)) continue;
    if (reader.kind.as<Rearrange>() != nullptr || reader.kind.as<Flatten>() != nullptr) {
      return decides(network, LayerId{next});
    }
    return reader.kind.as<Loss>() != nullptr || reader.kind.as<Softmax>() != nullptr;
  }
  return true;  // the network's output
}

}  // namespace

bool multiplies_in_fp8(const Network& network, LayerId id) {
  const Layer& layer = network[id];
  const bool linear = layer.kind.as<Dense>() != nullptr || layer.kind.as<ExpertDense>() != nullptr;
  if (!linear) return false;
  const std::int64_t channels = network[layer.inputs[0]].out.axes.back().extent;
  return channels % fp8_multiple == 0 && layer.out.axes.back().extent % fp8_multiple == 0 &&
         !decides(network, id);
}

bool casts_input(const Network& network, LayerId id) {
  const LayerId input = network[id].inputs[0];
  for (std::size_t other = input.index() + 1; other < id.index(); ++other) {
    const bool same = reads(network.layers[other], input);
    if (same && multiplies_in_fp8(network, LayerId{other})) return false;
  }
  return true;
}

Fp8Cast fp8_cast(Precision recipe, const DeviceModel& model) {
  constexpr double read = 2, written = 1, scale = 4.0 / 128;
  const bool blocks = recipe == Precision::fp8_blockwise;
  const double capability = to_number<double>(model.architecture).value_or(0);
  const bool any_layout = (capability >= 10 && capability < 12) || capability >= 13;
  const bool looks_first = recipe == Precision::fp8;
  Fp8Cast cast;
  cast.copies = any_layout && !blocks ? 1 : 2;
  cast.bytes = (looks_first ? 2 : 1) * read +
               static_cast<double>(cast.copies) * (written + (blocks ? scale : 0));
  cast.launches = looks_first ? 2 : 1;
  return cast;
}

Fp8Weights::Fp8Weights(const Network& network, Precision precision) {
  if (!multiplies_in_fp8(precision)) return;
  cast_.resize(network.parameters.size());
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    // The first parameter is the matrix, the second a bias.
    if (multiplies_in_fp8(network, LayerId{l})) {
      cast_[network.layers[l].parameters[0].index()] = true;
    }
  }
}

std::int64_t Fp8Weights::elements(std::span<const std::pair<ParameterId, Region>> parts) const {
  std::int64_t all = 0;
  for (const auto& [parameter, region] : parts) all += contains(parameter) ? region.volume() : 0;
  return all;
}

}  // namespace parsim
