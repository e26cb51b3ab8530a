"""Broken or slow parts of a cluster by name: NICs, switches, planes, links.

What has no fault of its own is the links that end at it (:class:`topology.spec.Fault` knows GPUs and links).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from topology.base.errors import InputError, input_name
from topology.base.reading import nearest
from topology.cluster import Cluster
from topology.graph import INSIDE_KINDS, SCALE_OUT_KINDS
from topology.spec import Fault

NODE, NIC, PLANE, LINK, SWITCH = "node", "nic", "plane", "link", "switch"
SWITCHES = (SWITCH, *SCALE_OUT_KINDS)
NAMED = (NODE, NIC, PLANE, *SWITCHES)
"""Keys under which a cluster file names what is broken by its parts; a chip inside a domain is a ``switch``."""
_NIC_OF = ".nic"
_ARROW = re.compile(r"\s*(?:->|-|,|\s)\s*")
_CHIPS = re.compile(r"d(\d{1,9})\.s(\d{1,9})")
_MAX_NAMED = 4  # in a message


def part_faults(cluster: Cluster, kind: str, name: str, factor: float, where: str) -> list[Fault]:
    """Return the links of a part of ``cluster``, of a node the GPUs, as broken (``factor`` 0) or slow.

    Parameters
    ----------
    kind:
        One of :data:`NAMED`. ``nic``: the id of a NIC or of the GPU that it is of; ``switch``: of any switch;
        ``plane``: the number of a plane of the fabric between domains, or of chips, as ``d0.s1``.
    where:
        What names it, for messages.

    Raises
    ------
    InputError
        If there is no such part, or it has no link.
    """
    if kind == NODE:
        gpus = [gpu.id for gpu in cluster.gpus if gpu.node == name]
        if not gpus:
            nodes = dict.fromkeys(gpu.node for gpu in cluster.gpus)
            raise InputError(f"{where}: there is no {name}; {nearest(name, nodes)}")
        return [Fault(gpu=gpu, factor=factor) for gpu in gpus]
    if kind == NIC:
        links = _nic_links(cluster, name, where)
    elif kind == PLANE:
        links = [link for node in _plane(cluster, name, where) for link in _links_at(cluster, node)]
    else:
        ids = _of_kind(cluster, *(SWITCHES if kind == SWITCH else (kind,)))
        if name not in ids:
            raise InputError(f"{where}: no {kind} has the id {name!r}; {nearest(name, ids)}")
        links = _links_at(cluster, name)
    if not links:
        raise InputError(f"{where}: {kind} {name} has no working link.")
    return [Fault(link=link, factor=factor) for link in links]


def lost_faults(cluster: Cluster, name: str) -> list[Fault]:
    """Return what is lost with a GPU, node, rack, domain, NIC (``d0.n3.g1.nic``), switch, plane or link (``A->B``).

    ``KIND:NAME``, like ``plane:0``, says which of them is meant.

    Raises
    ------
    InputError
        If the cluster has nothing of that name.
    """
    where, name = f"{input_name('lost')} {name}", name.strip()
    kind, _, suffix = name.partition(":")
    named = suffix.strip() if kind in (*NAMED, LINK) else ""
    gone = [gpu.id for gpu in cluster.gpus if name in (gpu.id, gpu.node, gpu.rack, f"d{gpu.domain}")]
    if gone:
        return [Fault(gpu=gpu) for gpu in gone]
    if not named:
        named, kind = name, _kind(cluster, name)
        if name.endswith(_NIC_OF) or kind == NIC:
            kind = NIC
        elif kind in INSIDE_KINDS:
            return [Fault(link=link) for link in _links_at(cluster, name)]
        elif _chips(cluster, name):
            kind = PLANE
        elif not kind and _ARROW.search(name):
            kind = LINK
    if kind:
        return (
            [_link(cluster, named, where)] if kind == LINK else part_faults(cluster, kind, named, 0.0, where)
        )
    wiring, example = cluster.wiring, cluster.gpus[0]
    kinds = {
        kind: node for node, kind in zip(wiring.names, wiring.kinds, strict=True) if kind in (NIC, *SWITCHES)
    }
    link = [wiring.names[ends[0]] for ends in (wiring.a, wiring.b) if len(ends)]
    names = [example.id, example.node, example.rack, *kinds.values(), "->".join(link)]
    raise InputError(
        f"{where}: {cluster.name} has no GPU, node, rack, domain, NIC, switch or link of that name; "
        "examples of names: "
        f"{', '.join(dict.fromkeys(names))}."
    )


def with_faults(faults: Iterable[Fault], added: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return all of some faults, each GPU and link once, at the lowest rate given for it."""
    merged: dict[object, Fault] = {}
    for fault in (*faults, *added):
        key = fault.gpu or (frozenset(fault.link or ()), fault.cabled_to)
        if key not in merged or fault.factor < merged[key].factor:
            merged[key] = fault
    return tuple(merged.values())


