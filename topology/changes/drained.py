"""A cluster with its slow NICs and links disabled, as operators do when others have capacity.

Traffic of a NIC that is down fails over to the host's other NICs, that of a link to those beside it; one that is slow
keeps its part of the bytes and holds up all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from topology.base.errors import RackplanError
from topology.base.units import format_quantity
from topology.build import rebuilt
from topology.changes.broken import with_faults
from topology.cluster import Cluster
from topology.graph import SCALE_OUT_KINDS
from topology.routes import LinkLoads, Router, Traffic, pattern_traffic
from topology.spec import Fault

_MAX_TRIED = 4  # clusters: each is routed anew
_MAX_NAMED = 4  # in a message
_WORTHWHILE = 0.99  # of the time as it is: a gain below 1 % is not worth a note


def without_slow_links(cluster: Cluster) -> Iterator[tuple[tuple[str, ...], Cluster]]:
    """Yield names of slow links and the cluster without those: first the slowest, then more of them, at last all.

    A GPU is named for its links to NICs and to switches between domains, a NIC for its links, any other link by its
    ends. What would cut GPUs off is left out.
    """
    if all(fault.link is None for fault in cluster.spec.faults):
        return
    intact = without_broken_links(cluster)
    cut = {frozenset(fault.link): fault for fault in cluster.spec.faults if fault.link is not None}
    slow = [
        (fault.factor, "->".join(fault.link), [fault.link])
        for fault in cut.values()
        if fault.factor and fault.link
    ]
    slow += _slow_nics(intact, {link: fault.factor for link, fault in cut.items()})
    factors = sorted({factor for factor, *_ in slow})
    if len(factors) > _MAX_TRIED:
        factors = [
            factors[place] for place in np.linspace(0, len(factors) - 1, _MAX_TRIED).round().astype(int)
        ]
    for limit in factors:
        links = {
            frozenset(link): (name, link) for factor, name, parts in slow if factor <= limit for link in parts
        }
        names = tuple(dict.fromkeys(name for name, _ in links.values()))
        gone = [Fault(link=link) for _, link in links.values()]
        try:
            drained = rebuilt(cluster, replace(cluster.spec, faults=with_faults(cluster.spec.faults, gone)))
            Router(drained).loads(pattern_traffic("all-to-all", len(drained.gpus), 1.0))
        except RackplanError:
            return  # some GPUs are cut off, and more of them without more links
        yield names, drained


def without_broken_links(cluster: Cluster) -> Cluster:
    """Return ``cluster`` with all links at work; GPUs that are gone stay gone."""
    faults = tuple(fault for fault in cluster.spec.faults if fault.link is None)
    return rebuilt(cluster, replace(cluster.spec, faults=faults))


def drained_note(cluster: Cluster, traffic: Traffic, loads: LinkLoads) -> str:
    """Return how much sooner ``traffic`` would be done without slow links; empty where it would not.

    ``loads`` are those of the cluster as it is.
    """
    best: tuple[float, tuple[str, ...]] = (loads.bound_s * _WORTHWHILE, ())
    for names, drained in without_slow_links(cluster):
        best = min(best, (Router(drained).loads(traffic).bound_s, names))
    seconds, names = best
    if not names:
        return ""
    return (
        f"with slow links out of service ({named(names)}) the bound would be {format_quantity(seconds, 's')}: "
        "others stand in then."
    )


def named(names: Sequence[str]) -> str:
    """Name the first few of some GPUs and NICs."""
    return ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")


def _slow_nics(
    cluster: Cluster, cut: Mapping[frozenset[str], float]
) -> list[tuple[float, str, list[tuple[str, str]]]]:
    """Return the part of their rate out of their domain that GPUs and NICs have left, their names and their links."""
    wiring = cluster.wiring
    rates, slow = wiring.bytes_per_s, []
    for name in dict.fromkeys(end for link in cut for end in sorted(link)):
        if links := _nic_links(cluster, name):
            rate = rates[wiring.find(links)]
            factor = float(rate @ [cut.get(frozenset(link), 1.0) for link in links] / rate.sum())
            if 0 < factor < 1:
                slow.append((factor, name, links))
    return slow


def _nic_links(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    """Return the links of a NIC, or of a GPU to its NICs and to switches between domains."""
    wiring = cluster.wiring
    number = wiring.number.get(name)
    if number is None or wiring.kinds[number] not in ("gpu", "nic"):
        return []
    is_nic = wiring.kinds[number] == "nic"
    neighbours = wiring.others(number).tolist()
    return [
        (name, wiring.names[neighbour])
        for neighbour in neighbours
        if is_nic or wiring.kinds[neighbour] in ("nic", *SCALE_OUT_KINDS)
    ]
