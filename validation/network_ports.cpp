// The network ports in a text such as "NVLink4 + 8x HDR 200 Gb/s (SR-IOV)". The grammar is closed:
// a number or word that is dropped would give another network.
//
//     text   = item*, with blanks, brackets, hyphens and one of + , ; : / between
//     item   = number "x"                  ports of the rate that follows: "8x400 Gb/s"
//            | rate | generation           "100 GbE", "50 GB/s", "HDR"
//            | number port                 the same number again: "4x200 Gb/s, four cards"
//            | number                      all ports together, after their rate: "4x200 Gb/s (800)"
//            | inside [version] ["x" lanes] [bytes/s] [number "GPUs"]      "PCIe gen4 x16"
//            | kind [version] | product [version]            "RoCE", "Slingshot 11", "ConnectX-7"
//            | ("per" | "/") ("node" | "GPU")                whose the rate is
//            | word, of a list
//
// Only "x" says how many ports have a rate: "400 Gb/s, 4 NICs" may be the rate of one or of all.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "experiment/trainer_words.hpp"
#include "validation/interconnect_column.hpp"

namespace parsim::validation {

namespace {

class PortReader {
 public:
  explicit PortReader(std::string_view text) : text_(text) {
    for (std::size_t at; (at = text_.find("\u00d7")) != text_.npos;) text_.replace(at, 2, "x");
  }

  ReadPorts read() {
    for (skip(blanks); refusal_.empty() && at_ < text_.size(); skip(blanks)) item();
    if (pending_) refuse("a number of ports without their rate");
    const std::optional<NetworkPorts> all = refusal_.empty() ? together() : std::nullopt;
    return {all, refusal_};
  }

 private:
  // Lists of words between blanks.
  static constexpr std::string_view blanks = " \t()[]:-";
  static constexpr std::string_view ports =
      " port ports nic nics hca hcas card cards rail rails adapter adapters ";
  static constexpr std::string_view links_inside =
      " nvlink nvswitch pcie gen xgmi infinity fabric ";
  static constexpr std::string_view products = " connectx cx bluefield bf ec slingshot rocev efav ";
  static constexpr std::string_view counts[] = {"one",  "two", "three", "four",
                                                "five", "six", "seven", "eight"};
  static constexpr std::string_view others =
      " all and assumed at aws between class configs cube direct docs fat from gpudirect grpc "
      "hybrid in iov links memory mesh network node nodes number of optimized paper per plx qpi "
      "rdma root single sr switch the time to topology tree upi via vtrain's with ";
  template <class Value>
  using List = std::pair<std::string_view, Value>;
  /// Gb/s of a port of four lanes.
  static constexpr List<double> generations[] = {{" sdr ", 10},  {" ddr ", 20},  {" qdr ", 40},
                                                 {" fdr ", 56},  {" edr ", 100}, {" hdr ", 200},
                                                 {" ndr ", 400}, {" xdr ", 800}};
  /// In Gb/s; a byte has a large B.
  static constexpr List<double> units[] = {
      {" gb gb/s gbps gbit/s gbe gBe ", 1}, {" tb/s tbps tbit/s ", 1000}, {" gB/s gBps ", 8}};
  /// The card does the transport of TCPXO, with direct access to the memory of GPUs.
  static constexpr List<LinkKind> kinds[] = {{" infiniband ib omnipath opa ", LinkKind::infiniband},
                                             {" roce rocev tcpxo ", LinkKind::roce},
                                             {" tcp tcpx ethernet ", LinkKind::tcp},
                                             {" efa efav ", LinkKind::efa},
                                             {" slingshot ", LinkKind::slingshot}};
  static constexpr List<std::string_view> owners[] = {{" node machine server host ", "node"},
                                                      {" gpu ", "GPU"}};

  [[nodiscard]] static bool lists(std::string_view list, const std::string& word) {
    return list.find(' ' + word + ' ') != list.npos;
  }
  template <class Value, std::size_t n>
  [[nodiscard]] static const Value* value_of(const std::string& word, const List<Value> (&all)[n]) {
    for (const auto& [list, value] : all) {
      if (lists(list, word)) return &value;
    }
    return nullptr;
  }

