#include "core/cost_model.hpp"

#include <variant>

#include "core/errors.hpp"

namespace parsim {

Bytes update_traffic(std::int64_t elements, Optimizer optimizer) {
  return {elements * 4 * (3 + 2 * state_per_parameter(optimizer))};
}

std::string to_text(Origin origin) {
  switch (origin) {
    case Origin::measured:
      return "measured";
    case Origin::scaled:
      return "scaled";
    case Origin::modelled:
      return "modelled";
    case Origin::guessed:
      return "guessed";
  }
  throw BrokenInvariant("an origin outside its enum");
}

Cost device_time(const ExecDag& dag, OpId id, const CostModel& cost) {
  switch (dag.kind(id)) {
    case OpKind::compute: {
      const Compute compute = std::get<Compute>(dag.op(id));
      return cost.compute(dag.network, dag.work(compute.work).layer, dag.part(compute.work),
                          compute.pass, compute.device, dag.precision);
    }
    case OpKind::update:
      return cost.memory(
          DeviceId{dag.record(id).device},
          update_traffic(dag.payload(id).value / element_bytes(dag.precision), dag.optimizer));
    case OpKind::local:
      return cost.memory(DeviceId{dag.record(id).device}, dag.payload(id));
    case OpKind::delay:
      return {std::get<Delay>(dag.op(id)).time, Origin::modelled};
    case OpKind::transfer:
    case OpKind::collective:
      return {Seconds{}, Origin::modelled};
  }
  throw BrokenInvariant("an operation kind outside its enum");
}

}  // namespace parsim
