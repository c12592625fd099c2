// Timelines as JSON.
#include "core/json.hpp"
#include "core/json_support.hpp"

namespace parsim {

namespace json {

template <>
struct Fields<Timeline> {
  static void list(auto& visit, auto& timeline) {
    visit("spans", timeline.spans);
    visit("hop_bytes", timeline.hop_bytes);
    visit("spared_bytes", timeline.spared_bytes);
  }
};

}  // namespace json

namespace {

constexpr std::string_view timeline_format = "parsim-timeline";
constexpr std::int64_t timeline_version = 1;

}  // namespace

std::string to_json(const Timeline& timeline) {
  json::Writer out;
  out.open_object();
  json::put_heading(out, timeline_format, timeline_version);
  json::put_fields(out, timeline);
  out.close_object();
  return out.take();
}

Timeline timeline_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(timeline_format, timeline_version);
  Timeline timeline;
  json::get_fields(root, timeline, json::heading_keys);
  std::size_t next = 0;
  root["spans"].each([&](const json::Node& node) {
    const Span& span = timeline.spans[next++];
    if (span.end < span.start) node.refuse("ends before it starts", "start_s <= end_s");
  });
  return timeline;
}

}  // namespace parsim
