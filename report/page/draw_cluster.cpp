#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>

#include "report/page/drawings.hpp"
#include "report/page/html.hpp"

namespace parsim::report {

namespace {

// In the drawing's own units, about a pixel each.
constexpr double device_width = 54, device_height = 26, gap = 8, level_height = 54, margin = 10;
constexpr std::size_t most_drawn = 48, most_machines = 64;

struct Point {
  double x = 0, y = 0;
};

/// Something drawn as a box: a device, a switch, or a whole machine.
struct Box {
  Point at;  ///< centre
  double width = device_width;
  std::string text;
  std::string_view css;
  std::string tooltip;
};

/// A line between two boxes, with its tooltip.
struct Line {
  std::size_t a = 0, b = 0;
  double use = 0.0;  ///< of the busier direction
  std::string tooltip;
  bool among_devices = false;
  int parallel = 0;  ///< number among the lines between the same boxes
};

struct Frame {
  double x = 0, y = 0, width = 0, height = 0;
  std::string text;
};

struct Drawing {
  std::vector<Frame> frames;
  std::vector<Box> boxes;
  std::vector<Line> lines;
  double width = 0, height = 0;
};

/// Steps from the nearest GPU, by switch; a switch without one counts 1.
std::vector<int> levels_of(const Cluster& cluster) {
  std::vector<std::vector<std::size_t>> near(cluster.switches.size());
  std::vector<int> level(cluster.switches.size(), 0);
  std::queue<std::size_t> waiting;
  const auto switch_of = [](const Port& port) { return static_cast<std::size_t>(port.index); };
  for (const Link& link : cluster.links) {
    const bool a = link.a.kind == Port::Kind::switch_, b = link.b.kind == Port::Kind::switch_;
    if (a && b) {
      near[switch_of(link.a)].push_back(switch_of(link.b));
      near[switch_of(link.b)].push_back(switch_of(link.a));
    } else if (a != b) {
      const Port& device = a ? link.b : link.a;
      if (cluster.model(DeviceId{device.index}).kind != DeviceKind::gpu) continue;
      const std::size_t s = switch_of(a ? link.a : link.b);
      if (level[s] == 0) waiting.push(s);
      level[s] = 1;
    }
  }
  while (!waiting.empty()) {
    const std::size_t s = waiting.front();
    waiting.pop();
    for (const std::size_t next : near[s]) {
      if (level[next] != 0) continue;
      level[next] = level[s] + 1;
      waiting.push(next);
    }
  }
  for (int& each : level) each = std::max(each, 1);
  return level;
}

/// A name without that of its machine: "gpu0" of "n3.gpu0".
std::string own_name(const std::string& name, const std::string& machine) {
  return name.starts_with(machine + ".") ? name.substr(machine.size() + 1) : name;
}

double use_of(const std::vector<double>& hop_use, LinkId link, bool backwards) {
  return hop_use.empty() ? 0.0 : hop_use[Hop{link, backwards}.index()];
}

std::string link_words(const Cluster& cluster, LinkId id, const std::vector<double>& hop_use) {
  const Link& link = cluster[id];
  return fmt::format("{}, {}: {:.1f} % to {}, {:.1f} % back", link.name, to_text(link.rate),
                     100 * use_of(hop_use, id, false), experiment::port_name(cluster, link.b),
                     100 * use_of(hop_use, id, true));
}

/// Numbers the lines between the same two boxes, which are drawn side by side.
void number_parallels(std::vector<Line>& lines) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const bool same = std::minmax(lines[i].a, lines[i].b) == std::minmax(lines[j].a, lines[j].b);
      lines[i].parallel += same ? 1 : 0;
    }
  }
}

/// Places a row of boxes evenly over a width.
void spread(std::vector<Box>& boxes, const std::vector<std::size_t>& row, double x, double width,
            double y) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(row.size());
    boxes[row[i]].at = {x + share * width, y};
  }
}

/// Height of the arcs below the devices of a machine, for the farthest pair with a direct link.
double arc_depth(const Cluster& cluster) {
  int farthest = 0;
  for (const Link& link : cluster.links) {
    if (link.a.kind == Port::Kind::device && link.b.kind == Port::Kind::device) {
      farthest = std::max(farthest, std::abs(link.a.index - link.b.index));
    }
  }
  return farthest == 0 ? 0.0 : 22.0 + 11.0 * std::min(farthest, 8);
}

