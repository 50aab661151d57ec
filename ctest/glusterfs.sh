#!/bin/sh
# kvpath on a real GlusterFS volume: one server with one brick, three client mounts of the volume,
# all on this machine.
#
#   ctest/glusterfs.sh BUILD [PART...]    (default: demo soak)
#
#   demo  the replay of requests, while one client is killed and its mount made again, and while
#         one is stopped and continued; direct and buffered
#   soak  ctest/soak on the mounts, for SOAK_SECONDS (600) with each of SOAK_ENGINES, while clients
#         are killed, mounted again, stopped and continued all the time
#   run   what $RUN says, with the mounts in $A, $B and $C, the brick in $BRICK and $CLIENT to break
#         them
#
# VOLUME_OPTIONS: "key=value ..." for `gluster volume set`; MOUNT_OPTIONS: for the client.
#
# Needs root, glusterfs-server, glusterfs-client and unshare. Everything runs in namespaces of its
# own (mounts, network, processes), where its end ends all of it, and in one directory.
set -eu
PATH=$PATH:/usr/sbin:/sbin
say() { echo "glusterfs: $*"; }

if [ "${KVPATH_GLUSTERFS:-}" = "" ]; then
    [ "$(id -u)" = 0 ] || { say "needs root"; exit 77; }
    for tool in glusterd gluster glusterfs unshare ip; do
        command -v $tool >/dev/null || { say "needs $tool"; exit 77; }
    done
    [ -e /dev/fuse ] || { say "needs /dev/fuse"; exit 77; }
    KVPATH_GLUSTERFS=$(mktemp -d "${TMPDIR:-/var/tmp}/kvpath-glusterfs-XXXXXX")
    export KVPATH_GLUSTERFS
    mkdir -p /var/lib/glusterd /var/log/glusterfs
    unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private "$0" "$@" &
    inside=$!
    # The first process of the namespace takes all others of it along, stopped ones, too.
    trap 'kill -KILL $inside 2>/dev/null || true; wait; rm -rf "$KVPATH_GLUSTERFS"' EXIT
    trap 'exit 1' INT TERM HUP
    wait $inside
    exit
fi

build=$(realpath "$1")
shift
parts=${*:-demo soak}
place=$KVPATH_GLUSTERFS
address=10.213.0.1
export A="$place/mount0" B="$place/mount1" C="$place/mount2" BRICK="$place/brick"
export CLIENT="$place/client"

serve() {
    mkdir "$place/state" "$place/log" "$place/run" "$BRICK" "$A" "$B" "$C"
    cp -a /var/lib/glusterd/. "$place/state/"
    mount --bind "$place/state" /var/lib/glusterd
    mount --bind "$place/log" /var/log/glusterfs
    # Its sockets and pid file are there: two of these may run at the same time.
    mkdir "$place/run/gluster"
    mount --bind "$place/run" /run
    ip link set lo up
    # A volume may not be on the loopback network.
    ip address add $address/32 dev lo
    glusterd --log-level WARNING || { say "glusterd does not start"; exit 1; }
    tries=0
    until gluster --mode=script volume create kv $address:"$BRICK" force >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { say "the volume cannot be made"; exit 1; }
        sleep 0.2
    done
    for option in ${VOLUME_OPTIONS:-}; do
        gluster --mode=script volume set kv "${option%%=*}" "${option#*=}" >/dev/null
    done
    gluster --mode=script volume start kv >/dev/null
    say "$(glusterfs --version | head -n 1); options: ${VOLUME_OPTIONS:-as they come}"
}

# client NUMBER WHAT. A stopped client goes on after a while in any case: nobody else on this
# machine may have to wait for it for ever.
write_client() {
    cat >"$CLIENT" <<END
#!/bin/sh
set -e
pid=$place/client\$1.pid
mount=$place/mount\$1
case \$2 in
mount)
    umount -l \$mount 2>/dev/null || true
    glusterfs --volfile-server=$address --volfile-id=/kv --pid-file=\$pid \\
        --log-file=$place/log/client\$1.log --log-level=WARNING ${MOUNT_OPTIONS:-} \$mount
    mountpoint -q \$mount
    ;;
stop)
    kill -STOP \$(cat \$pid)
    (sleep 30 && kill -CONT \$(cat \$pid)) >/dev/null 2>&1 &
    ;;
cont) kill -CONT \$(cat \$pid) ;;
kill) kill -KILL \$(cat \$pid) ;;
esac
END
    chmod +x "$CLIENT"
}

failed=0
# try WHAT COMMAND...
try() {
    say "$1"
    shift
    status=0
    "$@" || status=$?
    [ $status = 0 ] || { say "FAILED ($status)"; failed=1; }
}

demo() {
    for direct in on off; do
        set -- "$build/examples/replay" --dir "$place/work" --backends "$A:$B:$C" --direct $direct
        try "demo, direct $direct: a client is killed, and its mount made again" \
            "$@" --break "$CLIENT 1 kill" --mend "$CLIENT 1 mount"
        try "demo, direct $direct: a client is stopped, and continued" \
            "$@" --break "$CLIENT 1 stop" --mend "$CLIENT 1 cont"
    done
}

soak() {
    export KVPATH_SOAK_PATHS="$A:$B:$C" KVPATH_SOAK_STORAGE="$BRICK" KVPATH_SOAK_CLIENT="$CLIENT"
    export KVPATH_SOAK_SECONDS="${SOAK_SECONDS:-600}" KVPATH_SOAK_SEED="${SOAK_SEED:-1}"
    for engine in ${SOAK_ENGINES:-psync aio io_uring}; do
        find "$A" -mindepth 1 -delete
        sleep 3 # the other clients remember the last storage (KVPATH_SOAK_STALE_MS)
        try "soak, $engine" env KVPATH_TEST_ENGINE="$engine" "$build/ctest/soak/soak_clients" chaos
    done
}

run() { try "$RUN" sh -c "$RUN"; }

serve
write_client
for number in 0 1 2; do "$CLIENT" $number mount; done
for part in $parts; do "$part"; done
for mount in "$A" "$B" "$C"; do
    umount -l "$mount"
    # What was on its way when a mount was missing may have left a temporary; a block never.
    stray=$(find "$mount" -type f ! -name '*.tmp*')
    [ -z "$stray" ] || { say "FAILED: made below an empty mount point: $stray"; failed=1; }
done
exit $failed
