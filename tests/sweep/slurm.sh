# Functions of run.sh and killed_twice.sh: Slurm's own daemons, on ports and in a folder of their own, with
# two nodes on this machine. To be sourced; works in the folder $place.
# shellcheck shell=bash disable=SC2154
started=()

skip() {
  echo "SKIPPED: $*"
  exit 77
}

stop_started() {
  local i
  for ((i = ${#started[@]} - 1; i >= 0; --i)); do
    kill "${started[i]}" 2> /dev/null && wait "${started[i]}" 2> /dev/null
  done
}

start() {
  "$@" > "$place/${1##*/}.${#started[@]}.out" 2>&1 &
  started+=($!)
}

# Slurm with two nodes; the configuration is in slurm.conf.
start_slurm() {
  local host port
  PATH=$PATH:/usr/sbin
  host=$(hostname -s)
  port=$((20000 + $$ % 10000))
  ((EUID == 0)) || skip "slurmd needs root"
  for program in munged slurmd sbatch srun; do
    command -v "$program" > /dev/null || skip "$program is not installed"
  done
  chmod 755 "$place"
  dd if=/dev/urandom of=munge.key bs=64 count=1 status=none && chmod 400 munge.key
  start munged --foreground --force --socket="$place/munge" --key-file="$place/munge.key" \
    --pid-file="$place/munge.pid" --seed-file="$place/munge.seed" --log-file="$place/munge.log"
  mkdir state
  cat > slurm.conf << END
ClusterName=sweep
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$place/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
SlurmctldPidFile=$place/slurmctld.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdPidFile=$place/slurmd.%n.pid
SlurmdLogFile=$place/slurmd.%n.log
SlurmdSpoolDir=$place/spool.%n
StateSaveLocation=$place/state
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES State=UP
END
  export SLURM_CONF=$place/slurm.conf
  start slurmctld -D
  mkdir -p spool.n1 spool.n2
  start slurmd -D -N n1
  start slurmd -D -N n2
  for _ in {1..60}; do
    [[ $(sinfo -h -t idle -o %D 2> /dev/null) == 2 ]] && return
    sleep 0.5
  done
  tail -n 5 slurmctld.log slurmd.*.log slurm*.out 2> /dev/null
  skip "slurmd cannot start here"
}
