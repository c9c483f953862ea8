"""A Kubernetes cluster moored to a Slurm job."""

__version__ = "0.1.0"
