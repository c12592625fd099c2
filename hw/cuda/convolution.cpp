#include "hw/cuda/convolution.hpp"

#include <algorithm>
#include <array>

#include "hw/cuda/check.hpp"
#include "hw/cuda/graphs.cuh"

namespace parsim::hw {

namespace {

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
  Descriptor x, w, y, convolution, operation;
  GraphPlan graph;
};

ConvPlan::ConvPlan() : parts_(std::make_unique<Parts>()) {}
ConvPlan::~ConvPlan() = default;

std::unique_ptr<ConvPlan> ConvPlan::build(cudnnContext* handle, const std::string& device_json,
                                          const ConvShape& shape, int multiprocessors) {
  std::unique_ptr<ConvPlan> result(new ConvPlan);
  Parts& p = *result->parts_;
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
  // What the heuristics offer first may all round to ten bits; the other list has slower engines.
  p.graph = GraphPlan(handle, device_json, {p.operation.raw()}, multiprocessors,
                      shape.precision == Precision::fp32 ? uses_tensor_cores : nullptr);
  if (!p.graph.exists()) return nullptr;
  result->workspace_ = p.graph.workspace_bytes();
  return result;
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
  parts_->graph.run(handle, {{x_id, x}, {w_id, w}, {y_id, y}}, workspace);
}

}  // namespace parsim::hw