Drawing drawing_in_full(const Cluster& cluster, const std::vector<double>& hop_use) {
  Drawing drawing;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const Device& device = cluster.devices[d];
    const std::string machine =
        device.node.valid() ? cluster.nodes[device.node.index()].name : std::string();
    const DeviceModel& model = cluster.model(DeviceId{d});
    drawing.boxes.push_back(
        {{},
         device_width,
         own_name(device.name, machine),
         to_text(model.kind),
         fmt::format("{}: {}, {}", device.name, model.name, to_text(device.memory))});
  }
  const std::vector<int> level = levels_of(cluster);
  int inner = 1, outer = 0;
  for (std::size_t s = 0; s < cluster.switches.size(); ++s) {
    const Switch& forwarder = cluster.switches[s];
    const bool inside = forwarder.node.valid();
    const std::string machine = inside ? cluster.nodes[forwarder.node.index()].name : std::string();
    const std::string text = own_name(forwarder.name, machine);
    drawing.boxes.push_back({{},
                             std::clamp(8.0 * static_cast<double>(text.size()) + 12, 54.0, 160.0),
                             text,
                             "switch",
                             forwarder.name});
    (inside ? inner : outer) = std::max(inside ? inner : outer, level[s]);
  }
  // The levels of switches between machines are counted from those inside.
  std::vector<std::vector<std::size_t>> outside(static_cast<std::size_t>(outer) + 1);
  const std::size_t first_switch = cluster.devices.size();
  for (std::size_t s = 0; s < cluster.switches.size(); ++s) {
    if (cluster.switches[s].node.valid()) continue;
    outside[static_cast<std::size_t>(level[s])].push_back(first_switch + s);
  }
  std::erase_if(outside, [](const auto& row) { return row.empty(); });

  const double machines_top = margin + level_height * static_cast<double>(outside.size());
  const double devices_y = machines_top + 24 + level_height * inner + device_height / 2;
  const double bottom = devices_y + device_height / 2 + gap + arc_depth(cluster);
  double x = margin;
  const auto place_machine = [&](NodeId node, const std::string& name) {
    std::vector<std::vector<std::size_t>> rows(static_cast<std::size_t>(inner) + 1);
    for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
      if (cluster.devices[d].node == node) rows[0].push_back(d);
    }
    for (std::size_t s = 0; s < cluster.switches.size(); ++s) {
      if (cluster.switches[s].node == node && node.valid()) {
        rows[static_cast<std::size_t>(level[s])].push_back(first_switch + s);
      }
    }
    double width = 100;
    for (const std::vector<std::size_t>& row : rows) {
      double sum = gap;
      for (const std::size_t box : row) sum += drawing.boxes[box].width + gap;
      width = std::max(width, sum);
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      spread(drawing.boxes, rows[r], x, width, devices_y - level_height * static_cast<double>(r));
    }
    if (node.valid()) {
      drawing.frames.push_back({x, machines_top, width, bottom - machines_top, name});
    }
    x += width + 2 * gap;
  };
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    place_machine(NodeId{n}, cluster.nodes[n].name);
  }
  const bool loose = std::any_of(cluster.devices.begin(), cluster.devices.end(),
                                 [](const Device& device) { return !device.node.valid(); });
  if (loose) place_machine(NodeId{}, "");
  drawing.width = x - 2 * gap + margin;
  drawing.height = bottom + margin;
  for (std::size_t r = 0; r < outside.size(); ++r) {
    spread(drawing.boxes, outside[r], margin, drawing.width - 2 * margin,
           machines_top - level_height * (static_cast<double>(r) + 0.6));
  }
  const auto box_of = [&](const Port& port) {
    return static_cast<std::size_t>(port.index) +
           (port.kind == Port::Kind::device ? 0 : first_switch);
  };
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    const LinkId id{i};
    drawing.lines.push_back({box_of(link.a), box_of(link.b),
                             std::max(use_of(hop_use, id, false), use_of(hop_use, id, true)),
                             link_words(cluster, id, hop_use),
                             link.a.kind == Port::Kind::device && link.b.kind == Port::Kind::device,
                             0});
  }
  number_parallels(drawing.lines);
  return drawing;
}

