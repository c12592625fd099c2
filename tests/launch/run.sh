#!/usr/bin/env bash
# The files that `plan --launch` writes for 26 plans, read by other programs than ours.
#
#   tests/launch/run.sh PARSIM
#
# Always: Python's parsers of JSON, TOML and YAML. With PARSIM_LONG=1, which ./test --all sets, also
# the trainers' own: DeepSpeed's and accelerate's of ds_config.json, torchtitan's of
# parallelism.toml, accelerate's of accelerate.yaml with the checks of `accelerate launch`, which asks
# for the version of transformers; installed from PyPI into a folder that goes again (with PyTorch,
# about 6 GB; PARSIM_TRAINERS=DIR is such a folder that is there, or is to stay). Exit code 77
# (skipped) where PyPI cannot be reached.
parsim=$(realpath -- "$1")
tests=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P) || exit 1
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1

question=(--network 'gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256' --batch 32
          --cluster 'nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s' --optimizer adam
          --strategy tensor --engine fast --quiet)
# Trainer and options of a plan, a line each.
plans='deepspeed --tp 1 --pp 1 --dp 8 --precision bf16
deepspeed --tp 1 --pp 1 --dp 8 --precision bf16 --zero 1
deepspeed --tp 1 --pp 1 --dp 8 --precision bf16 --zero 2 --micro-batches 2
deepspeed --tp 1 --pp 1 --dp 8 --precision bf16 --zero 3 --micro-batches 4
deepspeed --tp 1 --pp 1 --dp 8 --precision fp16 --zero 3
deepspeed --tp 1 --pp 1 --dp 8 --precision fp32
deepspeed --tp 2 --pp 1 --dp 4 --precision bf16 --reduce-precision bf16
deepspeed --tp 2 --pp 1 --dp 4 --precision bf16 --zero 1 --micro-batches 2
deepspeed --tp 4 --pp 1 --dp 2 --precision fp16 --zero 2
deepspeed --tp 1 --pp 1 --dp 8 --precision bf16 --zero 3 --recompute full
torchtitan --tp 1 --pp 1 --dp 8 --precision bf16
torchtitan --tp 1 --pp 1 --dp 8 --precision bf16 --zero 3
torchtitan --tp 1 --pp 1 --dp 8 --precision fp32 --zero 2 --micro-batches 2
torchtitan --tp 1 --pp 1 --dp 8 --precision bf16 --zero 3 --zero-group 4
torchtitan --tp 2 --pp 1 --dp 4 --sequence-parallel --precision bf16 --zero 2
torchtitan --tp 2 --pp 2 --dp 2 --sequence-parallel --precision bf16 --zero 2 --micro-batches 4
torchtitan --tp 1 --pp 2 --dp 4 --precision bf16 --zero 2 --micro-batches 4 --recompute full
torchtitan --tp 1 --pp 2 --dp 4 --precision bf16 --zero 2 --micro-batches 4 --vp 2
torchtitan --tp 1 --pp 2 --dp 4 --precision bf16 --zero 2 --micro-batches 4 --recompute op
torchtitan --tp 4 --pp 2 --dp 1 --sequence-parallel --precision fp32 --micro-batches 4
accelerate --tp 1 --pp 1 --dp 8 --precision fp32
accelerate --tp 1 --pp 1 --dp 8 --precision bf16 --micro-batches 2
accelerate --tp 1 --pp 1 --dp 8 --precision bf16 --reduce-precision bf16 --zero 1 --micro-batches 4
accelerate --tp 1 --pp 1 --dp 8 --precision bf16 --reduce-precision bf16 --zero 3 --recompute full
accelerate --tp 1 --pp 1 --dp 8 --precision fp16 --reduce-precision fp16 --zero 2 --zero-group 4
accelerate --tp 2 --pp 1 --dp 4 --precision bf16 --reduce-precision bf16 --zero 3'
number=0
while read -r trainer options; do
  read -ra options <<< "$options"
  "$parsim" plan "${question[@]}" "${options[@]}" --launch "$trainer" -o "$trainer$number" \
    > /dev/null || { echo "no files: $trainer ${options[*]}" && exit 1; }
  number=$((number + 1))
done <<< "$plans"
[[ $number == 26 ]] || exit 1
python3 "$tests/parsers.py" plain "$place" || exit 1
[[ -n ${PARSIM_LONG-} ]] || exit 0

environment=${PARSIM_TRAINERS-$place/trainers}
if [[ ! -d $environment ]]; then
  python3 -m venv "$environment" || exit 1
  if ! DS_BUILD_OPS=0 "$environment/bin/pip" install -q torch deepspeed==0.19.8 torchtitan==0.2.2 \
    accelerate==1.15.0 transformers==5.24.0 > pip.log 2>&1; then
    tail -n 3 pip.log
    echo 'SKIPPED: the trainers cannot be installed from PyPI'
    exit 77
  fi
fi
DS_ACCELERATOR=cpu "$environment/bin/python" "$tests/parsers.py" trainers "$place"
