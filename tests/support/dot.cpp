#include "tests/support/dot.hpp"

#include <cctype>

namespace parsim::testing {

namespace {

/// Words, quoted strings and single characters. "->" and "--" are words.
class DotReader {
 public:
  explicit DotReader(std::string_view text) : text_(text) { next(); }

  DotText read() {
    if (word_ != "graph" && word_ != "digraph") return fail("no graph");
    next();
    if (!quoted_) return fail("no name");
    result_.name = word_;
    next();
    block();
    if (result_.error.empty() && !word_.empty()) return fail("text behind the graph");
    return result_;
  }

 private:
  DotText& fail(const std::string& what) {
    if (result_.error.empty()) result_.error = what + " before '" + word_ + "'";
    word_.clear();
    at_ = text_.size();
    return result_;
  }
  void next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    word_.clear();
    quoted_ = false;
    if (at_ == text_.size()) return;
    if (text_[at_] == '"') {
      quoted_ = true;
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
        if (text_[at_] == '\\') ++at_;
        if (at_ == text_.size() || text_[at_] == '\n') break;
        word_ += text_[at_];
      }
      if (at_ == text_.size() || text_[at_] != '"') {
        fail("no end of a string");
        return;
      }
      ++at_;
      return;
    }
    const auto in_word = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '>';
    };
    if (!in_word(text_[at_])) {
      word_ = text_[at_++];
      return;
    }
    while (at_ < text_.size() && in_word(text_[at_])) word_ += text_[at_++];
  }
  bool expect(std::string_view what) {
    if (word_ != what || quoted_) {
      fail("no " + std::string(what));
      return false;
    }
    next();
    return true;
  }
  /// { statements }
  void block() {
    if (!expect("{")) return;
    while (word_ != "}" || quoted_) {
      if (word_.empty() && !quoted_) {
        fail("no end of a block");
        return;
      }
      statement();
      if (!result_.error.empty()) return;
    }
    next();
  }
  void statement() {
    const std::string first = word_;
    if (quoted_) {
      fail("a string as a statement");
      return;
    }
    next();
    if (first == "subgraph") {
      ++result_.subgraphs;
      next();
      block();
      return;
    }
    if (word_ == "=") {
      next();
      result_.labels.push_back(word_);
      next();
    } else {
      const bool is_edge = word_ == "->" || word_ == "--";
      if (is_edge) {
        next();
        next();
      }
      if (first != "node" && first != "edge") ++(is_edge ? result_.edges : result_.boxes);
      if (word_ == "[") attributes();
    }
    expect(";");
  }
  void attributes() {
    next();
    while (word_ != "]") {
      const std::string key = word_;
      next();
      if (!expect("=")) return;
      if (key == "label") result_.labels.push_back(word_);
      next();
      if (word_ == ",") next();
      if (word_.empty() && !quoted_) {
        fail("no end of the attributes");
        return;
      }
    }
    next();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string word_;
  bool quoted_ = false;
  DotText result_;
};

}  // namespace

DotText parse_dot(std::string_view text) { return DotReader(text).read(); }

}  // namespace parsim::testing
