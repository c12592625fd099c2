// A plan that a trainer cannot run: the refusal names one that it can, which then is written.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

/// `parsim plan` with words that blanks part, and `more`.
testing::Finished planned(const testing::TemporaryFolder& folder, const std::string& words,
                          const std::vector<std::string>& more) {
  std::vector<std::string> command{"plan", "--quiet", "--engine", "fast", "-o", "out"};
  for (const std::string_view word : split_at_blanks(words)) command.emplace_back(word);
  command.insert(command.end(), more.begin(), more.end());
  return testing::run_program(PARSIM_PROGRAM, command, folder.folder());
}

TEST_CASE("plan: a refused launch names the nearest plan that the trainer can run") {
  const testing::TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& more) {
    return planned(
        folder,
        "--network gpt:layers=4,hidden=1024,heads=16,seq_length=256,vocab_size=1024 "
        "--cluster nodes:2x4,device=a100-sxm4-80*4+v100-sxm2*4,intra=300GB/s,inter=25GB/s "
        "--batch 640 --precision fp16 --optimizer adam --launch megatron",
        more);
  };
  const testing::Finished refused = run({"--strategy", "data", "--shares", "proportional"});
  CHECK(refused.exit_code == 2);
  CHECK(folder.names().empty());
  const std::string words = "the fastest that it can run: ";
  const std::size_t at = refused.err.find(words);
  CAPTURE(refused.err);
  REQUIRE(at != std::string::npos);
  CHECK(refused.err.find("replicas have unequal shares") < at);
  std::string options =
      refused.err.substr(at + words.size(), refused.err.find(',', at) - at - words.size());
  options = options.substr(0, options.find(" without --shares"));  // which tensor does not read
  std::vector<std::string> nearest;
  for (const std::string_view word : split_at_blanks(options)) nearest.emplace_back(word);
  const testing::Finished carried = run(nearest);
  CAPTURE(options);
  CAPTURE(carried.err);
  CHECK(carried.exit_code == 0);
  // It takes what the refusal said.
  const std::size_t step = refused.err.find(", ", at) + 2;
  const std::string said = refused.err.substr(step, refused.err.find(" instead", step) - step);
  CHECK(carried.out.find("predicted step " + said) != std::string::npos);
}

TEST_CASE("plan: a refusal's step is that of its advice, also of sums in another precision") {
  const testing::TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& more) {
    return planned(folder,
                   "--network gpt:layers=4,hidden=512,heads=8,seq_length=512 "
                   "--cluster nodes:2x4,device=v100-sxm2,intra=100GB/s,inter=10GB/s --batch 16 "
                   "--precision fp16 --optimizer adam --zero 3 --launch accelerate",
                   more);
  };
  const testing::Finished refused = run({"--strategy", "data"});
  CAPTURE(refused.err);
  const std::string words = "run: --strategy tensor --tp 1 --pp 1 --dp 8 --reduce-precision fp16, ";
  const std::size_t at = refused.err.find(words);  // half of the buckets that FP32 has
  REQUIRE(at != std::string::npos);
  const std::size_t step = at + words.size();
  const std::string said = refused.err.substr(step, refused.err.find(" instead", step) - step);
  const testing::Finished carried = run({"--strategy", "tensor", "--tp", "1", "--pp", "1", "--dp",
                                         "8", "--reduce-precision", "fp16"});
  CAPTURE(carried.out);
  CHECK(carried.exit_code == 0);
  CHECK(carried.out.find("predicted step " + said) != std::string::npos);
}

/// The words of a command with the refusal's advice: options without those that must go, then the
/// advised ones in place of their namesakes. Empty if there is none.
std::string advised(const std::string& options, const std::string& refusal, std::string& step) {
  const std::string mark = "the fastest that it can run: ";
  const std::size_t at = refusal.find(mark), end = refusal.find(", ", at);
  if (at == std::string::npos) return {};
  step = refusal.substr(end + 2, refusal.find(" instead", end) - end - 2);
  std::map<std::string, std::string> command;  // words by flag
  const auto add = [&](const std::string& text) {
    std::string flag;
    bool without = false;
    for (const std::string_view word : split_at_blanks(text)) {
      const bool starts = word.starts_with("--");
      if (starts) command.erase(flag = word);
      if (word != "without" && !without) command[flag] += " " + std::string(word);
      without = word == "without";
    }
  };
  add(options);
  add(refusal.substr(at + mark.size(), end - at - mark.size()));
  std::string all;
  for (const auto& [flag, text] : command) all += text;
  return all;
}