def _of_kind(cluster: Cluster, *kinds: str) -> list[str]:
    wiring = cluster.wiring
    return [wiring.names[node] for node in np.flatnonzero(wiring.is_kind(*kinds)).tolist()]


def _kind(cluster: Cluster, name: str) -> str:
    """Return the kind of a node, empty where there is none of that id."""
    number = cluster.wiring.number.get(name)
    return "" if number is None else cluster.wiring.kinds[number]


def _others(cluster: Cluster, name: str) -> list[str]:
    return cluster.wiring.neighbours(name)


def _links_at(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    return [(name, neighbour) for neighbour in _others(cluster, name)]


def _link(cluster: Cluster, text: str, where: str) -> Fault:
    """Return the link that ``A->B``, ``A-B`` or ``A B`` names: the first way to read it that is one."""
    pairs = [(text[: cut.start()], text[cut.end() :]) for cut in _ARROW.finditer(text)]
    known = [pair for pair in pairs if all(_kind(cluster, end) for end in pair)]
    for a, b in known:
        if b in _others(cluster, a):
            return Fault(link=(a, b))
    if known:
        a, b = known[0]
        raise InputError(
            f"{where}: no link connects {a} and {b}; {a} has links to "
            f"{', '.join(_others(cluster, a)[:_MAX_NAMED])}, ..."
        )
    gpu = cluster.gpus[0].id
    raise InputError(
        f"{where}: not a link; give its two ends, like {'->'.join([gpu, *_others(cluster, gpu)[:1]])}."
    )


def _nic_links(cluster: Cluster, name: str, where: str) -> list[tuple[str, str]]:
    """Return the links of a NIC, or those that leave its domain of a GPU that has its NICs on it."""
    end = name if _kind(cluster, name) else name.removesuffix(_NIC_OF)
    kind, nics = _kind(cluster, end), _of_kind(cluster, NIC)
    if kind == NIC:
        return _links_at(cluster, end)
    if kind != "gpu":
        known = [*nics, *(gpu.id for gpu in cluster.gpus)]
        raise InputError(
            f"{where}: no NIC, and no GPU with a NIC, has the id {name!r}; {nearest(name, known)}"
        )
    links = [link for link in _links_at(cluster, end) if _kind(cluster, link[1]) in SCALE_OUT_KINDS]
    if not links:
        host = cluster.wiring.node[cluster.wiring.number[end]]
        on_host = [nic for nic in nics if cluster.wiring.node[cluster.wiring.number[nic]] == host]
        remedy = (
            f"name the NIC itself, like {', '.join(on_host[:_MAX_NAMED])}" if on_host else "it cannot fail"
        )
        raise InputError(f"{where}: this GPU has no link that leaves its domain; {remedy}.")
    return links


def _plane(cluster: Cluster, name: str, where: str) -> list[str]:
    """Return the switches of a plane: by its number, of the fabric between domains; ``d0.s1``, of chips."""
    wiring = cluster.wiring
    plane = np.where(wiring.is_kind(*SCALE_OUT_KINDS), wiring.numbered["plane"], -1)
    number = name.removeprefix("p").strip()
    index = int(number) if number.isdecimal() and len(number) < 10 else -2
    nodes = np.flatnonzero(plane == index).tolist()
    switches = [wiring.names[node] for node in nodes] or _chips(cluster, name)
    if not switches:
        known = ", ".join(map(str, np.unique(plane[plane >= 0]).tolist())) or "none"
        raise InputError(
            f"{where}: no plane {name!r}; planes between domains: {known}; planes of chips are named like d0.s1."
        )
    return switches


def _chips(cluster: Cluster, name: str) -> list[str]:
    """Return the chips of a plane of a domain, by a name like ``d0.s1``."""
    match, wiring = _CHIPS.fullmatch(name), cluster.wiring
    if match is None:
        return []
    domain, plane = int(match[1]), int(match[2])
    chosen = wiring.is_kind(SWITCH) & (wiring.domain == domain) & (wiring.numbered["plane"] == plane)
    return [wiring.names[node] for node in np.flatnonzero(chosen).tolist()]
