#!/usr/bin/env bash
# What `cmake --install` installs works from where it is: the programs, the manual, bash's completion,
# the CMake package, which a program of its own finds, plans and simulates with; and the Debian package.
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P) || exit 1
. "$root/cmake/build.sh"
build_program || exit 1
set -euo pipefail
build=$root/build/$program_preset
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
(
  flock 9
  cmake --build "$build"
) 9> "$build/.lock" > "$place/log" 2>&1 || { cat "$place/log" && exit 1; }
cmake --install "$build" --prefix "$place/usr" > "$place/log"

job=(lenet5 dgx-v100 data)
said=$("$place/usr/bin/parsim" simulate --network "${job[0]}" --cluster "${job[1]}" \
  --strategy "${job[2]}" --json | sed -nE 's/^  "step_time_s": (.*),/\1/p')
cmake -S "$root/tests/install" -B "$place/example" -DCMAKE_PREFIX_PATH="$place/usr" \
  -DCMAKE_BUILD_TYPE=Debug > "$place/log"
cmake --build "$place/example" > "$place/log" || { cat "$place/log" && exit 1; }
found=$("$place/example/example" "${job[@]}")
awk -v said="$said" -v found="$found" 'BEGIN {split(found, part, " ")
  if (part[1] != "data:" || part[2] != said + 0 || part[4] != "fits")
    {print "the program says " said ", the example " found; exit 1}}'

manual=$(find "$place/usr" -name 'parsim.1')
grep -q '^\.SH COMPARE$' "$manual" && grep -q -e '--network NAME|CALL|FILE' "$manual"
bash -c ". '$(find "$place/usr" -path '*completions/parsim')' && complete -p parsim" > "$place/log"
version=$("$place/usr/bin/parsim" --version)
version=${version%%+*} # without the commit
grep -qx "version: ${version#parsim }" "$root/CITATION.cff"

command -v dpkg-deb > "$place/log" || exit 0
(cd "$place" && cpack --config "$build/CPackConfig.cmake" -B "$place/deb") > "$place/log" 2>&1 ||
  { cat "$place/log" && exit 1; }
dpkg-deb --contents "$place"/deb/parsim_*.deb > "$place/log"
for file in usr/bin/parsim usr/bin/parsim-hw usr/include/parsim/core/plan.hpp \
  usr/share/bash-completion/completions/parsim usr/share/man/man1/parsim.1; do
  grep -q "\./$file" "$place/log" || { echo "the Debian package lacks $file" && exit 1; }
done
