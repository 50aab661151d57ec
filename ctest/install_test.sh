#!/bin/sh
# install_test.sh cmake|pkgconfig CMAKE BUILD CONSUMER SCRATCH SONAME EXPORTS: installs the build, moves
# the tree, and builds and runs the consumer project against it.
set -eu
way=$1 cmake=$2 build=$3 consumer=$4 soname=$6 exports=$7
work=$(mktemp -d "$5/install-XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ "$way" = pkgconfig ] && ! command -v pkg-config >/dev/null; then
    echo "skipped: no pkg-config"
    exit 77
fi

"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved tree"
prefix="$work/moved tree"
cp -r "$consumer" "$work/consumer"
cd "$work"

for file in lib*/libkvpath.so "lib*/$soname" include/kvpath.h include/kvpath.hpp \
    include/kvpath/ucm_store_v1.hpp; do
    # shellcheck disable=SC2086 # the pattern is meant
    (cd "$prefix" && ls $file >/dev/null)
done

# What is installed has its exports and nothing that only debuggers read.
library=$(find "$prefix" -type f -name 'libkvpath.so.*')
nm -D --defined-only "$library" | awk '{ print $NF }' | LC_ALL=C sort | diff "$exports" - >&2
if readelf -SW "$library" | grep -E '\.(debug_|symtab)'; then
    echo "the installed library is not stripped" >&2
    exit 1
fi

case $way in
cmake)
    # Before 1.0 a version with another minor number is another ABI: find_package() knows.
    mkdir other
    printf '%s\n' 'cmake_minimum_required(VERSION 3.20)' 'project(other LANGUAGES C)' \
        'find_package(kvpath 0.0 REQUIRED)' >other/CMakeLists.txt
    if "$cmake" -S other -B other/build -DCMAKE_PREFIX_PATH="$prefix" >other/log 2>&1; then
        echo "find_package(kvpath 0.0) was satisfied by another ABI" >&2
        exit 1
    fi
    grep -q 'kvpathConfig.cmake, version: 0' other/log || { cat other/log; exit 1; }
    "$cmake" -S consumer -B build -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
    "$cmake" --build build >/dev/null
    ;;
pkgconfig)
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name kvpath.pc)")
    export PKG_CONFIG_PATH
    mkdir build
    # pkg-config escapes the blank of the path for a shell.
    eval "cc -std=c11 consumer/store.c -o build/store_c $(pkg-config --cflags --libs kvpath)"
    eval "c++ -std=c++17 consumer/store.cpp -o build/store_cpp $(pkg-config --cflags --libs kvpath)"
    LD_LIBRARY_PATH=$(dirname "$(find "$prefix" -name libkvpath.so)")
    export LD_LIBRARY_PATH
    ;;
esac
for program in store_c store_cpp; do
    mkdir "data_$program"
    "build/$program" "$PWD/data_$program"
done
