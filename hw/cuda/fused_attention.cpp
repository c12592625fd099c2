#include "hw/cuda/fused_attention.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "hw/cuda/graphs.cuh"

namespace parsim::hw {

namespace {

using Extents = std::vector<std::int64_t>;
using Node = cudnnBackendDescriptor_t;

/// Ids of the tensors that are no operands; operands have their number plus one.
enum Id : std::int64_t {
  statistics_id = 20,
  scale_id,
  masked_id,
  one_id,
  slopes_id,
  query_sums_id,
  virtual_ids,
};

constexpr std::int64_t alignment_of_workspace = 256;
std::int64_t padded(std::int64_t bytes) {
  return (bytes + alignment_of_workspace - 1) / alignment_of_workspace * alignment_of_workspace;
}

/// The operations of attention, as cuDNN's engines expect them (the order and form of
/// cudnn-frontend's graphs for cuDNN 9). Tensors are sample × head × token × channel.
class AttentionGraph {
 public:
  explicit AttentionGraph(const AttentionShape& shape)
      : shape_(shape), type_(data_type(shape.precision)) {
    const auto& s = shape;
    scores_ = {s.samples, s.heads, s.tokens, s.keys};
    rows_ = {s.samples, s.heads, s.tokens, 1};
    statistics_ = real(rows_, dense(rows_), CUDNN_DATA_FLOAT, statistics_id);
    scale_ = number(scale_id);
    if (s.causal) masked_ = number(masked_id);
  }

  //     S = scale · Q · Kᵀ, masked;  m = max S;  l = sum exp(S - m);  O = exp(S - m) / l · V;
  //     statistics = m + log l
  void forward() {
    const Node score = masked(
        scaled(product(operand(AttentionShape::query), transposed(AttentionShape::key), scores())));
    const Node top = rows();
    reduce(CUDNN_REDUCE_TENSOR_MAX, score, top);
    const Node exponential = apply(CUDNN_POINTWISE_EXP, apply(CUDNN_POINTWISE_SUB, score, top));
    const Node sum = rows();
    reduce(CUDNN_REDUCE_TENSOR_ADD, exponential, sum);
    const Node logarithm = rows();
    pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, logarithm);
    pointwise(CUDNN_POINTWISE_ADD, top, logarithm, statistics_);
    const Node weights = scores(type_);
    pointwise(CUDNN_POINTWISE_DIV, exponential, sum, weights);
    product(weights, operand(AttentionShape::value), operand(AttentionShape::out));
  }

  //     P = exp(S - statistics);  D = row sums of dO ∘ O;  dV = Pᵀ · dO;
  //     dS = scale · P ∘ (dO · Vᵀ - D);  dK = dSᵀ · Q;  dQ = dS · K
  void backward() {
    const auto& s = shape_;
    const Node query = operand(AttentionShape::query);
    const Node key = transposed(AttentionShape::key);
    const Node slope = operand(AttentionShape::dout);
    const Node both = passing({s.samples, s.heads, s.tokens, s.width});
    pointwise(CUDNN_POINTWISE_MUL, slope, operand(AttentionShape::out), both);
    const Node row_sums = rows();
    reduce(CUDNN_REDUCE_TENSOR_ADD, both, row_sums);
    const Node slopes = real(rows_, dense(rows_), CUDNN_DATA_FLOAT, slopes_id);
    pointwise(CUDNN_POINTWISE_MUL, row_sums, number(one_id), slopes);

    const Node score = scaled(product(query, key, scores()));
    const Node weights =
        apply(CUDNN_POINTWISE_EXP, masked(apply(CUDNN_POINTWISE_SUB, score, statistics_)));
    over_groups(turned(weights), slope, AttentionShape::dvalue);

    const Node gap = apply(CUDNN_POINTWISE_SUB,
                           product(slope, transposed(AttentionShape::value), scores()), slopes);
    const Node weighed = apply(CUDNN_POINTWISE_MUL, gap, weights);
    const Node gradient = scores(type_);
    pointwise(CUDNN_POINTWISE_MUL, weighed, scale_, gradient);
    over_groups(turned(gradient), query, AttentionShape::dkey);

    const Node upright =
        passing({s.samples, s.key_heads, s.keys, s.width}, type_, strides_of(AttentionShape::key));
    reshape(key, upright);
    const Extents extents{s.samples, s.heads, s.tokens, s.width};
    const Node query_sums = real(extents, dense(extents), CUDNN_DATA_FLOAT, query_sums_id);
    product(gradient, upright, query_sums);
    pointwise(CUDNN_POINTWISE_IDENTITY, query_sums, nullptr, operand(AttentionShape::dquery));
  }

