#!/usr/bin/env bash
# Every shell script of the tree parses and satisfies shellcheck.
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1
mapfile -t scripts < <(
  printf '%s\n' parsim test .ci/run
  find cmake tests -name '*.sh' | LC_ALL=C sort
)
for script in "${scripts[@]}"; do
  bash -n "$script" || exit 1
done
command -v shellcheck > /dev/null || { echo "SKIPPED: shellcheck"; exit 77; }
shellcheck -x "${scripts[@]}"
