#include "experiment/trainer_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/trainer_words.hpp"

namespace parsim::experiment {

namespace {

/// "Et*5|(t|)*2t,t|tL": the blocks of each stage.
class StageText {
 public:
  StageText(const TrainerWords& words, std::string_view name)
      : words_(words), name_(name), text_(*words.text(name)) {}

  std::vector<std::int64_t> blocks() && {
    const std::string flat = group(0);
    if (at_ < text_.size()) refuse();
    // megatron/core/transformer/pipeline_parallel_layer_layout.py, validate_layer_layout
    if (!flat.starts_with('E') || !flat.ends_with('L') || std::ranges::count(flat, 'E') != 1 ||
        std::ranges::count(flat, 'L') != 1) {
      words_.refuse(name_, "E first, t for each block, and L last, as Et*5|t*6L");
    }
    std::vector<std::int64_t> blocks{0};
    for (const char c : flat) {
      if (c == '|') {
        blocks.push_back(0);
      } else if (c == 't') {
        ++blocks.back();
      } else if (c != 'E' && c != 'L') {
        refuse();
      }
    }
    return blocks;
  }

 private:
  [[noreturn]] void refuse() const {
    words_.refuse(name_, "E, t and L, with | between stages and *N to repeat, as Et*5|t*6L");
  }

  std::string group(int depth) {
    constexpr int deepest = 8;
    constexpr std::size_t longest = 100'000;
    std::string all;
    while (at_ < text_.size() && text_[at_] != ')') {
      std::string one(1, text_[at_++]);
      if (one == ",") continue;
      if (one == "(") {
        if (depth == deepest) refuse();
        one = group(depth + 1);
        if (at_ == text_.size()) refuse();
        ++at_;
      }
      std::size_t times = 1;
      if (at_ < text_.size() && text_[at_] == '*') {
        std::size_t end = ++at_;
        while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
        const auto number = to_number<std::size_t>(text_.substr(at_, end - at_));
        if (!number || *number * one.size() > longest) refuse();
        times = *number;
        at_ = end;
      }
      for (std::size_t i = 0; i < times; ++i) all += one;
      if (all.size() > longest) refuse();
    }
    return all;
  }

  const TrainerWords& words_;
  std::string_view name_;
  std::string text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::int64_t> blocks_of_megatron(const TrainerWords& words, std::int64_t blocks,
                                             std::int64_t pipeline, std::int64_t& chunks) {
  constexpr std::string_view layout = "pipeline-model-parallel-layout";
  chunks = words.integer("num-virtual-stages-per-pipeline-rank").value_or(1);
  if (const auto each = words.integer("num-layers-per-virtual-pipeline-stage")) {
    if (blocks % (pipeline * *each) != 0) {
      words.refuse("num-layers-per-virtual-pipeline-stage",
                   fmt::format("a divisor of {} blocks over {} stages", blocks, pipeline));
    }
    chunks = blocks / (pipeline * *each);
  }
  if (words.has(layout)) {
    std::vector<std::int64_t> stages = StageText(words, layout).blocks();
    const std::int64_t sum = std::accumulate(stages.begin(), stages.end(), std::int64_t{0});
    if (std::ssize(stages) % pipeline != 0 || sum != blocks) {
      words.refuse(layout, fmt::format("{} blocks in {} stages, or a multiple", blocks, pipeline));
    }
    if (const std::int64_t own = std::ssize(stages) / pipeline; chunks != 1 && chunks != own) {
      words.refuse(layout, fmt::format("{} stages, in {} model chunks of {} devices each",
                                       chunks * pipeline, chunks, pipeline));
    }
    chunks = std::ssize(stages) / pipeline;
    return stages;
  }
  // Of the first and last devices of the pipeline, whose chunks share them: megatron/core/
  // transformer/transformer_block.py, get_num_layers_to_build.
  const auto first = words.integer("decoder-first-pipeline-num-layers", 0),
             last = words.integer("decoder-last-pipeline-num-layers", 0);
  if ((first || last) && words.has("num-layers-per-virtual-pipeline-stage")) {
    words.refuse("num-layers-per-virtual-pipeline-stage",
                 "num-virtual-stages-per-pipeline-rank, where the first or last stage differs");
  }
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(pipeline), 0);
  const std::int64_t left = blocks - first.value_or(0) - last.value_or(0);
  const std::int64_t others = pipeline - (first ? 1 : 0) - (last && pipeline > 1 ? 1 : 0);
  if (left < 0 || (others == 0 ? left > 0 : left % others != 0)) {
    throw InputError(words.where("pipeline-model-parallel-size"),
                     fmt::format("{} blocks in {} equal stages", blocks, pipeline * chunks),
                     "accepted: a number that divides the blocks, or a layout of the pipeline");
  }
  std::fill(ranks.begin(), ranks.end(), others == 0 ? 0 : left / others);
  if (first) ranks.front() = *first;
  if (last) ranks.back() = *last;
  std::vector<std::int64_t> stages;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (const std::int64_t own : ranks) {
      if (own % chunks != 0) {
        throw InputError(
            words.where("pipeline-model-parallel-size"),
            fmt::format("{} blocks of a stage in {} chunks", own, chunks),
            "accepted: chunks that divide the blocks of each stage, or a layout of the "
            "pipeline");
      }
      stages.push_back(own / chunks);
    }
  }
  return stages;
}

}  // namespace parsim::experiment
