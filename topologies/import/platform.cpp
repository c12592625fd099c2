// Source of tags, units and defaults: SimGrid's manual, "Complete XML Reference" (3.32).
#include "topologies/import/platform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "topologies/builder.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

namespace {

class PlatformReader {
 public:
  explicit PlatformReader(const std::string& file) : file_(file) {}

  Platform read(const Element& element) && {
    const XmlTag root(element, file_);
    const std::string version = root.text_or("version", "4.1");
    if (!version.starts_with("4")) {
      throw InputError(root.where("version"), fmt::format("'{}'", version),
                       "accepted: 4 or 4.1 (simgrid_update_xml converts older files)");
    }
    bool outermost = true;
    for (const XmlTag& tag : root.children({"config", "zone", "AS", "cluster"})) {
      if (tag.name() == "config") {
        platform_.notes.push_back(fmt::format("{}: SimGrid settings are ignored", tag.where()));
      } else if (!outermost) {
        throw InputError(tag.where(), "a second top-level zone", "accepted: one top-level zone");
      } else {
        outermost = false;
        if (tag.name() == "cluster") {
          read_cluster_tag(tag);
        } else {
          platform_.props = read_zone(tag);
        }
      }
    }
    note_bare_numbers();
    return std::move(platform_);
  }

 private:
  /// SimGrid deprecates numbers without a unit; it counts in bytes and operations per second and in
  /// seconds, which is rarely what "12" means.
  void keep_bare(const XmlTag& tag, std::string_view attribute, std::string_view meaning) {
    const std::string* text = tag.find(attribute);
    if (text == nullptr || text->find_first_not_of("0123456789.eE+-") != std::string::npos ||
        text->find_first_not_of("0.") == std::string::npos) {
      return;
    }
    if (bare_++ == 0) {
      first_bare_ = fmt::format("{}: '{}' is {} {}", tag.where(attribute), *text, *text, meaning);
    }
  }
  BytesPerSecond rate_of(const XmlTag& tag, std::string_view attribute) {
    keep_bare(tag, attribute, "B/s");
    return platform_rate(tag, attribute);
  }
  Seconds latency_of(const XmlTag& tag, std::string_view attribute) {
    keep_bare(tag, attribute, "s");
    return platform_latency(tag, attribute);
  }
  void note_bare_numbers() {
    if (bare_ == 0) return;
    platform_.notes.push_back(
        fmt::format("{} without a unit, as SimGrid reads it{}", first_bare_,
                    bare_ == 1 ? std::string() : fmt::format(" ({} more)", bare_ - 1)));
  }

  void name_once(std::map<std::string, std::size_t>& names, const std::string& name,
                 std::size_t index, const std::string& where) {
    if (name.empty()) throw InputError(where, "an empty name", "accepted: at least one character");
    if (!names.emplace(name, index).second) {
      throw InputError(where, fmt::format("the name '{}' occurs twice", name),
                       "accepted: unique names");
    }
  }
  std::size_t add_point(PlatformPoint point) {
    if (platform_.points.size() >= static_cast<std::size_t>(most_devices + most_switches)) {
      throw InputError(point.where, "too many hosts and routers",
                       fmt::format("accepted: at most {} hosts", most_devices));
    }
    name_once(points_, point.name, platform_.points.size(), point.where);
    platform_.points.push_back(std::move(point));
    return platform_.points.size() - 1;
  }
  std::size_t add_link(PlatformLink link) {
    name_once(links_, link.name, platform_.links.size(), link.where);
    platform_.links.push_back(std::move(link));
    return platform_.links.size() - 1;
  }

  static Props read_props(const XmlTag& tag) {
    Props props;
    for (const XmlTag& child : tag.children({"prop", "disk", "mount", "storage"})) {
      if (child.name() == "prop") props[child.text("id")] = child.text("value");
    }
    return props;
  }

  static void refuse_profiles(const XmlTag& tag) {
    for (const std::string_view attribute :
         {"availability_file", "speed_file", "bandwidth_file", "latency_file", "state_file"}) {
      if (tag.find(attribute) == nullptr || tag.find(attribute)->empty()) continue;
      throw InputError(tag.where(attribute), "profiles over time are not supported",
                       "accepted: a platform whose resources do not change");
    }
  }

  void read_host(const XmlTag& tag, bool forwards) {
    refuse_profiles(tag);
    PlatformPoint host{tag.text("id"), tag.where(), true};
    constexpr std::int64_t most_cores = 1'000'000;
    host.cores = tag.integer_or("core", 1, 1, most_cores);
    // Several speeds are those of pstates; the first is the one a host starts with.
    const std::string& all = tag.text("speed");
    Element first{"host", {{"speed", all.substr(0, all.find(','))}}, {}, tag.line()};
    keep_bare(XmlTag(first, file_), "speed", "FLOP/s");
    host.speed = platform_speed(XmlTag(first, file_)) * static_cast<double>(host.cores);
    host.forwards = forwards;
    host.props = read_props(tag);
    add_point(std::move(host));
  }

