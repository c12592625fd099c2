#include <algorithm>

#include "core/cost_model.hpp"
#include "core/errors.hpp"
#include "experiment/attention.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_training.hpp"

namespace parsim::validation {

namespace {

bool is_square_convolution(const LayerKind& kind) {
  const Conv* conv = kind.as<Conv>();
  return conv != nullptr && conv->groups == 1 &&
         std::all_of(conv->windows.begin(), conv->windows.end(), [](const Window& window) {
           return window.kernel == 3 && window.stride == 1 && window.dilation == 1;
         });
}

}  // namespace

experiment::StepParts SingleStep::parts(double factor) const {
  experiment::StepParts shares{};
  const double all = others + factor * squares;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i] = (others_by_class[i] + factor * squares_by_class[i]) / all;
  }
  return shares;
}

SingleStep single_step(const Claim& claim) {
  for (const char* column : {"n_gpus", "nodes"}) {
    if (count_column(claim, column, 1) == 1) continue;
    throw InputError(
        location_of(claim, column), claim.what.find(column)->second,
        "accepted: 1 with total_ms; steps of several GPUs have batch_per_gpu, value and "
        "unit = ms");
  }
  Cluster cluster = topologies::load_cluster("star:1,device=" + device_of(claim), claim.set);
  set_stated_rates(claim, cluster);
  const Network network = experiment::on_devices(load_network_of(claim), network_of(claim),
                                                 dims_of(claim), cluster, std::nullopt)
                              .network;
  const auto cost = sim::make_tile_costs(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = count_column(claim, "batch", 1);
  input.precision = precision_of(claim);
  const ExecDag dag = lowering::lower(network, cluster, strategies::plan_data(input));
  SingleStep sum;
  sum.power = cluster.models.front().upkeep.power;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    if (dag.kind(id) != OpKind::compute) continue;
    const LayerId layer = dag.work(std::get<Compute>(dag.op(id)).work).layer;
    const double time = device_time(dag, id, *cost).time.count();
    const bool square = is_square_convolution(network[layer].kind);
    (square ? sum.squares : sum.others) += time;
    (square ? sum.squares_by_class : sum.others_by_class)[static_cast<std::size_t>(
        experiment::class_of_kernel(dag, id, *cost))] += time;
  }
  sum.flops = forward_flops_per_sample(network).value * static_cast<double>(input.batch);
  return sum;
}

}  // namespace parsim::validation
