#include "core/json_writer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/errors.hpp"

namespace parsim::json {

namespace {

constexpr std::size_t depth_of_lines = 2;

}  // namespace

void Writer::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (after_value_) out_ += ',';
  if (depth_ > 0 && depth_ <= depth_of_lines) {
    out_ += '\n';
  } else if (after_value_) {
    out_ += ' ';
  }
}

Writer& Writer::key(std::string_view name) {
  separate();
  fmt::format_to(std::back_inserter(out_), "\"{}\": ", name);
  after_key_ = true;
  return *this;
}

void Writer::integer(std::int64_t value) {
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  after_value_ = true;
}

void Writer::number(double value) {
  ensure(std::isfinite(value), "only finite numbers are written");
  separate();
  const std::size_t begin = out_.size();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  const bool whole = out_.find_first_of(".e", begin) == std::string::npos;
  if (whole && numbers_ == Numbers::typed) out_ += ".0";
  after_value_ = true;
}

void Writer::boolean(bool value) { raw(value ? "true" : "false"); }

void Writer::null() { raw("null"); }

void Writer::raw(std::string_view json) {
  separate();
  out_ += json;
  after_value_ = true;
}

void Writer::text(std::string_view value) {
  separate();
  out_ += nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  after_value_ = true;
}

void Writer::open(char bracket) {
  separate();
  out_ += bracket;
  ++depth_;
  after_value_ = false;
}

void Writer::close(char bracket) {
  --depth_;
  if (after_value_ && depth_ < depth_of_lines) out_ += '\n';
  out_ += bracket;
  after_value_ = true;
}

std::string Writer::take() {
  ensure(depth_ == 0, "every object and array is closed");
  out_ += '\n';
  return std::move(out_);
}

}  // namespace parsim::json
