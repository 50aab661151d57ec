#!/bin/sh
# package_test.sh CMAKE BUILD CONSUMER SCRATCH VERSION: makes the Debian packages of the build,
# unpacks them into an empty root as dpkg would, and builds and runs the consumer project against
# them; its programs then run with the library's package alone.
set -eu
cmake=$1 build=$2 consumer=$3 version=$5
soname=libkvpath.so.${version%%.*}
if ! command -v dpkg-deb >/dev/null; then
    echo "skipped: no dpkg-deb"
    exit 77
fi
work=$(mktemp -d "$4/package-XXXXXX")
trap 'rm -rf "$work"' EXIT
cpack=$(dirname "$cmake")/cpack

# With make, cpack would build everything again first; for this generator it has no such step.
"$cpack" --config "$build/CPackConfig.cmake" -D CPACK_CMAKE_GENERATOR=Ninja -B "$work/made" \
    >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
library=$(ls "$work"/made/libkvpath"${version%%.*}"_"$version"*.deb)
development=$(ls "$work"/made/libkvpath-dev_"$version"*.deb)

field() { dpkg-deb --field "$1" "$2"; }
test "$(field "$library" Package)" = "libkvpath${version%%.*}"
field "$library" Depends | grep -q libc6
field "$development" Depends | grep -q "^libkvpath${version%%.*} (= $version)"
dpkg-deb --ctrl-tarfile "$library" | tar -tf - | grep -q '^./shlibs$'

# The library's package holds the library under its soname and nothing else.
dpkg-deb --extract "$library" "$work/root"
(cd "$work/root" && find . ! -type d | LC_ALL=C sort) >"$work/files"
grep -q "/$soname\$" "$work/files" && grep -q "/libkvpath.so.$version\$" "$work/files"
test "$(wc -l <"$work/files")" -eq 2
readelf -d "$(find "$work/root" -name "libkvpath.so.$version")" | grep -q "soname: \[$soname\]"

cp -r "$consumer" "$work/consumer"
dpkg-deb --extract "$library" "$work/both"
dpkg-deb --extract "$development" "$work/both"
"$cmake" -S "$work/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/both/usr" >/dev/null
"$cmake" --build "$work/build" >/dev/null
pkg_config=$(find "$work/both" -name kvpath.pc)
if command -v pkg-config >/dev/null; then
    test "$(PKG_CONFIG_PATH=$(dirname "$pkg_config") pkg-config --modversion kvpath)" = "$version"
fi

# What was built above runs where only the library's package is: the other tree is gone.
rm -rf "$work/both"
LD_LIBRARY_PATH=$(dirname "$(find "$work/root" -name "$soname")")
export LD_LIBRARY_PATH
for program in store_c store_cpp; do
    mkdir "$work/data_$program"
    "$work/build/$program" "$work/data_$program"
done
