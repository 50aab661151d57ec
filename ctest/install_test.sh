#!/bin/sh
# install_test.sh cmake|pkgconfig CMAKE BUILD CONSUMER SCRATCH: installs the build, moves the tree,
# and builds and runs the consumer project against it.
set -eu
way=$1 cmake=$2 build=$3 consumer=$4
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

for file in lib*/libkvpath.so lib*/libkvpath.so.0 include/kvpath.h include/kvpath.hpp \
    include/kvpath/ucm_store_v1.hpp; do
    # shellcheck disable=SC2086 # the pattern is meant
    (cd "$prefix" && ls $file >/dev/null)
done

case $way in
cmake)
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
