#!/bin/bash
#SBATCH --k8s=cluster=none,uplink=none
#SBATCH --nodes=1 --cpus-per-task=2 --mem=1G --time=30
set -e
archive=${ARCHIVE:-$HOME/images/tool.tar}
image=${IMAGE:-localhost/tool:1}

moorage net explain
podman load --quiet --input "$archive"
podman run --rm "$image" sh -c '! ip route | grep default'
