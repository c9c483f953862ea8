#!/bin/sh -eu
# Hide the directory $1, /run/systemd, in Podman's namespaces under an empty one that nobody can write to.
#
# Its part `resolve` stays: /etc/resolv.conf may lead to it, which Podman reads, and so does the program that carries the
# containers' packets. Flags that are locked on a user's mounts must be named again to be kept.

[ ! -d "$1/resolve" ] || { exec 3<"$1/resolve" && kept=yes; }
mount -t tmpfs -o mode=755,size=4k,nr_inodes=2 tmpfs "$1"
if [ "${kept-}" ]; then
    mkdir "$1/resolve"
    mount --no-canonicalize -o rbind,ro,nosuid,nodev,noexec /proc/self/fd/3 "$1/resolve"
fi
mount -o remount,bind,ro "$1"
