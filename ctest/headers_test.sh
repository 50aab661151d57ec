#!/bin/sh
# headers_test.sh INCLUDE STANDIN: each header compiles as the only thing in a file, and twice.
set -eu
include=$1
standin=$2
strict="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only -I$include"

# compile COMPILER LANGUAGE OPTIONS HEADER...
compile() {
    compiler=$1 language=$2 options=$3
    shift 3
    command -v "$compiler" >/dev/null || return 0
    for header in "$@"; do
        printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
            "$compiler" -x "$language" $options $strict - || {
            echo "$header fails with $compiler $options" >&2
            exit 1
        }
    done
}

for compiler in gcc clang; do
    compile $compiler c -std=c11 kvpath.h
    compile $compiler c -std=c17 kvpath.h
done
for compiler in g++ clang++; do
    for standard in c++17 c++20; do
        compile $compiler c++ -std=$standard kvpath.h kvpath.hpp
        for version in older newer; do
            compile $compiler c++ "-std=$standard -I$standin/$version" kvpath/ucm_store_v1.hpp
        done
    done
done
