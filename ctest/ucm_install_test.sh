#!/bin/sh
# ucm_install_test.sh CMAKE BUILD PROGRAM SCRATCH: installs the build into a prefix that was not the
# configured one, moves the tree, and loads the plug-in from there: it finds the library beside it.
set -eu
work=$(mktemp -d "$4/ucm-install-XXXXXX")
trap 'rm -rf "$work"' EXIT
"$1" --install "$2" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved tree"
mkdir "$work/data"
"$3" "$(find "$work/moved tree" -name libposixstore.so)" "$work/data"