TEST_CASE("plan: a refusal names all options that must go, and its advice takes what it says") {
  const testing::TemporaryFolder folder;
  const std::string dense =
                        "--network llama-3-8b:layers=6 --dim seq_length=1024 "
                        "--cluster nodes:2x4,device=h100-sxm5,intra=450GB/s,inter=25GB/s "
                        "--batch 32 --strategy tensor ",
                    experts =
                        "--network mixtral-8x7b:layers=4 --dim seq_length=1024 "
                        "--cluster nodes:2x4,device=h100-sxm5,intra=450GB/s,inter=25GB/s "
                        "--batch 16 --strategy tensor ";
  for (const std::string& options :
       {// Degrees are the search's, and without micro-batches it is faster.
        dense + "--tp 1 --pp 2 --micro-batches 4 --zero 2 --reduce-precision bf16 "
                "--launch deepspeed",
        experts + "--tp 2 --pp 1 --dp 4 --ep 2 --zero 1 --micro-batches 4 --launch megatron",
        // What stages alone have a use for goes with them, chunks of products with tokens.
        dense + "--tp 1 --pp 2 --micro-batches 4 --schedule 1f1b --zero 1 --launch accelerate",
        dense + "--tp 2 --pp 1 --sequence-parallel --tp-overlap --micro-batches 1 "
                "--reduce-precision bf16 --launch accelerate",
        dense + "--tp 1 --pp 4 --micro-batches 4 --schedule zero-bubble --cp 2 --cp-comm "
                "all_gather --launch megatron",
        // Of another schedule Megatron-LM's stages send otherwise.
        dense + "--tp 1 --pp 2 --micro-batches 4 --schedule zero-bubble --zero 1 "
                "--launch flagscale"}) {
    CAPTURE(options);
    const testing::Finished refused = planned(folder, options, {});
    CAPTURE(refused.err);
    CHECK(refused.exit_code == 2);
    std::string step;
    const std::string command = advised(options, refused.err, step);
    REQUIRE_FALSE(command.empty());
    const testing::Finished carried = planned(folder, command, {});
    CAPTURE(command);
    CAPTURE(carried.err);
    CAPTURE(carried.out);
    CHECK(carried.exit_code == 0);
    CHECK(carried.out.find("predicted step " + step) != std::string::npos);
    std::filesystem::remove_all(folder.folder() + "/out");
  }
}

TEST_CASE("plan: best for DeepSpeed fits with DeepSpeed's buckets") {
  // Of 500 million elements: with them the plan that fitted with 25 MiB needed 166 MiB more than
  // there is.
  const testing::TemporaryFolder folder;
  const std::string question =
      "--network llama-3-8b:layers=9 --dim seq_length=2048 "
      "--cluster nodes:1x8,device=a100-sxm4-40,intra=100GB/s";
  const testing::Finished done = planned(folder,
                                         question +
                                             " --batch 32 --strategy best --budget 100 --zero 2 "
                                             "--reduce-precision bf16 --launch deepspeed",
                                         {});
  CAPTURE(done.err);
  CAPTURE(done.out);
  REQUIRE(done.exit_code == 0);
  CHECK(done.out.find("this plan needs") == std::string::npos);
}

TEST_CASE("plan: tensor finds what a trainer can run among much faster plans that it cannot") {
  const testing::TemporaryFolder folder;
  // Pipelines take half of the time.
  const testing::Finished done =
      planned(folder,
              "--network llama-3-8b:layers=6 --dim seq_length=1024 "
              "--cluster nodes:2x4,device=h100-sxm5,intra=450GB/s,inter=25GB/s --batch 32 "
              "--strategy tensor --micro-batches 4 --zero 2 --launch deepspeed",
              {});
  CAPTURE(done.err);
  CHECK(done.exit_code == 0);
}

TEST_CASE("plan: what a trainer cannot run in any plan is refused before a search") {
  const testing::TemporaryFolder folder;
  const testing::Finished refused = testing::run_program(
      PARSIM_PROGRAM,
      {"plan", "--network", "gpt:layers=4,hidden=1024,heads=16,seq_length=256,vocab_size=1024",
       "--cluster", "nodes:2x4,device=v100-sxm2,intra=300GB/s,inter=25GB/s", "--batch", "640",
       "--precision", "fp16", "--optimizer", "adam", "--strategy", "owt", "--launch", "torchtitan",
       "-o", "out", "--quiet"},
      folder.folder());
  CHECK(refused.exit_code == 2);
  // owt has no equal degrees either, which is said of a plan.
  CHECK(refused.err ==
        "parsim: --launch: torchtitan cannot run this plan: its precision is fp16; accepted: "
        "--precision bf16 or fp32\n");
}

