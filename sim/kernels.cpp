#include "sim/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/errors.hpp"
#include "core/fp8.hpp"
#include "sim/elementwise.hpp"

namespace parsim::sim {

namespace {

/// What a pass of a part reads and writes, in elements.
struct Traffic {
  double in = 0, out = 0, parameters = 0;
  [[nodiscard]] double all() const { return in + out + parameters; }
};

/// With fewer channels, Winograd's transforms are not amortised.
constexpr std::int64_t least_winograd_channels = 16;

std::int64_t volume_from(const Region& region, std::size_t axis) {
  std::int64_t volume = 1;
  for (; axis < region.rank(); ++axis) volume *= region[axis].size();
  return volume;
}

/// Smaller kernels use Winograd's algorithm, which is faster than FFT.
constexpr std::int64_t least_spectral_kernel = 5;

/// The GEMMs of the three passes; `data` is that of the input gradient.
struct Gemms {
  Kernel forward, data, weights;
};

/// Of the whole layer: parts with few of its channels run the same kernels.
KernelShape shape_of(const Conv& conv, std::int64_t in_channels, std::int64_t taps, bool strided) {
  constexpr std::int64_t least_channels = 8, most_taps = 32, whole_channels = 64;
  if (conv.groups > 1) {
    const std::int64_t width = in_channels / conv.groups;
    const bool even = in_channels == conv.filters && (width & (width - 1)) == 0;
    return even ? KernelShape::even_groups : KernelShape::grouped;
  }
  if (in_channels < least_channels) return KernelShape::few_channels;
  if (taps == 1) return strided ? KernelShape::strided_pointwise : KernelShape::pointwise;
  if (taps > most_taps) return KernelShape::many_taps;
  if (strided) return KernelShape::strided;
  const bool whole = in_channels % whole_channels == 0 && conv.filters % whole_channels == 0;
  return whole ? KernelShape::plain : KernelShape::ragged;
}

/// Filters of a channel each: 3 x 3 and 5 x 5 have kernels of their own.
void make_depthwise(const Conv& conv, std::int64_t outputs, std::int64_t taps, Gemms& all) {
  const std::int64_t size = conv.windows[0].kernel;
  const bool common =
      conv.windows.size() == 2 && size == conv.windows[1].kernel && (size == 3 || size == 5);
  all.forward.op = common ? Operator::depthwise_forward : Operator::depthwise_other_forward;
  all.data.op = common ? Operator::depthwise_data : Operator::depthwise_other_data;
  all.weights.op = common ? Operator::depthwise_weights : Operator::depthwise_other_weights;
  for (Kernel* kernel : {&all.forward, &all.data, &all.weights}) {
    kernel->kind = KernelClass::memory;
    kernel->steps = static_cast<double>(outputs) * static_cast<double>(taps);
  }
}

Gemms gemms_of(const Conv& conv, const Region& in, std::int64_t in_channels, const Part& part) {
  std::int64_t taps = 1, strides = 1;
  bool square = conv.windows.size() == 2 && conv.groups == 1;
  for (const Window& window : conv.windows) {
    taps *= window.kernel;
    strides *= window.stride;
    square = square && window.stride == 1 && window.dilation == 1 &&
             window.kernel == conv.windows[0].kernel;
  }
  const std::int64_t filters = part.out[1].size();
  const std::int64_t per_group = conv.filters / conv.groups;
  // Groups that the part's filters belong to, in whole or in part.
  const std::int64_t groups =
      conv.groups == 1 ? 1 : (part.out[1].end - 1) / per_group - part.out[1].begin / per_group + 1;
  const std::int64_t n = (filters + groups - 1) / groups;
  const std::int64_t c = conv.groups == 1 ? in[1].size() : in_channels / conv.groups;
  const std::int64_t outputs = part.out[0].size() * volume_from(part.out, 2);
  const std::int64_t inputs = in[0].size() * volume_from(in, 2);
  const std::int64_t kernel = square ? conv.windows[0].kernel : 0;
  const bool winograd =
      (kernel == 3 || kernel == 5) && std::min(c, filters) >= least_winograd_channels;
  Gemms all;
  all.forward = {KernelClass::forward, 0, 0, outputs, n, c * taps, groups};
  all.data = {KernelClass::backward_data,
              0,
              0,
              inputs,
              c,
              std::max<std::int64_t>(1, n * taps / strides),
              groups};
  all.weights = {KernelClass::backward_weights, 0, 0, c * taps, n, outputs, groups};
  if (kernel >= least_spectral_kernel && kernel < Spectrum::tile / 2) {
    const std::int64_t step = Spectrum::tile - kernel + 1;  // outputs of a tile, per side
    std::int64_t tiles = part.out[0].size();
    for (std::size_t axis = 2; axis < part.out.rank(); ++axis) {
      tiles *= (part.out[axis].size() + step - 1) / step;
    }
    all.forward.spectrum = {tiles, filters, c};
    all.data.spectrum = {tiles, c, filters};
    all.weights.spectrum = {c, filters, tiles};
  }
  if (kernel == 3) {
    const auto image_of = [](const Region& region) {
      return Image{region[0].size(), region[2].size(), region[3].size()};
    };
    all.forward.image = all.weights.image = image_of(part.out);
    all.data.image = image_of(in);
  }
  for (Kernel* gemm_kernel : {&all.forward, &all.data, &all.weights}) {
    gemm_kernel->winograd = winograd ? kernel : 0;
    gemm_kernel->shape = shape_of(conv, in_channels, taps, strides > 1);
  }
  // A filter per channel has nothing to reuse.
  if (conv.groups > 1 && c == 1) make_depthwise(conv, outputs * filters, taps, all);
  return all;
}

/// A library lays the longer side of the result along the longer side of its tiles.
Kernel gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batches = 1) {
  Kernel kernel{KernelClass::gemm, 0, 0, std::max(m, n), std::min(m, n), k, batches};
  kernel.exchanged = n > m;
  return kernel;
}

/// The three products of y[m,n] = x[m,k] · w[k,n], whose tensors have rows of n and k.
Gemms gemms_of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batches = 1) {
  Gemms all{gemm(m, n, k, batches), gemm(m, k, n, batches), gemm(k, n, m, batches)};
  all.data.shape = KernelShape::nn;
  all.weights.shape = KernelShape::nt;
  for (Kernel* kernel : {&all.forward, &all.data, &all.weights}) {
    while (n % kernel->row_alignment != 0 || k % kernel->row_alignment != 0) {
      kernel->row_alignment /= 2;
    }
  }
  return all;
}

