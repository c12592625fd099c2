#include "sim/elementwise.hpp"

#include <algorithm>
#include <numeric>

#include "core/errors.hpp"

namespace parsim::sim {

namespace {

bool adds(const LayerKind& kind) {
  const Combine* combine = kind.as<Combine>();
  return combine != nullptr && (combine->function == "add" || combine->function == "sub");
}

bool multiplies(const LayerKind& kind) {
  const Combine* combine = kind.as<Combine>();
  return combine != nullptr && combine->function == "mul";
}

bool by_line(const Norm& norm) { return norm.kind == NormKind::layer; }

/// Sums over other axes than the last come first, in a pass of their own.
bool in_two_passes(const LayerKind& kind) {
  const Norm* norm = kind.as<Norm>();
  return norm != nullptr && norm->kind != NormKind::local_response && !by_line(*norm);
}

/// A norm over the last axis without scale and shift is the first half of an RMS norm.
bool is_root_mean_square(const LayerKind& kind) {
  const Norm* norm = kind.as<Norm>();
  return norm != nullptr && by_line(*norm) && !norm->affine;
}

bool rotates(const LayerKind& kind) {
  const Activation* activation = kind.as<Activation>();
  return activation != nullptr && activation->function == "rotary";
}

/// True if the gradient of the input does not depend on the input.
bool is_linear(const LayerKind& kind) {
  if (const Pool* pool = kind.as<Pool>()) return pool->kind == PoolKind::average;
  if (const Reduce* reduce = kind.as<Reduce>()) {
    return reduce->function == "mean" || reduce->function == "sum";
  }
  return adds(kind) || rotates(kind) || kind.as<Dropout>() != nullptr ||
         kind.as<Concat>() != nullptr || kind.as<HeadConcat>() != nullptr ||
         kind.as<Slicing>() != nullptr || kind.as<Rearrange>() != nullptr ||
         kind.as<ExpertDispatch>() != nullptr;
}

bool joins(const LayerKind& from, const LayerKind& to, Fusion fusion) {
  switch (fusion) {
    case Fusion::none:
      return false;
    case Fusion::compiled:
      // Inductor joins what has one loop: a sum over a whole channel begins another one.
      return is_elementwise(from) && is_elementwise(to) && !in_two_passes(to);
    case Fusion::megatron:
      // bias_swiglu and bias_geglu, bias_dropout_add, and RMS norms of apex and Transformer Engine.
      return (from.as<Activation>() != nullptr && !rotates(from) && multiplies(to)) ||
             (from.as<Dropout>() != nullptr && adds(to)) ||
             (is_root_mean_square(from) && multiplies(to));
  }
  return false;
}

bool reads(const Layer& layer, LayerId producer) {
  return std::find(layer.inputs.begin(), layer.inputs.end(), producer) != layer.inputs.end();
}

/// How a layer is connected within its chain.
struct Joints {
  std::vector<bool> inputs;  ///< the producer computes in the same kernel
  bool joined = false;       ///< so does the first reader
  bool kept = false;         ///< what no other reader reads
};

Joints joints_of(const Network& network, LayerId id, Fusion fusion) {
  const Layer& layer = network[id];
  Joints joints{std::vector<bool>(layer.inputs.size()), false, false};
  if (fusion == Fusion::none || !is_elementwise(layer.kind)) return joints;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    joints.inputs[i] = joined_reader(network, layer.inputs[i], fusion) == id;
  }
  const std::optional<LayerId> reader = joined_reader(network, id, fusion);
  if (!reader) return joints;
  joints.joined = true;
  joints.kept = std::none_of(network.layers.begin() + reader->value + 1, network.layers.end(),
                             [&](const Layer& other) { return reads(other, id); });
  return joints;
}

/// True if the gradient of `from`'s output stays in the kernel that computes it. Additions hand
/// their gradient on without a kernel.
bool keeps_gradient(const LayerKind& from, const LayerKind& to) { return !adds(from) && !adds(to); }

/// What reads the gradients of several readers and writes their sum, before the layer's own
/// kernel: autograd adds them in pairs, Inductor in the kernel that makes the last one. Matrix
/// products of one input are one product in trainers (networks/transformer.cpp).
void add_sums(const Network& network, LayerId id, double out, Fusion fusion, Kernel& kernel) {
  int gradients = 0;
  bool product = false;
  for (std::size_t next = id.index() + 1; next < network.layers.size(); ++next) {
    const Layer& reader = network.layers[next];
    if (!reads(reader, id)) continue;
    const bool dense = reader.kind.as<Dense>() != nullptr;
    gradients += dense && product ? 0 : 1;
    product |= dense;
  }
  const int sums = std::max(0, gradients - 1);
  const bool compiled = fusion == Fusion::compiled;
  kernel.elements += sums * (compiled ? 1 : 3) * out;
  kernel.launches += compiled ? 0 : sums;
}

Operator operator_of(const Norm& norm) {
  switch (norm.kind) {
    case NormKind::batch:
      return Operator::batch_norm;
    case NormKind::layer:
      return norm.affine ? Operator::layer_norm : Operator::rms_norm;
    case NormKind::group:
    case NormKind::instance:
      return Operator::group_norm;
    case NormKind::local_response:
      return Operator::other;
  }
  throw BrokenInvariant("a normalisation outside its enum");
}

Operator operator_of(const Pool& pool, const Shape& out) {
  if (pool.kind == PoolKind::max) return Operator::max_pool;
  const bool global = std::all_of(out.axes.begin() + 1, out.axes.end(),
                                  [](const Axis& a) { return a.extent == 1; });
  return global ? Operator::global_avg_pool : Operator::avg_pool;
}

/// PyTorch's, if a layer is one operator of it.
Operator operator_of(const LayerKind& kind, const Shape& out, bool backwards) {
  if (const Norm* norm = kind.as<Norm>()) return operator_of(*norm);
  if (const Pool* pool = kind.as<Pool>()) return operator_of(*pool, out);
  if (kind.as<Reduce>() != nullptr) return Operator::global_avg_pool;
  if (kind.as<Activation>() != nullptr && !rotates(kind)) return Operator::activation;
  if (kind.as<Dropout>() != nullptr) return Operator::dropout;
  if (kind.as<Softmax>() != nullptr) return Operator::softmax;
  if (kind.as<Embedding>() != nullptr) return Operator::embedding;
  // The gradient of what was joined is read where it lies; the next kernel wants it by itself.
  if (kind.as<Concat>() != nullptr) return backwards ? Operator::copy : Operator::cat;
  if (kind.as<HeadConcat>() != nullptr) return Operator::cat;
  if (kind.as<Rearrange>() != nullptr) return Operator::transpose;
  if (kind.as<Slicing>() != nullptr) return Operator::copy;
  if (adds(kind)) return Operator::add;
  if (multiplies(kind)) return Operator::mul;
  return Operator::other;
}

/// Pooling visits every tap of its outputs.
double steps_of(const LayerKind& kind, Operator op, double out, double elements) {
  if (op != Operator::max_pool && op != Operator::avg_pool) return elements;
  double taps = 1;
  for (const Window& window : kind.as<Pool>()->windows) taps *= static_cast<double>(window.kernel);
  return out * taps;
}

/// RMS norms and rotary positions as models of Hugging Face write them, whose every operation is a
/// kernel: elements read and written in the precision of the step and in FP32, conversions (a read
/// and a write), kernels.
struct Written {
  double elements = 0, fp32 = 0, converted = 0, launches = 0;
};
/// x / sqrt(mean(x^2) + e) in FP32: conversion, square (2), mean (1), sum and root of each row,
/// product (2), conversion. Backward of the products (2, 3), the rows' sum (1), the mean and the
/// square (2 + 2), the sum of both gradients (3), and the conversions.
/// Source: transformers, LlamaRMSNorm.forward.
constexpr Written rms_norm_forward{0, 5, 2, 7}, rms_norm_backward{0, 13, 2, 11};
/// x cos + rotate_half(x) sin: two products (2 each), a negated half (1), both halves joined (2), a
/// sum (3). Backward two products (4), a half (1), two slices (zeros and a copy, 4), two sums (6).
/// Source: transformers, apply_rotary_pos_emb.
constexpr Written rotary_forward{10, 0, 0, 5}, rotary_backward{15, 0, 0, 9};

void write(Kernel& kernel, const Written& written, double out) {
  kernel.elements = written.elements * out;
  kernel.fp32_elements = written.fp32 * out;
  kernel.converted = written.converted * out;
  kernel.launches = written.launches;
  kernel.op = Operator::other;
}

/// A kernel for each layer. Backward it reads the gradient of its output and, unless it is linear,
/// the activation, and writes the gradient of its input; that of a sum stands for the sum of
/// gradients where a tensor has two readers.
Kernel kernel_of_layer(const Layer& layer, double in, double out, double parameters,
                       bool backwards) {
  const LayerKind& kind = layer.kind;
  const Norm* norm = kind.as<Norm>();
  const bool two_passes = norm != nullptr && norm->kind != NormKind::local_response;
  const bool linear = is_linear(kind) && kind.as<Dropout>() == nullptr && !rotates(kind);
  Kernel kernel;
  kernel.elements = in + out + parameters;
  if (backwards) kernel.elements += (linear ? 0 : in) + (two_passes ? in + out : 0);
  if (!backwards && two_passes) kernel.elements += in;
  kernel.normalises = norm != nullptr;
  kernel.op = operator_of(kind, layer.out, backwards);
  kernel.backwards = backwards && kernel.op != Operator::copy;
  kernel.steps = steps_of(kind, kernel.op, out, kernel.elements);
  if (is_root_mean_square(kind))
    write(kernel, backwards ? rms_norm_backward : rms_norm_forward, out);
  if (rotates(kind)) write(kernel, backwards ? rotary_backward : rotary_forward, out);
  return kernel;
}

}  // namespace

