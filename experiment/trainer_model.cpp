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

/// Nothing of what a script may or may not give.
std::optional<bool> is_on(const TrainerWords& words, std::string_view name) {
  try {
    return words.is_on(name);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Whether the words surely lack the name.
bool lacks(const TrainerWords& words, std::string_view name) {
  try {
    return !words.has(name);
  } catch (const InputError&) {
    return false;
  }
}

/// A network's sizes, by what Megatron-LM asks for; 0 where it has none, or none that is known.
struct Design {
  std::int64_t blocks = 0, width = 0, tokens = 0, heads = 0, key_heads = 0, head_width = 0;
  std::int64_t window = 0;  ///< of attention, in some blocks
  std::int64_t ffn = 0;     ///< of blocks without experts
  std::int64_t experts = 0, expert_blocks = 0, top_k = 0, expert_ffn = 0, shared_ffn = 0;
  std::int64_t words = 0;
  bool gated = false, tied = false, latent = false;
};

/// Queries that are moved to their heads, as attention that keeps its scores has them.
void read_queries(const Layer& layer, Design& design) {
  const auto* moved = layer.kind.as<Rearrange>();
  const std::int64_t tokens = layer.out.extent(Dim::token),
                     channels = layer.out.extent(Dim::channel);
  if (moved == nullptr || !moved->moves_data || heads_moved(*moved) != HeadMove::split) return;
  if (tokens == 0 || channels == 0) return;
  design.heads = layer.out.elements() / (tokens * channels);
  design.key_heads = layer.out.extent(Dim::head);
  design.head_width = channels;
}

/// activation(gate) * up, but for the gate of a shared expert's output.
bool is_gate(const Network& network, const Layer& layer) {
  const auto* product = layer.kind.as<Combine>();
  if (product == nullptr || product->function != "mul") return false;
  bool active = false, dense = false;
  for (const LayerId input : layer.inputs) {
    const LayerKind& kind = network[input].kind;
    if (const auto* one = kind.as<Activation>()) active |= one->function != "sigmoid";
    dense |= kind.as<Dense>() != nullptr || kind.as<ExpertDense>() != nullptr;
  }
  return active && dense;
}

Design design_of(const Network& network) {
  Design design;
  design.blocks = std::ssize(strategies::first_layers_of_blocks(network));
  design.tokens = tokens_per_sample(network);
  design.words = vocabulary_of(network).value_or(0);
  std::optional<ParameterId> table;
  for (const Layer& layer : network.layers) {
    if (const auto* attention = layer.kind.as<Attention>()) {
      design.heads = attention->heads;
      design.key_heads = attention->key_heads;
      design.window = std::max(design.window, attention->window);
      design.head_width = network[layer.inputs[0]].out.extent(Dim::channel) / attention->heads;
    }
    if (layer.kind.as<Embedding>() != nullptr && design.width == 0) {
      design.width = layer.out.extent(Dim::channel);
      table = layer.parameters[0];
    }
    if (const auto* sent = layer.kind.as<ExpertDispatch>()) {
      design.experts = layer.out.extent(Dim::expert);
      design.top_k = sent->top_k;
      ++design.expert_blocks;
    }
    if (const auto* up = layer.kind.as<ExpertDense>(); up && layer.name.ends_with(".experts.up")) {
      design.expert_ffn = up->units;
    }
    if (const auto* up = layer.kind.as<Dense>()) {
      if (layer.name.ends_with(".mlp.up")) design.ffn = up->units;
      if (layer.name.ends_with(".mlp.shared.up")) design.shared_ffn = up->units;
      design.tied |= table && layer.parameters[0] == *table;
    }
    design.latent |= layer.kind.as<HeadConcat>() != nullptr;
    read_queries(layer, design);
    design.gated |= is_gate(network, layer);
  }
  return design;
}

/// Which blocks have experts by moe-layer-freq, an expression of lists in Python: "([0]*3+[1]*58)".
/// Nothing if it is another.
class BlockPattern {
 public:
  explicit BlockPattern(std::string_view text) : rest_(text) {
    blocks_ = sum();
    if (!rest_.empty()) blocks_.reset();
  }
  [[nodiscard]] const std::optional<std::vector<std::int64_t>>& blocks() const { return blocks_; }

 private:
  using List = std::optional<std::vector<std::int64_t>>;
  static constexpr std::size_t longest = 10'000, deepest = 20;

  bool take(char c) {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    return true;
  }
  std::optional<std::int64_t> whole() {
    const std::size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const auto value = to_number<std::int64_t>(rest_.substr(0, digits));
    rest_.remove_prefix(digits);
    return value;
  }
  List sum() {
    List all = product();
    while (all && take('+')) {
      const List more = product();
      if (!more || all->size() + more->size() > longest) return std::nullopt;
      all->insert(all->end(), more->begin(), more->end());
    }
    return all;
  }
  List product() {
    List one = factor();
    while (one && take('*')) {
      const auto times = whole();
      if (!times || *times < 1 || one->size() * static_cast<std::size_t>(*times) > longest) {
        return std::nullopt;
      }
      const std::vector<std::int64_t> each = *one;
      for (std::int64_t t = 1; t < *times; ++t) one->insert(one->end(), each.begin(), each.end());
    }
    return one;
  }
  List factor() {
    if (take('(')) {
      if (++depth_ > deepest) return std::nullopt;
      List inner = sum();
      return take(')') ? inner : std::nullopt;
    }
    if (!take('[')) return std::nullopt;
    std::vector<std::int64_t> blocks;
    do {
      const auto block = whole();
      if (!block || blocks.size() == longest) return std::nullopt;
      blocks.push_back(*block);
    } while (take(','));
    return take(']') ? List(std::move(blocks)) : std::nullopt;
  }

  std::string_view rest_;
  std::size_t depth_ = 0;
  List blocks_;
};

/// What a file sets, and what the network has instead.
class Differences {
 public:
  void add(std::string_view name, std::optional<std::int64_t> given, std::int64_t has,
           std::string_view more = "") {
    if (!given || has == 0 || *given == has) return;
    add(fmt::format("{} {}{}", name, *given, more), std::to_string(has));
  }
  void add(std::string theirs, std::string own) {
    theirs_.push_back(std::move(theirs));
    own_.push_back(std::move(own));
  }
  [[nodiscard]] std::optional<std::string> text(const std::string& file,
                                                const std::string& network) const {
    if (own_.empty()) return std::nullopt;
    return fmt::format(
        "{} sets {}, but network '{}' has {}: the step is the network's (see --network and --dim)",
        file, join(theirs_), network, join(own_));
  }

 private:
  std::vector<std::string> theirs_, own_;
};

/// Megatron-LM's names, and its defaults where the file gives the sizes that it insists on: no
/// other source of arguments is known then (megatron/training/arguments.py, validate_args).
class MegatronModel {
 public:
  MegatronModel(const TrainerWords& words, const Design& own, Differences& found)
      : words_(words),
        own_(own),
        found_(found),
        whole_(number(words, "num-layers").has_value() &&
               number(words, "hidden-size") == own.width &&
               number(words, "num-attention-heads") == own.heads && gives_all(words)) {}

  void compare() {
    const std::optional<bool> gated = flag("swiglu", "quick-geglu");
    if (gated && *gated != own_.gated && own_.ffn + own_.expert_ffn > 0) {
      found_.add(*gated ? "a gated feed-forward (swiglu)" : "no swiglu",
                 own_.gated ? "a gated feed-forward" : "one without gate");
    }
    std::optional<std::int64_t> ffn = number(words_, "ffn-hidden-size");
    compare_number("ffn-hidden-size", default_ffn(gated), own_.ffn);
    if (!ffn) ffn = default_ffn(gated);
    compare_experts(ffn);
    compare_words();
    if (!own_.latent) {
      compare_heads();
    } else if (flag("multi-latent-attention") == false) {
      found_.add("no multi-latent-attention", "latent attention");
    }
    const std::optional<bool> untied = flag("untie-embeddings-and-output-weights");
    if (own_.words > 0 && untied == own_.tied) {
      found_.add(*untied ? "untie-embeddings-and-output-weights"
                         : "no untie-embeddings-and-output-weights",
                 own_.tied ? "tied embeddings" : "untied embeddings");
    }
  }

 private:
  /// Whether no arguments come from elsewhere: from variables, or with a checkpoint.
  static bool gives_all(const TrainerWords& words) {
    constexpr std::string_view others[] = {"$", "$more", "use-checkpoint-args",
                                           "use-mp-args-from-checkpoint-args"};
    if (!std::all_of(std::begin(others), std::end(others),
                     [&](std::string_view name) { return lacks(words, name); })) {
      return false;
    }
    // A variable behind a flag is no value of it.
    constexpr std::string_view flags[] = {"bf16",
                                          "fp16",
                                          "swiglu",
                                          "sequence-parallel",
                                          "use-distributed-optimizer",
                                          "overlap-grad-reduce"};
    return std::none_of(std::begin(flags), std::end(flags), [&](std::string_view name) {
      const std::vector<std::string> values = lacks(words, name) || !is_on(words, name)
                                                  ? std::vector<std::string>{}
                                                  : words.texts(name);
      return !values.empty() && values.front().starts_with('$');
    });
  }
  /// One that is on, or that is off because nothing else may turn it on.
  [[nodiscard]] std::optional<bool> flag(std::string_view name, std::string_view or_other) const {
    const std::optional<bool> one = flag(name), other = flag(or_other);
    return one == true ? one : other == true ? other : one && other ? one : std::nullopt;
  }
  [[nodiscard]] std::optional<bool> flag(std::string_view name) const {
    const std::optional<bool> on = is_on(words_, name);
    return on == false && lacks(words_, name) && !whole_ ? std::nullopt : on;
  }
  [[nodiscard]] std::optional<std::int64_t> default_ffn(std::optional<bool> gated) const {
    if (!gated) return std::nullopt;
    return *gated ? own_.width * 8 / 3 / 64 * 64 : 4 * own_.width;
  }
  void compare_number(std::string_view name, std::optional<std::int64_t> by_default,
                      std::int64_t has) {
    if (!lacks(words_, name)) return found_.add(name, number(words_, name), has);
    if (whole_) found_.add(name, by_default, has, " (default)");
  }
  void compare_experts(std::optional<std::int64_t> ffn) {
    const std::optional<std::int64_t> experts = number(words_, "num-experts");
    if (own_.experts == 0) {
      if (experts) found_.add(fmt::format("num-experts {}", *experts), "no experts");
      return;
    }
    if (!experts && whole_ && lacks(words_, "num-experts")) {
      return found_.add("no num-experts", std::to_string(own_.experts));
    }
    found_.add("num-experts", experts, own_.experts);
    compare_number("moe-router-topk", 2, own_.top_k);
    compare_number("moe-ffn-hidden-size", ffn, own_.expert_ffn);
    constexpr std::string_view shared = "moe-shared-expert-intermediate-size",
                               every = "moe-layer-freq";
    if (own_.shared_ffn > 0) {
      found_.add(shared, number(words_, shared), own_.shared_ffn);
    } else if (const auto size = number(words_, shared)) {
      found_.add(fmt::format("{} {}", shared, *size), "no shared expert");
    }
    const auto number_of_blocks = [&](std::int64_t each) {
      return (own_.blocks + each - 1) / each;
    };
    const auto add_blocks = [&](const std::string& given) {
      found_.add(fmt::format("{} {}", every, given),
                 fmt::format("experts in {} of {} blocks", own_.expert_blocks, own_.blocks));
    };
    if (const auto each = number(words_, every)) {
      if (number_of_blocks(*each) != own_.expert_blocks) add_blocks(std::to_string(*each));
    } else if (!lacks(words_, every)) {
      const std::vector<std::string> texts = words_.texts(every);
      const std::string text = texts.empty() ? "" : texts.back();
      const auto blocks = BlockPattern(text).blocks();
      if (blocks && (std::ssize(*blocks) != own_.blocks ||
                     std::count(blocks->begin(), blocks->end(), 1) != own_.expert_blocks)) {
        add_blocks(text);
      }
    }
  }
  /// Of the vocabulary, as it is or padded.
  void compare_words() {
    for (const std::string_view name : {"vocab-size", "padded-vocab-size"}) {
      const std::optional<std::int64_t> given = number(words_, name);
      const std::int64_t multiple =
          number(words_, "make-vocab-size-divisible-by").value_or(128) *
          std::max<std::int64_t>(1, number(words_, "tensor-model-parallel-size").value_or(1));
      if (!given || multiple < 1) continue;
      const std::int64_t padded = (own_.words + multiple - 1) / multiple * multiple;
      if (*given != padded) found_.add(name, given, own_.words);
    }
  }
  /// Without group-query-attention, num-query-groups counts for nothing.
  void compare_heads() {
    const std::optional<bool> grouped = flag("group-query-attention");
    if (grouped.value_or(true)) {
      compare_number("num-query-groups", 1, own_.key_heads);
    } else if (own_.key_heads < own_.heads) {
      found_.add("no group-query-attention", fmt::format("{} key heads", own_.key_heads));
    }
    if (own_.window > 0) found_.add("no window-size", fmt::format("{} tokens", own_.window));
    if (own_.heads > 0) compare_number("kv-channels", own_.width / own_.heads, own_.head_width);
  }

  const TrainerWords& words_;
  const Design& own_;
  Differences& found_;
  bool whole_ = false;
};

}  // namespace

std::optional<std::string> other_model(const TrainerWords& words, const Network& network) {
  const Design own = design_of(network);
  Differences found;
  for (const auto& [name, has] :
       {std::pair<std::string_view, std::int64_t>{"num-layers", own.blocks},
        {"hidden-size", own.width},
        {"num-attention-heads", own.heads},
        {"seq-length", own.tokens},
        {"training.seq_len", own.tokens}}) {
    found.add(name, number(words, name), has);
  }
  MegatronModel(words, own, found).compare();
  return found.text(words.file(), network.name);
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
