// Numbers and lists in text.
#include "core/text.hpp"

#include <doctest/doctest.h>

#include "tests/support/refusal.hpp"

namespace parsim {
namespace {

TEST_CASE("text: is split at every separator, or at blanks of any number") {
  using Parts = std::vector<std::string>;
  CHECK(split_at("a,b,,c", ',') == Parts{"a", "b", "", "c"});
  CHECK(split_at("", ',') == Parts{""});
  using Words = std::vector<std::string_view>;
  CHECK(split_at_blanks("  a\tbc  d\r\n") == Words{"a", "bc", "d"});
  CHECK(split_at_blanks(" ").empty());
}

TEST_CASE("text: a deviation has a sign unless it rounds to zero") {
  CHECK(signed_percent(0.1234) == "+12.3 %");
  CHECK(signed_percent(-0.04) == "-4.0 %");
  CHECK(signed_percent(-0.0006) == "-0.1 %");
  for (const double small : {0.0, -0.0, 0.0004, -0.0004}) CHECK(signed_percent(small) == "0.0 %");
}

TEST_CASE("text: nothing of XML's own is left in escaped text, nor control characters") {
  CHECK(xml_escaped("<b a='\"x'>&\n\x7f") == "&lt;b a=&#39;&quot;x&#39;&gt;&amp;??");
  CHECK(xml_escaped("µ &amp; 1") == "µ &amp;amp; 1");
}

TEST_CASE("text: small numbers have an exponent, from a tenth of a thousandth on digits") {
  CHECK(three_digits(1e-4) == "0.000100");
  CHECK(three_digits(9.99e-5) == "9.99e-05");
  CHECK(three_digits(-1e-4) == "-0.000100");
}

TEST_CASE("text: a number is all of its text") {
  CHECK(to_number<int>("-12") == -12);
  CHECK(to_number<double>("1.5e3") == 1500);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "99999999999"}) {
    CAPTURE(text);
    CHECK(to_number<int>(text) == std::nullopt);
  }
  CHECK(to_number<std::size_t>("-1") == std::nullopt);
}

TEST_CASE("text: a number outside its bounds is refused with both of them") {
  CHECK(parse_whole("7", "--n", 1, 7) == 7);
  CHECK(testing::refusal_of([] { return parse_whole("8", "--n", 1, 7); }) ==
        "--n: '8'; accepted: a whole number from 1 to 7");
  CHECK(parse_real("0.5", "--x", 0, 1) == 0.5);
  CHECK(testing::refusal_of([] { return parse_real("nan", "--x", 0, 1); }) ==
        "--x: 'nan'; accepted: a number from 0 to 1");
  CHECK(parse_share("5%", "--s", 0, 0.5) == 0.05);
  CHECK(parse_share("0.05", "--s", 0, 0.5) == 0.05);
  CHECK(testing::refusal_of([] { return parse_share("60%", "--s", 0, 0.5); }) ==
        "--s: '60%'; accepted: a number from 0 to 0.5, or from 0% to 50%");
}

}  // namespace
}  // namespace parsim
