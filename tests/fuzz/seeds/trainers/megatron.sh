#!/usr/bin/env bash
# Starts the part of one machine: NODE_RANK=0 MASTER_ADDR=HOST ./run.sh pretrain_gpt.py ARGUMENTS
set -euo pipefail
case ${NODE_RANK:?the line of this machine in hostfile, from 0} in
  0) export CUDA_VISIBLE_DEVICES=0,1 ;;
  1) export CUDA_VISIBLE_DEVICES=0,1 ;;
  *) echo "NODE_RANK is $NODE_RANK, there are 2 machines" >&2; exit 2 ;;
esac
parallelism=(
  --tensor-model-parallel-size '2'
  --pipeline-model-parallel-size '1'
  --micro-batch-size '8'
  --global-batch-size '16'
  --bf16
  --optimizer 'adam'
  --overlap-grad-reduce
)
exec torchrun --nnodes 2 --nproc-per-node 2 --node-rank "$NODE_RANK" \
  --master-addr "${MASTER_ADDR:?the first machine of hostfile}" \
  --master-port "${MASTER_PORT:-29500}" "$@" "${parallelism[@]}"
