#!/usr/bin/env bash
# Fails with clang-format's own words if a file is not formatted as .clang-format says.
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1
command -v clang-format-16 > /dev/null || { echo "SKIPPED: clang-format-16"; exit 77; }
find -- */ \( -path 'build/*' -o -path hw/staged \) -prune -o \
  -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' \) -print0 |
  xargs -0 -r -P 2 -n 16 clang-format-16 --dry-run -Werror
