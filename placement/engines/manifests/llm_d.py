"""llm-d: its wide expert parallelism is a LeaderWorkerSet for each role, with labels that its router looks for.

Read from llm-d/llm-d, ``guides/wide-ep-lws/modelserver/gpu`` (vllm-deepseek-v4 at 034b87dc5be6,
sglang-deepseek-r1-0528 at 250205402555): labels, ports, and the sidecar before a decode pool that fetches the
prefill.
"""

from __future__ import annotations

from collections.abc import Sequence

from placement.engines.manifests.kubernetes import Document, config_map, label, require_framework
from placement.engines.manifests.leader_worker_set import leader_worker_set
from placement.engines.manifests.pools import Pool

PORT, BEHIND = 8000, 8001
"""Where the router finds a model server, and where one listens behind the sidecar."""
SIDECAR = "<ROUTING-SIDECAR-IMAGE>"
_CONNECTORS = {"vllm": "nixlv2", "sglang": "sglang"}


def documents(pools: Sequence[Pool], image: str) -> list[Document]:
    """Return the ConfigMap and the LeaderWorkerSet of each pool.

    Raises
    ------
    InputError
        If an engine cannot be started so, or llm-d does not run it.
    """
    found: list[Document] = []
    for pool in pools:
        framework = require_framework(pool, tuple(_CONNECTORS), "llm-d")
        apart = pool.role == "decode"
        role = "prefill" if pool.role == "prefill" else "decode"
        labels = {
            "llm-d.ai/inference-serving": "true",
            "llm-d.ai/model": label(pool.launch.model.rpartition("/")[2]),
            "llm-d.ai/role": role,
            "llm-d.ai/engine-type": framework,
        }
        sidecars = [_sidecar(_CONNECTORS[framework])] if apart else []
        port = BEHIND if apart else PORT
        found += [*config_map(pool), leader_worker_set(pool, image, labels, port, sidecars)]
    return found


def notes(pools: Sequence[Pool]) -> list[str]:
    """Return what else must be there."""
    found = [
        "llm-d's router (InferencePool, gateway) is installed by its guide; it finds the pods by these labels"
    ]
    if any(pool.role == "decode" for pool in pools):
        found.append(f"{SIDECAR} stands for llm-d's image of the sidecar that fetches the prefill")
    return found


def _sidecar(connector: str) -> Document:
    return {
        "name": "routing-proxy",
        "image": SIDECAR,
        "args": [
            f"--port={PORT}",
            f"--vllm-port={BEHIND}",
            f"--kv-connector={connector}",
            "--secure-proxy=false",
        ],
        "ports": [{"name": "sidecar", "containerPort": PORT}],
        "restartPolicy": "Always",
    }
