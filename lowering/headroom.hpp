// Which part of a device's memory a plan may fill.
#pragma once

#include <cstdint>
#include <optional>

#include "core/spelling.hpp"
#include "core/units.hpp"

namespace parsim::lowering {

/// Whether a device can hold its part of a plan: easily, with little left, or not.
enum class Verdict : std::uint8_t { fits, tight, over };
constexpr std::array<std::string_view, 3> spellings(Verdict) { return {"fits", "tight", "over"}; }

/// Memory that a plan leaves free for the CUDA context and its kernels, NCCL's buffers, workspaces
/// of cuBLAS and cuDNN, and fragmentation.
///
/// Default: 6 % of the memory, ASSUMED from the parts: PyTorch's context takes 300 MB since CUDA
/// 11.7 and up to 1 GB before (pytorch/pytorch issues 107667, 28394), one NCCL communicator some
/// hundred MB to 1.6 GB, as many channels as it has (NVIDIA/nccl issue 864), of 16 to 80 GB.
struct Headroom {
  double share = 0.06;         ///< of the device's memory, 0 to 1
  std::optional<Bytes> bytes;  ///< of every device, instead of the share

  /// The part of `memory` that is kept free, at most all of it.
  [[nodiscard]] Bytes of(Bytes memory) const;
  /// The part that a plan may fill.
  [[nodiscard]] Bytes usable(Bytes memory) const { return memory - of(memory); }
  /// `tight` is above 90 % of what is usable.
  [[nodiscard]] Verdict verdict(Bytes needed, Bytes memory) const;
  friend bool operator==(const Headroom&, const Headroom&) = default;
};

}  // namespace parsim::lowering
