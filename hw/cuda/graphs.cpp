#include "hw/cuda/graphs.cuh"

namespace parsim::hw {

cudnnDataType_t data_type(Precision precision) {
  return precision == Precision::bf16   ? CUDNN_DATA_BFLOAT16
         : precision == Precision::fp16 ? CUDNN_DATA_HALF
                                        : CUDNN_DATA_FLOAT;
}

GraphPlan::GraphPlan(cudnnContext* handle, const std::string& device_json,
                     const std::vector<cudnnBackendDescriptor_t>& operations, int multiprocessors,
                     bool (*unwanted)(const Descriptor&)) {
  if (handle == nullptr) {
    device_ = Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device_.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                static_cast<std::int64_t>(device_json.size()) + 1, device_json.c_str());
    device_.finalize();
  }
  graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle != nullptr) graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             static_cast<std::int64_t>(operations.size()), operations.data());
  graph_.finalize();

  // With few multiprocessors to count on, both lists can be empty where without they are not.
  for (const auto& [mode, counted] : {std::pair{CUDNN_HEUR_MODE_A, multiprocessors},
                                      {CUDNN_HEUR_MODE_A, 0},
                                      {CUDNN_HEUR_MODE_FALLBACK, multiprocessors},
                                      {CUDNN_HEUR_MODE_FALLBACK, 0}}) {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (counted > 0) {
      heuristics.set(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_TYPE_INT32,
                     static_cast<std::int32_t>(counted));
    }
    if (handle == nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device_);
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
      if (unwanted != nullptr && unwanted(choices[i])) continue;
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      if (handle != nullptr) {
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
      } else {
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device_);
      }
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, choices[i]);
      if (!plan.try_finalize()) continue;
      std::int64_t one = 0;
      cudnn_check(cudnnBackendGetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                           CUDNN_TYPE_INT64, 1, &one, &workspace_),
                  "cudnnBackendGetAttribute");
      plan_ = std::move(plan);
      return;
    }
  }
}

void GraphPlan::run(cudnnContext* handle,
                    const std::vector<std::pair<std::int64_t, void*>>& tensors,
                    void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (const auto& [id, pointer] : tensors) {
    ids.push_back(id);
    pointers.push_back(pointer);
  }
  const auto count = static_cast<std::int64_t>(tensors.size());
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  cudnn_check(cudnnBackendExecute(handle, plan_.raw(), pack.raw()), "cudnnBackendExecute");
}

}  // namespace parsim::hw
