#include "validation/parallelism_column.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/trainer_words.hpp"
#include "validation/affirmed_words.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {

namespace {

constexpr std::string_view name = "parallelism";

bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// What the column affirms, in small letters; '_' for blanks, hyphens and the x of "TP8xPP4", and
/// between a number and a letter after it.
std::string plain_text(const Claim& claim, std::string_view of = name) {
  std::string plain;
  for (const char c : affirmed(column(claim, of))) {
    const bool after_number = !plain.empty() && is_digit(plain.back());
    if (c == ' ' || c == '-' || (c == 'x' && after_number)) {
      plain += '_';
      continue;
    }
    if (after_number && is_alnum(c) && !is_digit(c)) plain += '_';
    plain += c;
  }
  return plain;
}

/// What follows each place where a word of the text begins with `word`.
std::vector<std::string_view> after(std::string_view text, std::string_view word) {
  std::vector<std::string_view> rests;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if (at == 0 || !is_alnum(text[at - 1])) rests.push_back(text.substr(at + word.size()));
  }
  return rests;
}

bool has(std::string_view text, std::string_view word) { return !after(text, word).empty(); }

/// The number that the text begins with, after signs such as in "=8", "_8" and "(8)"; "" if none.
std::string_view number_at(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of("_=:("), text.size()));
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

bool ends_word(std::string_view rest) { return rest.empty() || !is_alnum(rest.front()); }

[[noreturn]] void refuse(const Claim& claim, const std::string& found, std::string_view accepted) {
  throw InputError(location_of(claim, name), fmt::format("'{}' {}", column(claim, name), found),
                   fmt::format("accepted: {}", accepted));
}

/// The stages that the column's words name, not of FSDP alone.
std::vector<std::int32_t> named_stages(const Claim& claim, std::string_view text) {
  std::vector<std::int32_t> stages;
  // PyTorch's _HYBRID_SHARD_ZERO2 is named by its ZeRO2.
  const bool second = text.find("hybrid_shard_zero2") != text.npos;
  constexpr std::pair<std::string_view, std::int32_t> words[] = {
      {"full_shard", 3}, {"hybrid_shard", 3}, {"hsdp", 3}, {"shard_grad_op", 2}, {"no_shard", 0}};
  for (const auto& [word, stage] : words) {
    if (has(text, word) && !(second && word == "hybrid_shard")) stages.push_back(stage);
  }
  std::vector<std::string_view> zeros = after(text, "zero");
  for (const std::string_view word : {"z", "deepspeed_stage"}) {  // Z3
    for (const std::string_view rest : after(text, word)) {
      if (!number_at(rest).empty()) zeros.push_back(rest);
    }
  }
  for (std::string_view rest : zeros) {
    const bool whole = ends_word(rest) || is_digit(rest.front());
    for (const std::string_view filler : {"_", "stage"}) {
      if (rest.starts_with(filler)) rest.remove_prefix(filler.size());
    }
    const std::string_view number = number_at(rest);
    if (number.size() == 1 && number <= "3") {
      stages.push_back(number.front() - '0');
    } else if (whole && column(claim, "zero_stage").empty()) {
      refuse(claim, "names ZeRO without its stage", "ZeRO-1, ZeRO-2, ZeRO-3, or column zero_stage");
    }
  }
  return stages;
}

constexpr std::string_view columns_of_degrees =
    "columns tp, pp, cp and ep with micro_batch, the samples of a replica at once, or layout_file";

/// A kind of parallelism, the column of its degree, which is also its short name, and longer ones.
struct Kind {
  std::string_view kind, column;
  std::array<std::string_view, 4> words;
};
constexpr Kind kinds[] = {
    {"tensor", "tp", {"tp", "tensor", "mp"}},  // Megatron-LM's first name of it
    {"pipeline", "pp", {"pp", "pipeline", "gpipe", "1_f1_b"}},
    {"context", "cp", {"cp", "context_parallel", "ulysses", "ring_attention"}},
    {"expert", "ep", {"ep", "expert_parallel"}}};

