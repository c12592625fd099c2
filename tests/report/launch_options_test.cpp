// Every key of a launch file is in tests/launch/options.csv, which says where the trainer reads it.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/csv.hpp"
#include "core/text.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "report/launch.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::report {
namespace {

using Keys = std::set<std::string>;

/// "a.b" of YAML's "a:", "  b: 1"; list items and what is below `node_specific` are no keys.
void add_yaml_keys(const std::string& text, Keys& keys) {
  std::vector<std::pair<std::size_t, std::string>> path;
  for (const std::string& line : split_at(text, '\n')) {
    const std::size_t indent = line.find_first_not_of(' ');
    const std::size_t colon = line.find(':');
    if (indent == std::string::npos || line[indent] == '#' || line[indent] == '-') continue;
    if (colon == std::string::npos) continue;
    while (!path.empty() && path.back().first >= indent) path.pop_back();
    const bool below = !path.empty() && path.back().second.ends_with("node_specific");
    const std::string key =
        (path.empty() ? "" : path.back().second + ".") + line.substr(indent, colon - indent);
    path.emplace_back(indent, below ? path.back().second : key);
    if (below) continue;
    if (line.size() > colon + 1 || key.ends_with("node_specific")) keys.insert(key);
  }
}

/// "table.key" of TOML.
void add_toml_keys(const std::string& text, Keys& keys) {
  std::string table;
  for (const std::string& line : split_at(text, '\n')) {
    if (line.starts_with("[")) table = line.substr(1, line.find(']') - 1);
    const std::size_t equals = line.find(" = ");
    if (!line.starts_with("#") && equals != std::string::npos) {
      keys.insert(table + "." + line.substr(0, equals));
    }
  }
}

void add_json_keys(const nlohmann::json& json, const std::string& prefix, Keys& keys) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      add_json_keys(value, prefix + key + ".", keys);
    } else {
      keys.insert(prefix + key);
    }
  }
}

void add_keys(Trainer trainer, const Launch& launch, Keys& keys) {
  for (const LaunchFile& file : launch.files) {
    switch (trainer) {
      case Trainer::megatron:
        if (file.name != "run.sh") break;
        for (const std::string& line : split_at(file.text, '\n')) {
          const std::string word = line.substr(0, line.find(' ', 2));
          if (word.starts_with("  --") && !word.starts_with("  --master"))
            keys.insert(word.substr(2));
        }
        break;
      case Trainer::flagscale:
        if (file.name.ends_with(".yaml")) add_yaml_keys(file.text, keys);
        break;
      case Trainer::deepspeed:
        if (file.name.ends_with(".json")) add_json_keys(nlohmann::json::parse(file.text), "", keys);
        break;
      case Trainer::accelerate:
        if (file.name.ends_with(".yaml")) add_yaml_keys(file.text, keys);
        break;
      case Trainer::torchtitan:
        if (file.name.ends_with(".toml")) add_toml_keys(file.text, keys);
        break;
    }
  }
}

experiment::Request eight_gpus() {
  experiment::Request request;
  request.network = "gpt:layers=5,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:2x4,device=h100-sxm5,intra=300GB/s,inter=25GB/s";
  request.batch = 32;
  request.precision = Precision::bf16;
  request.reduce_precision = Precision::fp32;
  request.optimizer = Optimizer::adam;
  request.tensor_parallel = request.pipeline_parallel = request.data_parallel = 2;
  request.micro_batches = 4;
  return request;
}

/// Requests that make the writers use all their words.
std::vector<experiment::Request> requests() {
  std::vector<experiment::Request> all;
  const auto add = [&](const std::function<void(experiment::Request&)>& change) {
    all.push_back(eight_gpus());
    change(all.back());
  };
  const auto degrees = [](experiment::Request& request, std::int64_t tp, std::int64_t pp,
                          std::int64_t dp) {
    request.tensor_parallel = static_cast<std::int32_t>(tp);
    request.pipeline_parallel = static_cast<std::int32_t>(pp);
    request.data_parallel = static_cast<std::int32_t>(dp);
  };
  for (const int pipeline : {1, 2}) {
    add([&](auto& request) {
      degrees(request, 2, pipeline, 4 / pipeline);
      request.sequence_parallel = request.tensor_overlap = true;
      if (pipeline == 1) request.zero_stage = 2;
    });
  }
  for (const int stage : {0, 3}) {
    add([&](auto& request) {
      degrees(request, 2, 1, 2);
      request.context_parallel = 2;
      request.zero_stage = stage;
      request.sequence_parallel = stage > 0;
    });
  }
  add([&](auto& request) {
    request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256,experts=4";
    degrees(request, 1, 1, 8);
    request.expert_parallel = 2;
  });
  add([&](auto& request) {
    request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256,experts=4";
    degrees(request, 1, 1, 4);
    request.context_parallel = 2;
    request.expert_parallel = 4;
  });
  add([&](auto& request) {
    request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256,experts=4";
    degrees(request, 2, 1, 4);
    request.expert_parallel = 4;
    request.expert_tensor_parallel = 1;
    request.sequence_parallel = true;
  });
  add([](auto& request) { request.precision = Precision::fp8; });
  add([](auto& request) { request.precision = Precision::fp16; });
  add([](auto& request) {
    request.reduce_precision = Precision::bf16;
    request.optimizer = Optimizer::sgd;
    request.zero_stage = 1;
    request.recompute = strategies::Recompute::full;
  });
  add([](auto& request) {
    request.network += ",attention=eager";
    request.recompute = strategies::Recompute::selective;
  });
  for (const int stage : {2, 3}) {
    add([&](auto& request) {
      degrees(request, 1, 2, 4);
      request.zero_stage = stage;
      request.recompute = strategies::Recompute::op;
    });
    add([&](auto& request) {
      degrees(request, 1, 1, 8);
      request.zero_stage = stage;
      request.zero_group = {2, false};
    });
  }
  for (const int stage : {1, 3}) {  // gradients in the precision of the weights
    add([&](auto& request) {
      degrees(request, stage == 3 ? 2 : 1, 1, stage == 3 ? 4 : 8);
      request.reduce_precision = Precision::bf16;
      request.zero_stage = stage;
    });
  }
  add([&](auto& request) { degrees(request, 2, 1, 4); });
  add([&](auto& request) {
    degrees(request, 2, 1, 4);
    request.precision = Precision::fp16;
    request.zero_stage = 3;
  });
  return all;
}

