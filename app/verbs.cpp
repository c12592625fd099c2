#include "app/verbs.hpp"

#include <initializer_list>

namespace parsim {

namespace {

using Flags = std::vector<std::string_view>;

Flags joined(std::initializer_list<Flags> groups) {
  Flags all;
  for (const Flags& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace

const std::vector<std::string_view>& planning_flags() {
  static const Flags flags = {"--sync",    "--server", "--micro-batches", "--schedule",
                              "--bucket",  "--shares", "--rounding",      "--search-costs",
                              "--degrees", "--parts",  "--tensor",        "--budget",
                              "--costs",   "--zero",   "--recompute",     "--headroom"};
  return flags;
}

std::span<const Verb> verbs() {
  static const Flags question = {
      "--network",   "--dim",       "--cluster",          "--override",    "--strategy",
      "--batch",     "--precision", "--reduce-precision", "--optimizer",   "--fidelity",
      "--engine",    "--seed",      "--no-timings",       "--collectives", "--collective-times",
      "--algorithm", "--protocol",  "--nccl-version",     "--every-rank"};
  const Flags& planning = planning_flags();
  static const Flags disturbed = {"--jitter", "--runs", "--slow", "--interference",
                                  "--launch-interval"};
  static const Flags hardware = {"--hw", "--hw-backend", "--hw-partition", "--hw-link",
                                 "--hw-measured"};
  static const Flags page = {"--report", "--no-timeline"};
  static const std::vector<Verb> table = {
      {"compare",
       "simulate several strategies and list them side by side",
       {},
       joined({question,
               planning,
               page,
               hardware,
               disturbed,
               {"--layout", "--profile", "--scaling", "--workspaces", "--wide"}}),
       "parsim compare --network resnet50 --cluster mixed-p100-v100 --report report.html",
       run_compare},
      {"simulate",
       "simulate one strategy, or a saved plan, in detail",
       {},
       joined({question,
               planning,
               page,
               hardware,
               disturbed,
               {"--plan", "--layout", "--profile", "--trace", "--workspaces"}}),
       "parsim simulate --network vgg16 --cluster dgx-v100 --strategy data --trace trace.json",
       run_simulate},
      {"plan",
       "make a plan and write it, and its execution DAG, to files",
       {},
       joined({question, planning, {"--layout", "-o", "--dag", "--profile"}}),
       "parsim plan --network resnet50 --cluster dgx-v100 --strategy pipeline -o plan.json",
       run_plan_verb},
      {"explain",
       "say why a plan (of 'best', unless told) is as it is, and what bounds its step",
       {},
       joined({question, planning, {"--plan", "--layout", "--profile", "--top"}}),
       "parsim explain --network alexnet --cluster mixed-p100-v100 --strategy owt",
       run_explain},
      {"collective",
       "time one collective in the terms of nccl-tests",
       {{"KIND",
         "all-reduce, all-gather, reduce-scatter, broadcast, all-to-all or send-receive (from each "
         "device to the next)",
         {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all",
          "send-receive"}}},
       {"--cluster", "--override", "--devices", "--size", "--sizes", "--fidelity", "--engine",
        "--collectives", "--collective-times", "--algorithm", "--protocol", "--nccl-version"},
       "parsim collective all-reduce --cluster dgx-v100 --sizes 1KiB..1GiB",
       run_collective},
      {"list",
       "say what there is to choose from",
       {{"WHAT",
         "strategies, networks, clusters, devices or costs",
         {"strategies", "networks", "clusters", "devices", "costs"}}},
       {},
       "parsim list networks",
       run_list},
      {"show",
       "describe a network or a cluster",
       {{"WHAT", "network or cluster", {"network", "cluster"}},
        {"NAME", "a name, a file, or a generator call of a cluster", {}}},
       {"--dim", "--override"},
       "parsim show cluster star:8,device=v100-sxm2,rate=25GB/s,latency=1us",
       run_show},
      {"validate",
       "compare predictions with published numbers, or with this machine",
       {},
       joined({{"--papers", "--published", "--data", "--quick", "--report"},
               hardware,
               planning,
               {"--network", "--strategy", "--batch", "--precision", "--reduce-precision",
                "--optimizer", "--profile"}}),
       "parsim validate --papers",
       run_validate},
      {"calibrate",
       "time the operations of networks on the hardware of this machine",
       {},
       joined({planning,
               {"-o", "--hw-backend", "--hw-partition", "--hw-link", "--network", "--strategy",
                "--batch", "--precision", "--reduce-precision", "--optimizer"}}),
       "parsim calibrate -o profile.json --hw-backend host --network lenet5 --strategy data",
       run_calibrate},
      {"rerun",
       "run again what a result was made with: the same bytes, if made with --no-timings",
       {{"FILE", "what simulate or compare printed with --json", {}}},
       {},
       "parsim rerun result.json",
       run_rerun},
      {"schema",
       "print the JSON Schema of an output (its verb) or of a file",
       {{"NAME", "a verb, show-network, show-cluster, trace or a file: plan-file, dag-file, …",
         schema_names()}},
       {},
       "parsim schema compare",
       run_schema},
      {"reference",
       "print everything there is to choose from, with its numbers, as Markdown",
       {},
       {},
       "parsim reference",
       run_reference},
      {"doctor", "say what is installed and what is missing", {}, {}, "parsim doctor", run_doctor},
      {"completion",
       "print a shell's completion script, or the manual page",
       {{"SHELL", "bash or man", {"bash", "man"}}},
       {},
       "parsim completion bash",
       run_completion},
  };
  return table;
}

}  // namespace parsim
