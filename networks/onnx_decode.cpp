#include "networks/onnx_decode.hpp"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/errors.hpp"

namespace parsim::networks::onnx_reader {

using onnx::TensorProto;

Element element_of(int type, const std::string& where) {
  switch (type) {
    case TensorProto::FLOAT:
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
    case TensorProto::DOUBLE:
      return Element::real;
    case TensorProto::BOOL:
      return Element::boolean;
    case TensorProto::INT8:
    case TensorProto::INT16:
    case TensorProto::INT32:
    case TensorProto::INT64:
    case TensorProto::UINT8:
    case TensorProto::UINT16:
    case TensorProto::UINT32:
    case TensorProto::UINT64:
      return Element::integer;
    default:
      throw InputError(where, fmt::format("element type {}", type),
                       "accepted: float, float16, bfloat16, double, integers, bool");
  }
}

namespace {

std::size_t bytes_of(int type) {
  switch (type) {
    case TensorProto::DOUBLE:
    case TensorProto::INT64:
    case TensorProto::UINT64:
      return 8;
    case TensorProto::FLOAT:
    case TensorProto::INT32:
    case TensorProto::UINT32:
      return 4;
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
    case TensorProto::INT16:
    case TensorProto::UINT16:
      return 2;
    default:
      return 1;
  }
}

template <class Type>
Type load(const char* bytes) {
  Type value;
  std::memcpy(&value, bytes, sizeof value);  // ONNX stores little-endian, as this machine does
  return value;
}

/// A 16-bit IEEE float.
double half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25));
}

double bfloat(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

void append_raw(Tensor& tensor, int type, const char* bytes) {
  switch (type) {
    case TensorProto::FLOAT:
      return tensor.reals.push_back(load<float>(bytes));
    case TensorProto::DOUBLE:
      return tensor.reals.push_back(load<double>(bytes));
    case TensorProto::FLOAT16:
      return tensor.reals.push_back(half(load<std::uint16_t>(bytes)));
    case TensorProto::BFLOAT16:
      return tensor.reals.push_back(bfloat(load<std::uint16_t>(bytes)));
    case TensorProto::INT8:
      return tensor.integers.push_back(load<std::int8_t>(bytes));
    case TensorProto::INT16:
      return tensor.integers.push_back(load<std::int16_t>(bytes));
    case TensorProto::UINT16:
      return tensor.integers.push_back(load<std::uint16_t>(bytes));
    case TensorProto::INT32:
      return tensor.integers.push_back(load<std::int32_t>(bytes));
    case TensorProto::UINT32:
      return tensor.integers.push_back(load<std::uint32_t>(bytes));
    case TensorProto::INT64:
    case TensorProto::UINT64:
      return tensor.integers.push_back(load<std::int64_t>(bytes));
    default:
      return tensor.integers.push_back(load<std::uint8_t>(bytes));
  }
}

/// The numbers of the typed fields, whichever of them is in use for this type.
void append_typed(Tensor& tensor, const TensorProto& proto) {
  const int type = proto.data_type();
  for (const float x : proto.float_data()) tensor.reals.push_back(x);
  for (const double x : proto.double_data()) tensor.reals.push_back(x);
  for (const std::int64_t x : proto.int64_data()) tensor.integers.push_back(x);
  for (const std::uint64_t x : proto.uint64_data())
    tensor.integers.push_back(static_cast<std::int64_t>(x));
  for (const std::int32_t x : proto.int32_data()) {
    const auto bits = static_cast<std::uint16_t>(x);
    if (type == TensorProto::FLOAT16) {
      tensor.reals.push_back(half(bits));
    } else if (type == TensorProto::BFLOAT16) {
      tensor.reals.push_back(bfloat(bits));
    } else {
      tensor.integers.push_back(x);
    }
  }
}

/// A mask of attention scores: zeros, and numbers as low as any (-10000 of older models, the lowest
/// of their type, minus infinity). Weights end this at one of the first numbers.
bool is_mask(const TensorProto& proto) {
  constexpr double low = -9999;
  bool dropped = false, kept = false;
  const auto fits = [&](double x) {
    kept |= x == 0;
    dropped |= x <= low;
    return x == 0 || x <= low;
  };
  const int type = proto.data_type();
  const std::string& raw = proto.raw_data();
  const auto all = [&](auto read, std::size_t size) {
    for (std::size_t i = 0; i + size <= raw.size(); i += size) {
      if (!fits(read(raw.data() + i))) return false;
    }
    return true;
  };
  bool same = false;
  if (type == TensorProto::FLOAT && raw.empty()) {
    same = std::all_of(proto.float_data().begin(), proto.float_data().end(), fits);
  } else if (type == TensorProto::FLOAT) {
    same = all([](const char* bytes) { return double{load<float>(bytes)}; }, sizeof(float));
  } else if (type == TensorProto::FLOAT16) {
    same = all([](const char* bytes) { return half(load<std::uint16_t>(bytes)); }, 2);
  } else if (type == TensorProto::BFLOAT16) {
    same = all([](const char* bytes) { return bfloat(load<std::uint16_t>(bytes)); }, 2);
  }
  return same && dropped && kept;
}

}  // namespace

