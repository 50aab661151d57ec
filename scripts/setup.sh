#!/bin/sh
# Installs what building and testing need and this machine lacks (Debian and its relatives), and
# says what it does. Quick and silent when nothing is missing. Needs root for packages: uses sudo
# where it is not root.
set -eu

rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

say() { echo "setup: $*"; }
has() { command -v "$1" >/dev/null 2>&1; }

# at_least HAVE WANTED: whether a version is not older.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

missing=""
need() { has "$1" || missing="$missing $2"; }
need cc build-essential
need c++ build-essential
need make build-essential
need nm binutils
need cmake cmake
need pkg-config pkg-config
# Building and `demo` need no more; `demo-hang` mounts, `wheel` packs, `glusterfs` serves,
# `filesystems` makes them. The tests mount file systems of their own and of others, check JSON
# against schemas, compare the ABI, and try the package.
mounts=no packs=no gluster=no makes=no for_tests=no
case "${1:-}" in
demo) ;;
demo-hang) mounts=yes ;;
wheel) packs=yes ;;
glusterfs) gluster=yes ;;
filesystems) makes=yes ;;
*) mounts=yes packs=yes for_tests=yes ;;
esac
if [ "$mounts" = yes ]; then
    need fusermount3 fuse3
    need bindfs bindfs
fi
if [ "$gluster" = yes ]; then
    PATH="$PATH:/usr/sbin:/sbin"
    need glusterd glusterfs-server
    need glusterfs glusterfs-client
    need unshare util-linux
    need ip iproute2
fi
if [ "$makes" = yes ]; then
    PATH="$PATH:/usr/sbin:/sbin"
    need mkfs.ext4 e2fsprogs
    need mkfs.xfs xfsprogs
    need mkfs.btrfs btrfs-progs
    need losetup mount
    need unshare util-linux
fi
if [ "$packs" = yes ]; then
    # What the package takes from PyPI goes into virtual environments.
    need python3 python3
    python3 -c "import ensurepip, venv" 2>/dev/null || missing="$missing python3-venv"
fi
if [ "$for_tests" = yes ]; then
    PATH="$PATH:/usr/sbin:/sbin"
    need abidiff abigail-tools
    need mkfs.ext4 e2fsprogs
    need losetup mount
    need unshare util-linux
    need file file
    need dpkg-shlibdeps dpkg-dev
    for python in python3 /usr/bin/python3; do
        "$python" -c "import jsonschema" 2>/dev/null && break
        [ "$python" = python3 ] || missing="$missing python3-jsonschema"
    done
fi

rust_is_fine() {
    has cargo && has rustc && at_least "$(rustc --version | cut -d ' ' -f 2)" "$rust_wanted"
}
if ! rust_is_fine && ! has rustup; then
    need curl curl
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
fi

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    else
        say "needs root for: $*"
        exit 1
    fi
}

if [ -n "$missing" ]; then
    missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
    if ! has apt-get; then
        say "no apt-get here; please install: $missing"
        exit 1
    fi
    say "installing with apt-get: $missing"
    as_root apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing </dev/null
fi

if ! rust_is_fine; then
    if has rustup; then
        say "installing Rust (at least $rust_wanted is needed) with rustup"
        rustup toolchain install stable --profile minimal -c rustfmt -c clippy </dev/null
        rustup default stable </dev/null
    else
        say "installing Rust (at least $rust_wanted is needed) with rustup from https://sh.rustup.rs"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
            sh -s -- -y --profile minimal -c rustfmt -c clippy
    fi
fi
for tool in rustfmt cargo-clippy; do
    if ! has "$tool" && has rustup; then
        say "installing $tool"
        rustup component add "${tool#cargo-}" </dev/null
    fi
done

# promtool checks metrics and alert rules. Only the program is taken out of Debian's package: to
# install that would start a server. Its tests skip where it cannot be had.
tools="$(dirname "$0")/../target/tools"
if [ "$for_tests" = yes ] && ! has promtool && ! [ -x "$tools/promtool" ] && has apt-get; then
    say "taking promtool out of the Debian package prometheus"
    mkdir -p "$tools"
    scratch=$(mktemp -d)
    chmod 755 "$scratch"
    (
        cd "$scratch"
        apt-get download -qq prometheus >/dev/null 2>&1 ||
            { as_root apt-get update -qq && apt-get download -qq prometheus >/dev/null 2>&1; }
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
    ) </dev/null && mv "$scratch/usr/bin/promtool" "$tools/promtool" ||
        say "promtool cannot be had here; the tests that need it will skip"
    rm -rf "$scratch"
fi
