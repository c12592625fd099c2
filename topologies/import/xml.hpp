// An XML file as a tree of tags with line numbers, and a reader whose errors name file, line and
// tag. The importers of foreign formats use it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace parsim::topologies {

/// One tag of a file. Unknown attributes are no error: the formats are not ours and grow.
struct Element {
  std::string tag;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<Element> children;
  std::int64_t line = 0;  ///< where it begins
};

/// Reads a whole file. Throws InputError with `file:line` for broken syntax, a second root, text
/// between tags, an attribute given twice, nesting beyond 64 levels.
[[nodiscard]] Element parse_xml(std::string_view text, const std::string& file);

/// A tag together with its file: asks for attributes and says where they stand.
class XmlTag {
 public:
  XmlTag(const Element& element, const std::string& file) : element_(&element), file_(&file) {}

  [[nodiscard]] const std::string& name() const { return element_->tag; }
  [[nodiscard]] const std::string& file() const { return *file_; }
  [[nodiscard]] std::int64_t line() const { return element_->line; }
  /// "topo.xml:12:gpu", "topo.xml:12:gpu.sm".
  [[nodiscard]] std::string where() const;
  [[nodiscard]] std::string where(std::string_view attribute) const;

  /// Null if absent.
  [[nodiscard]] const std::string* find(std::string_view attribute) const;
  /// Required.
  [[nodiscard]] const std::string& text(std::string_view attribute) const;
  [[nodiscard]] std::string text_or(std::string_view attribute, std::string_view fallback) const;
  /// A whole number of [least, most], decimal.
  [[nodiscard]] std::int64_t integer(std::string_view attribute, std::int64_t least,
                                     std::int64_t most) const;
  [[nodiscard]] std::int64_t integer_or(std::string_view attribute, std::int64_t fallback,
                                        std::int64_t least, std::int64_t most) const;

  /// All children. Throws InputError naming the first whose tag is none of `known`.
  [[nodiscard]] std::vector<XmlTag> children(std::initializer_list<std::string_view> known) const;

 private:
  const Element* element_;
  const std::string* file_;
};

}  // namespace parsim::topologies
