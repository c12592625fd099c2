#!/usr/bin/env bash
# Shows that check.sh accepts a good tree and answers each breach with exactly its one line.
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P) || exit 1
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
failures=0

# put FILE TEXT: writes a file of the small tree; sources hold something of their namespace.
put() {
  mkdir -p "$(dirname "$tree/$1")" && printf '%b' "$2" > "$tree/$1"
  [[ $1 != *.?pp && $1 != *.cu ]] || printf 'namespace parsim::%s {}\n' "${1%%/*}" >> "$tree/$1"
}

good_tree() {
  rm -rf "$tree" && mkdir "$tree"
  local folder
  for folder in core networks topologies lowering sim hw strategies experiment validation report app tests \
    cmake; do
    put "$folder/README.md" "what lives here\n"
  done
  put README.md 'what it is\n'
  put docs/README.md 'what to read\n'
  put docs/tutorial.md 'a long text\n'
  put docs/report.png 'a picture\n'
  put CMakeLists.txt 'library(INTERFACE lowering/lower.hpp\n sim/sim.hpp)\n'
  put strategies/a.cpp '#include "lowering/lower.hpp"\n'
  put report/page/a.cpp '#include "experiment/run.hpp"\n#include "validation/groups.hpp"\n'
  put core/plan.hpp '#include <vector>\n#include <fmt/core.h>\n#include "core/ids.hpp"\n'
  put core/json.cpp '#include <nlohmann/json.hpp>\n#include <boost/graph/adjacency_list.hpp>\n'
  put sim/run.cpp '#include <sys/wait.h>\n#include <simgrid/s4u.hpp>\n#include "core/plan.hpp"\n'
  put app/main.cpp '#include <CLI/CLI.hpp>\n#include "lowering/lower.hpp"\n#include "sim/sim.hpp"\n'
  put tests/hw/emulated/streams.cpp '#include <cuda_runtime_api.h>\n'
  put tests/sim/run_test.cpp '#include <doctest/doctest.h>\n#include "app/report.hpp"\n'
}

# expect OUTPUT: check.sh prints exactly that, and fails unless it is empty.
expect() {
  local output code=0 wanted_code=0
  output=$("$here/check.sh" "$tree") || code=$?
  [[ -n $1 ]] && wanted_code=1
  if [[ $output != "$1" || $code != "$wanted_code" ]]; then
    printf 'expected (exit %s): %s\n   found (exit %s): %s\n' "$wanted_code" "$1" "$code" "$output"
    failures=$((failures + 1))
  fi
}

# refuse FILE TEXT OUTPUT: a good tree with one bad file.
refuse() {
  good_tree && put "$1" "$2" && expect "$3"
}

good_tree && expect ""
refuse sim/a.cpp '\n#include "lowering/lower.hpp"\n' \
  'sim/a.cpp:2: sim/ may not include "lowering/lower.hpp", only lower floors and its own'
refuse strategies/a.cpp '#include "experiment/run.hpp"\n' \
  'strategies/a.cpp:1: strategies/ may not include "experiment/run.hpp", only lower floors and its own'
refuse core/a.cpp '#include "networks/networks.hpp"\n' \
  'core/a.cpp:1: core/ may not include "networks/networks.hpp", only lower floors and its own'
refuse app/a.cpp '#include "sim/tiles.hpp"\n' \
  'app/a.cpp:1: "sim/tiles.hpp" is not in the interface of sim/ (CMakeLists.txt)'
refuse core/layers/a.hpp '  #  include "app/report.hpp"\n' \
  'core/layers/a.hpp:1: core/ may not include "app/report.hpp", only lower floors and its own'
refuse core/a.cpp '#include "ids.hpp"\n' \
  "core/a.cpp:1: \"ids.hpp\" is not a path from the repository's root"
refuse core/a.cpp '#include "../core/ids.hpp"\n' \
  "core/a.cpp:1: \"../core/ids.hpp\" is not a path from the repository's root"
refuse strategies/a.cpp '#include <simgrid/s4u.hpp>\n' \
  'strategies/a.cpp:1: strategies/ may not include <simgrid/s4u.hpp> (simgrid)'
refuse topologies/a.hpp '#include <toml++/toml.h>\n' \
  'topologies/a.hpp:1: <toml++/toml.h> (toml) may stand in .cpp files only'
refuse strategies/a.cpp '#include <mpi.h>\n' \
  'strategies/a.cpp:1: strategies/ may not include <mpi.h> (mpi)'
refuse hw/a.cu '#include <fmt/core.h>\n' 'hw/a.cu:1: fmt may not reach a .cu file'
refuse tests/hw/a.cpp '#include <nccl.h>\n' 'tests/hw/a.cpp:1: tests/ may not include <nccl.h> (cuda)'
refuse sim/a.cpp '#include <spdlog/spdlog.h>\n' \
  'sim/a.cpp:1: <spdlog/spdlog.h> belongs to no library that the table of floors knows'
good_tree && printf 'namespace parsim {}\n' > "$tree/sim/a.cpp" &&
  expect 'sim/a.cpp:1: holds nothing of namespace parsim::sim'
refuse utils/README.md 'odds and ends\n' 'utils:1: unknown top-level folder'
refuse sim/README.md "$(printf 'x\\n%.0s' {1..41})" \
  "sim/README.md:41: a folder's README has at most 40 lines"
refuse docs/README.md "$(printf 'x\\n%.0s' {1..41})" \
  "docs/README.md:41: a folder's README has at most 40 lines"
refuse docs/a.cpp 'int a;\n' 'docs/a.cpp:1: docs/ holds text (.md) and pictures (.png, .svg) only'
refuse README.md "$(printf 'x\\n%.0s' {1..121})" 'README.md:121: README.md has at most 120 lines'
refuse README.md "x\n$(printf '…%.0s' {1..100})\n" ''
refuse README.md "<!-- $(printf 'x%.0s' {1..101}) -->\n" ''
refuse README.md "x\n$(printf '…%.0s' {1..101})\n" 'README.md:2: above 100 columns'
refuse sim/a.cpp "$(printf '\\n%.0s' {1..451})" 'sim/a.cpp:451: above 450 lines; split it'
refuse core/a.hpp "$(printf '\\n%.0s' {1..201})" \
  'core/a.hpp:201: a header above 200 lines; split it'
refuse tests/sim/a_test.cpp 'bool b = 1e-6 == doctest::Approx(9e-6);\n' \
  'tests/sim/a_test.cpp:1: doctest::Approx is absolute near zero; testing::approx is relative'
refuse tests/sim/a_test.cpp 'TEST_CASE("sim: a; b") {}\n' \
  "tests/sim/a_test.cpp:1: a test's name has no semicolon"
refuse tests/sim/a_test.cpp 'TEST_CASE("sim: a") {}\nTEST_CASE("sim: a") {}\n' \
  'tests/sim/a_test.cpp:2: tests/sim/a_test.cpp:1 has a test of this name already'
good_tree && rm "$tree/README.md" && expect 'README.md:1: the tree has no README.md'
good_tree && rm "$tree/sim/README.md" && expect 'sim:1: the folder has no README.md'

((failures == 0))