  void read_link(const XmlTag& tag) {
    refuse_profiles(tag);
    PlatformLink link{tag.text("id"), tag.where(), rate_of(tag, "bandwidth"),
                      latency_of(tag, "latency"), policy_of(tag, "sharing_policy", "SHARED")};
    link.props = read_props(tag);
    add_link(std::move(link));
  }

  static std::string policy_of(const XmlTag& tag, std::string_view attribute,
                               std::string_view fallback) {
    std::string policy = tag.text_or(attribute, fallback);
    const std::vector<std::string> known{"SHARED", "SPLITDUPLEX", "FATPIPE"};
    if (std::find(known.begin(), known.end(), policy) == known.end()) {
      throw InputError(tag.where(attribute), fmt::format("'{}'", policy),
                       fmt::format("accepted: {}{}", join(known), did_you_mean(policy, known)));
    }
    return policy;
  }

  // NOLINTNEXTLINE(misc-no-recursion): as deep as the tree of tags, which is bounded
  Props read_zone(const XmlTag& zone) {
    const std::string routing = zone.text_or("routing", "Full");
    const std::vector<std::string> known{"Full", "Floyd", "Dijkstra", "DijkstraCache", "None"};
    if (std::find(known.begin(), known.end(), routing) == known.end()) {
      throw InputError(zone.where("routing"), fmt::format("'{}'", routing),
                       fmt::format("accepted: {}{}", join(known), did_you_mean(routing, known)));
    }
    const bool forwards = routing != "Full" && routing != "None";
    Props props;
    const std::vector<XmlTag> children =
        zone.children({"prop", "host", "router", "link", "route", "zone", "AS", "cluster",
                       "zoneRoute", "ASroute"});
    for (const XmlTag& tag : children) {
      if (tag.name() == "prop") props[tag.text("id")] = tag.text("value");
      if (tag.name() == "host") read_host(tag, forwards);
      if (tag.name() == "router") add_point({tag.text("id"), tag.where(), false});
      if (tag.name() == "link") read_link(tag);
      if (tag.name() == "zone" || tag.name() == "AS") read_zone(tag);
      if (tag.name() == "cluster") read_cluster_tag(tag);
    }
    for (const XmlTag& tag : children) {  // after what they name
      if (tag.name() == "route") read_route(tag, "src", "dst");
      if (tag.name() == "zoneRoute" || tag.name() == "ASroute") {
        read_route(tag, "gw_src", "gw_dst");
      }
    }
    if (routing == "Full") note_missing_routes(zone, children);
    return props;
  }

  /// SimGrid refuses communication between hosts of such a zone without a route; parsim routes
  /// between all hosts that links connect.
  void note_missing_routes(const XmlTag& zone, const std::vector<XmlTag>& children) {
    std::vector<std::string> hosts;
    std::set<std::pair<std::string, std::string>> joined;
    for (const XmlTag& tag : children) {
      if (tag.name() == "host") hosts.push_back(tag.text("id"));
      if (tag.name() == "route" && tag.text("src") != tag.text("dst")) {
        joined.insert(std::minmax(tag.text("src"), tag.text("dst")));
      }
    }
    if (joined.empty()) return;  // its hosts only stand here
    std::size_t missing = 0;
    std::string first;
    for (std::size_t a = 0; a < hosts.size(); ++a) {
      for (std::size_t b = a + 1; b < hosts.size(); ++b) {
        if (joined.contains(std::minmax(hosts[a], hosts[b]))) continue;
        if (missing++ == 0) first = fmt::format("'{}' and '{}'", hosts[a], hosts[b]);
      }
    }
    if (missing == 0) return;
    platform_.notes.push_back(fmt::format(
        "{}: no route between {} pair{} of hosts ({}{}); they use the shortest path", zone.where(),
        missing, missing == 1 ? "" : "s", first, missing == 1 ? "" : ", …"));
  }

