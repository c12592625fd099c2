#include "experiment/workers.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/errors.hpp"
#include "core/processes.hpp"

namespace parsim::experiment {

namespace {

using Timer = std::chrono::steady_clock;

template <class T>
bool read_value(int pipe, T& value) {
  return read_all(pipe, std::as_writable_bytes(std::span(&value, 1))) == sizeof value;
}
template <class T>
bool write_value(int pipe, const T& value) {
  return write_all(pipe, std::as_bytes(std::span(&value, 1)));
}

/// A worker that died between two tasks must not end this process.
class NoBrokenPipes {
 public:
  NoBrokenPipes() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~NoBrokenPipes() { std::signal(SIGPIPE, before_); }
  NoBrokenPipes(const NoBrokenPipes&) = delete;
  NoBrokenPipes& operator=(const NoBrokenPipes&) = delete;

 private:
  void (*before_)(int);
};

struct Worker {
  pid_t process = -1;
  int tasks = -1, texts = -1;  ///< our ends of its pipes
  bool busy = false;
  std::size_t task = 0;
  Timer::time_point began;
  std::string read;   ///< of its answers: whether it is early, the length in 8 bytes, the text
  std::string early;  ///< the last one that is; empty: none
};
using Work = std::function<std::string(std::size_t, const SendEarly&)>;

/// The life of a worker process: a number in, texts with their lengths out, early ones first.
[[noreturn]] void serve(int tasks, int texts, const Work& work) {
  const auto write = [&](bool early, const std::string& text) {
    const std::uint64_t size = text.size();
    return write_value(texts, early) && write_value(texts, size) &&
           write_all(texts, std::as_bytes(std::span(text)));
  };
  std::size_t task = 0;
  while (read_value(tasks, task)) {
    const std::string text = work(task, [&](const std::string& so_far) {
      static_cast<void>(write(true, so_far));  // else the last one fails, too
    });
    if (!write(false, text)) break;
  }
  std::fflush(nullptr);
  ::_exit(0);
}

class Pool {
 public:
  Pool(std::span<const std::size_t> tasks, const WorkLimits& limits, const Work& work,
       const std::function<void(const TaskEnd&)>& ended,
       const std::function<void(std::size_t)>& begun)
      : tasks_(tasks), limits_(limits), work_(work), ended_(ended), begun_(begun) {}
  ~Pool() {
    for (Worker& worker : workers_) end(worker, SIGKILL);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::size_t run() {
    workers_.resize(std::min(std::max<std::size_t>(limits_.processes, 1), tasks_.size()));
    while (true) {
      bool busy = false;
      for (Worker& worker : workers_) {
        if (!worker.busy) give_task(worker);
        busy = busy || worker.busy;
      }
      if (busy && limits_.stops && is_late()) {
        for (Worker& worker : workers_) {
          if (worker.busy && !worker.early.empty()) finish(worker, std::move(worker.early), {});
        }
        return done_;
      }
      if (!busy) return done_;
      wait();
    }
  }

 private:
  [[nodiscard]] bool is_late() const {
    return limits_.all && Timer::now() - start_ >= *limits_.all;
  }
  [[nodiscard]] bool may_begin() const { return next_ < tasks_.size() && !is_late(); }

  void give_task(Worker& worker) {
    if (!may_begin()) return;
    if (worker.process < 0) start(worker);
    worker.task = tasks_[next_++];
    worker.busy = true;
    worker.began = Timer::now();
    worker.read.clear();
    worker.early.clear();
    if (begun_) begun_(worker.task);
    if (write_value(worker.tasks, worker.task)) return;
    // It died meanwhile, or waits for ever for a task that cannot reach it.
    const std::string reason = std::strerror(errno);
    end(worker, SIGKILL);
    finish(worker, {}, "no task could be sent: " + reason);
  }

  void start(Worker& worker) {
    std::array<int, 2> tasks{}, texts{};
    if (::pipe(tasks.data()) != 0) refuse();
    if (::pipe(texts.data()) != 0) refuse();
    std::fflush(nullptr);  // or the child would print it again
    const pid_t parent = ::getpid();
    worker.process = ::fork();
    if (worker.process < 0) refuse();
    if (worker.process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);  // it died before we asked
      for (const Worker& other : workers_) {
        if (other.tasks >= 0) ::close(other.tasks);  // or the other would never see its end
        if (other.texts >= 0) ::close(other.texts);
      }
      ::close(tasks[1]);
      ::close(texts[0]);
      serve(tasks[0], texts[1], work_);
    }
    ::close(tasks[0]);
    ::close(texts[1]);
    worker.tasks = tasks[1];
    worker.texts = texts[0];
  }

  [[noreturn]] static void refuse() {
    throw InputError("--jobs", fmt::format("no process can be started: {}", std::strerror(errno)),
                     "accepted: fewer");
  }

