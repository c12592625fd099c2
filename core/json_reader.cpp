#include "core/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/errors.hpp"

namespace parsim::json {

namespace {

constexpr std::size_t deepest = 32;
constexpr std::size_t most_members = 64;

}  // namespace

std::string shown(std::string_view text, std::size_t most) {
  const auto continues = [&](std::size_t i) { return (text[i] & '\xC0') == '\x80'; };
  std::size_t length = std::min(text.size(), most);
  while (length > 0 && length < text.size() && continues(length)) --length;  // whole characters
  std::string out(text.substr(0, length));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  return length < text.size() ? out + "..." : out;
}

namespace {

/// The parser quotes what it read, which need not be UTF-8.
std::string ascii(std::string_view text) {
  std::string out = shown(text, 160);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < 0; }, '?');
  return out;
}

/// Counts lines while the parser reads, because it reports no positions.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  std::uint32_t* line = nullptr;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    if (*at == '\n') ++*line;
    ++at;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
};

std::string quoted_list(std::span<const std::string> words, std::string_view wrong) {
  return fmt::format("accepted: {}{}", join(words), did_you_mean(wrong, words));
}

}  // namespace

/// Takes the parser's events and lays the values out in the document's table.
struct Document::Builder {
  struct Frame {
    std::size_t first_pending;
    std::uint32_t key, line;  ///< of the container itself
    bool is_object;
  };

  Document& document;
  const std::string& text;
  std::unordered_map<std::string, std::uint32_t> text_index{};
  std::vector<Value> pending{};  ///< children of the containers that are still open
  std::vector<Frame> frames{};
  std::uint32_t key_of_next = 0, line_of_key = 1;
  std::uint32_t line = 1;  ///< of what was read last

  std::uint32_t intern(const std::string& word) {
    const auto [entry, fresh] =
        text_index.try_emplace(word, static_cast<std::uint32_t>(document.texts_.size()));
    if (fresh) document.texts_.push_back(word);
    return entry->second;
  }
  [[nodiscard]] std::uint32_t line_of_next() const {
    return !frames.empty() && frames.back().is_object ? line_of_key : line;
  }
  bool add(Kind kind, std::int64_t content) {
    pending.push_back({kind, key_of_next, line_of_next(), 0, content});
    return true;
  }
  [[noreturn]] void refuse(std::size_t offset, std::string_view found,
                           std::string_view accepted) const {
    const std::string_view before = std::string_view(text).substr(0, offset);
    const auto at_line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0: the first line
    throw InputError(
        fmt::format("{}:{}:{}", document.where_, at_line, before.size() - line_begin + 1), found,
        accepted);
  }
  bool open(bool is_object) {
    if (frames.size() == deepest) {
      throw InputError(fmt::format("{}:{}", document.where_, line),
                       fmt::format("nested deeper than {} levels", deepest));
    }
    frames.push_back({pending.size(), key_of_next, line_of_next(), is_object});
    return true;
  }
  bool close(Kind kind) {
    const Frame frame = frames.back();
    frames.pop_back();
    const auto first = pending.begin() + static_cast<std::ptrdiff_t>(frame.first_pending);
    const auto at = static_cast<std::int64_t>(document.values_.size());
    const auto count = static_cast<std::uint32_t>(pending.end() - first);
    document.values_.insert(document.values_.end(), first, pending.end());
    pending.erase(first, pending.end());
    pending.push_back({kind, frame.key, frame.line, count, at});
    return true;
  }

  // The parser calls these; their names and types are nlohmann's SAX interface.
  bool null() { return add(Kind::null, 0); }
  bool boolean(bool value) { return add(Kind::boolean, value ? 1 : 0); }
  bool number_integer(std::int64_t value) { return add(Kind::integer, value); }
  bool number_unsigned(std::uint64_t value) {
    if (std::in_range<std::int64_t>(value)) {
      return add(Kind::integer, static_cast<std::int64_t>(value));
    }
    return number_float(static_cast<double>(value), {});
  }
  bool number_float(double value, const std::string&) {
    return add(Kind::number, std::bit_cast<std::int64_t>(value));
  }
  bool string(const std::string& value) { return add(Kind::text, intern(value)); }
  bool binary(const std::vector<std::uint8_t>&) { return false; }  // not in JSON text
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool end_object() { return close(Kind::object); }
  bool end_array() { return close(Kind::array); }
  bool key(const std::string& name) {
    key_of_next = intern(name);
    line_of_key = line;
    const std::size_t first = frames.back().first_pending;
    for (std::size_t i = first; i < std::min(pending.size(), first + most_members); ++i) {
      if (pending[i].key != key_of_next) continue;
      throw InputError(fmt::format("{}:{}", document.where_, line),
                       fmt::format("key '{}' twice in an object", shown(name)), "every key once");
    }
    if (document.origin_ == Origin::parsim && pending.size() - first == most_members) {
      throw InputError(document.where_,
                       fmt::format("an object with more than {} members", most_members));
    }
    return true;
  }
  bool parse_error(std::size_t offset, const std::string&, const nlohmann::json::exception& error) {
    // "[json.exception.…] parse error at line 1, column 5: syntax error …": the location is ours.
    std::string_view message = error.what();
    for (const std::string_view end_of_prefix : {"] ", ": "}) {
      const std::size_t at = message.find(end_of_prefix);
      if (at != std::string_view::npos) message.remove_prefix(at + end_of_prefix.size());
    }
    refuse(offset == 0 ? 0 : offset - 1, fmt::format("not JSON: {}", ascii(message)), {});
  }
};

