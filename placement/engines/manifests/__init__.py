"""How a plan's replicas are started where many hosts are: Kubernetes manifests, scripts of Slurm and MPI."""

KINDS = ("shell", "lws", "kueue", "kai", "grove", "rbg", "dynamo", "llm-d", "slurm", "mpi")
"""What ``rackplan export`` writes to start an engine: ``shell`` is the lines that it prints, the others are files."""