void check_degree(const Claim& claim, std::string_view text, const Kind& kind) {
  const std::string given = column(claim, kind.column);
  bool named = false;
  for (const std::string_view word : kind.words) {
    if (word.empty()) continue;
    for (std::string_view rest : after(text, word)) {
      const bool whole = ends_word(rest) || is_digit(rest.front()) ||
                         rest.starts_with("parallel") || rest.starts_with("ism");
      if (!whole || rest.starts_with("_core")) continue;      // TensorFlow, tensor cores
      if (word == "mp" && number_at(rest).empty()) continue;  // mixed precision
      for (const std::string_view filler : {"_", "model_", "parallel", "ism", "_size"}) {
        if (rest.starts_with(filler)) rest.remove_prefix(filler.size());
      }
      const std::string_view number = number_at(rest);
      named = named || number != "1";
      if (number.empty() || given.empty() || number == given) continue;
      refuse(
          claim,
          fmt::format("names {} {}, and column {} is {}", kind.column, number, kind.column, given),
          "the same degree in both");
    }
  }
  if (!named || !given.empty()) return;
  refuse(claim, fmt::format("names {} parallelism, and column {} is empty", kind.kind, kind.column),
         columns_of_degrees);
}

[[noreturn]] void refuse_groups(const Claim& claim, std::int64_t gpus) {
  refuse(claim, fmt::format("names groups of {}, and column zero_group is empty", gpus),
         "column zero_group, the GPUs that hold one copy of the states together");
}

/// A number after a word: "8", "2 nodes", "2x8".
struct Named {
  std::int64_t first = 0;
  std::int64_t second = 0;  ///< of "2x8"
  bool nodes = false;
};

std::optional<Named> named_at(std::string_view rest) {
  const std::string_view text = number_at(rest);
  const auto first = to_number<std::int64_t>(text);
  if (!first) return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(text.data() - rest.data()) + text.size());
  Named named{*first};
  if (rest.starts_with('_')) rest.remove_prefix(1);
  named.nodes = rest.starts_with("node") || rest.starts_with("machine");
  if (!rest.empty() && is_digit(rest.front())) {
    named.second = to_number<std::int64_t>(number_at(rest)).value_or(0);
  }
  return named;
}

void check_nodes(const Claim& claim, std::int64_t named) {
  const std::int64_t nodes = nodes_of(claim);
  if (named == nodes) return;
  refuse(claim, fmt::format("names {} machines, and the row has {}", named, nodes),
         "the same number in both");
}

/// "shard 4, replicate 4": states are sharded in groups. HSDP shards in a machine.
void check_groups(const Claim& claim, std::string_view text) {
  if (!column(claim, "zero_group").empty()) return;
  const std::int64_t gpus = count_column(claim, "n_gpus", 1);
  const bool hybrid = shards_in_machines(claim);
  const std::int64_t group = hybrid ? std::max<std::int64_t>(1, gpus / nodes_of(claim)) : gpus;
  for (const std::string_view word : {"shard", "hsdp", "hybrid_shard"}) {
    for (std::string_view rest : after(text, word)) {
      for (const std::string_view filler : {"ing", "s", "_size", "_factor", "_degree"}) {
        if (rest.starts_with(filler)) rest.remove_prefix(filler.size());
      }
      const auto named = named_at(rest);
      if (!named) continue;
      const std::int64_t sharded = named->second > 0 ? named->second : named->first;
      if (named->nodes) {
        check_nodes(claim, named->first);
      } else if (sharded != group) {
        refuse_groups(claim, sharded);
      }
    }
  }
  for (const std::string_view rest : after(text, "replicate")) {
    const auto named = named_at(rest);
    if (named && named->first != gpus / group) {
      refuse_groups(claim,
                    std::max<std::int64_t>(1, gpus / std::max<std::int64_t>(1, named->first)));
    }
  }
}