  [[nodiscard]] bool is(std::size_t at, int (*of_class)(int)) const {
    return at < text_.size() && of_class(static_cast<unsigned char>(text_[at])) != 0;
  }
  void skip(std::string_view characters) {
    at_ = std::min(text_.find_first_not_of(characters, at_), text_.size());
  }
  std::nullopt_t refuse(const std::string& what) {
    if (refusal_.empty()) refusal_ = what;
    return std::nullopt;
  }
  std::nullopt_t refuse_token(const std::string& token) {
    return refuse(fmt::format("the meaning of '{}' is not known", token));
  }

  void item() {
    const bool after_times = std::exchange(after_times_, false);
    if (is(at_, std::isdigit)) return number(after_times);
    if (is(at_, std::isalpha)) return word(after_times);
    if (std::string_view("+,;/").find(text_[at_]) == std::string_view::npos) {
      refuse_token(text_.substr(at_, text_.find_first_of(" +,;", at_) - at_));
    }
    if (text_[at_++] == '/') return share(after_times);
    inside_ = version_ = false;
  }

  /// The word at `from`, or a unit, in small letters; a second letter as it is, for bits and bytes.
  [[nodiscard]] std::string letters(std::size_t from, bool unit) const {
    std::size_t end = from;
    while (is(end, std::isalpha)) ++end;
    if (unit && text_.compare(end, 2, "/s") == 0) end += 2;
    std::string text = experiment::lower_case(text_.substr(from, end - from));
    if (unit && text.size() > 1) text[1] = text_[from + 1];
    return text;
  }

  void number(bool after_times) {
    const std::size_t begin = at_;
    while (is(at_, std::isdigit) || (is(at_ + 1, std::isdigit) && text_[at_] == '.')) ++at_;
    const std::string shown = text_.substr(begin, at_ - begin);
    const double value = to_number<double>(shown).value_or(-1);
    const bool version = std::exchange(version_, false),
               close = at_ < text_.size() && text_[at_] != ' ';
    skip(" -");
    const std::string next = letters(at_, false), unit = letters(at_, true);
    const bool lanes = !close && is(at_ + 1, std::isdigit);  // "PCIe 4.0 x16"
    const char x = at_ < text_.size() ? text_[at_] : ' ';
    if ((x == 'x' || x == '*') && !lanes && !next.starts_with("xdr")) {
      ++at_;
      if (count_) refuse("several numbers of ports");
      count_ = value;
      pending_ = after_times_ = true;
    } else if (const double* factor = value_of(unit, units)) {
      at_ += unit.size();
      if (inside_ && *factor == 8) return;
      if (!rates_.insert(value * *factor).second) refuse("several rates");
      ethernet_ = ethernet_ || unit.ends_with("be") || unit.ends_with("Be");
      pending_ = false;
      after_times_ = after_times;
    } else if (lists(ports, next)) {
      at_ += next.size();
      again_.insert(value);
    } else if (inside_ && (next == "gpu" || next == "gpus")) {
      at_ += next.size();
    } else if (constexpr double newest = 12; !version || value > newest) {
      if (rates_.empty()) refuse_token(shown);
      loose_.emplace_back(shown, value);
    }
  }

  void word(bool after_times) {
    const std::size_t begin = at_;
    while (is(at_, std::isalnum) ||
           (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == '\'') &&
            is(at_ + 1, std::isalnum))) {
      ++at_;
    }
    const std::string text = experiment::lower_case(text_.substr(begin, at_ - begin));
    const std::string name = text.substr(0, text.find_first_of("0123456789"));
    const std::size_t x = text.find('x', name.size());  // "gen4x8"
    const auto rest = to_number<double>(text.substr(name.size(), x - name.size()));
    const bool plain = name == text, product = lists(products, name) && (plain || rest);
    const bool lanes = x == text.npos || to_number<int>(text.substr(x + 1));
    version_ = plain && (product || lists(links_inside, name));
    if (text == "per") return share(after_times);
    if (lists(links_inside, name) && (plain || rest) && lanes) {
      if (pending_) refuse("a number of ports without their rate");
      inside_ = true;
    } else if (const double* rate = value_of(name, generations); rate && (plain || rest > 50.0)) {
      if (generation_ > 0 && generation_ != rest.value_or(*rate)) refuse("several generations");
      generation_ = rest.value_or(*rate);  // "HDR100" names its rate
      kinds_.insert(LinkKind::infiniband);
      inside_ = pending_ = false;
    } else if (const LinkKind* kind = value_of(name, kinds); kind && (plain || product)) {
      kinds_.insert(*kind);
      inside_ = false;
    } else if (const auto* count = std::find(std::begin(counts), std::end(counts), text);
               count != std::end(counts) && (skip(" "), lists(ports, letters(at_, false)))) {
      again_.insert(static_cast<double>(count - std::begin(counts) + 1));
      at_ += letters(at_, false).size();
    } else if (lists(ports, text)) {
      unnumbered_ = true;
    } else if (!(product || lists(others, text) || text.ends_with("xlarge") ||
                 (inside_ && name == "x" && rest))) {
      refuse_token(text);
    }
  }

