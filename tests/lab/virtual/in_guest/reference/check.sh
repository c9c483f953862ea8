#!/bin/sh
# check.sh PAYLOAD: the reference cluster binds a volume and answers a service by its name.
set -eu
payload=$1
export KUBECONFIG="$HOME/reference.kubeconfig"
export PATH="$payload:$PATH"
kubectl apply --filename "$payload/checks.yaml"
kubectl wait --for=condition=complete --timeout=900s job/asker job/writer
kubectl logs job/asker | grep --quiet --line-regexp "web answers"
kubectl logs job/writer | grep --quiet --line-regexp "volume holds this"
kubectl get nodes,pods,persistentvolumeclaims --all-namespaces --output wide
kubectl get persistentvolumeclaim --output jsonpath='{.items[*].status.phase}' | grep --quiet --line-regexp Bound