/// Steps that no plan has.
void check_simulated(const Claim& claim, std::string_view text) {
  for (const auto& [word, accepted] :
       {std::pair{"offload", "rows whose weights and states are on the GPUs"},
        {"cpu_offload", "rows whose weights and states are on the GPUs"},
        {"cpuoffload", "rows whose weights and states are on the GPUs"},
        {"nvme", "rows whose weights and states are on the GPUs"},
        {"infinity", "rows whose weights and states are on the GPUs"},
        {"lora", "rows that train all weights"},
        {"qlora", "rows that train all weights"}}) {
    const std::size_t at = text.find(std::string("~_") + word);  // "no CPU offloading"
    if (has(text, word) && at == text.npos) refuse(claim, "is not simulated", accepted);
  }
  const std::string optimizer = affirmed(column(claim, "optimizer"));
  if (optimizer.find("offload") != optimizer.npos &&
      optimizer.find("~ offload") == optimizer.npos) {
    throw InputError(location_of(claim, "optimizer"),
                     fmt::format("'{}' is not simulated", column(claim, "optimizer")),
                     "accepted: rows whose weights and states are on the GPUs");
  }
  const std::string raw = experiment::lower_case(column(claim, name));
  if (raw.find("reshard") != raw.npos && raw.find("true") == raw.npos) {
    refuse(claim, "keeps gathered weights", "SHARD_GRAD_OP, or ZeRO-2");
  }
}

/// "FSDP2", "FSDP 2", "FSDPv2": PyTorch's second version, not two GPUs.
bool is_version(std::string_view rest, std::int64_t gpus) {
  if (rest.starts_with('_')) rest.remove_prefix(1);
  const bool one_or_two = rest.starts_with('1') || rest.starts_with('2');
  if (!one_or_two || gpus <= 2) return false;
  rest.remove_prefix(1);
  if (rest.empty() || !is_digit(rest.front())) {
    if (rest.starts_with('_')) rest.remove_prefix(1);
    return rest.empty() || (!is_digit(rest.front()) && !rest.starts_with("node") &&
                            !rest.starts_with("gpu") && !rest.starts_with("machine"));
  }
  return false;
}

/// "DP4" of 8 GPUs says that two of them share a replica.
void check_replicas(const Claim& claim, std::string_view text) {
  const std::int64_t gpus = count_column(claim, "n_gpus", 1);
  for (const std::string_view word : {"dp", "ddp", "fsdp", "data_parallel"}) {
    for (const std::string_view rest : after(text, word)) {
      const auto named = named_at(rest);
      const bool degrees = std::any_of(std::begin(kinds), std::end(kinds), [&](const Kind& kind) {
        return !column(claim, kind.column).empty();
      });
      const bool groups = word == "fsdp" && !column(claim, "zero_group").empty();
      if (!named || degrees || groups) continue;
      if (word == "fsdp" && is_version(rest, gpus)) continue;
      if (named->nodes) {
        check_nodes(claim, named->first);
        continue;
      }
      const std::int64_t count = named->first * std::max<std::int64_t>(1, named->second);
      if (count == gpus) continue;
      if (word == "fsdp") refuse_groups(claim, named->first);
      refuse(claim,
             fmt::format("names {} replicas of {} GPUs, and columns tp, pp and cp are empty", count,
                         gpus),
             columns_of_degrees);
    }
  }
}

/// "shard 8" and "stage 3" are of FSDP, HSDP or ZeRO.
void check_sharding(const Claim& claim, std::string_view text) {
  if (zero_stage_of(claim)) return;
  for (const std::string_view word : {"shard", "stage", "fsdpv", "full", "grad"}) {
    if (has(text, word)) {
      refuse(claim, "names sharding without its kind",
             "FSDP, FULL_SHARD, SHARD_GRAD_OP, HSDP, ZeRO-1 to 3, or column zero_stage");
    }
  }
}