  /// After "per" or '/'.
  void share(bool after_times) {
    skip(" ");
    const std::string of = letters(at_, false);
    const std::string_view* owner = value_of(of, owners);
    if (owner == nullptr) return;  // "NVLink3/NVSwitch"
    at_ += of.size();
    owners_.insert(*owner);
    of_gpu_ = after_times;
  }

  /// What was read, together.
  std::optional<NetworkPorts> together() {
    if (rates_.empty() && generation_ == 0) return std::nullopt;
    const double count = count_.value_or(1);
    NetworkPorts all{std::llround(count), rates_.empty() ? generation_ : *rates_.begin()};
    if (count < 1 || count > 1e6 || count != std::floor(count) || all.gigabits <= 0) {
      return refuse("such a number of ports, or a rate of 0");
    }
    const auto is_sum = [&](double rate) {
      return std::abs(rate - count * all.gigabits) < 1e-6 * rate;
    };
    if (rates_.size() > 2 || !(rates_.size() < 2 || is_sum(*rates_.rbegin()))) {
      return refuse("several rates");
    }
    for (const auto& [shown, value] : loose_) {
      if (!is_sum(value)) return refuse_token(shown);
    }
    all.each_gpu = owners_.contains("GPU");
    if (std::any_of(again_.begin(), again_.end(), [&](double n) { return n != count_; })) {
      return refuse("a number of ports that is not before their rate, as in 8x400 Gb/s");
    }
    if (owners_.size() > 1 || (count > 1 && all.each_gpu && !of_gpu_)) {
      return refuse("a number of ports, and a rate of something else");
    }
    if (unnumbered_ && !count_) return refuse("ports without their number");
    // More than a port has, by its generation if one is named, is the rate of all together.
    const double most = generation_ > 0 ? generation_ : 400;
    if (all.gigabits > most && !all.each_gpu && (generation_ > 0 || !count_)) {
      const double cards = generation_ > 0 ? all.gigabits / most : 8;
      if (cards != std::floor(cards) || cards != count_.value_or(cards)) {
        return refuse("a rate beyond that of its generation");
      }
      all = {std::llround(cards), all.gigabits / cards, false, {}};
    }
    if (ethernet_) kinds_.insert(LinkKind::tcp);
    if (kinds_.size() > 1) kinds_.erase(LinkKind::tcp);  // Ethernet carries RoCE, too
    if (kinds_.size() > 1) return refuse("several kinds of network");
    if (!kinds_.empty()) all.kind = *kinds_.begin();
    return all;
  }

  std::string text_;
  std::size_t at_ = 0;
  std::optional<double> count_;                        ///< before "x"
  std::set<double> again_, rates_;                     ///< numbers of ports without "x"
  std::vector<std::pair<std::string, double>> loose_;  ///< numbers without a unit
  std::set<std::string_view> owners_;                  ///< of rates: "GPU"
  std::set<LinkKind> kinds_;
  double generation_ = 0;
  bool inside_ = false, version_ = false;       ///< what came before may have lanes, a version
  bool pending_ = false, after_times_ = false;  ///< "8x", and just before
  bool of_gpu_ = false, unnumbered_ = false, ethernet_ = false;
  std::string refusal_;
};

}  // namespace

ReadPorts read_ports(std::string_view interconnect) { return PortReader(interconnect).read(); }

}  // namespace parsim::validation
