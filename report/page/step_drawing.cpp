#include "report/page/step_drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "report/page/html.hpp"
#include "report/page/page.hpp"
#include "report/page/ranks.hpp"

namespace parsim::report {

namespace {

// Pixels.
constexpr double drawing_width = 900, drawing_margin = 12, track_step = 18, rank_gap = 10,
                 head_height = 40;
constexpr double memory_left = 150, memory_width = 200, time_left = 380;
constexpr double time_width = drawing_width - drawing_margin - time_left;
constexpr double letter = 6.5;  ///< of the numbers in bars

struct MemoryPart {
  std::string_view css, word;
  Bytes lowering::MemoryUse::*bytes;
};
constexpr MemoryPart kinds_of_memory[] = {
    {"m0", "weights", &lowering::MemoryUse::weights},
    {"m1", "gradients", &lowering::MemoryUse::gradients},
    {"m2", "optimizer state", &lowering::MemoryUse::optimizer_state},
    {"m3", "activations", &lowering::MemoryUse::activations},
    {"m4", "buffers", &lowering::MemoryUse::communication}};

/// The page's light colours, on white: a picture in a document has no scheme of its own.
std::string drawing_style() {
  const std::string_view css = file_named("style.css");
  const std::string_view colours = css.substr(0, css.find("@media"));
  std::string rules =
      "text{font:12px system-ui,sans-serif;fill:var(--fg)}.soft{fill:var(--soft)}"
      ".on{font-size:10px;text-anchor:middle}.on.l{fill:#fff}path{fill:none;"
      "stroke-width:14}.a{stroke:var(--line);stroke-width:1}.e{text-anchor:end}";
  for (std::size_t k = 0; k < bar_kinds; ++k)
    rules += fmt::format(".k{0}{{stroke:var(--k{0})}}", k);
  for (const MemoryPart& part : kinds_of_memory)
    rules += fmt::format(".{0}{{fill:var(--{0})}}", part.css);
  return fmt::format("<style>{}{}</style>\n", colours, rules);
}

std::string drawn_memory(const experiment::DeviceResult& device, double full, double y) {
  std::string out;
  double x = memory_left;
  for (const MemoryPart& part : kinds_of_memory) {
    const double wide =
        static_cast<double>((device.memory.*part.bytes).value) / full * memory_width;
    if (wide >= 0.3) {
      out += fmt::format("<rect class={} x=\"{}\" y=\"{}\" width=\"{}\" height=\"14\"/>",
                         '"' + std::string(part.css) + '"', coordinate(x), coordinate(y),
                         coordinate(wide));
    }
    x += wide;
  }
  return out + fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\">{}</text>\n", memory_left,
                           coordinate(y + track_step + 11), to_text(device.peak()));
}

/// "3" of "forward, micro-batch 3".
std::string_view number_in(std::string_view label) {
  const std::size_t at = label.rfind("micro-batch ");
  return at == std::string_view::npos ? std::string_view{} : label.substr(at + 12);
}

/// Whether bars name their micro-batch: there are several.
bool several_micro_batches(const Bars& bars) {
  return std::any_of(bars.labels.begin(), bars.labels.end(), [](const BarLabel& label) {
    const std::string_view number = number_in(label.text);
    return !number.empty() && number != "0";
  });
}

/// `numbered`: kernels bear the number of their micro-batch.
std::string track_bars(const BarTrack& bars, const Bars& all, double y, bool numbered) {
  std::array<std::string, bar_kinds> paths;
  std::string numbers;
  for (const Bar& bar : bars.bars) {
    const BarLabel& label = all.labels[static_cast<std::size_t>(bar.label)];
    const auto scaled = [&](std::int64_t time) {
      return static_cast<double>(time) / static_cast<double>(all.end) * time_width;
    };
    const double x = time_left + scaled(bar.start), wide = std::max(0.3, scaled(bar.length));
    paths[static_cast<std::size_t>(label.kind)] +=
        fmt::format("M{} {}h{}", coordinate(x), coordinate(y + 7), coordinate(wide));
    const std::string_view number = number_in(label.text);
    if (!numbered || number.empty() || wide < letter * static_cast<double>(number.size()) + 3)
      continue;
    numbers += fmt::format("<text class=\"on{}\" x=\"{}\" y=\"{}\">{}</text>",
                           label.kind == BarKind::forward ? " l" : "", coordinate(x + wide / 2),
                           coordinate(y + 11), number);
  }
  std::string out;
  for (std::size_t k = 0; k < bar_kinds; ++k) {
    if (!paths[k].empty()) out += fmt::format("<path class=\"k{}\" d=\"{}\"/>", k, paths[k]);
  }
  return out + numbers + "\n";
}

/// Squares with words, from left to right.
std::string drawn_key(double x, double y,
                      std::span<const std::pair<std::string, std::string_view>> words) {
  std::string out;
  for (const auto& [css, word] : words) {
    const bool stroked = css.front() == 'k';
    out += stroked
               ? fmt::format("<path class=\"{}\" style=\"stroke-width:10\" d=\"M{} {}h10\"/>", css,
                             coordinate(x), coordinate(y - 4))
               : fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"10\" height=\"10\"/>",
                             css, coordinate(x), coordinate(y - 9));
    out += fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\">{}</text>", coordinate(x + 14),
                       coordinate(y), word);
    x += 26 + letter * static_cast<double>(word.size());
  }
  return out + "\n";
}

}  // namespace

