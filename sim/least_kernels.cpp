#include "sim/least_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/winograd.hpp"

namespace parsim::sim {

namespace {

/// Elements along an input's axis that a part of the output reads.
double reads_of(const Window& window, std::int64_t in, Interval out) {
  const std::int64_t first = out.begin * window.stride - window.pad_begin;
  const std::int64_t last =
      (out.end - 1) * window.stride - window.pad_begin + window.dilation * (window.kernel - 1) + 1;
  const Interval read = intersect({first, last}, {0, in});
  return static_cast<double>(read.size());
}

/// What a window means for parts along all axes.
struct Windows {
  double reads = 1;    ///< input elements for each output element, at least
  double whole = 1;    ///< the same of the whole layer
  double strides = 1;  ///< product
};
Windows windows_of(const std::vector<Window>& windows, const Shape& in, const Shape& out) {
  Windows all;
  const std::size_t before = in.axes.size() - windows.size();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const std::int64_t from = in.axes[before + i].extent, to = out.axes[before + i].extent;
    all.reads *= least_reads(windows[i], from, to);
    all.whole *= reads_of(windows[i], from, {0, to}) / static_cast<double>(to);
    all.strides *= static_cast<double>(windows[i].stride);
  }
  return all;
}

/// The inner extent of a convolution's input gradient is rounded down to a whole number, but never
/// to zero: what is left of it for the worst number of filters, or less.
double inner_left(const Conv& conv, double strides) {
  constexpr std::int64_t most_tried = 10'000;
  const std::int64_t most = conv.filters / conv.groups;
  double taps = 1, least = 1;
  for (const Window& window : conv.windows) taps *= static_cast<double>(window.kernel);
  for (std::int64_t filters = 1; filters <= std::min(most, most_tried); ++filters) {
    const double exact = static_cast<double>(filters) * taps / strides;
    least = std::min(least, std::max(1.0, std::floor(exact)) / exact);
  }
  if (most <= most_tried || std::fmod(taps, strides) == 0) return least;
  // Rounding down takes less than 1, and less than half of what is 1 or more.
  const double tried = static_cast<double>(most_tried) * taps / strides;
  return std::min(least, std::max(0.5, 1 - 1 / tried));
}

/// Part of what a pass reads and writes that is left for a part of share 1, at least.
double elements_left(const LayerKind& kind, const std::vector<Shape>& in, const Shape& out) {
  if (const Conv* conv = kind.as<Conv>()) {
    const Windows windows = windows_of(conv->windows, in[0], out);
    return std::min(1.0, windows.reads / windows.whole);
  }
  if (const Pool* pool = kind.as<Pool>()) {
    const Windows windows = windows_of(pool->windows, in[0], out);
    return std::min(1.0, windows.reads / windows.whole);
  }
  if (const Slicing* slicing = kind.as<Slicing>()) {
    return 1 / static_cast<double>(std::max<std::int64_t>(1, slicing->step));
  }
  // Late tokens do up to twice the work of the average one, but read no more of the queries.
  if (const Attention* attention = kind.as<Attention>()) return attention->causal ? 0.5 : 1;
  return 1;
}

}  // namespace

double least_reads(const Window& window, std::int64_t in, std::int64_t out) {
  // What `length` outputs read is a concave function of where they begin, so that it is least at
  // either end. There it is linear between these lengths, and so it is least for each output at
  // one of them: where the first or last element that is read meets the input's begin or end.
  const std::int64_t stride = window.stride;
  const std::int64_t shift = window.dilation * (window.kernel - 1) + 1 - window.pad_begin;
  const std::int64_t end = std::clamp<std::int64_t>((out - 1) * stride + shift, 0, in);
  double least = std::numeric_limits<double>::infinity();
  for (const std::int64_t bend :
       {std::int64_t{1}, out, 1 - shift / stride, 1 + (in - shift) / stride,
        out - window.pad_begin / stride, out - (end + window.pad_begin) / stride}) {
    for (std::int64_t length = bend - 1; length <= bend + 1; ++length) {
      if (length < 1 || length > out) continue;
      const double reads =
          std::min(reads_of(window, in, {0, length}), reads_of(window, in, {out - length, out}));
      least = std::min(least, reads / static_cast<double>(length));
    }
  }
  return least;
}

