// Processes that work on tasks, the files that results go to, and which shard a process is.
#include "experiment/workers.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/errors.hpp"
#include "experiment/results_file.hpp"
#include "experiment/shard.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {
namespace {

using testing::refusal_of;

std::vector<std::size_t> tasks_up_to(std::size_t count) {
  std::vector<std::size_t> tasks(count);
  std::iota(tasks.begin(), tasks.end(), 0);
  return tasks;
}

struct Outcome {
  std::size_t done = 0;
  std::map<std::size_t, TaskEnd> ends;
};
Outcome outcome_of(std::size_t count, const WorkLimits& limits,
                   const std::function<std::string(std::size_t)>& work) {
  Outcome outcome;
  outcome.done = run_in_workers(tasks_up_to(count), limits, work, [&](const TaskEnd& end) {
    CHECK(outcome.ends.emplace(end.task, end).second);
  });
  return outcome;
}

TEST_CASE("workers: results at once come in order, or the reason why one is missing") {
  const auto square = [](std::size_t i) { return std::to_string(i * i); };
  for (const std::size_t processes : {1, 2, 7}) {
    CHECK(results_at_once(processes, 4, square) == std::vector<std::string>{"0", "1", "4", "9"});
  }
  CHECK(results_at_once(2, 0, square).empty());
  CHECK_THROWS_WITH_AS(static_cast<void>(results_at_once(2, 3,
                                                         [&](std::size_t i) {
                                                           if (i == 1) ::kill(::getpid(), SIGKILL);
                                                           return square(i);
                                                         })),
                       "not finished: killed by signal 9", RefusedByMachine);
}

TEST_CASE("workers: every task's text comes back, short or long, from any number of processes") {
  // Larger than what a pipe holds, and empty ones.
  const auto text_of = [](std::size_t task) {
    return std::string(task % 3 == 0 ? 0 : task * 20'000, static_cast<char>('a' + task));
  };
  for (const std::size_t processes : {1U, 2U, 5U, 50U}) {
    const Outcome outcome = outcome_of(12, {processes, {}, {}}, text_of);
    CHECK(outcome.done == 12);
    for (std::size_t task = 0; task < 12; ++task) {
      CHECK(outcome.ends.at(task).text == text_of(task));
      CHECK(outcome.ends.at(task).failure.empty());
    }
  }
  CHECK(outcome_of(0, {3, {}, {}}, text_of).done == 0);
}

TEST_CASE("workers: a process that is killed, exits or takes too long costs its task alone") {
  const Outcome outcome = outcome_of(8, {2, {}, Seconds{1.0}}, [](std::size_t task) -> std::string {
    if (task == 2) ::kill(::getpid(), SIGKILL);
    if (task == 3) ::_exit(7);
    if (task == 5) ::sleep(60);
    return "done";
  });
  CHECK(outcome.done == 8);
  for (const auto& [task, end] : outcome.ends) {
    CAPTURE(task);
    CHECK(end.failure == (task == 2   ? "killed by signal 9"
                          : task == 3 ? "ended with exit code 7"
                          : task == 5 ? "took longer than 1.00 s"
                                      : ""));
    CHECK(end.text == (end.failure.empty() ? "done" : ""));
  }
}

TEST_CASE("workers: no task begins after the limit of time") {
  const Outcome outcome = outcome_of(1000, {2, Seconds{0.05}, {}}, [](std::size_t) {
    ::usleep(10'000);
    return std::string("done");
  });
  CHECK(outcome.done < 1000);
  CHECK(outcome.done == outcome.ends.size());
  CHECK(outcome_of(3, {1, Seconds{0}, {}}, [](std::size_t) { return std::string(); }).done == 0);
}

TEST_CASE("workers: at the limit of time, tasks are stopped where that is asked") {
  WorkLimits limits{2, Seconds{0.5}, {}};
  limits.stops = true;
  const Outcome outcome = outcome_of(3, limits, [](std::size_t task) {
    if (task > 0) ::sleep(600);
    return std::string("done");
  });
  CHECK(outcome.done == 1);
  CHECK(outcome.ends.at(0).text == "done");
}

TEST_CASE("workers: at the limit of time a task ends with the last text that it sent early") {
  WorkLimits limits{3, Seconds{0.5}, {}};
  limits.stops = true;
  std::map<std::size_t, std::string> texts;
  const std::vector<std::size_t> tasks{0, 1, 2};
  const std::size_t done = run_in_workers(
      tasks, limits,
      [](std::size_t task, const SendEarly& send_early) {
        if (task > 0) send_early("first");
        if (task == 2) send_early(std::string(100'000, 'x'));  // more than a pipe holds
        if (task != 1) ::sleep(600);
        return std::string("whole");
      },
      [&](const TaskEnd& end) { texts[end.task] = end.text; });
  CHECK(done == 2);
  CHECK(texts == std::map<std::size_t, std::string>{{1, "whole"}, {2, std::string(100'000, 'x')}});
}

TEST_CASE("workers: what the caller's poll throws ends all work") {
  struct GivenUp {};
  WorkLimits limits{2, {}, {}};
  limits.poll = [polls = 0]() mutable {
    if (++polls > 2) throw GivenUp();
  };
  CHECK_THROWS_AS(static_cast<void>(outcome_of(3, limits,
                                               [](std::size_t) {
                                                 ::sleep(600);
                                                 return std::string();
                                               })),
                  GivenUp);
}

TEST_CASE("workers: in a process with threads work is done there") {
  std::vector<std::size_t> ended;
  const pid_t process = ::getpid();
  std::thread([&] {
    const std::vector<std::size_t> tasks{4, 2, 7};
    const WorkLimits limits{3, {}, Seconds{1e-9}};
    const std::size_t done = run_in_workers(
        tasks, limits,
        [&](std::size_t task) { return std::string(::getpid() == process ? task : 0, 'x'); },
        [&](const TaskEnd& end) {
          CHECK(end.failure.empty());
          CHECK(end.text == std::string(end.task, 'x'));
          ended.push_back(end.task);
        });
    CHECK(done == 3);
    CHECK(run_in_workers(
              tasks, {1, Seconds{0}, {}}, [](std::size_t) { return std::string(); },
              [](const TaskEnd&) { FAIL("late"); }) == 0);
  }).join();
  CHECK(ended == std::vector<std::size_t>{4, 2, 7});
}

TEST_CASE("shard: every point has one, whatever their number") {
  for (std::size_t count = 1; count <= 7; ++count) {
    for (std::size_t point = 0; point < 20; ++point) {
      std::size_t owners = 0;
      for (std::size_t index = 0; index < count; ++index) {
        owners += Shard{index, count, {}}.has(point) ? 1 : 0;
      }
      CHECK(owners == 1);
    }
  }
}

TEST_CASE("shard: as written, and refusals") {
  const Shard shard = parse_shard("3/4");
  CHECK(shard.index == 2);
  CHECK(shard.count == 4);
  for (const char* wrong : {"0/4", "5/4", "1", "a/4", "1/0", "1/", "/4", "-1/4", "1/4/2"}) {
    CAPTURE(wrong);
    CHECK(refusal_of([&] { return parse_shard(wrong); }).starts_with("--shard: "));
  }
}

TEST_CASE("shard: launchers' variables") {
  using Environment = std::map<std::string, std::string>;
  const auto shard_in = [](const Environment& environment) {
    return shard_of_environment([&](const char* name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      return found == environment.end() ? std::nullopt : std::optional(found->second);
    });
  };
  const auto text_of = [&](const Environment& environment) {
    const Shard shard = shard_in(environment);
    return std::to_string(shard.index) + "/" + std::to_string(shard.count) + " " + shard.source;
  };
  CHECK(text_of({}) == "0/1 ");
  CHECK(text_of({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}) ==
        "2/4 OMPI_COMM_WORLD_RANK");
  CHECK(text_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}) == "0/3 PMI_RANK");
  CHECK(text_of({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}}) == "5/8 SLURM_PROCID");
  // A batch script has these two, but is no process of a step.
  CHECK(text_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}) == "0/1 ");
  // mpirun within a Slurm job.
  CHECK(text_of({{"OMPI_COMM_WORLD_RANK", "3"},
                 {"OMPI_COMM_WORLD_SIZE", "4"},
                 {"SLURM_PROCID", "1"},
                 {"SLURM_STEP_NUM_TASKS", "2"}}) == "3/4 OMPI_COMM_WORLD_RANK");
  // --array=10-22:4 has the tasks 10, 14, 18, 22.
  const Environment array = {{"SLURM_ARRAY_TASK_ID", "18"},
                             {"SLURM_ARRAY_TASK_COUNT", "4"},
                             {"SLURM_ARRAY_TASK_MIN", "10"},
                             {"SLURM_ARRAY_TASK_STEP", "4"}};
  CHECK(text_of(array) == "2/4 SLURM_ARRAY_TASK_ID");
  Environment first_task = array;
  first_task["SLURM_ARRAY_TASK_ID"] = "10";
  CHECK(text_of(first_task) == "0/4 SLURM_ARRAY_TASK_ID");
  Environment both = array;
  both.merge(Environment{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  CHECK(text_of(both) == "5/8 SLURM_ARRAY_TASK_ID and SLURM_PROCID");
  CHECK(refusal_of([&] {
          return shard_in({{"PMI_RANK", "3"}, {"PMI_SIZE", "3"}});
        }).starts_with("PMI_RANK: 3 of 3"));
  CHECK(refusal_of([&] { return shard_in({{"PMI_SIZE", "3"}}); }).starts_with("PMI_RANK: not set"));
  CHECK(refusal_of([&] {
          return shard_in({{"PMI_RANK", "x"}, {"PMI_SIZE", "3"}});
        }).starts_with("PMI_RANK: 'x'"));
}

const ResultsHeader header{"0123456789abcdef", "1", 5, {"batch"}};

std::string point_line(std::size_t point, bool nondeterministic = false) {
  return line_start({point, "id" + std::to_string(point), nondeterministic}) +
         ",\"inputs\":{},\"results\":[],\"error\":null}";
}

TEST_CASE("results file: whatever a kill left of the last line is dropped") {
  const std::string whole =
      header_line(header) + "\n" + point_line(3) + "\n" + point_line(1) + "\n";
  const std::size_t header_end = header_line(header).size() + 1;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const testing::TemporaryFolder folder;
    const std::string path = folder.write("results.1-of-1.jsonl", whole.substr(0, size));
    { ResultsFile(path, header).append(point_line(2)); }
    std::string kept = whole.substr(0, size);
    kept.resize(kept.rfind('\n') == std::string::npos ? 0 : kept.rfind('\n') + 1);
    if (size < header_end) kept = header_line(header) + "\n";
    CHECK(testing::read_text(path) == kept + point_line(2) + "\n");
  }
}

TEST_CASE("results file: what is read is what was appended") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("results.1-of-1.jsonl");
  ResultsFile(path, header).append(point_line(4, true));
  ResultsReader reader(path, "test");
  REQUIRE(reader.header());
  CHECK(*reader.header() == header);
  const auto start = reader.next();
  REQUIRE(start);
  CHECK(start->point == 4);
  CHECK(start->id == "id4");
  CHECK(start->nondeterministic);
  CHECK_FALSE(reader.next());
}

TEST_CASE("results file: other files, other sweeps and a second writer are refused") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("results.1-of-1.jsonl");
  const auto refused = [&](const ResultsHeader& of) {
    return refusal_of([&] {
      const ResultsFile file(path, of);
      return 0;
    });
  };
  CHECK(refused(header) == "accepted");
  ResultsHeader other = header;
  other.sweep = "fedcba9876543210";
  CHECK(refused(other).find("results of another sweep (0123456789abcdef, not fedcba") !=
        std::string::npos);
  other.version = "2";
  CHECK(refused(other).find("results of parsim 1, not 2") != std::string::npos);
  folder.write("results.1-of-1.jsonl", header_line(header) + "\n{\"point\":9}\n");
  CHECK(refused(header).starts_with(path + ":2: not a line of a sweep's results"));
  ResultsHeader longer = header;
  longer.points = header.points + 1;
  folder.write("results.1-of-1.jsonl", header_line(header) + "\n");
  CHECK(refused(longer).starts_with(path + ": results with another number of points"));
  // What --merge could not read is refused here, too: that point would never be computed again.
  const std::string deep = ",\"inputs\":{\"a\":" + std::string(65, '[') + std::string(65, ']') +
                           "},\"results\":[],\"error\":null}";
  for (const char* rest :
       {deep.c_str(), R"(,"inputs":{},"results":5,"error":null})",
        R"(,"inputs":{},"results":[5],"error":null})",
        R"(,"inputs":{},"results":[{"a":NaN}],"error":null})",
        R"(,"inputs":{},"results":[{"a":1e999}],"error":null})",
        R"(,"inputs":[],"results":[],"error":null})", R"(,"inputs":{},"results":[],"error":5})",
        R"(,"inputs":{},"error":null})", ",\"inputs\":{},\"results\":[],\"error\":\"\xff\"}"}) {
    CAPTURE(rest);
    folder.write("results.1-of-1.jsonl", header_line(header) + "\n" + point_line(2) + "\n" +
                                             line_start({1, "id1"}) + rest + "\n");
    CHECK(refused(header).starts_with(path + ":3: not a line of a sweep's results"));
  }
  folder.write("results.1-of-1.jsonl", "batch,time\n");
  CHECK(refused(header).starts_with(path + ":1: not the first line of a sweep's results"));
  // As many points as a sweep may have: their places are kept.
  ResultsHeader vast = header;
  vast.points = most_points + 1;
  folder.write("results.1-of-1.jsonl", header_line(vast) + "\n");
  CHECK(refused(vast).starts_with(path + ":1: not the first line of a sweep's results"));
  CHECK(refusal_of([] {
          return ResultsReader("/dev/zero", "test").header();
        }).starts_with("/dev/zero:1: a line of more than 64 MiB"));
  folder.write("results.1-of-1.jsonl", "");
  const ResultsFile writer(path, header);
  // The lock is this process's own: another one meets it.
  const Outcome outcome = outcome_of(1, {1, {}, {}}, [&](std::size_t) { return refused(header); });
  CHECK(outcome.ends.at(0).text.starts_with("--shard: another process is writing '" + path));
}

}  // namespace
}  // namespace parsim::experiment
