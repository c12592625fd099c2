// Which layer outputs the backward pass reads.
#include "lowering/kept_activations.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "core/fp8.hpp"
#include "lowering/fragments.hpp"
#include "lowering/memory.hpp"

namespace parsim::lowering {

namespace {

/// Whether a function's gradient follows from its output. For others, such as gelu, silu and
/// hardswish, the input is kept as well.
bool forgets_input(const Activation& activation) {
  static const std::set<std::string_view> functions{
      "relu", "leakyrelu",   "thresholdedrelu", "clip",     "elu", "celu", "selu",     "sigmoid",
      "tanh", "hardsigmoid", "softplus",        "softsign", "exp", "sqrt", "identity", "rotary"};
  return functions.contains(activation.function);
}

/// Whether a layer's gradients follow from the values of its operands.
bool reads_operands(const LayerKind& kind) {
  const auto among = [](const std::set<std::string_view>& names, const std::string& word) {
    return names.contains(word);
  };
  if (const auto* pool = kind.as<Pool>()) return pool->kind == PoolKind::max;
  if (const auto* activation = kind.as<Activation>()) return !forgets_input(*activation);
  if (const auto* combine = kind.as<Combine>()) return !among({"add", "sub"}, combine->function);
  if (const auto* reduce = kind.as<Reduce>()) return !among({"mean", "sum"}, reduce->function);
  return kind.as<Dropout>() == nullptr && kind.as<Concat>() == nullptr &&
         kind.as<HeadConcat>() == nullptr && kind.as<Slicing>() == nullptr &&
         kind.as<Flatten>() == nullptr && kind.as<Rearrange>() == nullptr &&
         kind.as<Softmax>() == nullptr &&
         kind.as<ExpertDispatch>() == nullptr;  // only the slots that tokens took, which are few
}

/// Whether a layer's gradients follow from its output: for max pooling, because the output locates
/// the maxima; for attention, whose scores are recomputed and multiplied by it.
bool reads_output(const LayerKind& kind) {
  if (kind.as<Attention>() != nullptr) return true;
  if (const auto* pool = kind.as<Pool>()) return pool->kind == PoolKind::max;
  if (const auto* activation = kind.as<Activation>()) {
    return forgets_input(*activation) && activation->function != "identity" &&
           activation->function != "rotary";
  }
  if (const auto* reduce = kind.as<Reduce>()) {
    return reduce->function != "mean" && reduce->function != "sum";
  }
  return kind.as<Softmax>() != nullptr;
}

}  // namespace

bool works_in_place(const LayerKind& kind) {
  const auto* rearrange = kind.as<Rearrange>();
  const auto* activation = kind.as<Activation>();
  return (activation != nullptr && forgets_input(*activation)) || kind.as<Softmax>() != nullptr ||
         kind.as<Flatten>() != nullptr || (rearrange != nullptr && !rearrange->moves_data);
}

StaysFor outputs_stay(const Plan& plan) {
  if (!of_megatron(plan.framework)) return [](LayerId, LayerId) { return true; };
  return [&layers = plan.layers](LayerId producer, LayerId reader) {
    const std::vector<DeviceId>& makes = layers[producer.index()].devices;
    const std::vector<DeviceId>& reads = layers[reader.index()].devices;
    if (makes == reads) return true;  // nearly always
    const std::set<DeviceId> among(reads.begin(), reads.end());
    return std::any_of(makes.begin(), makes.end(),
                       [&](DeviceId device) { return among.contains(device); });
  };
}

std::vector<std::int64_t> elements_kept(const LayerFragment& layer, const FanOut& readers) {
  std::vector<std::int64_t> elements;
  for (const Cell& cell : layer.cells) elements.push_back(cell.part.out.volume());
  for (std::size_t s = 0; s < readers.sums.size(); ++s) {
    const LayerFragment::Sum& sum = layer.sums[s];
    for (std::size_t d = 0; d < readers.sums[s].shares.size(); ++d) {
      for (const std::int32_t c : sum.cells) {
        const auto cell = static_cast<std::size_t>(c);
        if (layer.devices[cell] == sum.devices[d])
          elements[cell] = readers.sums[s].shares[d].volume();
      }
    }
  }
  return elements;
}

std::vector<std::int64_t> kept_bytes(const Network& network, Precision precision) {
  return kept_bytes(network, precision, [](LayerId, LayerId) { return true; });
}

std::vector<std::int64_t> kept_bytes(const Network& network, Precision precision,
                                     const StaysFor& stays) {
  const std::size_t count = network.layers.size();
  const std::int64_t element = element_bytes(precision);
  std::vector<bool> in_fp8(count);        // whether an operand of such a product
  std::vector<std::size_t> owner(count);  // whose memory a layer's output is
  std::vector<std::int64_t> bytes(count);
  for (std::size_t l = 0; l < count; ++l) {
    const Layer& layer = network.layers[l];
    owner[l] = works_in_place(layer.kind) ? owner[layer.inputs[0].index()] : l;
    const auto reads = [&](std::size_t own) { return stays(LayerId{own}, LayerId{l}); };
    if (reads_output(layer.kind) && reads(owner[l])) {
      bytes[owner[l]] = std::max(bytes[owner[l]], element);
    }
    constexpr std::int64_t single = 4;
    const bool loss = layer.kind.as<Loss>() != nullptr;
    if (multiplies_in_fp8(precision) && multiplies_in_fp8(network, LayerId{l})) {
      const std::size_t own = owner[layer.inputs[0].index()];
      in_fp8[own] = in_fp8[own] || reads(own);
      continue;
    }
    for (const LayerId producer : layer.inputs) {
      const std::size_t own = owner[producer.index()];
      if (!reads_operands(layer.kind) || !reads(own)) continue;
      bytes[own] = std::max({bytes[own], element, loss ? single : 0});
    }
  }
  for (std::size_t l = 0; l < count; ++l) {
    if (network.layers[l].kind.as<Dropout>() != nullptr) ++bytes[l];
    if (in_fp8[l]) ++bytes[l];
  }
  return bytes;
}

}  // namespace parsim::lowering
