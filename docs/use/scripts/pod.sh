#!/bin/bash
#SBATCH --k8s=1
#SBATCH --nodes=1 --cpus-per-task=2 --mem=4G --time=30
set -e
archive=${ARCHIVE:-$HOME/images/tool.tar}
image=${IMAGE:-localhost/tool:1}

moorage load "$archive"
kubectl run tool --image="$image" --image-pull-policy=Never --restart=Never --attach --quiet \
    --pod-running-timeout=5m -- expr 6 '*' 7 >/dev/null
kubectl logs pod/tool | tee result.txt
