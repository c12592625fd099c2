#!/usr/bin/env bash
# validation/hw_campaign from its first step to its report, on a GPU that is emulated (or any other
# parsim-hw): every strategy is predicted as it is measured.
#
#   tests/hw/campaign.sh PARSIM PARSIM_HW
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P) || exit 1
place=$(mktemp -d) || exit 1
export LC_ALL=C
trap 'rm -rf "$place"' EXIT
export PARSIM=$1 PARSIM_HW=$2 CAMPAIGN=$place RECORDS=$place/records
export WORKLOADS="alexnet gpt-light" PARTS=alexnet PARTITIONS="all 64,32,16,8"
export STRATEGIES="data model-even owt pipeline model hybrid layer-wise hypergraph"
# Work takes its time and is not done; as large as an H200's memory.
export PARSIM_EMULATED_NUMBERS=0 PARSIM_EMULATED_MEMORY=150000000000

for words in 'predct' 'predict nonsense'; do
  # shellcheck disable=SC2086  # the words are several
  "$root/validation/hw_campaign" $words 2> "$place/refused"
  [[ $? == 2 && $(wc -l < "$place/refused") == 1 ]] || {
    printf 'FAILED: %s is not refused in one line\n' "$words"
    exit 1
  }
done
for step in prepare calibrate prepare run report; do
  "$root/validation/hw_campaign" "$step" > "$place/$step.txt" 2> "$place/$step.err" || {
    printf 'FAILED: %s\n' "$step"
    tail -n 5 "$place/$step".*
    exit 1
  }
done
cat "$place/report.txt"
# The worst error in percent, and how many strategies were measured.
awk -F, '!/^#/ && $1 != "network" { e = 100 * ($3 / $4 - 1); if (e < 0) e = -e; if (e > worst) worst = e; rows++ }
     END { printf "%d rows, at most %.1f %% off\n", rows, worst; exit rows == 10 && worst <= 1 ? 0 : 1 }' \
  "$place"/records/*.csv || exit 1
# What torch.compile makes is predicted as such: faster, with fewer kernels.
awk -F, '!/^#/ && $1 != "network" { rows++; if (!($13 > 0 && $13 < $9)) exit 1 } END { if (rows != 2) exit 1 }' \
  "$place/records/all.csv" || {
  printf 'FAILED: no prediction of compiled steps\n'
  exit 1
}
expected="./64,32,16,8.alexnet.profile.json ./64,32,16,8.csv ./all.alexnet.profile.json ./all.csv ./all.gpt-light.profile.json"
[[ $(cd "$place/records" && echo ./*) == "$expected" ]] || {
  printf 'FAILED: other records\n'
  exit 1
}
# What came back is worth the same elsewhere.
RECORDS=$place/again "$root/validation/hw_campaign" import "$place/results.tar.gz" > /dev/null 2>&1
diff -r "$place/records" "$place/again" || {
  printf 'FAILED: imported results make other records\n'
  exit 1
}
