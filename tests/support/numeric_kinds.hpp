// The kinds behind forward() and backward() of numeric.hpp, one pair of functions per family.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/support/numeric.hpp"

namespace parsim::testing {

/// Zero blocks over the boxes of everything the part reads.
[[nodiscard]] PartGradients zero_gradients(const PartInput& input);

// numeric_gather.cpp: kinds whose output element is a sum, or the maximum, of elements times fixed
// coefficients: pooling, reductions, concatenation, slicing, reshapes, dropout, learned tensors.
[[nodiscard]] bool is_gather(const LayerKind& kind);
[[nodiscard]] Block gather_forward(const PartInput& input);
[[nodiscard]] PartGradients gather_backward(const PartInput& input, const Block& out_gradient);

// numeric_products.cpp: kinds with a contraction.
[[nodiscard]] Block conv_forward(const PartInput& input, const Conv& conv);
[[nodiscard]] PartGradients conv_backward(const PartInput& input, const Conv& conv,
                                          const Block& out_gradient);
[[nodiscard]] Block dense_forward(const PartInput& input, const Dense& dense);
[[nodiscard]] PartGradients dense_backward(const PartInput& input, const Dense& dense,
                                           const Block& out_gradient);
[[nodiscard]] Block matmul_forward(const PartInput& input);
[[nodiscard]] PartGradients matmul_backward(const PartInput& input, const Block& out_gradient);

// numeric_attention.cpp
[[nodiscard]] Block attention_forward(const PartInput& input, const Attention& attention);
[[nodiscard]] PartGradients attention_backward(const PartInput& input, const Attention& attention,
                                               const Block& out_gradient);

// numeric_experts.cpp
[[nodiscard]] Block dispatch_forward(const PartInput& input, const ExpertDispatch& dispatch);
[[nodiscard]] PartGradients dispatch_backward(const PartInput& input,
                                              const ExpertDispatch& dispatch,
                                              const Block& out_gradient);
[[nodiscard]] Block experts_forward(const PartInput& input, const ExpertDense& dense);
[[nodiscard]] PartGradients experts_backward(const PartInput& input, const ExpertDense& dense,
                                             const Block& out_gradient);
[[nodiscard]] Block expert_sum_forward(const PartInput& input, const ExpertCombine& combine);
[[nodiscard]] PartGradients expert_sum_backward(const PartInput& input,
                                                const ExpertCombine& combine,
                                                const Block& out_gradient);

// numeric_norm.cpp
[[nodiscard]] Block norm_forward(const PartInput& input, const Norm& norm);
[[nodiscard]] PartGradients norm_backward(const PartInput& input, const Norm& norm,
                                          const Block& out_gradient);

// numeric_pointwise.cpp: element by element, and the softmaxes.
[[nodiscard]] Block activation_forward(const PartInput& input, const Activation& activation);
[[nodiscard]] PartGradients activation_backward(const PartInput& input,
                                                const Activation& activation,
                                                const Block& out_gradient);
[[nodiscard]] Block combine_forward(const PartInput& input, const Combine& combine);
[[nodiscard]] PartGradients combine_backward(const PartInput& input, const Combine& combine,
                                             const Block& out_gradient);
[[nodiscard]] Block softmax_forward(const PartInput& input, const Softmax& softmax);
[[nodiscard]] PartGradients softmax_backward(const PartInput& input, const Softmax& softmax,
                                             const Block& out_gradient);
[[nodiscard]] Block embedding_forward(const PartInput& input, const Embedding& embedding);
[[nodiscard]] PartGradients embedding_backward(const PartInput& input, const Embedding& embedding,
                                               const Block& out_gradient);
[[nodiscard]] Block loss_forward(const PartInput& input);
[[nodiscard]] PartGradients loss_backward(const PartInput& input);

/// Where element `out` of a broadcast operation finds its operand: axes aligned at the last one,
/// axes of extent 1 always at 0, the sample unchanged. `skip` last axes are left alone (matmul).
[[nodiscard]] Index broadcast_index(const Index& out, const Shape& out_shape, const Shape& operand,
                                    std::size_t skip = 0);

}  // namespace parsim::testing
