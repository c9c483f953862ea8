#!/bin/bash
#SBATCH --k8s=1
#SBATCH --nodes=1 --cpus-per-task=2 --mem=4G --time=30
set -e
archive=${ARCHIVE:-$HOME/images/tool.tar}
image=${IMAGE:-localhost/tool:1}

podman load --quiet --input "$archive"
podman build --quiet --network=none --tag localhost/mine:1 - <<END
FROM $image
RUN echo 'built in the job' >/note
END
podman save --quiet --output mine.tar localhost/mine:1
moorage load mine.tar
kubectl run mine --image=localhost/mine:1 --image-pull-policy=Never --restart=Never --attach --quiet \
    --pod-running-timeout=5m -- cat /note >/dev/null
kubectl logs pod/mine
