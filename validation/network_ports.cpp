// The network ports in a text such as "NVLink4 + 8x HDR 200 Gb/s (SR-IOV)". A number, or a word
// that may count, without a known meaning makes the text unreadable: dropping it would give
// another network.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "validation/interconnect_column.hpp"
#include "validation/network_tokens.hpp"

namespace parsim::validation {

namespace {

template <std::size_t n>
bool is_any(std::string_view word, const std::array<std::string_view, n>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr std::array<std::string_view, 11> plural_ports{
    "ports", "nics",    "hcas",    "rails",      "adapters", "adaptors",
    "cards", "uplinks", "devices", "interfaces", "links"};
constexpr std::array<std::string_view, 10> single_port{
    "port", "nic", "hca", "rail", "adapter", "adaptor", "card", "uplink", "link", "device"};
constexpr std::array<std::string_view, 12> machines{"node",     "nodes",   "machine", "machines",
                                                    "server",   "servers", "host",    "hosts",
                                                    "instance", "system",  "box",     "vm"};
constexpr std::array<std::string_view, 5> gpu_words{"gpu", "gpus", "accelerator", "accelerators",
                                                    "gcd"};
constexpr std::array<std::string_view, 11> networks{"infiniband", "ib",      "ethernet",  "roce",
                                                    "rocev2",     "efa",     "slingshot", "opa",
                                                    "omnipath",   "network", "rdma"};
constexpr std::array<std::string_view, 6> totals{"total",    "totals",   "aggregate",
                                                 "combined", "together", "altogether"};
constexpr std::array<std::string_view, 15> vague{
    "multi",  "multiple", "several", "many",  "pair",          "pairs",          "both", "half",
    "double", "doubled",  "bonded",  "bidir", "bidirectional", "bi-directional", "times"};
constexpr std::array<std::string_view, 7> sources{"docs", "documentation", "spec",   "specs",
                                                  "data", "datasheet",     "configs"};
/// Products and protocols, with the number of their version.
constexpr std::array<std::string_view, 18> products{
    "connectx", "cx",   "bluefield", "bf",   "slingshot", "rocev",  "roce", "quantum", "spectrum",
    "qsfp",     "thor", "ec",        "tcpx", "ipv",       "ethern", "efav", "e",       "omnipath"};

std::optional<double> count_of_word(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, double>, 16> counts{{{"one", 1},
                                                                        {"single", 1},
                                                                        {"two", 2},
                                                                        {"dual", 2},
                                                                        {"twin", 2},
                                                                        {"three", 3},
                                                                        {"triple", 3},
                                                                        {"four", 4},
                                                                        {"quad", 4},
                                                                        {"five", 5},
                                                                        {"six", 6},
                                                                        {"seven", 7},
                                                                        {"eight", 8},
                                                                        {"octal", 8},
                                                                        {"sixteen", 16},
                                                                        {"twelve", 12}}};
  for (const auto& [name, count] : counts) {
    if (word == name) return count;
  }
  return std::nullopt;
}

/// Of links inside a machine: "nvlink4", "pcie", "gen4".
bool is_inside(std::string_view word) {
  constexpr std::array<std::string_view, 5> heads{"nvlink", "nvswitch", "pcie", "xgmi", "infinity"};
  if (word == "gen" || word == "fabric" || word == "infinityfabric") return true;
  if (word.starts_with("gen") && to_number<int>(word.substr(3))) return true;
  return std::any_of(heads.begin(), heads.end(), [&](auto head) { return word.starts_with(head); });
}

bool is_inside(const NetworkToken& token) {
  return token.kind == TokenKind::word && is_inside(token.text);
}

/// Whether a word with digits names something by them: "connectx-7", "p2.8xlarge".
bool is_product(std::string_view word) {
  if (word.find("large") != word.npos || word.find("metal") != word.npos) return true;
  const std::string_view letters = word.substr(0, word.find_first_of("0123456789-"));
  return is_any(letters, products);
}

/// Whether the part speaks of a network, not of links inside a machine alone.
bool names_network(const std::vector<NetworkToken>& part) {
  const bool inside = std::any_of(part.begin(), part.end(),
                                  [](const NetworkToken& token) { return is_inside(token); });
  return !inside || std::any_of(part.begin(), part.end(), [](const NetworkToken& token) {
    if (token.kind == TokenKind::in_bits || token.kind == TokenKind::generation) return true;
    return token.kind == TokenKind::word &&
           (is_any(token.text, networks) || is_any(token.text, plural_ports) ||
            is_any(token.text, single_port)) &&
           token.text != "link" && token.text != "links";
  });
}

class PortReader {
 public:
  ReadPorts read(std::string_view text) {
    for (std::vector<NetworkToken>& part : network_tokens(text)) {
      if (!names_network(part)) continue;
      part_ = std::move(part);
      for (at_ = 0; at_ < part_.size();) take();
    }
    if (!unread_.empty()) return {std::nullopt, unread_};
    const std::optional<NetworkPorts> ports = all();
    return {ports, unread_};
  }

 private:
  [[nodiscard]] const NetworkToken& token(std::size_t ahead = 0) const {
    static const NetworkToken end;
    return at_ + ahead < part_.size() ? part_[at_ + ahead] : end;
  }
  [[nodiscard]] bool is_word(std::size_t ahead, const auto& words) const {
    return token(ahead).kind == TokenKind::word && is_any(token(ahead).text, words);
  }
  [[nodiscard]] bool is_port(std::size_t ahead) const {
    return is_word(ahead, plural_ports) || is_word(ahead, single_port);
  }
  [[nodiscard]] bool is_rate(std::size_t ahead) const {
    const TokenKind kind = token(ahead).kind;
    return kind == TokenKind::in_bits || kind == TokenKind::in_bytes ||
           kind == TokenKind::generation;
  }

  void unread(const std::string& text) {
    if (unread_.empty()) unread_ = text;
  }

  void take() {
    const NetworkToken& now = token();
    switch (now.kind) {
      case TokenKind::times:
        if (at_ + 1 == part_.size()) unread(now.text);
        counts_.push_back(now.value);
        // "2x200 Gb/s per GPU"
        of_gpu_ = is_rate(1) && per(2) && is_word(after_per(2), gpu_words);
        ++at_;
        return;
      case TokenKind::in_bits:
      case TokenKind::in_bytes:
        rates_.push_back({now.value, per(1) && is_word(after_per(1), gpu_words)});
        ++at_;
        return;
      case TokenKind::generation:
        if (generation_ > 0 && generation_ != now.value) unread(now.text);
        generation_ = now.value;
        ++at_;
        return;
      case TokenKind::number:
        if (is_port(1)) {
          counts_.push_back(now.value);
          ++at_;
        } else {
          loose_.push_back(now);
        }
        ++at_;
        return;
      case TokenKind::slash:
        if (is_word(1, gpu_words)) {
          each_gpu_ = true;
          ++at_;
        } else if (is_port(1)) {
          each_port_ = true;
          ++at_;
        }
        ++at_;
        return;
      case TokenKind::word:
        word(now.text);
        return;
      case TokenKind::end:
        ++at_;
        return;
    }
  }

  /// Whether "per", "each", "for each" or '/' is there.
  [[nodiscard]] bool per(std::size_t ahead) const {
    const std::string& text = token(ahead).text;
    return text == "per" || text == "each" || text == "every" || text == "/" ||
           (text == "for" && (token(ahead + 1).text == "each" || token(ahead + 1).text == "every"));
  }
  [[nodiscard]] std::size_t after_per(std::size_t ahead) const {
    return ahead + (token(ahead).text == "for" ? 2 : 1);
  }

  void word(const std::string& text) {
    if (is_inside(text)) {
      inside();
    } else if (per(0)) {
      share();
    } else if (text == "x" && token(1).kind == TokenKind::number) {
      counts_.push_back(token(1).value);
      at_ += 2;
    } else if (text.front() == 'x' && to_number<double>(text.substr(1))) {
      counts_.push_back(*to_number<double>(text.substr(1)));
      ++at_;
    } else if (const auto count = count_of_word(text.substr(0, text.find('-')))) {
      const bool counts = text.find('-') == text.npos && (is_rate(1) || is_port(1));
      if (counts) {
        counts_.push_back(*count);
      } else if (*count != 1) {
        unread(text);
      }
      at_ += counts && is_port(1) ? 2 : 1;
    } else {
      other(text);
      ++at_;
    }
  }

  /// "PCIe gen4 x16", "PCIe gen 4 32 GB/s", "NVLink 4"
  void inside() {
    bool slot = false;  // lanes are of PCIe
    while (true) {
      slot = slot || token().text.starts_with("pcie") || token().text.starts_with("gen");
      ++at_;
      const NetworkToken& now = token();
      const bool spaced = now.kind == TokenKind::times && part_[at_ - 1].text == "gen" &&
                          token(1).kind == TokenKind::number;  // "gen 4 x16"
      const bool lanes = slot && now.text.starts_with('x') && to_number<double>(now.text.substr(1));
      const bool version =
          now.kind == TokenKind::number && now.value > 0 && now.value < 8 && !is_port(1);
      const bool apart = slot && now.text == "x" && token(1).kind == TokenKind::number;
      if (apart || spaced) {
        ++at_;
      } else if (!(lanes || version || now.kind == TokenKind::in_bytes || is_inside(now))) {
        return;
      }
    }
  }

  /// "per GPU", "for each GPU", "per node", "per port", "each"
  void share() {
    const std::size_t of = after_per(0);
    if (is_word(of, gpu_words)) {
      each_gpu_ = true;
      at_ += of + 1;
    } else if (is_word(of, machines)) {
      at_ += of + 1;
    } else if (is_port(of)) {
      each_port_ = true;
      at_ += of + 1;
    } else if (token().text == "each") {
      each_port_ = true;
      ++at_;
    } else {
      const bool cited = is_word(1, sources) || is_word(2, sources) || is_word(3, sources);
      if (!cited && token(1).text != "direction") unread(token().text + ' ' + token(1).text);
      ++at_;
    }
  }

  void other(const std::string& text) {
    if (is_any(text, totals)) {
      total_ = true;
    } else if (is_any(text, plural_ports)) {
      several_ = text;
    } else if (is_any(text, gpu_words) || is_any(text.substr(0, text.find('-')), vague) ||
               is_any(text, vague)) {
      unread(text);
    } else if (text == "slingshot" && token(1).kind == TokenKind::number) {  // "Slingshot 11"
      ++at_;
    } else if (text.find_first_of("0123456789") != text.npos && !is_product(text)) {
      unread(text);
    }
  }

  /// What was read, together.
  std::optional<NetworkPorts> all() {
    if (rates_.empty() && generation_ == 0) return std::nullopt;
    double count = counts_.empty() ? 1 : counts_.front();
    for (const double other : counts_) {
      if (other != count) return refused("several numbers of ports");
    }
    if (count < 1 || count > 1e6 || count != std::floor(count)) return refused("number of ports");
    if (counts_.empty() && (each_port_ || !several_.empty())) {
      return refused(each_port_ ? "'each' without the number of ports"
                                : several_ + " without their number");
    }
    const auto less = [](const Rate& a, const Rate& b) { return a.value < b.value; };
    double rate = generation_;
    if (!rates_.empty()) rate = std::min_element(rates_.begin(), rates_.end(), less)->value;
    const auto is_all = [&](double value) { return std::abs(value - count * rate) < 1e-6 * value; };
    for (const Rate& other : rates_) {
      const bool same = other.value == rate || is_all(other.value);
      if (!same || other.each_gpu != rates_.front().each_gpu) return refused("several rates");
    }
    for (const NetworkToken& number : loose_) {
      if (!is_all(number.value)) return refused(number.text);
    }
    if (rate <= 0) return refused("rate");
    if (each_gpu_ && count > 1 && !of_gpu_) return refused("ports, and a rate of each GPU");
    if (total_ && rates_.size() == 1) rate /= count;
    constexpr double fastest = 400;  // of one port, unless the text says so
    const double most = generation_ > 0 ? generation_ : fastest;
    if (rate > most && generation_ > 0 && !counts_.empty()) {
      if (rate != count * most) return refused("rate beyond that of its generation");
      rate = most;
    }
    if (counts_.empty() && !each_gpu_ && rate > most) {  // of all ports together
      count = generation_ > 0 ? rate / most : 8;
      rate /= count;
      if (count != std::floor(count)) return refused("rate that is no multiple of a port's");
    }
    return NetworkPorts{static_cast<std::int64_t>(count), rate, each_gpu_};
  }

  std::optional<NetworkPorts> refused(const std::string& what) {
    unread(what);
    return std::nullopt;
  }

  struct Rate {
    double value = 0;
    bool each_gpu = false;
  };
  std::vector<NetworkToken> part_;
  std::size_t at_ = 0;
  std::vector<double> counts_;
  std::vector<Rate> rates_;
  std::vector<NetworkToken> loose_;  ///< numbers without a unit
  double generation_ = 0;
  bool each_gpu_ = false, each_port_ = false, total_ = false;
  bool of_gpu_ = false;  ///< the number of ports is
  std::string several_;  ///< "ports"
  std::string unread_;
};

}  // namespace

ReadPorts read_ports(std::string_view interconnect) { return PortReader().read(interconnect); }

}  // namespace parsim::validation
