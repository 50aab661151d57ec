#!/bin/sh
# wheel.sh DIR LIBRARY: builds the wheel with LIBRARY inside into DIR/dist. What it takes from PyPI
# goes into a virtual environment of its own, DIR/tools, which is kept for the next time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
library=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")

if ! cmp -s "$here/tools.txt" "$dir/tools/tools.txt"; then
    rm -rf "$dir/tools"
    python3 -m venv "$dir/tools"
    "$dir/tools/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/tools.txt"
    cp "$here/tools.txt" "$dir/tools/tools.txt"
fi
rm -rf "$dir/dist"
KVPATH_WHEEL_LIBRARY=$library "$dir/tools/bin/pip" wheel --quiet --disable-pip-version-check \
    --no-deps --no-build-isolation --wheel-dir "$dir/dist" "$here"
ls "$dir"/dist/kvpath-*.whl
