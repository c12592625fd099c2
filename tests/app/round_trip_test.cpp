// Files that the program writes for other programs, and reads of them, through the command line.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/approx.hpp"
#include "tests/support/dot.hpp"
#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

testing::Finished command(const std::vector<std::string>& words) {
  return testing::run_program(PARSIM_PROGRAM, words);
}

TEST_CASE("round trip: a cluster that went out to SimGrid's XML and in again costs the same time") {
  const testing::TemporaryFolder folder;
  for (const std::string cluster : {"dgx-v100", "mixed-p100-v100"}) {
    CAPTURE(cluster);
    const testing::Finished xml = command({"show", "cluster", cluster, "--format", "simgrid"});
    REQUIRE(xml.exit_code == 0);
    const auto simulated = [](const std::string& name) {
      const testing::Finished run = command({"simulate", "--network", "alexnet", "--cluster", name,
                                             "--strategy", "data", "--no-timings", "--json"});
      REQUIRE(run.exit_code == 0);
      nlohmann::json result = nlohmann::json::parse(run.out);
      result.erase("inputs");
      return result;
    };
    CHECK(simulated(folder.write("back.xml", xml.out)) == simulated(cluster));
  }
}

TEST_CASE("round trip: --dag writes DOT if the name says so") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("dag.dot");
  REQUIRE(command({"plan", "--network", "lenet5", "--cluster", "star:2,device=t4,rate=1GB/s",
                   "--strategy", "data", "--dag", path})
              .exit_code == 0);
  const testing::DotText graph = testing::parse_dot(testing::read_text(path));
  CHECK(graph.error == "");
  CHECK(graph.name == "data");
  CHECK(graph.boxes > 50);
}

TEST_CASE("round trip: what a foreign file leaves open is said, and not twice") {
  const std::string smi = PARSIM_SOURCE_DIR "/tests/topologies/data/smi/dgx-a100.txt";
  const testing::Finished run =
      command({"simulate", "--network", "lenet5", "--cluster", smi, "--strategy", "data"});
  CHECK(run.exit_code == 0);
  const std::string guess = "type guessed from 12 NVLinks to every other GPU";
  const std::size_t at = run.err.find(guess);
  CHECK(at != std::string::npos);
  CHECK(run.err.find(guess, at + 1) == std::string::npos);
}

TEST_CASE("round trip: a plan knows the extents of the network in a file that has changed since") {
  const testing::TemporaryFolder folder;
  const auto write = [&](const char* width) {
    return folder.write(
        "config.json",
        std::string(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                                        "num_attention_heads": 4, "vocab_size": 128,
                                        "max_position_embeddings": 32, "intermediate_size": )") +
            width + "}");
  };
  const std::string plan = folder.path("plan.json");
  const std::string network = write("96");
  REQUIRE(command({"plan", "--network", network, "--cluster", "star:2,device=t4,rate=1GB/s",
                   "--strategy", "data", "-o", plan})
              .exit_code == 0);
  const auto changed = [&] {
    const testing::Finished run = command({"simulate", "--network", network, "--plan", plan});
    CHECK(run.exit_code == 0);
    return run.err.find("of other extents") != std::string::npos;
  };
  CHECK_FALSE(changed());
  write("192");
  CHECK(changed());
}

const std::vector<std::string> small_gpt = {
    "--network", "gpt:layers=4,hidden=256,heads=4,seq_length=128,vocab_size=1024",
    "--cluster", "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=3GB/s",
    "--engine",  "fast"};

testing::Finished of_small_gpt(std::vector<std::string> words, const std::string& folder) {
  words.insert(words.end(), small_gpt.begin(), small_gpt.end());
  return testing::run_program(PARSIM_PROGRAM, words, folder);
}

TEST_CASE("round trip: of Megatron-LM's pipelines sends that it waits for are predicted") {
  const testing::TemporaryFolder folder;
  const auto json = [&](const std::vector<std::string>& words) {
    const testing::Finished run = of_small_gpt(words, folder.folder());
    CAPTURE(run.err);
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  const std::vector<std::string> plan{
      "plan", "--strategy", "tensor", "--tp",     "1",        "--pp", "4",   "--micro-batches",
      "8",    "--batch",    "16",     "--launch", "megatron", "-o",   "out", "--json"};
  const double carried = json(plan)["launch"]["carried_step_time_s"];
  CHECK(json({"simulate", "--plan", "out", "--json"})["step_time_s"] ==
        testing::approx(carried).epsilon(1e-9));
  // Other rows are compared as the same trainer sends.
  const std::vector<std::string> pipeline{"--strategy", "tensor", "--tp",  "1",
                                          "--pp",       "4",      "--json"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), pipeline.begin(), pipeline.end());
    return json(words);
  };
  const nlohmann::json rows = with({"compare", "--plan", "out"})["results"];
  const double waits = with({"simulate", "--batch", "16", "--pipeline-sends", "blocking",
                             "--fusion", "megatron"})["step_time_s"];
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["strategy"] == "tensor");
  CHECK(rows[0]["step_time_s"] == testing::approx(waits).epsilon(1e-9));
  // A plan whose sends overlap is faster, but not under Megatron-LM.
  std::vector<std::string> overlapped = plan;
  overlapped.insert(overlapped.end(), {"--pipeline-sends", "overlapped"});
  CHECK(json(overlapped)["launch"]["carried_step_time_s"] ==
        testing::approx(carried).epsilon(1e-9));
  CHECK(json({"simulate", "--plan", "out/plan.json", "--json"})["step_time_s"] < 0.95 * carried);
}

