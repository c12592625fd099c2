#include "experiment/hardware.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/errors.hpp"
#include "core/exit_codes.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "experiment/files.hpp"

namespace parsim::experiment {

namespace {

namespace fs = std::filesystem;

/// A folder of our own that goes away with everything in it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "parsim-hw-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw InputError("TMPDIR", "cannot create a folder there", "accepted: a writable folder");
    }
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

/// $PARSIM_HW, else the build with CUDA beside this one, else the program beside this one.
std::string hardware_program() {
  if (const char* named = std::getenv("PARSIM_HW"); named != nullptr && *named != '\0') {
    return named;
  }
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& candidate : {here / ".." / "hw" / "parsim-hw", here / "parsim-hw"}) {
    if (fs::exists(candidate, ignored)) return candidate.string();
  }
  throw InputError("--hw", "the program parsim-hw was not found next to parsim",
                   "accepted: its path in the environment variable PARSIM_HW");
}

struct ChildEnd {
  int exit_code = 0;
  std::string message;
};

ChildEnd run_child(const std::vector<std::string>& words, const std::string& message_file) {
  std::vector<char*> arguments;
  std::vector<std::string> copies = words;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, message_file.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw InputError("PARSIM_HW", fmt::format("'{}' cannot be started", words[0]),
                     "accepted: the path of the program parsim-hw");
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ChildEnd end;
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream file(message_file);
  end.message.assign(std::istreambuf_iterator<char>(file), {});
  while (!end.message.empty() && end.message.back() == '\n') end.message.pop_back();
  constexpr std::string_view prefix = "parsim-hw: ";
  if (end.message.starts_with(prefix)) end.message.erase(0, prefix.size());
  return end;
}

/// Runs a verb of parsim-hw and reads what it wrote.
template <class Value>
Answer<Value> ask(const std::string& verb, const HardwareRequest& request,
                  const std::vector<ExecDag>& dags,
                  Value (*read)(const std::string& text, const std::string& where)) {
  const ScratchFolder folder;
  const std::string result = folder.file("result.json");
  std::vector<std::string> words{hardware_program(),    verb, "--backend",
                                 request.given.backend, "-o", result};
  if (!request.given.partition.empty()) {
    words.insert(words.end(), {"--partition", request.given.partition});
  }
  for (std::size_t i = 0; i < dags.size(); ++i) {
    const std::string path = folder.file(fmt::format("dag{}.json", i));
    std::ofstream(path, std::ios::binary) << to_json(dags[i]);
    words.insert(words.end(), {"--dag", path});
  }
  const ChildEnd end = run_child(words, folder.file("messages"));
  std::error_code ignored;
  // Whatever DAGs it refused, the result says so row by row.
  if (fs::exists(result, ignored) && end.exit_code > ExitCode::bug) {
    return {read(read_file(result, "parsim-hw"), "parsim-hw"), {}, end.exit_code};
  }
  switch (end.exit_code) {
    case ExitCode::ok:
      return {read(read_file(result, "parsim-hw"), "parsim-hw"), {}};
    case ExitCode::usage:
      throw InputError("parsim-hw", end.message);
    case ExitCode::hardware:
    case ExitCode::does_not_fit:
      return {std::nullopt, end.message, end.exit_code};
    default:
      throw BrokenInvariant(
          fmt::format("parsim-hw {} ended with {}: {}", verb, end.exit_code, end.message));
  }
}

/// Of each DAG the row with its network, its strategy and as many operations, or why there is none.
Measurements measured_before(const HardwareRequest& request, const std::vector<ExecDag>& dags) {
  Measurements rows{request.measured->machine, {}};
  for (const ExecDag& dag : dags) {
    Measurement none;
    none.network = dag.network.name;
    none.strategy = dag.strategy;
    none.error = fmt::format("no row of {}", request.given.measured);
    const Measurement* found = &none;
    for (const Measurement& row : request.measured->runs) {
      if (row.network != none.network || row.strategy != none.strategy) continue;
      if (row.error.empty() && row.timeline.spans.size() != dag.size()) {
        none.error = fmt::format("{} measured another plan: {} operations, here {}",
                                 request.given.measured, row.timeline.spans.size(), dag.size());
        continue;
      }
      found = &row;
      break;
    }
    rows.runs.push_back(*found);
  }
  return rows;
}

}  // namespace

