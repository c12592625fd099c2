// Attention that stores no scores, by cuDNN's graph API: a graph of products, a mask and a softmax
// that its engines for attention (FlashAttention's algorithm) recognise. The forward pass leaves
// the logarithm of each row's sum for the backward pass.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/units.hpp"

struct cudnnContext;

namespace parsim::hw {

/// Queries sample × token × (head × width), keys and values sample × token × (key head × width); a
/// head's channels are contiguous.
struct AttentionShape {
  enum Operand : std::uint8_t { query, key, value, out, dout, dquery, dkey, dvalue, count };
  /// Elements from one sample or token to the next.
  struct Strides {
    std::int64_t sample = 0, token = 0;
    friend bool operator==(const Strides&, const Strides&) = default;
  };

  bool backward = false;
  bool causal = false;  ///< query i sees keys 0 to i
  Precision precision = Precision::bf16;
  std::int64_t samples = 1, heads = 1, key_heads = 1, tokens = 1, keys = 1, width = 1;
  std::array<Strides, count> strides;  ///< forward: the first four
  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

class AttentionPlan {
 public:
  /// Null if cuDNN has no engine for it: of heads wider than it knows, in fp32, before 9.6.
  /// multiprocessors   what the heuristics may count on
  [[nodiscard]] static std::unique_ptr<AttentionPlan> make(cudnnContext* handle,
                                                           const AttentionShape& shape,
                                                           int multiprocessors);
  ~AttentionPlan();
  AttentionPlan(const AttentionPlan&) = delete;
  AttentionPlan& operator=(const AttentionPlan&) = delete;

  [[nodiscard]] std::int64_t workspace_bytes() const;
  /// On the handle's stream.
  ///
  /// operands     by AttentionShape::Operand; gradients of operands are overwritten
  /// statistics   by sample, head and token: written by the forward, read by the backward pass
  void run(cudnnContext* handle, const std::array<void*, AttentionShape::count>& operands,
           float* statistics, char* workspace) const;

 private:
  struct Parts;
  AttentionPlan();
  std::unique_ptr<Parts> parts_;
};

}  // namespace parsim::hw
