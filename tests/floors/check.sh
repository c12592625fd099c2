#!/usr/bin/env bash
# Checks the tree's layout: which folder includes what, how long files are, where READMEs stand and
# that they are short, that docs/ holds text, that test names are fit for ctest.
# Prints one line for each breach, `file:line: rule`, and fails if there is any.
#
#   tests/floors/check.sh [ROOT]
cd -- "${1:-$(dirname -- "${BASH_SOURCE[0]}")/../..}" || exit 1

# The table: the floor of each folder, which may include its own code and that of lower floors, but
# not of other rooms on its floor; then third-party libraries: in .cpp files only, as everywhere but
# in tests/. fmt and the standard library are allowed anywhere.
declare -A floor=([core]=0 [networks]=1 [topologies]=1 [lowering]=1 [sim]=1 [hw]=1 [strategies]=2
  [experiment]=3 [validation]=4 [report]=5 [app]=6 [python]=7
  [tests]=8)
declare -A libraries=([core]="json boost" [networks]="onnx json" [topologies]="toml pugixml json"
  [lowering]="" [sim]="simgrid" [hw]="cuda mpi onednn" [strategies]="boost" [experiment]="json zlib"
  [validation]="toml json" [report]="json sqlite" [app]="cli11 json"
  [python]="json pybind11"
  [tests]="json boost onnx toml pugixml simgrid cli11 zlib doctest rapidcheck benchmark")

# A folder's interface: its headers that the build names, all of them if it names none. Tests see
# everything.
interface=" $(grep -oE '\b[a-z_]+(/[a-z_]+)+\.hpp' CMakeLists.txt | tr '\n' ' ') "

breaches=0
breach() {
  printf '%s\n' "$*"
  breaches=$((breaches + 1))
}

# Sets `library` to what a header in angle brackets belongs to; "std" also for the C library's own.
find_library() {
  case $1 in
    fmt/*) library=fmt ;;
    nlohmann/*) library=json ;;
    boost/*) library=boost ;;
    simgrid/* | xbt/*) library=simgrid ;;
    onnx/* | google/protobuf/*) library=onnx ;;
    toml++/*) library=toml ;;
    pugixml.hpp) library=pugixml ;;
    CLI/*) library=cli11 ;;
    pybind11/*) library=pybind11 ;;
    zlib.h) library=zlib ;;
    sqlite3.h) library=sqlite ;;
    doctest/*) library=doctest ;;
    rapidcheck.h | rapidcheck/*) library=rapidcheck ;;
    benchmark/*) library=benchmark ;;
    oneapi/dnnl/*) library=onednn ;;
    mpi.h) library=mpi ;;  # it may not meet SimGrid in one program
    cuda* | cudnn* | cublas* | nccl* | nvml*) library=cuda ;;
    sys/*.h | arpa/*.h | netinet/*.h) library=std ;;
    */* | *.hpp) library=unknown ;;
    *) library=std ;;
  esac
}

