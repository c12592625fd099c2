// parsim-hw: runs execution DAGs on the hardware of this machine. parsim starts it and exchanges
// files with it; on a closed GPU machine it is used by itself.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "core/errors.hpp"
#include "core/exit_codes.hpp"
#include "core/files.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "hw/calibrate.hpp"
#include "hw/cpu_executor.hpp"
#include "hw/cuda_executor.hpp"
#include "hw/host_executor.hpp"
#include "hw/processes.hpp"
#include "hw/tensor_slices.hpp"

namespace {

using namespace parsim;

constexpr const char* usage = R"(parsim-hw VERB [options]

  probe       describe the hardware of this machine                  -> machine
  calibrate   time every operation of the DAGs in isolation          -> profile
  run         run and time steps of the DAGs                         -> measurements
  check       compare the results of a step with the host's float64

  --dag FILE            execution DAG (parsim plan --dag); may be repeated
  --backend NAME        auto (CUDA), cuda, cpu (this machine's cores, by oneDNN) or host
                        (synthetic: sleeps in virtual time; default: auto)
  --partition N,N,...   logical devices of N multiprocessors of one GPU each, or of N cores
  --link RATE,LATENCY   throttle messages to such a link, e.g. 10GB/s,5us
  --samples N           samples per operation (default: 30 on CUDA, else 9)
  --steps N             steps per DAG (default: 30 on CUDA, else 9)
  -o FILE               output file (default: standard output)

One process runs all GPUs of its machine. Where the program is built with MPI, and started by mpirun
or srun, each device of the DAGs has a process: run, check and probe only; rank 0 writes the result.

exit codes: 0 success, 1 bug, 2 bad input, 3 hardware error, 5 a DAG does not fit in memory; of
several DAGs the first failure sets the exit code, and the others still run
)";

struct Options {
  std::string verb;
  std::map<std::string, std::vector<std::string>> values;

  [[nodiscard]] std::string text(const std::string& flag, const std::string& otherwise) const {
    const auto found = values.find(flag);
    return found == values.end() ? otherwise : found->second.back();
  }
};

Options parse(const std::vector<std::string>& words) {
  const std::vector<std::string> verbs{"probe", "calibrate", "run", "check"};
  const std::vector<std::string> flags{"--dag",     "--backend", "--partition", "--link",
                                       "--samples", "--steps",   "-o"};
  const auto known = [](const std::vector<std::string>& list, const std::string& word) {
    for (const std::string& entry : list) {
      if (entry == word) return true;
    }
    return false;
  };
  Options options;
  if (words.empty() || !known(verbs, words[0])) {
    const std::string found =
        words.empty() ? "no verb" : fmt::format("unknown verb '{}'", words[0]);
    throw InputError("command line", found,
                     fmt::format("accepted: {}{}", join(verbs),
                                 words.empty() ? "" : did_you_mean(words[0], verbs)));
  }
  options.verb = words[0];
  for (std::size_t i = 1; i < words.size(); i += 2) {
    if (!known(flags, words[i])) {
      throw InputError("command line", fmt::format("unknown option '{}'", words[i]),
                       fmt::format("accepted: {}{}", join(flags), did_you_mean(words[i], flags)));
    }
    if (i + 1 == words.size()) throw InputError(words[i], "the value is missing");
    options.values[words[i]].push_back(words[i + 1]);
  }
  return options;
}

int whole_number(const std::string& text, const std::string& where) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 1 || number > 100000) {
    throw InputError(where, fmt::format("'{}'", text), "accepted: a whole number from 1 to 100000");
  }
  return number;
}

std::vector<int> partition(const std::string& text) {
  std::vector<int> parts;
  std::size_t begin = 0;
  while (begin <= text.size() && !text.empty()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    parts.push_back(whole_number(text.substr(begin, comma - begin), "--partition"));
    begin = comma + 1;
  }
  return parts;
}

