// Graphs of cuDNN with several operations on the emulated GPUs. Every operation is computed by its
// definition; what one passes to the next is rounded to its type.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/hw/emulated/dnn.hpp"

namespace emulated {

namespace {

constexpr std::size_t axes = 4;
using Four = std::array<std::int64_t, axes>;

struct GraphTensor {
  Four extents{}, strides{};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::int64_t id = 0;
  bool passes = false;  ///< from one operation to another, never in memory

  [[nodiscard]] std::int64_t volume() const {
    std::int64_t all = 1;
    for (const std::int64_t extent : extents) all *= extent;
    return all;
  }
  [[nodiscard]] bool is_short() const {
    return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF;
  }
  /// Of the element with row-major number n.
  [[nodiscard]] Four at(std::int64_t n) const {
    Four position{};
    for (std::size_t a = axes; a-- > 0;) {
      position[a] = n % extents[a];
      n /= extents[a];
    }
    return position;
  }
  [[nodiscard]] std::int64_t number(const Four& position) const {
    std::int64_t n = 0;
    for (std::size_t a = 0; a < axes; ++a) n = n * extents[a] + position[a];
    return n;
  }
};

GraphTensor tensor(const Described& one) {
  GraphTensor made;
  const auto extents = one.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = one.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  for (std::size_t a = 0; a < axes; ++a) {
    made.extents[a] = extents.at(a);
    made.strides[a] = strides.at(a);
  }
  made.type = one.all<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE).at(0);
  made.id = one.all<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID).at(0);
  const auto passes = one.all<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  made.passes = !passes.empty() && passes[0] != 0;
  return made;
}

/// An operation's tensors: what it reads, in order, and what it makes.
struct Ends {
  std::vector<GraphTensor> from;
  GraphTensor to;
};
Ends ends_of(const Described& operation) {
  using Names = std::vector<cudnnBackendAttributeName_t>;
  const auto [from, to] = [&]() -> std::pair<Names, cudnnBackendAttributeName_t> {
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
                CUDNN_ATTR_OPERATION_MATMUL_CDESC};
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC}, CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC}, CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
      default:
        return {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                 CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
                CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    }
  }();
  Ends ends;
  for (const cudnnBackendAttributeName_t name : from) {
    if (operation.has(name)) ends.from.push_back(tensor(operation.part(name)));
  }
  ends.to = tensor(operation.part(to));
  return ends;
}

bool agrees(const Described& operation) {
  const Ends ends = ends_of(operation);
  const Four& to = ends.to.extents;
  const auto divides = [](std::int64_t part, std::int64_t whole) { return whole % part == 0; };
  if (operation.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    const GraphTensor& a = ends.from.at(0);
    const GraphTensor& b = ends.from.at(1);
    return a.is_short() && a.type == b.type && a.extents[3] == b.extents[2] &&
           a.extents[2] == to[2] && b.extents[3] == to[3] && a.extents[0] == to[0] &&
           b.extents[0] == to[0] && a.extents[1] == to[1] && divides(b.extents[1], to[1]);
  }
  const Four& x = ends.from.at(0).extents;
  if (operation.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
    return x[0] == to[0] && x[1] == to[1] && x[2] == to[3] && x[3] == to[2];
  }
  if (operation.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    return std::equal(to.begin(), to.end(), x.begin(), divides);
  }
  return operation.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR && x == to;
}

class GraphMemory {
 public:
  explicit GraphMemory(const std::map<std::int64_t, void*>& pointers) : pointers_(pointers) {}

  [[nodiscard]] std::vector<double> read(const GraphTensor& t) const {
    if (t.passes) return passing_.at(t.id);
    std::vector<double> values;
    for (std::int64_t n = 0; n < t.volume(); ++n) values.push_back(load(t, offset(t, n)));
    return values;
  }
  void write(const GraphTensor& t, const std::vector<double>& values) {
    std::vector<double>& kept = passing_[t.id];
    kept.clear();
    for (std::int64_t n = 0; n < t.volume(); ++n) {
      const auto value = static_cast<float>(values[static_cast<std::size_t>(n)]);
      if (!t.passes) {
        store(t, offset(t, n), value);
      } else if (t.type == CUDNN_DATA_BFLOAT16) {
        kept.push_back(double{static_cast<float>(__nv_bfloat16(value))});
      } else if (t.type == CUDNN_DATA_HALF) {
        kept.push_back(double{static_cast<float>(__half(value))});
      } else {
        kept.push_back(double{value});
      }
    }
  }

