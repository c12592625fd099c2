// From protobuf's messages to plain tensors and attributes. The messages are only named here, so
// that protobuf's headers stay in two .cpp files.
#pragma once

#include <optional>
#include <string>

#include "networks/onnx_tensor.hpp"

namespace onnx {
class AttributeProto;
class TensorProto;
}  // namespace onnx

namespace parsim::networks::onnx_reader {

/// The kind of elements behind ONNX's number for a type. Throws InputError for what is no number.
[[nodiscard]] Element element_of(int type, const std::string& where);
/// Extents, and the numbers if they are in the file and few. Throws InputError for extents that are
/// negative or too large, and for data of another size.
[[nodiscard]] Tensor to_tensor(const onnx::TensorProto& proto, const std::string& where);
/// The attribute's value; nothing for kinds that no supported operator has (subgraphs, types).
[[nodiscard]] std::optional<AttributeValue> to_value(const onnx::AttributeProto& proto,
                                                     const std::string& where);

}  // namespace parsim::networks::onnx_reader
