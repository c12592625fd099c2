#include "validation/network_tokens.hpp"

#include <array>
#include <cctype>
#include <utility>

#include "core/text.hpp"
#include "experiment/trainer_words.hpp"

namespace parsim::validation {

namespace {

bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

/// Gb/s of a generation of InfiniBand, with four lanes; 0 for another word. "HDR100" names its
/// rate.
double rate_of_generation(std::string_view lower) {
  constexpr std::array<std::pair<std::string_view, double>, 8> generations{{{"xdr", 800},
                                                                            {"ndr", 400},
                                                                            {"hdr", 200},
                                                                            {"edr", 100},
                                                                            {"fdr", 56},
                                                                            {"qdr", 40},
                                                                            {"ddr", 20},
                                                                            {"sdr", 10}}};
  for (const auto& [name, rate] : generations) {
    if (!lower.starts_with(name)) continue;
    if (lower.size() == name.size()) return rate;
    return to_number<double>(lower.substr(name.size())).value_or(0);
  }
  return 0;
}

/// Tokens of a part of the text; parentheses are blanks.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}
  std::vector<NetworkToken> read() {
    while (at_ < text_.size()) {
      if (digit(next())) {
        number();
      } else if (letter(next())) {
        word();
      } else {
        if (next() == '/') tokens_.push_back({TokenKind::slash, 0, "/"});
        ++at_;
      }
    }
    return tokens_;
  }

 private:
  [[nodiscard]] char next(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : ' ';
  }

  /// "8x", "400 Gb/s", "50 GB/s", "100GbE", "1.6 Tb/s"
  void number() {
    const std::size_t begin = at_;
    while (digit(next()) || (next() == '.' && digit(next(1)))) ++at_;
    std::string shown(text_.substr(begin, at_ - begin));
    const double value = to_number<double>(shown).value_or(0);
    while (at_ < text_.size() && next() == ' ') ++at_;
    if ((next() == 'x' || next() == 'X') &&
        !experiment::lower_case(std::string(text_.substr(at_))).starts_with("xdr")) {
      shown += next();
      ++at_;
      std::size_t then = 0;
      while (at_ + then < text_.size() && next(then) == ' ') ++then;
      // "4X NDR" is one port of four lanes.
      const bool lanes = shown.back() == 'X' && !digit(next(then));
      tokens_.push_back({lanes ? TokenKind::number : TokenKind::times, lanes ? -1 : value, shown});
      return;
    }
    const char unit = static_cast<char>(std::toupper(static_cast<unsigned char>(next())));
    const char of = next(1);
    if ((unit != 'G' && unit != 'T') || (of != 'b' && of != 'B')) {
      tokens_.push_back({TokenKind::number, value, shown});
      return;
    }
    const std::size_t from = at_;
    while (letter(next()) || (next() == '/' && next(1) == 's')) ++at_;
    const std::string_view name = text_.substr(from, at_ - from);
    const double rate = unit == 'T' ? 1000 * value : value;
    const bool bytes = of == 'B' && name.substr(1, 2) != "BE";
    shown += ' ' + std::string(name);
    const bool of_time = name.find("/s") != name.npos || name.find("ps") != name.npos;
    if (bytes && !of_time) {  // of memory
      tokens_.push_back({TokenKind::number, -1, shown});
    } else {
      tokens_.push_back(
          {bytes ? TokenKind::in_bytes : TokenKind::in_bits, bytes ? 8 * rate : rate, shown});
    }
  }

  void word() {
    const std::size_t begin = at_;
    while (letter(next()) || digit(next()) || next() == '_' ||
           ((next() == '-' || next() == '.') && (letter(next(1)) || digit(next(1))))) {
      ++at_;
    }
    const std::string lower = experiment::lower_case(std::string(text_.substr(begin, at_ - begin)));
    const double rate = rate_of_generation(lower);
    tokens_.push_back({rate > 0 ? TokenKind::generation : TokenKind::word, rate, lower});
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<NetworkToken> tokens_;
};

}  // namespace

std::vector<std::vector<NetworkToken>> network_tokens(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    if (text.substr(at, 2) == "\u00d7") {  // a multiplication sign
      c = 'x';
      ++at;
    }
    if (c == '*') c = 'x';
    if (c == '(') ++depth;
    if (c == ')' && depth > 0) --depth;
    if (depth == 0 && (c == '+' || c == ',' || c == ';')) {
      parts.emplace_back();
    } else {
      parts.back() += c == '(' || c == ')' ? ' ' : c;
    }
  }
  std::vector<std::vector<NetworkToken>> tokens;
  tokens.reserve(parts.size());
  for (const std::string& part : parts) tokens.push_back(Tokens(part).read());
  return tokens;
}

}  // namespace parsim::validation
