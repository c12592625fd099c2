// Source of units: SimGrid's manual, "Complete XML Reference" (3.32).
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <initializer_list>

#include "core/errors.hpp"
#include "topologies/document.hpp"
#include "topologies/import/platform.hpp"

namespace parsim::topologies {

namespace {

struct PlatformUnit {
  std::string_view word;
  double factor;
};

/// "125MBps", "50us", "1Gf": a number and at most one prefix before the unit. What has no unit is
/// in the first of `units`, as in SimGrid.
double platform_quantity(const XmlTag& tag, std::string_view attribute,
                         std::initializer_list<PlatformUnit> units, bool may_be_zero) {
  const std::string& text = tag.text(attribute);
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  std::vector<std::string> words;
  double factor = unit.empty() ? units.begin()->factor : 0;
  for (const PlatformUnit& one : units) {
    words.emplace_back(one.word);
    if (one.word == unit) factor = one.factor;
  }
  const double value = number * factor;
  if (error != std::errc{} || factor == 0 || !std::isfinite(value) || value < 0 ||
      (value == 0 && !may_be_zero)) {
    throw InputError(tag.where(attribute), fmt::format("'{}'", text),
                     fmt::format("accepted: a {} number with one of {}{}",
                                 may_be_zero ? "non-negative" : "positive", join(words),
                                 factor == 0 && !unit.empty() ? did_you_mean(unit, words) : ""));
  }
  return value;
}

}  // namespace

FlopsPerSecond platform_speed(const XmlTag& tag) {
  return {platform_quantity(tag, "speed",
                            {{"f", 1},
                             {"kf", 1e3},
                             {"Mf", 1e6},
                             {"Gf", 1e9},
                             {"Tf", 1e12},
                             {"Pf", 1e15},
                             {"Ef", 1e18},
                             {"Kif", 0x1p10},
                             {"Mif", 0x1p20},
                             {"Gif", 0x1p30},
                             {"Tif", 0x1p40},
                             {"flops", 1},
                             {"kiloflops", 1e3},
                             {"megaflops", 1e6},
                             {"gigaflops", 1e9},
                             {"teraflops", 1e12}},
                            false)};
}

BytesPerSecond platform_rate(const XmlTag& tag, std::string_view attribute) {
  return {platform_quantity(tag, attribute,
                            {{"Bps", 1},
                             {"kBps", 1e3},
                             {"MBps", 1e6},
                             {"GBps", 1e9},
                             {"TBps", 1e12},
                             {"KiBps", 0x1p10},
                             {"MiBps", 0x1p20},
                             {"GiBps", 0x1p30},
                             {"TiBps", 0x1p40},
                             {"bps", 0.125},
                             {"kbps", 125},
                             {"Mbps", 125e3},
                             {"Gbps", 125e6},
                             {"Tbps", 125e9}},
                            false)};
}

Seconds platform_latency(const XmlTag& tag, std::string_view attribute) {
  if (tag.find(attribute) == nullptr) return Seconds{0};
  return Seconds{platform_quantity(tag, attribute,
                                   {{"s", 1},
                                    {"ms", 1e-3},
                                    {"us", 1e-6},
                                    {"ns", 1e-9},
                                    {"ps", 1e-12},
                                    {"m", 60},
                                    {"h", 3600},
                                    {"d", 86400},
                                    {"w", 604800}},
                                   true)};
}

}  // namespace parsim::topologies