  [[nodiscard]] const std::vector<Node>& operations() const { return operations_; }
  /// For as long as the graph is used.
  [[nodiscard]] std::vector<Descriptor> take_parts() { return std::move(parts_); }

 private:
  static Extents dense(const Extents& extents) {
    Extents strides(extents.size(), 1);
    for (std::size_t a = extents.size() - 1; a-- > 0;) {
      strides[a] = strides[a + 1] * extents[a + 1];
    }
    return strides;
  }
  [[nodiscard]] bool of_keys(AttentionShape::Operand which) const {
    return which == AttentionShape::key || which == AttentionShape::value ||
           which == AttentionShape::dkey || which == AttentionShape::dvalue;
  }
  [[nodiscard]] Extents strides_of(AttentionShape::Operand which) const {
    return {shape_.strides[which].sample, shape_.width, shape_.strides[which].token, 1};
  }

  Node keep(Descriptor made) {
    made.finalize();
    parts_.push_back(std::move(made));
    return parts_.back().raw();
  }
  Node tensor(const Extents& extents, const Extents& strides, cudnnDataType_t type, std::int64_t id,
              bool is_virtual, bool by_value) {
    const bool shorter = type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF;
    Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
    t.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
          shorter ? std::int64_t{16} : std::int64_t{4});
    t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    if (by_value) t.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    return keep(std::move(t));
  }
  Node real(const Extents& extents, const Extents& strides, cudnnDataType_t type, std::int64_t id) {
    return tensor(extents, strides, type, id, false, false);
  }
  Node number(std::int64_t id) {
    return tensor({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, id, false, true);
  }
  /// Between two operations, never in memory.
  Node passing(const Extents& extents, cudnnDataType_t type = CUDNN_DATA_FLOAT,
               const std::optional<Extents>& strides = {}) {
    return tensor(extents, strides ? *strides : dense(extents), type, next_id_++, true, false);
  }
  Node scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) { return passing(scores_, type); }
  Node rows() { return passing(rows_); }
  Node operand(AttentionShape::Operand which) {
    Node& made = operands_[which];
    if (made == nullptr) {
      const auto& s = shape_;
      made = real({s.samples, of_keys(which) ? s.key_heads : s.heads,
                   of_keys(which) ? s.keys : s.tokens, s.width},
                  strides_of(which), type_, which + 1);
    }
    return made;
  }
  /// Keys or values with their last two axes exchanged.
  Node transposed(AttentionShape::Operand which) {
    Extents strides = strides_of(which);
    std::swap(strides[2], strides[3]);
    return real({shape_.samples, shape_.key_heads, shape_.width, shape_.keys}, strides, type_,
                which + 1);
  }

