// libparsim_simgrid.so: SimGrid behind the functions of SimgridLibrary. Links nothing of the
// program: of core/ and sim/ it has the values that headers define.
#include <xbt/log.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <utility>
#include <vector>
// clang-format off
#include <simgrid/version.h>  // after the others: it uses macros that it does not include
// clang-format on

#include "sim/simgrid_library.hpp"

namespace parsim::sim {

namespace {

namespace s4u = simgrid::s4u;

// Differences between the releases of SimGrid. Run with 3.32 (Debian 12) and 4.1.

s4u::NetZone* star_zone(s4u::Engine& engine) {
#if SIMGRID_VERSION >= 40000
  return engine.get_netzone_root()->add_netzone_star("cluster");
#else
  static_cast<void>(engine);
  return s4u::create_star_zone("cluster");
#endif
}

s4u::NetZone* full_zone_inside(s4u::NetZone* parent, const std::string& name) {
#if SIMGRID_VERSION >= 40000
  return parent->add_netzone_full(name);
#else
  s4u::NetZone* zone = s4u::create_full_zone(name);
  zone->set_parent(parent);
  return zone;
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

std::string version() {
  int major = 0, minor = 0, patch = 0;
  sg_version_get(&major, &minor, &patch);
  const std::string release = std::to_string(major) + "." + std::to_string(minor);
  return patch == 0 ? release : release + "." + std::to_string(patch);
}

}  // namespace

struct SimgridFlows {
  using Handler = SimgridLibrary::Handler;

  s4u::Engine engine{"parsim"};
  Handler on_date, on_end;
  std::vector<s4u::Host*> sources, sinks;  ///< by route

  /// A comm lives until after its callback: dropped earlier, SimGrid reads freed memory.
  struct Slot {
    s4u::CommPtr comm;
    std::int64_t token = 0;
  };
  std::deque<Slot> slots;  ///< never move: SimGrid keeps their addresses for us
  std::vector<Slot*> free_slots;
  s4u::CommPtr ended;  ///< kept until the next one ends

  /// A link whose rate changes.
  struct Changing {
    s4u::Link* link = nullptr;
    double full = 0, now = 0;
  };
  std::deque<Changing> changing;                    ///< never move
  std::vector<std::vector<Changing*>> changing_of;  ///< by route; no list at all: nothing changes

  /// Schedules the rate changes of the links that are used.
  void watch(const Cluster& cluster, std::span<const Route* const> routes,
             const std::vector<s4u::Link*>& links, std::span<const RateChange> changes) {
    if (changes.empty()) return;
    std::vector<Changing*> by_hop(links.size(), nullptr);
    for (const RateChange& change : changes) {
      for (const bool backwards : {false, true}) {
        const Hop hop{change.link, backwards};
        if (links[hop.index()] == nullptr) continue;
        Changing*& one = by_hop[hop.index()];
        if (one == nullptr) {
          const double full = cluster[change.link].rate.value;
          one = &changing.emplace_back(Changing{links[hop.index()], full, full});
        }
        simgrid::kernel::timer::Timer::set(change.date.count(), [one, rate = change.rate.value] {
          one->now = rate;
          one->link->set_bandwidth(rate);
        });
      }
    }
    for (const Route* route : routes) {
      changing_of.emplace_back();
      for (const Hop hop : route->hops) {
        Changing* one = by_hop[hop.index()];
        std::vector<Changing*>& list = changing_of.back();  // once, however often it is crossed
        if (one != nullptr && std::find(list.begin(), list.end(), one) == list.end()) {
          list.push_back(one);
        }
      }
    }
  }

