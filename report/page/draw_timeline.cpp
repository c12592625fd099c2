#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

#include "report/page/drawings.hpp"
#include "report/page/html.hpp"
#include "report/page/ranks.hpp"
#include "report/trace.hpp"

namespace parsim::report {

namespace {

constexpr int track_height = 14;

/// The paths of a picture with so many columns, by kind, and their strokes.
struct Picture {
  std::array<std::string, bar_kinds> paths;
  std::size_t strokes = 0;
};

Picture picture_of(const Bars& bars, std::size_t columns) {
  Picture picture;
  for (std::size_t row = 0; row < bars.tracks.size(); ++row) {
    const double y = (static_cast<double>(row) + 0.5) * track_height;
    const std::vector<std::uint8_t> kinds = columns_of(bars.tracks[row], bars, columns);
    for (std::size_t c = 0; c < columns;) {
      const std::size_t first = c;
      while (c < columns && kinds[c] == kinds[first]) ++c;
      if (kinds[first] == nothing) continue;
      picture.paths[kinds[first]] += fmt::format("M{} {}h{}", first, coordinate(y), c - first);
      ++picture.strokes;
    }
  }
  return picture;
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

std::string draw_timeline(const Bars& bars, const Cluster& cluster, const TimelineSize& size) {
  if (bars.tracks.empty()) return {};
  const std::size_t height = track_height * bars.tracks.size();
  std::string names;
  for (const BarTrack& track : bars.tracks) {
    names += track.name.empty()
                 ? html(cluster[track.device].name, 24) + " " + track_name(track.queue)
                 : html(track.name, 24);
    names += (track.note.empty() ? "" : " " + track.note) + "\n";
  }
  std::size_t columns = 600;
  Picture picture = picture_of(bars, columns);
  while (picture.strokes > size.strokes && columns > 75) {
    columns /= 2;
    picture = picture_of(bars, columns);
  }
  std::string out = "<div class=timeline><pre>" + names + "</pre>";
  out += fmt::format("<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=none height={}>", columns,
                     height, height);
  for (std::size_t k = 0; k < bar_kinds; ++k) {
    if (picture.paths[k].empty()) continue;
    out += fmt::format("<path class=k{} d=\"{}\"/>", k, picture.paths[k]);
  }
  out += "</svg>";
  if (size.bars > 0) {
    out += fmt::format("<script type=\"application/json\">{}</script>",
                       json_for_script(data_of(thinned(bars, size.bars))));
  } else {
    out += fmt::format("<p class=ends><span>0</span><span>{}</span></p>",
                       to_text(Seconds{static_cast<double>(bars.end) / 1e9}));
  }
  out += "</div>\n";
  if (!bars.left_out.empty()) {
    out += fmt::format("<p class=key>shown: {}</p>\n", html(bars.left_out));
  }
  return out;
}

}  // namespace parsim::report
