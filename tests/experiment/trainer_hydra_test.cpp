// FlagScale's experiment file: the settings are those of the files that it names.
#include "experiment/trainer_hydra.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "experiment/experiment.hpp"
#include "experiment/trainer_file.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {
namespace {

/// An experiment and two files of its group train, as FlagScale's examples have them.
class HydraFolder {
 public:
  HydraFolder() {
    std::filesystem::create_directories(folder_.path("conf/train"));
    folder_.write("conf/train/system.yaml",
                  "system:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n"
                  "  precision:\n    bf16: True\n");
    folder_.write("conf/train/model.yaml",
                  "model:\n  micro_batch_size: 2\n  global_batch_size: 32\n  optimizer:\n"
                  "    weight_decay: 0.1\n    lr_scheduler:\n      lr: 2.0e-5\n");
  }
  /// Of "- train: NAME" and further lines.
  LayoutFile read(const std::string& defaults, const std::string& more = "") const {
    Request request;
    request.network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";
    request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
    const Experiment experiment(request);
    const std::string text = "defaults:\n" + defaults + "experiment:\n  exp_name: mine\n" + more;
    const std::string file = folder_.write("conf/train.yaml", text);
    REQUIRE(is_trainer_file(text, file));
    return read_trainer_file(text, file, experiment.network, experiment.cluster);
  }
  std::string refusal(const std::string& defaults) const {
    const std::string message = testing::refusal_of([&] { return read(defaults); });
    const std::string start = path("conf/train.yaml:1:defaults: ");
    REQUIRE(message.starts_with(start));
    return message.substr(start.size());
  }
  std::string path(const std::string& name) const { return folder_.path(name); }

 private:
  testing::TemporaryFolder folder_;
};

TEST_CASE("trainer hydra: settings come from all files of the group, the last one's count") {
  const HydraFolder folder;
  for (const std::string defaults :
       {"  - train: [system, model]\n", "  - _self_\n  - train: system\n  - train: model.yaml\n",
        "  - train/model\n  - override /train: 'system'\n  - hydra: x\n"}) {
    CAPTURE(defaults);
    const LayoutFile file = folder.read(defaults);
    CHECK(file.layout.stages.size() == 2);
    CHECK(file.layout.stages[0].groups[0].size() == 2);
    CHECK(file.batch == 32);
    CHECK(file.precision == Precision::bf16);
    CHECK(file.optimizer == Optimizer::adam);  // `optimizer` is a table there
  }
  // The experiment's own settings, after or before those of the group.
  const std::string own = "train:\n  model:\n    global_batch_size: 64\n";
  CHECK(folder.read("  - train: [system, model]\n", own).batch == 64);
  CHECK(folder.read("  - train: [system, model]\n  - _self_\n", own).batch == 64);
  CHECK(folder.read("  - _self_\n  - train: [system, model]\n", own).batch == 32);
}

TEST_CASE("trainer hydra: folders lead to the experiment, and messages to the file of a setting") {
  const HydraFolder folder;
  (void)folder.read("  - train: [system, model]\n");
  CHECK(trainer_file_in(folder.path("conf")) == folder.path("conf/train.yaml"));
  CHECK(trainer_file_in(folder.path(".")) == folder.path("./conf/train.yaml"));
  std::filesystem::remove(folder.path("conf/train/model.yaml"));
  testing::TemporaryFolder other;
  CHECK(testing::refusal_of([&] {
          Request request;
          request.network = "gpt:layers=7,hidden=64,heads=4,seq_length=32,vocab_size=256";
          request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
          request.layout_file = folder.path("conf/train.yaml");
          request.given.insert("--layout");
          return Experiment(request).layout;
        }).starts_with(folder.path("conf/train/system.yaml:3:pipeline-model-parallel-size: ")));
}

TEST_CASE("trainer hydra: without degrees, or with names that Hydra makes, it is refused") {
  const HydraFolder folder;
  CHECK(folder.refusal("  - train: 7b\n")
            .starts_with("no degrees of parallelism in the files of its group train; " +
                         folder.path("conf/train/7b.yaml is not there; accepted: FlagScale's ")));
  CHECK(folder.refusal("  - train: model\n")
            .starts_with("no degrees of parallelism in the files of its group train; accepted: "));
  CHECK(folder.refusal("  - train: ${size}\n") ==
        "'train: ${size}'; accepted: the name of a file, or that file itself as --plan");
  for (const std::string item : {"train: ../../secret", "train: /etc/secret", "train: a/../../b"}) {
    CHECK(folder.refusal("  - " + item + "\n") ==
          "'" + item + "'; accepted: the name of a file in train");
  }
  CHECK_FALSE(is_experiment_of_hydra("defaults:\n  - serve: 7b\n", "conf/serve.yaml"));
  CHECK_FALSE(is_experiment_of_hydra("a: 1\n", "a.yaml"));
}

}  // namespace
}  // namespace parsim::experiment
