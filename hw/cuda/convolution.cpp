#include "hw/cuda/convolution.hpp"

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hw/cuda/check.hpp"

namespace parsim::hw {

namespace {

/// A descriptor of cuDNN's backend API.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cudnn_check(cudnnBackendCreateDescriptor(type, &handle_), "cudnnBackendCreateDescriptor");
  }
  ~Descriptor() {
    if (handle_ != nullptr) static_cast<void>(cudnnBackendDestroyDescriptor(handle_));
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  [[nodiscard]] cudnnBackendDescriptor_t raw() const { return handle_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values) {
    cudnn_check(cudnnBackendSetAttribute(handle_, name, type, count, values),
                "cudnnBackendSetAttribute");
  }
  template <class Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Value value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
    set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.handle_);
  }
  void finalize() { cudnn_check(cudnnBackendFinalize(handle_), "cudnnBackendFinalize"); }
  [[nodiscard]] bool try_finalize() {
    return cudnnBackendFinalize(handle_) == CUDNN_STATUS_SUCCESS;
  }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

cudnnDataType_t data_type(Precision precision) {
  return precision == Precision::bf16   ? CUDNN_DATA_BFLOAT16
         : precision == Precision::fp16 ? CUDNN_DATA_HALF
                                        : CUDNN_DATA_FLOAT;
}

constexpr std::int64_t x_id = 1, w_id = 2, y_id = 3;

Descriptor tensor(const std::vector<std::int64_t>& extents, std::int64_t id, Precision precision) {
  std::vector<std::int64_t> strides(extents.size());
  strides[1] = 1;
  std::int64_t step = extents[1];
  for (std::size_t a = extents.size(); a-- > 0;) {
    if (a == 1) continue;
    strides[a] = step;
    step *= extents[a];
  }
  Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, data_type(precision));
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
  t.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
  t.finalize();
  return t;
}

Descriptor convolution(const ConvShape& shape) {
  Descriptor c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  c.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
        static_cast<std::int64_t>(shape.stride.size()));
  c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, shape.dilation);
  c.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, shape.stride);
  c.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, shape.pad_begin);
  c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, shape.pad_end);
  c.finalize();
  return c;
}

/// Names of the three operations' attributes, by Product.
struct Attributes {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
};
constexpr std::array<Attributes, 3> operations{{
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
}};

/// fp32 means fp32: engines that round to ten bits of mantissa are for tf32.
bool uses_tensor_cores(const Descriptor& configuration) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  std::int64_t count = 0;
  cudnn_check(cudnnBackendGetAttribute(configuration.raw(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
              "cudnnBackendGetAttribute");
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  cudnn_check(cudnnBackendGetAttribute(
                  engine.raw(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                  static_cast<std::int64_t>(notes.size()), &count, notes.data()),
              "cudnnBackendGetAttribute");
  return std::find(notes.begin(), notes.begin() + count, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) !=
         notes.begin() + count;
}

}  // namespace

struct ConvPlan::Parts {
  Descriptor device, x, w, y, convolution, operation, graph, plan;
};

ConvPlan::ConvPlan() : parts_(std::make_unique<Parts>()) {}
ConvPlan::~ConvPlan() = default;

std::unique_ptr<ConvPlan> ConvPlan::build(cudnnContext* handle, const std::string& device_json,
                                          const ConvShape& shape, int multiprocessors) {
  std::unique_ptr<ConvPlan> result(new ConvPlan);
  Parts& p = *result->parts_;
  if (!device_json.empty()) {
    p.device = Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    p.device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 static_cast<std::int64_t>(device_json.size()) + 1, device_json.c_str());
    p.device.finalize();
  }
  p.x = tensor(shape.x, x_id, shape.precision);
  p.w = tensor(shape.w, w_id, shape.precision);
  p.y = tensor(shape.y, y_id, shape.precision);
  p.convolution = convolution(shape);
  const Attributes& names = operations[static_cast<std::size_t>(shape.product)];
  p.operation = Descriptor(names.type);
  p.operation.set(names.conv, p.convolution);
  p.operation.set(names.x, p.x);
  p.operation.set(names.w, p.w);
  p.operation.set(names.y, p.y);
  p.operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0F);
  p.operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.0F);
  p.operation.finalize();
  p.graph = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle != nullptr) p.graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  p.graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, p.operation);
  p.graph.finalize();

  // What the heuristics offer first may all round to ten bits; the other list has slower engines.
  // With few multiprocessors to count on, both can be empty where without they are not.
  for (const auto& [mode, counted] : {std::pair{CUDNN_HEUR_MODE_A, multiprocessors},
                                      {CUDNN_HEUR_MODE_A, 0},
                                      {CUDNN_HEUR_MODE_FALLBACK, multiprocessors},
                                      {CUDNN_HEUR_MODE_FALLBACK, 0}}) {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, p.graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (counted > 0) {
      heuristics.set(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_TYPE_INT32,
                     static_cast<std::int32_t>(counted));
    }
    if (handle == nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, p.device);
    if (!heuristics.try_finalize()) continue;
    constexpr std::size_t offered = 16;
    std::vector<Descriptor> choices;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::size_t i = 0; i < offered; ++i) {
      choices.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      raw.push_back(choices.back().raw());
    }
    std::int64_t count = 0;
    cudnn_check(cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         static_cast<std::int64_t>(offered), &count, raw.data()),
                "cudnnBackendGetAttribute");
    for (std::size_t i = 0; i < static_cast<std::size_t>(count) && i < offered; ++i) {
      if (shape.precision == Precision::fp32 && uses_tensor_cores(choices[i])) continue;
      p.plan = Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      if (handle != nullptr) {
        p.plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
      } else {
        p.plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, p.device);
      }
      p.plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, choices[i]);
      if (!p.plan.try_finalize()) continue;
      std::int64_t one = 0;
      cudnn_check(cudnnBackendGetAttribute(p.plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                           CUDNN_TYPE_INT64, 1, &one, &result->workspace_),
                  "cudnnBackendGetAttribute");
      return result;
    }
  }
  return nullptr;
}

std::unique_ptr<ConvPlan> ConvPlan::make(cudnnContext* handle, const ConvShape& shape,
                                         int multiprocessors) {
  return build(handle, {}, shape, multiprocessors);
}

std::unique_ptr<ConvPlan> ConvPlan::describe(const std::string& device_json,
                                             const ConvShape& shape) {
  return build(nullptr, device_json, shape, 0);
}

void ConvPlan::run(cudnnContext* handle, void* x, void* w, void* y, void* workspace) const {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const std::array<void*, 3> pointers{x, w, y};
  const std::array<std::int64_t, 3> ids{x_id, w_id, y_id};
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  cudnn_check(cudnnBackendExecute(handle, parts_->plan.raw(), pack.raw()), "cudnnBackendExecute");
}

}  // namespace parsim::hw
