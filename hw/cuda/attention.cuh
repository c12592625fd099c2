// Attention as batched products and a softmax between them, where it is not fused
// (attention_fused.cuh): heads that share keys are rows of one product. Scores lie in the
// workspace; the backward pass makes them again.
#pragma once

#include "hw/cuda/engine.cuh"

namespace parsim::hw {

/// Scores of lines of tokens: rows of so many keys, of which a causal mask leaves token + 1, a
/// window (unless 0) the last ones of these.
struct ScoreLines {
  std::uint32_t keys = 1, tokens = 1, first_token = 0;
  bool causal = false;
  std::uint32_t window = 0;
  float scale = 1;

  [[nodiscard]] __device__ std::uint32_t seen(std::uint32_t row) const {
    return causal ? first_token + row % tokens + 1 : keys;
  }
  [[nodiscard]] __device__ std::uint32_t first(std::uint32_t row) const {
    return window == 0 || seen(row) < window ? 0 : seen(row) - window;
  }
};

/// A block for each row: scores become weights.
template <class T>
__global__ void softmax_rows(ScoreLines lines, T* scores) {
  using Sum = SoftmaxSums<float>;
  __shared__ Sum shared[line_threads];
  T* row = scores + std::size_t{blockIdx.x} * lines.keys;
  const std::uint32_t seen = lines.seen(blockIdx.x), first = lines.first(blockIdx.x);
  Sum sum{};
  for (std::uint32_t k = first + threadIdx.x; k < seen; k += line_threads) {
    sum += Sum{lines.scale * static_cast<float>(row[k]), 1};
  }
  sum = block_sum(sum, shared);
  for (std::uint32_t k = threadIdx.x; k < lines.keys; k += line_threads) {
    const float weight =
        k >= first && k < seen ? std::exp(lines.scale * static_cast<float>(row[k]) - sum.top) / sum.sum : 0;
    row[k] = static_cast<T>(weight);
  }
}

/// A block for each row: gradients of weights become those of the products before the scale.
template <class T>
__global__ void softmax_rows_backward(ScoreLines lines, const T* weights, T* gradients) {
  using Sum = Sums<float>;
  __shared__ Sum shared[line_threads];
  const T* weight = weights + std::size_t{blockIdx.x} * lines.keys;
  T* gradient = gradients + std::size_t{blockIdx.x} * lines.keys;
  Sum dot{};
  for (std::uint32_t k = threadIdx.x; k < lines.keys; k += line_threads) {
    dot += Sum{static_cast<float>(weight[k]) * static_cast<float>(gradient[k]), 0};
  }
  dot = block_sum(dot, shared);
  for (std::uint32_t k = threadIdx.x; k < lines.keys; k += line_threads) {
    const float slope = static_cast<float>(gradient[k]) - dot.first;
    gradient[k] = static_cast<T>(lines.scale * static_cast<float>(weight[k]) * slope);
  }
}

/// Sixteen bytes of a tensor; alignment is the caller's.
struct alignas(16) Chunk {
  std::uint32_t words[4];
};
struct CopyChunks {
  Walk<2> walk;
  Chunk* to = nullptr;
  const Chunk* from = nullptr;

  constexpr void operator()(std::uint32_t i) const {
    std::int64_t offset[2] = {};
    walk.at(i, offset);
    to[offset[0]] = from[offset[1]];
  }
};

/// Between a tensor's sample × token × (head × width) and sample × head × token × width without
/// gaps.
template <class T>
struct HeadMove16 {
  Walk<2> walk;  ///< dense heads, tensor
  T* tensor = nullptr;
  std::uint32_t count = 0;

