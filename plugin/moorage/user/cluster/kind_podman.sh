#!/bin/bash
# The podman that kind finds in its PATH: it answers faster than the real one, and adds words to `podman run`.
#
# Podman takes a tenth of a second for each call, and kind makes sixty calls in a start.
#  - An answer is kept and given again as long as it cannot change: what Podman says of itself, and what it says of the
#    node once the node is there.
#  - A command in the node runs without Podman: in the namespaces of the node's first process, with its environment,
#    as root of the node.

# The file beside this one sets `podman`, the path of the real one, and `more`, the words to add.
place=${0%/*}
podman=
more=()
# shellcheck source=/dev/null
. "$place/settings"

# Read the process that --pidfile has noted, and its environment.
look() { process=$(<"$place/process") && mapfile -d "" -t around <"/proc/$process/environ"; } 2>/dev/null

# Give the kept answer; ask Podman and keep the answer if there is none.
tell() {
    local answer=$place/${*//"/"/-}
    [ ${#answer} -lt 250 ] || exec "$podman" "$@"
    [ -e "$answer" ] || { "$podman" "$@" >"$answer.$$" && mv "$answer.$$" "$answer"; } || exit
    exec cat "$answer"
}

case $1 in
run) exec "$podman" run --pidfile="$place/process" "${more[@]}" "${@:2}" ;;
info | --version) tell "$@" ;;
inspect | ps) [ ! -e "$place/process" ] || tell "$@" ;;
exec) words=("${@:2}") ;;
esac
while [[ ${words[0]} = --privileged || ${words[0]} = -i ]]; do words=("${words[@]:1}"); done
if [[ ${words[0]-} = [^-]* ]] && look; then
    enter=(nsenter --target="$process" --user --mount --uts --ipc --net --pid --cgroup)
    exec env --ignore-environment "${around[@]}" "${enter[@]}" -- "${words[@]:1}"
fi
exec "$podman" "$@"