  /// Until a worker says something or has taken too long.
  void wait() {
    std::vector<pollfd> pipes;
    std::vector<Worker*> waiting;
    Seconds patience{limits_.poll ? 0.05 : 3600.0};
    const Timer::time_point now = Timer::now();
    if (limits_.poll) limits_.poll();
    if (limits_.stops && limits_.all) {
      patience = std::min<Seconds>(patience, *limits_.all - (now - start_));
    }
    for (Worker& worker : workers_) {
      if (!worker.busy) continue;
      pipes.push_back({worker.texts, POLLIN, 0});
      waiting.push_back(&worker);
      if (limits_.task) {
        patience = std::min<Seconds>(patience, *limits_.task - (now - worker.began));
      }
    }
    const double milliseconds = 1e3 * std::max(0.0, patience.count()) + 1;
    const int ready = ::poll(pipes.data(), pipes.size(), static_cast<int>(milliseconds));
    for (std::size_t i = 0; i < pipes.size() && ready > 0; ++i) {
      if (pipes[i].revents != 0) receive(*waiting[i]);
    }
    if (!limits_.task) return;
    for (Worker* worker : waiting) {
      if (!worker->busy || Timer::now() - worker->began < *limits_.task) continue;
      end(*worker, SIGKILL);
      finish(*worker, {}, fmt::format("took longer than {}", to_text(*limits_.task)));
    }
  }

  void receive(Worker& worker) {
    std::array<char, 65536> buffer;
    const ssize_t got = ::read(worker.texts, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) {
      const int status = end(worker, 0);
      finish(worker, {},
             WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                                 : fmt::format("ended with exit code {}", WEXITSTATUS(status)));
      return;
    }
    worker.read.append(buffer.data(), static_cast<std::size_t>(got));
    bool early = false;
    std::uint64_t size = 0;
    constexpr std::size_t head = sizeof early + sizeof size;
    while (worker.read.size() >= head) {
      std::memcpy(&early, worker.read.data(), sizeof early);
      std::memcpy(&size, worker.read.data() + sizeof early, sizeof size);
      if (worker.read.size() < head + size) return;
      std::string text = worker.read.substr(head, size);
      worker.read.erase(0, head + size);
      if (!early) return finish(worker, std::move(text), {});
      worker.early = std::move(text);
    }
  }

  void finish(Worker& worker, std::string text, std::string failure) {
    worker.busy = false;
    ++done_;
    ended_({worker.task, std::move(text), std::move(failure)});
  }

  /// Waits for the process, after a signal unless that is 0; returns its status.
  static int end(Worker& worker, int signal) {
    if (worker.process < 0) return 0;
    if (signal != 0) ::kill(worker.process, signal);
    ::close(worker.tasks);
    ::close(worker.texts);
    int status = 0;
    while (::waitpid(worker.process, &status, 0) < 0 && errno == EINTR) {
    }
    worker.process = -1;
    worker.tasks = worker.texts = -1;
    return status;
  }

  std::span<const std::size_t> tasks_;
  const WorkLimits& limits_;
  const Work& work_;
  const std::function<void(const TaskEnd&)>& ended_;
  const std::function<void(std::size_t)>& begun_;
  std::vector<Worker> workers_;
  std::size_t next_ = 0, done_ = 0;
  Timer::time_point start_ = Timer::now();
};

std::size_t run_here(std::span<const std::size_t> tasks, const WorkLimits& limits, const Work& work,
                     const std::function<void(const TaskEnd&)>& ended,
                     const std::function<void(std::size_t)>& begun) {
  const Timer::time_point start = Timer::now();
  std::size_t done = 0;
  for (const std::size_t task : tasks) {
    if (limits.all && Timer::now() - start >= *limits.all) break;
    if (limits.poll) limits.poll();
    if (begun) begun(task);
    ended({task, work(task, [](const std::string&) {}), {}});
    ++done;
  }
  return done;
}

}  // namespace

std::size_t run_in_workers(std::span<const std::size_t> tasks, const WorkLimits& limits,
                           const std::function<std::string(std::size_t)>& work,
                           const std::function<void(const TaskEnd&)>& ended,
                           const std::function<void(std::size_t)>& begun) {
  const Work whole = [&](std::size_t task, const SendEarly&) { return work(task); };
  return run_in_workers(tasks, limits, whole, ended, begun);
}

std::size_t run_in_workers(std::span<const std::size_t> tasks, const WorkLimits& limits,
                           const Work& work, const std::function<void(const TaskEnd&)>& ended,
                           const std::function<void(std::size_t)>& begun) {
  if (!has_one_thread()) return run_here(tasks, limits, work, ended, begun);
  const NoBrokenPipes ignored;
  return Pool(tasks, limits, work, ended, begun).run();
}

std::vector<std::string> results_at_once(std::size_t processes, std::size_t count,
                                         const std::function<std::string(std::size_t)>& work) {
  std::vector<std::size_t> tasks(count);
  std::iota(tasks.rbegin(), tasks.rend(), std::size_t{0});
  std::vector<std::string> results(count);
  WorkLimits limits;
  limits.processes = processes;
  (void)run_in_workers(tasks, limits, work, [&](const TaskEnd& end) {
    if (!end.failure.empty()) throw RefusedByMachine("not finished: " + end.failure);
    results[end.task] = end.text;
  });
  return results;
}

}  // namespace parsim::experiment