 private:
  static std::int64_t offset(const GraphTensor& t, std::int64_t n) {
    const Four at = t.at(n);
    std::int64_t sum = 0;
    for (std::size_t a = 0; a < axes; ++a) sum += at[a] * t.strides[a];
    return sum;
  }
  [[nodiscard]] double load(const GraphTensor& t, std::int64_t at) const {
    const void* data = pointers_.at(t.id);
    if (t.type == CUDNN_DATA_BFLOAT16) {
      return double{static_cast<float>(static_cast<const __nv_bfloat16*>(data)[at])};
    }
    if (t.type == CUDNN_DATA_HALF) {
      return double{static_cast<float>(static_cast<const __half*>(data)[at])};
    }
    return double{static_cast<const float*>(data)[at]};
  }
  void store(const GraphTensor& t, std::int64_t at, float value) const {
    void* data = pointers_.at(t.id);
    if (t.type == CUDNN_DATA_BFLOAT16) {
      static_cast<__nv_bfloat16*>(data)[at] = __nv_bfloat16(value);
    } else if (t.type == CUDNN_DATA_HALF) {
      static_cast<__half*>(data)[at] = __half(value);
    } else {
      static_cast<float*>(data)[at] = value;
    }
  }

  const std::map<std::int64_t, void*>& pointers_;
  std::map<std::int64_t, std::vector<double>> passing_;
};

double applied(cudnnPointwiseMode_t mode, double x, double b, double chooses, std::int64_t index) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1 : 0;
    case CUDNN_POINTWISE_GEN_INDEX:
      return static_cast<double>(index);
    case CUDNN_POINTWISE_BINARY_SELECT:
      return chooses != 0 ? x : b;
    default:
      return x;
  }
}

/// The element of a tensor that one of another tensor meets: of an axis of extent 1 the only one,
/// of fewer heads that of the group.
std::size_t met(const GraphTensor& t, const GraphTensor& whole, Four at) {
  for (std::size_t a = 0; a < axes; ++a) {
    if (a < 2 || t.extents[a] == 1) at[a] = at[a] * t.extents[a] / whole.extents[a];
  }
  return static_cast<std::size_t>(t.number(at));
}

void compute_one(const Described& operation, GraphMemory& memory) {
  const auto [from, to] = ends_of(operation);
  std::vector<std::vector<double>> read;
  for (const GraphTensor& t : from) read.push_back(memory.read(t));
  std::vector<double> made(static_cast<std::size_t>(to.volume()));
  if (operation.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    const auto how = operation.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                         .all<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR)
                         .at(0);
    const bool adds = how == CUDNN_REDUCE_TENSOR_ADD;
    if (!adds) std::fill(made.begin(), made.end(), -INFINITY);
    for (std::int64_t n = 0; n < from[0].volume(); ++n) {
      const double x = read[0][static_cast<std::size_t>(n)];
      double& y = made[met(to, from[0], from[0].at(n))];
      y = adds ? y + x : std::max(y, x);
    }
    return memory.write(to, made);
  }
  for (std::int64_t n = 0; n < to.volume(); ++n) {
    const Four at = to.at(n);
    double& y = made[static_cast<std::size_t>(n)];
    if (operation.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      const std::int64_t group = to.extents[1] / from[1].extents[1];
      for (std::int64_t k = 0; k < from[0].extents[3]; ++k) {
        const Four left{at[0], at[1], at[2], k};
        const Four right{at[0], at[1] / group, k, at[3]};
        y += read[0][static_cast<std::size_t>(from[0].number(left))] *
             read[1][static_cast<std::size_t>(from[1].number(right))];
      }
    } else if (operation.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
      y = read[0][static_cast<std::size_t>(from[0].number({at[0], at[1], at[3], at[2]}))];
    } else {
      const Described& how = operation.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      const auto axis = how.all<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
      std::array<double, 3> v{};
      for (std::size_t i = 0; i < from.size(); ++i) v[i] = read[i][met(from[i], to, at)];
      y = applied(how.all<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE).at(0), v[0], v[1], v[2],
                  axis.empty() ? 0 : at[static_cast<std::size_t>(axis[0])]);
    }
  }
  memory.write(to, made);
}

const std::vector<std::shared_ptr<Described>>& operations_of(const Described& graph) {
  return graph.parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

}  // namespace

bool is_attention(const Described& graph) {
  int products = 0;
  for (const auto& operation : operations_of(graph)) {
    if (!agrees(*operation)) return false;
    if (operation->type != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) continue;
    const Ends ends = ends_of(*operation);
    if (products++ == 0 && ends.from[0].extents[3] % 8 != 0) return false;
  }
  return products == 2 || products == 5;
}

GraphWork work_of(const Described& graph) {
  GraphWork work;
  std::map<std::int64_t, double> bytes;
  for (const auto& operation : operations_of(graph)) {
    const Ends ends = ends_of(*operation);
    if (operation->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      work.operations += 2.0 * static_cast<double>(ends.to.volume() * ends.from[0].extents[3]);
    }
    for (const GraphTensor& t : ends.from) {
      if (!t.passes) bytes[t.id] = static_cast<double>(t.volume()) * (t.is_short() ? 2 : 4);
    }
    if (!ends.to.passes) {
      bytes[ends.to.id] = static_cast<double>(ends.to.volume()) * (ends.to.is_short() ? 2 : 4);
    }
  }
  for (const auto& [id, each] : bytes) work.bytes += each;
  return work;
}

void compute(const Described& graph, const std::map<std::int64_t, void*>& pointers) {
  GraphMemory memory(pointers);
  for (const auto& operation : operations_of(graph)) compute_one(*operation, memory);
}

}  // namespace emulated
