// JSON to the tree of document.hpp, with line numbers; the only file here that sees nlohmann-json.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/errors.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

namespace {

/// Counts lines while the parser reads, because it reports no positions. It reads at most one
/// character beyond a number and none beyond a key.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  std::int64_t* line = nullptr;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    if (*at == '\n') ++*line;
    ++at;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at == b.at;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) {
    return a.at != b.at;
  }
};

class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  std::int64_t line = 1;
  Value root;

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_float(number_float_t, const string_t&) override { return other("a bare number"); }
  bool binary(binary_t&) override { return other("binary data"); }
  bool number_integer(number_integer_t number) override {
    Value value;
    value.kind = Value::Kind::integer;
    value.integer = number;
    return add(std::move(value));
  }
  bool number_unsigned(number_unsigned_t number) override {
    if (number > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return other("a very large number");
    }
    return number_integer(static_cast<number_integer_t>(number));
  }
  bool string(string_t& text) override {
    Value value;
    value.kind = Value::Kind::text;
    value.text = text;
    return add(std::move(value));
  }
  bool start_object(std::size_t) override { return open(Value::Kind::table); }
  bool start_array(std::size_t) override { return open(Value::Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Open& table = open_.back();
    if (!table.names.insert(name).second) {
      throw InputError(fmt::format("{}:{}:{}", file_, line, name),
                       fmt::format("the key '{}' occurs twice", name), "accepted: each key once");
    }
    table.value.keys.push_back(name);
    table.key_line = line;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const std::string_view before = text_.substr(0, position == 0 ? 0 : position - 1);
    const auto row = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong"
    const std::string_view what = error.what();
    const std::size_t colon = what.find(": ");
    throw InputError(fmt::format("{}:{}:{}", file_, row, column),
                     what.substr(colon == std::string_view::npos ? 0 : colon + 2),
                     "accepted: JSON");
  }

 private:
  struct Open {
    Value value;
    std::unordered_set<std::string> names;  ///< asked only
    std::int64_t key_line = 0;
  };

  bool other(std::string_view what) {
    Value value;
    value.text = what;
    return add(std::move(value));
  }
  bool add(Value value) {
    if (open_.empty()) {
      value.line = std::max<std::int64_t>(value.line, 1);
      root = std::move(value);
      return true;
    }
    Open& parent = open_.back();
    if (parent.value.kind == Value::Kind::table) {
      value.line = parent.key_line;
    } else if (value.line == 0) {
      value.line = line;
    }
    parent.value.items.push_back(std::move(value));
    return true;
  }
  bool open(Value::Kind kind) {
    // Values are destroyed recursively, so that depth has to be bounded.
    constexpr std::size_t deepest = 64;
    if (open_.size() == deepest) {
      throw InputError(fmt::format("{}:{}", file_, line),
                       fmt::format("more than {} levels of nesting", deepest),
                       "accepted: a cluster");
    }
    open_.emplace_back();
    open_.back().value.kind = kind;
    open_.back().value.line = line;
    return true;
  }
  bool close() {
    Value value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  std::string_view text_;
  const std::string& file_;
  std::vector<Open> open_;
};

}  // namespace

Value parse_json(std::string_view text, const std::string& file) {
  TreeBuilder builder(text, file);
  const CountingIterator begin{text.data(), &builder.line};
  const CountingIterator end{text.data() + text.size(), &builder.line};
  nlohmann::json::sax_parse(begin, end, &builder);
  return std::move(builder.root);
}

}  // namespace parsim::topologies
