#include "report/launch.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "report/launch_parts.hpp"

namespace parsim::report {

std::string_view name_of(Trainer trainer) {
  switch (trainer) {
    case Trainer::megatron:
      return "Megatron-LM";
    case Trainer::flagscale:
      return "FlagScale";
    case Trainer::deepspeed:
      return "DeepSpeed";
    case Trainer::torchtitan:
      return "torchtitan";
    case Trainer::accelerate:
      return "accelerate";
  }
  return "";
}

namespace {

Launch files_of(Trainer trainer, const CarriedPlan& carried) {
  switch (trainer) {
    case Trainer::megatron:
      return megatron_files(carried);
    case Trainer::flagscale:
      return flagscale_files(carried);
    case Trainer::deepspeed:
      return deepspeed_files(carried);
    case Trainer::torchtitan:
      return torchtitan_files(carried);
    case Trainer::accelerate:
      return accelerate_files(carried);
  }
  return {};
}

}  // namespace

void check_training(Trainer trainer, Precision precision, Optimizer optimizer) {
  const auto refuse = [&](const std::string& found, std::string_view accepted) {
    throw InputError("--launch",
                     fmt::format("{} cannot run this plan: {}", name_of(trainer), found),
                     fmt::format("accepted: {}", accepted));
  };
  const bool fp8 = multiplies_in_fp8(precision);
  const std::string in = fmt::format("its precision is {}", to_text(precision));
  const bool titan = trainer == Trainer::torchtitan;
  if (titan && precision != Precision::bf16 && precision != Precision::fp32) {
    refuse(in, "--precision bf16 or fp32");
  }
  if (titan && optimizer != Optimizer::adam) {
    refuse(fmt::format("its optimizer is {}", to_text(optimizer)), "--optimizer adam");
  }
  const bool torch = trainer == Trainer::deepspeed || trainer == Trainer::accelerate;
  if (torch && (precision == Precision::tf32 || fp8)) refuse(in, "--precision fp32, fp16 or bf16");
  if (trainer == Trainer::flagscale && fp8) refuse("its products are in FP8", "--precision bf16");
}

Launch launch_files(Trainer trainer, const Network& network, const Cluster& cluster,
                    const Plan& plan, bool compiles) {
  check_training(trainer, plan.precision, plan.optimizer);
  CarriedPlan carried(trainer, network, cluster, plan);
  carried.compiles = compiles;
  return files_of(trainer, carried);
}

bool can_launch(Trainer trainer, const Network& network, const Cluster& cluster, const Plan& plan) {
  try {
    (void)launch_files(trainer, network, cluster, plan);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::vector<Trainer> trainers_of(const Network& network, const Cluster& cluster, const Plan& plan) {
  std::vector<Trainer> able;
  std::optional<CarriedPlan> carried;  // degrees and stages are those of all trainers
  for (const std::string_view word : spellings_of<Trainer>()) {
    const Trainer trainer = *from_text<Trainer>(word);
    try {
      if (!carried) carried.emplace(trainer, network, cluster, plan);
      carried->ask(trainer);
      check_training(trainer, plan.precision, plan.optimizer);
      (void)files_of(trainer, *carried);
      able.push_back(trainer);
    } catch (const InputError&) {  // NOLINT(bugprone-empty-catch): it cannot
    }
  }
  return able;
}

std::vector<std::string> trainer_words(const Network& network, const Cluster& cluster,
                                       const Plan& plan) {
  std::vector<std::string> words;
  for (const Trainer trainer : trainers_of(network, cluster, plan)) {
    words.emplace_back(to_text(trainer));
  }
  return words;
}

}  // namespace parsim::report
