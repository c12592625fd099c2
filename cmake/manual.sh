#!/usr/bin/env bash
# Prints the manual page, section 1, from the help texts of the program.
#
#   cmake/manual.sh PARSIM
set -euo pipefail
program=$1
version=$("$program" --version)

# Lines as they are, for roff: backslashes and a leading dot or quote mean something to it.
literal() { sed -e 's/\\/\\e/g' -e "s/^\([.']\)/\\\\\&\1/"; }

printf '.TH PARSIM 1 "" "%s" "User Commands"\n' "$version"
printf '.SH NAME\nparsim \\- how to train a neural network on a cluster, and how long a step takes\n'
printf '.SH SYNOPSIS\n.B parsim\n.I VERB\n[options]\n'
printf '.SH DESCRIPTION\n.nf\n'
"$program" --help | literal
printf '.fi\n'
for verb in $("$program" --help | awk '/^Subcommands:/ {on = 1; next} on && /^  [a-z]/ {print $1}'); do
  printf '.SH %s\n.nf\n' "${verb^^}"
  "$program" "$verb" --help | literal
  printf '.fi\n'
done
printf '.SH EXIT STATUS\n'
printf '0 success, 1 a bug, 2 a mistake in the input, 3 no hardware, 4 unfinished, 5 does not fit.\n'
