#!/bin/sh
# abi_test.sh library|types FILE BASELINES: compares the ABI of FILE with the baseline that is
# committed for this processor. Any difference fails, additions too: they are allowed at the end of
# structs that begin with `size` and of the table, and make a new baseline with KVPATH_BLESS=1.
set -eu
part=$1 file=$2 baseline=$3/$1.abi
if ! command -v abidiff >/dev/null; then
    echo "skipped: no abidiff (Debian: abigail-tools)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Without paths, lines and needed libraries, which differ between machines.
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed \
    --out-file "$work/$part.abi" "$file"
if [ -n "${KVPATH_BLESS:-}" ]; then
    mkdir -p "$3"
    cp "$work/$part.abi" "$baseline"
    echo "written: $baseline"
    exit 0
fi
if [ ! -e "$baseline" ]; then
    echo "skipped: no baseline for this processor ($baseline)"
    exit 77
fi
abidiff "$baseline" "$work/$part.abi" || {
    echo "The ABI changed. If it only grew and that is meant: KVPATH_BLESS=1 ctest -R abidiff" >&2
    exit 1
}
