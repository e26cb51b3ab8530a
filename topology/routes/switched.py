"""Switched domains whose GPUs all have the same links: loads from row and column sums alone.

Where every GPU has the same number of links to each chip, fewest-hop routes share a pair's bytes over all chips in
that proportion whoever the peers are, so a link carries its part of all that its GPU sends or receives. Equal to the
general engine (tested), and linear in GPUs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topology.routes.network import Network

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def alike_domains(network: Network, domains: int) -> NDArray[np.bool_]:
    """Return for each domain whether all its links join a GPU and a chip, each chip to every GPU alike."""
    links = np.flatnonzero(network.scale_up_domain >= 0)
    tail, head, weight = network.tail[links], network.head[links], network.weight[links]
    domain = network.scale_up_domain[links]
    nodes = len(network.names)
    down = (tail >= network.gpus) & (head < network.gpus)
    chip, load = tail[down], weight[down]
    degree = np.bincount(chip, minlength=nodes)
    least, most = np.full(nodes, np.inf), np.zeros(nodes)
    np.minimum.at(least, chip, load)
    np.maximum.at(most, chip, load)
    slowest, fastest = np.full(domains, np.inf), np.zeros(domains)
    latency = network.latency_s[links]
    np.minimum.at(slowest, domain, latency)
    np.maximum.at(fastest, domain, latency)
    size = np.bincount(network.domain[: network.gpus], minlength=domains)
    alike = (np.bincount(domain, minlength=domains) > 0) & (slowest == fastest)
    gpu_to_chip = (tail < network.gpus) & (head >= network.gpus)
    alike[domain[~down & ~gpu_to_chip]] = False
    chips = np.unique(chip)
    uneven = (degree[chips] != size[network.domain[chips]]) | (least[chips] != most[chips])
    alike[network.domain[chips[uneven]]] = False
    return np.asarray(alike)


def chip_share(network: Network, links: Ints) -> Floats:
    """Return the part of a GPU's bytes that each of the given links between GPUs and chips carries."""
    tail, head = network.tail[links], network.head[links]
    gpu = np.minimum(tail, head)  # GPUs are numbered before chips
    weight = network.weight[links]
    # both directions of a GPU's links are among those given
    whole = np.bincount(gpu, weight, network.gpus) / 2
    return weight / whole[gpu]