Document::Document(const std::string& text, std::string where, Origin origin)
    : where_(std::move(where)), origin_(origin) {
  Builder builder{*this, text};
  const CountingIterator begin{text.data(), &builder.line};
  const CountingIterator end{text.data() + text.size(), &builder.line};
  const bool parsed = nlohmann::json::sax_parse(begin, end, &builder);
  ensure(parsed && builder.pending.size() == 1, "the parser ends with one value or throws");
  values_.push_back(builder.pending[0]);
}

Node Document::root() const { return {*this, values_.size() - 1}; }

Node Document::root(std::string_view format, std::int64_t version) const {
  const Node root = this->root();
  const std::string& found = root["format"].text();
  if (found != format) root["format"].refuse(fmt::format("accepted: '{}'", format));
  const Node number = root["version"];
  if (number.integer() != version) number.refuse(fmt::format("accepted: version {}", version));
  return root;
}

std::int64_t Node::integer(Limits limits) const {
  const bool fits = value().kind == Kind::integer && value().content >= limits.least &&
                    value().content <= limits.most;
  if (fits) return value().content;
  if (limits.most < limits.least) refuse("accepted: nothing, there is none to choose from");
  refuse(fmt::format("accepted: a whole number from {} to {}", limits.least, limits.most));
}

double Node::number(double least) const {
  const bool whole = value().kind == Kind::integer;
  if (!whole && value().kind != Kind::number) refuse("accepted: a number");
  const double number =
      whole ? static_cast<double>(value().content) : std::bit_cast<double>(value().content);
  if (!std::isfinite(number) || number < least) {
    refuse(fmt::format("accepted: a number of at least {}", least));
  }
  return number;
}

bool Node::boolean() const {
  if (value().kind != Kind::boolean) refuse("accepted: true or false");
  return value().content != 0;
}

const std::string& Node::text() const {
  if (value().kind != Kind::text) refuse("accepted: a text");
  return document_->texts_[static_cast<std::size_t>(value().content)];
}

std::size_t Node::word(std::span<const std::string_view> words) const {
  const std::string& found = text();
  const auto at = std::find(words.begin(), words.end(), found);
  if (at != words.end()) return static_cast<std::size_t>(at - words.begin());
  refuse(quoted_list(std::vector<std::string>(words.begin(), words.end()), found));
}

std::size_t Node::size() const {
  if (value().kind != Kind::array) refuse("accepted: an array");
  return value().count;
}

Node Node::item(std::size_t position, std::size_t expected) const {
  if (size() != expected) refuse(fmt::format("accepted: {} items", expected));
  return child(position);
}

void Node::only(std::span<const std::string_view> keys) const {
  if (value().kind != Kind::object) refuse("accepted: an object");
  for (std::size_t i = 0; i < value().count; ++i) {
    const std::string& key = document_->texts_[child(i).value().key];
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    refuse(fmt::format("unknown key '{}'", shown(key)),
           quoted_list(std::vector<std::string>(keys.begin(), keys.end()), key));
  }
}

std::optional<Node> Node::find(std::string_view key) const {
  if (value().kind != Kind::object) refuse("accepted: an object");
  for (std::size_t i = 0; i < value().count; ++i) {
    if (document_->texts_[child(i).value().key] == key) return child(i);
  }
  return std::nullopt;
}

Node Node::operator[](std::string_view key) const {
  const std::optional<Node> member = find(key);
  if (!member) refuse(fmt::format("key '{}' is missing", key), {});
  return *member;
}

void Node::refuse(std::string_view found, std::string_view accepted) const {
  throw InputError(location(), found, accepted);
}

void Node::refuse(std::string_view accepted) const { refuse(describe(), accepted); }

std::string Node::describe() const {
  switch (value().kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return value().content != 0 ? "true" : "false";
    case Kind::integer:
      return fmt::format("{}", value().content);
    case Kind::number:  // with a point: it is no integer
      return fmt::format("{:#}", std::bit_cast<double>(value().content));
    case Kind::text:
      return fmt::format("'{}'", shown(text()));
    case Kind::array:
      return fmt::format("an array of {} items", value().count);
    case Kind::object:
      return fmt::format("an object of {} members", value().count);
  }
  throw BrokenInvariant("a JSON value outside its enum");
}

std::string Node::location() const {
  // Found by search, so that reading need not carry the path along.
  std::string path;
  ensure(path_from(document_->root(), path), "a node lies in its document");
  if (path.empty()) return document_->where_;
  if (document_->origin_ == Origin::parsim) return fmt::format("{}:{}", document_->where_, path);
  return fmt::format("{}:{}:{}", document_->where_, line(), path.substr(1));
}

bool Node::path_from(const Node& from, std::string& path) const {
  if (from.index_ == index_) return true;
  const Kind kind = from.value().kind;
  if (kind != Kind::array && kind != Kind::object) return false;
  for (std::size_t i = 0; i < from.value().count; ++i) {
    const Node child = from.child(i);
    const std::size_t length = path.size();
    path +=
        kind == Kind::array ? fmt::format("/{}", i) : "/" + document_->texts_[child.value().key];
    if (path_from(child, path)) return true;
    path.resize(length);
  }
  return false;
}

}  // namespace parsim::json
