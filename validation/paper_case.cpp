#include "validation/paper_case.hpp"

#include "core/text.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "topologies/topologies.hpp"

namespace parsim::validation {

std::int64_t whole_number(const Claim& claim, std::string_view key) {
  return parse_whole(claim.at(key), claim.set + ": " + claim.name, 1, 1'000'000'000);
}

PaperCase::PaperCase(const Claim& claim, std::int64_t devices)
    : network_(networks::load_network(claim.at("network"), {}, claim.set)),
      cluster_(topologies::load_cluster(claim.at("cluster"), claim.set)),
      batch_(devices * whole_number(claim, "samples_per_device")) {
  cluster_ =
      topologies::first_gpus(std::move(cluster_), static_cast<std::size_t>(devices), claim.set);
  cost_ = sim::make_constant_efficiency(cluster_);
}

void PaperCase::calibrate(double factor) {
  base_ = std::move(cost_);
  cost_ = sim::make_scaled(*base_, factor);
}

strategies::StrategyInput PaperCase::input() const {
  strategies::StrategyInput input{network_, cluster_, *cost_};
  input.batch = batch_;
  input.sync = Sync::Kind::ring;
  return input;
}

}  // namespace parsim::validation