  /// A flat cluster: a star of its hosts' links around a router.
  void read_cluster_tag(const XmlTag& tag) {
    const std::string topology = tag.text_or("topology", "FLAT");
    if (topology != "FLAT") {
      throw InputError(
          tag.where("topology"), fmt::format("'{}'", topology),
          "accepted: FLAT; for others use the generators fat-tree, torus and dragonfly");
    }
    if (tag.find("limiter_link") != nullptr) {
      throw InputError(tag.where("limiter_link"), "limiter links are not supported",
                       "accepted: a cluster without limiter_link");
    }
    const Props props = read_props(tag);
    const std::string& id = tag.text("id");
    const std::string prefix = tag.text_or("prefix", ""), suffix = tag.text_or("suffix", "");
    constexpr std::int64_t most_cores = 1'000'000;
    const std::int64_t cores = tag.integer_or("core", 1, 1, most_cores);
    keep_bare(tag, "speed", "FLOP/s");
    const FlopsPerSecond speed = platform_speed(tag) * static_cast<double>(cores);
    const BytesPerSecond rate = rate_of(tag, "bw");
    Seconds latency = latency_of(tag, "lat");
    const std::vector<std::int64_t> numbers = read_radical(tag);
    if (tag.find("bb_bw") != nullptr) {
      // A backbone as fast as all hosts together only adds its latency.
      const BytesPerSecond backbone = rate_of(tag, "bb_bw");
      if (policy_of(tag, "bb_sharing_policy", "SHARED") != "FATPIPE" &&
          backbone.value < rate.value * static_cast<double>(numbers.size())) {
        throw InputError(tag.where("bb_bw"),
                         fmt::format("a backbone of {} that {} hosts of {} share is not supported",
                                     to_text(backbone), numbers.size(), to_text(rate)),
                         fmt::format("accepted: no bb_bw, or at least {}",
                                     to_text(rate * static_cast<double>(numbers.size()))));
      }
      latency += latency_of(tag, "bb_lat") / 2;
    }
    const std::size_t router =
        add_point({tag.text_or("router_id", fmt::format("{}{}_router{}", prefix, id, suffix)),
                   tag.where(), false});
    for (const std::int64_t number : numbers) {
      PlatformPoint host{fmt::format("{}{}{}", prefix, number, suffix), tag.where(), true};
      host.speed = speed;
      host.cores = cores;
      host.props = props;
      const std::size_t point = add_point(std::move(host));
      PlatformLink link{fmt::format("{}_link_{}", id, number), tag.where(), rate, latency,
                        policy_of(tag, "sharing_policy", "SPLITDUPLEX")};
      platform_.routes.push_back(
          {tag.where(), point, router, {{add_link(std::move(link)), 0}}, true});
    }
  }

  /// "0-2,7": numbers and ranges.
  static std::vector<std::int64_t> read_radical(const XmlTag& tag) {
    const std::string& text = tag.text("radical");
    std::vector<std::int64_t> numbers;
    for (const std::string& range : split_at(text, ',')) {
      const std::vector<std::string> ends = split_at(range, '-');
      const auto first = to_number<std::int64_t>(ends.front());
      const auto last = to_number<std::int64_t>(ends.back());
      if (ends.size() > 2 || !first || !last || *last < *first || *last - *first >= most_devices ||
          numbers.size() > static_cast<std::size_t>(most_devices)) {
        throw InputError(tag.where("radical"), fmt::format("'{}'", text),
                         fmt::format("accepted: numbers and rising ranges such as \"0-7,12\", at "
                                     "most {} hosts",
                                     most_devices));
      }
      for (std::int64_t n = *first; n <= *last; ++n) numbers.push_back(n);
    }
    return numbers;
  }

  std::size_t point_named(const XmlTag& tag, std::string_view attribute) const {
    const std::string& name = tag.text(attribute);
    const auto found = points_.find(name);
    if (found != points_.end()) return found->second;
    throw InputError(
        tag.where(attribute), fmt::format("no host or router '{}'", name),
        fmt::format("accepted: one defined before{}", did_you_mean(name, names_of(points_))));
  }
  static std::vector<std::string> names_of(const std::map<std::string, std::size_t>& map) {
    constexpr std::size_t most_compared = 1000;  // enough for a hint
    std::vector<std::string> names;
    for (const auto& [name, index] : map) {
      if (names.size() < most_compared) names.push_back(name);
    }
    return names;
  }

  void read_route(const XmlTag& tag, std::string_view from, std::string_view to) {
    PlatformRoute route{tag.where(),
                        point_named(tag, from),
                        point_named(tag, to),
                        {},
                        tag.text_or("symmetrical", "YES") != "NO"};
    for (const XmlTag& hop : tag.children({"link_ctn"})) {
      const std::string& name = hop.text("id");
      const auto found = links_.find(name);
      if (found == links_.end()) {
        throw InputError(
            hop.where("id"), fmt::format("no link '{}'", name),
            fmt::format("accepted: one defined before{}", did_you_mean(name, names_of(links_))));
      }
      const std::string direction = hop.text_or("direction", "NONE");
      if (direction != "NONE" && direction != "UP" && direction != "DOWN") {
        throw InputError(hop.where("direction"), fmt::format("'{}'", direction),
                         "accepted: UP, DOWN, NONE");
      }
      route.hops.push_back({found->second, direction == "UP" ? 1 : direction == "DOWN" ? -1 : 0});
    }
    // From a host to itself: a device needs no link for that.
    if (route.from == route.to && from == "src") return;
    if (route.hops.empty()) {
      throw InputError(tag.where(), "a route without links", "accepted: at least one <link_ctn>");
    }
    platform_.routes.push_back(std::move(route));
  }

  const std::string& file_;
  Platform platform_;
  std::string first_bare_;  ///< quantity without a unit, and how many there are
  std::size_t bare_ = 0;
  std::map<std::string, std::size_t> points_, links_;
};

}  // namespace

Platform read_platform(const Element& root, const std::string& file) {
  return PlatformReader(file).read(root);
}

}  // namespace parsim::topologies
