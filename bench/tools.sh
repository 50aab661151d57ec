#!/bin/sh
# Installs what the benchmark measures with, where it is missing.
set -e
missing=
command -v fio >/dev/null || missing="$missing fio"
command -v strace >/dev/null || missing="$missing strace"
test -e /usr/include/liburing.h || missing="$missing liburing-dev"
test -z "$missing" && exit 0
sudo=
test "$(id -u)" = 0 || sudo=sudo
echo "installing:$missing"
$sudo apt-get install -y $missing || {
    $sudo apt-get update
    $sudo apt-get install -y $missing
}
