#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

#include "report/page/drawings.hpp"
#include "report/page/html.hpp"
#include "report/trace.hpp"

namespace parsim::report {

namespace {

constexpr int track_height = 14;
constexpr std::int64_t columns = 600;  ///< of the picture without a script

/// What a track shows at this resolution: a column belongs to the first bar that touches it, and
/// neighbouring columns of a kind are one stroke.
void append_strokes(const BarTrack& track, std::size_t row, const Bars& bars,
                    std::array<std::string, bar_kinds>& paths) {
  const double y = (static_cast<double>(row) + 0.5) * track_height;
  std::int64_t begin = 0, end = 0;
  std::size_t kind = 0;
  const auto flush = [&] {
    if (end > begin) paths[kind] += fmt::format("M{} {}h{}", begin, coordinate(y), end - begin);
  };
  for (const Bar& bar : track.bars) {
    const std::int64_t from = std::max(bar.start * columns / bars.end, end);
    const std::int64_t to = std::min(columns, (bar.start + bar.length) * columns / bars.end + 1);
    if (to <= from) continue;
    const auto this_kind =
        static_cast<std::size_t>(bars.labels[static_cast<std::size_t>(bar.label)].kind);
    if (from == end && this_kind == kind) {
      end = to;
      continue;
    }
    flush();
    begin = from;
    end = to;
    kind = this_kind;
  }
  flush();
}

std::string data_of(const Bars& bars) {
  nlohmann::ordered_json json;
  json["end"] = bars.end;
  json["labels"] = nlohmann::json::array();
  json["kinds"] = nlohmann::json::array();
  for (const BarLabel& label : bars.labels) {
    json["labels"].push_back(label.text.substr(0, 200));
    json["kinds"].push_back(static_cast<int>(label.kind));
  }
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.pop_back();  // the bars follow as plain text: a document of them would be large
  text += ",\"tracks\":[";
  for (const BarTrack& track : bars.tracks) {
    if (text.back() != '[') text += ',';
    text += '[';
    std::int64_t end = 0;
    for (const Bar& bar : track.bars) {
      fmt::format_to(std::back_inserter(text), "{}{},{},{}",
                     end == 0 && text.back() == '[' ? "" : ",", bar.start - end, bar.length,
                     bar.label);
      end = bar.start + bar.length;
    }
    text += ']';
  }
  return text + "]}";
}

}  // namespace

std::string draw_timeline(const Bars& bars, const Cluster& cluster) {
  if (bars.tracks.empty()) return {};
  const std::size_t height = track_height * bars.tracks.size();
  std::array<std::string, bar_kinds> paths;
  std::string names;
  for (std::size_t t = 0; t < bars.tracks.size(); ++t) {
    append_strokes(bars.tracks[t], t, bars, paths);
    names += html(cluster[bars.tracks[t].device].name, 24) + " " +
             track_name(bars.tracks[t].queue) +
             (bars.tracks[t].note.empty() ? "" : " " + bars.tracks[t].note) + "\n";
  }
  std::string out = "<div class=timeline><pre>" + names + "</pre>";
  out += fmt::format("<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=none height={}>", columns,
                     height, height);
  for (std::size_t k = 0; k < bar_kinds; ++k) {
    if (!paths[k].empty()) out += fmt::format("<path class=k{} d=\"{}\"/>", k, paths[k]);
  }
  out += fmt::format("</svg><script type=\"application/json\">{}</script></div>\n",
                     json_for_script(data_of(bars)));
  if (!bars.left_out.empty()) {
    out += fmt::format("<p class=key>shown: {}</p>\n", html(bars.left_out));
  }
  return out;
}

}  // namespace parsim::report
