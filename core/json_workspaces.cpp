// Workspaces as JSON.
#include "core/json_support.hpp"
#include "core/workspaces.hpp"

namespace parsim {

namespace json {

template <>
struct Fields<Workspace> {
  static void list(auto& visit, auto& workspace) {
    visit("known", workspace.known);
    visit("bytes", workspace.bytes.value, Limits{0, std::int64_t{1} << 50});
    visit("shapes", workspace.shapes);
    visit("unplanned", workspace.unplanned);
  }
};
template <>
struct Fields<Workspaces> {
  static void list(auto& visit, auto& workspaces) {
    visit("library", workspaces.library);
    visit("rows", workspaces.rows);
  }
};

}  // namespace json

namespace {

constexpr std::string_view workspaces_format = "parsim-workspaces";
constexpr std::int64_t workspaces_version = 1;

}  // namespace

std::string to_json(const Workspaces& workspaces) {
  json::Writer out;
  out.open_object();
  json::put_heading(out, workspaces_format, workspaces_version);
  json::put_fields(out, workspaces);
  out.close_object();
  return out.take();
}

Workspaces workspaces_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(workspaces_format, workspaces_version);
  Workspaces workspaces;
  json::get_fields(root, workspaces, json::heading_keys);
  return workspaces;
}

}  // namespace parsim
