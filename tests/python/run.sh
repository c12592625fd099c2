#!/usr/bin/env bash
# Builds the Python module as users get it, from the release build, and tests it.
#
#   tests/python/run.sh [TEST...]    as unittest names them; exit code 77 (skipped) without pybind11
#
# PARSIM_LONG=1, which ./test --all sets: ten thousand calls, and the tests once more in an environment
# of their own, after `pip install .`, where a package index can be reached. PARSIM_REGENERATE=1 writes
# the type stubs and the outputs in docs/python.md anew.
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P) || exit 1
. "$root/cmake/build.sh"
build_program || exit 1
build=$root/build/$program_preset
if [[ ! -e $build/python/interpreter ]]; then
  echo "SKIPPED: pybind11-dev or python3-dev"
  exit 77
fi
(
  flock 9
  cmake --build "$build" --target parsim_python
) 9> "$build/.lock" >&2 || exit 1
read -r python < "$build/python/interpreter"
export PYTHONDONTWRITEBYTECODE=1 PARSIM_ROOT=$root
tests=(-m unittest discover --start-directory "$root/tests/python" --pattern '*_test.py' "$@")
PYTHONPATH=$build/python "$python" "${tests[@]}" || exit 1
[[ -n ${PARSIM_LONG-} ]] || exit 0
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/own" || exit 1
if "$place/own/bin/pip" download -q -d "$place/index" scikit-build-core pybind11; then
  "$place/own/bin/pip" install -q "$root" && PARSIM_LONG='' "$place/own/bin/python" "${tests[@]}"
else
  echo "NOT TRIED: pip install . (no package index can be reached)"
fi