TEST_CASE("round trip: a plan of parsim is launched as the strategy that made it") {
  const testing::TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& words) {
    return of_small_gpt(words, folder.folder());
  };
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::vector<std::string> launch{"--launch", "megatron", "-o"};
  const std::vector<std::string> pipeline{
      "plan",    "--strategy", "tensor",          "--tp", "2", "--pp", "2",
      "--batch", "16",         "--micro-batches", "4"};
  REQUIRE(run(with(pipeline, {"-o", "plan.json"})).exit_code == 0);
  REQUIRE(run(with(with({"plan", "--plan", "plan.json"}, launch), {"of_plan"})).exit_code == 0);
  REQUIRE(run(with(with(pipeline, launch), {"of_strategy"})).exit_code == 0);
  const auto script = [&](const std::string& name) {
    return testing::read_text(folder.path(name + "/run.sh"));
  };
  CHECK(script("of_plan") == script("of_strategy"));
  // Refused as with --strategy, too.
  const std::vector<std::string> owt{"plan", "--strategy", "owt", "--batch", "16"};
  REQUIRE(run(with(owt, {"-o", "owt.json"})).exit_code == 0);
  const testing::Finished refused = run(with(with({"plan", "--plan", "owt.json"}, launch), {"no"}));
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("--launch: Megatron-LM cannot run this plan") != std::string::npos);
  std::string of_plan = refused.err;
  const std::string_view instead = " without --plan";
  const std::size_t at = of_plan.find(instead);
  REQUIRE(at != std::string::npos);
  of_plan.erase(at, instead.size());
  CHECK(of_plan == run(with(with(owt, launch), {"no"})).err);
}

TEST_CASE("round trip: the step that launch files are predicted to take is that of reading them") {
  // Buckets of 100 KiB, which no file carries: the prediction is that of the usual ones.
  const testing::TemporaryFolder folder;
  const testing::Finished plan =
      of_small_gpt({"plan", "--strategy", "data", "--bucket", "100KiB", "--batch", "16",
                    "--precision", "bf16", "--optimizer", "adam", "--recompute", "full", "--launch",
                    "deepspeed", "-o", "out", "--json"},
                   folder.folder());
  REQUIRE(plan.exit_code == 0);
  const double carried = nlohmann::json::parse(plan.out)["launch"]["carried_step_time_s"];
  const auto step = [&](const std::vector<std::string>& words) -> double {
    const testing::Finished run = of_small_gpt(words, folder.folder());
    CAPTURE(run.err);
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out)["step_time_s"];
  };
  CHECK(step({"simulate", "--plan", "out", "--recompute", "full", "--optimizer", "adam",
              "--json"}) == testing::approx(carried).epsilon(1e-9));
  CHECK(step({"simulate", "--plan", "out/plan.json", "--json"}) > 1.01 * carried);
  const std::string readme = testing::read_text(folder.path("out/README.md"));
  CHECK(readme.find("\nPredicted by parsim, not measured: ") != std::string::npos);
  CHECK(readme.find(" with the gradient buckets of the plan) a step.\n") != std::string::npos);
  CHECK(readme.find("\n- recomputation (full): switch it on in the model") != std::string::npos);
  // What the file leaves open is not assumed silently.
  const testing::Finished bare = of_small_gpt({"simulate", "--plan", "out"}, folder.folder());
  CHECK(bare.out.find("out/ds_config.json leaves to the script, and here is assumed: Adam "
                      "(--optimizer); no activation recomputation (--recompute full, if the model "
                      "does)") != std::string::npos);
}

