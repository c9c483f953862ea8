#!/bin/bash
#SBATCH --k8s=cluster=none
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --mem=1G --time=30
set -e
archive=${ARCHIVE:-$HOME/images/tool.tar}
image=${IMAGE:-localhost/tool:1}

srun podman load --quiet --input "$archive"
srun podman run --detach --name part --network moorage --cap-add=net_raw "$image" sleep 600
srun podman inspect --format '{{.NetworkSettings.Networks.moorage.IPAddress}}' part >addresses
while read -r address; do
    podman exec part ping -c 1 "$address" </dev/null
done <addresses