std::vector<LeastKernel> least_kernels(const Network& network, LayerId id, std::int64_t samples,
                                       Pass pass, Fusion fusion, bool fp8) {
  const Layer& layer = network[id];
  const std::vector<Shape> shapes = input_shapes(network, id);
  const Part all{whole(layer.out, samples), {}};
  const bool backwards = pass != Pass::forward && pass != Pass::recompute;
  // In a chain of joined kernels the sum over what was broadcast is missing where a part has none.
  if (backwards && fusion != Fusion::none && layer.kind.as<Combine>() != nullptr) return {};
  const double left = elements_left(layer.kind, shapes, layer.out);
  const Conv* conv = layer.kind.as<Conv>();
  std::vector<LeastKernel> least;
  for (const Kernel& kernel : kernels_of(network, id, all, pass, fusion, fp8)) {
    if (kernel.casts > 0) continue;
    LeastKernel& one = least.emplace_back(LeastKernel{kernel, kernel.flops});
    for (double* moved : {&one.whole.elements, &one.whole.fp32_elements, &one.whole.converted,
                          &one.whole.masks, &one.whole.steps}) {
      *moved *= left;
    }
    // Tokens of an expert are rounded to a whole number, 1 at least: two thirds of 1.5 are left.
    if (layer.kind.as<ExpertDense>() != nullptr) one.multiplied *= 2.0 / 3;
    if (const Attention* attention = layer.kind.as<Attention>()) {
      const std::int64_t keys = shapes[1].axes[0].extent;
      one.most_keys =
          static_cast<double>(attention->window > 0 ? std::min(attention->window, keys) : keys);
    }
    if (conv == nullptr) continue;
    const Windows windows = windows_of(conv->windows, shapes[0], layer.out);
    if (kernel.kind == KernelClass::backward_data) {
      one.multiplied *= windows.reads / windows.strides * inner_left(*conv, windows.strides);
    }
    if (!kernel.spectrum) continue;
    for (std::size_t i = 0; i < conv->windows.size(); ++i) {
      const std::int64_t step = Spectrum::tile - conv->windows[i].kernel + 1;
      const std::int64_t extent = layer.out.axes[i + 1].extent;
      one.spectral_share *=
          static_cast<double>(extent) / static_cast<double>((extent + step - 1) / step * step);
    }
  }
  return least;
}

namespace {

/// Seconds for so many FLOPs in products no larger than m × n: tiles beyond the result are idle.
double tile_time(double flops, std::int64_t m, std::int64_t n, const TileRates& rates,
                 KernelClass kind, double gain) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    const double idle =
        std::max(1.0, static_cast<double>(tiles[t].rows) / static_cast<double>(m)) *
        std::max(1.0, static_cast<double>(tiles[t].columns) / static_cast<double>(n));
    const double rate =
        rates.rate[static_cast<std::size_t>(kind)][t] * static_cast<double>(rates.multiprocessors);
    least = std::min(least, flops * idle / (rate * gain));
  }
  return least;
}

}  // namespace

LeastTime least_gemm_time(const LeastKernel& gemm, const TileRates& rates,
                          std::int64_t element_bytes) {
  const Kernel& whole = gemm.whole;
  // A part may have too few channels for Winograd's gain.
  const double gain = std::max(direct_rate(whole, rates), tiled_rate(whole, rates));
  const double moved = whole.elements * static_cast<double>(element_bytes) / rates.memory;
  // A part may be better aligned than the layer, never of another shape.
  Kernel aligned = whole;
  aligned.row_alignment = 8;
  const double factor = rates.factors.of(aligned, 16);
  double fixed = rates.overhead * factor;
  double least = factor * std::max(moved, tile_time(gemm.multiplied, whole.m, whole.n, rates,
                                                    whole.kind, gain));
  if (has_winograd(whole, rates)) {
    least = std::min(least, std::max(moved, least_winograd_time(whole, gemm.multiplied, rates)));
  }
  if (whole.spectrum && rates.spectral) {
    const Spectrum& s = *whole.spectrum;
    constexpr double reals = 2, spectrum_bytes = 4;
    const double each = static_cast<double>(Spectrum::frequencies) * gemm.spectral_share;
    const auto m = static_cast<double>(s.m), n = static_cast<double>(s.n),
               k = static_cast<double>(s.k);
    const double spectra = reals * each * (m * k + k * n + m * n) * spectrum_bytes / rates.memory;
    const double product = 2 * each * m * (reals * n) * (reals * k);
    fixed = std::min(fixed, rates.overhead);
    least = std::min(least, moved + spectra +
                                std::max(spectra, tile_time(product, s.m, 2 * s.n, rates,
                                                            KernelClass::gemm, 1)));
  }
  return {Seconds{fixed}, Seconds{least}};
}

LeastTime least_gemm_time(const LeastKernel& gemm, const GemmInterpolation& gemms) {
  const Kernel& whole = gemm.whole;
  const std::int64_t m = whole.exchanged ? whole.n : whole.m;
  const std::int64_t n = whole.exchanged ? whole.m : whole.n;
  return {{},
          gemms.least_flop_time(m, n, whole.k, whole.batches, gemms.model().sustained) *
              gemm.multiplied};
}

}  // namespace parsim::sim
