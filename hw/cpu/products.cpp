#include "hw/cpu/products.hpp"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hw/cpu/scores.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

namespace {

using dnnl::memory;
constexpr memory::data_type f32 = memory::data_type::f32;

/// What one primitive reads or writes: at an address, or in the workspace.
struct Argument {
  int name = 0;
  memory::desc shape;
  float* at = nullptr;
  std::size_t offset = 0;  ///< in bytes, without an address
};

/// A primitive, or a loop of ours over the workspace.
struct Step {
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  std::function<void(char* workspace)> loop;
};

/// `adds`: to what is there.
dnnl::primitive_attr attributes_of(bool adds) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (adds) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  return attributes;
}

memory::desc strided(const Region& region, const View<float>& view) {
  memory::dims extents, strides;
  for (std::size_t a = 0; a < region.rank(); ++a) {
    extents.push_back(region[a].size());
    strides.push_back(view.stride[a]);
  }
  return {extents, f32, strides};
}

}  // namespace

struct CpuProducts::Parts {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<char> workspace;
  std::size_t need = 0;  ///< of all actions

  /// Grown before the first action that runs.
  char* memory_of_copies() {
    if (workspace.size() < need) workspace.resize(need);
    return workspace.data();
  }
};

namespace {

/// One operation in the making: copies, primitives, and how much of the workspace they use.
template <class Parts>
class Call {
 public:
  explicit Call(Parts& parts) : parts_(parts) {}

  /// An input in the shape that a primitive wants.
  Argument input(int name, const memory::desc& own, float* at, const memory::desc& wanted) {
    if (own == wanted) return {name, wanted, at};
    Argument copy{name, wanted, nullptr, place(wanted)};
    reorder({0, own, at}, copy, false);
    return copy;
  }
  /// A result; finish() brings it to its own place.
  Argument result(int name, const memory::desc& own, float* at, const memory::desc& wanted,
                  bool direct) {
    if (direct && own == wanted) return {name, wanted, at};
    return {name, wanted, nullptr, place(wanted)};
  }
  void finish(const Argument& result, const memory::desc& own, float* at, bool adds) {
    if (result.at != nullptr) return;
    reorder(result, {0, own, at}, adds);
  }
  void add(const dnnl::primitive& primitive, const memory::desc& scratchpad,
           std::vector<Argument> arguments) {
    arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, nullptr, place(scratchpad)});
    steps_.push_back({primitive, std::move(arguments), {}});
  }
  void add(std::function<void(char* workspace)> loop) {
    steps_.push_back({{}, {}, std::move(loop)});
  }
  Argument copy(int name, const memory::desc& shape) {
    return {name, shape, nullptr, place(shape)};
  }
  void reorder(Argument from, Argument to, bool adds) {
    from.name = DNNL_ARG_FROM;
    to.name = DNNL_ARG_TO;
    const dnnl::reorder::primitive_desc plan(parts_.engine, from.shape, parts_.engine, to.shape,
                                             attributes_of(adds));
    add(dnnl::reorder(plan), plan.scratchpad_desc(), {from, to});
  }
  [[nodiscard]] CpuProducts::Action action() {
    parts_.need = std::max(parts_.need, used_);
    struct Bound {
      std::vector<Step> steps;
      std::vector<std::unordered_map<int, memory>> memories;  ///< by step, once it has run
    };
    auto bound = std::make_shared<Bound>(Bound{std::move(steps_), {}});
    return [bound, &parts = parts_] {
      try {
        if (bound->memories.empty()) {
          char* copies = parts.memory_of_copies();
          for (const Step& step : bound->steps) {
            auto& memories = bound->memories.emplace_back();
            for (const Argument& one : step.arguments) {
              void* at = one.at != nullptr ? static_cast<void*>(one.at) : copies + one.offset;
              memories.emplace(one.name, memory(one.shape, parts.engine, at));
            }
          }
        }
        for (std::size_t s = 0; s < bound->steps.size(); ++s) {
          const Step& step = bound->steps[s];
          if (step.loop) {
            step.loop(parts.workspace.data());
          } else {
            step.primitive.execute(parts.stream, bound->memories[s]);
          }
        }
        parts.stream.wait();
      } catch (const dnnl::error& error) {
        throw HardwareError(std::string("oneDNN: ") + error.what());
      }
    };
  }

 private:
  std::size_t place(const memory::desc& shape) {
    constexpr std::size_t line = 64;
    const std::size_t at = used_;
    used_ += (shape.get_size() + line - 1) / line * line;
    return at;
  }
  Parts& parts_;
  std::vector<Step> steps_;
  std::size_t used_ = 0;
};

