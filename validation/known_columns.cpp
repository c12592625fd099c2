#include "validation/known_columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "validation/published_machines.hpp"
#include "validation/table_formats.hpp"

namespace parsim::validation {

namespace {

/// Columns that identify a plan.
constexpr std::string_view of_plans =
    "parallelism tp dp pp cp ep etp vp micro_batch grad_accum zero_stage recompute "
    "sequence_parallel layout placement nodes gpus_per_node partition_units";

/// Others that predictions read. Sizes such as hidden and heads are here because tables of steps
/// repeat them next to the model.
constexpr std::string_view of_runs =
    "model network machine gpu gpu_mem_gb gpu_memory_rate power_limit n_gpus interconnect "
    "cluster host_bound seq_len batch batch_per_gpu global_batch precision fp8_recipe "
    "reduce_precision optimizer framework zero_group zero_range recompute_every "
    "tp_overlap tp_comm_overlap layout_file pipeline_sends bucket fusion attention_kernel "
    "profile layers metric value unit status total_ms fwd_ms bwd_ms cudnn peak_memory_gib "
    "split split_when_ready needs soft reason notes workload_detail source locator usable "
    "settings nccl_version library heads kv_heads hidden layers_per_stage";

/// Of single kernels, layers and collectives alone.
constexpr std::string_view of_operations =
    "collective size_bytes size_MiB data_MiB time_us time_us_outofplace time_us_inplace "
    "dtype op op_class layer kernel mode median_us sustained_us m n k seq head_dim causal "
    "c_in c_out r r_h r_w in_size in_h in_w pad pad_h pad_w stride stride_h stride_w "
    "dilation dilation_h dilation_w groups rows cols experts topk tokens_per_gpu";

/// Columns of tables such as the built-in ones that describe a row to people: how it was measured,
/// sizes that the network's call repeats, other tools' predictions.
constexpr std::string_view descriptive =
    "licence year date section table release config commit kind case length image vocab "
    "ffn dp_total partition bucket_bytes samples file n_runs n_rep n_passes n_series "
    "spread_pct min_us max_us fwd_bwd_ms_p10_p90 memory_kind suspect derived block design "
    "tflops tflops_stated tflops_check fwd_tflops tgs tokens_per_gpu_s sustained_power_w "
    "sync_ms exposed_grad_allreduce_s max_mem_bytes algbw_gbps_outofplace "
    "busbw_gbps_outofplace algbw_gbps_inplace busbw_gbps_inplace busbw_GBps redop "
    "datatype raw_gpu raw_host_net raw_acc raw_host_acc framework_raw cpu cuda torch "
    "amp_predicted_ms simumax_ms simumax_err_pct simumax_mem_gib simumax_mem_err_pct "
    "n_kernels grid_x grid_y grid_z kv_dtype";

std::vector<std::string_view> names_in(std::initializer_list<std::string_view> lists) {
  std::vector<std::string_view> names;
  for (const std::string_view list : lists) {
    const std::vector<std::string_view> more = split_at_blanks(list);
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

bool is_same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

/// "did you mean 'tp'?", or "".
std::string hint(const std::string& name) {
  for (const OtherName& other : other_column_names()) {
    if (!is_same_word(other.other, name)) continue;
    return fmt::format("did you mean '{}'?", fmt::join(other.ours, "' or '"));
  }
  // Everything is near to a word of three letters.
  constexpr std::size_t shortest = 4;
  std::vector<std::string> near;
  for (const std::string_view known : names_in({of_plans, of_runs})) {
    const bool compared = std::min(known.size(), name.size()) >= shortest;
    if (compared || is_same_word(known, name)) near.emplace_back(known);
  }
  const std::string question = did_you_mean(name, near);
  return question.empty() ? "" : question.substr(question.find("did"));
}

}  // namespace

std::span<const std::string_view> read_columns() {
  static const std::vector<std::string_view> all = names_in({of_plans, of_runs, of_operations});
  return all;
}

std::span<const std::string_view> plan_columns() {
  static const std::vector<std::string_view> all = names_in({of_plans});
  return all;
}

const std::vector<OtherName>& other_column_names() {
  static const std::vector<OtherName> names = {
      {"gpus", {"n_gpus", "cluster"}},
      {"num_gpus", {"n_gpus", "cluster"}},
      {"n_gpu", {"n_gpus", "cluster"}},
      {"ngpus", {"n_gpus", "cluster"}},
      {"gpu_count", {"n_gpus", "cluster"}},
      {"devices", {"n_gpus", "cluster"}},
      {"world_size", {"n_gpus", "cluster"}},
      {"batch_size", {"batch_per_gpu", "global_batch"}},
      {"minibatch", {"batch_per_gpu", "global_batch"}},
      {"per_gpu_batch", {"batch_per_gpu", "global_batch"}},
      {"local_batch", {"batch_per_gpu", "global_batch"}},
      {"local_batch_size", {"batch_per_gpu", "global_batch"}},
      {"global_batch_size", {"global_batch", "batch_per_gpu"}},
      {"train_batch_size", {"global_batch", "batch_per_gpu"}},
      {"micro_batch_size", {"micro_batch"}},
      {"sequence_length", {"seq_len"}},
      {"seq_length", {"seq_len"}},
      {"context_length", {"seq_len"}},
      {"max_seq_len", {"seq_len"}},
      {"seq", {"seq_len"}},
      {"tokens", {"seq_len"}},
      {"gradient_accumulation_steps", {"grad_accum"}},
      {"grad_accum_steps", {"grad_accum"}},
      {"accumulation_steps", {"grad_accum"}},
      {"num_microbatches", {"grad_accum"}},
      {"micro_batches", {"grad_accum"}},
      {"activation_checkpointing", {"recompute"}},
      {"gradient_checkpointing", {"recompute"}},
      {"activation_recompute", {"recompute"}},
      {"tensor_parallel", {"tp"}},
      {"tensor_parallel_size", {"tp"}},
      {"tensor_model_parallel_size", {"tp"}},
      {"tp_size", {"tp"}},
      {"TP", {"tp"}},
      {"pipeline_parallel", {"pp"}},
      {"pipeline_parallel_size", {"pp"}},
      {"pipeline_model_parallel_size", {"pp"}},
      {"pp_size", {"pp"}},
      {"PP", {"pp"}},
      {"data_parallel", {"dp"}},
      {"context_parallel", {"cp"}},
      {"context_parallel_size", {"cp"}},
      {"CP", {"cp"}},
      {"zero", {"zero_stage"}},
      {"zero_optimization_stage", {"zero_stage"}},
      {"fsdp", {"zero_stage"}},
      {"dtype", {"precision"}},
      {"layers_per_stage", {"layout", "layout_file"}},
  };
  return names;
}

std::string unread_columns(const std::vector<Claim>& rows) {
  if (rows.empty() || is_of_format(rows.front())) return {};
  const auto& columns = rows.front().what;
  const auto has = [&](std::string_view name) { return columns.find(name) != columns.end(); };
  std::set<std::string_view> known{unpredictable, uncalibrated, "line", ""};
  const auto add = [&](const std::vector<std::string_view>& names) {
    known.insert(names.begin(), names.end());
  };
  add(names_in({of_plans, of_runs, descriptive}));
  const bool steps = std::all_of(rows.begin(), rows.end(),
                                 [](const Claim& row) { return row.quantity == "throughput"; });
  if (!steps) add(names_in({of_operations}));
  for (const OtherName& name : other_column_names()) {
    const auto repeats = [&](const Claim& row) {
      const std::string text = column(row, name.other);
      return text.empty() || std::any_of(name.ours.begin(), name.ours.end(),
                                         [&](auto ours) { return column(row, ours) == text; });
    };
    // Of Megatron-Bridge's tables: a number of GPUs, next to the stage.
    const bool other_form = name.other == "fsdp" && has(name.ours.front());
    if (other_form || std::all_of(rows.begin(), rows.end(), repeats)) known.insert(name.other);
  }
  std::vector<std::string> unread;
  for (const auto& [name, first] : columns) {
    const bool filled = std::any_of(rows.begin(), rows.end(),
                                    [&](const Claim& row) { return !column(row, name).empty(); });
    if (known.contains(name) || !filled) continue;
    const std::string meant = hint(name);
    unread.push_back(meant.empty() ? name : fmt::format("{} ({})", name, meant));
  }
  return join(unread);
}

}  // namespace parsim::validation
