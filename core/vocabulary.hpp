// The words that a language model knows.
#pragma once

#include <cstdint>
#include <optional>

#include "core/network.hpp"

namespace parsim {

/// Words of a language model: the rows of a table of embeddings that are also the classes of the
/// loss; nothing for other networks.
[[nodiscard]] std::optional<std::int64_t> vocabulary_of(const Network& network);

/// Gives the tables, scores and loss of a language model the next multiple of so many words, as
/// Megatron-LM does (megatron/training/tokenizer/tokenizer.py, _vocab_size_with_padding). Nothing
/// changes where there is no vocabulary.
void pad_vocabulary(Network& network, std::int64_t multiple);

}  // namespace parsim
