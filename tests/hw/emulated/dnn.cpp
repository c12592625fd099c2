// cuDNN's graph API on the emulated GPUs: graphs are one convolution, forward or one of its
// gradients, or attention (dnn_graph.cpp).
#include "tests/hw/emulated/dnn.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "tests/hw/emulated/machine.hpp"

struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

namespace emulated {

namespace {

std::map<void*, std::shared_ptr<Described>>& known() {
  static std::map<void*, std::shared_ptr<Described>> all;
  return all;
}
std::shared_ptr<Described> find(void* handle) {
  const auto found = known().find(handle);
  return found == known().end() ? nullptr : found->second;
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
      return 8;
    case CUDNN_TYPE_VOID_PTR:
      return 8;
    case CUDNN_TYPE_HANDLE:
      return 8;
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:
      return 4;
  }
}

/// The operation's attribute names in the order of Part: convolution, x, w, y.
struct Names {
  cudnnBackendDescriptorType_t type;
  std::array<cudnnBackendAttributeName_t, 4> part;
  std::size_t result;  ///< of the parts
};
constexpr Names kinds[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
     3},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
     1},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
     2},
};

struct Side {
  std::vector<std::int64_t> extents, strides;
  std::int64_t id = 0;
};
struct Convolution {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool rounds = false;
  std::size_t result = 3;
  Side x, w, y;
  std::vector<std::int64_t> stride, dilation, before, after;

  [[nodiscard]] bool agrees() const {
    const std::size_t axes = stride.size();
    if (axes < 2 || x.extents.size() != axes + 2) return false;  // as cuDNN: images or volumes
    bool right = x.extents[0] == y.extents[0] && x.extents[1] % w.extents[1] == 0 &&
                 w.extents[0] == y.extents[1] && y.extents[1] % groups() == 0;
    for (std::size_t a = 0; a < axes; ++a) {
      const std::int64_t window = (w.extents[a + 2] - 1) * dilation[a] + 1;
      right = right && y.extents[a + 2] ==
                           (x.extents[a + 2] + before[a] + after[a] - window) / stride[a] + 1;
    }
    return right;
  }
  [[nodiscard]] std::int64_t groups() const { return x.extents[1] / w.extents[1]; }
  [[nodiscard]] std::int64_t products() const {
    std::int64_t all = w.extents[1];
    for (const std::int64_t extent : y.extents) all *= extent;
    for (std::size_t a = 2; a < w.extents.size(); ++a) all *= w.extents[a];
    return all;
  }
  [[nodiscard]] double elements() const {
    double all = 0;
    for (const Side* side : {&x, &w, &y}) {
      double volume = 1;
      for (const std::int64_t extent : side->extents) volume *= static_cast<double>(extent);
      all += volume;
    }
    return all;
  }
  [[nodiscard]] std::int64_t workspace() const { return 512 + 16 * y.extents[1]; }
};

Side side(const Described& tensor) {
  return {tensor.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
          tensor.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
          tensor.all<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID).at(0)};
}

Convolution convolution(const Described& operation) {
  const Names& names = *std::find_if(std::begin(kinds), std::end(kinds),
                                     [&](const Names& one) { return one.type == operation.type; });
  const auto part = [&](std::size_t p) -> const Described& {
    return operation.part(names.part[p]);
  };
  Convolution c;
  c.result = names.result;
  c.type = part(1).all<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE).at(0);
  c.x = side(part(1));
  c.w = side(part(2));
  c.y = side(part(3));
  c.stride = part(0).all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  c.dilation = part(0).all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  c.before = part(0).all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  c.after = part(0).all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  return c;
}

