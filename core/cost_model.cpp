#include "core/cost_model.hpp"

#include <variant>

#include "core/errors.hpp"

namespace parsim {

Bytes update_traffic(std::int64_t elements, Optimizer optimizer, Precision reduce) {
  return {elements * (4 * (2 + 2 * state_per_parameter(optimizer)) + element_bytes(reduce))};
}

Cost CostModel::update(DeviceId device, const OptimizerStep& step) const {
  return memory(device, update_traffic(step.elements, step.optimizer, step.reduce));
}

Bytes sum_traffic(const Network& network, LayerId id, const Part& part, Pass pass,
                  Precision precision, Precision reduce) {
  const std::int64_t more = element_bytes(reduce) - element_bytes(precision);
  const Layer& layer = network[id];
  const bool sums = pass == Pass::backward || pass == Pass::backward_weights;
  if (more == 0 || !sums || layer.parameters.empty()) return {};
  if (layer.kind.as<Embedding>() != nullptr) return {2 * more * part.out.volume()};
  const std::vector<Shape> inputs = input_shapes(network, id);
  std::int64_t elements = 0;
  for (std::size_t p = 0; p < layer.parameters.size(); ++p) {
    elements += parameter_region(layer.kind, inputs, layer.out, p, part).volume();
  }
  return {2 * more * elements};
}

Cost kernel_time(const CostModel& cost, const Network& network, LayerId layer, const Part& part,
                 Pass pass, DeviceId device, Precision precision, Precision reduce) {
  Cost kernel = cost.compute(network, layer, part, pass, device, precision);
  const Bytes more = sum_traffic(network, layer, part, pass, precision, reduce);
  // What sums of half the size save hides behind the kernel's arithmetic.
  if (more.value > 0) {
    kernel.time += cost.memory(device, more).time - cost.memory(device, {}).time;  // no launch
  }
  return kernel;
}

namespace {

std::int64_t cast_weights(const ExecDag& dag, OpId id, const Fp8Weights& weights) {
  if (!multiplies_in_fp8(dag.precision)) return 0;
  const Tensor& tensor = dag.tensor(std::get<Update>(dag.op(id)).slice.tensor);
  if (tensor.kind == Tensor::Kind::bucket) {
    return weights.elements(dag.bucket_parts(tensor.index, {}));
  }
  const ParameterId parameter{tensor.index};
  return weights.contains(parameter) ? dag.network[parameter].elements() : 0;
}

}  // namespace

Cost device_time(const ExecDag& dag, OpId id, const CostModel& cost) {
  return device_time(dag, id, cost, Fp8Weights(dag.network, dag.precision));
}

Cost device_time(const ExecDag& dag, OpId id, const CostModel& cost, const Fp8Weights& weights) {
  switch (dag.kind(id)) {
    case OpKind::compute: {
      const Compute compute = std::get<Compute>(dag.op(id));
      return kernel_time(cost, dag.network, dag.work(compute.work).layer, dag.part(compute.work),
                         compute.pass, compute.device, dag.precision, dag.reduce_precision);
    }
    case OpKind::update:
      return cost.update(DeviceId{dag.record(id).device},
                         {dag.payload(id).value / element_bytes(dag.precision), dag.optimizer,
                          dag.precision, dag.reduce_precision, cast_weights(dag, id, weights)});
    case OpKind::local:
      if (dag.record(id).sub == static_cast<std::uint8_t>(LocalKind::drop)) {
        return {Seconds{}, Origin::modelled, 0};
      }
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
