#!/bin/bash
#SBATCH --k8s=1
#SBATCH --nodes=1 --cpus-per-task=2 --mem=4G --time=30
set -e
kubectl get nodes
