#!/bin/bash
#SBATCH --k8s=1
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --mem=4G --time=60
set -e
archive=${ARCHIVE:-$HOME/images/tool.tar}
image=${IMAGE:-localhost/tool:1}

moorage load "$archive"
kubectl apply --filename=- <<END
apiVersion: batch/v1
kind: Job
metadata: {name: hello}
spec:
  completions: $SLURM_JOB_NUM_NODES
  parallelism: $SLURM_JOB_NUM_NODES
  completionMode: Indexed
  backoffLimit: 0
  template:
    metadata:
      labels: {app: hello}
    spec:
      restartPolicy: Never
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          labelSelector:
            matchLabels: {app: hello}
      containers:
        - name: hello
          image: $image
          imagePullPolicy: Never
          command: [sh, -c, 'echo "part \$JOB_COMPLETION_INDEX runs on \$NODE"']
          env:
            - name: NODE
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
END

until conditions=$(kubectl get job/hello --output=jsonpath='{.status.conditions[*].type}'); [[ $conditions == *Complete* ]]; do
    [[ $conditions != *Failed* ]] || exit 1
    sleep 2
done
kubectl logs --selector=app=hello
