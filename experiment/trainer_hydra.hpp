// FlagScale's experiment, conf/train.yaml, whose settings Hydra takes from conf/train/NAME.yaml.
#pragma once

#include <string>
#include <string_view>

#include "experiment/trainer_words.hpp"

namespace parsim::experiment {

/// Whether it is YAML with a list `defaults` that names files of the group `train`.
[[nodiscard]] bool is_experiment_of_hydra(std::string_view text, const std::string& file);

/// The settings of all files that the list names, later ones over earlier ones; the file's own
/// where `_self_` stands, last if nowhere. Their file() is the last one of the group. Files that
/// are not there are left out. Throws InputError if no degrees of parallelism are in the rest, and
/// for names that Hydra makes of others.
[[nodiscard]] TrainerWords read_experiment_of_hydra(std::string_view text, const std::string& file);

}  // namespace parsim::experiment
