# shellcheck shell=bash disable=SC2154
# What ./parsim and ./test share: packages and builds. Sourced; the caller has set `root`. Everything
# said here goes to stderr, because stdout belongs to the program's results.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# Sets `as_root` to what makes a command root's; fails where nothing does. sudo may ask for the
# password only where somebody can answer.
find_root() {
  as_root=()
  ((EUID == 0)) && return
  as_root=(sudo)
  command -v sudo > /dev/null && { [[ -t 0 ]] || sudo -n true 2> /dev/null; }
}

# Installs the packages of the given groups that are absent. Without root they are named, and what
# can be built and run without them is. The answer "all there" is kept in a stamp named after the
# list's checksum, so that asking again costs nothing.
ensure_packages() {
  local list=$root/cmake/packages.txt groups=" $* " group name sum stamp as_root
  read -r sum _ < <(cksum "$list")
  stamp=$root/build/.packages-$sum${groups// /-}
  [[ -e $stamp ]] && return 0
  local wanted=() missing=()
  while read -r group name; do
    [[ $groups == *" $group "* ]] && wanted+=("$name")
  done < "$list"
  for name in "${wanted[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2> /dev/null) == installed ]] ||
      missing+=("$name")
  done
  if ((${#missing[@]})); then
    if ! command -v apt-get > /dev/null || ! find_root; then
      say "not installed, for want of apt-get or root: ${missing[*]}"
      return 0
    fi
    say "installing ${missing[*]}"
    # Another apt at work, perhaps that of a second call, is waited for.
    if ! {
      "${as_root[@]}" apt-get update -q -o DPkg::Lock::Timeout=300 &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
          --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}"
    } >&2; then
      say "apt-get could not install them; these packages are needed: ${missing[*]}"
      return 1
    fi
  fi
  mkdir -p "$root/build" && : > "$stamp"
}

# Configures build/PRESET once and whenever the presets change.
configure_preset() {
  local preset=$1 folder=$root/build/$1 fresh=()
  # A tree that was copied or moved brings the cache of its old place along.
  if [[ -e $folder/CMakeCache.txt ]] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$folder/CMakeCache.txt"; then
    fresh=(--fresh)
  fi
  # Ninja runs CMake again for CMakeLists.txt, but not for the presets, nor for a package that has
  # come since.
  if ((${#fresh[@]})) || [[ ! $folder/build.ninja -nt $root/CMakePresets.json ]] ||
    [[ -n $(find "$root/build" -maxdepth 1 -name '.packages-*' -newer "$folder/build.ninja") ]]; then
    say "configuring build/$preset"
    mkdir -p "$folder"
    (cd "$root" && cmake --preset "$preset" "${fresh[@]}") > "$folder/configure.log" 2>&1 || {
      cat "$folder/configure.log" >&2
      rm -f "$folder/build.ninja"
      return 1
    }
  fi
}

# build_preset PRESET [--target TARGET...]: configures and builds, without targets the preset's.
build_preset() {
  configure_preset "$1" || return 1
  say "building build/$1"
  (cd "$root" && cmake --build --preset "$@") >&2
}

# What `./parsim` builds and runs: the preset release, or bench within ./test, which has built the
# same program there.
program_preset=${PARSIM_PRESET:-release}

# The preset's build of the program is newer than every source. Folders count too: their time
# changes when a file is deleted or added.
is_built() {
  local stamp=$root/build/$1/.built place newer
  [[ -x $root/build/$1/parsim && -e $stamp ]] && read -r place < "$stamp" &&
    [[ $place == "$root" ]] || return 1
  newer=$(cd "$root" && exec find -- */ CMakeLists.txt CMakePresets.json \
    \( -path 'build/*' -o -path 'docs/*' -o -path 'tests/*' -o -path 'campaign/*' \) -prune -o \
    -newer "$stamp" -print -quit) && [[ -z $newer ]]
}

# Builds the program if a source is newer. The stamp gets the time before the build, so that a
# source saved meanwhile counts as newer, and it appears only if the build succeeded.
build_program() {
  is_built "$program_preset" && return 0
  mkdir -p "$root/build/$program_preset"
  exec {lock}> "$root/build/$program_preset/.lock"
  flock -n "$lock" || {
    say "waiting for another build"
    flock "$lock"
  }
  # Whoever held the lock may have done the work.
  is_built "$program_preset" || {
    local stamp=$root/build/$program_preset/.built
    rm -f "$stamp"
    printf '%s\n' "$root" > "$stamp.new"
    ensure_packages program && build_preset "$program_preset" || return 1
    mv "$stamp.new" "$stamp"
  }
  exec {lock}>&-
}