Tensor to_tensor(const TensorProto& proto, const std::string& where) {
  Tensor tensor = Tensor::unknown(element_of(proto.data_type(), where),
                                  {proto.dims().begin(), proto.dims().end()});
  const auto count = elements(tensor.dims);
  if (!count || tensor.dims.size() > most_axes) {
    throw InputError(
        where, fmt::format("shape {}", to_text(tensor.dims)),
        fmt::format("accepted: at most {} axes, none negative, and 2^40 elements", most_axes));
  }
  if (proto.data_location() == TensorProto::EXTERNAL) return tensor;
  tensor.mask = is_mask(proto);
  if (*count > most_known_elements) return tensor;
  const std::string& raw = proto.raw_data();
  if (!raw.empty()) {
    const std::size_t size = bytes_of(proto.data_type());
    if (raw.size() != static_cast<std::size_t>(*count) * size) {
      throw InputError(
          where, fmt::format("{} bytes of data for shape {}", raw.size(), to_text(tensor.dims)),
          fmt::format("accepted: {} bytes", static_cast<std::size_t>(*count) * size));
    }
    for (std::size_t i = 0; i < raw.size(); i += size)
      append_raw(tensor, proto.data_type(), raw.data() + i);
  } else {
    append_typed(tensor, proto);
  }
  // Files whose weights were stripped have neither kind of data.
  tensor.known = tensor.count() == static_cast<std::size_t>(*count);
  if (!tensor.known && tensor.integers.size() + tensor.reals.size() > 0) {
    throw InputError(
        where,
        fmt::format("{} elements for shape {}", tensor.integers.size() + tensor.reals.size(),
                    to_text(tensor.dims)),
        fmt::format("accepted: {} elements", *count));
  }
  return tensor;
}

std::optional<AttributeValue> to_value(const onnx::AttributeProto& proto,
                                       const std::string& where) {
  switch (proto.type()) {
    case onnx::AttributeProto::INT:
      return proto.i();
    case onnx::AttributeProto::FLOAT:
      return double{proto.f()};
    case onnx::AttributeProto::STRING:
      return proto.s();
    case onnx::AttributeProto::INTS:
      return std::vector<std::int64_t>(proto.ints().begin(), proto.ints().end());
    case onnx::AttributeProto::FLOATS:
      return std::vector<double>(proto.floats().begin(), proto.floats().end());
    case onnx::AttributeProto::TENSOR:
      return to_tensor(proto.t(), where);
    default:
      return std::nullopt;
  }
}

}  // namespace parsim::networks::onnx_reader
