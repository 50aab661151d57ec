#!/bin/sh
# run.sh DIR test|tools WHAT [ARGUMENT]: runs a check in what install.sh made in DIR: `python FILE`
# in the environment with the wheel, or `types` with the type checker.
set -eu
dir=$1 place=$2 what=$3
if ! [ -x "$dir/$place/bin/python" ] || ! [ -x "$dir/test/bin/python" ]; then
    echo "skipped: the wheel is not installed (python.install)"
    exit 77
fi
[ -n "${KVPATH_LIBRARY:-}" ] || unset KVPATH_LIBRARY
export PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH
case $what in
python) exec "$dir/$place/bin/python" -W error -X faulthandler "$4" ;;
types)
    cd "$(dirname "$0")"
    set -- "$dir/tools/bin/mypy" --strict --cache-dir "$dir/mypy" \
        --python-executable "$dir/test/bin/python"
    "$@" -p kvpath
    exec "$@" ./*.py
    ;;
esac