/// Visits every product of an x, a w and a y by their offsets.
template <class Visit>
void each_product(const Convolution& c, const Visit& visit) {
  const std::size_t axes = c.stride.size();
  std::vector<std::int64_t> at(2 * axes + 3);  // sample, out, in, then y's and w's positions
  const std::int64_t each = c.y.extents[1] / c.groups();
  std::vector<std::int64_t> most{c.y.extents[0], c.y.extents[1], c.w.extents[1]};
  for (std::size_t a = 0; a < axes; ++a) most.push_back(c.y.extents[a + 2]);
  for (std::size_t a = 0; a < axes; ++a) most.push_back(c.w.extents[a + 2]);
  for (;;) {
    std::int64_t x =
        at[0] * c.x.strides[0] + (at[1] / each * c.w.extents[1] + at[2]) * c.x.strides[1];
    std::int64_t w = at[1] * c.w.strides[0] + at[2] * c.w.strides[1];
    std::int64_t y = at[0] * c.y.strides[0] + at[1] * c.y.strides[1];
    bool inside = true;
    for (std::size_t a = 0; a < axes; ++a) {
      const std::int64_t out = at[3 + a];
      const std::int64_t tap = at[3 + axes + a];
      const std::int64_t in = out * c.stride[a] + tap * c.dilation[a] - c.before[a];
      inside = inside && in >= 0 && in < c.x.extents[a + 2];
      x += in * c.x.strides[a + 2];
      w += tap * c.w.strides[a + 2];
      y += out * c.y.strides[a + 2];
    }
    if (inside) visit(x, w, y);
    std::size_t axis = at.size();
    while (axis > 0 && ++at[axis - 1] == most[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

template <class T>
void compute(const Convolution& c, T* x, T* w, T* y) {
  const Side& result = c.result == 1 ? c.x : c.result == 2 ? c.w : c.y;
  std::int64_t count = 1;
  for (const std::int64_t extent : result.extents) count *= extent;
  std::vector<double> total(static_cast<std::size_t>(count));  // results are dense
  each_product(c, [&](std::int64_t i, std::int64_t k, std::int64_t o) {
    const auto value = [&](const T* data, std::int64_t at) {
      return double{factor(static_cast<float>(data[at]), c.rounds)};
    };
    if (c.result == 3) total[static_cast<std::size_t>(o)] += value(x, i) * value(w, k);
    if (c.result == 1) total[static_cast<std::size_t>(i)] += value(y, o) * value(w, k);
    if (c.result == 2) total[static_cast<std::size_t>(k)] += value(x, i) * value(y, o);
  });
  T* to = c.result == 1 ? x : c.result == 2 ? w : y;
  for (std::size_t i = 0; i < total.size(); ++i) to[i] = T(static_cast<float>(total[i]));
}

constexpr cudnnStatus_t bad = CUDNN_STATUS_BAD_PARAM;

bool is_convolution(const Described& one) {
  return std::any_of(std::begin(kinds), std::end(kinds),
                     [&](const Names& names) { return names.type == one.type; });
}

/// Of a configuration of an engine.
const Described& graph_of(const Described& choice) {
  return choice.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
}
/// The convolution that a graph is; null: attention.
const Described* convolution_of(const Described& graph) {
  const Described& first = graph.part(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  return is_convolution(first) ? &first : nullptr;
}
constexpr std::int64_t attention_workspace = 256;
}  // namespace

int& attention_graphs() {
  static int count = 0;
  return count;
}

namespace {

/// Attention on a stream. Null pointers, and those that are not aligned, are refused.
cudnnStatus_t attend(cudnnHandle_t handle, const std::shared_ptr<Described>& plan,
                     const std::map<std::int64_t, void*>& pointers, void* workspace) {
  if (workspace == nullptr || reinterpret_cast<std::uintptr_t>(workspace) % 16 != 0) return bad;
  ++attention_graphs();
  const CUstream_st& on = *stream_of(handle->stream);
  // Numbers that are passed by value are read now, as when a kernel is launched.
  auto numbers = std::make_shared<std::map<std::int64_t, float>>();
  const Described& graph = graph_of(plan->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
  for (const auto& operation : graph.parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const auto& [name, parts] : operation->parts) {
      const auto id = parts[0]->all<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
      if (id.empty() || !pointers.contains(id[0])) continue;
      void* const at = pointers.at(id[0]);
      const auto aligned = parts[0]->all<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT).at(0);
      if (reinterpret_cast<std::intptr_t>(at) % aligned != 0 || at == nullptr) return bad;
      const auto by_value = parts[0]->all<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
      if (!by_value.empty() && by_value[0] != 0) (*numbers)[id[0]] = *static_cast<float*>(at);
    }
  }
  const auto work = [=, &on](Nanoseconds start) {
    const Described& own = graph_of(plan->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
    if (settings().numbers) {
      std::memset(workspace, 0xff, static_cast<std::size_t>(attention_workspace));
      std::map<std::int64_t, void*> all = pointers;
      for (auto& [id, number] : *numbers) all[id] = &number;
      compute(own, all);
    }
    const GraphWork size = work_of(own);
    return std::optional(start + gemm_time(size.operations, size.bytes, on));
  };
  return put(handle->stream, work) == cudaSuccess ? CUDNN_STATUS_SUCCESS
                                                  : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

}  // namespace emulated

using namespace emulated;

extern "C" {

const char* cudnnGetErrorString(cudnnStatus_t) { return "emulated cuDNN's error"; }
std::size_t cudnnGetVersion(void) { return 91900; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext{current_device(), nullptr};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (stream_of(stream)->device != handle->device) return bad;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  auto made = std::make_shared<Described>();
  made->type = type;
  *descriptor = made.get();
  known()[made.get()] = std::move(made);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return known().erase(descriptor) == 1 ? CUDNN_STATUS_SUCCESS : bad;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  const auto own = find(descriptor);
  if (!own || own->finalized || count < 1 || values == nullptr) return bad;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    own->parts[name].clear();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto other = find(static_cast<cudnnBackendDescriptor_t const*>(values)[i]);
      if (!other || !other->finalized) return bad;
      own->parts[name].push_back(other);
    }
    return CUDNN_STATUS_SUCCESS;
  }
  const auto* bytes = static_cast<const char*>(values);
  own->values[name].assign(bytes, bytes + static_cast<std::size_t>(count) * size_of(type));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const auto own = find(descriptor);
  if (!own || own->finalized) return bad;
  if (is_convolution(*own) && !convolution(*own).agrees()) return bad;
  if (own->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    if (!own->has(CUDNN_ATTR_OPERATIONGRAPH_OPS)) return bad;
    if (convolution_of(*own) == nullptr && !is_attention(*own)) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (own->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const bool placed = own->values.contains(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) ||
                        own->has(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    if (!placed || !own->has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)) return bad;
  }
  own->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t asked,
                                       std::int64_t* count, void* values) {
  const auto own = find(descriptor);
  if (!own || !own->finalized) return bad;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    // First an engine on tensor cores, then one that keeps all bits. Of attention one, and none if
    // it is to count on so many multiprocessors.
    auto* choices = static_cast<cudnnBackendDescriptor_t*>(values);
    const bool attention = convolution_of(graph_of(*own)) == nullptr;
    const bool counted = own->values.contains(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET);
    *count = std::min<std::int64_t>(asked, !attention                         ? 2
                                           : counted || !settings().attention ? 0
                                                                              : 1);
    for (std::int64_t i = 0; i < *count; ++i) {
      const auto choice = find(choices[i]);
      if (!choice || choice->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return bad;
      choice->parts[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
          own->parts.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      choice->rounds = i == 0;
      choice->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto engine = find(*static_cast<cudnnBackendDescriptor_t*>(values));
    if (!engine || engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return bad;
    engine->rounds = own->rounds;
    engine->finalized = true;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    *count = own->rounds ? 1 : 0;
    const cudnnBackendNumericalNote_t note = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (own->rounds) std::memcpy(values, &note, sizeof note);
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    const Described& choice = own->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const Described* single = convolution_of(graph_of(choice));
    const std::int64_t bytes =
        single == nullptr ? attention_workspace : convolution(*single).workspace();
    std::memcpy(values, &bytes, sizeof bytes);
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  return bad;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                                  cudnnBackendDescriptor_t pack_handle) {
  const auto plan = find(plan_handle);
  const auto pack = find(pack_handle);
  if (!plan || !pack || !plan->finalized || !pack->finalized) return bad;
  if (plan->all<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE).at(0)->device != handle->device) {
    return bad;
  }
  const Described& choice = plan->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const auto ids = pack->all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack->all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  void* workspace = pack->all<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE).at(0);
  const Described* single = convolution_of(graph_of(choice));
  if (single == nullptr) {
    std::map<std::int64_t, void*> by_id;
    for (std::size_t i = 0; i < ids.size(); ++i) by_id[ids[i]] = pointers.at(i);
    return attend(handle, plan, by_id, workspace);
  }
  Convolution c = convolution(*single);
  c.rounds = choice.rounds;
  const auto pointer = [&](const Side& tensor) {
    const auto at = std::find(ids.begin(), ids.end(), tensor.id) - ids.begin();
    return pointers.at(static_cast<std::size_t>(at));
  };
  const std::array<void*, 4> used{pointer(c.x), pointer(c.w), pointer(c.y), workspace};
  for (void* one : used) {
    if (one == nullptr || reinterpret_cast<std::uintptr_t>(one) % 16 != 0) return bad;
  }
  const CUstream_st& on = *stream_of(handle->stream);
  const auto work = [c, used, &on](Nanoseconds start) {
    if (settings().numbers) std::memset(used[3], 0xff, static_cast<std::size_t>(c.workspace()));
    if (!settings().numbers) {
      // nothing but time
    } else if (c.type == CUDNN_DATA_FLOAT) {
      compute(c, static_cast<float*>(used[0]), static_cast<float*>(used[1]),
              static_cast<float*>(used[2]));
    } else if (c.type == CUDNN_DATA_HALF) {
      compute(c, static_cast<__half*>(used[0]), static_cast<__half*>(used[1]),
              static_cast<__half*>(used[2]));
    } else {
      compute(c, static_cast<__nv_bfloat16*>(used[0]), static_cast<__nv_bfloat16*>(used[1]),
              static_cast<__nv_bfloat16*>(used[2]));
    }
    const double size = c.type == CUDNN_DATA_FLOAT ? 4 : 2;
    return std::optional(
        start + gemm_time(2.0 * static_cast<double>(c.products()), size * c.elements(), on));
  };
  return put(handle->stream, work) == cudaSuccess ? CUDNN_STATUS_SUCCESS
                                                  : CUDNN_STATUS_EXECUTION_FAILED;
}
}
