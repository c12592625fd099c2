#!/usr/bin/env bash
# The S4U example reads the platforms that parsim writes, and times a message as worked out by hand.
#
#   tests/examples/run.sh PARSIM READ_PLATFORM
set -euo pipefail
parsim=$1
read_platform=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

check() {  # PLATFORM FROM TO
  local out
  out=$("$read_platform" "$1" "$2" "$3" 100e6)
  printf '%s\n' "$out"
  grep -qE '^simulated ([0-9.]+) ms, by hand \1 ms$' <<< "$out"
}

"$parsim" show cluster dgx-v100 --format simgrid > "$folder/platform.xml"
check "$folder/platform.xml" dgx.gpu0 dgx.gpu5
"$parsim" plan --network lenet5 --cluster torus:2x2,device=t4 --strategy data --collectives ideal \
  --smpi "$folder" --quiet > "$folder/out"
check "$folder/platform.xml" gpu0 gpu1