/// The step between neighbours of several axes taken as one, if they lie so.
std::optional<std::int64_t> merged_stride(const Region& region, const View<float>& view,
                                          std::size_t begin, std::size_t end) {
  std::optional<std::int64_t> stride;
  std::int64_t next = 0;
  for (std::size_t a = end; a > begin; --a) {
    if (region[a - 1].size() == 1) continue;
    if (stride && view.stride[a - 1] != next) return std::nullopt;
    if (!stride) stride = view.stride[a - 1];
    next = view.stride[a - 1] * region[a - 1].size();
  }
  return stride.value_or(0);
}

/// Row-major matrices in a tensor, one or a batch of them.
struct Matrices {
  memory::desc own;  ///< the tensor as it is
  float* at = nullptr;
  std::int64_t batch = 1, rows = 1, columns = 1;
  bool direct = false;  ///< strides as below; else it is copied to where it has no gaps
  std::int64_t batch_stride = 0, row_stride = 0;

  /// split   axes before it number the matrices, those after it but the last are rows
  Matrices(const Region& region, const View<float>& view, std::size_t split)
      : own(strided(region, view)), at(start_of(view, region)) {
    const std::size_t last = region.rank() - 1;
    columns = region[last].size();
    for (std::size_t a = 0; a < split; ++a) batch *= region[a].size();
    rows = region.volume() / (batch * columns);
    const auto outer = merged_stride(region, view, 0, split);
    const auto inner = merged_stride(region, view, split, last);
    direct = outer && inner && (columns == 1 || view.stride[last] == 1) &&
             (rows == 1 || *inner >= columns);
    row_stride = direct && rows > 1 ? *inner : columns;
    batch_stride = direct && batch > 1 ? *outer : rows * row_stride;
  }
  [[nodiscard]] memory::desc shape(bool transposed) const {
    const std::int64_t r = transposed ? columns : rows, c = transposed ? rows : columns;
    const std::int64_t down = transposed ? 1 : row_stride, right = transposed ? row_stride : 1;
    if (batch == 1) return {{r, c}, f32, memory::dims{down, right}};
    return {{batch, r, c}, f32, memory::dims{batch_stride, down, right}};
  }
  /// The tensor's own axes, without gaps: what a copy looks like.
  [[nodiscard]] memory::desc dense() const {
    const memory::dims extents = own.dims();
    memory::dims strides(extents.size());
    memory::dim step = 1;
    for (std::size_t a = extents.size(); a > 0; --a) {
      strides[a - 1] = step;
      step *= extents[a - 1];
    }
    return {extents, f32, strides};
  }
};

}  // namespace

CpuProducts::CpuProducts() : parts_(std::make_unique<Parts>()) {}
CpuProducts::~CpuProducts() = default;
CpuProducts::CpuProducts(CpuProducts&&) noexcept = default;

