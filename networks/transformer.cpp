#include "networks/transformer.hpp"

#include <cmath>
#include <numeric>

namespace parsim::networks::zoo {

namespace {

Shape axes(std::initializer_list<Axis> all) { return {std::vector<Axis>(all)}; }

LayerId moved(Network& network, const std::string& name, LayerId from, HeadMove move, Shape out) {
  return add_layer(network, name, Rearrange{std::string(to_text(move)), std::move(out), true},
                   {from});
}

/// An RMS norm of the channels of each head, of one scale for all heads.
LayerId head_norm(Network& network, const std::string& name, LayerId from, std::int64_t heads) {
  const std::vector<Axis> whole = network[from].out.axes;
  const Axis token = whole[0], width{Dim::channel, whole[1].extent / heads};
  // Heads are views of the channels: nothing moves.
  const LayerId split = add_layer(network, name + ".heads",
                                  Rearrange{std::string(to_text(HeadMove::split)),
                                            axes({{Dim::head, heads}, token, width}), false},
                                  {from});
  const LayerId normed = transformer_norm(network, name, split, TransformerNorm::root_mean_square);
  return add_layer(network, name + ".joined",
                   Rearrange{std::string(to_text(HeadMove::join)), {whole}, false}, {normed});
}

}  // namespace

LayerId transformer_norm(Network& network, const std::string& name, LayerId from,
                         TransformerNorm kind) {
  if (kind == TransformerNorm::layer) {
    return add_layer(network, name, Norm{NormKind::layer, true, 0}, {from});
  }
  const LayerId normed =
      add_layer(network, name + ".norm", Norm{NormKind::layer, false, 0}, {from});
  const LayerId scale = add_layer(network, name + ".scale",
                                  Learned{vector_shape(network[from].out.axes.back().extent)}, {});
  return add_layer(network, name, Combine{"mul"}, {normed, scale});
}

namespace {

/// What attention multiplies.
struct Operands {
  LayerId query, key, value;
};

Operands usual_operands(Network& network, const std::string& name, LayerId from,
                        const SelfAttention& design) {
  const std::int64_t query_width = design.heads * design.head_dim,
                     key_width = design.kv_heads * design.head_dim;
  // One GEMM for all three would be the same kernel with three times the columns; as three, each
  // may be cut by heads.
  LayerId query = add_layer(network, name + ".query", Dense{query_width, design.bias}, {from});
  LayerId key = add_layer(network, name + ".key", Dense{key_width, design.bias}, {from});
  const LayerId value = add_layer(network, name + ".value", Dense{key_width, design.bias}, {from});
  if (design.query_norm == QueryNorm::of_heads) {
    query = head_norm(network, name + ".query.norm", query, design.heads);
    key = head_norm(network, name + ".key.norm", key, design.kv_heads);
  } else if (design.query_norm == QueryNorm::whole) {
    const auto norm = TransformerNorm::root_mean_square;
    query = transformer_norm(network, name + ".query.norm", query, norm);
    key = transformer_norm(network, name + ".key.norm", key, norm);
  }
  if (design.rotary) {
    query = add_layer(network, name + ".query.rotary", Activation{"rotary"}, {query});
    key = add_layer(network, name + ".key.rotary", Activation{"rotary"}, {key});
  }
  return {query, key, value};
}

/// Trainers write queries with their rotated channels as one tensor: one pass over all of them.
Operands latent_operands(Network& network, const std::string& name, LayerId from,
                         const SelfAttention& design) {
  const LatentAttention& latent = design.latent;
  const auto dense = [&](const char* part, std::int64_t units, bool bias, LayerId in) {
    return add_layer(network, name + part, Dense{units, bias}, {in});
  };
  const auto narrowed = [&](const char* part, std::int64_t rank) {
    return transformer_norm(network, name + part + ".norm", dense(part, rank, design.bias, from),
                            TransformerNorm::root_mean_square);
  };
  const bool narrow = latent.query_rank > 0;
  const LayerId made_from = narrow ? narrowed(".query.latent", latent.query_rank) : from;
  LayerId query = dense(".query", design.heads * design.head_dim, false, made_from);
  query = add_layer(network, name + ".query.rotary", Activation{"rotary"}, {query});
  const LayerId compressed = narrowed(".latent", latent.rank);
  LayerId shared = dense(".key.shared", latent.rotary_dim, design.bias, from);
  shared = add_layer(network, name + ".key.rotary", Activation{"rotary"}, {shared});
  const std::int64_t own = design.head_dim - latent.rotary_dim;
  LayerId key = dense(".key.own", design.heads * own, false, compressed);
  key = add_layer(network, name + ".key", HeadConcat{design.heads}, {key, shared});
  return {query, key, dense(".value", design.heads * latent.value_dim, false, compressed)};
}

}  // namespace

LayerId self_attention(Network& network, const std::string& name, LayerId from,
                       const SelfAttention& design) {
  const std::int64_t seq_length = network[from].out.axes[0].extent,
                     hidden = network[from].out.axes[1].extent;
  const bool is_latent = design.latent.rank > 0;
  const std::int64_t value_dim = is_latent ? design.latent.value_dim : design.head_dim;
  auto [query, key, value] = is_latent ? latent_operands(network, name, from, design)
                                       : usual_operands(network, name, from, design);
  if (design.fused) {
    const LayerId mixed =
        add_layer(network, name + ".fused",
                  Attention{design.heads, design.kv_heads, design.causal, design.window},
                  {query, key, value});
    return add_layer(network, name + ".output", Dense{hidden, design.out_bias}, {mixed});
  }
  // Queries that share a key are an axis of their own, along which keys and values are broadcast.
  const std::int64_t group = design.heads / design.kv_heads;
  const auto shaped = [&](std::int64_t shared, Axis rows, Axis columns) {
    Shape shape = axes({{Dim::head, design.kv_heads}});
    if (group > 1) shape.axes.push_back({Dim::other, shared});
    shape.axes.push_back(rows);
    shape.axes.push_back(columns);
    return shape;
  };
  const Axis token{Dim::token, seq_length}, channel{Dim::channel, design.head_dim};
  query =
      moved(network, name + ".query.heads", query, HeadMove::split, shaped(group, token, channel));
  key = moved(network, name + ".key.heads", key, HeadMove::split_transposed,
              shaped(1, {Dim::other, design.head_dim}, {Dim::other, seq_length}));
  value = moved(network, name + ".value.heads", value, HeadMove::split,
                shaped(1, {Dim::other, seq_length}, {Dim::channel, value_dim}));
  const LayerId scores = add_layer(network, name + ".scores", MatMul{}, {query, key});
  const std::size_t last = network[scores].out.axes.size() - 1;
  LayerId weights = add_layer(network, name + ".softmax", Softmax{last}, {scores});
  weights = dropout(network, name + ".dropout", weights, design.dropout);
  const LayerId mixed = add_layer(network, name + ".context", MatMul{}, {weights, value});
  const LayerId joined = moved(network, name + ".joined", mixed, HeadMove::join,
                               axes({token, {Dim::channel, design.heads * value_dim}}));
  return add_layer(network, name + ".output", Dense{hidden, design.out_bias}, {joined});
}

LayerId feed_forward(Network& network, const std::string& name, LayerId from,
                     const FeedForward& design) {
  const std::int64_t hidden = network[from].out.axes.back().extent;
  const LayerId up =
      add_layer(network, name + ".up", Dense{design.ffn_hidden, design.bias}, {from});
  LayerId inner = up;
  if (design.gated) {
    const LayerId gate =
        add_layer(network, name + ".gate", Dense{design.ffn_hidden, design.bias}, {from});
    const LayerId active = add_layer(network, name + ".act", Activation{design.activation}, {gate});
    inner = add_layer(network, name + ".gated", Combine{"mul"}, {active, up});
  } else {
    inner = add_layer(network, name + ".act", Activation{design.activation}, {up});
  }
  return add_layer(network, name + ".down", Dense{hidden, design.bias}, {inner});
}

std::int64_t expert_slots(const Experts& experts, std::int64_t tokens) {
  const auto sent = static_cast<double>(tokens * experts.top_k);
  return static_cast<std::int64_t>(
      std::ceil(experts.capacity * sent / static_cast<double>(experts.count)));
}

LayerId mixture_of_experts(Network& network, const std::string& name, LayerId from,
                           const Experts& experts, FeedForward design) {
  const std::int64_t tokens = network[from].out.axes[0].extent;
  const std::int64_t hidden = network[from].out.axes[1].extent;
  const auto dense = [&](const char* part, std::int64_t units, LayerId in) {
    return add_layer(network, name + part, ExpertDense{units, design.bias}, {in});
  };
  LayerId router = add_layer(network, name + ".router", Dense{experts.count, false}, {from});
  router = experts.sigmoid
               ? add_layer(network, name + ".probabilities", Activation{"sigmoid"}, {router})
               : add_layer(network, name + ".probabilities", Softmax{1}, {router});
  const std::int64_t slots = expert_slots(experts, tokens);
  const std::int64_t groups = std::gcd(tokens, slots);
  // What a plan moves between tokens' devices and experts' may pass through other layouts: a group
  // that shares each expert receives and returns a part of every token per device.
  const LayerId dispatched = add_layer(
      network, name + ".dispatch", ExpertDispatch{experts.top_k, slots, groups}, {from, router});
  const LayerId sent =
      add_layer(network, name + ".experts.received", Activation{"identity"}, {dispatched});
  const LayerId up = dense(".experts.up", experts.ffn_hidden, sent);
  LayerId inner = up;
  if (design.gated) {
    const LayerId gate = dense(".experts.gate", experts.ffn_hidden, sent);
    const LayerId active =
        add_layer(network, name + ".experts.act", Activation{design.activation}, {gate});
    inner = add_layer(network, name + ".experts.gated", Combine{"mul"}, {active, up});
  } else {
    inner = add_layer(network, name + ".experts.act", Activation{design.activation}, {up});
  }
  const LayerId down = add_layer(network, name + ".experts.returned", Activation{"identity"},
                                 {dense(".experts.down", hidden, inner)});
  const LayerId mixed =
      add_layer(network, name + ".combine",
                ExpertCombine{experts.top_k, experts.normalized, groups}, {down, router});
  if (experts.shared_ffn_hidden == 0) return mixed;
  design.ffn_hidden = experts.shared_ffn_hidden;
  LayerId shared = feed_forward(network, name + ".shared", from, design);
  if (experts.shared_gate) {
    const LayerId gate = add_layer(network, name + ".shared_gate", Dense{1, false}, {from});
    const LayerId open =
        add_layer(network, name + ".shared_gate.sigmoid", Activation{"sigmoid"}, {gate});
    shared = add_layer(network, name + ".shared.weighted", Combine{"mul"}, {shared, open});
  }
  return sum(network, name + ".shared.sum", mixed, shared);
}

LayerId dropout(Network& network, const std::string& name, LayerId from, double rate) {
  return rate > 0 ? add_layer(network, name, Dropout{rate}, {from}) : from;
}

LayerId sum(Network& network, const std::string& name, LayerId a, LayerId b) {
  return add_layer(network, name, Combine{"add"}, {a, b});
}

LayerId positions(Network& network, const std::string& name, std::int64_t rows,
                  std::int64_t seq_length, std::int64_t hidden) {
  const LayerId table =
      add_layer(network, name, Learned{axes({{Dim::token, rows}, {Dim::channel, hidden}})}, {});
  if (rows == seq_length) return table;
  return add_layer(network, name + ".used", Slicing{0, 0, seq_length, 1}, {table});
}

LayerId first_token(Network& network, const std::string& name, LayerId from) {
  const LayerId first = add_layer(network, name, Slicing{0, 0, 1, 1}, {from});
  return add_layer(network, name + ".vector", Flatten{}, {first});
}

}  // namespace parsim::networks::zoo
