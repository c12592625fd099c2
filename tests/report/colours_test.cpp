// Colours of the page: those that one legend explains differ, for the colour-blind, too.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/program.hpp"

namespace parsim::report {
namespace {

using Triple = std::array<double, 3>;

Triple operator*(const std::array<Triple, 3>& matrix, const Triple& vector) {
  Triple out{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) out[i] += matrix[i][j] * vector[j];
  }
  return out;
}

/// Of "--name:#rrggbb" or "#rgb", in linear light (IEC 61966-2-1); the n-th definition.
Triple color_of(const std::string& css, const std::string& name, int number) {
  std::size_t at = 0;
  for (int i = 0; i <= number; ++i) at = css.find("--" + name + ":#", at) + 1;
  REQUIRE(at != 0);
  const std::size_t begin = css.find('#', at) + 1;
  std::string digits = css.substr(begin, css.find_first_not_of("0123456789abcdef", begin) - begin);
  if (digits.size() == 3) {
    digits = {digits[0], digits[0], digits[1], digits[1], digits[2], digits[2]};
  }
  REQUIRE(digits.size() == 6);
  Triple color{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double value = std::stoi(digits.substr(2 * i, 2), nullptr, 16) / 255.0;
    color[i] = value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  }
  return color;
}

/// CIE L*a*b* under D65.
Triple lab_of(const Triple& linear) {
  const Triple xyz =
      std::array<Triple, 3>{
          Triple{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}} *
      linear;
  const Triple white{0.9505, 1.0, 1.089};
  Triple f{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double t = std::max(xyz[i], 0.0) / white[i];
    f[i] = t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116;
  }
  return {116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
}

/// CIE 1976; 2.3 is the just noticeable difference.
double difference(const Triple& a, const Triple& b) {
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// Full protanopia, deuteranopia and tritanopia: Machado, Oliveira and Fernandes 2009, "A
/// Physiologically-based Model for Simulation of Color Vision Deficiency", table 1, severity 1.
const std::vector<std::array<Triple, 3>> eyes = {{Triple{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
                                                 {Triple{0.152286, 1.052583, -0.204868},
                                                  {0.114503, 0.786281, 0.099216},
                                                  {-0.003882, -0.048116, 1.051998}},
                                                 {Triple{0.367322, 0.860646, -0.227968},
                                                  {0.280085, 0.672501, 0.047413},
                                                  {-0.011820, 0.042940, 0.968881}},
                                                 {Triple{1.255528, -0.076749, -0.178779},
                                                  {-0.078411, 0.930809, 0.147602},
                                                  {0.004733, 0.691367, 0.303900}}};

TEST_CASE("colours: those of one legend differ in light and dark, for the colour-blind, too") {
  const std::string css = testing::read_text(PARSIM_SOURCE_DIR "/report/page/style.css");
  constexpr double least = 15;
  const std::vector<std::vector<std::string>> legends = {
      {"c", "x", "i", "bg"},
      {"k0", "k1", "k2", "k3", "k4", "k5", "box"},
      {"m0", "m1", "m2", "m3", "m4", "box"}};
  for (int scheme = 0; scheme < 2; ++scheme) {
    for (const auto& eye : eyes) {
      for (const auto& legend : legends) {
        for (std::size_t a = 0; a < legend.size(); ++a) {
          for (std::size_t b = 0; b < a; ++b) {
            CAPTURE(scheme);
            CAPTURE(&eye - eyes.data());
            CAPTURE(legend[a]);
            CAPTURE(legend[b]);
            CHECK(difference(lab_of(eye * color_of(css, legend[a], scheme)),
                             lab_of(eye * color_of(css, legend[b], scheme))) > least);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace parsim::report
