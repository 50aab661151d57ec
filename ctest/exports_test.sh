#!/bin/sh
# exports_test.sh LIBRARY EXPORTS SONAME: the library defines the symbols of the list and no others,
# is linked with -z nodelete, and has the soname.
set -eu
nm -D --defined-only "$1" | awk '{ print $NF }' | LC_ALL=C sort | diff "$2" - >&2 || {
    echo "the exported symbols (>) are not those of exports.txt (<)" >&2
    exit 1
}
readelf -d "$1" | grep -qF "soname: [$3]" || { echo "the soname is not $3" >&2; exit 1; }
readelf -d "$1" | grep -q 'NODELETE' || { echo "not linked with -z nodelete" >&2; exit 1; }
