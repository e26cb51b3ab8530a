"""How a plan's replicas are started where many hosts are: Kubernetes manifests and Slurm scripts."""

KINDS = ("shell", "lws", "kueue", "kai", "grove", "rbg", "dynamo", "llm-d", "slurm")
"""What ``rackplan export`` writes to start an engine: ``shell`` is the lines that it prints, the others are files."""
