#include <fmt/format.h>

#include <algorithm>

#include "report/page/bars.hpp"
#include "report/page/drawings.hpp"
#include "report/page/html.hpp"

namespace parsim::report {

namespace {

std::vector<Segment> memory_segments(const lowering::MemoryUse& use, double full) {
  const auto segment = [&](std::string_view css, std::string_view word, Bytes bytes) {
    return Segment{css, word, static_cast<double>(bytes.value) / full, to_text(bytes)};
  };
  return {segment("m0", "weights", use.weights), segment("m1", "gradients", use.gradients),
          segment("m2", "optimizer state", use.optimizer_state),
          segment("m3", "activations", use.activations),
          segment("m4", "buffers", use.communication)};
}

/// The memory of a device; a line where it ends, and one where the headroom begins. With a title,
/// unless the words below the drawing say the same.
std::string memory_bar(const experiment::DeviceResult& device, double full,
                       const std::string& below) {
  const std::vector<Segment> parts = memory_segments(device.memory, full);
  const double usable = static_cast<double>(device.headroom.usable(device.capacity).value) / full;
  const double limit = static_cast<double>(device.capacity.value) / full;
  std::string out = "<svg class=bar>";
  const std::string words = words_of(parts);
  if (words != below) out += fmt::format("<title>{}</title>", words);
  out += segments_of(parts);
  if (limit < 1) {
    out += fmt::format("<rect class=gap x={} width=100% />", width_percent(limit));
  }
  out += fmt::format("<rect class=limit x={} width=2 />", width_percent(std::min(usable, 0.997)));
  return out + "</svg>";
}

/// Devices that look the same.
struct Row {
  std::vector<std::size_t> devices;
  std::string html;
  double fullness = 0.0;
};

std::string label_of(const experiment::RunResult& result, const Row& row) {
  const experiment::DeviceResult& first = result.devices[row.devices.front()];
  std::string label = fmt::format("<b>{}</b>", html_name(first.name));
  if (row.devices.size() > 1) {
    label = fmt::format("<b>{} … {}</b> ×{}", html_name(first.name),
                        html_name(result.devices[row.devices.back()].name), row.devices.size());
  }
  return fmt::format("<span>{} <span class=soft>{}</span></span>", label, html_name(first.model));
}

}  // namespace

std::string draw_devices(const experiment::RunResult& result, bool with_key) {
  constexpr std::size_t most_rows = 16;
  double full = 0.0;
  for (const experiment::DeviceResult& device : result.devices) {
    if (device.kind != DeviceKind::gpu) continue;
    full = std::max({full, static_cast<double>(device.capacity.value),
                     static_cast<double>(device.peak().value)});
  }
  const experiment::DeviceResult* const fullest = result.fullest();
  const std::string below =
      fullest == nullptr ? "" : words_of(memory_segments(fullest->memory, 1.0));
  std::vector<Row> rows;
  for (std::size_t d = 0; d < result.devices.size(); ++d) {
    const experiment::DeviceResult& device = result.devices[d];
    const bool works = device.peak().value > 0 || device.use.compute > Seconds{};
    if (device.kind != DeviceKind::gpu && !works) continue;
    const std::vector<Segment> times = time_segments(device.use, result.step_time);
    const std::string cells =
        fmt::format("<span class=n>{} of {}{}</span><svg class=bar><title>{}</title>{}</svg>{}\n",
                    to_text(device.peak()), to_text(device.capacity),
                    device.lacking().value > 0 ? " <em>✗</em>" : "", words_of(times),
                    segments_of(times), memory_bar(device, full, below));
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.html == cells && result.devices[row.devices.front()].model == device.model;
    });
    if (same != rows.end()) {
      same->devices.push_back(d);
      continue;
    }
    rows.push_back({{d},
                    cells,
                    static_cast<double>(device.peak().value) /
                        static_cast<double>(std::max<std::int64_t>(device.capacity.value, 1))});
  }
  std::string note;
  if (rows.size() > most_rows) {
    note = fmt::format("; shown: the {} of {} rows with the highest memory use", most_rows,
                       rows.size());
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.fullness > b.fullness; });
    rows.resize(most_rows);
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return a.devices.front() < b.devices.front();
    });
  }
  std::string out =
      "<div class=devices>\n<span></span><span></span>"
      "<span>time of the step</span><span>memory</span>\n";
  for (const Row& row : rows) out += label_of(result, row) + row.html;
  out += "</div>\n<p class=key>";
  if (with_key) {
    out += time_key;
    out +=
        "<br><i class=m0></i>\u00a0weights <i class=m1></i>\u00a0gradients <i class=m2></i>"
        "\u00a0optimizer state <i class=m3></i>\u00a0activations <i class=m4></i>\u00a0buffers "
        "<i class=limit></i>\u00a0limit (less headroom)";
  } else {
    out += "colours as for the first plan";
  }
  out += (result.fits() ? "" : ", ✗ exceeded") + note + "</p>\n";
  if (fullest != nullptr) {
    out += fmt::format("<p class=key>{}, the fullest: {}.</p>\n", html_name(fullest->name), below);
  }
  return out;
}

}  // namespace parsim::report
