// Standard streams that are closed or full, in both programs: a message that cannot be written
// changes no exit code, a result that cannot be written is never silently lost.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/program.hpp"

namespace parsim::app {
namespace {

using testing::Finished;

const std::string parsim_itself = PARSIM_PROGRAM;
const std::string parsim_hw = parsim_itself.substr(0, parsim_itself.rfind('/')) + "/parsim-hw";
const std::string plan_lenet =
    parsim_itself + " plan --network lenet5 --cluster star:2,device=t4 --strategy data";

Finished shell(const std::string& command, const std::string& directory = {}) {
  return testing::run_program("/bin/bash", {"-c", command}, directory);
}

TEST_CASE("streams: an error message that cannot be written leaves the exit code") {
  for (const std::string& one : {parsim_itself, parsim_hw}) {
    CHECK(shell(one + " nonsense 2>/dev/full").exit_code == 2);
    CHECK(shell(one + " nonsense 2>&-").exit_code == 2);
    CHECK(shell(one + " nonsense >&- 2>&- <&-").exit_code == 2);
  }
}

TEST_CASE("streams: parsim-hw refuses links that its clock cannot count") {
  const testing::TemporaryFolder folder;
  REQUIRE(shell(plan_lenet + " -o plan.json --dag dag.json", folder.folder()).exit_code == 0);
  const std::string run = parsim_hw + " run --backend host --partition 4,4 --dag dag.json --link ";
  for (const char* link : {"1e-5B/s,1us", "1GB/s,1e10s"}) {
    const Finished finished = shell(run + link, folder.folder());
    CHECK(finished.exit_code == 2);
    CHECK(finished.err.find("accepted: a rate of 1 kB/s or more") != std::string::npos);
  }
}

TEST_CASE("streams: parsim-hw does not replace the DAG that it reads") {
  const testing::TemporaryFolder folder;
  REQUIRE(shell(plan_lenet + " -o plan.json --dag dag.json", folder.folder()).exit_code == 0);
  for (const std::string verb : {"run", "calibrate"}) {
    const Finished finished = shell(
        parsim_hw + " " + verb + " --backend host --dag dag.json -o ./dag.json", folder.folder());
    CHECK(finished.exit_code == 2);
    CHECK(finished.err ==
          "parsim-hw: -o: './dag.json' is also the file of --dag; accepted: another name\n");
  }
}

TEST_CASE("streams: a refusal is one line, also of names with newlines") {
  const Finished finished = shell(parsim_itself + " show network $'a\\nparsim: all is well'");
  CHECK(finished.exit_code == 2);
  CHECK(finished.err.find("a?parsim: all is well") != std::string::npos);
  CHECK(finished.err.find('\n') == finished.err.size() - 1);
}

TEST_CASE("streams: a result that cannot be written is a sentence and exit code 2") {
  for (const std::string& command : {parsim_itself + " list strategies", parsim_itself + " --help",
                                     parsim_hw + " probe --backend host", parsim_hw + " --help"}) {
    CAPTURE(command);
    for (const char* where : {">/dev/full", ">&-"}) {
      const Finished finished = shell(command + where);
      CHECK(finished.exit_code == 2);
      CHECK(finished.err.find("standard output") != std::string::npos);
    }
  }
}

TEST_CASE("streams: what goes to a closed standard output is not written into a file") {
  const testing::TemporaryFolder folder;
  CHECK(shell(plan_lenet + " -o plan.json --dag dag.json >&- <&-", folder.folder()).exit_code == 2);
  for (const char* name : {"plan.json", "dag.json"}) {
    CHECK(nlohmann::json::accept(testing::read_text(folder.path(name))));
  }
  CHECK(folder.names().size() == 2);
}

TEST_CASE("streams: a file that is standard output under another name keeps the report, too") {
  const testing::TemporaryFolder folder;
  for (const char* name : {"/dev/stdout", "all"}) {
    CHECK(shell(plan_lenet + " -o " + name + " > all", folder.folder()).exit_code == 0);
    const std::string text = testing::read_text(folder.path("all"));
    CHECK(text.starts_with("{\n"));
    CHECK(text.find("plan written to ") != std::string::npos);
  }
}

TEST_CASE("streams: an output that is an input of the command is refused, and the input stays") {
  const testing::TemporaryFolder folder;
  const std::string at = parsim_itself + " ";
  CHECK(shell(plan_lenet + " -o p.json && cp p.json q.json", folder.folder()).exit_code == 0);
  // A command that was added to by hand: what writes files is not recorded.
  const std::string record =
      "--json > r.json && sed -i 's/\"--json\"/\"--report\", \"r.json\"/' r.json";
  CHECK(shell(at + "simulate --network lenet5 --cluster star:2,device=t4 --strategy data " + record,
              folder.folder())
            .exit_code == 0);
  folder.write("c.toml", "name = \"c\"\n");
  const std::string result = testing::read_text(folder.path("r.json"));
  for (const auto& [command, refusal] : std::vector<std::pair<std::string, std::string>>{
           {"simulate --plan p.json --trace ./p.json",
            "--trace: './p.json' is also the file of --plan"},
           {"simulate --network lenet5 --cluster c.toml --strategy data --report c.toml",
            "--report: 'c.toml' is also the file of --cluster"},
           {"plan --plan p.json -o p.json", "-o: 'p.json' is also the file of --plan"},
           {"rerun r.json", "--report: 'r.json' is also the file of rerun"}}) {
    CAPTURE(command);
    const Finished finished = shell(at + command, folder.folder());
    CHECK(finished.exit_code == 2);
    CHECK(finished.err == "parsim: " + refusal + "; accepted: another name\n");
  }
  CHECK(testing::read_text(folder.path("p.json")) == testing::read_text(folder.path("q.json")));
  CHECK(testing::read_text(folder.path("r.json")) == result);
  CHECK(testing::read_text(folder.path("c.toml")) == "name = \"c\"\n");
}

TEST_CASE("streams: an output that the command reads because of another input is refused") {
  const testing::TemporaryFolder folder;
  const std::string at = parsim_itself + " ", mlp = " --network mlp --strategy data ",
                    star = "--network mlp --strategy data --cluster star:2,device=t4 ";
  folder.write("topo.txt", "\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV1\t X \n");
  folder.write("imp.toml",
               "name = \"c\"\n[[nodes]]\nname = \"n\"\nimport = \"topo.txt,device=t4\"\n");
  folder.write("imp.json",
               "{\"name\": \"c\", \"nodes\": [{\"name\": \"n\", \"import\": "
               "\"topo.txt,device=t4\"}]}");
  folder.write("nt.txt", "times\n");
  std::filesystem::create_directories(folder.path("m"));
  folder.write("m/config.json", "{}\n");
  std::filesystem::create_directories(folder.path("d"));
  folder.write("d/run.sh", "x --tensor-model-parallel-size 2\n");
  folder.write("d/hostfile", "n0 slots=2\n");
  std::filesystem::create_directories(folder.path("s"));
  folder.write("s/results.1-of-1.jsonl", "{}\n");
  const std::vector<std::string> names = folder.names();
  for (const auto& [command, refusal] : std::vector<std::pair<std::string, std::string>>{
           {"plan" + mlp + "--cluster imp.toml -o topo.txt",
            "-o: 'topo.txt' is also the file of --cluster"},
           {"plan" + mlp + "--cluster imp.json -o topo.txt",
            "-o: 'topo.txt' is also the file of --cluster"},
           {"plan" + mlp + "--cluster topo.txt,device=t4 -o topo.txt",
            "-o: 'topo.txt' is also the file of --cluster"},
           {"plan --network m --strategy data --cluster star:2,device=t4 -o m/config.json",
            "-o: 'm/config.json' is also the file of --network"},
           {"simulate " + star +
                "--collectives measured --collective-times all-reduce:nt.txt "
                "--trace nt.txt",
            "--trace: 'nt.txt' is also the file of --collective-times"},
           {"simulate " + star + "--plan d --report d/run.sh",
            "--report: 'd/run.sh' is also the file of --plan"},
           {"simulate " + star + "--plan d/run.sh --report d/hostfile",
            "--report: 'd/hostfile' is also the file of --plan"},
           {"sweep --merge s -o s/results.1-of-1.jsonl",
            "-o: 's/results.1-of-1.jsonl' is also the file of sweep"}}) {
    CAPTURE(command);
    const Finished finished = shell(at + command, folder.folder());
    CHECK(finished.exit_code == 2);
    CHECK(finished.err == "parsim: " + refusal + "; accepted: another name\n");
  }
  CHECK(folder.names() == names);
}

TEST_CASE("streams: launch files replace those of parsim, no input and nothing of the user's") {
  const testing::TemporaryFolder folder;
  const std::string job =
                        " --network gpt:layers=2,hidden=64,heads=2 --cluster "
                        "nodes:1x2,device=t4 --engine fast ",
                    plan = parsim_itself + " plan" + job;
  std::filesystem::create_directories(folder.path("proj"));
  const std::string script = "torchrun x.py --tensor-model-parallel-size 2 --bf16\n";
  folder.write("proj/run.sh", script);
  folder.write("proj/README.md", "mine\n");
  const auto refused = [&](const std::string& more) {
    const Finished finished = shell(plan + more, folder.folder());
    CHECK(finished.exit_code == 2);
    CHECK(testing::read_text(folder.path("proj/run.sh")) == script);
    return finished.err;
  };
  const std::string there =
      "parsim: -o: 'proj/run.sh' is there, not written by parsim; accepted: "
      "another folder, or one without it\n";
  CHECK(refused("--plan proj/run.sh --launch megatron -o proj") == there);
  CHECK(refused("--strategy data --launch megatron -o proj") == there);
  CHECK(testing::read_text(folder.path("proj/README.md")) == "mine\n");
  // Its own may be replaced, unless --plan reads them.
  CHECK(shell(plan + "--strategy data --launch megatron -o ours", folder.folder()).exit_code == 0);
  CHECK(shell(plan + "--strategy data --launch megatron -o ours", folder.folder()).exit_code == 0);
  CHECK(
      refused("--plan ours/run.sh --launch megatron -o ours").find("is also the file of --plan") !=
      std::string::npos);
  CHECK(refused("--plan proj/run.sh --launch megatron --smpi both -o both --collectives ideal") ==
        "parsim: -o: 'both/hostfile' is also the file of --smpi; accepted: another name\n");
  CHECK(folder.names() == std::vector<std::string>{"ours", "proj"});
}

TEST_CASE("streams: a limit of file sizes is a sentence, not a signal") {
  const testing::TemporaryFolder folder;
  const Finished finished = shell("ulimit -f 1; " + plan_lenet + " -o plan.json", folder.folder());
  CHECK(finished.exit_code == 2);
  CHECK(finished.err.find("-o: cannot write 'plan.json': File too large") != std::string::npos);
  CHECK(folder.names().empty());
}

TEST_CASE("streams: a file of launch files that cannot be written leaves none of the others") {
  const testing::TemporaryFolder folder;
  const std::string launch = parsim_itself +
                             " plan --network gpt:layers=2,hidden=64,heads=2 --cluster "
                             "star:2,device=t4 --engine fast --strategy data --launch megatron -o ";
  // The last file is the plan: a folder has its name.
  const Finished finished = shell("mkdir -p out/plan.json; " + launch + "out", folder.folder());
  CHECK(finished.exit_code == 2);
  CHECK(finished.err.find("'out/plan.json': it is a directory") != std::string::npos);
  CHECK(shell("ls -A out", folder.folder()).out == "plan.json\n");
  // A disk that is full: the new folder goes, too.
  CHECK(shell("ulimit -f 1; " + launch + "fresh", folder.folder()).exit_code == 2);
  CHECK(folder.names() == std::vector<std::string>{"out"});
  CHECK(shell(launch + "fresh", folder.folder()).exit_code == 0);
  CHECK(shell("ls -A fresh", folder.folder()).out == "README.md\nhostfile\nplan.json\nrun.sh\n");
}

}  // namespace
}  // namespace parsim::app