/// One box for each machine, coloured links between them and what connects them.
Drawing drawing_of_machines(const Cluster& cluster, const std::vector<double>& hop_use) {
  Drawing drawing;
  constexpr double width = 110;
  const std::size_t machines = cluster.nodes.size();
  const auto columns = static_cast<std::size_t>(std::min<double>(8, static_cast<double>(machines)));
  std::vector<std::size_t> outside;
  drawing.boxes.resize(machines);
  for (std::size_t n = 0; n < machines; ++n) {
    std::size_t count = 0;
    std::string model;
    for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
      if (cluster.devices[d].node != NodeId{n}) continue;
      if (cluster.model(DeviceId{d}).kind != DeviceKind::gpu) continue;
      ++count;
      model = cluster.model(DeviceId{d}).name;
    }
    double inside = 0.0;
    for (std::size_t i = 0; i < cluster.links.size(); ++i) {
      const auto node_of = [&](const Port& port) {
        const auto index = static_cast<std::size_t>(port.index);
        return port.kind == Port::Kind::device ? cluster.devices[index].node
                                               : cluster.switches[index].node;
      };
      if (node_of(cluster.links[i].a) == NodeId{n} && node_of(cluster.links[i].b) == NodeId{n}) {
        inside =
            std::max({inside, use_of(hop_use, LinkId{i}, false), use_of(hop_use, LinkId{i}, true)});
      }
    }
    drawing.boxes[n] = {
        {margin + (width + gap) * (static_cast<double>(n % columns) + 0.5),
         margin + 2 * level_height +
             level_height * std::floor(static_cast<double>(n) / static_cast<double>(columns))},
        width,
        fmt::format("{}: {} x {}", cluster.nodes[n].name, count, model),
        "gpu",
        fmt::format("{}: busiest link inside {:.1f} %", cluster.nodes[n].name, 100 * inside)};
  }
  drawing.width = 2 * margin + (width + gap) * static_cast<double>(columns);
  drawing.height =
      2 * margin + 2 * level_height +
      level_height * std::ceil(static_cast<double>(machines) / static_cast<double>(columns));
  std::vector<std::size_t> box_of_switch(cluster.switches.size());
  for (std::size_t s = 0; s < cluster.switches.size(); ++s) {
    const Switch& forwarder = cluster.switches[s];
    box_of_switch[s] = forwarder.node.valid() ? forwarder.node.index() : drawing.boxes.size();
    if (forwarder.node.valid()) continue;
    outside.push_back(drawing.boxes.size());
    drawing.boxes.push_back({{}, 90, forwarder.name, "switch", forwarder.name});
  }
  spread(drawing.boxes, outside, margin, drawing.width - 2 * margin, margin + level_height / 2);
  const auto box_of = [&](const Port& port) {
    const auto index = static_cast<std::size_t>(port.index);
    if (port.kind == Port::Kind::switch_) return box_of_switch[index];
    const NodeId node = cluster.devices[index].node;
    return node.valid() ? node.index() : std::size_t{0};
  };
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const LinkId id{i};
    const std::size_t a = box_of(cluster.links[i].a), b = box_of(cluster.links[i].b);
    if (a == b) continue;
    drawing.lines.push_back({a, b, std::max(use_of(hop_use, id, false), use_of(hop_use, id, true)),
                             link_words(cluster, id, hop_use), false, 0});
  }
  if (drawing.lines.size() <= 512) number_parallels(drawing.lines);
  return drawing;
}

/// 0 unused, 1 below 10 %, 2 below 30 %, 3 below 60 %, 4 below 90 %, 5 above.
std::size_t level_of_use(double use) {
  constexpr double limits[] = {1e-6, 0.1, 0.3, 0.6, 0.9};
  return static_cast<std::size_t>(std::upper_bound(std::begin(limits), std::end(limits), use) -
                                  std::begin(limits));
}

/// A coordinate of this drawing: its unit is about a pixel.
long whole(double value) { return std::lround(value); }

std::string path_of(const Drawing& drawing, const Line& line) {
  const Point a = drawing.boxes[line.a].at, b = drawing.boxes[line.b].at;
  if (line.among_devices) {  // an arc below the row; farther pairs and later cables go deeper
    const double edge = device_height / 2;
    const double steps = std::abs(b.x - a.x) / (device_width + gap);
    const double depth = 16 + 13 * std::min(steps, 8.0) + 7 * line.parallel;
    return fmt::format("M{} {}C{} {} {} {} {} {}", whole(a.x), whole(a.y + edge), whole(a.x),
                       whole(a.y + edge + depth), whole(b.x), whole(b.y + edge + depth), whole(b.x),
                       whole(b.y + edge));
  }
  const double aside = 5.0 * std::ceil(line.parallel / 2.0) * (line.parallel % 2 == 0 ? 1 : -1);
  return fmt::format("M{} {}L{} {}", whole(a.x + aside), whole(a.y), whole(b.x + aside),
                     whole(b.y));
}

