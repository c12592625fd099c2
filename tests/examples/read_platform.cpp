// How an S4U program uses a platform that parsim exported:
//
//     parsim show cluster dgx-v100 --format simgrid > platform.xml
//     read_platform platform.xml dgx.gpu0 dgx.gpu5 100e6
//
// prints the way between two devices and how long a message takes on it alone. The settings are
// those of parsim's own simulations: no TCP window, no acknowledgements, bandwidth shared max-min.
// (A folder of `parsim plan --smpi` has them in its platform.xml.)
#include <xbt/log.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace s4u = simgrid::s4u;

int main(int argc, char** argv) {
  xbt_log_control_set("root.thres:error");  // each setting would print a line
  s4u::Engine engine(&argc, argv);
  if (argc != 5) {
    std::fprintf(stderr, "usage: read_platform PLATFORM.xml FROM TO BYTES\n");
    return 2;
  }
  s4u::Engine::set_config("network/model:CM02");
  s4u::Engine::set_config("network/crosstraffic:0");
  s4u::Engine::set_config("network/TCP-gamma:1e30");
  engine.load_platform(argv[1]);
  s4u::Host* const from = engine.host_by_name(argv[2]);
  s4u::Host* const to = engine.host_by_name(argv[3]);
  const double bytes = std::atof(argv[4]);

  std::vector<s4u::Link*> links;
  double latency = 0, rate = std::numeric_limits<double>::infinity();
  from->route_to(to, links, &latency);
  for (const s4u::Link* link : links) {
    std::printf("%s: %g GB/s\n", link->get_cname(), link->get_bandwidth() / 1e9);
    rate = std::min(rate, link->get_bandwidth());
  }

  s4u::Mailbox* const box = s4u::Mailbox::by_name("box");
  s4u::Actor::create("sender", from, [&] {
    static int message = 0;
    box->put(&message, static_cast<std::uint64_t>(bytes));
  });
  s4u::Actor::create("receiver", to, [&] { box->get<int>(); });
  engine.run();
  std::printf("simulated %.6f ms, by hand %.6f ms\n", 1e3 * s4u::Engine::get_clock(),
              1e3 * (latency + bytes / rate));
  return 0;
}
