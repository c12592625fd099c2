#include "validation/table_formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {

namespace {

using Text = std::string_view;

struct Time {
  Text column;
  double factor;     ///< to the format's unit
  Text name, value;  ///< a column to be added, which says what was timed; or ""
};

struct Format {
  std::vector<Text> marks;  ///< columns that only this format has
  Text quantity, unit;
  std::vector<std::pair<Text, Text>> renamed;  ///< parsim's column, and the table's
  std::vector<Time> times;
  /// What renaming cannot express; may change what is expected.
  void (*complete)(Claim&);
};

void set_column(Claim& claim, Text key, std::string value) {
  claim.what[std::string(key)] = std::move(value);
}
void set_column(Claim& claim, Text key, std::int64_t value) {
  set_column(claim, key, fmt::format("{}", value));
}

double number_column(const Claim& claim, Text name) {
  // Fields that were quoted with the end of their line are numbers too.
  std::string text = column(claim, name);
  text.resize(text.find_last_not_of(" \r") + 1);
  const auto number = to_number<double>(text);
  if (number && *number > 0) return *number;
  throw InputError(location_of(claim, name), fmt::format("'{}'", column(claim, name)),
                   "accepted: a positive number");
}

std::int64_t whole_column(const Claim& claim, Text name) {
  const std::string text = column(claim, name);
  return parse_whole(text, location_of(claim, name), 1, std::int64_t{1} << 40);
}

/// DeepBench's C[M, N] = A[M, K] B[K, N] is column by column: to others the rows are N.
void complete_deepbench(Claim& claim) {
  const std::string kind = column(claim, "kernel");
  if (kind == "gemm") {
    set_column(claim, "op_class", "linear");
  } else if (kind.starts_with("conv")) {
    set_column(claim, "op_class", "conv");
  } else {
    set_column(claim, unpredictable, fmt::format("{}: no layer of parsim", kind));
  }
  if (column_contains(claim, "precision", "FP32 math")) {
    set_column(claim, unpredictable, "operands in FP16 with arithmetic in FP32");
  }
}

/// mamf-finder reports the best rate of a search; in FP8 of operands that are cast before.
void complete_best_rate(Claim& claim) {
  const double flops =
      2 * number_column(claim, "m") * number_column(claim, "n") * number_column(claim, "k");
  claim.expected = 1e6 * flops / (1e12 * claim.expected);
}

/// Different GPUs that a token goes to, on average, if all choices of experts are as likely.
double expected_gpus(double gpus, double experts, double choices) {
  double absent = 1;
  for (double i = 0; i < choices; ++i) {
    absent *= std::max(0.0, (experts - experts / gpus - i) / (experts - i));
  }
  return gpus * (1 - absent);
}

/// DeepEP (deepseek-ai/DeepEP, README): the normal kernels send a token once to each GPU that has
/// one of its experts, those of low latency once to each expert; FP8 with a scale of four bytes for
/// 128 elements there, BF16 back.
void complete_experts(Claim& claim) {
  constexpr std::int64_t most = 1 << 20;
  const std::int64_t experts =
      parse_whole(column(claim, "experts"), location_of(claim, "experts"), 1, most);
  const auto choices = static_cast<double>(
      parse_whole(column(claim, "topk"), location_of(claim, "topk"), 1, experts));
  const bool low_latency = column_contains(claim, "mode", "low latency");
  const double copies = low_latency ? choices
                                    : expected_gpus(number_column(claim, "n_gpus"),
                                                    static_cast<double>(experts), choices);
  const double element = column(claim, "layer") == "dispatch" ? 1 + 4.0 / 128 : 2;
  set_column(claim, "collective", "all_to_all");
  set_column(claim, "size_bytes",
             std::llround(number_column(claim, "tokens_per_gpu") * copies *
                          number_column(claim, "hidden") * element));
  const bool several = whole_column(claim, "nodes") > 1;
  if (several && column(claim, "interconnect").empty() && column(claim, "cluster").empty()) {
    set_column(claim, unpredictable, "several machines, and no column interconnect");
  }
}

void complete_message(Claim& claim) {
  constexpr double mebi = 1024 * 1024;
  set_column(claim, "n_gpus", "2");
  set_column(claim, "collective", "send_receive");
  set_column(claim, "size_bytes", std::llround(number_column(claim, "size_MiB") * mebi));
  claim.expected = 1e6 * number_column(claim, "size_MiB") / (1024 * claim.expected);
}

/// The transformers of Sailor's tables (eth-easl/sailor, sailor/profiling): samples of 2048 tokens.
struct Transformer {
  Text model;
  std::int64_t hidden, heads;
};
constexpr Transformer transformers[] = {
    {"OPT-350", 1024, 16}, {"GPT-Neo-2.7", 2560, 32}, {"OPT-30", 7168, 56}};
constexpr std::int64_t sailor_tokens = 2048;

/// An operator of a block whose extents are multiples of these.
struct BlockOperator {
  Text name, op_class, op;
  bool sums_forward, sums_backward;  ///< with tp > 1, the time includes an all-reduce
};
constexpr BlockOperator block_operators[] = {
    {"enc-1st-layernorm", "ln", "ln", false, false},
    {"enc-attention-qkv", "linear", "qkv", false, true},
    {"enc-attention-score", "bmm", "score", false, false},
    {"enc-attention-softmax", "softmax", "softmax", false, false},
    {"enc-attention-dropout", "elementwise", "dropout", false, false},
    {"enc-attention-context", "bmm", "context", false, false},
    {"enc-attention-dense", "linear", "dense", true, false},
    {"enc-2nd-layernorm", "ln", "ln", false, false},
    {"enc-MLP-GEMM-1", "linear", "up", false, true},
    {"enc-MLP-gelu", "elementwise", "gelu", false, false},
    {"enc-MLP-GEMM-2", "linear", "down", true, false},
    {"final-layernorm", "ln", "ln", false, false}};

void set_product(Claim& claim, std::int64_t m, std::int64_t n, std::int64_t k) {
  set_column(claim, "m", m);
  set_column(claim, "n", n);
  set_column(claim, "k", k);
}

void set_matrix(Claim& claim, std::int64_t rows, std::int64_t columns) {
  set_column(claim, "rows", rows);
  set_column(claim, "cols", columns);
}

void set_extents(Claim& claim, const Transformer& of, Text op) {
  const std::int64_t tp = whole_column(claim, "tp"), batch = whole_column(claim, "micro_batch");
  const std::int64_t tokens = batch * sailor_tokens, maps = batch * of.heads / tp;
  if (op == "qkv") return set_product(claim, tokens, 3 * of.hidden / tp, of.hidden);
  if (op == "dense") return set_product(claim, tokens, of.hidden, of.hidden / tp);
  if (op == "up") return set_product(claim, tokens, 4 * of.hidden / tp, of.hidden);
  if (op == "down") return set_product(claim, tokens, of.hidden, 4 * of.hidden / tp);
  if (op == "gelu") return set_matrix(claim, tokens, 4 * of.hidden / tp);
  if (op == "ln") return set_matrix(claim, tokens, of.hidden);
  if (op == "softmax" || op == "dropout")
    return set_matrix(claim, maps * sailor_tokens, sailor_tokens);
  set_column(claim, "batch", maps);
  const std::int64_t width = of.hidden / of.heads;
  op == "score" ? set_product(claim, sailor_tokens, sailor_tokens, width)
                : set_product(claim, sailor_tokens, width, sailor_tokens);
}

void complete_operator(Claim& claim) {
  const std::string model = column(claim, "model"), name = column(claim, "op");
  const auto of = std::find_if(std::begin(transformers), std::end(transformers),
                               [&](const Transformer& one) { return one.model == model; });
  const auto what = std::find_if(std::begin(block_operators), std::end(block_operators),
                                 [&](const BlockOperator& one) { return one.name == name; });
  set_column(claim, "layer", name);
  if (of == std::end(transformers) || what == std::end(block_operators)) {
    set_column(claim, unpredictable,
               of == std::end(transformers)
                   ? fmt::format("model '{}' of unknown extents", model)
                   : fmt::format("{}: several layers, or of unknown extents", name));
    return;
  }
  const bool backward = column(claim, "mode") == "bwd", product = what->op_class == "linear";
  if (whole_column(claim, "tp") > 1 && (backward ? what->sums_backward : what->sums_forward)) {
    set_column(claim, unpredictable, fmt::format("{}: includes an all-reduce", name));
  }
  set_column(claim, "op_class", std::string(what->op_class));
  set_column(claim, "op", std::string(what->op));
  set_extents(claim, *of, what->op);
  // Its products with weights run one of the two backward (0.94 times as long as forward in the
  // median), and FP32 products are in TF32 where a card has it: they exceed the peak of FP32.
  if (product && backward) set_column(claim, "mode", "bwd_data");
  if (column(claim, "precision") == "fp32" && (product || what->op_class == "bmm")) {
    set_column(claim, "dtype", "fp32/tf32");
  }
}

/// Megatron-DeepSpeed's stages count the embedding as a block of the first and the head as one of
/// the last. FP32 is TF32 on Ampere and newer, as in the operators above.
void complete_sailor_run(Claim& claim) {
  const std::string gpu = column(claim, "gpu");
  if (gpu.find(';') != gpu.npos) {
    set_column(claim, unpredictable,
               "unlike GPUs need the columns cluster and layout_file, as in validation/mixed");
  }
  constexpr Text card = "GH-96";
  set_column(claim, "gpu", gpu.starts_with(card) ? "gh200" : gpu);
  set_column(claim, "network",
             "gpt:layers=24,hidden=1024,heads=16,seq_length=2048,vocab_size=50272,attention=eager");
  set_column(claim, "precision", "TF32");
  set_column(claim, "batch_per_gpu", "");
  set_column(claim, "gpus_per_node", fmt::format("{:.0f}", number_column(claim, "gpus_per_node")));
  set_column(claim, "interconnect", "NVLink4; Slingshot 4x200 Gb/s");
  std::vector<std::string> stages = split_at(column(claim, "layers_per_stage"), '-');
  std::string layout;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::int64_t ends = (s == 0 ? 1 : 0) + (s + 1 == stages.size() ? 1 : 0);
    const std::int64_t blocks =
        parse_whole(stages[s], location_of(claim, "layers_per_stage"), 1, 1 << 20) - ends;
    layout += fmt::format("{}{}", s == 0 ? "" : "/", blocks);
  }
  if (stages.size() > 1) set_column(claim, "layout", layout);
}

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {{"conv_R", "rnn_hidden"},
       "kernel-time",
       "us",
       {{"m", "N"},
        {"n", "M"},
        {"k", "K"},
        {"batch", "conv_N"},
        {"c_in", "conv_C"},
        {"c_out", "conv_K"},
        {"in_h", "conv_H"},
        {"in_w", "conv_W"},
        {"r_h", "conv_R"},
        {"r_w", "conv_S"},
        {"stride_h", "stride_v"},
        {"stride_w", "stride_h"}},
       {{"fwd_ms", 1e3, "mode", "fwd"},
        {"bwd_inputs_ms", 1e3, "mode", "bwd_data"},
        {"bwd_params_ms", 1e3, "mode", "bwd_weights"}},
       complete_deepbench},
      {{"accelerator", "best_tflops"},
       "kernel-time",
       "us",
       {{"gpu", "accelerator"}, {"m", "best_m"}, {"n", "best_n"}, {"k", "best_k"}},
       {{"best_tflops", 1, "", ""}},
       complete_best_rate},
      {{"ep_gpus", "dispatch_us"},
       "collective-time",
       "us",
       {{"n_gpus", "ep_gpus"}},
       {{"dispatch_us", 1, "layer", "dispatch"}, {"combine_us", 1, "layer", "combine"}},
       complete_experts},
      {{"micro_batch", "op", "fwd_us"},
       "kernel-time",
       "us",
       {},
       {{"fwd_us", 1, "mode", "fwd"}, {"bwd_us", 1, "mode", "bwd"}},
       complete_operator},
      {{"size_MiB", "bandwidth"},
       "collective-time",
       "us",
       {},
       {{"bandwidth", 1, "", ""}},
       complete_message},
      {{"layers_per_stage", "stage_replica_gpus"},
       "throughput",
       "ms",
       {},
       {{"value", 1e3, "", ""}},
       complete_sailor_run},
  };
  return all;
}

}  // namespace