  HeadMove16(const View<T>& view, const Region& region, std::int64_t width)
      : tensor(start_of(view, region)), count(static_cast<std::uint32_t>(region.volume())) {
    const std::int64_t tokens = region[1].size();
    const std::int64_t heads = region[2].size() / width;
    const auto push = [&](std::int64_t extent, std::int64_t dense, std::int64_t there) {
      walk.extent[walk.rank] = static_cast<std::uint32_t>(extent);
      walk.stride[0][walk.rank] = dense;
      walk.stride[1][walk.rank++] = there;
    };
    push(region[0].size(), heads * tokens * width, view.stride[0]);
    push(heads, tokens * width, width * view.stride[2]);
    push(tokens, width, view.stride[1]);
    push(width, 1, view.stride[2]);
  }
  /// By sixteen bytes, if everything lies so.
  [[nodiscard]] std::optional<Walk<2>> by_chunks(const void* dense) const {
    constexpr std::int64_t width = 16 / sizeof(T);
    const auto at =
        reinterpret_cast<std::uintptr_t>(tensor) | reinterpret_cast<std::uintptr_t>(dense);
    if (at % 16 != 0 || walk.stride[1][3] != 1 || walk.extent[3] % width != 0) return {};
    Walk<2> chunks = walk;
    chunks.extent[3] /= static_cast<std::uint32_t>(width);
    for (int n = 0; n < 2; ++n) {
      for (int a = 0; a < 3; ++a) {
        if (walk.stride[n][a] % width != 0) return {};
        chunks.stride[n][a] /= width;
      }
    }
    return chunks;
  }
};

template <class T>
std::optional<typename CudaEngine<T>::Action> CudaEngine<T>::attend_by_scores(
    const AttentionRequest<T>& r) {
  const AttentionPart<T>& part = r.part;
  if (part.value_width != part.width || (part.window > 0 && r.keys[1].begin != 0)) {
    return std::nullopt;
  }
  const std::int64_t heads = part.heads;
  const std::int64_t key_heads = r.keys[2].size() / part.width;
  // Whole heads, each key's with all or as many of its group.
  if (r.out[2].size() != r.query[2].size() || heads % key_heads != 0) return std::nullopt;
  const std::int64_t group = heads / key_heads;
  if (key_heads > 1 && (group != part.group || part.first_head % group != 0)) return std::nullopt;
  const std::int64_t tokens = r.query[1].size();
  const std::int64_t keys = r.keys[1].size();
  const std::int64_t batch = r.out[0].size() * key_heads;
  const std::int64_t rows = group * tokens;
  const auto plan_of = [&](Product product) {
    return matrix_plan({product, precision_, rows, keys, part.width, batch});
  };
  const std::shared_ptr<MatrixPlan> forward = plan_of(Product::forward);
  const std::shared_ptr<MatrixPlan> data = plan_of(Product::data);
  const std::shared_ptr<MatrixPlan> weights = plan_of(Product::weights);
  if (!forward || !data || !weights) return std::nullopt;

  std::size_t used = 0;
  const auto place = [&](std::int64_t count) {
    const std::size_t at = used;
    used += aligned(static_cast<std::size_t>(count) * sizeof(T));
    return at;
  };
  const std::size_t query_at = place(r.query.volume());
  const std::size_t key_at = place(r.keys.volume());
  const std::size_t value_at = place(r.keys.volume());
  const std::size_t out_at = place(r.out.volume());
  const std::size_t score_at = place(batch * rows * keys);
  const std::size_t slope_at = place(r.backward ? batch * rows * keys : 0);
  const std::size_t result_at = place(r.backward ? std::max(r.query.volume(), r.keys.volume()) : 0);
  const std::size_t library_at = used;
  used += aligned(static_cast<std::size_t>(
      std::max({forward->workspace_bytes(), data->workspace_bytes(), weights->workspace_bytes()})));
  std::size_t& need = per_device_[current_.index()].workspace_need;
  need = std::max(need, used);

  const auto pack = [this](const HeadMove16<T>& move, std::size_t at, const CudaContext& c) {
    T* dense = reinterpret_cast<T*>(c.workspace + at);
    if (const auto chunks = move.by_chunks(dense)) {
      for_each(chunks->size(), CopyChunks{*chunks, reinterpret_cast<Chunk*>(dense),
                                          reinterpret_cast<const Chunk*>(move.tensor)})(c);
    } else {
      for_each(move.count, Copy<T>{move.walk, dense, move.tensor, Move::copy})(c);
    }
  };
  const auto unpack = [this](const HeadMove16<T>& move, std::size_t at, bool overwrites,
                             const CudaContext& c) {
    T* dense = reinterpret_cast<T*>(c.workspace + at);
    const auto chunks = move.by_chunks(dense);
    if (chunks && overwrites) {
      Walk<2> back = *chunks;
      std::swap(back.stride[0], back.stride[1]);
      for_each(back.size(), CopyChunks{back, reinterpret_cast<Chunk*>(move.tensor),
                                       reinterpret_cast<const Chunk*>(dense)})(c);
    } else {
      Walk<2> back = move.walk;
      std::swap(back.stride[0], back.stride[1]);
      for_each(move.count,
               Copy<T>{back, move.tensor, dense, overwrites ? Move::copy : Move::add})(c);
    }
  };
  const HeadMove16<T> query(part.query, r.query, part.width);
  const HeadMove16<T> key(part.key, r.keys, part.width);
  const HeadMove16<T> value(part.value, r.keys, part.width);
  const HeadMove16<T> out(part.y, r.out, part.width);
  const ScoreLines lines{static_cast<std::uint32_t>(keys), static_cast<std::uint32_t>(tokens),
                         static_cast<std::uint32_t>(r.query[1].begin), part.causal,
                         static_cast<std::uint32_t>(part.window),
                         static_cast<float>(part.scale())};
  const auto score_rows = static_cast<std::uint32_t>(batch * rows);
  // Scores are x · wᵀ of queries and keys.
  const auto multiply = [=](const MatrixPlan& plan, const CudaContext& c, std::size_t x,
                            std::size_t w, std::size_t y) {
    plan.run(c.blas, c.workspace + x, c.workspace + w, c.workspace + y, false,
             c.workspace + library_at, c.stream);
  };
  const auto weigh = [=](const CudaContext& c) {
    pack(query, query_at, c);
    pack(key, key_at, c);
    multiply(*forward, c, query_at, key_at, score_at);
    launch(softmax_rows<T>, score_rows, line_threads, c.stream, lines,
           reinterpret_cast<T*>(c.workspace + score_at));
    pack(value, value_at, c);
  };
  if (!r.backward) {
    return [=](const CudaContext& c) {
      weigh(c);
      multiply(*data, c, out_at, value_at, score_at);
      unpack(out, out_at, true, c);
    };
  }
  std::vector<HeadMove16<T>> gradients;
  const std::array<View<T>, 3> views{r.dquery, r.dkey, r.dvalue};
  for (std::size_t i = 0; i < 3; ++i) {
    gradients.emplace_back(views[i], i == 0 ? r.query : r.keys, part.width);
  }
  const std::array<bool, 3> overwrites{r.overwrites[0], r.overwrites[1], r.overwrites[2]};
  return [=](const CudaContext& c) {
    weigh(c);
    pack(out, out_at, c);
    const auto wants = [&](std::size_t i) { return gradients[i].tensor != nullptr; };
    if (wants(2)) {
      multiply(*weights, c, out_at, result_at, score_at);
      unpack(gradients[2], result_at, overwrites[2], c);
    }
    if (!wants(0) && !wants(1)) return;
    multiply(*forward, c, out_at, value_at, slope_at);
    launch(softmax_rows_backward<T>, score_rows, line_threads, c.stream, lines,
           reinterpret_cast<const T*>(c.workspace + score_at),
           reinterpret_cast<T*>(c.workspace + slope_at));
    if (wants(0)) {
      multiply(*data, c, result_at, key_at, slope_at);
      unpack(gradients[0], result_at, overwrites[0], c);
    }
    if (wants(1)) {
      multiply(*weights, c, query_at, result_at, slope_at);
      unpack(gradients[1], result_at, overwrites[1], c);
    }
  };
}

}  // namespace parsim::hw
