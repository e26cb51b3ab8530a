"""NVIDIA Dynamo: a DynamoGraphDeployment with a frontend and a component for each pool.

Read from ai-dynamo/dynamo: ``deploy/operator/api/v1beta1`` (``dynamocomponentdeployment_types.go`` at 006b6e1085b6,
``common.go`` at 02911c80e47b), ``deploy/operator/internal/dynamo/backend_*.go`` (the operator adds the flags of
several hosts) and ``recipes`` (modules and their flags).
"""

from __future__ import annotations

from collections.abc import Sequence

from placement.engines.manifests.kubernetes import (
    FOLDER,
    Document,
    affinity,
    config_map,
    container,
    dns_name,
    require_framework,
    volumes,
)
from placement.engines.manifests.pools import Pool
from topology.base.errors import InputError, input_name

FRAMEWORKS = ("sglang", "vllm", "trtllm")
_TYPES = {"both": "worker", "prefill": "prefill", "decode": "decode"}
_NAMES = {"both": "Worker", "prefill": "PrefillWorker", "decode": "DecodeWorker"}


def documents(pools: Sequence[Pool], image: str) -> list[Document]:
    """Return the ConfigMap of each pool, and one DynamoGraphDeployment.

    Raises
    ------
    InputError
        If Dynamo does not run the engine, or cannot start it so.
    """
    found: list[Document] = []
    components: list[Document] = [_frontend(image)]
    frameworks = {require_framework(pool, FRAMEWORKS, "dynamo"): pool for pool in pools}
    for pool in pools:
        found += config_map(pool)
        components.append(_component(pool, image))
    spec = {"backendFramework": next(iter(frameworks)), "components": components}
    name = dns_name(pools[0].launch.model.rpartition("/")[2])
    return [
        *found,
        {
            "apiVersion": "nvidia.com/v1beta1",
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": name},
            "spec": spec,
        },
    ]


def notes(image: str) -> list[str]:
    """Return what else must be said."""
    if image:
        return ["an image whose tag is no version of Dynamo needs runtimeVersionOverride in each component"]
    return [
        "the image is one of Dynamo with the engine; a tag that is no version needs runtimeVersionOverride"
    ]


def _frontend(image: str) -> Document:
    main = {"name": "main", "image": image or "<IMAGE>", "command": ["python3", "-m", "dynamo.frontend"]}
    return {
        "name": "Frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [main]}},
    }


def _component(pool: Pool, image: str) -> Document:
    launch = pool.launched(file=f"{FOLDER}/{pool.map_name}", module=f"dynamo.{pool.engine.framework}")
    reason = pool.engine.cannot_spread(launch) if pool.engine.framework == "vllm" else ""
    if reason:
        raise InputError(f"{input_name('launch')} dynamo, {pool.engine.title}: {reason}.")
    main = container(pool, "main", image, pool.engine.command(launch), None)
    shown = [volume for volume in volumes(pool) if volume["name"] != "dshm"]
    main["volumeMounts"] = [mount for mount in main["volumeMounts"] if mount["name"] != "dshm"]
    return {
        "name": _NAMES[pool.role],
        "type": _TYPES[pool.role],
        "replicas": len(pool.replicas),
        **({"multinode": {"nodeCount": len(pool.hosts)}} if len(pool.hosts) > 1 else {}),
        "podTemplate": {"spec": {"containers": [main], "volumes": shown, **affinity(pool)}},
    }
