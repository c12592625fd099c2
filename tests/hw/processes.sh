#!/usr/bin/env bash
# A process for each device, started by mpirun: the same numbers as one process for all, one result,
# a sentence where the processes disagree, and an end within seconds when one of them is killed.
#
#   tests/hw/processes.sh PARSIM_HW BACKEND DAG...    DAGs of three devices
#
# Where GPUs are fewer NCCL takes the processes for those of three machines. Without mpirun, without MPI
# in the program or without a GPU the reason is printed and the exit code 77 tells ctest to call it
# skipped.
program=$1 backend=$2
shift 2
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
failures=0
# As root, with more processes than processors, on this machine only.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_hwloc_base_binding_policy=none
# Open MPI keeps memory until it ends.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

fail() {
  printf 'FAILED: %s\n' "$*"
  tail -n 5 "$place"/{out,err}
  failures=$((failures + 1))
}

# launch SIZE ARGUMENTS...: its exit code is `code`, its output in $place/out and $place/err.
launch() {
  local size=$1 rank words=()
  shift
  for ((rank = 0; rank < size; ++rank)); do
    words+=(-n 1)
    [[ $backend != cuda ]] || ((gpus >= size)) || words+=(-x "NCCL_HOSTID=rank$rank")
    words+=("$program" "$@" --backend "$backend" :)
  done
  code=0
  timeout 120 mpirun "${words[@]:0:${#words[@]}-1}" > "$place/out" 2> "$place/err" || code=$?
}

command -v mpirun > /dev/null || { echo 'SKIPPED: openmpi-bin'; exit 77; }
mpirun -n 2 "$program" probe --backend host 2>&1 | grep -q 'MPI does not connect them' &&
  { echo 'SKIPPED: libopenmpi-dev'; exit 77; }
if [[ $backend == cuda ]] && ! reason=$("$program" probe --backend cuda 2>&1 > /dev/null); then
  printf 'SKIPPED: a GPU; %s\n' "$reason"
  exit 77
fi

# Emulated GPUs take their time, and other tests have run all of them in one process.
if [[ -z ${PARSIM_LONG-} && $backend == cuda && $# -gt 4 ]]; then set -- "${@:1:4}"; fi

gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU ')
dags=()
for dag in "$@"; do dags+=(--dag "$dag"); done
launch 3 check "${dags[@]}"
[[ $code == 0 ]] || fail "check: exit code $code"
[[ $(grep -c 'equal within the tolerance' "$place/out") == "$#" ]] || fail 'check: not one report'

# Two of them suffice here.
launch 3 run --steps 5 "${dags[@]:0:4}" -o "$place/measured.json"
[[ $code == 0 ]] || fail "run: exit code $code"
[[ $(grep -o '"strategy"' "$place/measured.json" | wc -l) == 2 ]] || fail 'run: two rows are wanted'
grep -q '"error": *"[^"]' "$place/measured.json" && fail "run: a row has an error"

launch 2 run "${dags[@]}"
[[ $code == 2 ]] || fail "two processes for three devices: exit code $code"
grep -q 'MPI: 2 processes, and the largest plan uses 3 devices' "$place/err" ||
  fail 'two processes for three devices: not said'

launch 3 calibrate "${dags[@]}"
[[ $code == 2 ]] || fail "calibrate: exit code $code"
grep -q 'accepted: one process with calibrate' "$place/err" || fail 'calibrate: not said'

# One of them was given another file.
same=(-n 2 "$program" run --backend "$backend" --steps 1 --dag "$1")
code=0
timeout 120 mpirun "${same[@]}" : -n 1 "${same[@]:2:6}" --dag "$2" > "$place/out" 2> "$place/err" ||
  code=$?
[[ $code == 2 ]] || fail "another DAG: exit code $code"
grep -q 'rank 2 has other options or DAGs' "$place/err" || fail 'another DAG: not said'

# One of them is killed while they work.
export PARSIM_HW=$program
# shellcheck disable=SC2016  # the processes' own shells expand it
timeout 120 mpirun -n 3 bash -c '
  [[ $OMPI_COMM_WORLD_RANK == 1 ]] && { sleep 2; kill -9 $$; } & exec "$PARSIM_HW" "$@"' - \
  run --backend "$backend" --steps 100000 --dag "$1" > "$place/out" 2> "$place/err" &
launched=$!
begin=$SECONDS code=0
wait "$launched" || code=$?
((code != 0 && code != 124)) || fail "a killed rank: exit code $code"
((SECONDS - begin < 20)) || fail "a killed rank: the others went on for $((SECONDS - begin)) s"

printf '%s failures\n' "$failures"
((failures == 0))
