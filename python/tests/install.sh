#!/bin/sh
# install.sh DIR LIBRARY: builds the wheel with LIBRARY inside and installs it into the fresh
# virtual environment DIR/test. Exits with 77 where this machine has no Python that can.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))'; then
    echo "skipped: no python3 of 3.9 or newer with venv (scripts/setup.sh installs them)"
    rm -rf "$1/test"
    exit 77
fi
"$here/../wheel.sh" "$1" "$2"
cd "$1"
rm -rf test
python3 -m venv --without-pip test
tools/bin/pip --python test/bin/python install --quiet --disable-pip-version-check \
    dist/kvpath-*.whl --requirement "$here/requirements.txt"
