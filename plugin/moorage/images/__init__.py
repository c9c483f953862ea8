"""The node's images: how they get there, how they are made to start fast, and how a job sees them."""
