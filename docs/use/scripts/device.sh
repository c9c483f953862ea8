#!/bin/bash
#SBATCH --k8s=1 --gres=tape:1
#SBATCH --nodes=1 --cpus-per-task=2 --mem=4G --time=30
set -e
archive=${ARCHIVE:-$HOME/images/tool.tar}
image=${IMAGE:-localhost/tool:1}
device=${DEVICE:-/dev/tape0}

moorage load "$archive"
kubectl apply --filename=- <<END
apiVersion: v1
kind: Pod
metadata: {name: tape}
spec:
  restartPolicy: Never
  containers:
    - name: tape
      image: $image
      imagePullPolicy: Never
      command: [sh, -c, 'exec 3<$device && echo opened']
      volumeMounts:
        - {name: device, mountPath: $device}
  volumes:
    - name: device
      hostPath: {path: $device, type: CharDevice}
END

until phase=$(kubectl get pod/tape --output=jsonpath='{.status.phase}'); [ "$phase" = Succeeded ]; do
    [ "$phase" != Failed ] || { kubectl logs pod/tape; exit 1; }
    sleep 2
done
kubectl logs pod/tape
