#include "tests/support/tiny_networks.hpp"

#include "core/errors.hpp"

namespace parsim::testing {
namespace {

Conv conv(std::int64_t filters, Window window, std::int64_t groups = 1, bool bias = true) {
  return {filters, {window, window}, groups, bias};
}
Pool pool(PoolKind kind, Window window, bool ceil_mode = false, bool count_padding = true) {
  return {kind, {window, window}, ceil_mode, count_padding};
}
constexpr Window same3{3, 1, 1, 1, 1};  // kernel 3 that keeps the extent
constexpr Window point{1, 1, 0, 0, 1};
constexpr Window halve{2, 2, 0, 0, 1};

void classify(Network& net, LayerId last, std::int64_t classes) {
  const LayerId flat = add_layer(net, "flatten", Flatten{}, {last});
  const LayerId scores = add_layer(net, "classifier", Dense{classes}, {flat});
  add_layer(net, "loss", Loss{}, {scores});
}

/// Convolution, activation, pooling, a flatten of 2 x 2 maps, two dense layers.
Network plain() {
  Network net{"plain", {}, {}, {}};
  LayerId x = add_input(net, "image", image_shape(3, 4, 4));
  x = add_layer(net, "conv", conv(6, same3), {x});
  x = add_layer(net, "relu", Activation{"relu"}, {x});
  x = add_layer(net, "pool", pool(PoolKind::max, halve), {x});
  x = add_layer(net, "flatten", Flatten{}, {x});
  x = add_layer(net, "hidden", Dense{7}, {x});
  x = add_layer(net, "tanh", Activation{"tanh"}, {x});
  x = add_layer(net, "dropout", Dropout{}, {x});
  x = add_layer(net, "scores", Dense{5}, {x});
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

/// A residual block with batch normalisation and a projection; its trunk is read twice, by layers
/// that a plan may cut differently.
Network residual() {
  Network net{"residual", {}, {}, {}};
  LayerId x = add_input(net, "image", image_shape(2, 6, 6));
  x = add_layer(net, "stem", conv(4, same3, 1, false), {x});
  x = add_layer(net, "stem_norm", Norm{NormKind::batch, true, 0}, {x});
  const LayerId trunk = add_layer(net, "stem_relu", Activation{"relu"}, {x});
  x = add_layer(net, "conv1", conv(4, same3, 1, false), {trunk});
  x = add_layer(net, "norm1", Norm{NormKind::batch, true, 0}, {x});
  x = add_layer(net, "add1", Combine{"add"}, {x, trunk});
  const LayerId middle = add_layer(net, "relu1", Activation{"relu"}, {x});
  x = add_layer(net, "conv2", conv(6, {3, 2, 1, 1, 1}, 1, false), {middle});
  x = add_layer(net, "norm2", Norm{NormKind::batch, true, 0}, {x});
  const LayerId shortcut = add_layer(net, "project", conv(6, {1, 2, 0, 0, 1}), {middle});
  x = add_layer(net, "add2", Combine{"add"}, {x, shortcut});
  x = add_layer(net, "pool", Reduce{"mean", {1, 2}, false}, {x});
  x = add_layer(net, "scores", Dense{5}, {x});
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

/// Grouped, depthwise and pointwise convolutions with a learned slope.
Network grouped() {
  Network net{"grouped", {}, {}, {}};
  LayerId x = add_input(net, "image", image_shape(4, 5, 5));
  x = add_layer(net, "expand", conv(8, point), {x});
  x = add_layer(net, "prelu", Activation{"prelu", 8}, {x});
  x = add_layer(net, "depthwise", conv(8, same3, 8), {x});
  x = add_layer(net, "silu", Activation{"silu"}, {x});
  x = add_layer(net, "grouped", conv(6, {3, 2, 1, 1, 1}, 2), {x});
  x = add_layer(net, "norm", Norm{NormKind::group, true, 3}, {x});
  classify(net, x, 4);
  return net;
}

/// Branches of different kernels joined along the channel, and a slice of the result.
Network branches() {
  Network net{"branches", {}, {}, {}};
  LayerId x = add_input(net, "image", image_shape(3, 5, 4));
  const LayerId trunk = add_layer(net, "stem", conv(5, point), {x});
  const LayerId one = add_layer(net, "branch1", conv(3, point), {trunk});
  const LayerId two = add_layer(net, "branch2", conv(2, same3), {trunk});
  const LayerId three =
      add_layer(net, "branch3", pool(PoolKind::average, same3, false, false), {trunk});
  x = add_layer(net, "concat", Concat{0}, {one, two, three});
  x = add_layer(net, "relu", Activation{"leakyrelu"}, {x});
  const LayerId cut = add_layer(net, "slice", Slicing{0, 1, 9, 2}, {x});
  classify(net, cut, 4);
  return net;
}

/// Odd extents, uneven padding, dilation, strides, windows that hang over the edge, and local
/// response normalisation.
Network windows() {
  Network net{"windows", {}, {}, {}};
  LayerId x = add_input(net, "image", image_shape(2, 7, 8));
  x = add_layer(net, "conv1", Conv{4, {{3, 2, 1, 0, 1}, {2, 1, 0, 1, 2}}, 1, true}, {x});
  x = add_layer(net, "lrn", Norm{NormKind::local_response, false, 3}, {x});
  x = add_layer(net, "average", pool(PoolKind::average, {2, 2, 0, 0, 1}, true), {x});
  x = add_layer(net, "conv2", conv(5, same3), {x});
  x = add_layer(net, "max", pool(PoolKind::max, {3, 2, 1, 1, 1}, true), {x});
  classify(net, x, 3);
  return net;
}

/// Two layers share their weights, and one activation is read by three layers.
Network tied() {
  Network net{"tied", {}, {}, {}};
  LayerId x = add_input(net, "vector", vector_shape(6));
  const LayerId first = add_layer(net, "first", Dense{6}, {x});
  const LayerId middle = add_layer(net, "gelu", Activation{"gelu"}, {first});
  const LayerId second =
      add_layer(net, "second", Dense{6}, {middle}, {ParameterId{0}, ParameterId{1}});
  const LayerId gate = add_layer(net, "gate", Activation{"sigmoid"}, {middle});
  x = add_layer(net, "product", Combine{"mul"}, {second, gate});
  x = add_layer(net, "difference", Combine{"sub"}, {x, middle});
  x = add_layer(net, "softmax", Softmax{0}, {x});
  x = add_layer(net, "scores", Dense{4, false}, {x});
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

/// Convolution and pooling over three spatial axes.
Network volume() {
  Network net{"volume", {}, {}, {}};
  LayerId x = add_input(net, "clip", volume_shape(2, 4, 3, 4));
  x = add_layer(net, "conv", Conv{4, {same3, same3, same3}, 1, true}, {x});
  x = add_layer(net, "relu", Activation{"relu"}, {x});
  x = add_layer(net, "pool", Pool{PoolKind::max, {halve, same3, halve}, false, true}, {x});
  x = add_layer(net, "norm", Norm{NormKind::instance, true, 0}, {x});
  classify(net, x, 3);
  return net;
}

/// A block of a transformer in small: embedding, learned positions, layer norm, products of
/// activations.
Network tokens() {
  Network net{"tokens", {}, {}, {}};
  const Shape positions{{{Dim::token, 3}, {Dim::channel, 4}}};
  LayerId x = add_input(net, "ids", Shape{{{Dim::token, 3}}});
  x = add_layer(net, "embedding", Embedding{5, 4}, {x});
  const LayerId place = add_layer(net, "positions", Learned{positions}, {});
  x = add_layer(net, "add", Combine{"add"}, {x, place});
  const LayerId norm = add_layer(net, "norm", Norm{NormKind::layer, true, 0}, {x});
  const LayerId left = add_layer(net, "left", Dense{3}, {norm});
  const LayerId scores = add_layer(net, "weights", Softmax{1}, {left});
  const LayerId mixed = add_layer(net, "mix", MatMul{}, {scores, norm});
  x = add_layer(net, "residual", Combine{"add"}, {mixed, x});
  x = add_layer(net, "reshape", Rearrange{"reshape", vector_shape(12), false}, {x});
  x = add_layer(net, "scores", Dense{4}, {x});
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

/// Words whose table scores them, too.
Network words() {
  Network net{"words", {}, {}, {}};
  LayerId x = add_input(net, "ids", Shape{{{Dim::token, 3}}});
  const LayerId table = x = add_layer(net, "table", Embedding{6, 4}, {x});
  x = add_layer(net, "norm", Norm{NormKind::layer, true, 0}, {x});
  x = add_layer(net, "lm_head", Dense{6, false}, {x}, net[table].parameters);
  x = add_layer(net, "first", Slicing{0, 0, 1, 1}, {x});
  x = add_layer(net, "vector", Flatten{}, {x});
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

/// Attention as transformers have it, four heads of which so many share keys and values, then a
/// feed-forward part.
Network heads(const char* name, std::int64_t shared) {
  constexpr std::int64_t count = 3, width = 8, each = 2;
  const std::int64_t groups = 4 / shared;
  Network net{name, {}, {}, {}};
  const Axis token{Dim::token, count}, any{Dim::other, count}, channel{Dim::channel, each};
  LayerId x = add_input(net, "vectors", Shape{{token, {Dim::channel, width}}});
  const auto moved = [&](const char* what, HeadMove move, LayerId from, std::vector<Axis> axes) {
    return add_layer(net, what, Rearrange{std::string(to_text(move)), Shape{std::move(axes)}, true},
                     {from});
  };
  const Axis head{Dim::head, groups}, pair{Dim::other, shared}, once{Dim::other, 1};
  const LayerId norm = add_layer(net, "norm", Norm{NormKind::layer, true, 0}, {x});
  LayerId query = add_layer(net, "query", Dense{width}, {norm});
  LayerId key = add_layer(net, "key", Dense{groups * each, false}, {norm});
  LayerId value = add_layer(net, "value", Dense{groups * each}, {norm});
  query = moved("query.heads", HeadMove::split, query, {head, pair, token, channel});
  key = moved("key.heads", HeadMove::split_transposed, key, {head, once, {Dim::other, each}, any});
  value = moved("value.heads", HeadMove::split, value, {head, once, any, channel});
  LayerId mixed = add_layer(net, "scores", MatMul{}, {query, key});
  mixed = add_layer(net, "softmax", Softmax{3}, {mixed});
  mixed = add_layer(net, "context", MatMul{}, {mixed, value});
  mixed = moved("joined", HeadMove::join, mixed, {token, {Dim::channel, width}});
  mixed = add_layer(net, "output", Dense{width}, {mixed});
  x = add_layer(net, "attended", Combine{"add"}, {x, mixed});
  LayerId inner = add_layer(net, "up", Dense{2 * width}, {x});
  inner = add_layer(net, "gelu", Activation{"gelu"}, {inner});
  inner = add_layer(net, "down", Dense{width}, {inner});
  x = add_layer(net, "sum", Combine{"add"}, {x, inner});
  classify(net, x, 4);
  return net;
}

/// Attention in one kernel, of pairs of heads that share keys, to what came before; then one to
/// all.
Network attention() {
  Network net{"attention", {}, {}, {}};
  LayerId x = add_input(net, "vectors", Shape{{{Dim::token, 4}, {Dim::channel, 6}}});
  const LayerId query = add_layer(net, "query", Dense{8}, {x});
  const LayerId key = add_layer(net, "key", Dense{4}, {x});
  const LayerId value = add_layer(net, "value", Dense{4}, {x});
  x = add_layer(net, "causal", Attention{4, 2, true, 3}, {query, key, value});
  const LayerId all = add_layer(net, "all", Dense{8}, {x});
  x = add_layer(net, "mixed", Attention{2, 2, false}, {all, x, all});
  classify(net, x, 3);
  return net;
}

/// Multi-head latent attention: queries, keys and values from few channels, keys that share a part,
/// values of another width.
Network latent_attention() {
  constexpr std::int64_t heads = 4, own = 2, shared = 1, values = 3;
  Network net{"latent", {}, {}, {}};
  LayerId x = add_input(net, "vectors", Shape{{{Dim::token, 4}, {Dim::channel, 6}}});
  x = add_layer(net, "in", Dense{6}, {x});
  LayerId query = add_layer(net, "query.down", Dense{3}, {x});
  query = add_layer(net, "query.norm", Norm{NormKind::layer, true, 0}, {query});
  query = add_layer(net, "query.up", Dense{heads * (own + shared)}, {query});
  LayerId latent = add_layer(net, "latent", Dense{4, false}, {x});
  latent = add_layer(net, "latent.norm", Norm{NormKind::layer, true, 0}, {latent});
  LayerId position = add_layer(net, "key.shared", Dense{shared}, {x});
  position = add_layer(net, "key.tanh", Activation{"tanh"}, {position});
  LayerId key = add_layer(net, "key.up", Dense{heads * own}, {latent});
  key = add_layer(net, "key", HeadConcat{heads}, {key, position});
  const LayerId value = add_layer(net, "value.up", Dense{heads * values}, {latent});
  LayerId mixed = add_layer(net, "attention", Attention{heads, heads, true}, {query, key, value});
  mixed = add_layer(net, "out", Dense{6}, {mixed});
  x = add_layer(net, "sum", Combine{"add"}, {x, mixed});
  classify(net, x, 3);
  return net;
}

/// A mixture of experts, gated, with a shared expert; `slots` of an expert for a sample.
Network experts(const char* name, std::int64_t slots, bool normalized, std::int64_t groups = 1) {
  constexpr std::int64_t tokens = 4, width = 4, inner = 5, count = 4, top_k = 2;
  Network net{name, {}, {}, {}};
  LayerId x = add_input(net, "ids", Shape{{{Dim::token, tokens}}});
  x = add_layer(net, "embedding", Embedding{7, width}, {x});
  const LayerId place =
      add_layer(net, "positions", Learned{{{{Dim::token, tokens}, {Dim::channel, width}}}}, {});
  x = add_layer(net, "add", Combine{"add"}, {x, place});
  const LayerId norm = add_layer(net, "norm", Norm{NormKind::layer, true, 0}, {x});
  LayerId router = add_layer(net, "router", Dense{count, false}, {norm});
  router = add_layer(net, "probabilities", Softmax{1}, {router});
  const LayerId sent =
      add_layer(net, "dispatch", ExpertDispatch{top_k, slots, groups}, {norm, router});
  LayerId gate = add_layer(net, "gate", ExpertDense{inner}, {sent});
  gate = add_layer(net, "silu", Activation{"silu"}, {gate});
  LayerId up = add_layer(net, "up", ExpertDense{inner, true}, {sent});
  up = add_layer(net, "gated", Combine{"mul"}, {gate, up});
  const LayerId down = add_layer(net, "down", ExpertDense{width, true}, {up});
  const LayerId mixed =
      add_layer(net, "combine", ExpertCombine{top_k, normalized, groups}, {down, router});
  const LayerId shared = add_layer(net, "shared", Dense{width}, {norm});
  x = add_layer(net, "sum", Combine{"add"}, {mixed, shared});
  classify(net, x, 3);
  return net;
}

}  // namespace

std::vector<Network> tiny_networks() {
  return {plain(),
          residual(),
          grouped(),
          branches(),
          windows(),
          tied(),
          volume(),
          tokens(),
          words(),
          heads("heads", 1),
          heads("pairs", 2),
          attention(),
          latent_attention(),
          experts("experts", 4, true),
          experts("capacity", 2, false, 2)};
}

Network tiny_transformer(int blocks) {
  constexpr std::int64_t tokens = 4, width = 12, heads = 6, classes = 5;
  Network net{"tiny transformer", {}, {}, {}};
  LayerId x = add_input(net, "ids", Shape{{{Dim::token, tokens}}});
  x = add_layer(net, "embedding", Embedding{12, width}, {x});
  for (int b = 0; b < blocks; ++b) {
    const std::string block = "block" + std::to_string(b) + ".";
    LayerId y = add_layer(net, block + "norm1", Norm{NormKind::layer, true, 0}, {x});
    const LayerId query = add_layer(net, block + "query", Dense{width}, {y});
    const LayerId key = add_layer(net, block + "key", Dense{width}, {y});
    const LayerId value = add_layer(net, block + "value", Dense{width}, {y});
    y = add_layer(net, block + "attention", Attention{heads, heads, true}, {query, key, value});
    y = add_layer(net, block + "output", Dense{width}, {y});
    x = add_layer(net, block + "sum1", Combine{"add"}, {x, y});
    y = add_layer(net, block + "norm2", Norm{NormKind::layer, true, 0}, {x});
    y = add_layer(net, block + "up", Dense{2 * width}, {y});
    y = add_layer(net, block + "gelu", Activation{"gelu"}, {y});
    y = add_layer(net, block + "down", Dense{width}, {y});
    x = add_layer(net, block + "sum2", Combine{"add"}, {x, y});
  }
  x = add_layer(net, "norm", Norm{NormKind::layer, true, 0}, {x});
  x = add_layer(net, "mean", Reduce{"mean", {0}, false}, {x});
  x = add_layer(net, "classes", Dense{classes}, {x});
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

Network tiny_llama(bool eager) {
  constexpr std::int64_t tokens = 4, width = 12, heads = 6, key_heads = 3, each = 2, vocabulary = 7;
  Network net{eager ? "llama, eager" : "llama", {}, {}, {}};
  const auto norm = [&](const std::string& name, LayerId from) {
    const LayerId normed = add_layer(net, name + ".norm", Norm{NormKind::layer, false, 0}, {from});
    const LayerId scale = add_layer(net, name + ".scale", Learned{vector_shape(width)}, {});
    return add_layer(net, name, Combine{"mul"}, {normed, scale});
  };
  const auto dense = [&](const char* name, std::int64_t units, LayerId from) {
    return add_layer(net, name, Dense{units, false}, {from});
  };
  const auto moved = [&](const char* name, HeadMove move, LayerId from, std::vector<Axis> axes) {
    return add_layer(net, name, Rearrange{std::string(to_text(move)), Shape{std::move(axes)}, true},
                     {from});
  };
  LayerId x = add_input(net, "ids", Shape{{{Dim::token, tokens}}});
  x = add_layer(net, "embedding", Embedding{vocabulary, width}, {x});
  LayerId y = norm("norm1", x);
  LayerId query = dense("query", heads * each, y);
  LayerId key = dense("key", key_heads * each, y);
  LayerId value = dense("value", key_heads * each, y);
  query = add_layer(net, "query.rotary", Activation{"rotary"}, {query});
  key = add_layer(net, "key.rotary", Activation{"rotary"}, {key});
  if (eager) {
    const Axis token{Dim::token, tokens}, any{Dim::other, tokens}, channel{Dim::channel, each};
    const Axis head{Dim::head, key_heads}, pair{Dim::other, heads / key_heads}, once{Dim::other, 1};
    query = moved("query.heads", HeadMove::split, query, {head, pair, token, channel});
    key =
        moved("key.heads", HeadMove::split_transposed, key, {head, once, {Dim::other, each}, any});
    value = moved("value.heads", HeadMove::split, value, {head, once, any, channel});
    y = add_layer(net, "scores", MatMul{}, {query, key});
    y = add_layer(net, "softmax", Softmax{3}, {y});
    y = add_layer(net, "dropout", Dropout{0.25}, {y});
    y = add_layer(net, "context", MatMul{}, {y, value});
    y = moved("joined", HeadMove::join, y, {token, {Dim::channel, width}});
  } else {
    y = add_layer(net, "attention", Attention{heads, key_heads, true}, {query, key, value});
  }
  y = dense("output", width, y);
  x = add_layer(net, "sum1", Combine{"add"}, {x, y});
  y = norm("norm2", x);
  const LayerId gate = add_layer(net, "silu", Activation{"silu"}, {dense("gate", 12, y)});
  y = add_layer(net, "gated", Combine{"mul"}, {gate, dense("up", 12, y)});
  y = dense("down", width, y);
  x = add_layer(net, "sum2", Combine{"add"}, {x, y});
  x = dense("lm_head", vocabulary, norm("norm3", x));
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

Network tiny_network(std::string_view name) {
  for (Network& net : tiny_networks()) {
    if (net.name == name) return std::move(net);
  }
  ensure(false, "a tiny network of this name");
  return {};
}

}  // namespace parsim::testing
