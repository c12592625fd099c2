// The CPU engine of hw/kernels.hpp: kernel bodies in parallel loops over a device's cores, products
// by oneDNN.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "hw/cpu/cores.hpp"
#include "hw/cpu/products.hpp"
#include "hw/host_tensors.hpp"
#include "hw/memory_plan.hpp"

namespace parsim::hw {

/// Whether several of a body's elements may add to the same place: then one thread does them all.
template <class Body>
[[nodiscard]] bool adds_to_shared(const Body& body) {
  if constexpr (requires { body.atomic; }) return body.atomic;
  return false;
}
template <class T>
[[nodiscard]] bool adds_to_shared(const LookUp<T>& body) {
  return body.backward;
}

class CpuEngine : public HostTensors<float> {
 public:
  using Action = std::function<void()>;

  /// exact   with the tests' weights and learning rate; else such that numbers stay alike, step
  ///         after step: what branches on them, as a pooling does, always takes as long
  CpuEngine(const ExecDag& dag, const Dispatch& order, const CpuCores& cores, bool exact)
      : HostTensors(dag, {}, true),
        cores_(cores),
        products_(cores.devices()),
        first_uses_(plan_memory(dag, order, stores(), sizeof(float), 1, {false, true}).first_uses),
        exact_(exact) {}

  void reset() { HostTensors::reset(exact_); }
  [[nodiscard]] float rate() const { return exact_ ? HostTensors::rate() : 1e-9F; }

  /// The operation whose kernels are made next, and its device.
  void begin(OpId op, DeviceId device) {
    op_ = op;
    current_ = device;
    cores_.count_on(device);
  }
  [[nodiscard]] bool overwrites(const StoreKey& key, const Region& region) const {
    return first_uses_.contains({key, op_}) && region.contains(stores().all.at(key).box);
  }
  void note_overwritten(const StoreKey&) {}  // all gradients are zero when a step begins

  template <class Body>
  [[nodiscard]] Action for_each(std::uint32_t count, Body body) const {
    const bool parallel = count >= least_parallel && !adds_to_shared(body);
    return [count, body, parallel] {
#pragma omp parallel if (parallel)
      {
        const Body own = body;  // which no store of the loop can change
#pragma omp for schedule(static)
        for (std::uint32_t i = 0; i < count; ++i) own(i);
      }
    };
  }
  [[nodiscard]] Action for_each(std::uint32_t count, const Copy<float>& copy) const {
    if (!copy.walk.is_packed()) return for_each<Copy<float>>(count, copy);
    return [count, to = copy.to, from = copy.from, adds = copy.move != Move::copy] {
#pragma omp parallel for simd schedule(static) if (count >= least_parallel)
      for (std::uint32_t i = 0; i < count; ++i) to[i] = adds ? to[i] + from[i] : from[i];
    };
  }
  template <class Body>
  [[nodiscard]] Action each_row(std::uint32_t rows, std::uint32_t count, Body body) const {
    const bool parallel = rows > 1 && std::uint64_t{rows} * count >= least_parallel;
    return [rows, count, body, parallel] {
#pragma omp parallel if (parallel)
      {
        const Body own = body;
#pragma omp for schedule(static)
        for (std::uint32_t row = 0; row < rows; ++row) write_row<float>(own, row, count);
      }
    };
  }
  template <class Body>
  [[nodiscard]] Action reduce(std::uint32_t rows, std::uint32_t count, Body body) const {
    const bool parallel = rows > 1 && std::uint64_t{rows} * count >= least_parallel;
    return [rows, count, body, parallel] {
#pragma omp parallel if (parallel)
      {
        const Body own = body;
#pragma omp for schedule(static)
        for (std::uint32_t row = 0; row < rows; ++row) {
          SumOf<Body, float> sums;
          const auto begun = begin_row(own, row);
          for (std::uint32_t i = 0; i < count; ++i) sums += own.term(begun, i);
          own.finish(row, sums);
        }
      }
    };
  }

  [[nodiscard]] std::optional<Action> convolve(const ConvRequest<float>& request) {
    return products_[current_.index()].convolve(request);
  }
  [[nodiscard]] std::optional<Action> multiply(const DenseRequest<float>& request) {
    return products_[current_.index()].multiply(request);
  }
  [[nodiscard]] std::optional<Action> multiply_each(const DenseRequest<float>& request) {
    return products_[current_.index()].multiply_each(request);
  }
  [[nodiscard]] std::optional<Action> attend(const AttentionRequest<float>& request) {
    return products_[current_.index()].attend(request);
  }

 private:
  static constexpr std::uint32_t least_parallel = 4096;  // elements that are worth waking a thread

  const CpuCores& cores_;
  std::vector<CpuProducts> products_;  ///< by device
  std::set<std::pair<StoreKey, OpId>> first_uses_;
  OpId op_;
  DeviceId current_{0};
  bool exact_;
};

}  // namespace parsim::hw
