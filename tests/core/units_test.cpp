#include "core/units.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <limits>

#include "core/errors.hpp"
#include "tests/support/refusal.hpp"

using namespace parsim;

namespace {

template <class Parse>
std::string unit_refusal(Parse parse, const std::string& text) {
  return testing::refusal_of([&] { return parse(text, "box.toml:3:rate"); });
}

}  // namespace

TEST_CASE("units: decimal and binary prefixes, with and without a space") {
  CHECK(parse_bytes("512 B", "") == Bytes{512});
  CHECK(parse_bytes("100MB", "") == Bytes{100'000'000});
  CHECK(parse_bytes("100 MiB", "") == Bytes{104'857'600});
  CHECK(parse_bytes("80 GiB", "") == Bytes{85'899'345'920});
  CHECK(parse_bytes("1.5e3 MB", "") == Bytes{1'500'000'000});
  CHECK(parse_bytes(" 2 TB ", "") == Bytes{2'000'000'000'000});
  CHECK(parse_rate("25GB/s", "") == BytesPerSecond{25e9});
  CHECK(parse_rate("2 GiB/s", "") == BytesPerSecond{2147483648.0});
  CHECK(parse_flops_rate("10.6 TFLOP/s", "") == FlopsPerSecond{10.6e12});
  CHECK(parse_flops_rate("1 PFLOP/s", "") == FlopsPerSecond{1e15});
  CHECK(parse_seconds("2 s", "") == Seconds{2});
  CHECK(parse_seconds("1.5 min", "") == Seconds{90});
  CHECK(parse_seconds("50000h", "") == Seconds{1.8e8});
  CHECK(parse_seconds("936 ns", "") == Seconds{936e-9});
  CHECK(parse_seconds("1.5us", "") == Seconds{1.5e-6});
  CHECK(parse_seconds("1.5 µs", "") == Seconds{1.5e-6});
}

TEST_CASE("units: a value is the double nearest to the decimal number, by any prefix") {
  CHECK(parse_seconds("2000ns", "") == parse_seconds("2us", ""));
  CHECK(parse_seconds("2000 ns", "") == Seconds{2e-6});  // 2000 * 1e-9 is the next double
  CHECK(parse_seconds("1e+3 ps", "") == Seconds{1e-9});
  CHECK(parse_seconds("0.3E1 ms", "") == Seconds{3e-3});
  CHECK(parse_rate("0.1 GB/s", "") == parse_rate("100 MB/s", ""));
  CHECK(parse_seconds("0e99999999999 ns", "") == Seconds{0});
  rc::check("so many nanoseconds are a thousand times as many picoseconds", [] {
    const int whole = *rc::gen::inRange(0, 1'000'000), more = *rc::gen::inRange(0, 1000);
    const std::string decimal = std::to_string(whole) + "." + std::to_string(1000 + more).substr(1);
    const std::string moved = std::to_string(whole) + std::to_string(1000 + more).substr(1);
    RC_ASSERT(parse_seconds(decimal + "us", "") == parse_seconds(moved + "ns", ""));
    RC_ASSERT(parse_seconds(decimal + "ns", "") == parse_seconds(moved + "ps", ""));
    RC_ASSERT(parse_rate(decimal + "GB/s", "") == parse_rate(moved + "MB/s", ""));
  });
}

TEST_CASE("units: eight bits of a link are one byte") {
  CHECK(parse_rate("400 Gbit/s", "") == BytesPerSecond{50e9});
  CHECK(parse_rate("100Gb/s", "") == BytesPerSecond{12.5e9});
  CHECK(parse_rate("200 Gbit/s", "") == parse_rate("25 GB/s", ""));
}

TEST_CASE("units: bytes are whole, whatever the product looks like in binary") {
  CHECK(parse_bytes("1.5 GiB", "") == Bytes{1'610'612'736});
  CHECK(parse_bytes("0.1 GB", "") == Bytes{100'000'000});
  CHECK(parse_bytes("4.35 kB", "") == Bytes{4350});  // 4.35 * 1000 is 4350 - 2^-40 in doubles
  CHECK(parse_bytes("0.29 kB", "") == Bytes{290});
  CHECK(parse_bytes("0 B", "") == Bytes{0});
  CHECK(parse_bytes("15.9 GiB", "") == Bytes{17'072'495'002});  // 15.9 * 2^30 = ...001.6
  CHECK(unit_refusal(parse_bytes, "0.0105 kB").find("not a whole number") != std::string::npos);
  CHECK(unit_refusal(parse_bytes, "0.3 B") ==
        "box.toml:3:rate: '0.3 B' is not a whole number of bytes; write for example '16 GiB' or "
        "'100 MB'");
}

TEST_CASE("units: a number without a unit is refused with an example") {
  CHECK(unit_refusal(parse_rate, "25") ==
        "box.toml:3:rate: '25' has no unit; write for example '25 GB/s' or '200 Gbit/s'");
  CHECK(unit_refusal(parse_bytes, "16") ==
        "box.toml:3:rate: '16' has no unit; write for example '16 GiB' or '100 MB'");
  CHECK(unit_refusal(parse_seconds, "1e-6 ") ==
        "box.toml:3:rate: '1e-6 ' has no unit; write for example '1.5 us' or '936 ns'");
}

TEST_CASE("units: an unknown unit is refused with the nearest known one") {
  CHECK(
      unit_refusal(parse_rate, "25 GBs/s") ==
      "box.toml:3:rate: '25 GBs/s' has the unknown unit 'GBs/s'; accepted: B/s with k, M, G, T or "
      "Ki, Mi, Gi, Ti, bit/s (or b/s) with k, M, G, T; did you mean 'GB/s'?");
  CHECK(unit_refusal(parse_bytes, "1 KB") ==
        "box.toml:3:rate: '1 KB' has the unknown unit 'KB'; accepted: B with k, M, G, T or Ki, Mi, "
        "Gi, Ti; did you mean 'kB'?");
  CHECK(unit_refusal(parse_seconds, "3 fortnights") ==
        "box.toml:3:rate: '3 fortnights' has the unknown unit 'fortnights'; accepted: s, ms, us, "
        "µs, ns, ps, min, h");
  // Bits are for rates alone: a memory of "8 Gb" would be a guess.
  CHECK(unit_refusal(parse_bytes, "8 Gbit").find("unknown unit 'Gbit'") != std::string::npos);
  CHECK(unit_refusal(parse_bytes, "8 GB/s").find("did you mean 'GB'?") != std::string::npos);
}

TEST_CASE("units: negative, infinite and unreadable numbers are refused") {
  CHECK(unit_refusal(parse_seconds, "-1 us") ==
        "box.toml:3:rate: '-1 us' is negative; write for example '1.5 us' or '936 ns'");
  for (const char* text : {"nan B/s", "inf GB/s", "infinity B/s"}) {
    CHECK(unit_refusal(parse_rate, text).find("is not a finite number") != std::string::npos);
  }
  for (const char* text : {"", " ", "GB/s", "x25 GB/s", "+1 GB/s", "0x10 GB/s "}) {
    CHECK(unit_refusal(parse_rate, text) != "accepted");
  }
  for (const char* text : {"1e400 B", "1e308 TB", "9.3e6 TB", "1e-400 B"}) {
    CHECK(unit_refusal(parse_bytes, text).find("is out of range") != std::string::npos);
  }
}

TEST_CASE("units: nothing is so large or small that a few products of it are not finite") {
  for (const char* number : {"1e-320", "1e-300", "9.9e-19", "1.1e24", "1e300"}) {
    const auto refused = [&](auto parse, const char* unit) {
      CAPTURE(unit);
      CHECK(unit_refusal(parse, number + std::string(unit)).find("out of range") !=
            std::string::npos);
    };
    refused(parse_rate, "B/s");
    refused(parse_flops_rate, "FLOP/s");
    refused(parse_seconds, "s");
    refused(parse_power, "W");
    refused(parse_money, "");
    refused(parse_price, "/h");
  }
  CHECK(unit_refusal(parse_price, "1 / 1e-300 years").find("no price") != std::string::npos);
  CHECK(unit_refusal(parse_rate, "1e-19 B/s") ==
        "box.toml:3:rate: '1e-19 B/s' is out of range; write for example '25 GB/s' or "
        "'200 Gbit/s'; accepted: 0, and 1e-18 to 1e+24 without a prefix");
  for (const char* text : {"0 B/s", "1e-18 B/s", "1e24 B/s", "1e12 TB/s"}) {
    CHECK(unit_refusal(parse_rate, text) == "accepted");
  }
}

TEST_CASE("units: printed with three significant digits") {
  CHECK(to_text(Seconds{0.00736800}) == "7.37 ms");
  CHECK(to_text(Seconds{0}) == "0 s");
  CHECK(to_text(Seconds{936e-9}) == "936 ns");
  CHECK(to_text(Seconds{1.5}) == "1.50 s");
  CHECK(to_text(Seconds{4321}) == "4321 s");
  CHECK(to_text(Seconds{-2e-6}) == "-2.00 us");
  CHECK(to_text(Bytes{512}) == "512 B");
  CHECK(to_text(Bytes{-512}) == "-512 B");
  CHECK(to_text(Bytes{1'610'612'736}) == "1.50 GiB");
  CHECK(to_text(Bytes{1023 * 1024}) == "1023 KiB");
  CHECK(to_text(BytesPerSecond{25e9}) == "25.0 GB/s");
  CHECK(to_text(BytesPerSecond{std::numeric_limits<double>::infinity()}) == "infinite B/s");
  CHECK(to_text(FlopsPerSecond{10.6e12}) == "10.6 TFLOP/s");
}

TEST_CASE("units: what rounds up to a thousand takes the next prefix") {
  CHECK(to_text(Seconds{999.4e-9}) == "999 ns");
  CHECK(to_text(Seconds{999.6e-9}) == "1.00 us");
  CHECK(to_text(BytesPerSecond{9.996e9}) == "10.0 GB/s");
  CHECK(to_text(BytesPerSecond{99.96e9}) == "100 GB/s");
  CHECK(to_text(Bytes{1024 * 1024 - 1}) == "1.00 MiB");
}

TEST_CASE("units: quotients are times") {
  CHECK(Bytes{1000} / BytesPerSecond{500} == Seconds{2});
  CHECK(Flops{3e12} / FlopsPerSecond{1e12} == Seconds{3});
  CHECK(Bytes{3} + Bytes{4} - Bytes{2} == Bytes{5});
  CHECK(2 * Bytes{3} == Bytes{6});
}

TEST_CASE("units: what is printed is read back within half a unit of the last digit") {
  CHECK(rc::check([] {
    const double value = static_cast<double>(*rc::gen::inRange<std::int64_t>(1, 1'000'000'000'000));
    const BytesPerSecond rate{value};
    RC_ASSERT(std::abs(parse_rate(to_text(rate), "").value - value) <= 0.005001 * value);
    const Seconds time{value * 1e-12};
    RC_ASSERT(std::abs((parse_seconds(to_text(time), "") - time).count()) <=
              0.005001 * time.count());
  }));
}