TEST_CASE("launch: every key that is written is in the table of options, and every row is used") {
  std::map<std::string, Keys> written;
  const auto write = [&](const experiment::Experiment& experiment, const Plan& plan) {
    for (const Trainer trainer : trainers_of(experiment.network, experiment.cluster, plan)) {
      add_keys(trainer, launch_files(trainer, experiment.network, experiment.cluster, plan),
               written[std::string(to_text(trainer))]);
    }
  };
  for (const experiment::Request& request : requests()) {
    const experiment::Experiment experiment(request);
    write(experiment, make_plan(experiment, strategies::strategy("tensor", "test")).plan);
  }
  const testing::TemporaryFolder folder;
  const auto write_layout = [&](const std::string& layout) {
    experiment::Request request = eight_gpus();
    request.tensor_parallel.reset();
    request.pipeline_parallel.reset();
    request.data_parallel.reset();
    request.micro_batches = 2;
    request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256";
    request.layout_file = folder.write("layout.toml", layout);
    const experiment::Experiment stages(request);
    write(stages, make_plan(stages, experiment::layout_strategy()).plan);
  };
  const auto stage = [](const std::string& blocks, const std::string& groups) {
    return "[[stages]]\nblocks = \"" + blocks + "\"\n" +
           (groups.empty() ? "" : "groups = " + groups + "\n");
  };
  const std::string pair = "[[\"n0.gpu0\", \"n0.gpu1\"]]", next = "[[\"n0.gpu2\", \"n0.gpu3\"]]";
  write_layout("vp = 2\n" + stage("0", pair) + stage("1", next) + stage("2", "") + stage("3", ""));
  // Replicas of which one number divides the other, and tied weights.
  write_layout(stage("0-1", pair) +
               stage("2-3", "[[\"n1.gpu0\", \"n1.gpu1\"], [\"n1.gpu2\", \"n1.gpu3\"]]"));

  const std::string path = PARSIM_SOURCE_DIR "/tests/launch/options.csv";
  const CsvTable table = read_csv(testing::read_text(path), path);
  std::map<std::string, Keys> known;
  for (const CsvTable::Row& row : table.rows) {
    CHECK(!table.at(row, "source").empty());
    CHECK(!table.at(row, "commit").empty());
    known[table.at(row, "trainer")].insert(table.at(row, "key"));
  }
  // Hydra's and the user's own.
  for (const char* key :
       {"defaults", "action", "hydra.run.dir", "experiment.envs.CUDA_DEVICE_MAX_CONNECTIONS"}) {
    written["flagscale"].erase(key);
  }
  for (const std::string_view trainer : spellings_of<Trainer>()) {
    const std::string name(trainer);
    for (const std::string& key : written[name]) {
      CHECK_MESSAGE(known[name].contains(key), name, " reads no ", key);
    }
    for (const std::string& key : known[name]) {
      CHECK_MESSAGE(written[name].contains(key), name, ": no plan here writes ", key);
    }
  }
}

TEST_CASE("launch: DeepSpeed reduces parts to their owners, which accelerate cannot ask for") {
  experiment::Request request = eight_gpus();
  request.tensor_parallel = request.pipeline_parallel = 1;
  request.data_parallel = 8;
  request.micro_batches = 1;
  request.zero_stage = 1;
  request.reduce_precision = Precision::bf16;
  const experiment::Experiment experiment(request);
  const Plan plan = make_plan(experiment, strategies::strategy("tensor", "test")).plan;
  const auto of = [&](Trainer trainer) {
    return launch_files(trainer, experiment.network, experiment.cluster, plan);
  };
  const nlohmann::json file = nlohmann::json::parse(of(Trainer::deepspeed).files.front().text);
  CHECK(file["zero_optimization"]["use_multi_rank_bucket_allreduce"] == false);
  const std::vector<std::string> lines = of(Trainer::accelerate).not_carried;
  CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("reduce-scatters of gradients: DeepSpeed all-reduces them");
  }));
}

TEST_CASE("launch: sums of gradients that Megatron-LM has no flag for are refused") {
  experiment::Request request = eight_gpus();
  request.precision = Precision::fp32;
  request.reduce_precision = Precision::bf16;
  const experiment::Experiment experiment(request);
  const Plan plan = make_plan(experiment, strategies::strategy("tensor", "test")).plan;
  for (const Trainer trainer : {Trainer::megatron, Trainer::flagscale}) {
    CHECK(testing::refusal_of([&] {
            (void)launch_files(trainer, experiment.network, experiment.cluster, plan);
          }) == "--launch: " + std::string(name_of(trainer)) +
                    " cannot run this plan: it adds up gradients in bf16, of weights in fp32; "
                    "accepted: --reduce-precision fp32");
  }
}

}  // namespace
}  // namespace parsim::report
