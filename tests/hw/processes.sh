#!/usr/bin/env bash
# A process for each device, as torchrun, mpirun and srun start them: the same numbers as one process
# for all, one result, and a sentence from everybody when the sizes disagree.
#
#   tests/hw/processes.sh PARSIM_HW BACKEND DAG...    DAGs of three devices
#
# Where GPUs are fewer NCCL takes the processes for those of three machines. Without a GPU the
# reason is printed and the exit code 77 tells ctest to call it skipped.
program=$1 backend=$2
shift 2
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
failures=0

fail() {
  printf 'FAILED: %s\n' "$*"
  tail -n 5 "$place"/*.err
  failures=$((failures + 1))
}

# process LAUNCHER RANK SIZE PORT ARGUMENTS...: one of them; its exit code goes to $place/RANK.code.
process() {
  local launcher=$1 rank=$2 size=$3 port=$4
  shift 4
  local variables=()
  case $launcher in
    torchrun) variables=("RANK=$rank" "WORLD_SIZE=$size" "LOCAL_RANK=$rank"
      TORCHELASTIC_USE_AGENT_STORE=True) ;;
    mpirun) variables=("OMPI_COMM_WORLD_RANK=$rank" "OMPI_COMM_WORLD_SIZE=$size"
      "OMPI_COMM_WORLD_LOCAL_RANK=$rank") ;;
    srun) variables=("SLURM_PROCID=$rank" "SLURM_NTASKS=$size" "SLURM_LOCALID=$rank") ;;
  esac
  [[ $backend != cuda ]] || ((gpus >= size)) || variables+=("NCCL_HOSTID=rank$rank")
  env "${variables[@]}" "MASTER_PORT=$port" "$program" "$@" \
    --backend "$backend" > "$place/$rank.out" 2> "$place/$rank.err"
  echo $? > "$place/$rank.code"
}

# launch LAUNCHER SIZE ARGUMENTS...: all of them, by a port that is hardly anybody's.
launch() {
  local launcher=$1 size=$2 rank store started=() port=$((20000 + ($$ + RANDOM) % 12000))
  shift 2
  if [[ $launcher == torchrun ]]; then  # its own store is at that port
    python3 -c "import socket, time; s = socket.create_server(('', $port)); time.sleep(60)" &
    local store=$!
  fi
  for ((rank = size - 1; rank >= 0; --rank)); do
    process "$launcher" "$rank" "$size" "$port" "$@" &
    started+=($!)
  done
  wait "${started[@]}"
  [[ -z ${store:-} ]] || kill "$store"
  codes=$(for ((rank = 0; rank < size; ++rank)); do cat "$place/$rank.code"; done | tr '\n' ' ')
}

if [[ $backend == cuda ]] && ! reason=$("$program" probe --backend cuda 2>&1 > /dev/null); then
  printf 'SKIPPED: a GPU; %s\n' "$reason"
  exit 77
fi

gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU ')
# Stands in for torchrun's store.
command -v python3 > /dev/null || { echo 'SKIPPED: python3'; exit 77; }
dags=()
for dag in "$@"; do dags+=(--dag "$dag"); done
for launcher in torchrun mpirun srun; do
  launch "$launcher" 3 check "${dags[@]}"
  [[ $codes == '0 0 0 ' ]] || fail "$launcher check: exit codes $codes"
  [[ $(grep -c 'equal within the tolerance' "$place/0.out") == "$#" ]] || fail "$launcher check: said"
  [[ -s $place/1.out || -s $place/2.out ]] && fail "$launcher check: not only rank 0 speaks"
done

launch torchrun 3 run --steps 5 "${dags[@]}" -o "$place/measured.json"
[[ $codes == '0 0 0 ' ]] || fail "run: exit codes $codes"
[[ $(grep -o '"strategy"' "$place/measured.json" | wc -l) == "$#" ]] || fail "run: $# rows are wanted"
grep -q '"error": *"[^"]' "$place/measured.json" && fail "run: a row has an error"

launch torchrun 2 run "${dags[@]}"
[[ $codes == '2 2 ' ]] || fail "two processes for three devices: exit codes $codes"
grep -q 'torchrun: started 2 processes, and the largest plan uses 3 devices' "$place/1.err" ||
  fail "two processes for three devices: $(cat "$place/1.err")"

launch srun 3 calibrate "${dags[@]}"
[[ $codes == '2 2 2 ' ]] || fail "calibrate: exit codes $codes"
grep -q 'accepted: one process with calibrate' "$place/0.err" ||
  fail "calibrate: $(cat "$place/0.err")"

# One of them was given another file.
port=$((20000 + ($$ + RANDOM) % 12000))
process mpirun 0 3 "$port" run --steps 1 --dag "$1" &
process mpirun 1 3 "$port" run --steps 1 --dag "$1" &
process mpirun 2 3 "$port" run --steps 1 --dag "$2" &
wait
[[ $(cat "$place/2.code") == 2 ]] || fail "another DAG: exit code $(cat "$place/2.code")"
grep -q 'rank 2 has other options or DAGs' "$place/2.err" || fail "another DAG: $(cat "$place/2.err")"
[[ $(cat "$place/0.code") == 3 && $(cat "$place/1.code") == 3 ]] || fail "another DAG: others went on"

printf '%s failures\n' "$failures"
((failures == 0))
