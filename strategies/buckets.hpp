// Buckets of gradients, which are summed together, and whose weights ZeRO 3 gathers together.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// Buckets of gradients: bucket_cap_mb of PyTorch's DistributedDataParallel; or one of each block
/// of a transformer, and of what is before and behind them: one each, as torchtitan and accelerate
/// wrap them in FSDP 2 (fully_shard of embedding, blocks, and norm with head), or one, the root of
/// FSDP 1.
inline constexpr Bytes ddp_bucket{25 * 1024 * 1024}, bucket_of_block{-1},
    bucket_of_block_and_root{-2};

/// With bucket_of_block one of what is behind the last block, one of each block, last block first,
/// and one of what is before the first; the outer two are one if they share parameters, and with
/// bucket_of_block_and_root. As with ddp_bucket if there are no blocks. Else buckets as
/// DistributedDataParallel fills them: parameters in the reverse order of the layers, a bucket is
/// closed when it reaches the input's size (Li et al. 2020, section 3.2.3). Size 0, or a parameter
/// server: one bucket per layer.
[[nodiscard]] std::vector<std::vector<ParameterId>> gradient_buckets(const StrategyInput& input);

/// Sizes that searches try where none was asked for.
constexpr std::int64_t mebibyte = 1024 * 1024;
inline constexpr std::array<Bytes, 10> bucket_sizes{Bytes{0},
                                                    Bytes{mebibyte},
                                                    Bytes{4 * mebibyte},
                                                    Bytes{10 * mebibyte},
                                                    ddp_bucket,
                                                    Bytes{50 * mebibyte},
                                                    Bytes{100 * mebibyte},
                                                    Bytes{200 * mebibyte},
                                                    Bytes{400 * mebibyte},
                                                    Bytes{800 * mebibyte}};

/// The size, as of --bucket, that makes the plan's buckets; nothing if these are what plans of its
/// stage of ZeRO begin with, or of no size.
[[nodiscard]] std::optional<Bytes> bucket_size_of(const Network& network, const Plan& plan);
/// As --bucket reads it: "25MiB", "1234B".
[[nodiscard]] std::string bucket_text(Bytes size);

/// Whether plans of ZeRO stage 3 have a bucket for each block: none of another size was asked for.
[[nodiscard]] bool gathers_blocks(const StrategyInput& input);
/// Whether a search may choose another size for them: no trainer has buckets of its own.
[[nodiscard]] bool may_size_buckets(const StrategyInput& input);

}  // namespace parsim::strategies
