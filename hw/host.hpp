// The host engine: a thread per stream. It builds everywhere, so that dispatch, measurement and
// calibration can be tested without a GPU. The caller decides what operations do: sleep, or compute
// real numbers (HostNumbers).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/timeline.hpp"
#include "hw/clock.hpp"
#include "hw/dispatch.hpp"
#include "hw/host_tensors.hpp"
#include "hw/processes.hpp"

namespace parsim::hw {

/// Runs every operation on its stream's thread; `work` is called once per operation, for a
/// collective when all members have arrived. Spans are times of the clock. What `work` throws is
/// thrown here after all threads have ended.
[[nodiscard]] Timeline run_on_threads(const ExecDag& dag, const Dispatch& order,
                                      const std::function<void(OpId)>& work, Clock& clock);
/// The same where each member of a collective, counted from 0 in the group's order, does its own
/// work when all have arrived.
///
/// prepare   called on every stream's thread, by stream, before time begins; must not throw
[[nodiscard]] Timeline run_members_on_threads(
    const ExecDag& dag, const Dispatch& order,
    const std::function<void(OpId, std::size_t member)>& work, Clock& clock,
    const std::function<void(std::size_t stream)>& prepare);

/// Durations of kinds of work that run concurrently: a thread per kind repeats it until each has
/// run `samples` times. By kind, the first `samples`, throughout which the other kinds ran too.
/// prepare   as above, by kind
[[nodiscard]] std::vector<std::vector<Seconds>> repeat_together(
    const std::vector<std::function<void()>>& works, int samples, Clock& clock,
    const std::function<void(std::size_t kind)>& prepare = {});

/// Kernel bodies in loops over memory of the host, in float64.
class HostEngine : public HostTensors<double> {
 public:
  using Action = std::function<void()>;
  using HostTensors::HostTensors;

  /// Its results are added to stores that begin as zero.
  [[nodiscard]] bool overwrites(const StoreKey&, const Region&) const { return false; }
  void note_overwritten(const StoreKey&) {}

  template <class Body>
  [[nodiscard]] Action for_each(std::uint32_t count, Body body) const {
    return [count, body] {
      for (std::uint32_t i = 0; i < count; ++i) body(i);
    };
  }
  template <class Body>
  [[nodiscard]] Action each_row(std::uint32_t rows, std::uint32_t count, Body body) const {
    return [rows, count, body] {
      for (std::uint32_t row = 0; row < rows; ++row) write_row<double>(body, row, count);
    };
  }
  template <class Body>
  [[nodiscard]] Action reduce(std::uint32_t rows, std::uint32_t count, Body body) const {
    return [rows, count, body] {
      for (std::uint32_t row = 0; row < rows; ++row) {
        SumOf<Body, double> sums;
        const auto begun = begin_row(body, row);
        for (std::uint32_t i = 0; i < count; ++i) sums += body.term(begun, i);
        body.finish(row, sums);
      }
    };
  }
};

/// What a device holds of a region, row-major.
using FoundNumbers = std::function<std::vector<double>(const StoreKey&, const Region&)>;

/// The numbers of one training step, computed from the DAG alone.
class HostNumbers {
 public:
  /// Throws InputError if the DAG has layers that cannot be computed. `dag` must outlive this.
  explicit HostNumbers(const ExecDag& dag) : HostNumbers(dag, nullptr) {}
  /// Those of the device of this process's rank. `processes` must outlive this.
  HostNumbers(const ExecDag& dag, Processes& processes) : HostNumbers(dag, &processes) {}

  /// One step on threads by the wall clock, from the numbers before the step.
  ///
  /// routers   the probabilities by which another run sent tokens to experts, asked for by one
  ///           thread at a time. Where given, they take the place of the own ones: a token between
  ///           two experts of nearly the same probability, of which rounding decides, goes where
  ///           it went there
  [[nodiscard]] Timeline run(const Dispatch& order, const FoundNumbers& routers = {});
  /// Of that run, the norm of the differences of all such probabilities over that of the own ones.
  [[nodiscard]] double routers_error() const;
  /// What a device holds of a region after the step, row-major.
  [[nodiscard]] std::vector<double> values(const StoreKey& key, const Region& region) {
    return engine_.values(key, region);
  }
  [[nodiscard]] const Stores& stores() const { return engine_.stores(); }

 private:
  /// An operation's messages to and from other processes.
  struct Messages {
    std::vector<RemoteSlice> out, in;
    std::vector<View<double>> mirrors;  ///< by remote_slice that comes in
  };
  HostNumbers(const ExecDag& dag, Processes* processes);
  void exchange_slices(OpId op);
  void take_router(const TensorSlice& slice, const std::vector<double>& found);

  const ExecDag& dag_;
  HostEngine engine_;
  std::vector<Kernels<HostEngine>> kernels_;  ///< by operation
  std::vector<bool> rivals_;                  ///< by operation: adds where another may
  std::vector<Messages> messages_;            ///< by operation, if there are processes
  Processes* processes_;
  std::mutex rivals_lock_, routers_lock_;
  double router_gaps_ = 0, router_numbers_ = 0;  ///< sums of squares
};

/// How far a correct step's numbers may be off without FP8: fp32 sums of some thousand terms; ten
/// bits of mantissa for tf32 and fp16, seven for bf16.
[[nodiscard]] constexpr double tolerance(Precision precision) {
  return precision == Precision::fp32 ? 1e-3 : precision == Precision::bf16 ? 8e-2 : 2e-2;
}

/// Relative error that rounding to m bits of mantissa leaves in a vector: an ulp is at most 2^-m of
/// a number, and the error, anywhere within half an ulp, in the mean of squares 1/√12 of an ulp.
[[nodiscard]] double rounding_error(int mantissa_bits);

/// The same of a DAG's step. In FP8 each product adds, in squares, the errors of both operands
/// (E4M3 forward, E4M3 and E5M2 backward), and the longest path has n of them there and n back:
///
///     bf16's + √(n · (2 e(3)² + e(3)² + e(2)²)),   e = rounding_error
///
/// Scaled by blocks gradients are E4M3, too.
[[nodiscard]] double tolerance(const ExecDag& dag);

/// The tensor with the largest relative error, if that exceeds the tolerance, else "". In fp32:
/// largest difference of an element over the largest element. In fewer bits, where activations
/// near 0 may change sign and cancellation leaves rounding errors: norm of all differences of a
/// role over the norm of its elements. Also if the routers' probabilities exceed it.
[[nodiscard]] std::string worst_difference(HostNumbers& expected, const Stores& stores,
                                           Precision precision, double tolerance,
                                           const FoundNumbers& found);

}  // namespace parsim::hw