  Node operation(Descriptor made) {
    operations_.push_back(keep(std::move(made)));
    return operations_.back();
  }
  void pointwise(cudnnPointwiseMode_t mode, Node x, Node b, Node y,
                 cudnnDataType_t precision = CUDNN_DATA_FLOAT, std::int64_t axis = -1,
                 Node chooses = nullptr) {
    Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
    if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
    Descriptor o(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    part(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(how)));
    part(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != nullptr) part(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (chooses != nullptr) part(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, chooses);
    part(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    operation(std::move(o));
  }
  /// To scores.
  Node apply(cudnnPointwiseMode_t mode, Node x, Node b = nullptr) {
    const Node y = scores();
    pointwise(mode, x, b, y);
    return y;
  }
  Node scaled(Node score) { return apply(CUDNN_POINTWISE_MUL, score, scale_); }
  Node masked(Node score) {
    if (!shape_.causal) return score;
    const Node row = scores(CUDNN_DATA_INT32);
    const Node column = scores(CUDNN_DATA_INT32);
    const Node sees = scores(CUDNN_DATA_BOOLEAN);
    const Node y = scores();
    pointwise(CUDNN_POINTWISE_GEN_INDEX, score, nullptr, row, CUDNN_DATA_FLOAT, 2);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, score, nullptr, column, CUDNN_DATA_FLOAT, 3);
    pointwise(CUDNN_POINTWISE_CMP_GE, row, column, sees, CUDNN_DATA_BOOLEAN);
    pointwise(CUDNN_POINTWISE_BINARY_SELECT, score, masked_, y, CUDNN_DATA_FLOAT, -1, sees);
    return y;
  }
  Node product(Node a, Node b, Node c) {
    Descriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    Descriptor o(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    part(o, CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(how)));
    part(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    part(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    part(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    operation(std::move(o));
    return c;
  }
  void reduce(cudnnReduceTensorOp_t operation_of, Node x, Node y) {
    Descriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operation_of);
    Descriptor o(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    part(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(how)));
    part(o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    part(o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    operation(std::move(o));
  }
  void reshape(Node x, Node y) {
    Descriptor o(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    part(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    part(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    operation(std::move(o));
  }
  /// Scores with their last two axes exchanged, in the operands' type.
  Node turned(Node score) {
    const Extents strides = dense(scores_);
    const Node y = passing({scores_[0], scores_[1], scores_[3], scores_[2]}, type_,
                           Extents{strides[0], strides[1], strides[3], strides[2]});
    reshape(score, y);
    return y;
  }
  /// left · right, summed over the heads that share keys.
  void over_groups(Node left, Node right, AttentionShape::Operand to) {
    const auto& s = shape_;
    if (s.heads == s.key_heads) {
      product(left, right, operand(to));
      return;
    }
    const Node all = passing({s.samples, s.heads, s.keys, s.width}, type_);
    reduce(CUDNN_REDUCE_TENSOR_ADD, product(left, right, all), operand(to));
  }
  static void part(Descriptor& of, cudnnBackendAttributeName_t name, Node value) {
    of.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value);
  }

  AttentionShape shape_;
  cudnnDataType_t type_;
  Extents scores_, rows_;
  Node statistics_ = nullptr, scale_ = nullptr, masked_ = nullptr;
  std::array<Node, AttentionShape::count> operands_{};
  std::vector<Descriptor> parts_;
  std::vector<Node> operations_;
  std::int64_t next_id_ = virtual_ids;
};

}  // namespace

struct AttentionPlan::Parts {
  AttentionShape shape;
  std::vector<Descriptor> graph_parts;
  GraphPlan plan;
  /// Passed by value: what scores are multiplied by, what masked ones are, and 1.
  mutable float scale = 1, masked = -std::numeric_limits<float>::infinity(), one = 1;

  /// Bytes of the backward pass's row sums and sums of the queries' gradients.
  [[nodiscard]] std::int64_t row_bytes() const {
    return padded(shape.samples * shape.heads * shape.tokens * 4);
  }
  [[nodiscard]] std::int64_t query_bytes() const {
    return padded(shape.samples * shape.heads * shape.tokens * shape.width * 4);
  }
};

AttentionPlan::AttentionPlan() : parts_(std::make_unique<Parts>()) {}
AttentionPlan::~AttentionPlan() = default;

std::unique_ptr<AttentionPlan> AttentionPlan::make(cudnnContext* handle,
                                                   const AttentionShape& shape,
                                                   int multiprocessors) {
  constexpr std::size_t first_version = 90600;  // before, sums had to begin as zero
  const bool short_numbers =
      shape.precision == Precision::bf16 || shape.precision == Precision::fp16;
  if (!short_numbers || shape.width % 8 != 0 || cudnnGetVersion() < first_version) return nullptr;
  std::unique_ptr<AttentionPlan> result(new AttentionPlan);
  Parts& p = *result->parts_;
  p.shape = shape;
  p.scale = 1 / std::sqrt(static_cast<float>(shape.width));
  try {
    AttentionGraph graph(shape);
    if (shape.backward) {
      graph.backward();
    } else {
      graph.forward();
    }
    p.plan = GraphPlan(handle, {}, graph.operations(), multiprocessors, nullptr);
    p.graph_parts = graph.take_parts();
  } catch (const HardwareError&) {  // this cuDNN does not know the graph
    return nullptr;
  }
  if (!p.plan.exists()) return nullptr;
  return result;
}

std::int64_t AttentionPlan::workspace_bytes() const {
  const Parts& p = *parts_;
  const std::int64_t own = p.shape.backward ? p.row_bytes() + p.query_bytes() : 0;
  return own + p.plan.workspace_bytes();
}

void AttentionPlan::run(cudnnContext* handle,
                        const std::array<void*, AttentionShape::count>& operands, float* statistics,
                        char* workspace) const {
  const Parts& p = *parts_;
  std::vector<std::pair<std::int64_t, void*>> tensors{{statistics_id, statistics},
                                                      {scale_id, &p.scale}};
  if (p.shape.causal) tensors.emplace_back(masked_id, &p.masked);
  const std::size_t used = p.shape.backward ? AttentionShape::count : AttentionShape::out + 1;
  for (std::size_t o = 0; o < used; ++o) {
    tensors.emplace_back(static_cast<std::int64_t>(o) + 1, operands[o]);
  }
  if (p.shape.backward) {
    tensors.emplace_back(one_id, &p.one);
    tensors.emplace_back(slopes_id, workspace);
    tensors.emplace_back(query_sums_id, workspace + p.row_bytes());
    workspace += p.row_bytes() + p.query_bytes();
  }
  p.plan.run(handle, tensors, workspace);
}

}  // namespace parsim::hw
