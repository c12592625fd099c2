// Lists of fields and JSON of their own of types that several files hold. Private to
// core/json_*.cpp.
#pragma once

#include <string>
#include <vector>

#include "core/exec_dag.hpp"
#include "core/json_get.hpp"
#include "core/json_put.hpp"
#include "core/json_schema.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"
#include "core/timeline.hpp"

namespace parsim::json {

/// Extents of tensors. Products are checked apart (most_elements).
inline constexpr Limits extents{1, std::int64_t{1} << 44};
/// Where regions begin and end.
inline constexpr Limits bounds{0, std::int64_t{1} << 44};

inline constexpr Rule reduce_precision_rule{
    "of sums of gradients; absent: the one that stores the weights",
    "tf32 fp8 fp8-delayed fp8-blockwise"};

/// [["channel", 64], ["height", 56], …]
void put_special(Writer& out, const Shape& shape);
void get_special(const Node& node, Shape& shape);
void put_special_schema(Writer& out, const Shape& shape);
/// A number of devices, or "node".
void put_special(Writer& out, const ZeroGroup& group);
void get_special(const Node& node, ZeroGroup& group);
void put_special_schema(Writer& out, const ZeroGroup& group);
/// {"kind": "conv", "filters": 64, …}
void put_special(Writer& out, const LayerKind& kind);
void get_special(const Node& node, LayerKind& kind);
void put_special_schema(Writer& out, const LayerKind& kind);
/// An object, checked as a whole.
void put_special(Writer& out, const Network& network);
void get_special(const Node& node, Network& network);
void put_special_schema(Writer& out, const Network& network);

void fields(auto& visit, Of<Span> auto& span) {
  visit("start_s", span.start);
  visit("end_s", span.end);
}

/// The output shape of the layer that the node describes; errors name the node.
[[nodiscard]] Shape shape_made(const LayerKind& kind, const std::vector<Shape>& inputs,
                               const Node& node);

}  // namespace parsim::json