/// A framework that shards states: "PyTorch FSDP", "DeepSpeed ZeRO-3", and torchtitan, which does
/// so by default (torchtitan/config/configs.py, data_parallel_shard_degree: -1).
void check_framework(const Claim& claim, std::string_view text) {
  const std::string framework = plain_text(claim, "framework");
  const std::optional<std::int32_t> stage = zero_stage_of(claim);
  const bool replicas = has(text, "ddp") && !stage;
  bool shards = false, other = false;
  for (const std::string_view word :
       {"fsdp", "fsdpv", "hsdp", "fully_shard", "fullyshard", "full_shard", "zero", "torchtitan"}) {
    for (std::string_view rest : after(framework, word)) {
      if (!ends_word(rest) && !is_digit(rest.front())) continue;
      if (rest.starts_with("_bubble") || (word == "torchtitan" && replicas)) continue;
      shards = true;
      if (rest.starts_with("_stage")) rest.remove_prefix(6);
      const std::string_view number = word == "zero" ? number_at(rest) : "";
      other = other || (!number.empty() && stage && number != fmt::format("{}", *stage));
    }
  }
  if (!shards || (stage && !other)) return;
  throw InputError(
      location_of(claim, "framework"),
      fmt::format("'{}' shards states, and {}", column(claim, "framework"),
                  stage      ? fmt::format("other columns say ZeRO stage {}", *stage)
                  : replicas ? "column parallelism says DDP"
                             : "columns parallelism and zero_stage do not say how"),
      "accepted: parallelism FSDP, FULL_SHARD, SHARD_GRAD_OP, HSDP or ZeRO-1 to 3, or zero_stage");
}

/// "3D", "hybrid" and "model parallel" name several kinds; those of convolutional networks may be
/// of other things.
void check_several(const Claim& claim, std::string_view text) {
  const auto given = [&](std::string_view key) { return !column(claim, key).empty(); };
  const bool degrees = std::any_of(std::begin(kinds), std::end(kinds),
                                   [&](const Kind& kind) { return given(kind.column); });
  if (degrees || (!given("seq_len") && !given("micro_batch"))) return;
  for (const std::string_view word : {"2_d", "3_d", "4_d", "5_d", "hybrid", "model_parallel"}) {
    for (const std::string_view rest : after(text, word)) {
      if (rest.starts_with("_shard")) continue;
      refuse(claim, "names several kinds of parallelism, and columns tp, pp, cp and ep are empty",
             columns_of_degrees);
    }
  }
}

}  // namespace

std::optional<std::int32_t> zero_stage_of(const Claim& claim) {
  const std::string text = plain_text(claim), given = column(claim, "zero_stage");
  std::optional<std::int32_t> stage;
  if (!given.empty()) {
    stage = static_cast<std::int32_t>(parse_whole(given, location_of(claim, "zero_stage"), 0, 3));
  }
  for (const std::int32_t named : named_stages(claim, text)) {
    if (stage.value_or(named) != named) {
      refuse(claim,
             fmt::format("names ZeRO stage {}, and {} stage {}", named,
                         given.empty() ? "also" : "column zero_stage", *stage),
             "one stage (FULL_SHARD and HYBRID_SHARD are 3, SHARD_GRAD_OP is 2)");
    }
    stage = named;
  }
  const bool fully = has(text, "fsdp") || has(text, "fully_shard") || has(text, "fullyshard");
  if (!stage && fully) stage = 3;
  if (stage == 1 && has(text, "fsdp") && !trained_by_megatron(claim)) {
    refuse(claim, "and ZeRO stage 1: PyTorch's FSDP has none such",
           "zero_stage 3 (FULL_SHARD), 2 (SHARD_GRAD_OP) or 0 (NO_SHARD)");
  }
  if (stage == 3 && has(text, "ddp") && text.find("shard") == text.npos && !fully &&
      named_stages(claim, text).empty()) {
    refuse(claim, "and ZeRO stage 3: with DDP each GPU has all weights", "FSDP or ZeRO-3");
  }
  return stage;
}

bool shards_in_machines(const Claim& claim) {
  const std::string text = plain_text(claim);
  return has(text, "hybrid_shard") || has(text, "hsdp");
}

void check_parallelism(const Claim& claim) {
  static_cast<void>(zero_stage_of(claim));
  check_simulated(claim, plain_text(claim));
  check_words(claim);
  check_sharding(claim, plain_text(claim));
  check_framework(claim, plain_text(claim));
  if (!column(claim, "layout_file").empty()) return;
  const std::string text = plain_text(claim);
  for (const Kind& kind : kinds) check_degree(claim, text, kind);
  check_several(claim, text);
  check_groups(claim, text);
  check_replicas(claim, text);
}

}  // namespace parsim::validation
