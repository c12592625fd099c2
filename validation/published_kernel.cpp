#include "validation/published_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/network.hpp"
#include "sim/sim.hpp"
#include "topologies/topologies.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_training.hpp"

namespace parsim::validation {

namespace {

struct OneLayer {
  Network network;
  LayerId layer;
  std::int64_t samples = 1;
};

std::int64_t extent(const Claim& claim, std::string_view name) {
  if (column(claim, name).empty()) {
    throw InputError(location_of(claim, name), "no number", "accepted: an extent of the kernel");
  }
  return count_column(claim, name, 1);
}

Shape matrix(std::int64_t rows, std::int64_t columns) {
  return {{{Dim::token, rows}, {Dim::channel, columns}}};
}

OneLayer layer_of(LayerKind kind, const std::vector<Shape>& inputs, std::int64_t samples) {
  OneLayer made;
  made.samples = samples;
  std::vector<LayerId> read;
  for (const Shape& input : inputs) {
    read.push_back(add_input(made.network, fmt::format("in{}", read.size()), input));
  }
  made.layer = add_layer(made.network, "kernel", std::move(kind), read);
  return made;
}

/// Of height ("_h") or width ("_w"), or of both.
Window window_of(const Claim& claim, std::string_view side) {
  const auto name = [&](std::string_view both) {
    std::string own = fmt::format("{}{}", both, side);
    return column(claim, own).empty() ? std::string(both) : own;
  };
  Window window;
  window.kernel = extent(claim, name("r"));
  window.stride = extent(claim, name("stride"));
  // Zero is no extent, but a padding.
  const std::string pad = column(claim, name("pad"));
  if (!pad.empty() && pad != "0") window.pad_begin = window.pad_end = extent(claim, name("pad"));
  window.dilation = count_column(claim, name("dilation"), 1);
  return window;
}

OneLayer convolution(const Claim& claim) {
  const bool square = !column(claim, "in_size").empty();
  const std::int64_t height = extent(claim, square ? "in_size" : "in_h"),
                     width = extent(claim, square ? "in_size" : "in_w");
  return layer_of(Conv{extent(claim, "c_out"),
                       {window_of(claim, "_h"), window_of(claim, "_w")},
                       count_column(claim, "groups", 1),
                       false},
                  {image_shape(extent(claim, "c_in"), height, width)}, extent(claim, "batch"));
}

std::vector<Pass> passes_of(const Claim& claim) {
  const std::string mode = column(claim, "mode");
  if (mode.empty() || mode == "fwd") return {Pass::forward};
  if (mode == "bwd") return {Pass::backward};
  if (mode == "bwd_data") return {Pass::backward_data};
  if (mode == "bwd_weights") return {Pass::backward_weights};
  if (mode == "fwd_bwd") return {Pass::forward, Pass::backward};
  throw InputError(location_of(claim, "mode"), fmt::format("'{}'", mode),
                   "accepted: fwd, bwd, bwd_data, bwd_weights or fwd_bwd");
}

/// Column `causal`; empty: no.
bool is_causal(const Claim& claim) {
  const std::string text = column(claim, "causal");
  const auto is = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), text) != words.end();
  };
  if (is({"1", "true", "True", "yes"})) return true;
  if (is({"", "0", "false", "False", "no"})) return false;
  throw InputError(location_of(claim, "causal"), fmt::format("'{}'", text),
                   "accepted: 0 or 1, true or false");
}

OneLayer attention(const Claim& claim) {
  const std::int64_t tokens = extent(claim, "seq"), heads = extent(claim, "heads"),
                     key_heads = count_column(claim, "kv_heads", heads),
                     width = extent(claim, "head_dim");
  const Shape keys = matrix(tokens, key_heads * width);
  return layer_of(Attention{heads, key_heads, is_causal(claim)},
                  {matrix(tokens, heads * width), keys, keys}, extent(claim, "batch"));
}

OneLayer elementwise(const Claim& claim) {
  const std::string op = column(claim, "op");
  const Shape row = vector_shape(extent(claim, "cols"));
  constexpr std::string_view of_two[] = {"add", "sub", "mul", "div", "pow"};
  if (std::find(std::begin(of_two), std::end(of_two), op) != std::end(of_two)) {
    return layer_of(Combine{op}, {row, row}, extent(claim, "rows"));
  }
  if (op == "dropout") return layer_of(Dropout{}, {row}, extent(claim, "rows"));
  return layer_of(Activation{op}, {row}, extent(claim, "rows"));
}

