#!/usr/bin/env bash
# The script ./parsim, tried on a program of one line in a folder of its own: when it builds, what it
# prints where, and that a failed build leaves nothing behind that looks like success.
unset PARSIM_PRESET  # of ./test, for its own build
source_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P) || exit 1
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
tree="$place/a tree"
mkdir -p "$tree"/{core,networks,topologies,strategies,sim,hw,validation,app}
cp -r "$source_root"/{parsim,cmake,CMakePresets.json} "$tree"
cat > "$tree/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES CXX)
file(GLOB sources CONFIGURE_DEPENDS app/*.cpp)
add_executable(parsim ${sources})
END
echo '#include <cstdio>
int main(int count, char** words) { return std::puts(words[count - 1]) < 0 ? 1 : count; }' \
  > "$tree/app/main.cpp"
cd "$tree" || exit 1

failures=0
# expect CODE OUTPUT BUILDS COMMAND...: exit code and stdout are these, and stderr tells of a build
# (BUILDS = builds) or is empty (BUILDS = quiet).
expect() {
  local code=0 wanted_code=$1 wanted=$2 builds=$3 output said=quiet
  shift 3
  output=$("$@" 2> "$place/stderr") || code=$?
  [[ -s $place/stderr ]] && said=builds
  if [[ $code != "$wanted_code" || $output != "$wanted" || $said != "$builds" ]]; then
    printf '%s\n  expected: exit %s, stdout "%s", %s\n  found:    exit %s, stdout "%s", stderr:\n' \
      "$*" "$wanted_code" "$wanted" "$builds" "$code" "$output"
    cat "$place/stderr"
    failures=$((failures + 1))
  fi
}

# Two first calls at once: one builds, one waits, both run.
./parsim "first call" > "$place/first" 2> /dev/null &
expect 2 "second call" builds ./parsim "second call"
wait $!
[[ $(< "$place/first") == "first call" ]] || { echo "the first of two calls failed"; failures=1; }

expect 3 "b" quiet ./parsim a b
cd / && expect 2 "from elsewhere" quiet "$tree/parsim" "from elsewhere" && cd "$tree" || exit 1
ln -s "$tree/parsim" "$place/link" && expect 2 "by link" quiet "$place/link" "by link"
expect 2 "by bash" quiet bash parsim "by bash"

echo 'int broken(' > app/more.cpp
expect 1 "" builds ./parsim a
grep -q "error: expected" "$place/stderr" || { echo "no compiler message"; failures=1; }
expect 1 "" builds ./parsim a
echo 'int mended() { return 1; }' > app/more.cpp
expect 2 "mended" builds ./parsim mended
rm app/more.cpp
expect 2 "source deleted" builds ./parsim "source deleted"
expect 2 "quiet again" quiet ./parsim "quiet again"

cp -a "$tree" "$place/moved" && cd "$place/moved" || exit 1
expect 2 "copied" builds ./parsim copied
expect 2 "copied" quiet ./parsim copied

((failures == 0))
