// The fields of what sweep --json prints: what was computed, with --dry-run the points, with
// --merge the table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/result_text.hpp"

namespace parsim::report {

struct ShardReport {
  std::size_t index = 1, count = 1;
  std::optional<std::string> source{};
  std::size_t points = 0;
};
void fields(auto& visit, json::Of<ShardReport> auto& shard) {
  visit("index", shard.index, from_one);
  visit("count", shard.count, from_one);
  visit("source", shard.source, "what says which shard this is; null: nothing");
  visit("points", shard.points, any_count);
}

struct ComputedReport {
  std::string sweep{};
  std::size_t points = 1;
  ShardReport shard{};
  std::size_t done = 0, now = 0, unfit = 0, failed = 0, unfinished = 0;
  std::optional<std::string> first_error{};
  std::string results_file{}, version{};
};
void fields(auto& visit, json::Of<ComputedReport> auto& report) {
  visit("sweep", report.sweep);
  visit("points", report.points, from_one);
  visit("shard", report.shard);
  visit("done", report.done, Rule(any_count, "points of the shard"));
  visit("done_now", report.now, Rule(any_count, "by this call; the next three are of these"));
  visit("unfit_now", report.unfit, Rule(any_count, "that fit with no strategy"));
  visit("failed_now", report.failed, Rule(any_count, "that have an error instead of results"));
  visit("unfinished_now", report.unfinished, Rule(any_count, "that the next call tries again"));
  visit("first_error", report.first_error, "of a point of this call without results");
  visit("results_file", report.results_file);
  visit("version", report.version);
}

struct PointReport {
  std::size_t point = 0;
  std::string id{};
  OpenObject inputs{};
};
void fields(auto& visit, json::Of<PointReport> auto& point) {
  visit("point", point.point, any_count);
  visit("id", point.id);
  visit("inputs", point.inputs, "values of the sweep's columns");
}

struct PointsReport {
  std::string sweep{};
  std::vector<PointReport> points{};
  std::size_t skipped = 0, repeated = 0;
  std::optional<Seconds> time{};
  std::size_t tried = 0, failed = 0, unfit = 0;
  std::optional<std::string> first_error{};
  std::string version{};
};
void fields(auto& visit, json::Of<PointsReport> auto& report) {
  visit("sweep", report.sweep);
  visit("points", report.points);
  visit("skipped", report.skipped, Rule(any_count, "by filters"));
  visit("repeated", report.repeated, Rule(any_count, "that repeat others"));
  visit("estimated_time_s", report.time);
  visit("tried", report.tried, Rule(any_count, "points that ran for the estimate"));
  visit("tried_failed", report.failed, Rule(any_count, "of these, without results"));
  visit("tried_unfit", report.unfit, Rule(any_count, "of these, that fit with no strategy"));
  visit("first_error", report.first_error, "of those without results");
  visit("version", report.version);
}

struct RankedReport {
  std::vector<OpenObject> rows{};
};
void fields(auto& visit, json::Of<RankedReport> auto& ranked) { visit("rows", ranked.rows); }

struct MergedReport {
  std::string sweep{};
  std::size_t points = 1, files = 1;
  std::vector<std::size_t> missing{}, repeated{}, unfinished{};
  std::optional<std::string> output{};
  std::optional<RankedReport> ranked{};  ///< of --top and --pareto
  std::string version{};
};
void fields(auto& visit, json::Of<MergedReport> auto& report) {
  visit("sweep", report.sweep);
  visit("points", report.points, from_one);
  visit("files", report.files, from_one);
  visit("missing", report.missing, any_count);
  visit("repeated", report.repeated, any_count);
  visit("unfinished", report.unfinished, any_count);
  visit("output", report.output);
  visit.together(report.ranked);
  visit("version", report.version);
}

}  // namespace parsim::report
