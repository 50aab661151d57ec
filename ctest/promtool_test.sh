#!/bin/sh
# Prometheus's own checker on metrics or rules: promtool_test.sh metrics FILE | rules DOCS. Status 77
# where it is not here; scripts/setup.sh brings it. No server is started.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tool=$(command -v promtool || echo "$here/../target/tools/promtool")
[ -x "$tool" ] || { echo "skipped: no promtool"; exit 77; }

if [ "$1" = metrics ]; then
    said=$("$tool" check metrics <"$2" 2>&1) || { echo "$said"; exit 1; }
    echo "$said"
    [ -z "$said" ]
else
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cp "$2/alerts.yaml" "$here/alerts_test.yaml" "$scratch"
    cd "$scratch"
    "$tool" check rules alerts.yaml
    "$tool" test rules alerts_test.yaml
fi