bool is_elementwise(const LayerKind& kind) {
  const Norm* norm = kind.as<Norm>();
  return kind.as<Activation>() != nullptr || kind.as<Dropout>() != nullptr ||
         kind.as<Combine>() != nullptr || kind.as<Softmax>() != nullptr ||
         (norm != nullptr && norm->kind != NormKind::local_response);
}

std::optional<LayerId> joined_reader(const Network& network, LayerId id, Fusion fusion) {
  const Layer& layer = network[id];
  if (fusion == Fusion::none || !is_elementwise(layer.kind)) return std::nullopt;
  for (std::size_t next = id.index() + 1; next < network.layers.size(); ++next) {
    const Layer& reader = network.layers[next];
    if (!reads(reader, id)) continue;
    if (reader.out != layer.out || !joins(layer.kind, reader.kind, fusion)) return std::nullopt;
    return LayerId{next};
  }
  return std::nullopt;
}

std::optional<Kernel> memory_kernel(const Network& network, LayerId id,
                                    std::span<const double> inputs, double out, double parameters,
                                    bool backwards, Fusion fusion) {
  const Layer& layer = network[id];
  const LayerKind& kind = layer.kind;
  const double in = std::accumulate(inputs.begin(), inputs.end(), 0.0);
  if (fusion == Fusion::none) return kernel_of_layer(layer, in, out, parameters, backwards);
  Kernel kernel;
  kernel.elements = parameters;
  kernel.normalises = kind.as<Norm>() != nullptr;
  const Norm* norm = kind.as<Norm>();
  const bool two_passes = in_two_passes(kind);
  // A byte for each element says what was dropped; Inductor draws the same numbers again.
  if (kind.as<Dropout>() != nullptr && fusion != Fusion::compiled) kernel.masks = out;
  const Joints joints = joints_of(network, id, fusion);
  if (!backwards) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      kernel.elements += joints.inputs[i] ? 0 : inputs[i];
    }
    kernel.elements += (joints.kept ? 0 : out) + (two_passes ? in : 0);
    kernel.launches = joints.joined ? 0 : 1;
    return kernel;
  }
  if (adds(kind)) {
    // Its gradient is that of its inputs; it is summed over what was broadcast.
    kernel.launches = 0;
    for (const double input : inputs) {
      kernel.elements += input < out ? out + input : 0;
      kernel.launches += input < out ? 1 : 0;
    }
    add_sums(network, id, out, fusion, kernel);
    return kernel.elements > 0 ? std::optional(kernel) : std::nullopt;
  }
  const bool inside =
      joints.kept && keeps_gradient(kind, network[*joined_reader(network, id, fusion)].kind);
  kernel.elements += inside ? 0 : out;
  kernel.launches = inside ? 0 : 1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const LayerKind* producer = joints.inputs[i] ? &network[layer.inputs[i]].kind : nullptr;
    // What has other readers is written for them.
    const bool same = producer != nullptr && joints_of(network, layer.inputs[i], fusion).kept &&
                      keeps_gradient(*producer, kind);
    kernel.elements += same ? 0 : inputs[i];
    const bool again = producer != nullptr && !is_linear(*producer);
    kernel.elements += is_linear(kind) || again ? 0 : inputs[i];
  }
  if (two_passes) kernel.elements += in + out;
  // Scale and shift: PyTorch sums their gradients in a kernel of its own (layer_norm_kernel.cu,
  // GammaBetaBackward), apex and Transformer Engine in that of the input (ln_bwd_kernels.cuh).
  if (norm != nullptr && by_line(*norm) && norm->affine && fusion != Fusion::megatron) {
    kernel.elements += in + out;
    kernel.launches += 1;
  }
  add_sums(network, id, out, fusion, kernel);
  return kernel;
}