check_include() {
  local file=$1 line=$2 header=$3 quoted=$4
  local folder=${file%%/*} target=${header%%/*} library
  if [[ $quoted == yes ]]; then
    if [[ $header != */* || -z ${floor[$target]+known} ]]; then
      breach "$file:$line: \"$header\" is not a path from the repository's root"
    elif [[ $target != "$folder" ]] && ((${floor[$target]} >= ${floor[$folder]})); then
      breach "$file:$line: $folder/ may not include \"$header\", only lower floors and its own"
    elif [[ $target != "$folder" && $folder != tests && $interface == *" $target/"* &&
      $interface != *" $header "* ]]; then
      breach "$file:$line: \"$header\" is not in the interface of $target/ (CMakeLists.txt)"
    fi
    return
  fi
  find_library "$header"
  if [[ $library == cuda && $file == tests/hw/emulated/* ]]; then
    :  # it is what these headers declare
  elif [[ $library == unknown ]]; then
    breach "$file:$line: <$header> belongs to no library that the table of floors knows"
  elif [[ $library == fmt ]]; then
    [[ $file == *.cu ]] && breach "$file:$line: fmt may not reach a .cu file"
  elif [[ $library != std && " ${libraries[$folder]} " != *" $library "* ]]; then
    breach "$file:$line: $folder/ may not include <$header> ($library)"
  elif [[ $library != std && $file == *.hpp && $folder != tests && $header != *_fwd.hpp ]]; then
    breach "$file:$line: <$header> ($library) may stand in .cpp files only"
  fi
}

for folder in */; do
  folder=${folder%/}
  [[ $folder == build || $folder == campaign ]] && continue  # git ignores them
  if [[ -z ${floor[$folder]+known} && $folder != cmake && $folder != docs ]]; then
    breach "$folder:1: unknown top-level folder"
  elif [[ ! -e $folder/README.md ]]; then
    breach "$folder:1: the folder has no README.md"
  elif (($(wc -l < "$folder/README.md") > 40)); then
    breach "$folder/README.md:41: a folder's README has at most 40 lines"
  fi
done

# What a newcomer sees first fits a few screens, of 100 columns; HTML comments are not seen.
if [[ ! -e README.md ]]; then
  breach "README.md:1: the tree has no README.md"
else
  (($(wc -l < README.md) > 120)) && breach "README.md:121: README.md has at most 120 lines"
  while IFS=: read -r line _; do
    breach "README.md:$line: above 100 columns"
  done < <(LC_ALL=C.UTF-8 grep -nE '^.{101,}' README.md | grep -v ':<!--')
fi
while IFS= read -r file; do
  breach "$file:1: docs/ holds text (.md) and pictures (.png, .svg) only"
done < <([[ ! -d docs ]] ||
  find docs -type f ! -name '*.md' ! -name '*.png' ! -name '*.svg' | LC_ALL=C sort)

present=()
for folder in "${!floor[@]}"; do [[ -d $folder ]] && present+=("$folder"); done
mapfile -t files < <(find "${present[@]}" -path hw/staged -prune -o -type f \
  \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print | LC_ALL=C sort)

for file in "${files[@]}"; do
  lines=$(wc -l < "$file")
  if [[ $file == tests/* || $file == hw/*.hpp ]]; then
    ((lines > 600)) && breach "$file:601: above 600 lines; split it"
  elif [[ $file == *.hpp ]] && ! head -3 "$file" | grep -q 'Private to '; then
    ((lines > 200)) && breach "$file:201: a header above 200 lines; split it"
  elif ((lines > 450)); then
    breach "$file:451: above 450 lines; split it"
  fi
done

# One grep finds one thing: each folder has its namespace, and core/ that of the project.
for file in "${files[@]}"; do
  folder=${file%%/*}
  [[ $folder == core || $folder == tests || $file == */main.cpp || $file == *.cuh ]] && continue
  grep -qE "^namespace parsim::$folder\b" "$file" ||
    breach "$file:1: holds nothing of namespace parsim::$folder"
done

include='^([^:]+):([0-9]+):[[:space:]]*#[[:space:]]*include[[:space:]]*([<"])([^>"]+)[>"]'
while IFS= read -r hit; do
  [[ $hit =~ $include ]] || continue
  quoted=no
  [[ ${BASH_REMATCH[3]} == '"' ]] && quoted=yes
  check_include "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]}" "$quoted"
done < <(((${#files[@]})) && grep -nE '^[[:space:]]*#[[:space:]]*include' /dev/null "${files[@]}")

# doctest::Approx adds its share of 1, so that two times of a few microseconds are always equal.
while IFS=: read -r file line _; do
  [[ $file == tests/support/approx.hpp ]] ||
    breach "$file:$line: doctest::Approx is absolute near zero; testing::approx is relative"
done < <(((${#files[@]})) && grep -n 'doctest::Approx(' /dev/null "${files[@]}")

# ctest makes phantom tests of a name with a semicolon, and mixes up two of one name.
declare -A first_use
test_case='^([^:]+:[0-9]+):TEST_CASE\("(.*)"\)'
while IFS= read -r hit; do
  [[ $hit =~ $test_case ]] || continue
  place=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]}
  [[ $name == *\;* ]] && breach "$place: a test's name has no semicolon"
  if [[ -n ${first_use[$name]-} ]]; then
    breach "$place: ${first_use[$name]} has a test of this name already"
  else
    first_use[$name]=$place
  fi
done < <(((${#files[@]})) && grep -nE '^TEST_CASE\(' /dev/null "${files[@]}")

((breaches == 0))