Gemms gemms_of(const Dense&, const Region& in, const Part& part) {
  const std::int64_t units = part.out[part.out.rank() - 1].size();
  const std::int64_t rows = part.out.volume() / std::max<std::int64_t>(1, units);
  const std::int64_t channels = in[in.rank() - 1].size();
  return gemms_of(rows, units, channels);
}

/// A product for each expert, of the tokens of all samples that it has.
Gemms gemms_of(const ExpertDense& dense, const Shape& out, const Region& in, const Part& part) {
  const std::int64_t experts = part.out[1].size(), units = part.out[3].size();
  const auto slots = static_cast<double>(part.out[0].size() * part.out[2].size());
  const auto tokens = std::llround(slots * tokens_over_average(dense, out, part));
  return gemms_of(std::max<std::int64_t>(1, tokens), units, in[3].size(), experts);
}

/// `data` is the gradient of the left operand, `weights` that of the right one.
Gemms gemms_of(const MatMul&, const Region& left, const Part& part) {
  const std::size_t rank = part.out.rank();
  const std::int64_t m = part.out[rank - 2].size(), n = part.out[rank - 1].size();
  const std::int64_t k = left[left.rank() - 1].size();
  const std::int64_t batches = part.out.volume() / std::max<std::int64_t>(1, m * n);
  return gemms_of(m, n, k, batches);
}

