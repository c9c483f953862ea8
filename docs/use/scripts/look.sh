#!/bin/bash
# Run it on a login node: look.sh JOBID
set -e
srun --jobid="$1" --overlap --nodes=1 --ntasks=1 bash -es <<'END'
KUBECONFIG=$(moorage kubeconfig)
export KUBECONFIG PATH=${KUBECONFIG%/*}/bin:$PATH
kubectl get nodes
kubectl get pods --all-namespaces
moorage status
END
