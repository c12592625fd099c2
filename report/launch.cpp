#include "report/launch.hpp"

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
  }
  return "";
}

Launch launch_files(Trainer trainer, const Network& network, const Cluster& cluster,
                    const Plan& plan) {
  const CarriedPlan carried(trainer, network, cluster, plan);
  switch (trainer) {
    case Trainer::megatron:
      return megatron_files(carried);
    case Trainer::flagscale:
      return flagscale_files(carried);
    case Trainer::deepspeed:
      return deepspeed_files(carried);
    case Trainer::torchtitan:
      return torchtitan_files(carried);
  }
  return {};
}

std::vector<Trainer> trainers_of(const Network& network, const Cluster& cluster, const Plan& plan) {
  std::vector<Trainer> able;
  for (const std::string_view word : spellings_of<Trainer>()) {
    const Trainer trainer = *from_text<Trainer>(word);
    try {
      (void)launch_files(trainer, network, cluster, plan);
      able.push_back(trainer);
    } catch (const InputError&) {  // NOLINT(bugprone-empty-catch): it cannot
    }
  }
  return able;
}

}  // namespace parsim::report
