#!/bin/bash
#SBATCH --k8s=cluster=none
#SBATCH --nodes=1 --cpus-per-task=2 --mem=1G --time=30
set -e
archive=${ARCHIVE:-$HOME/images/tool.tar}
image=${IMAGE:-localhost/tool:1}

podman load --quiet --input "$archive"
mkdir -p data
echo 'the input' >data/input
podman run --rm --memory=200m --volume "$PWD/data:/data" "$image" sh -c 'wc -c </data/input >/data/output'
cat data/output
