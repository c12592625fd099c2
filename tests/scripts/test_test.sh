#!/usr/bin/env bash
# The script ./test, tried on a tree without anything to compile: what it runs, that a failure is one,
# and that its last line counts.
source_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P) || exit 1
command -v git > /dev/null || { echo "SKIPPED: git"; exit 77; }
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
mkdir -p "$place"/{core,docs,tests/core,tests/sim}
cp -r "$source_root"/{test,cmake} "$place"
sed 's/, "all_verify_interface_header_sets"//' "$source_root/CMakePresets.json" > "$place/CMakePresets.json"
touch "$place"/tests/{core/a,sim/b}_test.cpp
cat > "$place/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES NONE)
enable_testing()
add_custom_target(parsim ALL COMMAND touch parsim && chmod +x parsim)
foreach(target core_tests sim_tests)
  add_custom_target(${target})
endforeach()
foreach(name core sim tree broken)
  add_test(NAME ${name}_case COMMAND test ${name} != broken)
  set_tests_properties(${name}_case PROPERTIES LABELS ${name})
endforeach()
foreach(lacks "browser; ./test --browser" "shellcheck" "shellcheck; for scripts")
  string(MAKE_C_IDENTIFIER "${lacks}" name)
  add_test(NAME ${name} COMMAND sh -c "echo \"SKIPPED: $0\" && exit 77" "${lacks}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
END
cd "$place" || exit 1
git init -q . && echo build > .gitignore && git add -A &&
  git -c user.name=test -c user.email=test -c commit.gpgsign=false commit -qm "A tree" || exit 1

failures=0
# expect CODE LAST_LINE ARGUMENTS...: ./test with the arguments ends so.
expect() {
  local code=0 wanted_code=$1 wanted=$2 line
  shift 2
  bash test "$@" > "$place/.out" 2> "$place/.err" < /dev/null || code=$?
  line=$(tail -n 1 "$place/.out")
  [[ $code == "$wanted_code" && $line == "$wanted" ]] && return
  printf './test %s\n  expected: exit %s, %s\n  found:    exit %s, %s\n' "$*" "$wanted_code" \
    "$wanted" "$code" "$line"
  cat "$place/.err"
  failures=$((failures + 1))
}

expect 8 "test: 3 passed, 1 failed, 3 skipped: browser (1), shellcheck (2)"
expect 0 "test: 3 passed" -R 'core|sim|tree'
expect 0 "test: 2 passed" --quick sim
expect 0 "test: 1 passed" --quick core -R core
expect 2 "test: 0 passed" --quick cores
expect 0 "test: 1 passed" --quick
touch docs/page.md core/new.cpp
expect 0 "test: 2 passed" --quick
grep -q 'no cases of their own: docs$' "$place/.err" || { echo "docs are not named"; failures=1; }
((failures == 0))