bool is_of_format(const Claim& row) {
  return std::any_of(formats().begin(), formats().end(), [&](const Format& one) {
    return std::all_of(one.marks.begin(), one.marks.end(),
                       [&](Text mark) { return row.what.find(mark) != row.what.end(); });
  });
}

std::vector<Claim> claims_of_format(const CsvTable& table, const CsvTable::Row& row,
                                    const Claim& row_claim) {
  const auto has = [&](Text column) { return table.has(column); };
  const auto format = std::find_if(formats().begin(), formats().end(), [&](const Format& one) {
    return std::all_of(one.marks.begin(), one.marks.end(), has);
  });
  std::vector<Claim> claims;
  if (format == formats().end()) return claims;
  for (const Time& time : format->times) {
    const bool only = format->times.size() == 1;
    if (!only && table.at(row, time.column).empty()) continue;
    Claim claim = row_claim;
    claim.quantity = format->quantity;
    claim.unit = format->unit;
    claim.expected = time.factor * table.number(row, time.column);
    for (const auto& [ours, theirs] : format->renamed)
      set_column(claim, ours, table.at(row, theirs));
    if (!time.name.empty()) set_column(claim, time.name, std::string(time.value));
    format->complete(claim);
    claims.push_back(std::move(claim));
  }
  if (!claims.empty()) return claims;
  static_cast<void>(table.number(row, format->times.front().column));  // refuses the empty field
  return claims;
}

}  // namespace parsim::validation
