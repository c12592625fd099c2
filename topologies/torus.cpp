// Rings and tori. Devices do not forward for others, so each hangs on a router of its own and the
// routers are joined: a step between neighbours crosses three links.
#include <fmt/format.h>

#include "topologies/generator.hpp"

namespace parsim::topologies {

Cluster build_torus(const GeneratorCall& call) {
  const bool is_ring = call.text().starts_with("ring:");
  const std::vector<std::int64_t> extent = is_ring ? call.shape(1, 1) : call.shape(2, 3);
  std::int64_t count = 1;
  for (const std::int64_t length : extent) count *= length;
  const std::vector<const DeviceModel*> models = call.devices(count);
  const BytesPerSecond rate = call.rate("rate");
  const Seconds latency = call.latency("latency");
  // By default the device can fill all cables of its router, so that only the torus is narrow.
  const BytesPerSecond device_rate =
      call.rate_or("device-rate", rate * (2.0 * static_cast<double>(extent.size())));
  const Seconds device_latency = call.latency_or("device-latency", latency);

  ClusterBuilder builder(call.text(), call.where());
  const std::int32_t between = builder.add_provenance(call.provenance("rate"));
  const std::int32_t own = builder.add_provenance(call.provenance("device-rate"));
  for (const DeviceModel* model : models) {
    const SwitchId router =
        builder.add_switch(fmt::format("router{}", builder.cluster().switches.size()));
    add_host(builder, call, *model, router, device_rate, device_latency, own);
  }
  // Device number = position with the last coordinate fastest.
  std::int64_t stride = count;
  for (const std::int64_t length : extent) {
    stride /= length;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t coordinate = i / stride % length;
      // A dimension of two has one cable, not one there and one around; a dimension of one, none.
      if (length == 1 || (length == 2 && coordinate == 1)) continue;
      const std::int64_t neighbour = i + ((coordinate + 1) % length - coordinate) * stride;
      builder.add_link(Port::of(SwitchId{static_cast<std::int32_t>(i)}),
                       Port::of(SwitchId{static_cast<std::int32_t>(neighbour)}), rate, latency,
                       between);
    }
  }
  return std::move(builder).finish();
}

}  // namespace parsim::topologies
