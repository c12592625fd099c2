// The fields of two jobs on one cluster, of simulate --beside.
#pragma once

#include "experiment/two_jobs.hpp"
#include "report/result_text.hpp"

namespace parsim::report {

struct SharingJobRow {
  experiment::SharingJob job{};
};
void fields(auto& visit, json::Of<SharingJobRow> auto& row) {
  const experiment::SharingJob& job = row.job;
  visit("network", job.network);
  visit("strategy", job.strategy);
  visit("devices", job.devices, from_one);
  visit("fits", job.fits, "in memory");
  visit("alone_s", job.alone, "a step while the other job does not run");
  visit("together_s", job.together, "the mean of steps while it does");
  visit("steps", job.steps, Rule(from_one, "that the mean is of"));
  visit("loss", job.loss(), "together_s / alone_s - 1");
}
struct TwoJobsRow {
  experiment::TwoJobs jobs{};
};
void fields(auto& visit, json::Of<TwoJobsRow> auto& row) {
  visit("first", SharingJobRow{row.jobs.first}, "the job of the result");
  visit("second", SharingJobRow{row.jobs.second}, "that of the file");
}

}  // namespace parsim::report
