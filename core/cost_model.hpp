// How long operations take on devices. One of the two virtual interfaces; implementations live in
// sim/.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"
#include "core/fp8.hpp"
#include "core/spelling.hpp"

namespace parsim {

/// Where a cost comes from, best first.
///   measured   here, or in a profile
///   scaled     from the nearest shape of a profile
///   published  near shapes that others measured on this card
///   modelled   by a model fitted to measurements of this card, or of one with the same chip
///   guessed    by the model of another card
enum class Origin : std::uint8_t { measured, scaled, published, modelled, guessed };
constexpr std::array<std::string_view, 5> spellings(Origin) {
  return {"measured", "scaled", "published", "modelled", "guessed"};
}
inline constexpr std::array origins{Origin::measured, Origin::scaled, Origin::published,
                                    Origin::modelled, Origin::guessed};

struct Cost {
  Seconds time{};
  Origin origin = Origin::guessed;
  double launches = 1;  ///< by the host, one after another; 0 within another operation's kernel
};

/// An optimizer's step on so many parameters of a device.
struct OptimizerStep {
  std::int64_t elements = 0;
  Optimizer optimizer = Optimizer::momentum;
  Precision precision = Precision::fp32;  ///< of the weights that layers use
  Precision reduce = Precision::fp32;     ///< of the gradients
  std::int64_t cast = 0;  ///< weights that the device then casts to FP8, all that it uses
};

/// What parts of a layer take at least: each `fixed`, and all together `whole` on top.
struct LeastTime {
  Seconds fixed{}, whole{};
};

class CostModel {
 public:
  virtual ~CostModel() = default;

  /// Time of one pass over a part of a layer on a device that does nothing else.
  [[nodiscard]] virtual Cost compute(const Network& network, LayerId layer, const Part& part,
                                     Pass pass, DeviceId device, Precision precision) const = 0;
  /// A lower bound of compute() for all parts of a layer, of `samples` samples in all, for
  /// any division into parts: what a part does is a share x of the pass's work, and it takes
  /// `fixed` + x · `whole` or longer. Shares depend on the part alone; those of the cells of a
  /// layer add up to 1 or more. Nothing if the model knows no such bound.
  [[nodiscard]] virtual std::optional<LeastTime> least_time(const Network& network, LayerId layer,
                                                            std::int64_t samples, Pass pass,
                                                            DeviceId device,
                                                            Precision precision) const {
    static_cast<void>(network);
    static_cast<void>(layer);
    static_cast<void>(samples);
    static_cast<void>(pass);
    static_cast<void>(device);
    static_cast<void>(precision);
    return std::nullopt;
  }
  /// Devices of the same number have the same times. By default every device has its own.
  [[nodiscard]] virtual std::int32_t alike(DeviceId device) const { return device.value; }
  /// Time to stream `touched` bytes through the device's memory (updates, copies, additions), with
  /// launch.
  [[nodiscard]] virtual Cost memory(DeviceId device, Bytes touched) const = 0;
  /// Time of an optimizer's step. By default update_traffic() as memory().
  [[nodiscard]] virtual Cost update(DeviceId device, const OptimizerStep& step) const;
  /// One message on an otherwise idle network.
  [[nodiscard]] virtual Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const = 0;
  /// One collective on an otherwise idle network. Payload as at Collective.
  [[nodiscard]] virtual Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                           Bytes payload) const = 0;
  /// Measured time of a transfer or collective, which contention does not change; nothing for other
  /// operations, and where the engine derives it from the links.
  [[nodiscard]] virtual std::optional<Seconds> communication(const ExecDag& dag, OpId id) const {
    static_cast<void>(dag);
    static_cast<void>(id);
    return std::nullopt;
  }
  /// One line on method and sources, for reports.
  [[nodiscard]] virtual std::string summary() const = 0;
  /// One line on how far device times of this precision are from measured ones, as far as that is
  /// known, per device model; "" where nothing is known.
  [[nodiscard]] virtual std::string accuracy(Precision precision) const {
    static_cast<void>(precision);
    return {};
  }
};

/// Memory traffic of an optimizer step in one kernel: it reads weight and gradient, writes the
/// weight, and reads and writes every state; weight and states in four bytes, because reduced
/// precision keeps a full copy of them (Micikevicius et al. 2018, "Mixed precision training"), the
/// gradient in the precision that it is summed in.
[[nodiscard]] Bytes update_traffic(std::int64_t elements, Optimizer optimizer, Precision reduce);

/// What a kernel that makes weight gradients reads and writes beyond what cost models price,
/// because it adds into sums of another size than its operands: each element twice, once to read
/// the sum and once to write it (Megatron-LM's fused gradient accumulation). 0 for other passes,
/// for layers without parameters and where both have the same size; less than 0 where sums are
/// smaller. A look-up adds to as many elements as it writes.
[[nodiscard]] Bytes sum_traffic(const Network& network, LayerId layer, const Part& part, Pass pass,
                                Precision precision, Precision reduce);

/// CostModel::compute with the traffic of sums at the rate of memory.
[[nodiscard]] Cost kernel_time(const CostModel& cost, const Network& network, LayerId layer,
                               const Part& part, Pass pass, DeviceId device, Precision precision,
                               Precision reduce);

/// Time of a compute, update, local or delay of the DAG; zero for communication. An update is with
/// the cast to FP8 of the whole weights of which it changes its device's share.
///
/// weights   of the DAG's network and precision; made anew if not given
[[nodiscard]] Cost device_time(const ExecDag& dag, OpId id, const CostModel& cost);
[[nodiscard]] Cost device_time(const ExecDag& dag, OpId id, const CostModel& cost,
                               const Fp8Weights& weights);

}  // namespace parsim
