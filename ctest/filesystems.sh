#!/bin/sh
# Every engine on file systems of every kind: blocks of 1 MiB, and blocks whose shards are no
# multiple of any sector (116,992 bytes, at addresses that are multiples of 64), by one task and by
# one task a shard. What was dumped is loaded and compared byte by byte. A file system either works
# or fails the open with a text; nothing else passes.
#
#   ctest/filesystems.sh KVBENCH [CASE...]
#
# Needs root, loop devices and unshare; a case whose mkfs is not there is left out and said so.
# Mounts are in a namespace of their own and loop devices detach themselves, so nothing is left.
set -eu
test "$(id -u)" = 0 || { echo "filesystems: needs root"; exit 77; }
if [ "${KVPATH_OWN_MOUNTS:-}" != 1 ]; then
    KVPATH_OWN_MOUNTS=1 exec unshare --mount --propagation private "$0" "$@"
fi
PATH=$PATH:/usr/sbin:/sbin
kvbench=$(realpath "$1")
shift
cases=${*:-ext4-512 ext4-4096 xfs-512 xfs-4096 btrfs-512 btrfs-4096 tmpfs overlay}
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/kvpath-fs-XXXXXX")
place=$scratch/place
mkdir "$place"
leave() {
    umount "$place" 2>/dev/null || true
    umount "$scratch/under" 2>/dev/null || true
    rm -rf "$scratch"
}
trap leave EXIT
trap 'exit 1' INT TERM

# on_loop KIND SECTOR WHERE: a fresh file system on a loop device.
on_loop() {
    command -v "mkfs.$1" >/dev/null || { echo "$1-$2: left out: no mkfs.$1"; return 1; }
    rm -f "$scratch/image"
    truncate -s 1G "$scratch/image"
    device=$(losetup --find --show --sector-size "$2" "$scratch/image")
    # Detached at once, it goes when the mount does.
    if mkfs."$1" -q "$device" >/dev/null 2>&1 && mount "$device" "$3"; then
        losetup -d "$device"
        return 0
    fi
    losetup -d "$device"
    echo "$1-$2: left out: it cannot be made or mounted here"
    return 1
}

prepare() {
    case $1 in
    tmpfs) mount -t tmpfs -o size=1G tmpfs "$place" ;;
    overlay)
        mkdir -p "$scratch/under"
        on_loop ext4 4096 "$scratch/under" || return 1
        mkdir "$scratch/under/lower" "$scratch/under/upper" "$scratch/under/work"
        under=$scratch/under
        mount -t overlay -o "lowerdir=$under/lower,upperdir=$under/upper,workdir=$under/work" \
            overlay "$place"
        ;;
    *) on_loop "${1%-*}" "${1#*-}" "$place" ;;
    esac
}

failed=0
id=1
# once CASE ENGINE NAME WORDS...: dumps, loads, compares.
once() {
    what="$1, $2, $3"
    engine=$2
    shift 3
    id=$((id + 1000))
    for op in dump load; do
        status=0
        "$kvbench" transfer --op $op --engine "$engine" --root "$place/store" --first-id $id \
            --warm 0 "$@" >/dev/null 2>"$scratch/text" || status=$?
        if [ $status != 0 ]; then
            if [ $op = dump ] && grep -q '^kvbench: open: KVPATH_STORE_UNHEALTHY: .' "$scratch/text"; then
                echo "refused: $what: $(cat "$scratch/text")"
                return
            fi
            echo "FAILED:  $what: $op: $(cat "$scratch/text")"
            failed=1
            return
        fi
    done
    echo "works:   $what"
}

for name in $cases; do
    prepare "$name" || continue
    mkdir "$place/store"
    for engine in psync aio io_uring; do
        for direct in 1 0; do
            set -- --direct $direct --dir-digits 1 --blocks 24
            odd="--block-bytes 935936 --shards 8 --task-blocks 4"
            once "$name" $engine "1 MiB, direct $direct" "$@" --block-bytes 1048576
            # shellcheck disable=SC2086
            once "$name" $engine "odd shards at once, direct $direct" "$@" $odd --shape shards
            # shellcheck disable=SC2086
            once "$name" $engine "odd shards by layer, direct $direct" "$@" $odd --shape layers
        done
    done
    umount "$place"
    [ "$name" != overlay ] || umount "$scratch/under"
done
exit $failed