void append_boxes(std::string& out, const Drawing& drawing) {
  out += "<g id=boxes class=boxes>";
  for (const Frame& frame : drawing.frames) {
    out += fmt::format(
        "<rect class=frame x={} y={} width={} height={} rx=6 /><text x={} y={} "
        "class=machine>{}</text>",
        whole(frame.x), whole(frame.y), whole(frame.width), whole(frame.height), whole(frame.x + 8),
        whole(frame.y + 16), html(frame.text, 24));
  }
  for (const Box& box : drawing.boxes) {
    out += fmt::format(
        "<g class={}><title>{}</title><rect x={} y={} width={} height={} rx=4 /><text x={} "
        "y={}>{}</text></g>",
        box.css, html(box.tooltip, 200), whole(box.at.x - box.width / 2),
        whole(box.at.y - device_height / 2), whole(box.width), device_height, whole(box.at.x),
        whole(box.at.y + 4), html(box.text, static_cast<std::size_t>(box.width / 6.5)));
  }
  out += "</g>";
}

std::string svg_of(const Drawing& drawing, bool alone) {
  const bool tooltips = alone && drawing.lines.size() <= 128;
  std::string out = fmt::format(
      "<div class=scroll><svg class=cluster viewBox=\"0 0 {} {}\" style=\"max-width:{}px;min-width:"
      "{}px\">",
      whole(drawing.width), whole(drawing.height), whole(std::min(1.15 * drawing.width, 1160.0)),
      whole(std::min(drawing.width * 0.6, 900.0)));
  std::array<std::string, 6> together, single;
  for (const Line& line : drawing.lines) {
    const std::size_t level = level_of_use(line.use);
    if (tooltips) {
      single[level] += fmt::format("<path class=u{} d=\"{}\"><title>{}</title></path>", level,
                                   path_of(drawing, line), html(line.tooltip, 200));
    } else {
      together[level] += path_of(drawing, line);
    }
  }
  for (std::size_t level = 0; level < together.size(); ++level) {
    if (!together[level].empty()) {
      out += fmt::format("<path class=u{} d=\"{}\"/>", level, together[level]);
    }
    out += single[level];
  }
  if (!alone) return out + "<use href=#boxes /></svg></div>\n";
  append_boxes(out, drawing);
  return out +
         "</svg></div><p class=key>Link use (busier direction): <i class=u0></i>unused <i "
         "class=u1></i>to 10 % <i class=u2></i>to 30 % <i class=u3></i>to 60 % <i class=u4></i>to "
         "90 % <i class=u5></i>above</p>\n";
}

}  // namespace

std::string draw_cluster(const Cluster& cluster, const std::vector<double>& hop_use, bool alone) {
  if (cluster.devices.size() <= most_drawn) {
    return svg_of(drawing_in_full(cluster, hop_use), alone);
  }
  if (cluster.nodes.size() > 1 && cluster.nodes.size() <= most_machines) {
    return svg_of(drawing_of_machines(cluster, hop_use), alone);
  }
  if (!alone) return {};
  return fmt::format("<p class=key>not drawn: {} devices in {} machines</p>\n",
                     cluster.devices.size(), cluster.nodes.size());
}

std::string list_links(const Cluster& cluster, const std::vector<double>& hop_use) {
  constexpr std::size_t most_links = 5;
  std::vector<std::size_t> hops;
  for (std::size_t i = 0; i < hop_use.size(); ++i) {
    if (hop_use[i] > 1e-6) hops.push_back(i);
  }
  if (hops.empty()) return "<p>No traffic on the links.</p>\n";
  const std::size_t shown = std::min(most_links, hops.size());
  std::partial_sort(hops.begin(), hops.begin() + static_cast<std::ptrdiff_t>(shown), hops.end(),
                    [&](std::size_t a, std::size_t b) {
                      return hop_use[a] != hop_use[b] ? hop_use[a] > hop_use[b] : a < b;
                    });
  std::string out = "<p>Busiest: ";
  for (std::size_t i = 0; i < shown; ++i) {
    const Link& link = cluster.links[hops[i] / 2];
    out +=
        fmt::format("{}{:.1f} % of {} on {} to {}", i == 0 ? "" : ", ", 100 * hop_use[hops[i]],
                    to_text(link.rate), html_name(link.name),
                    html_name(experiment::port_name(cluster, hops[i] % 2 == 1 ? link.a : link.b)));
  }
  return out + "</p>\n";
}

}  // namespace parsim::report
