#include "sim/flow_engine.hpp"

#include <fmt/format.h>
#include <xbt/log.h>

#include <deque>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <utility>
#include <vector>
// clang-format off
#include <simgrid/version.h>  // after the others: it uses macros that it does not include
// clang-format on

#include "core/errors.hpp"
#include "sim/sim.hpp"

namespace parsim {

namespace {

namespace s4u = simgrid::s4u;

// Differences between the releases of SimGrid. Run with 3.32 (Debian 12); the branches for newer
// releases follow their ChangeLog and headers.

s4u::NetZone* star_zone(s4u::Engine& engine) {
#if SIMGRID_VERSION >= 40000
  return engine.get_netzone_root()->add_netzone_star("cluster");
#else
  static_cast<void>(engine);
  return s4u::create_star_zone("cluster");
#endif
}

s4u::Host* add_host(s4u::NetZone* zone, const std::string& name) {
  constexpr double unused_speed = 1;
#if SIMGRID_VERSION >= 40000
  return zone->add_host(name, unused_speed);
#else
  return zone->create_host(name, unused_speed);
#endif
}

s4u::Link* add_link(s4u::NetZone* zone, const std::string& name, BytesPerSecond rate) {
#if SIMGRID_VERSION >= 40000
  return zone->add_link(name, rate.value)->set_latency(0.0);
#else
  return zone->create_link(name, rate.value)->set_latency(0.0);
#endif
}

/// Every comm of the process reports its end here.
template <class Callback>
void on_comm_end(Callback callback) {
#if SIMGRID_VERSION >= 33400
  s4u::Comm::on_completion_cb(std::move(callback));
#else
  s4u::Activity::on_completion_cb(std::move(callback));
#endif
}

}  // namespace

std::vector<std::string> simgrid_settings() {
  return {
      "network/model:CM02",      // the default LV08 multiplies latencies by 13.01, rates by 0.97
      "network/crosstraffic:0",  // 1 would add 5 % of acknowledgements on the way back
      "network/TCP-gamma:1e30",  // no TCP window: it caps a 10 us path at 210 GB/s
      "network/optim:Lazy",      // the default: only what a change touched is computed again
  };
}

std::string simgrid_version() {
  int major = 0, minor = 0, patch = 0;
  sg_version_get(&major, &minor, &patch);
  return patch == 0 ? fmt::format("{}.{}", major, minor)
                    : fmt::format("{}.{}.{}", major, minor, patch);
}

struct FlowEngine::Impl {
  s4u::Engine engine{"parsim"};
  Handler on_date, on_end;
  std::vector<s4u::Host*> sources;  ///< by route
  s4u::Host* sink = nullptr;

  /// A comm lives until after its callback: dropped earlier, SimGrid reads freed memory.
  struct Slot {
    s4u::CommPtr comm;
    std::int64_t token = 0;
  };
  std::deque<Slot> slots;  ///< never move: SimGrid keeps their addresses for us
  std::vector<Slot*> free_slots;
  s4u::CommPtr ended;  ///< kept until the next one ends

  void comm_ended(Slot& slot) {
    ended = std::move(slot.comm);
    free_slots.push_back(&slot);
    on_end(slot.token);
  }
};

// A host stands for one end of one route, not for a device: in a star zone a route is a source's
// way up plus the sink's empty way down. So memory grows with the routes that are used and not with
// the square of the devices (a full zone's table takes 139 MB for 4096 devices).
FlowEngine::FlowEngine(const Cluster& cluster, std::span<const Route* const> routes,
                       Handler on_date, Handler on_end)
    : impl_(std::make_unique<Impl>()) {
  xbt_log_control_set("root.thres:error");  // each setting would print a line on stderr
  for (const std::string& setting : simgrid_settings()) s4u::Engine::set_config(setting);
  impl_->on_date = std::move(on_date);
  impl_->on_end = std::move(on_end);

  s4u::NetZone* zone = star_zone(impl_->engine);
  std::vector<s4u::Link*> links(2 * cluster.links.size(), nullptr);
  std::vector<s4u::LinkInRoute> way;
  const auto add_route = [&](s4u::Host* from, s4u::Host* to) {
    const auto point = [](s4u::Host* h) { return h == nullptr ? nullptr : h->get_netpoint(); };
    zone->add_route(point(from), point(to), nullptr, nullptr, way, false);
  };
  impl_->sink = add_host(zone, "sink");
  add_route(nullptr, impl_->sink);
  for (std::size_t i = 0; i < routes.size(); ++i) {
    ensure(!routes[i]->hops.empty(), "a flow crosses at least one link");
    way.clear();
    for (const Hop hop : routes[i]->hops) {
      s4u::Link*& link = links[hop.index()];
      if (link == nullptr) {
        link = add_link(zone, fmt::format("l{}", hop.index()), cluster[hop.link].rate);
        link->seal();
      }
      way.emplace_back(link);
    }
    s4u::Host* source = add_host(zone, fmt::format("r{}", i));
    source->seal();
    add_route(source, nullptr);
    impl_->sources.push_back(source);
  }
  impl_->sink->seal();
  zone->seal();
  on_comm_end([impl = impl_.get()](const s4u::Activity& activity) {
    impl->comm_ended(*static_cast<const s4u::Comm&>(activity).get_data<Impl::Slot>());
  });
}

FlowEngine::~FlowEngine() = default;

Seconds FlowEngine::now() const { return Seconds{s4u::Engine::get_clock()}; }

void FlowEngine::wake_at(Seconds date, std::int64_t token) {
  simgrid::kernel::timer::Timer::set(date.count(), [s = impl_.get(), token] { s->on_date(token); });
}

void FlowEngine::start(std::size_t route, Bytes payload, std::int64_t token) {
  if (payload.value <= 0) {  // a comm of zero bytes would never end
    simgrid::kernel::timer::Timer::set(now().count(),
                                       [s = impl_.get(), token] { s->on_end(token); });
    return;
  }
  if (impl_->free_slots.empty()) impl_->free_slots.push_back(&impl_->slots.emplace_back());
  Impl::Slot& slot = *impl_->free_slots.back();
  impl_->free_slots.pop_back();
  slot.token = token;
  slot.comm = s4u::Comm::sendto_init();
  slot.comm->set_payload_size(static_cast<std::uint64_t>(payload.value));
  slot.comm->set_data(&slot);
  // The last setter starts the comm; a start() after it would start it twice.
  slot.comm->set_source(impl_->sources[route]);
  slot.comm->set_destination(impl_->sink);
}

void FlowEngine::run() { impl_->engine.run(); }

}  // namespace parsim
