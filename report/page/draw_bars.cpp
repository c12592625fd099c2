#include <fmt/format.h>

#include <algorithm>

#include "report/page/drawings.hpp"
#include "report/page/html.hpp"
#include "report/runs.hpp"

namespace parsim::report {

namespace {

struct Segment {
  std::string_view css, word;
  double share = 0.0;  ///< of the bar's full length
  std::string text;
};

/// Segments side by side; their numbers in one tooltip, and inside where they fit.
std::string bar_of(const std::vector<Segment>& segments, double width_for_text, bool cut) {
  constexpr double visible = 0.003;
  std::string tooltip, shapes, texts;
  double x = 0.0;
  for (const Segment& segment : segments) {
    if (segment.share <= 0) continue;
    tooltip += fmt::format("{}{} {}", tooltip.empty() ? "" : ", ", segment.word, segment.text);
    const double shown = std::min(segment.share, std::max(0.0, 1.0 - x));
    if (shown > visible) {
      shapes += fmt::format("<rect class={}{} width={} />", segment.css,
                            x > 0 ? " x=" + width_percent(x) : "", width_percent(shown));
    }
    if (shown > width_for_text) {
      texts += fmt::format("<text x={} class=t{}>{}</text>", width_percent(x), segment.css,
                           segment.text);
    }
    x += segment.share;
  }
  if (cut) shapes += "<svg x=96%><path class=gap d=\"M0 18L6 0h5L5 18z\"/></svg>";
  return fmt::format("<svg class=bar><title>{}</title>{}{}</svg>", tooltip, shapes, texts);
}

std::string time_bar(const DeviceUse& use, Seconds full, double width_for_text) {
  const auto segment = [&](std::string_view css, std::string_view word, Seconds time) {
    return Segment{css, word, time / full, to_text(time)};
  };
  const bool cut = use.compute + use.exposed_communication + use.idle > full * (1 + 1e-9);
  return bar_of(
      {segment("c", "compute", use.compute), segment("x", "exposed", use.exposed_communication),
       segment("i", "idle", use.idle)},
      width_for_text, cut);
}

std::string memory_bar(const experiment::DeviceResult& device, double full) {
  const auto share = [&](Bytes bytes) { return static_cast<double>(bytes.value) / full; };
  const auto segment = [&](std::string_view css, std::string_view word, Bytes bytes) {
    return Segment{css, word, share(bytes), to_text(bytes)};
  };
  const lowering::MemoryUse& use = device.memory;
  std::vector<Segment> parts{
      segment("m0", "weights", use.weights), segment("m1", "gradients", use.gradients),
      segment("m2", "optimizer state", use.optimizer_state),
      segment("m3", "activations", use.activations), segment("m4", "buffers", use.communication)};
  std::string out = bar_of(parts, 1.0, false);
  const double limit = share(device.capacity);
  if (limit < 1) {
    out.insert(out.rfind("</svg>"),
               fmt::format("<rect class=limit x={} width=2 />", width_percent(limit)));
  }
  return out;
}

/// Devices next to each other that look the same.
struct Row {
  std::size_t first = 0, last = 0;
  std::string html;
  double fullness = 0.0;
};

}  // namespace

std::string draw_strategies(const std::vector<experiment::RunResult>& results) {
  constexpr double longest_bar = 4.0;
  Seconds shortest{}, longest{};
  for (const experiment::RunResult& result : results) {
    if (!result.error.empty()) continue;
    if (shortest == Seconds{} || result.step_time < shortest) shortest = result.step_time;
    longest = std::max(longest, result.step_time);
  }
  const Seconds full = std::min(longest, longest_bar * shortest);
  std::string out = "<div class=bars>\n";
  for (const experiment::RunResult& result : results) {
    out += fmt::format("<b>{}</b>", html_name(result.strategy));
    if (!result.error.empty()) {
      out += fmt::format("<span class=none>no plan</span><span></span>\n");
      continue;
    }
    out += time_bar(experiment::mean_use(result), full, 0.09);
    out += fmt::format("<span class=n>{}{}</span>\n", to_text(result.step_time),
                       result.fits() ? "" : " <em title=\"does not fit in memory\">✗</em>");
  }
  out +=
      "</div><p class=key><i class=c></i>compute <i class=x></i>exposed communication <i "
      "class=i></i>idle: mean of the GPUs";
  if (full < longest) out += fmt::format("; bars longer than {} are cut", to_text(full));
  return out + "; ✗ does not fit in memory</p>\n";
}

std::string draw_devices(const experiment::RunResult& result) {
  double full = 0.0;
  for (const experiment::DeviceResult& device : result.devices) {
    if (device.kind != DeviceKind::gpu) continue;
    full = std::max({full, static_cast<double>(device.capacity.value),
                     static_cast<double>(device.peak().value)});
  }
  std::vector<Row> rows;
  for (std::size_t d = 0; d < result.devices.size(); ++d) {
    const experiment::DeviceResult& device = result.devices[d];
    const bool works = device.peak().value > 0 || device.use.compute > Seconds{};
    if (device.kind != DeviceKind::gpu && !works) continue;
    const std::string cells = fmt::format(
        "{}{}<span class=n>{} of {}{}</span>\n", time_bar(device.use, result.step_time, 0.25),
        memory_bar(device, full), to_text(device.peak()), to_text(device.capacity),
        device.lacking().value > 0 ? " <em>✗</em>" : "");
    if (!rows.empty() && rows.back().last + 1 == d && rows.back().html == cells) {
      rows.back().last = d;
    } else {
      rows.push_back({d, d, cells,
                      static_cast<double>(device.peak().value) /
                          static_cast<double>(std::max<std::int64_t>(device.capacity.value, 1))});
    }
  }
  constexpr std::size_t most_rows = 24;
  std::string note;
  if (rows.size() > most_rows) {
    note = fmt::format("the {} of {} rows with the highest memory use", most_rows, rows.size());
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.fullness > b.fullness; });
    rows.resize(most_rows);
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.first < b.first; });
  }
  std::string out =
      "<div class=\"bars devices\"><span></span><span>time</span><span>memory</span>"
      "<span></span>\n";
  for (const Row& row : rows) {
    const std::string name = html_name(result.devices[row.first].name);
    out += row.first == row.last
               ? fmt::format("<b>{}</b>", name)
               : fmt::format("<b>{} … {}</b>", name, html_name(result.devices[row.last].name));
    out += row.html;
  }
  out += "</div>";
  if (!note.empty()) out += fmt::format("<p class=key>{}</p>", note);
  return out + "\n";
}

}  // namespace parsim::report