/// torch._scaled_mm and the like: FP8 operands that are cast before.
constexpr std::string_view cast_before = "fp8_e4m3";

OneLayer product(const Claim& claim) {
  OneLayer made;
  made.samples = extent(claim, "m");
  const LayerId in = add_input(made.network, "in", vector_shape(extent(claim, "k")));
  const Dense dense{extent(claim, "n"), false};
  // The first product that reads a tensor casts it.
  if (column(claim, "dtype") == cast_before) {
    add_layer(made.network, "next", Activation{"relu"},
              {add_layer(made.network, "before", dense, {in})});
  }
  made.layer = add_layer(made.network, "kernel", dense, {in});
  // The last product of a network would be its head, which is never in FP8.
  add_layer(made.network, "next", Activation{"relu"}, {made.layer});
  return made;
}

OneLayer layer_of_row(const Claim& claim) {
  const std::string kind = column(claim, "op_class");
  if (kind == "conv") return convolution(claim);
  if (kind == "elementwise") return elementwise(claim);
  if (kind == "bmm") {
    const std::int64_t inner = extent(claim, "k");
    return layer_of(MatMul{},
                    {matrix(extent(claim, "m"), inner), matrix(inner, extent(claim, "n"))},
                    extent(claim, "batch"));
  }
  if (kind == "softmax" || kind == "ln") {
    const std::int64_t rows = extent(claim, "rows");
    const Shape row = matrix(1, extent(claim, "cols"));
    return kind == "ln" ? layer_of(Norm{NormKind::layer}, {row}, rows)
                        : layer_of(Softmax{1}, {row}, rows);
  }
  if (!kind.empty() && kind != "linear") {
    throw InputError(location_of(claim, "op_class"), fmt::format("'{}'", kind),
                     "accepted: linear, bmm, conv, elementwise, softmax or ln");
  }
  return column(claim, "head_dim").empty() ? product(claim) : attention(claim);
}

Precision operands_of(const Claim& claim, const DeviceModel& model) {
  std::string type = column(claim, "dtype");
  if (type.empty()) return precision_of(claim);
  if (type == cast_before) return Precision::fp8;
  if (type == "fp32/tf32") {  // TF32 where the card has it
    const bool has = model.peak_at(Precision::tf32) > model.peak_at(Precision::fp32);
    return has ? Precision::tf32 : Precision::fp32;
  }
  if (type == "fp16/bf16") type = "bf16";  // alike on the cards that have both
  for (const Precision one :
       {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16, Precision::fp8}) {
    if (type == to_text(one)) return one;
  }
  if (type == "fp8_block") return Precision::fp8_blockwise;
  throw InputError(
      location_of(claim, "dtype"), fmt::format("'{}'", type),
      "accepted: fp32, tf32, fp32/tf32, fp16, bf16, fp16/bf16, fp8, fp8_e4m3 or fp8_block");
}

/// Column `library`; others than these are priced as the default.
sim::AttentionKernel attention_kernel(const Claim& claim) {
  const std::string library = column(claim, "library");
  if (library.find("Triton") != library.npos) return sim::AttentionKernel::triton;
  if (library.starts_with("xformers")) return sim::AttentionKernel::xformers;
  return library == "FlashAttention-1" ? sim::AttentionKernel::flash1
                                       : sim::AttentionKernel::automatic;
}

}  // namespace

double kernel_seconds(const Claim& claim) {
  Cluster cluster = topologies::load_cluster("star:1,device=" + device_of(claim), claim.set);
  set_stated_rates(claim, cluster);
  const Precision precision = operands_of(claim, cluster.models.front());
  const OneLayer made = layer_of_row(claim);
  if (made.network[made.layer].kind.as<Attention>() != nullptr && multiplies_in_fp8(precision)) {
    throw InputError(location_of(claim, "dtype"), "attention in FP8",
                     "accepted: attention in 16 or 32 bits; no step has it in FP8 here");
  }
  sim::SimOptions options;
  options.attention_kernel = attention_kernel(claim);
  const auto cost = sim::make_tile_costs(cluster, options);
  double seconds = 0;
  for (const Pass pass : passes_of(claim)) {
    const Part part{whole(made.network[made.layer].out, made.samples), {}};
    seconds +=
        cost->compute(made.network, made.layer, part, pass, DeviceId{0}, precision).time.count();
  }
  return seconds;
}

}  // namespace parsim::validation