//     forward   y = x · wᵀ      data   dx = dy · w      weights   dw = dyᵀ · x
std::optional<CpuProducts::Action> CpuProducts::multiply(const DenseRequest<float>& r,
                                                         bool batched) {
  const auto matrices = [&](const Region& region, const View<float>& view) {
    return Matrices(region, view, r.experts ? 1 : batched ? region.rank() - 2 : 0);
  };
  const Matrices x = matrices(r.x, r.x_view), w = matrices(r.w, r.w_view);
  const Matrices y = matrices(r.y, r.y_view);
  const bool forward = r.product == Product::forward, weights = r.product == Product::weights;
  const Matrices& left = forward ? x : y;
  const Matrices& right = weights ? x : w;
  const Matrices& out = forward ? y : weights ? w : x;
  const bool adds = !r.overwrites;
  try {
    const auto plan = dnnl::matmul::primitive_desc(
        dnnl::matmul::desc(left.shape(weights), right.shape(forward), out.shape(false)),
        attributes_of(adds && out.direct), parts_->engine);
    Call<Parts> call(*parts_);
    const auto input = [&](int name, const Matrices& from, bool transposed) {
      if (from.direct) return Argument{name, from.shape(transposed), from.at};
      Argument copy = call.input(name, from.own, from.at, from.dense());
      copy.shape = from.shape(transposed);
      return copy;
    };
    const Argument a = input(DNNL_ARG_SRC, left, weights);
    const Argument b = input(DNNL_ARG_WEIGHTS, right, forward);
    Argument c = call.result(DNNL_ARG_DST, out.direct ? out.shape(false) : out.own, out.at,
                             out.direct ? out.shape(false) : out.dense(), out.direct);
    c.shape = out.shape(false);
    call.add(dnnl::matmul(plan), plan.scratchpad_desc(), {a, b, c});
    c.shape = out.dense();
    call.finish(c, out.own, out.at, adds);
    return call.action();
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

std::optional<CpuProducts::Action> CpuProducts::convolve(const ConvRequest<float>& r) {
  const std::size_t spatial = r.stride.size();
  if (spatial < 1 || spatial > 3 || r.x.empty() || r.w.empty()) return std::nullopt;
  using Tag = memory::format_tag;
  constexpr Tag tags[] = {Tag::nwc, Tag::nhwc, Tag::ndhwc};
  const auto image = [&](const Region& region, const View<float>& view) {
    const memory::desc own = strided(region, view);
    return std::pair{own, memory::desc(own.dims(), f32, tags[spatial - 1])};
  };
  const auto [x, x_wanted] = image(r.x, r.x_view);
  const auto [y, y_wanted] = image(r.y, r.y_view);
  memory::desc w = strided(r.w, r.w_view);
  memory::dims w_extents = w.dims();
  if (r.groups > 1) {
    memory::dims strides;
    for (std::size_t a = 0; a < r.w.rank(); ++a) strides.push_back(r.w_view.stride[a]);
    w_extents[0] /= r.groups;
    w_extents.insert(w_extents.begin(), r.groups);
    strides.insert(strides.begin(), w_extents[1] * strides[0]);
    w = memory::desc(w_extents, f32, strides);
  }
  const memory::desc w_wanted(w_extents, f32, Tag::any);
  memory::dims between;  // oneDNN counts the elements left out
  for (const std::int64_t dilation : r.dilation) between.push_back(dilation - 1);
  float* const x_at = start_of(r.x_view, r.x);
  float* const w_at = start_of(r.w_view, r.w);
  float* const y_at = start_of(r.y_view, r.y);
  const dnnl::primitive_attr attributes = attributes_of(false);
  const dnnl::engine& engine = parts_->engine;
  constexpr auto direct_sums = dnnl::algorithm::convolution_direct;
  try {
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, direct_sums, x_wanted, w_wanted, y_wanted, r.stride,
         between, r.pad_begin, r.pad_end},
        attributes, engine);
    Call<Parts> call(*parts_);
    if (r.product == Product::forward) {
      const Argument a = call.input(DNNL_ARG_SRC, x, x_at, forward.src_desc());
      const Argument b = call.input(DNNL_ARG_WEIGHTS, w, w_at, forward.weights_desc());
      const Argument c = call.result(DNNL_ARG_DST, y, y_at, forward.dst_desc(), r.overwrites);
      call.add(dnnl::convolution_forward(forward), forward.scratchpad_desc(), {a, b, c});
      call.finish(c, y, y_at, !r.overwrites);
    } else if (r.product == Product::data) {
      const dnnl::convolution_backward_data::primitive_desc backward(
          {direct_sums, x_wanted, w_wanted, y_wanted, r.stride, between, r.pad_begin, r.pad_end},
          attributes, engine, forward);
      const Argument a = call.input(DNNL_ARG_DIFF_DST, y, y_at, backward.diff_dst_desc());
      const Argument b = call.input(DNNL_ARG_WEIGHTS, w, w_at, backward.weights_desc());
      const Argument c =
          call.result(DNNL_ARG_DIFF_SRC, x, x_at, backward.diff_src_desc(), r.overwrites);
      call.add(dnnl::convolution_backward_data(backward), backward.scratchpad_desc(), {a, b, c});
      call.finish(c, x, x_at, !r.overwrites);
    } else {
      const dnnl::convolution_backward_weights::primitive_desc backward(
          {direct_sums, x_wanted, w_wanted, y_wanted, r.stride, between, r.pad_begin, r.pad_end},
          attributes, engine, forward);
      const Argument a = call.input(DNNL_ARG_SRC, x, x_at, backward.src_desc());
      const Argument b = call.input(DNNL_ARG_DIFF_DST, y, y_at, backward.diff_dst_desc());
      const Argument c =
          call.result(DNNL_ARG_DIFF_WEIGHTS, w, w_at, backward.diff_weights_desc(), r.overwrites);
      call.add(dnnl::convolution_backward_weights(backward), backward.scratchpad_desc(), {a, b, c});
      call.finish(c, w, w_at, !r.overwrites);
    }
    return call.action();
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

std::optional<CpuProducts::Action> CpuProducts::attend(const AttentionRequest<float>& r) {
  const AttentionPart<float>& part = r.part;
  const std::int64_t width = part.width, heads = part.heads;
  if (part.value_width != width || r.keys[1].begin != 0) return std::nullopt;
  const std::int64_t key_heads = r.keys[2].size() / width;
  // Whole heads, each key's with all or as many of its group.
  if (key_heads == 0 || heads % key_heads != 0 || r.out[2].size() != r.query[2].size()) {
    return std::nullopt;
  }
  const std::int64_t group = heads / key_heads;
  if (key_heads > 1 && (group != part.group || part.first_head % group != 0)) return std::nullopt;
  const std::int64_t samples = r.out[0].size(), tokens = r.query[1].size();
  const std::int64_t keys = r.keys[1].size(), batch = samples * key_heads, rows = group * tokens;

  /// Sample × head of keys × head of its group × token × channel of a head.
  const auto as_heads = [&](const View<float>& view, std::int64_t in_group, std::int64_t length) {
    return memory::desc({samples, key_heads, in_group, length, width}, f32,
                        memory::dims{view.stride[0], in_group * width * view.stride[2],
                                     width * view.stride[2], view.stride[1], view.stride[2]});
  };
  const auto dense = [&](std::int64_t in_group, std::int64_t length) {
    return memory::desc({samples, key_heads, in_group, length, width}, f32,
                        memory::format_tag::abcde);
  };
  const auto matrix = [&](std::int64_t down, std::int64_t right, bool transposed) {
    return memory::desc({batch, down, right}, f32,
                        transposed ? memory::format_tag::acb : memory::format_tag::abc);
  };
  try {
    Call<Parts> call(*parts_);
    const auto pack = [&](const View<float>& view, const Region& region, std::int64_t in_group) {
      const std::int64_t length = region[1].size();
      const Argument copy = call.copy(0, dense(in_group, length));
      call.reorder({0, as_heads(view, in_group, length), start_of(view, region)}, copy, false);
      return copy;
    };
    /// out = left · right, each of them `down` × `right` as written, from how it lies in the
    /// copies.
    const auto multiply = [&](Argument left, bool turn_left, Argument right, bool turn_right,
                              Argument out, std::int64_t m, std::int64_t k, std::int64_t n) {
      left.name = DNNL_ARG_SRC;
      left.shape = matrix(m, k, turn_left);
      right.name = DNNL_ARG_WEIGHTS;
      right.shape = matrix(k, n, turn_right);
      out.name = DNNL_ARG_DST;
      out.shape = matrix(m, n, false);
      const dnnl::matmul::primitive_desc plan(
          dnnl::matmul::desc(left.shape, right.shape, out.shape), attributes_of(false),
          parts_->engine);
      call.add(dnnl::matmul(plan), plan.scratchpad_desc(), {left, right, out});
    };
    const auto unpack = [&](Argument from, const View<float>& view, const Region& region,
                            std::int64_t in_group, bool adds) {
      from.shape = dense(in_group, region[1].size());
      call.reorder(from, {0, as_heads(view, in_group, region[1].size()), start_of(view, region)},
                   adds);
    };
    const Argument query = pack(part.query, r.query, group);
    const Argument key = pack(part.key, r.keys, 1);
    const Argument value = pack(part.value, r.keys, 1);
    const Argument scores = call.copy(0, matrix(rows, keys, false));
    const ScoreRows lines{batch * rows, keys,        tokens,      r.query[1].begin,
                          part.causal,  part.window, part.scale()};
    multiply(query, false, key, true, scores, rows, width, keys);
    call.add([lines, at = scores.offset](char* workspace) {
      lines.softmax(reinterpret_cast<float*>(workspace + at));
    });
    if (!r.backward) {
      const Argument out = call.copy(0, dense(group, tokens));
      multiply(scores, false, value, false, out, rows, keys, width);
      unpack(out, part.y, r.out, group, false);
      return call.action();
    }
    const Argument out = pack(part.y, r.out, group);
    const Argument result = call.copy(0, dense(1, std::max(keys, rows)));
    if (r.dvalue.data != nullptr) {
      multiply(scores, true, out, false, result, keys, rows, width);
      unpack(result, r.dvalue, r.keys, 1, !r.overwrites[2]);
    }
    if (r.dquery.data != nullptr || r.dkey.data != nullptr) {
      const Argument slopes = call.copy(0, matrix(rows, keys, false));
      multiply(out, false, value, true, slopes, rows, width, keys);
      call.add([lines, at = scores.offset, to = slopes.offset](char* workspace) {
        lines.backward(reinterpret_cast<const float*>(workspace + at),
                       reinterpret_cast<float*>(workspace + to));
      });
      if (r.dquery.data != nullptr) {
        multiply(slopes, false, key, false, result, rows, keys, width);
        unpack(result, r.dquery, r.query, group, !r.overwrites[0]);
      }
      if (r.dkey.data != nullptr) {
        multiply(slopes, true, query, false, result, keys, rows, width);
        unpack(result, r.dkey, r.keys, 1, !r.overwrites[1]);
      }
    }
    return call.action();
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

}  // namespace parsim::hw