/// Each block of queries of a head loops over the keys: two matmuls forward, five backward, of
/// which the first recomputes the scores (Dao et al. 2022, algorithms 1 and 4).
///
/// Of the five, three sum over the width of queries and keys or make it, two that of the values.
///
/// queries           elements of the queries that the part reads
/// flops, elements   of the two forward matmuls, and of what is read and written forward
Kernel attention_kernel(const Attention& attention, const Shape& values, const Part& part,
                        double queries, double flops, double elements, bool backwards) {
  constexpr double more_elements = 2;  // gradients in addition to all that is read
  const auto made = static_cast<double>(part.out.volume());
  const double more_gemms = (3 * queries + 2 * made) / (queries + made);
  const std::int64_t width = values.axes[1].extent / attention.key_heads;
  const std::int64_t channels = part.out[2].size();
  Kernel kernel;
  kernel.kind = KernelClass::gemm;
  kernel.attends = true;
  // Of a ring's steps only the first one has a mask: others have all of some keys (or half of the
  // queries).
  kernel.masked = attention.causal &&
                  (part.contraction.empty() || !intersect(part.contraction, part.out[1]).empty());
  kernel.windowed = kernel.masked && attention.window > 0 && part.out[1].end > attention.window;
  kernel.backwards = backwards;
  kernel.flops = flops * (backwards ? more_gemms : 1);
  kernel.elements = elements * (backwards ? more_elements : 1);
  kernel.m = part.out[1].size();
  kernel.n = std::min(width, channels);
  kernel.batches = part.out[0].size() * ((channels + width - 1) / width);
  kernel.k = std::max<std::int64_t>(1, std::llround(kernel.flops / (2 * made)));
  kernel.keys = std::max(1.0, flops / (2 * (queries + made)));
  return kernel;
}

Kernel moved(Operator op, double elements) {
  Kernel kernel;
  kernel.elements = kernel.steps = elements;
  kernel.op = op;
  return kernel;
}

/// The softmax of attention whose scores are stored. In networks from ONNX what scales and masks
/// them is a layer of its own.
bool weighs_scores(const Network& network, const Layer& layer) {
  return layer.kind.as<Softmax>() != nullptr && layer.out.axes.front().dim == Dim::head &&
         network[layer.inputs[0]].kind.as<MatMul>() != nullptr;
}

bool has_bias(const LayerKind& kind) {
  const Conv* conv = kind.as<Conv>();
  const Dense* dense = kind.as<Dense>();
  const ExpertDense* experts = kind.as<ExpertDense>();
  return (conv != nullptr && conv->bias) || (dense != nullptr && dense->bias) ||
         (experts != nullptr && experts->bias);
}

}  // namespace

double Kernel::bytes(std::int64_t element_bytes) const {
  constexpr std::int64_t fp32 = sizeof(float);
  const auto each = static_cast<double>(element_bytes);
  const double conversions = element_bytes == fp32 ? 0 : converted * (each + fp32);
  return elements * each + fp32_elements * fp32 + conversions + masks;
}