std::string step_drawing(const Cluster& cluster, const experiment::Run& run) {
  constexpr std::size_t most_bars = 2500;
  const Bars bars = thinned(ranks_of(run.dag, run.timeline, cluster), most_bars);
  double full = 1;
  for (const BarTrack& each : bars.tracks) {
    const experiment::DeviceResult& device = run.result.devices[each.device.index()];
    full = std::max(full, static_cast<double>(device.peak().value));
  }
  const bool numbered = several_micro_batches(bars);
  std::string body;
  double y = head_height;
  for (std::size_t t = 0; t + 1 < bars.tracks.size(); t += 2) {
    const BarTrack& kernels = bars.tracks[t];
    std::string name = kernels.name.empty() ? cluster[kernels.device].name : kernels.name;
    constexpr std::string_view once = " ×1";
    if (name.ends_with(once)) name.erase(name.size() - once.size());
    body += fmt::format("<text x=\"{0}\" y=\"{1}\">{2}</text>", drawing_margin, coordinate(y + 11),
                        html(name, 24));
    body += drawn_memory(run.result.devices[kernels.device.index()], full, y);
    body += track_bars(kernels, bars, y, numbered) +
            track_bars(bars.tracks[t + 1], bars, y + track_step, false);
    y += 2 * track_step + rank_gap;
  }
  const double axis = y;
  y += 36;
  std::vector<std::pair<std::string, std::string_view>> kept, moved;
  for (const MemoryPart& part : kinds_of_memory)
    kept.emplace_back(std::string(part.css), part.word);
  constexpr std::string_view words[bar_kinds] = {
      "forward", "backward", "update", "gradients, ZeRO's weights", "layers' tensors", "pipeline"};
  for (std::size_t k = 0; k < bar_kinds; ++k) moved.emplace_back(fmt::format("k{}", k), words[k]);
  const double height = y + 2 * track_step + 4;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
             "height=\"{1}\">\n{2}<rect width=\"{0}\" height=\"{1}\" style=\"fill:#fff\"/>\n",
             drawing_width, coordinate(height), drawing_style()) +
         fmt::format(
             "<text class=\"soft\" x=\"{}\" y=\"22\">kept in memory</text>"
             "<text class=\"soft\" x=\"{}\" y=\"22\">above: kernels, below: "
             "communication</text>\n",
             memory_left, time_left) +
         body +
         fmt::format(
             "<path class=\"a\" d=\"M{0} {1}h{2}\"/><text class=\"soft\" x=\"{0}\" y=\"{3}\">0"
             "</text><text class=\"soft e\" x=\"{4}\" y=\"{3}\">{5}</text>\n",
             time_left, coordinate(axis), time_width, coordinate(axis + 14),
             drawing_width - drawing_margin,
             to_text(Seconds{static_cast<double>(bars.end) / 1e9})) +
         drawn_key(drawing_margin, y, kept) + drawn_key(drawing_margin, y + track_step + 2, moved) +
         "</svg>\n";
}

}  // namespace parsim::report
