// What is between the matrix products: the memory-bound kernels that trainers launch for a layer,
// alone or as a part of a chain that one kernel computes.
#pragma once

#include <optional>
#include <span>

#include "core/network.hpp"
#include "sim/kernels.hpp"

namespace parsim::sim {

/// True for layers that read and write each element of their tensors, or a line of them, once:
/// activations, dropout, functions of several tensors, normalisations and softmax.
[[nodiscard]] bool is_elementwise(const LayerKind& kind);

/// The layer that computes in the same kernel as `layer`, on the way forward: its first reader, if
/// `fusion` joins two layers of these kinds and every element of the one becomes an element of the
/// other. A function of the network alone: where a plan cuts between the two, the price lacks what
/// both sides write and read there.
[[nodiscard]] std::optional<LayerId> joined_reader(const Network& network, LayerId layer,
                                                   Fusion fusion);

/// The memory-bound kernel, or kernels in succession, of a pass over a part of a layer without
/// FLOPs; nothing where none is launched.
///
/// Within a chain of joined layers an element is read where it enters and written where a layer
/// outside the chain reads it; backward, a gradient is written where the chain begins, and of
/// activations only those are read that the chain does not compute again from its inputs. The last
/// layer of the chain launches its kernel.
///
/// inputs      elements of each input that the part reads
/// out         elements of the part
/// parameters  learned numbers
[[nodiscard]] std::optional<Kernel> memory_kernel(const Network& network, LayerId layer,
                                                  std::span<const double> inputs, double out,
                                                  double parameters, bool backwards, Fusion fusion);

/// Softmax and cross entropy, which are computed in FP32.
[[nodiscard]] Kernel loss_kernel(double logits, bool backwards, Fusion fusion);

}  // namespace parsim::sim
