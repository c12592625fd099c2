// Dragonfly (Kim et al. 2008, "Technology-driven, highly-scalable dragonfly topology"): groups of
// routers that are all joined within the group, and one cable between any two groups.
#include <fmt/format.h>

#include "topologies/generator.hpp"

namespace parsim::topologies {

Cluster build_dragonfly(const GeneratorCall& call) {
  const std::vector<std::int64_t> shape = call.shape(3, 3);
  const std::int64_t groups = shape[0], routers = shape[1], each = shape[2];
  const std::vector<const DeviceModel*> models = call.devices(groups * routers * each);
  const BytesPerSecond rate = call.rate("rate");
  const BytesPerSecond local_rate = call.rate_or("local-rate", rate);
  const BytesPerSecond global_rate = call.rate_or("global-rate", rate);
  const Seconds latency = call.latency("latency");
  const Seconds global_latency = call.latency_or("global-latency", latency);

  ClusterBuilder builder(call.text(), call.where());
  const std::int32_t own = builder.add_provenance(call.provenance("rate"));
  const std::int32_t local = builder.add_provenance(call.provenance("local-rate"));
  const std::int32_t global = builder.add_provenance(call.provenance("global-rate"));
  const auto router = [&](std::int64_t group, std::int64_t number) {
    return Port::of(SwitchId{static_cast<std::int32_t>(group * routers + number)});
  };
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t r = 0; r < routers; ++r) {
      const SwitchId at = builder.add_switch(fmt::format("group{}.router{}", g, r));
      for (std::int64_t i = 0; i < each; ++i) {
        const std::size_t next = static_cast<std::size_t>((g * routers + r) * each + i);
        add_host(builder, call, *models[next], at, rate, latency, own);
      }
      for (std::int64_t other = 0; other < r; ++other) {
        builder.add_link(router(g, other), router(g, r), local_rate, latency, local);
      }
    }
  }
  // Group g reaches the others in id order, as many of them per router as are needed.
  const std::int64_t per_router = (groups - 1 + routers - 1) / routers;
  for (std::int64_t a = 0; a < groups; ++a) {
    for (std::int64_t b = a + 1; b < groups; ++b) {
      builder.add_link(router(a, (b - 1) / per_router), router(b, a / per_router), global_rate,
                       global_latency, global);
    }
  }
  return std::move(builder).finish();
}

}  // namespace parsim::topologies
