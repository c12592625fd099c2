#!/usr/bin/env bash
# Runs what the READMEs and docs/ tell people to type, in an empty folder with links to the tree.
#
#   tests/readme/run.sh [FILE...]  in these files, or in all of them, every ```sh block ends with exit
#                                  code 0, or with N if it says `# exit code N`; every block marked
#                                  `<!-- output of: COMMAND -->` shows what COMMAND prints; every
#                                  picture of a line `<!-- drawing FILE.svg: COMMAND -->` is what
#                                  COMMAND with `--trace FILE.svg` writes; and every relative link of any .md file leads to a file that exists, and to a
#                                  heading if it names one
#   tests/readme/run.sh --links    checks only the links
#   tests/readme/run.sh --update   writes the marked blocks and pictures anew
#   tests/readme/run.sh --long     also blocks marked `<!-- long output of: COMMAND -->`, which take
#                                  many minutes; so does PARSIM_LONG=1, which ./test --all sets
#
# Lines that call ./test are left out: it is what runs this. So are the commands, with or without
# further options, whose output is shown: that runs them.
tree=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P) || exit 1
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
ln -s "$tree"/* "$place"
rm -f "$place/build"
cd "$place" || exit 1
failures=0
update=false only_links=false readmes=()
long=${PARSIM_LONG:+true}
for argument in "$@"; do
  case $argument in
    --update) update=true ;;
    --long) long=true ;;
    --links) only_links=true ;;
    -*) echo "unknown argument $argument" >&2 && exit 2 ;;
    *) readmes+=("$argument") ;;
  esac
done

# Prints the ```sh blocks of a file, each ended by a NUL, without the commands whose output is shown.
blocks_of() {
  awk 'NR == FNR {if (sub(/^<!-- output of: /, "")) shown[$0]; next}
       /^```sh$/ {inside = 1; next}
       /^```$/ {if (inside) printf "%c", 0; inside = 0}
       /^\.\/test( |$)/ {next}
       inside {for (command in shown) if (/./ && index(command, $0) == 1) next; print}' "$1" "$1"
}

run_blocks() {
  local block code wanted
  while IFS= read -r -d '' block; do
    wanted=0
    [[ $block =~ \#\ exit\ code\ ([0-9]+) ]] && wanted=${BASH_REMATCH[1]}
    code=0
    bash -e -o pipefail -c "$block" > "$place/.out" 2> "$place/.err" < /dev/null || code=$?
    if [[ $code != "$wanted" ]]; then
      printf '%s: exit code %s, not %s, of\n%s\n' "$1" "$code" "$wanted" "$block"
      tail -n 20 "$place/.err"
      failures=$((failures + 1))
    fi
  done < <(blocks_of "$tree/$1")
}

# Prints the file with every marked block replaced by what its command prints.
with_outputs() {
  local line command kept
  while IFS= read -r line; do
    printf '%s\n' "$line"
    if [[ $line =~ ^'<!-- '(long )?'output of: '(.*)' -->'$ ]] &&
      [[ -z ${BASH_REMATCH[1]} || -n $long ]]; then
      command=${BASH_REMATCH[2]}
      printf '```text\n'
      # Messages are shown when there is nothing else. What several files show is run once.
      kept=$place/.kept-$(cksum <<< "$command" | tr ' ' '-')
      [[ -e $kept ]] ||
        bash -c "$command" > "$kept" 2> "$place/.err" < /dev/null || cat "$place/.err" >> "$kept"
      cat "$kept"
      printf '```\n'
      while IFS= read -r line && [[ $line != '<!-- end of output -->' ]]; do :; done
      printf '%s\n' "$line"
    fi
  done < "$tree/$1"
}

# Draws the pictures of a file anew and compares them.
check_drawings() {
  local line picture command
  while IFS= read -r line; do
    [[ $line =~ ^'<!-- drawing '([^ :]+)': '(.*)' -->'$ ]] || continue
    picture=$(dirname -- "$1")/${BASH_REMATCH[1]}
    command=${BASH_REMATCH[2]}
    bash -c "$command --trace drawn.svg" > "$place/.out" 2> "$place/.err" < /dev/null ||
      tail -n 20 "$place/.err"
    if $update; then
      cmp -s drawn.svg "$tree/$picture" || cp drawn.svg "$tree/$picture"
    elif ! cmp -s drawn.svg "$tree/$picture"; then
      echo "$1: $picture is not what its command draws; see tests/readme/run.sh --update"
      failures=$((failures + 1))
    fi
    rm -f drawn.svg
  done < "$tree/$1"
}

# Prints the names that GitHub gives to a file's headings: small letters, hyphens for blanks.
headings_of() {
  sed -nE 's/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

check_links() {
  local file=$1 target path
  while IFS= read -r target; do
    [[ $target == *://* ]] && continue
    path=${target%%#*}
    path=${path:+$(dirname -- "$file")/$path}
    path=$tree/${path:-$file}
    if [[ ! -e $path ]] || { [[ $target == *#* ]] && ! headings_of "$path" | grep -qxF -- "${target#*#}"; }; then
      echo "$file: the link to $target leads nowhere"
      failures=$((failures + 1))
    fi
  done < <(grep -oE '\]\([^ )]+\)' "$tree/$file" | sed -E 's/^\]\((.*)\)$/\1/')
}

while IFS= read -r file; do
  check_links "$file"
done < <(cd "$tree" && find -- *.md */ -path 'build/*' -prune -o -name '*.md' -print | LC_ALL=C sort)
if $only_links; then exit "$((failures > 0))"; fi

((${#readmes[@]})) ||
  mapfile -t readmes < <(cd "$tree" && printf '%s\n' README.md */README.md docs/[a-z]*.md)
for file in "${readmes[@]}"; do
  run_blocks "$file"
  check_drawings "$file"
  with_outputs "$file" > "$place/.readme"
  if $update; then
    cmp -s "$place/.readme" "$tree/$file" || cp "$place/.readme" "$tree/$file"
  elif ! diff -u --label "$file" --label "$file, run now" "$tree/$file" "$place/.readme"; then
    echo "$file shows other output than the program; see tests/readme/run.sh --update"
    failures=$((failures + 1))
  fi
done
((failures == 0))
