#!/bin/sh
# exports_test.sh LIBRARY EXPORTS: the library defines the symbols of the list and no others.
set -eu
nm -D --defined-only "$1" | awk '{ print $NF }' | LC_ALL=C sort | diff "$2" - >&2 || {
    echo "the exported symbols (>) are not those of exports.txt (<)" >&2
    exit 1
}
readelf -d "$1" | grep -q 'SONAME.*libkvpath\.so\.0\]' || { echo "no soname" >&2; exit 1; }
readelf -d "$1" | grep -q 'NODELETE' || { echo "not linked with -z nodelete" >&2; exit 1; }
