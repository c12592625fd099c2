// The network ports in a text such as "NVLink4 + 8x HDR 200 Gb/s (SR-IOV)".
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "experiment/trainer_words.hpp"
#include "validation/interconnect_column.hpp"

namespace parsim::validation {

namespace {

bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

/// A part of the text between '+', ',' and ';', without what is in parentheses, and that.
struct TextPart {
  std::string outside, within;
};

std::vector<TextPart> text_parts(std::string_view text) {
  std::vector<TextPart> parts(1);
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    if (text.substr(at, 2) == "\u00d7") {  // a multiplication sign
      c = 'x';
      ++at;
    }
    if (c == '*') c = 'x';
    if (c == ')' && depth > 0) --depth;
    const bool ends = depth == 0 && (c == '+' || c == ',' || c == ';');
    if (ends) {
      parts.emplace_back();
    } else {
      (depth > 0 ? parts.back().within : parts.back().outside) += c == ')' ? ' ' : c;
    }
    if (c == '(') ++depth;
  }
  return parts;
}

/// Gb/s of a generation of InfiniBand, with four lanes; 0 for another word. "HDR100" names its
/// rate.
double rate_of_generation(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, double>, 8> generations{{{"xdr", 800},
                                                                            {"ndr", 400},
                                                                            {"hdr", 200},
                                                                            {"edr", 100},
                                                                            {"fdr", 56},
                                                                            {"qdr", 40},
                                                                            {"ddr", 20},
                                                                            {"sdr", 10}}};
  const std::string lower = experiment::lower_case(std::string(word));
  for (const auto& [name, rate] : generations) {
    if (!lower.starts_with(name)) continue;
    if (lower.size() == name.size()) return rate;
    return to_number<double>(std::string_view(lower).substr(name.size())).value_or(0);
  }
  return 0;
}

/// What a part of the text says, word by word.
struct Words {
  std::vector<double> counts, in_bits, in_bytes, others;  ///< rates in Gb/s
  double generation = 0;
  bool each_gpu = false;
};

class PortReader {
 public:
  explicit PortReader(std::string_view text) : text_(text) {}
  Words read() {
    while (at_ < text_.size()) {
      if (digit(text_[at_])) {
        number();
      } else if (letter(text_[at_])) {
        word();
      } else {
        ++at_;
      }
    }
    return words_;
  }

 private:
  [[nodiscard]] char next(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : ' ';
  }
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  double digits() {
    const std::size_t begin = at_;
    while (digit(next()) || (next() == '.' && digit(next(1)))) ++at_;
    return to_number<double>(text_.substr(begin, at_ - begin)).value_or(0);
  }

  /// "8x", "400 Gb/s", "50 GB/s", "100GbE", "1.6 Tb/s"
  void number() {
    const bool times = std::exchange(times_, false);
    const double value = digits();
    skip_blanks();
    const char unit = static_cast<char>(std::toupper(static_cast<unsigned char>(next())));
    if (unit == 'X') {
      words_.counts.push_back(value);
      ++at_;
      return;
    }
    const char of = next(1);
    if ((unit != 'G' && unit != 'T') || (of != 'b' && of != 'B')) {
      (times ? words_.counts : words_.others).push_back(value);
      return;
    }
    const double rate = unit == 'T' ? 1000 * value : value;
    const bool bytes = of == 'B' && next(2) != 'E';
    bytes ? words_.in_bytes.push_back(8 * rate) : words_.in_bits.push_back(rate);
    while (letter(next()) || (next() == '/' && next(1) == 's')) ++at_;
    each_gpu();
  }

  void word() {
    const std::size_t begin = at_;
    while (letter(next()) || digit(next()) || next() == '-' || (next() == '.' && digit(next(1)))) {
      ++at_;
    }
    const std::string_view word = text_.substr(begin, at_ - begin);
    times_ = word == "x" || word == "X";
    if (const double rate = rate_of_generation(word); rate > 0) words_.generation = rate;
    if (word.front() == 'x' && word.size() > 1) {
      if (const auto count = to_number<double>(word.substr(1))) words_.counts.push_back(*count);
    }
    each_gpu();
  }

  /// "per GPU" or "/GPU" from here on.
  void each_gpu() {
    std::string_view rest = text_.substr(at_);
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    const std::string lower = experiment::lower_case(std::string(rest.substr(0, 7)));
    words_.each_gpu = words_.each_gpu || lower.starts_with("per gpu") || lower.starts_with("/gpu");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool times_ = false;  ///< the last word
  Words words_;
};

bool is_count(double value) { return value >= 1 && value <= 1e6 && value == std::floor(value); }

std::optional<NetworkPorts> ports_of(const Words& words, double rate) {
  if (words.counts.size() > 1 || !words.others.empty() || rate <= 0) return std::nullopt;
  constexpr double fastest = 400;  // of one port, unless the text says so
  const double most = words.generation > 0 ? words.generation : fastest;
  double count = words.counts.empty() ? 1 : words.counts.front();
  if (words.counts.empty() && !words.each_gpu && rate > most) {  // of all ports together
    count = words.generation > 0 ? rate / most : 8;
    rate /= count;
  }
  if (!is_count(count)) return std::nullopt;
  return NetworkPorts{static_cast<std::int64_t>(count), rate, words.each_gpu};
}

}  // namespace

std::optional<NetworkPorts> network_ports(std::string_view interconnect) {
  for (const TextPart& part : text_parts(interconnect)) {
    const bool inside = names(part.outside, "nvlink") || names(part.outside, "nvswitch") ||
                        names(part.outside, "pcie") || names(part.outside, "infinityfabric") ||
                        names(part.outside, "xgmi");
    Words words = PortReader(part.outside).read();
    if (inside) {
      if (words.in_bits.empty()) continue;
      words.in_bytes.clear();
      words.others.clear();
    }
    if (words.in_bits.empty() && words.in_bytes.empty() && !inside) {  // "FDR (56 Gb/s)"
      const Words more = PortReader(part.within).read();
      words.in_bits = more.in_bits;
      words.in_bytes = more.in_bytes;
    }
    const std::vector<double>& rates = words.in_bits.empty() ? words.in_bytes : words.in_bits;
    if (rates.empty() && words.generation == 0) continue;
    return ports_of(words, rates.empty() ? words.generation : rates.front());
  }
  return std::nullopt;
}

}  // namespace parsim::validation
