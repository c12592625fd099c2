#include "experiment/hardware.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>

#include "core/errors.hpp"
#include "core/exit_codes.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/text.hpp"

namespace parsim::experiment {

namespace {

namespace fs = std::filesystem;

/// What the launchers that parsim-hw knows set (hw/processes.cpp, hw/mpi.cpp).
constexpr std::string_view launcher_variables[] = {"OMPI_", "PMI_", "PMIX_",
                                                   "SLURM_STEP_NUM_TASKS=", "WORLD_SIZE="};

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
  std::optional<int> exit_code;  ///< nothing: a signal
  std::string message;
};

/// The environment without what mpirun, srun or torchrun said to this process: the child is alone.
std::vector<std::string> child_environment() {
  std::vector<std::string> kept;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const bool of_launcher =
        std::any_of(std::begin(launcher_variables), std::end(launcher_variables),
                    [&](std::string_view prefix) { return variable.starts_with(prefix); });
    if (!of_launcher) kept.emplace_back(variable);
  }
  return kept;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

[[noreturn]] void refuse_start(const std::string& program, int error) {
  throw InputError("PARSIM_HW",
                   fmt::format("'{}' cannot be started: {}", program, std::strerror(error)),
                   "accepted: the path of the program parsim-hw");
}

/// Runs a program to its end. It gets SIGTERM when this process ends before, in any way, so that a
/// GPU is free again; mpirun hands it on to its ranks.
ChildEnd run_child(std::vector<std::string> words) {
  const MemoryFile messages;
  std::vector<std::string> settings = child_environment();
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(settings);
  std::array<int, 2> failure{};
  if (::pipe2(failure.data(), O_CLOEXEC) != 0) refuse_start(words[0], errno);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {  // async-signal-safe calls only: this process may have other threads
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(ExitCode::hardware);  // it died before we asked
    if (::dup2(messages.descriptor(), STDERR_FILENO) >= 0) {
      ::execve(arguments[0], arguments.data(), environment.data());
    }
    const int error = errno;
    [[maybe_unused]] const auto written = ::write(failure[1], &error, sizeof error);
    ::_exit(ExitCode::hardware);
  }
  int error = child < 0 ? errno : 0;
  ::close(failure[1]);
  if (child > 0 && ::read(failure[0], &error, sizeof error) != sizeof error) error = 0;
  ::close(failure[0]);
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (error != 0) refuse_start(words[0], error);
  ChildEnd end;
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  end.message = messages.text();
  while (!end.message.empty() && end.message.back() == '\n') end.message.pop_back();
  constexpr std::string_view prefix = "parsim-hw: ";
  if (end.message.starts_with(prefix)) end.message.erase(0, prefix.size());
  if (WIFSIGNALED(status)) {
    end.message =
        fmt::format("parsim-hw was ended by signal {} ({}){}{}", WTERMSIG(status),
                    ::strsignal(WTERMSIG(status)), end.message.empty() ? "" : ": ", end.message);
  }
  return end;
}

/// Runs a verb of parsim-hw and reads what it wrote.
template <class Value>
Answer<Value> ask(const std::string& verb, const HardwareRequest& request,
                  const std::vector<ExecDag>& dags,
                  Value (*read)(const std::string& text, const std::string& where)) {
  const MemoryFile result;
  std::vector<std::string> words{hardware_program(),    verb, "--backend",
                                 request.given.backend, "-o", result.path()};
  if (!request.given.partition.empty()) {
    words.insert(words.end(), {"--partition", request.given.partition});
  }
  std::deque<MemoryFile> files;
  for (const ExecDag& dag : dags) {
    words.insert(words.end(), {"--dag", files.emplace_back(to_json(dag)).path()});
  }
  const ChildEnd end = run_child(words);
  if (!end.exit_code) return {std::nullopt, end.message, ExitCode::hardware};
  // Of the loader that lacks a library, or of a shell: the program itself has not begun.
  constexpr int not_executable = 126, not_loaded = 127;
  if (*end.exit_code == not_executable || *end.exit_code == not_loaded) {
    return {std::nullopt,
            fmt::format("parsim-hw cannot be started{}{}", end.message.empty() ? "" : ": ",
                        end.message),
            ExitCode::hardware};
  }
  const std::string text = result.text();
  // Whatever DAGs it refused, the result says so row by row.
  if (!text.empty() && *end.exit_code > ExitCode::bug) {
    return {read(text, "parsim-hw"), {}, *end.exit_code};
  }
  switch (*end.exit_code) {
    case ExitCode::ok:
      return {read(text, "parsim-hw"), {}};
    case ExitCode::usage:
      throw InputError("parsim-hw", end.message);
    case ExitCode::hardware:
    case ExitCode::does_not_fit:
      return {std::nullopt, end.message, *end.exit_code};
    default:
      throw BrokenInvariant(
          fmt::format("parsim-hw {} ended with {}: {}", verb, *end.exit_code, end.message));
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
      if (const std::string here = settings_of(dag);
          !row.settings.empty() && row.settings != here) {
        none.error = fmt::format("{} measured {}, here it is {}", request.given.measured,
                                 row.settings, here);
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

Profile read_profile(const std::string& text, const std::string& path,
                     const std::optional<Machine>& here) {
  Profile profile = profile_from_json(text, path);
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
    for (const std::int64_t bytes : row.device_bytes) result.measured_bytes.emplace_back(bytes);
    timelines[rows[r]] = row.timeline;
  }
  return {{}, measured.value->machine, std::move(timelines)};
}

}  // namespace parsim::experiment
