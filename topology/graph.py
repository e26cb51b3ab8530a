"""The contract of a cluster graph: which attributes its nodes and edges carry.

Nodes
    ========== ===============================================================================================
    kind       ``gpu``; ``switch`` (scale-up switch chip); ``leaf``, ``spine``, ``core``, ``router`` (scale-out;
               routers make a dragonfly); ``nic``, ``pcie``, ``host`` (raw graphs only)
    domain     number of the scale-up domain; None outside
    node       id of the host (``d0.n3``); of a switch chip that one host has; None elsewhere
    rack       id of the cabinet (``d0.r0``); None for switches
    rail       position of a GPU in its host, rail of a leaf; None elsewhere
    plane      number of a switch chip's plane in its domain, or of a spine or core; None elsewhere
    pod        number of the pod (or dragonfly group) of a leaf, spine or router; None elsewhere
    coordinate in a torus, the place of a GPU: one number a dimension; None elsewhere
    ========== ===============================================================================================

Edges (undirected; both directions carry the same rate)
    ================ ===========================================================================
    fabric           name of the network (``nvlink5``, ``ib-ndr400``)
    kind             technology of the link (``nvlink``, ``ib``, ...)
    count            parallel links that the edge stands for
    link_bytes_per_s bytes/s of one link, per direction, as built; NaN where nobody has published it
    health           1.0 as built; below it, the part of its rate that a degraded edge still carries
    bytes_per_s      ``count * link_bytes_per_s * health``, per direction
    latency_s        seconds for one hop
    ================ ===========================================================================

The graph itself carries ``broken_gpus`` (ids) and ``broken_links`` (pairs of ids): what was built and does not
work. Broken parts are not among the nodes and edges.

Ids: GPUs ``d0.n3.g1``; switch chips ``d0.s1``, in a two-tier domain ``d0.n3.s1`` (host 3, plane 1) and above them
``d0.s1.u5``. Rail: leaves ``f.p2.l1`` (pod 2, rail 1), spines ``f.s0``. Leaf-spine: ``f.l4``, ``f.s0``. Fat-tree:
leaves ``f.p2.l1``, spines ``f.p2.s0`` (pod 2), cores ``f.c0.1`` (number 1 of those above spines 0). Dragonfly:
routers ``f.g2.r1`` (group 2). With planes of NICs ``f0.p2.l1`` is in the first, ``f1.p2.l1`` in the second.
A raw graph has the ids of its file.
"""

from __future__ import annotations

from topology.spec import FabricSpec

NODE_KINDS = ("gpu", "switch", "leaf", "spine", "core", "router", "nic", "pcie", "host")
SCALE_UP_KINDS = ("gpu", "switch")
INSIDE_KINDS = ("pcie", "host")
SCALE_OUT_KINDS = ("leaf", "spine", "core", "router")
NODE_ATTRIBUTES = ("kind", "domain", "node", "rack", "rail", "plane", "pod", "coordinate")
EDGE_ATTRIBUTES = ("fabric", "kind", "count", "link_bytes_per_s", "health", "bytes_per_s", "latency_s")


def node_attributes(kind: str, **known: object) -> dict[str, object]:
    """Return all node attributes, None where ``known`` has nothing."""
    return {"kind": kind, **{key: known.get(key) for key in NODE_ATTRIBUTES if key != "kind"}}


def edge_attributes(fabric: FabricSpec, count: int) -> dict[str, object]:
    """Return the attributes of ``count`` parallel links of ``fabric``."""
    rate = fabric.link_bytes_per_s.value
    return {
        "fabric": fabric.name,
        "kind": fabric.kind,
        "count": count,
        "link_bytes_per_s": rate,
        "health": 1.0,
        "bytes_per_s": count * rate,
        "latency_s": fabric.latency_s.value,
    }
