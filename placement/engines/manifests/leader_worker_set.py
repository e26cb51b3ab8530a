"""Kubernetes' LeaderWorkerSet: a group of pods for each replica, one pod a host.

Read from kubernetes-sigs/lws at 060ab4da17ee: ``api/leaderworkerset/v1/types.go`` (fields, labels, the variables of a
pod) and ``docs/examples``. Pods of a group are numbered from 0, the leader, in ``LWS_WORKER_INDEX``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placement.engines.manifests.kubernetes import (
    FOLDER,
    Document,
    affinity,
    config_map,
    container,
    volumes,
)
from placement.engines.manifests.pools import Pool
from topology.base.errors import InputError, input_name

API = "leaderworkerset.x-k8s.io/v1"
NAME_LABEL, INDEX_LABEL = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/worker-index"


def documents(pools: Sequence[Pool], image: str) -> list[Document]:
    """Return the ConfigMap, the LeaderWorkerSet and the Service of each pool.

    Raises
    ------
    InputError
        If an engine cannot be started so.
    """
    found: list[Document] = []
    for pool in pools:
        port = pool.engine.port
        found += [*config_map(pool), leader_worker_set(pool, image, {}, port), service(pool, port)]
    return found


def leader_worker_set(
    pool: Pool,
    image: str,
    labels: Mapping[str, str],
    port: int,
    sidecars: Sequence[Document] = (),
) -> Document:
    """Return the LeaderWorkerSet of a pool: ``labels`` are of its pods too, ``sidecars`` start before the engine.

    Raises
    ------
    InputError
        If the engine cannot be started so.
    """
    launch = pool.launched(
        file=f"{FOLDER}/{pool.map_name}", rank="$LWS_WORKER_INDEX", address="$LWS_LEADER_ADDRESS"
    )
    reason = pool.engine.cannot_spread(launch)
    if reason:
        raise InputError(f"{input_name('launch')} lws or llm-d, {pool.engine.title}: {reason}.")
    lines = [*pool.engine.command(launch), pool.engine.listen(port)]
    serves = pool.engine.answers_everywhere(launch)
    spec: Document = {
        **({"initContainers": list(sidecars)} if sidecars else {}),
        "containers": [container(pool, pool.engine.name, image, lines, port if serves else None)],
        "volumes": volumes(pool),
        **affinity(pool),
    }
    template: Document = {**({"metadata": {"labels": dict(labels)}} if labels else {}), "spec": spec}
    metadata: Document = {"name": pool.name, **({"labels": dict(labels)} if labels else {})}
    inner = {
        "size": len(pool.hosts),
        "restartPolicy": "RecreateGroupOnPodRestart",
        "workerTemplate": template,
    }
    body = {"replicas": len(pool.replicas), "leaderWorkerTemplate": inner}
    return {"apiVersion": API, "kind": "LeaderWorkerSet", "metadata": metadata, "spec": body}


def service(pool: Pool, port: int) -> Document:
    """Return the Service of a pool: its leaders, or every pod where each serves its own groups."""
    selector = {NAME_LABEL: pool.name}
    if not pool.engine.serves_everywhere(pool.launch):
        selector[INDEX_LABEL] = "0"
    ports = [{"name": "http", "port": port, "targetPort": port}]
    spec = {"selector": selector, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": pool.name}, "spec": spec}
