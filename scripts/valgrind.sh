#!/bin/sh
# Runs C cases of a build under valgrind's memcheck: valgrind.sh BUILD PATTERN. Says which cases ran
# and stops at the first error. PATTERN is matched against `file.case`. A case that skips has passed
# nothing, and a run in which no case passed is a failure: the pattern or the build is wrong.
set -eu
build=$1 pattern=$2
command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 skipped=0
for program in "$build"/ctest/*_plain; do
    file=$(basename "$program" _plain)
    case $file in limits_* | dlopen* | hpp_dlopen* | process | routing) continue ;; esac
    for case in $("$program" 2>&1 | sed -n 's/^  //p'); do
        echo "$file.$case" | grep -qE "^($pattern)" || continue
        # While it runs a thread's code, valgrind keeps SIGSEGV and its like unblocked.
        [ "$case" != threads_are_named_and_block_signals ] || continue
        for engine in psync aio; do
            echo "memcheck $engine $file.$case"
            code=0
            KVPATH_TEST_DIR=$scratch KVPATH_TEST_ENGINE=$engine timeout 600 \
                valgrind --quiet --error-exitcode=99 --leak-check=full \
                --errors-for-leak-kinds=definite --show-leak-kinds=definite --fair-sched=yes \
                "$program" "$case" >"$scratch/out" 2>&1 || code=$?
            case $code in
            0) passed=$((passed + 1)) ;;
            77)
                skipped=$((skipped + 1))
                sed -n "s/^skipped:/memcheck: $engine $file.$case skipped:/p" "$scratch/out"
                ;;
            *)
                cat "$scratch/out"
                echo "memcheck: $engine $file.$case ended with $code" >&2
                exit 1
                ;;
            esac
        done
    done
done
echo "memcheck: $passed passed, 0 failed, $skipped skipped"
if [ "$passed" -eq 0 ]; then
    echo "memcheck: nothing ran that matches \"$pattern\" in $build" >&2
    exit 1
fi