std::optional<hw::LinkThrottle> link_throttle(const Options& options) {
  const std::string text = options.text("--link", "");
  if (text.empty()) return std::nullopt;
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos) {
    throw InputError("--link", fmt::format("'{}'", text),
                     "accepted: a rate and a latency, e.g. 10GB/s,5us");
  }
  const hw::LinkThrottle link{parse_rate(text.substr(0, comma), "--link"),
                              parse_seconds(text.substr(comma + 1), "--link")};
  // The clock has whole nanoseconds in 64 bits.
  if (link.rate.value < 1e3 || link.latency > 24 * hour) {
    throw InputError("--link", fmt::format("'{}'", text),
                     "accepted: a rate of 1 kB/s or more and a latency of a day at most");
  }
  return link;
}

std::vector<ExecDag> read_dags(const Options& options) {
  const auto found = options.values.find("--dag");
  if (found == options.values.end()) {
    throw InputError("--dag", "missing", "accepted: a file of 'parsim plan --dag'");
  }
  std::vector<ExecDag> dags;
  for (const std::string& path : found->second) {
    dags.push_back(dag_from_json(read_file(path, "--dag"), path));
  }
  return dags;
}

/// Throws InputError if the output would replace a DAG.
void keep_inputs(const Options& options) {
  const std::string output = options.text("-o", std::string(standard_output));
  const auto found = options.values.find("--dag");
  if (output.empty() || output == standard_output || found == options.values.end()) return;
  for (const std::string& path : found->second) {
    // Anonymous files, in which parsim hands over a DAG and gets the answer, have no name to lose.
    std::error_code none;
    if (!same_file(path, output) || std::filesystem::hard_link_count(path, none) == 0) continue;
    throw InputError("-o", fmt::format("'{}' is also the file of --dag", output),
                     "accepted: another name");
  }
}

/// Throws InputError unless the processes can do what they are asked for and agree on it.
void check_launch(hw::Processes& processes, const Options& options,
                  const std::vector<ExecDag>& dags) {
  const bool on_gpus = options.text("--backend", "auto") != "host";
  for (const auto& [what, given] :
       {std::pair{"calibrate", options.verb == "calibrate"},
        std::pair{"--partition of a GPU", on_gpus && options.values.contains("--partition")},
        std::pair{"--link between GPUs", on_gpus && options.values.contains("--link")},
        std::pair{"--backend cpu", options.text("--backend", "auto") == "cpu"}}) {
    if (!given) continue;
    throw InputError("MPI", fmt::format("{} processes", processes.size()),
                     fmt::format("accepted: one process with {}", what));
  }
  int devices = 0;  // of the largest plan: smaller ones leave some processes without work
  for (const ExecDag& dag : dags) devices = std::max(devices, hw::stores(dag).devices);
  if (!dags.empty() && devices != processes.size()) {
    throw InputError("MPI",
                     fmt::format("{} processes, and the largest plan uses {} device{}",
                                 processes.size(), devices, devices == 1 ? "" : "s"),
                     "accepted: one process for each device, or one for all");
  }
  std::string order = options.verb;
  for (const auto& [flag, values] : options.values) {
    if (flag != "--dag" && flag != "-o") order += fmt::format(" {} {}", flag, join(values));
  }
  for (const ExecDag& dag : dags) order += fmt::format(" {:016x}", fnv1a(to_json(dag)));
  if (processes.broadcast(order) != order) {
    throw InputError("MPI",
                     fmt::format("rank {} has other options or DAGs than rank 0", processes.rank()),
                     "accepted: the same on every rank");
  }
}

/// Allocates nothing.
int lack_memory() noexcept {
  static_cast<void>(write_text(stderr, "parsim-hw: this machine is out of memory\n"));
  return ExitCode::hardware;
}

/// A message that cannot be written has no other place to go.
void complain(const std::string& message) {
  static_cast<void>(write_text(stderr, "parsim-hw: " + message + "\n"));
}

