// The only file of topologies/ that sees pugixml.
#include "topologies/import/xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <pugixml.hpp>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

namespace {

// Trees are walked recursively, so that depth has to be bounded.
constexpr int deepest_tag = 64;

class XmlReader {
 public:
  XmlReader(std::string_view text, const std::string& file) : file_(file) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') ends_.push_back(static_cast<std::ptrdiff_t>(i));
    }
  }

  [[nodiscard]] std::int64_t line_of(std::ptrdiff_t offset) const {
    return std::lower_bound(ends_.begin(), ends_.end(), offset) - ends_.begin() + 1;
  }
  [[nodiscard]] std::string location(std::ptrdiff_t offset) const {
    return fmt::format("{}:{}", file_, line_of(offset));
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by deepest_tag
  Element read(const pugi::xml_node& node, int depth) const {
    if (depth > deepest_tag) {
      throw InputError(location(node.offset_debug()),
                       fmt::format("more than {} levels of nesting", deepest_tag),
                       "accepted: a cluster");
    }
    Element element;
    element.tag = node.name();
    element.line = line_of(node.offset_debug());
    for (const pugi::xml_attribute& attribute : node.attributes()) {
      for (const auto& [name, value] : element.attributes) {
        if (name != attribute.name()) continue;
        throw InputError(fmt::format("{}:{}", location(node.offset_debug()), element.tag),
                         fmt::format("the attribute '{}' occurs twice", name),
                         "accepted: each attribute once");
      }
      element.attributes.emplace_back(attribute.name(), attribute.value());
    }
    for (const pugi::xml_node& child : node.children()) {
      if (child.type() == pugi::node_element) {
        element.children.push_back(read(child, depth + 1));
      } else {
        throw InputError(location(child.offset_debug()),
                         fmt::format("the text '{:.40}' inside <{}>", child.value(), element.tag),
                         "accepted: tags only");
      }
    }
    return element;
  }

 private:
  const std::string& file_;
  std::vector<std::ptrdiff_t> ends_;  ///< of lines
};

}  // namespace

Element parse_xml(std::string_view text, const std::string& file) {
  const XmlReader reader(text, file);
  pugi::xml_document document;
  const pugi::xml_parse_result result =
      document.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!result) {
    throw InputError(reader.location(result.offset), result.description(),
                     "accepted: well-formed XML");
  }
  const pugi::xml_node root = document.document_element();
  if (const pugi::xml_node second = root.next_sibling()) {
    throw InputError(reader.location(second.offset_debug()),
                     fmt::format("<{}> after the end of <{}>", second.name(), root.name()),
                     "accepted: one root tag");
  }
  return reader.read(root, 1);
}

std::string XmlTag::where() const {
  return fmt::format("{}:{}:{}", *file_, element_->line, element_->tag);
}

std::string XmlTag::where(std::string_view attribute) const {
  return fmt::format("{}.{}", where(), attribute);
}

const std::string* XmlTag::find(std::string_view attribute) const {
  for (const auto& [name, value] : element_->attributes) {
    if (name == attribute) return &value;
  }
  return nullptr;
}

const std::string& XmlTag::text(std::string_view attribute) const {
  if (const std::string* value = find(attribute)) return *value;
  std::vector<std::string> names;
  for (const auto& [name, value] : element_->attributes) names.push_back(name);
  throw InputError(where(attribute), fmt::format("<{}> has no '{}'", element_->tag, attribute),
                   names.empty() ? "" : fmt::format("its attributes: {}", join(names)));
}

std::string XmlTag::text_or(std::string_view attribute, std::string_view fallback) const {
  const std::string* value = find(attribute);
  return value == nullptr ? std::string(fallback) : *value;
}

std::int64_t XmlTag::integer(std::string_view attribute, std::int64_t least,
                             std::int64_t most) const {
  const std::string& value = text(attribute);
  const auto number = to_number<std::int64_t>(value);
  if (number && *number >= least && *number <= most) return *number;
  throw InputError(where(attribute), fmt::format("'{}'", value),
                   fmt::format("accepted: a whole number from {} to {}", least, most));
}

std::int64_t XmlTag::integer_or(std::string_view attribute, std::int64_t fallback,
                                std::int64_t least, std::int64_t most) const {
  return find(attribute) == nullptr ? fallback : integer(attribute, least, most);
}

std::vector<XmlTag> XmlTag::children(std::initializer_list<std::string_view> known) const {
  std::vector<XmlTag> found;
  for (const Element& child : element_->children) {
    if (std::find(known.begin(), known.end(), child.tag) == known.end()) {
      const std::vector<std::string> names(known.begin(), known.end());
      throw InputError(fmt::format("{}:{}:{}", *file_, child.line, child.tag),
                       fmt::format("<{}> inside <{}>", child.tag, element_->tag),
                       names.empty() ? fmt::format("accepted: no tags inside <{}>", element_->tag)
                                     : fmt::format("accepted: {}{}", join(names),
                                                   did_you_mean(child.tag, names)));
    }
    found.emplace_back(child, *file_);
  }
  return found;
}

}  // namespace parsim::topologies
