#!/usr/bin/env bash
# Builds the Python module as users get it, from the release build, and tests it.
#
#   tests/python/run.sh [TEST...]    as unittest names them; exit code 77 (skipped) without pybind11
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P) || exit 1
. "$root/cmake/build.sh"
build_program || exit 1
build=$root/build/release
if [[ ! -e $build/python/interpreter ]]; then
  echo "SKIPPED: pybind11-dev or python3-dev"
  exit 77
fi
(
  flock 9
  cmake --build "$build" --target parsim_python
) 9> "$build/.lock" >&2 || exit 1
read -r python < "$build/python/interpreter"
export PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 PARSIM_ROOT=$root
exec "$python" -m unittest discover --start-directory "$root/tests/python" --pattern '*_test.py' "$@"