TEST_CASE("round trip: launch files are predicted with the vocabulary that their trainer pads") {
  for (const char* tensor : {"1", "4"}) {
    CAPTURE(tensor);
    const testing::TemporaryFolder folder;
    const std::vector<std::string> question{
        "--network", "gpt:layers=2,hidden=512,heads=8,seq_length=256,vocab_size=1001",
        "--cluster", "nodes:1x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s",
        "--fusion",  "megatron",
        "--json"};
    const auto run = [&](std::vector<std::string> words) {
      words.insert(words.end(), question.begin(), question.end());
      const testing::Finished done = testing::run_program(PARSIM_PROGRAM, words, folder.folder());
      CAPTURE(done.err);
      REQUIRE(done.exit_code == 0);
      return nlohmann::json::parse(done.out);
    };
    const std::vector<std::string> plan{"plan", "--strategy",  "tensor",  "--tp", tensor,
                                        "--pp", "1",           "--batch", "8",    "--precision",
                                        "bf16", "--optimizer", "adam"};
    std::vector<std::string> launch = plan;
    launch.insert(launch.end(), {"--launch", "megatron", "-o", "out"});
    const double carried = run(launch)["launch"]["carried_step_time_s"];
    CHECK(run({"simulate", "--plan", "out"})["step_time_s"] ==
          testing::approx(carried).epsilon(1e-9));
    CHECK(run({"simulate", "--plan", "out/plan.json"})["step_time_s"] != carried);
    const std::string readme = testing::read_text(folder.path("out/README.md"));
    CHECK(readme.find(" a vocabulary of 1001 words) a step.\n") != std::string::npos);
    CHECK(readme.find("- a vocabulary of 1001: Megatron-LM pads it to 1024") != std::string::npos);
  }
}

TEST_CASE("round trip: JSON has the notes about a trainer's file, in the row of its plan") {
  const testing::TemporaryFolder folder;
  folder.write("ds.json", "{\"train_batch_size\": 16, \"zero_optimization\": {\"stage\": 2}}");
  const auto said = [](const nlohmann::json& row) {
    const std::string notes = row["notes"].dump();
    return std::pair(notes.find("ds.json: DeepSpeed all-reduces gradients") != std::string::npos,
                     notes.find("ds.json leaves to the script") != std::string::npos);
  };
  const auto asked = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--plan", "ds.json", "--json"});
    const testing::Finished run = of_small_gpt(words, folder.folder());
    CAPTURE(run.err);
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  CHECK(said(asked({"simulate"})) == std::pair(true, true));
  CHECK(said(asked({"explain"})) == std::pair(true, true));
  const nlohmann::json results = asked({"compare", "--strategy", "data"})["results"];
  REQUIRE(results.size() == 2);
  for (const nlohmann::json& row : results) {
    CAPTURE(row["strategy"]);
    CHECK(said(row).first == (row["strategy"] == "layout"));
    CHECK(said(row).second == (row["strategy"] == "layout"));
  }
}

TEST_CASE("round trip: compare says what is gained over a plan of its own file") {
  const testing::TemporaryFolder folder;
  REQUIRE(of_small_gpt({"plan", "--strategy", "data", "--batch", "16", "--recompute", "full", "-o",
                        "plan.json"},
                       folder.folder())
              .exit_code == 0);
  // The plan names network and cluster, and decides the batch.
  const auto compare = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"compare", "--plan",     "plan.json", "--engine",
                                      "fast",    "--strategy", "data",      "--no-timings"};
    words.insert(words.end(), more.begin(), more.end());
    return testing::run_program(PARSIM_PROGRAM, words, folder.folder());
  };
  const testing::Finished finished = compare({"--json"});
  CAPTURE(finished.err);
  REQUIRE(finished.exit_code == 0);
  const nlohmann::json answer = nlohmann::json::parse(finished.out);
  const nlohmann::json& gained = answer["gained"];
  CHECK(gained["against"] == "layout");
  CHECK(gained["best"] == "data");
  CHECK(gained["changes"] == nlohmann::json{"recomputation none instead of full"});
  CHECK(gained["trainer"] == nullptr);
  const double best = answer["results"][0]["step_time_s"],
               mine = answer["results"][1]["step_time_s"];
  CHECK(gained["seconds"].get<double>() == testing::approx(mine - best));
  CHECK(gained["ratio"].get<double>() == testing::approx(mine / best));
  CHECK(compare({}).out.find("against your run (tp 1 x pp 1 x dp 4, recompute full): ") !=
        std::string::npos);
  CHECK(compare({"--report", "page.html"}).exit_code == 0);
  CHECK(testing::read_text(folder.path("page.html")).find("recomputation none instead of full") !=
        std::string::npos);
  CHECK(compare({"--batch", "8"}).err ==
        "parsim: --batch: plan.json decides it; accepted: one of the two\n");
}

}  // namespace
}  // namespace parsim::app