/// none       PyTorch with automatic mixed precision: forward a conversion and the logarithm of the
///            softmax, which reads and writes; backward the gradient of the chosen entries (one
///            write), that of the softmax (two reads and a write) and a conversion. Source:
///            PyTorch, "CUDA Ops that can autocast to float32"; SoftMax.cu, NLLLoss.cu
/// compiled   Inductor keeps FP32 in registers: forward it reads for the largest and for the sum,
///            backward it reads and writes
/// megatron   forward a conversion, the largest (1), difference (2), exponentials (2), sum (1) and
///            quotient (2), in place; backward a product (2) and a conversion. Source:
///            megatron/core/tensor_parallel/cross_entropy.py
Kernel loss_kernel(double logits, bool backwards, Fusion fusion) {
  Kernel kernel;
  if (fusion == Fusion::compiled) {
    kernel.elements = 2 * logits;
    return kernel;
  }
  const bool none = fusion == Fusion::none;
  kernel.fp32_elements = logits * (none ? (backwards ? 4 : 2) : (backwards ? 2 : 8));
  kernel.converted = logits;
  kernel.launches = none ? 1 : (backwards ? 2 : 6);
  if (none) {
    kernel.op = Operator::cross_entropy;
    kernel.steps = logits;
    kernel.backwards = backwards;
  }
  return kernel;
}

}  // namespace parsim::sim