TEST_CASE("plan: best searches what the trainer can run") {
  const testing::TemporaryFolder folder;
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"plan",
                                        "--network",
                                        "gpt:layers=8,hidden=1024,heads=16,seq_length=256,"
                                        "vocab_size=1024",
                                        "--cluster",
                                        "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=10GB/s",
                                        "--batch",
                                        "16",
                                        "--precision",
                                        "fp16",
                                        "--optimizer",
                                        "adam",
                                        "--strategy",
                                        "best",
                                        "--budget",
                                        "30",
                                        "--engine",
                                        "fast",
                                        "--quiet",
                                        "-o"};
    command.insert(command.end(), more.begin(), more.end());
    return testing::run_program(PARSIM_PROGRAM, command, folder.folder());
  };
  // The fastest plan is a pipeline, which DeepSpeed's files cannot say.
  const testing::Finished any = plan({"plan.json"});
  CHECK(any.out.find(" x pp 2 x ") != std::string::npos);
  const testing::Finished carried = plan({"job", "--launch", "deepspeed"});
  CAPTURE(carried.err);
  CHECK(carried.exit_code == 0);
  CHECK(carried.out.find(" x pp 1 x ") != std::string::npos);
  CHECK(carried.out.find("to start DeepSpeed: see job/README.md") != std::string::npos);
  // accelerate's FSDP and DeepSpeed add up gradients in the precision of training.
  const testing::Finished summed = plan({"other", "--launch", "accelerate"});
  CAPTURE(summed.err);
  CHECK(summed.exit_code == 0);
}

TEST_CASE("plan: best for DeepSpeed is as fast as a plan by hand, both as DeepSpeed runs them") {
  const testing::TemporaryFolder folder;
  // Milliseconds.
  const auto step = [&](const std::string& question, const std::vector<std::string>& more) {
    const testing::Finished done = planned(folder, question + " --launch deepspeed", more);
    CAPTURE(done.err);
    REQUIRE(done.exit_code == 0);
    const std::string words = "predicted step ";
    const std::size_t at = done.out.find(words);
    REQUIRE(at != std::string::npos);
    const std::string rest = done.out.substr(at + words.size(), 7);
    REQUIRE(rest.find(" ms") != std::string::npos);
    return to_number<double>(rest.substr(0, rest.find(' '))).value_or(0);
  };
  // DeepSpeed's sums overlap with ZeRO alone. Its tensor-parallel groups gather all scores: before
  // estimates knew it, they were chosen for the second question (17.3 instead of 12.5 ms).
  for (const std::string question :
       {"--network llama-3-8b:layers=4 --dim seq_length=1024 "
        "--cluster nodes:2x4,device=h100-sxm5,intra=450GB/s,inter=50GB/s --batch 64",
        "--network gpt:layers=4,hidden=512,heads=8,seq_length=256 --precision fp16 "
        "--cluster nodes:1x4,device=a100-sxm4-40,intra=24GB/s --batch 16"}) {
    CHECK(step(question, {"--strategy", "best", "--budget", "1000"}) <=
          step(question, {"--strategy", "data", "--zero", "1"}));
  }
}

TEST_CASE("plan: best for accelerate sums in a language model's own precision") {
  const testing::TemporaryFolder folder;
  const testing::Finished done = testing::run_program(
      PARSIM_PROGRAM,
      {"plan", "--network", "gpt:layers=2,hidden=64,heads=4,seq_length=16,vocab_size=64",
       "--cluster", "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=10GB/s", "--batch", "8",
       "--strategy", "best", "--budget", "1", "--launch", "accelerate", "-o", "out", "--quiet"},
      folder.folder());
  CHECK(done.exit_code == 0);
  const std::string plan = testing::read_text(folder.folder() + "/out/plan.json");
  CHECK(plan.find("\"precision\": \"bf16\"") != std::string::npos);
  CHECK(plan.find("\"reduce_precision\": \"fp32\"") == std::string::npos);
}

}  // namespace
}  // namespace parsim::app
