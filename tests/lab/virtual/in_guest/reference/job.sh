#!/bin/bash
# job.sh FORM CONFIG IMAGE ARCHIVE
# A cluster in a Slurm job as the published Kind-Slurm-Integration makes it: kind in rootless Podman, held by the
# user's own lingering systemd session, with the default network driver. Every line of kind's is printed with the
# moment at which it came.
set -euo pipefail
form=$1 config=$2 image=$3 archive=$4

stamp() { printf "@%s %s\n" "$EPOCHREALTIME" "$*"; }

export XDG_RUNTIME_DIR=/run/user/$UID
export DBUS_SESSION_BUS_ADDRESS=unix:path=$XDG_RUNTIME_DIR/bus
payload=$(dirname "$archive")
export PATH=$payload:$PATH
export KIND_EXPERIMENTAL_PROVIDER=podman
export KUBECONFIG=$HOME/reference.kubeconfig

stamp "cgroup $(cut -d: -f3 /proc/self/cgroup)"
if [ "$form" = cold ]; then
    stamp "phase loading the node image archive"
    podman load --quiet --input "$archive"
fi
stamp "phase starting kind"
kind create cluster --image "$image" --config "$config" --wait 0 2>&1 | while read -r line; do
    case $line in
    *•*) stamp "phase ${line#*• }" ;;
    *) stamp "kind $line" ;;
    esac
done
stamp "phase waiting until ready"
# Slurm runs a copy of this script, in a directory of its own.
python3 -I -S "$HOME/reference/await_ready.py" "$KUBECONFIG"
stamp "phase ready"
sleep infinity