  void comm_ended(Slot& slot) {
    ended = std::move(slot.comm);
    free_slots.push_back(&slot);
    on_end(slot.token);
  }
};

namespace {

// A host stands for one end of one route, not for a device: in a star zone a route is a source's
// way up plus the sink's empty way down. So memory grows with the routes that are used and not with
// the square of the devices (a full zone's table takes 139 MB for 4096 devices). But a star zone
// drops links that it has seen before: a route that crosses one several times has a full zone to
// itself ("macro: a ring that crosses a link twice").
SimgridFlows* make(const Cluster& cluster, std::span<const Route* const> routes,
                   SimgridFlows::Handler on_date, SimgridFlows::Handler on_end,
                   std::span<const RateChange> changes, const std::vector<std::string>& settings) {
  auto flows = std::make_unique<SimgridFlows>();
  xbt_log_control_set("root.thres:error");  // each setting would print a line on stderr
  for (const std::string& setting : settings) s4u::Engine::set_config(setting);
  flows->on_date = std::move(on_date);
  flows->on_end = std::move(on_end);

  s4u::NetZone* zone = star_zone(flows->engine);
  std::vector<s4u::Link*> links(2 * cluster.links.size(), nullptr);
  std::vector<s4u::LinkInRoute> way;
  const auto add_route = [&](s4u::Host* from, s4u::Host* to) {
    const auto point = [](s4u::Host* h) { return h == nullptr ? nullptr : h->get_netpoint(); };
    zone->add_route(point(from), point(to), nullptr, nullptr, way, false);
  };
  s4u::Host* sink = add_host(zone, "sink");
  add_route(nullptr, sink);
  std::vector<std::size_t> crossed_by(links.size(), routes.size());  // the last route, by hop
  for (std::size_t i = 0; i < routes.size(); ++i) {
    way.clear();
    bool again = false;
    for (const Hop hop : routes[i]->hops) {
      s4u::Link*& link = links[hop.index()];
      if (link == nullptr) {
        link = add_link(zone, "l" + std::to_string(hop.index()), cluster[hop.link].rate);
        link->seal();
      }
      way.emplace_back(link);
      again = again || std::exchange(crossed_by[hop.index()], i) == i;
    }
    s4u::NetZone* own = again ? full_zone_inside(zone, "z" + std::to_string(i)) : zone;
    s4u::Host* source = add_host(own, "r" + std::to_string(i));
    source->seal();
    flows->sources.push_back(source);
    flows->sinks.push_back(again ? add_host(own, "s" + std::to_string(i)) : sink);
    if (!again) {
      add_route(source, nullptr);
      continue;
    }
    flows->sinks.back()->seal();
    own->add_route(source->get_netpoint(), flows->sinks.back()->get_netpoint(), nullptr, nullptr,
                   way, false);
    own->seal();
  }
  sink->seal();
  zone->seal();
  flows->watch(cluster, routes, links, changes);
  on_comm_end([f = flows.get()](const s4u::Activity& activity) {
    f->comm_ended(*static_cast<const s4u::Comm&>(activity).get_data<SimgridFlows::Slot>());
  });
  return flows.release();
}

void destroy(SimgridFlows* flows) { delete flows; }

Seconds now() { return Seconds{s4u::Engine::get_clock()}; }

void wake_at(SimgridFlows& flows, Seconds date, std::int64_t token) {
  simgrid::kernel::timer::Timer::set(date.count(), [&flows, token] { flows.on_date(token); });
}

void start(SimgridFlows& flows, std::size_t route, Bytes payload, std::int64_t token) {
  if (payload.value <= 0) {  // a comm of zero bytes would never end
    simgrid::kernel::timer::Timer::set(now().count(), [&flows, token] { flows.on_end(token); });
    return;
  }
  if (flows.free_slots.empty()) flows.free_slots.push_back(&flows.slots.emplace_back());
  SimgridFlows::Slot& slot = *flows.free_slots.back();
  flows.free_slots.pop_back();
  slot.token = token;
  slot.comm = s4u::Comm::sendto_init();
  slot.comm->set_payload_size(static_cast<std::uint64_t>(payload.value));
  slot.comm->set_data(&slot);
  // SimGrid never lets a flow run faster than its links allow when it starts. So for that moment
  // they are as fast as they ever get ("a transfer that starts while its link is slow").
  const bool changes = !flows.changing_of.empty();
  if (changes) {
    for (const SimgridFlows::Changing* one : flows.changing_of[route])
      one->link->set_bandwidth(one->full);
  }
  // The last setter starts the comm; a start() after it would start it twice.
  slot.comm->set_source(flows.sources[route]);
  slot.comm->set_destination(flows.sinks[route]);
  if (changes) {
    for (const SimgridFlows::Changing* one : flows.changing_of[route])
      one->link->set_bandwidth(one->now);
  }
}

void run(SimgridFlows& flows) { flows.engine.run(); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const SimgridLibrary* parsim_simgrid_library() {
  static constexpr SimgridLibrary library{version, make, destroy, now, wake_at, start, run};
  return &library;
}

}  // namespace parsim::sim