HardwareRequest hardware_request(const Request& request) {
  HardwareRequest hardware{request.hw, std::nullopt};
  if (request.given.contains("--hw-partition")) {
    for (const std::string& part : split_at(request.hw.partition, ',')) {
      static_cast<void>(parse_whole(part, "--hw-partition", 1, 100'000));
    }
  }
  if (request.hw.measured.empty()) return hardware;
  for (const std::string_view flag : {"--hw-backend", "--hw-partition"}) {
    if (!request.given.contains(flag)) continue;
    throw InputError(flag,
                     "together with --hw-measured, which names the machine it was measured on",
                     "accepted: one of them");
  }
  hardware.measured =
      measurements_from_json(read_file(request.hw.measured, "--hw-measured"), request.hw.measured);
  return hardware;
}

Answer<Machine> probe_hardware(const HardwareRequest& request) {
  if (request.measured) return {request.measured->machine, {}, 0};
  return ask("probe", request, {}, machine_from_json);
}
Answer<Profile> calibrate_hardware(const HardwareRequest& request,
                                   const std::vector<ExecDag>& dags) {
  if (request.measured) {
    throw InputError("--hw-measured", "without the times of operations",
                     "accepted: together with --profile");
  }
  return ask("calibrate", request, dags, profile_from_json);
}
Answer<Measurements> measure_on_hardware(const HardwareRequest& request,
                                         const std::vector<ExecDag>& dags) {
  if (request.measured) return {measured_before(request, dags), {}, 0};
  Answer<Measurements> answer = ask("run", request, dags, measurements_from_json);
  const bool refused =
      answer.exit_code == ExitCode::hardware || answer.exit_code == ExitCode::usage;
  if (!answer.value || !refused) return answer;
  const std::vector<Measurement>& runs = answer.value->runs;
  const bool none = std::all_of(runs.begin(), runs.end(),
                                [](const Measurement& run) { return !run.error.empty(); });
  if (!none) return answer;
  // What no machine can run is a wrong question.
  if (answer.exit_code == ExitCode::usage) throw InputError("parsim-hw", runs.front().error);
  return {std::nullopt, runs.front().error, ExitCode::hardware};
}

Profile read_profile(const std::string& path, const std::optional<Machine>& here) {
  Profile profile = profile_from_json(read_file(path, "--profile"), path);
  if (!here) return profile;
  const std::string other = difference(profile.machine, *here);
  if (!other.empty()) {
    throw InputError("--profile", fmt::format("'{}' was measured with {}", path, other),
                     "accepted: a profile that 'parsim calibrate' made on this machine");
  }
  return profile;
}

HardwareRows measure_rows(const HardwareRequest& request, const Answer<Machine>& here,
                          std::vector<RunResult>& results, const std::vector<ExecDag>& dags) {
  if (!here.value) return {here.refusal, {}, {}};
  std::vector<std::size_t> rows;
  std::vector<ExecDag> run;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].error.empty()) continue;
    rows.push_back(i);
    run.push_back(dags[i]);
  }
  if (rows.empty()) return {{}, *here.value, {}};
  const Answer<Measurements> measured = measure_on_hardware(request, run);
  if (!measured.value) return {measured.refusal, *here.value, {}};
  std::vector<Timeline> timelines(results.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Measurement& row = measured.value->runs.at(r);
    RunResult& result = results[rows[r]];
    result.measured_note = row.error;
    if (!row.error.empty()) continue;
    result.measured = row.step;
    timelines[rows[r]] = row.timeline;
  }
  return {{}, measured.value->machine, std::move(timelines)};
}

}  // namespace parsim::experiment
