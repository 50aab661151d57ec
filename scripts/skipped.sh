#!/bin/sh
# Lists the CTest cases that the last run in a build skipped, with their reasons, which CTest itself
# keeps to its log: skipped.sh BUILD [ALLOWED]. With KVPATH_NO_SKIPS=1, for a machine that must have
# everything, fails where one is skipped that ALLOWED (ctest/skips.txt) does not name.
set -eu
build=$1 allowed=${2:-$(dirname "$0")/../ctest/skips.txt}
logs=$build/Testing/Temporary
[ -e "$logs/LastTest.log" ] || { echo "skipped: no log of CTest in $build" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# CTest leaves an old list where nothing was skipped: who runs it removes that before.
touch "$scratch/names"
if [ -e "$logs/LastTestsDisabled.log" ]; then
    sed 's/^[0-9]*://' "$logs/LastTestsDisabled.log" >"$scratch/names"
fi
awk '
    FNR == NR { wanted[$0] = 1; next }
    /^[0-9]+\/[0-9]+ Test: / { name = $3; reason = "it gives no reason"; next }
    match($0, /skipped: /) { reason = substr($0, RSTART + RLENGTH) }
    /^<end of output>$/ && name in wanted { print name ": " reason; name = "" }
' "$scratch/names" "$logs/LastTest.log" | sort >"$scratch/skipped"
sed -n '/^[^#]/p' "$allowed" >"$scratch/allowed"
grep -vxE -f "$scratch/allowed" "$scratch/skipped" >"$scratch/unexpected" || true

sed 's/^/skipped case /' "$scratch/skipped"
all=$(wc -l <"$scratch/skipped") unexpected=$(wc -l <"$scratch/unexpected")
echo "skipped cases: $all, $unexpected of them for want of something here"
if [ "${KVPATH_NO_SKIPS:-0}" = 1 ] && [ "$unexpected" -gt 0 ]; then
    echo "KVPATH_NO_SKIPS: this machine must have what these want:" >&2
    sed 's/^/  /' "$scratch/unexpected" >&2
    exit 1
fi