Kernels kernels_of(const Network& network, LayerId id, const Part& part, Pass pass, Fusion fusion,
                   bool fp8) {
  const Layer& layer = network[id];
  const LayerKind& kind = layer.kind;
  const Rearrange* rearrange = kind.as<Rearrange>();
  const Activation* function = kind.as<Activation>();
  if (kind.as<Input>() != nullptr || kind.as<Flatten>() != nullptr ||
      (function != nullptr && function->function == "identity") ||
      (rearrange != nullptr && !rearrange->moves_data)) {
    return {};
  }
  const std::vector<Shape> shapes = input_shapes(network, id);
  Traffic traffic;
  traffic.out = static_cast<double>(part.out.volume());
  Region first;
  std::vector<double> inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Region in = input_region(kind, shapes, layer.out, i, part);
    if (i == 0) first = in;
    inputs.push_back(static_cast<double>(in.volume()));
    traffic.in += inputs.back();
  }
  const bool looks_up = kind.as<Embedding>() != nullptr;
  for (std::size_t i = 0; i < layer.parameters.size() && !looks_up; ++i) {
    traffic.parameters +=
        static_cast<double>(parameter_region(kind, shapes, layer.out, i, part).volume());
  }
  // A look-up touches the rows it needs, as many elements as it writes.
  if (looks_up) traffic.parameters = traffic.out;

  const bool backwards = pass != Pass::forward && pass != Pass::recompute;
  Kernels kernels;
  const auto push = [&](Kernel kernel) { kernels.list[kernels.count++] = kernel; };
  const double flops = forward_flops(kind, shapes, layer.out, part).value;
  if (kind.as<Loss>() != nullptr) {
    push(loss_kernel(traffic.in, backwards, fusion));
    return kernels;
  }
  if (flops <= 0) {
    auto kernel =
        memory_kernel(network, id, inputs, traffic.out, traffic.parameters, backwards, fusion);
    // PyTorch's gradient of a table is dense: zeros first.
    if (looks_up && backwards && fusion == Fusion::none) {
      kernel->elements +=
          static_cast<double>(parameter_region(kind, shapes, layer.out, 0, part).volume());
    }
    if (fusion == Fusion::none && weighs_scores(network, layer)) {
      // PyTorch's models scale and mask the scores in kernels of their own (transformers:
      // BertSelfAttention, GPT2Attention); a mask that is added has no gradient.
      push(moved(Operator::mul, 2 * traffic.out));
      if (!backwards) push(moved(Operator::add, 2 * traffic.out));
    }
    if (kernel) push(*kernel);
    return kernels;
  }
  if (const Attention* attention = kind.as<Attention>()) {
    push(attention_kernel(*attention, shapes[2], part, inputs[0], flops, traffic.all(), backwards));
    return kernels;
  }
  Gemms gemms;
  if (const Conv* conv = kind.as<Conv>()) {
    gemms = gemms_of(*conv, first, shapes[0].axes[0].extent, part);
  } else if (const Dense* dense = kind.as<Dense>()) {
    gemms = gemms_of(*dense, first, part);
  } else if (const ExpertDense* experts = kind.as<ExpertDense>()) {
    gemms = gemms_of(*experts, layer.out, first, part);
  } else if (const MatMul* gemm_kernel = kind.as<MatMul>()) {
    gemms = gemms_of(*gemm_kernel, first, part);
  } else {
    throw BrokenInvariant("every layer kind with FLOPs has its GEMMs");
  }
  const auto width = [](const Region& of) { return of[of.rank() - 1].size(); };
  const bool in_fp8 = fp8 && multiplies_in_fp8(network, id) &&
                      width(part.out) % fp8_multiple == 0 && width(first) % fp8_multiple == 0;
  const auto push_cast = [&](double elements) {
    Kernel cast;
    cast.casts = elements;
    push(cast);
  };
  const auto push_gemm = [&](Kernel gemm_kernel) {
    gemm_kernel.elements = traffic.all();
    gemm_kernel.flops = flops;
    gemm_kernel.in_fp8 = in_fp8;
    push(gemm_kernel);
  };
  if (!backwards) {
    if (in_fp8 && casts_input(network, id)) push_cast(static_cast<double>(first.volume()));
    push_gemm(gemms.forward);
    // PyTorch adds the bias of a convolution apart, that of a product within it.
    const Conv* conv = kind.as<Conv>();
    if (conv != nullptr && conv->bias && fusion == Fusion::none) {
      push(moved(Operator::bias, 2 * traffic.out));
    }
    return kernels;
  }
  const bool two_operands = kind.as<MatMul>() != nullptr;
  if (in_fp8 && pass != Pass::backward_weights) push_cast(traffic.out);
  if (pass != Pass::backward_weights) {
    push_gemm(gemms.data);
    if (two_operands) push_gemm(gemms.weights);
  }
  if (pass == Pass::backward_data || two_operands) return kernels;
  push_gemm(gemms.weights);
  if (has_bias(kind)) {  // sums the gradient of the output
    push(moved(fusion == Fusion::none ? Operator::sum_rows : Operator::other, traffic.out));
  }
  return kernels;
}

}  // namespace parsim::sim
