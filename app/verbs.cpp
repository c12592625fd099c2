#include "app/verbs.hpp"

namespace parsim {

std::span<const Verb> verbs() {
  static const std::vector<Verb> table = {
      {"compare",
       "simulate several strategies and list them side by side",
       {},
       {"--network",       "--dim",       "--cluster",   "--override", "--strategy",
        "--batch",         "--precision", "--optimizer", "--sync",     "--server",
        "--micro-batches", "--schedule",  "--bucket",    "--shares",   "--rounding",
        "--search-costs",  "--parts",     "--budget",    "--fidelity", "--collectives",
        "--seed",          "--no-timings"},
       run_compare},
      {"simulate",
       "simulate one strategy, or a saved plan, in detail",
       {},
       {"--network",     "--dim",           "--cluster",   "--override",  "--strategy",
        "--plan",        "--batch",         "--precision", "--optimizer", "--sync",
        "--server",      "--micro-batches", "--schedule",  "--bucket",    "--shares",
        "--rounding",    "--search-costs",  "--parts",     "--budget",    "--fidelity",
        "--collectives", "--seed",          "--trace",     "--no-timings"},
       run_simulate},
      {"plan",
       "make a plan and write it, and its execution DAG, to files",
       {},
       {"--network",       "--dim",       "--cluster",   "--override",  "--strategy",
        "--batch",         "--precision", "--optimizer", "--sync",      "--server",
        "--micro-batches", "--schedule",  "--bucket",    "--shares",    "--rounding",
        "--search-costs",  "--parts",     "--budget",    "--fidelity",  "--collectives",
        "--seed",          "-o",          "--dag",       "--no-timings"},
       run_plan_verb},
      {"collective",
       "time one collective in the terms of nccl-tests",
       {{"KIND", "all-reduce, all-gather, reduce-scatter, broadcast or all-to-all"}},
       {"--cluster", "--override", "--devices", "--size", "--sizes", "--fidelity", "--collectives"},
       run_collective},
      {"list",
       "say what there is to choose from",
       {{"WHAT", "strategies, networks, clusters or devices"}},
       {},
       run_list},
      {"show",
       "describe a network or a cluster",
       {{"WHAT", "network or cluster"},
        {"NAME", "a name, a file, or a generator call of a cluster"}},
       {"--dim", "--override"},
       run_show},
      {"validate", "compare predictions with published numbers", {}, {"--papers"}, run_validate},
  };
  return table;
}

}  // namespace parsim
