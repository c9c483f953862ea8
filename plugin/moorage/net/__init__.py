"""The networks of a job: the fabric that its nodes share, and the node as its gateway to the outside."""
