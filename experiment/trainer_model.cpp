#include "experiment/trainer_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "core/vocabulary.hpp"
#include "experiment/experiment.hpp"
#include "strategies/blocks.hpp"

namespace parsim::experiment {

namespace {

std::optional<std::int64_t> number(const TrainerWords& words, std::string_view name) {
  try {
    return words.integer(name);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<std::string> other_model(const TrainerWords& words, const Network& network) {
  std::int64_t heads = 0, width = 0;
  for (const Layer& layer : network.layers) {
    if (const auto* attention = layer.kind.as<Attention>()) heads = attention->heads;
    if (layer.kind.as<Embedding>() != nullptr && width == 0) width = layer.out.extent(Dim::channel);
  }
  const auto blocks = static_cast<std::int64_t>(strategies::first_layers_of_blocks(network).size());
  const std::int64_t tokens = tokens_per_sample(network);
  std::vector<std::string> theirs, own;
  for (const auto& [name, has] : {std::pair<std::string_view, std::int64_t>{"num-layers", blocks},
                                  {"hidden-size", width},
                                  {"num-attention-heads", heads},
                                  {"seq-length", tokens},
                                  {"training.seq_len", tokens}}) {
    const std::optional<std::int64_t> given = number(words, name);
    if (!given || has == 0 || *given == has) continue;
    theirs.push_back(fmt::format("{} {}", name, *given));
    own.push_back(std::to_string(has));
  }
  if (own.empty()) return std::nullopt;
  return fmt::format(
      "{} sets {}, but network '{}' has {}: the step is the network's (see --network and --dim)",
      words.file(), join(theirs), network.name, join(own));
}

void pad_words(Network& network, const std::string& at, LayoutFile& file) {
  const std::optional<std::int64_t> words = vocabulary_of(network);
  if (!words || !file.words_multiple || *words % *file.words_multiple == 0) return;
  pad_vocabulary(network, *file.words_multiple);
  file.notes.push_back(fmt::format(
      "{}: Megatron-LM pads the vocabulary of {} words to {} (make-vocab-size-divisible-by)", at,
      *words, *vocabulary_of(network)));
}

void pad_words(Network& network, const Plan& plan) {
  const std::int64_t words = vocabulary_of(network).value_or(0);
  const std::size_t layers = std::min(network.layers.size(), plan.layers.size());
  for (std::size_t l = 0; l < layers && words > 0; ++l) {
    const auto* table = network.layers[l].kind.as<Embedding>();
    if (table == nullptr || table->rows != words) continue;
    for (const Cut& cut : plan.layers[l].cuts) {
      if (cut.dim != Dim::in_channel) continue;
      const std::int64_t rows =
          std::accumulate(cut.sizes.begin(), cut.sizes.end(), std::int64_t{0});
      if (rows > words) return pad_vocabulary(network, rows);
    }
  }
}

}  // namespace parsim::experiment