/// What the verb asks of this machine. One of several processes speaks for all.
template <class Executed>
int answer(Executed& machine, const Options& options, const std::vector<ExecDag>& dags,
           bool speaks) {
  // Opened before hours of measuring.
  std::optional<OutputFile> file;
  if (speaks) file.emplace(options.text("-o", std::string(standard_output)), "-o");
  const auto say = [&](const std::string& text) {
    if (file) file->commit(text);
  };
  const Machine& here = machine.hardware().machine;
  const auto count = [&](const char* flag) {
    return whole_number(options.text(flag, here.backend == "cuda" ? "30" : "9"), flag);
  };
  if (options.verb == "probe") {
    say(to_json(here));
    return 0;
  }
  if (options.verb == "calibrate") {
    say(to_json(hw::calibrate(machine, dags, count("--samples"))));
    return 0;
  }
  if (options.verb == "check") {
    std::string report;
    for (const ExecDag& dag : dags) {
      const std::string difference = machine.check(dag);
      report += fmt::format("{} {}: {}\n", dag.network.name, dag.strategy,
                            difference.empty() ? "equal within the tolerance" : difference);
      if (!difference.empty()) throw hw::HardwareError(report);
    }
    say(report);
    return 0;
  }
  const hw::Runs runs = hw::measure(machine, dags, count("--steps"));
  say(to_json(runs.measured));
  for (const Measurement& row : runs.measured.runs) {
    if (row.error.empty() || !speaks) continue;
    complain(fmt::format("{} {}: {}", row.network, row.strategy, row.error));
  }
  return runs.exit_code;
}

/// `processes` is where those of the launch go.
int run(const std::vector<std::string>& words, std::unique_ptr<hw::Processes>& processes) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    print_text(stdout, usage);
    return ExitCode::ok;
  }
  const Options options = parse(words);
  const std::string backend = options.text("--backend", "auto");
  const std::vector<std::string> backends{"auto", "cuda", "cpu", "host"};
  if (std::find(backends.begin(), backends.end(), backend) == backends.end()) {
    throw InputError(
        "--backend", fmt::format("'{}'", backend),
        fmt::format("accepted: {}{}", join(backends), did_you_mean(backend, backends)));
  }
  const std::vector<int> parts = partition(options.text("--partition", ""));
  const std::optional<hw::LinkThrottle> link = link_throttle(options);
  if (link && backend == "cpu") {
    throw InputError("--link", "with --backend cpu, whose messages are copies in memory",
                     "accepted: --backend cuda or host");
  }
  processes = hw::Processes::launched();
  const std::vector<ExecDag> dags =
      options.verb == "probe" ? std::vector<ExecDag>{} : read_dags(options);
  keep_inputs(options);
  if (processes != nullptr) check_launch(*processes, options, dags);
  const auto on = [&](auto machine) {
    return answer(machine, options, dags, processes == nullptr || processes->rank() == 0);
  };
  if (backend == "cpu") return on(hw::CpuExecutor(parts));
  return backend == "host" ? on(hw::HostExecutor(parts, link, processes.get()))
                           : on(hw::CudaExecutor(parts, link, processes.get()));
}

}  // namespace

int main(int count, char** words) {
  protect_standard_streams();
  std::set_terminate([] {
    if (ended_by_lack_of_memory()) ::_exit(lack_memory());
    std::abort();
  });
  std::unique_ptr<hw::Processes> processes;
  const auto end = [&](int code) {
    if (processes != nullptr) processes->abort(code);  // the others would wait for this one
    return code;
  };
  const auto fail = [&](int code, const char* kind, const std::string& message) {
    complain(kind + message);
    return end(code);
  };
  try {
    return run(std::vector<std::string>(words + (count > 0 ? 1 : 0), words + count), processes);
  } catch (const InputError& error) {
    return fail(ExitCode::usage, "", error.what());
  } catch (const hw::HardwareError& error) {
    return fail(ExitCode::hardware, "", error.what());
  } catch (const hw::MemoryError& error) {
    return fail(ExitCode::does_not_fit, "", error.what());
  } catch (const std::bad_alloc&) {
    return end(lack_memory());
  } catch (const std::system_error& error) {
    return fail(ExitCode::hardware, "the system refused: ", error.what());
  } catch (const std::exception& error) {
    return fail(ExitCode::bug, "bug: ", error.what());
  }
}
