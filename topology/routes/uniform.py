"""How fast some GPUs talk when all talk to all: the rate that costs take for a torus or a mesh."""

from __future__ import annotations

from collections.abc import Sequence

from topology.cluster import Cluster
from topology.routes.link_loads import Router
from topology.routes.traffic import pattern_traffic


def uniform_bytes_per_s(cluster: Cluster, gpus: Sequence[int], router: Router | None = None) -> float:
    """Return the bytes/s that each of ``gpus`` sends in an all-to-all of equal parts among them, without latency.

    In a switched domain this is the sum of a GPU's links; on a torus it falls with the longest dimension, since
    bytes take several links (time ``k / 8 * bytes / link rate`` for an even ring of ``k``, twice that for a line).

    ``router`` is the cluster's, if it has been made already.

    Raises
    ------
    InputError
        If there are fewer than two GPUs, or some pair has no route.
    """
    loads = (router or Router(cluster)).loads(pattern_traffic("all-to-all", len(cluster.gpus), 1.0, gpus))
    return 1.0 / loads.transfer_s
