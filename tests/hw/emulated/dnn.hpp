// Descriptors of the emulated cuDNN, and graphs of several operations: attention's.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace emulated {

struct Described {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, std::vector<char>> values;
  std::map<cudnnBackendAttributeName_t, std::vector<std::shared_ptr<Described>>> parts;
  bool rounds = false;  ///< of an engine and its configurations: to ten bits of mantissa

  template <class T>
  [[nodiscard]] std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> list(found->second.size() / sizeof(T));
    std::memcpy(list.data(), found->second.data(), list.size() * sizeof(T));
    return list;
  }
  [[nodiscard]] const Described& part(cudnnBackendAttributeName_t name) const {
    return *parts.at(name).at(0);
  }
  [[nodiscard]] bool has(cudnnBackendAttributeName_t name) const { return parts.contains(name); }
};

/// Whether cuDNN's engines for attention would take the graph: its operations agree with each
/// other, its products are of 16 bits and of widths that are multiples of 8.
[[nodiscard]] bool is_attention(const Described& graph);
/// Floating-point operations of its products, and bytes of its tensors in memory.
struct GraphWork {
  double operations = 0, bytes = 0;
};
[[nodiscard]] GraphWork work_of(const Described& graph);
/// Computes the graph, operation by operation; pointers by the tensors' ids.
void compute(const Described& graph, const std::map<std::int64_t, void*>& pointers);

}  // namespace emulated
