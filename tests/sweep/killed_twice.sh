#!/usr/bin/env bash
# A sweep on two Slurm nodes that is killed twice, goes on each time, and is merged.
#
#   tests/sweep/killed_twice.sh PARSIM SWEEP.toml FOLDER POINTS
#
# With a third of its POINTS done Slurm kills both tasks (SIGKILL); with two thirds done one node dies: its
# slurmd, the step's daemon and its parsim are killed with SIGKILL, and the job is cancelled. Then it runs to its
# end. FOLDER/results gets the results and FOLDER/log what happened. Exit code 77 where Slurm cannot start.
set -u
parsim=$(realpath -- "$1") file=$(realpath -- "$2") folder=$(realpath -m -- "$3") points=$4
# shellcheck source=tests/sweep/slurm.sh
. "$(dirname -- "$0")/slurm.sh"
place=$(mktemp -d) || exit 1
trap 'stop_started; rm -rf "$place"' EXIT
mkdir -p "$folder" && cd "$place" || exit 1
start_slurm

log() {
  echo "$(date -u +%T) $*" | tee -a "$folder/log"
}

# Lines of results without their headers.
points_done() {
  cat "$folder"/results/results.*.jsonl 2> /dev/null | grep -c '"point":'
}

# One task on each node.
begin() {
  srun -N 2 -n 2 "$parsim" sweep "$file" -o "$folder/results" --quiet > "$folder/step.$1" 2>&1 &
  step=$!
  log "run $1 begins with $(points_done) of $points points done"
}

# wait_until N: while the step runs and fewer than N points are done.
wait_until() {
  while kill -0 "$step" 2> /dev/null && (($(points_done) < $1)); do sleep 0.5; done
}

begin 1
wait_until $((points / 3))
scancel --signal=KILL "$(squeue -h -o %i | head -1)"
wait "$step"
log "scancel --signal=KILL: run 1 ends with exit code $?, $(points_done) points done"

begin 2
wait_until $((points * 2 / 3))
job=$(squeue -h -o %i | head -1)
node=$(cat "$place/slurmd.n2.pid")
victims=$(scontrol listpids "$job" n2 | awk 'NR > 1 && $1 > 1 {print $1}')
# The step's daemon, too, which is their parent.
victims=$(for pid in $victims; do ps -o pid=,ppid= -p "$pid"; done | tr -s ' ' '\n' | awk '$1 > 1' | sort -u)
# shellcheck disable=SC2086
kill -9 "$node" $victims
log "kill -9 of node n2: slurmd, and $(wc -w <<< "$victims") processes of the step, $(points_done) points done"
scancel "$job"
wait "$step"
log "run 2 ends with exit code $?"
start slurmd -D -N n2
for _ in {1..240}; do [[ -z $(squeue -h) ]] && break; sleep 0.5; done
for _ in {1..240}; do [[ $(sinfo -h -t idle -o %D 2> /dev/null) == 2 ]] && break; sleep 0.5; done

begin 3
wait "$step"
code=$?
log "run 3 ends with exit code $code, $(points_done) lines of points"
((code == 0)) || exit 1
"$parsim" sweep --merge "$folder/results" -o "$folder/rows.csv" 2>&1 | tee -a "$folder/log"
