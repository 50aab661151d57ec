#!/bin/sh
# package_test.sh CMAKE BUILD CONSUMER SCRATCH VERSION SOVERSION: makes the Debian packages of the build,
# unpacks them into an empty root as dpkg would, and builds and runs the consumer project against
# them; its programs then run with the library's package alone.
set -eu
cmake=$1 build=$2 consumer=$3 version=$5 package=libkvpath$6 soname=libkvpath.so.$6
for tool in dpkg-deb dpkg-shlibdeps file; do
    command -v "$tool" >/dev/null && continue
    echo "skipped: no $tool"
    exit 77
done
work=$(mktemp -d "$4/package-XXXXXX")
trap 'rm -rf "$work"' EXIT
cpack=$(dirname "$cmake")/cpack

# With make, cpack would build everything again first; for this generator it has no such step.
"$cpack" --config "$build/CPackConfig.cmake" -D CPACK_CMAKE_GENERATOR=Ninja -B "$work/made" \
    >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
library=$(ls "$work/made/${package}_$version"*.deb)
development=$(ls "$work/made/libkvpath-dev_$version"*.deb)
debug=$(ls "$work/made/$package-dbgsym_$version"*.deb)

field() { dpkg-deb --field "$1" "$2"; }
test "$(field "$library" Package)" = "$package"
field "$library" Depends | grep -q libc6
field "$development" Depends | grep -q "^$package (= $version)"
field "$debug" Depends | grep -q "^$package (= $version)"
# Programs that link to it take this version or a later one with the same soname.
dpkg-deb --ctrl-tarfile "$library" | tar -xOf - ./shlibs |
    grep -qx "libkvpath $6 $package (>= $version)"
# The loader's cache learns of it.
dpkg-deb --ctrl-tarfile "$library" | tar -xOf - ./postinst | grep -q ldconfig

# The library's package holds the library under its soname and nothing else.
dpkg-deb --extract "$library" "$work/root"
(cd "$work/root" && find . ! -type d | LC_ALL=C sort) >"$work/files"
grep -q "/$soname\$" "$work/files" && grep -q "/libkvpath.so.$version\$" "$work/files"
test "$(wc -l <"$work/files")" -eq 2
file=$(find "$work/root" -name "libkvpath.so.$version")
readelf -d "$file" | grep -qF "soname: [$soname]"

# It has nothing that only debuggers read; that is in a package of its own, which is of this very file.
if readelf -SW "$file" | grep -E '\.(debug_|symtab)'; then
    echo "the library is not stripped" >&2
    exit 1
fi
dpkg-deb --extract "$debug" "$work/debug"
symbols=$(find "$work/debug" ! -type d)
place=$(dirname "${file#"$work/root"}")
test "$symbols" = "$work/debug$place/.debug/libkvpath.so.$version.debug"
readelf -SW "$symbols" | grep -q '\.debug_line'
build_id() { readelf -n "$1" | grep 'Build ID'; }
test "$(build_id "$file")" = "$(build_id "$symbols")"
readelf --string-dump=.gnu_debuglink "$file" | grep -qF "libkvpath.so.$version.debug"

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
