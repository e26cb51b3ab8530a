"""Checks of file content against options: GPU type, links, number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from topology.base.errors import InputError, input_name
from topology.base.units import format_quantity
from topology.catalog import gpu_names
from topology.importers.answers import Parts
from topology.importers.found import Found, NodeFound, commonest, listed
from topology.importers.options import ImportOptions
from topology.structures.mesh import MeshDomain
from topology.structures.torus import TorusDomain

_RATE_MARGIN = 0.25
"""Part by which the rate of a GPU's links may differ from the catalog's: what files call usable is somewhat less."""


def check_gpu(found: Sequence[Found], parts: Parts, option: str) -> None:
    """Reject a file that names another GPU of the catalog than the user (``option``)."""
    if parts.gpu.name not in gpu_names():
        return
    for one in found:
        for name in one.gpu_names:
            if not name.means(parts.gpu):
                raise InputError(
                    f"{one.place}: {input_name('gpu')} {option}: the file says {name.words}, not "
                    f"{parts.gpu.name}; give the actual GPU, or a custom name with {input_name('hbm')}."
                )


def checked_node(
    node: NodeFound, host: str, parts: Parts, options: ImportOptions
) -> tuple[NodeFound, list[str]]:
    """Return a host with the links that its GPUs can have, and what is odd about them.

    Equal bundles to all peers may be all the links that a GPU has: then they are direct.
    """
    wanted = options.gpus_per_node
    if wanted is not None and node.gpu_count != wanted:
        raise InputError(
            f"{node.place}: {host} has {node.gpu_count} GPUs, but {input_name('gpus_per_node')} says {wanted}."
        )
    per, fitted, system = node.links_of_gpus, list(node.links_fitted.values()), parts.system
    if node.hidden and not node.beyond and node.kind == "topo-m":
        every, bundle, others = system.links_per_gpu if system else 0, max(per.values()), len(per) - 1
        if set(per.values()) == {bundle} and bundle != every == bundle * others:
            links = tuple((a, b, bundle) for a, b in combinations(node.gpus, 2))
            return replace(node, chips=(), links=links, hidden=False), []
    to_peers = any(a in per and b in per for a, b, _ in node.links)
    check_links(node.place, fitted, parts, options.gpu, to_peers=to_peers)
    if node.link_rate is not None and parts.inner is None:
        check_links(node.place, [1], parts, options.gpu, bytes_per_s=max(fitted) * node.link_rate.value)
    usual = commonest(per.values())
    odd = [
        f"{node.place}: {gpu} has {f'{count} scale-up links' if count else 'no scale-up link'}, other GPUs {usual}."
        for gpu, count in per.items()
        if count != usual
    ]
    return node, [*odd, *filter(None, [_unjoined(node, parts)])]


def _unjoined(node: NodeFound, parts: Parts) -> str:
    """Return what is odd about GPUs that scale-up links do not join, refuse those that hang on separate switches."""
    if not node.over_pcie:
        return ""
    some = [listed(group, 4) for group in node.groups]
    several = sum(len(group) > 1 for group in node.groups) > 1
    if node.chips and several:
        raise InputError(
            f"{node.place}: GPUs on separate switches that the file does not connect: {'; '.join(some)}. Give the "
            "host's `nvidia-smi topo -m`, or a CSV of links that includes those between the switches."
        )
    wanted = max((one.links_per_gpu for one in parts.systems), default=0)
    if not node.links and wanted:
        return (
            f"{node.place}: no GPU has a scale-up link, {parts.gpu.name} has {wanted} in the catalog: "
            "using PCIe only, as in the file; a virtual machine or container may hide the links."
        )
    groups = f"{len(some)} groups of GPUs are connected only by PCIe"
    return f"{node.place}: {groups}: {'; '.join(some)}." if several else ""


def check_links(
    place: str,
    links: Sequence[int],
    parts: Parts,
    option: str | None,
    *,
    to_peers: bool = False,
    bytes_per_s: float = 0.0,
) -> None:
    """Reject a file whose GPUs have other scale-up links than those that the user named.

    Parameters
    ----------
    place:
        The file.
    links:
        Links of each GPU of one host, 0 where it has none: one GPU may lack some, but not most of them.
    parts, option:
        What the user named, and the option as typed.
    to_peers:
        Whether they go to the other GPUs of the host, not to switches.
    bytes_per_s:
        Rate of all links of a GPU, per direction, where the file has it; then their number is not compared.
    """
    known = [
        one for one in parts.systems if not isinstance(one, TorusDomain) and one.scale_up_bytes_per_s > 0
    ]
    count = max(set(links) - {0}, key=list(links).count, default=0)
    if not known or not count:
        return
    if bytes_per_s:
        rates = [one.scale_up_bytes_per_s for one in known]
        fits = any(abs(bytes_per_s / rate - 1) <= _RATE_MARGIN for rate in rates)
        has, own = f"{_speed(bytes_per_s)} of scale-up links", _speed(rates[0])
    else:
        meshed = [one for one in known if isinstance(one, MeshDomain)]
        wanted = [one.links_per_neighbour * (len(links) - 1) if to_peers else 0 for one in meshed]
        wanted += [one.links_per_gpu for one in known if one.structure != "mesh" and not one.links_bundled]
        fits = count in wanted or not wanted
        has, own = f"{count} scale-up links", f"{(*wanted, 0)[0]}"
    if not fits:
        raise InputError(
            f"{place}: its GPUs have {has}, but {parts.gpu.name} has {own} ({input_name('gpu')} {option}); "
            f"give the actual GPU, or a custom name with {input_name('hbm')} and {input_name('fabric')}."
        )


def _speed(bytes_per_s: float) -> str:
    return f"{format_quantity(bytes_per_s, 'byte/s')} each way"
