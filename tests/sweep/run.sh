#!/usr/bin/env bash
# A sweep under real launchers: what they compute, merged, is byte for byte what one process writes.
#
#   tests/sweep/run.sh PARSIM mpirun|slurm|parallel|snakemake
#
# Exit code 77 (skipped) where the launcher is not installed or cannot start. Slurm: its own daemons, on
# ports and in a folder of their own, with two nodes on this machine.
parsim=$(realpath -- "$1") launcher=$2
# shellcheck source=tests/sweep/slurm.sh
. "$(dirname -- "$0")/slurm.sh"
place=$(mktemp -d) || exit 1
trap 'stop_started; rm -rf "$place"' EXIT
cd "$place" || exit 1

program=${launcher/#slurm/slurmctld}
PATH=$PATH:/usr/sbin command -v "$program" > /dev/null || skip "$launcher is not installed"

cat > sweep.toml << 'END'
[options]
network = "lenet5"
cluster = "star:{gpus},device=v100-sxm2,rate=25GB/s,latency=1us"
engine = "fast"
[axes]
gpus = [2, 4]
strategy = ["data", "owt"]
batch = [64, 128, 256, 512]
END
unset "${!SLURM@}" "${!OMPI@}" "${!PMI@}"
"$parsim" sweep sweep.toml -o alone > /dev/null || exit 1
"$parsim" sweep --merge alone -o alone.csv > /dev/null || exit 1

# merged_equals FOLDER SHARDS: the folder's results are those of one process, in so many files.
merged_equals() {
  local files
  files=$(find "$1" -name 'results.*.jsonl' 2> /dev/null | wc -l)
  [[ $files == "$2" ]] || { echo "$1: $files files, not $2"; return 1; }
  "$parsim" sweep --merge "$1" -o "$1.csv" || return 1
  cmp "$1.csv" alone.csv
}

with_mpirun() {
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun -n 4 --oversubscribe "$parsim" sweep sweep.toml -o mpi || return 1
  merged_equals mpi 4
}

with_parallel() {
  for _ in 1 2; do  # the second finds everything done
    parallel --will-cite --joblog sweep.log --resume-failed \
      "$parsim" sweep sweep.toml -o parallel --shard '{}/4' ::: 1 2 3 4 || return 1
  done
  merged_equals parallel 4
}

with_snakemake() {
  cat > Snakefile << END
rule all:
    input: "rows.csv"
rule shard:
    output: touch("done/{i}")
    shell: "'$parsim' sweep sweep.toml -o results --shard {wildcards.i}/3"
rule merge:
    input: expand("done/{i}", i=range(1, 4))
    output: "rows.csv"
    shell: "'$parsim' sweep --merge results -o {output}"
END
  snakemake --cores 2 --quiet || return 1
  cmp rows.csv alone.csv && merged_equals results 3
}

# finished JOB: waits for its end.
finished() {
  for _ in {1..240}; do
    [[ -z $(squeue -h -j "$1" 2> /dev/null) ]] && return
    sleep 0.5
  done
  echo "job $1 does not end"
  squeue
  return 1
}

with_slurm() {
  start_slurm
  # A step of four processes on both nodes.
  srun -n 4 -N 2 "$parsim" sweep sweep.toml -o step || return 1
  merged_equals step 4 || return 1
  # An array whose first tasks are killed in their midst, and which is submitted again.
  cat > job.sh << END
#!/bin/bash
#SBATCH --array=1-5:2
#SBATCH --output=$place/array.%a.out
'$parsim' sweep sweep.toml -o array --time-limit 55min
END
  local job
  job=$(sbatch --parsable job.sh) || return 1
  sleep 0.3
  scancel --signal=KILL --full "$job"
  finished "$job" || return 1
  job=$(sbatch --parsable job.sh) || return 1
  finished "$job" || return 1
  merged_equals array 3 || { cat array.*.out; return 1; }
  # A batch script of several tasks that calls parsim itself is one process, not one of several.
  echo "#!/bin/bash
'$parsim' sweep sweep.toml -o batch" > batch.sh
  job=$(sbatch --parsable -n 4 --output="$place/batch.out" batch.sh) || return 1
  finished "$job" || return 1
  merged_equals batch 1 || { cat batch.out; return 1; }
  # An array of steps.
  echo "#!/bin/bash
srun '$parsim' sweep sweep.toml -o both" > both.sh
  job=$(sbatch --parsable --array=0-1 -n 2 --output="$place/both.%a.out" both.sh) || return 1
  finished "$job" || return 1
  merged_equals both 4 || { cat both.*.out; return 1; }
}

"with_$launcher"
