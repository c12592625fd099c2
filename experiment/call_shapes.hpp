// Shapes by which a call of a PyTorch operator and a part of a layer find each other. They leave
// out what the two write differently: order of axes, and which of them are samples.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/network.hpp"
#include "experiment/kineto_trace.hpp"
#include "experiment/utilization.hpp"

namespace parsim::experiment {

/// What is computed and how large it is:
///
///     matmul          m, k, n                    of a dense layer: rows are samples x tokens
///     batched matmul  batch, m, k, n             of two activations
///     conv            samples, channels, spatial…, filters, kernel…, stride…; of traces of
///                     PyTorch 1, which do not record strides, without these
///     attention       samples, heads, queries, keys, width of a head
///     embedding       rows of the table, width, look-ups
///     pooling         elements of the input
///     loss            elements of the input
///     others          elements of the output: "layer norm", "gelu", "softmax", "add", …
struct CallShape {
  std::string what;
  std::vector<std::int64_t> extents;
  friend auto operator<=>(const CallShape&, const CallShape&) = default;
};
/// "matmul 4096x1024x3072".
[[nodiscard]] std::string text_of(const CallShape& shape);

/// The layer that a forward operator is, "aten::linear", by its recorded shapes; nothing for other
/// operators, and where the shapes do not say it.
[[nodiscard]] std::optional<CallShape> shape_of_call(std::string_view op, const OpShapes& shapes);
/// The layer that a module of Python is as a whole, "LlamaRMSNorm_4", by the shapes of the first
/// operator in it; nothing for most modules, whose operators are the layers.
[[nodiscard]] std::optional<CallShape> shape_of_module(std::string_view name,
                                                       const OpShapes& first);
/// The same of a part of a layer; nothing for kinds that have no operator of their own.
[[nodiscard]] std::optional<CallShape> shape_of_part(const Network& network, LayerId layer,
                                                     const Part& part);

/// What an operator computes, also one of the backward pass: products, attention or element_wise.
/// Nothing for what is none of PyTorch's operators.
[[nodiscard]] std::optional<StepPart> part_of_op(std::string_view op);
/// The same of a kernel by its name, of which nothing else is known; also exposed_sends of NCCL's.
[[nodiscard]] std::optional<StepPart> part_of_kernel(std::string_view name);
/// Whether it is one of the operators that are layers.
[[nodiscard]] bool is_layer_op(std::string_view op);
/// Whether backward calls this operator, too, so that within it the call is no layer: "aten::mm".
[[nodiscard]] bool is_of_both_passes(std::string_view op);

}  // namespace parsim::experiment
