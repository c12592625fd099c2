#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <new>
#include <optional>
#include <system_error>

#include "app/measured_rows.hpp"
#include "app/verbs.hpp"
#include "app/work_options.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/comparison.hpp"
#include "experiment/files.hpp"
#include "experiment/progress.hpp"
#include "experiment/workers.hpp"
#include "report/runs.hpp"
#include "report/sweep.hpp"
#include "report/sweep_merge.hpp"

namespace parsim::app {

namespace {

experiment::Shard shard_of(const experiment::Arguments& arguments) {
  if (const std::optional<std::string> text = arguments.text("--shard")) {
    return experiment::parse_shard(*text);
  }
  return experiment::shard_of_environment([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

/// How long the whole call may take.
struct Limit {
  std::optional<Seconds> all;  ///< --time-limit
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  /// Not below 0; nothing without a limit.
  [[nodiscard]] std::optional<Seconds> left() const {
    if (!all) return std::nullopt;
    const Seconds left = *all - (std::chrono::steady_clock::now() - start);
    return std::max(Seconds{0}, left);
  }
};

experiment::Sweep sweep_of(const experiment::Arguments& arguments, const Limit& limit) {
  if (arguments.words.size() > 1) {
    throw InputError("sweep", fmt::format("unexpected argument '{}'", arguments.words[1]),
                     "accepted: one file, or --merge and several");
  }
  const std::string& file = arguments.words.front();
  return experiment::read_sweep(read_file(file, "sweep"), file, report::build_version(), [&] {
    if (arguments.poll) arguments.poll();
    if (!limit.all || limit.left() > Seconds{0}) return;
    throw InputError("--time-limit",
                     fmt::format("{} are over before all points are numbered", to_text(*limit.all)),
                     "accepted: more time, or fewer points");
  });
}

/// How a point ended; the first character of what its worker hands back.
enum class PointEnd : char { fits = '+', unfit = 'u', failed = 'f', unfinished = 'n' };

std::string ended(PointEnd end, const std::string& line) {
  return std::string(1, static_cast<char>(end)) + line;
}

/// The line of a point. The point's failure is its result: other points do not depend on it.
std::string run_point(const experiment::Sweep& sweep, std::size_t point) {
  const auto failed = [&](const std::string& error) {
    return ended(PointEnd::failed, report::point_line(sweep, point, error, false));
  };
  const auto unfinished = [&](const std::string& reason) {
    return ended(PointEnd::unfinished, report::point_line(sweep, point, reason, true));
  };
  try {
    experiment::Request request = experiment::make_request(sweep.arguments(sweep.points[point]));
    fit_measured_steps(request);
    const experiment::Experiment experiment(request);
    const std::vector<experiment::RunResult> results = experiment::compare(experiment);
    const bool fits =
        std::any_of(results.begin(), results.end(),
                    [](const experiment::RunResult& result) { return result.fits(); });
    return ended(fits ? PointEnd::fits : PointEnd::unfit,
                 report::point_line(sweep, point, results));
  } catch (const InputError& error) {
    return failed(error.what());
  } catch (const RefusedByMachine& error) {
    return unfinished(error.what());
  } catch (const SimulationError& error) {
    return failed(fmt::format("simulation did not finish: {}", error.what()));
  } catch (const std::bad_alloc&) {
    return unfinished("out of memory");
  } catch (const std::system_error& error) {
    return unfinished(error.what());
  } catch (const std::exception& error) {
    return failed(fmt::format("bug: {}", error.what()));
  }
}

/// What run_point returned, or the same of a point whose worker died.
std::string text_of(const experiment::Sweep& sweep, const experiment::TaskEnd& end) {
  if (end.failure.empty()) return end.text;
  return ended(PointEnd::unfinished,
               report::point_line(sweep, end.task, "not finished: " + end.failure, true));
}

/// Keeps the error of the first point without results.
void note_error(std::string& first, const std::string& text) {
  const auto how = static_cast<PointEnd>(text.front());
  if (first.empty() && (how == PointEnd::failed || how == PointEnd::unfinished)) {
    first = report::error_of(text.substr(1));
  }
}

std::vector<std::size_t> points_of(const experiment::Shard& shard, const experiment::Sweep& sweep) {
  std::vector<std::size_t> points;
  for (std::size_t p = 0; p < sweep.points.size(); ++p) {
    if (shard.has(p)) points.push_back(p);
  }
  return points;
}

/// A few different points, evenly chosen: by steps of the golden ratio, for a step that divides the
/// number of values of some axes finds the same value of these each time.
std::vector<std::size_t> sample_of(const std::vector<std::size_t>& points) {
  constexpr std::size_t most_sampled = 5;
  constexpr double golden = 0.6180339887498949;
  std::vector<std::size_t> sample;
  for (std::size_t i = 0; i < std::min(most_sampled, points.size()); ++i) {
    const double turns = golden * (static_cast<double>(i) + 0.5);
    const double part = turns - std::floor(turns);
    sample.push_back(points[static_cast<std::size_t>(part * static_cast<double>(points.size()))]);
  }
  return sample;
}

/// Runs a few points for the estimate of the time.
Outcome dry_run(const experiment::Sweep& sweep, const experiment::Shard& shard, std::size_t jobs) {
  constexpr Seconds enough{3.0}, longest{10.0};
  const std::vector<std::size_t> sample = sample_of(points_of(shard, sweep));
  report::SampledPoints tried;
  const auto start = std::chrono::steady_clock::now();
  tried.tried = experiment::run_in_workers(
      sample, {1, enough, longest}, [&](std::size_t point) { return run_point(sweep, point); },
      [&](const experiment::TaskEnd& end) {
        const std::string text = text_of(sweep, end);
        const auto how = static_cast<PointEnd>(text.front());
        tried.unfit += how == PointEnd::unfit ? 1 : 0;
        tried.failed += how == PointEnd::failed || how == PointEnd::unfinished ? 1 : 0;
        note_error(tried.first_error, text);
      });
  if (tried.tried > 0) {
    tried.each = (std::chrono::steady_clock::now() - start) / static_cast<double>(tried.tried);
  }
  return {report::report_points(sweep, shard, tried, jobs)};
}

Outcome compute(const experiment::Arguments& arguments, const experiment::Sweep& sweep,
                const experiment::Shard& shard, std::size_t jobs, const Limit& limit) {
  const std::optional<std::string> folder = arguments.text("-o");
  if (!folder) {
    throw InputError("-o", "missing", "accepted: a folder for the results, or --dry-run");
  }
  experiment::WorkLimits limits{jobs, limit.all, time_argument(arguments, "--point-time-limit")};
  limits.poll = arguments.poll;
  if (limits.processes > 1) check_may_fork("--jobs");
  if (limits.all) check_may_fork("--time-limit");
  if (limits.task) check_may_fork("--point-time-limit");
  experiment::make_folder(*folder, "-o");
  const std::vector<bool> done = experiment::points_done(*folder, sweep);
  report::SweepProgress progress;
  progress.shard = shard;
  progress.results_file = *folder + "/" + experiment::results_name(shard.index, shard.count);
  experiment::ResultsFile results(progress.results_file, experiment::header_of(sweep));
  std::vector<std::size_t> points = points_of(shard, sweep);
  progress.in_shard = points.size();
  std::erase_if(points, [&](std::size_t point) { return done[point]; });
  progress.before = progress.in_shard - points.size();
  experiment::Progress shown(points.size(), arguments.has("--quiet"));
  shown.next("");
  limits.all = limit.left();
  progress.now = experiment::run_in_workers(
      points, limits, [&](std::size_t point) { return run_point(sweep, point); },
      [&](const experiment::TaskEnd& end) {
        const std::string text = text_of(sweep, end);
        results.append(text.substr(1));
        const auto how = static_cast<PointEnd>(text.front());
        progress.unfit += how == PointEnd::unfit ? 1 : 0;
        progress.failed += how == PointEnd::failed ? 1 : 0;
        progress.unfinished += how == PointEnd::unfinished ? 1 : 0;
        note_error(progress.first_error, text);
        shown.next(fmt::format("last: point {}", end.task));
      });
  return {report::report_sweep(sweep, progress)};
}

/// "a,b".
std::vector<std::string> columns_of(const std::optional<std::string>& text) {
  return text ? split_at(*text, ',') : std::vector<std::string>{};
}

Outcome merge(const experiment::Arguments& arguments) {
  constexpr std::int64_t most_rows = 1'000'000;
  for (const std::string_view flag :
       {"--jobs", "--shard", "--dry-run", "--time-limit", "--point-time-limit"}) {
    if (arguments.has(flag)) {
      throw InputError(flag, "together with --merge, which computes nothing",
                       "accepted: one of them");
    }
  }
  report::MergeRequest request;
  request.paths = arguments.words;
  request.output = arguments.text("-o").value_or("");
  if (const auto top = arguments.number("--top", 1, most_rows)) {
    request.top = static_cast<std::size_t>(*top);
  }
  request.by = arguments.text("--by").value_or("");
  request.pareto = columns_of(arguments.text("--pareto"));
  request.where = arguments.texts("--where");
  request.page = arguments.text("--report").value_or("");
  request.command = arguments.command;
  if (request.page.ends_with(".tex")) {
    throw InputError("--report", fmt::format("'{}'", request.page),
                     "accepted with 'sweep': an HTML file");
  }
  constexpr std::size_t rows_with_page = 10;
  if (!request.page.empty() && !request.top && request.pareto.empty()) {
    request.top = rows_with_page;
  }
  if (!request.where.empty() && request.output.empty() && !request.top && request.pareto.empty()) {
    throw InputError("--where", "unused without -o, --top, --pareto and --report",
                     "accepted: together with one of them");
  }
  report::MergeReport merged = report::merge_results(request);
  return {std::move(merged.document),
          merged.nothing_listed ? ExitCode::does_not_fit : ExitCode::ok};
}

}  // namespace

Outcome run_sweep(const experiment::Arguments& arguments) {
  if (arguments.has("--merge")) return merge(arguments);
  for (const std::string_view flag : {"--top", "--by", "--pareto", "--where", "--report"}) {
    if (arguments.has(flag)) {
      throw InputError(flag, "unused without --merge", "accepted: together with --merge");
    }
  }
  const Limit limit{time_argument(arguments, "--time-limit")};
  const experiment::Sweep sweep = sweep_of(arguments, limit);
  const experiment::Shard shard = shard_of(arguments);
  const std::size_t jobs = jobs_argument(arguments).value_or(1);
  return arguments.has("--dry-run") ? dry_run(sweep, shard, jobs)
                                    : compute(arguments, sweep, shard, jobs, limit);
}

}  // namespace parsim::app
