#!/usr/bin/env bash
# Runs benchmarks once for the checks that they make of their own results; with PARSIM_LONG=1 all but
# the largest.
#
#   tests/bench/check.sh BENCH
set -o pipefail
large='/(4096|16384)/|every_rank/1024/'
slow='|best/(inception|gpt2)|/128$|/(256|512)/|lower_chain|partition_.*/([2-9]|1[0-9])/|search/.*_on_(16|64)|exhaustive/(lenet5_all|alexnet)|/1024/([248]|16)0'
[[ -n ${PARSIM_LONG-} ]] && slow=
"$1" --benchmark_min_time=0.001 --benchmark_filter="-$large$slow" | tee /dev/stderr |
  awk '/ERROR OCCURRED/{bad = 1} / (ns|us|ms|s) /{++runs} END{exit bad || runs < 15}'
