#!/usr/bin/env bash
# What users run is built as SECURITY.md says: tests/scripts/hardened.sh PARSIM. Read from the ELF
# files; skipped (77) without readelf.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
command -v readelf > /dev/null || { echo "SKIPPED: binutils; readelf reads the programs" && exit 77; }
"$1" --version > /dev/null # builds it if it is stale
bad=0

# has PROGRAM WHAT PATTERN TEXT
has() {
  grep -qE -- "$3" <<< "$4" || { echo "FAILED: $1: no $2" && bad=1; }
}
for program in parsim parsim-hw parsim-simgrid; do
  file=$root/build/${PARSIM_PRESET:-release}/$program
  header=$(readelf -hW "$file") segments=$(readelf -lW "$file")
  dynamic=$(readelf -dW "$file") symbols=$(readelf -W --dyn-syms "$file")
  has "$program" "position-independent executable" 'FLAGS_1.* PIE' "$dynamic"
  has "$program" "type DYN" 'Type: +DYN' "$header"
  has "$program" "read-only relocations" 'GNU_RELRO' "$segments"
  has "$program" "immediate binding" 'FLAGS.*(BIND_NOW|NOW)' "$dynamic"
  has "$program" "stack that cannot be executed" 'GNU_STACK.* RW ' "$segments"
  has "$program" "stack protector" '__stack_chk_fail' "$symbols"
  has "$program" "checked functions of the C library" '__[a-z]+_chk' "$symbols"
done
exit "$bad"
