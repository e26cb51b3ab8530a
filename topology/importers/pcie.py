"""The PCIe of a host: which NICs are near which GPUs, how they are dealt, and which switches stand above what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import TypeVar

from topology.base.figures import Figure
from topology.importers.found import groups_of

_Gpu = TypeVar("_Gpu", str, int)
SAME_SOCKET = 10
"""Distance over a host bridge; what is nearer hangs on one PCIe switch."""
OTHER_SOCKET = 12


def distance(a: Sequence[str], b: Sequence[str], *, one_socket: bool) -> int:
    """Return how far two devices below the switches ``a`` and ``b`` are: switches between them, or a socket."""
    shared = _shared(a, b)
    if shared:
        return len(a) + len(b) - 2 * shared
    return SAME_SOCKET if one_socket else OTHER_SOCKET


def crossed(a: Sequence[str], b: Sequence[str]) -> tuple[str, ...]:
    """Return the switches of ``a`` whose uplink lies on the way to a device below ``b``."""
    return tuple(a[_shared(a, b) :])


def _shared(a: Sequence[str], b: Sequence[str]) -> int:
    pairs = [bridge == other for bridge, other in zip(a, b, strict=False)]
    return pairs.index(False) if False in pairs else len(pairs)


def nearest(distances: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return the GPUs that each NIC is near to, of ``distances [NICs, GPUs]``.

    A GPU uses the NICs nearest to it, as NCCL does; but not those beyond its own PCIe switches that stand beside
    other GPUs, which it reaches over them. A NIC on a PCIe switch with a GPU is always near to one. The others,
    to which every GPU has a nearer one, are near to none.
    """
    gpus = range(len(distances[0]) if distances else 0)
    best = [min(row[gpu] for row in distances) for gpu in gpus]
    nearby = []
    for row in distances:
        switched = any(row[gpu] < SAME_SOCKET for gpu in gpus)
        near = [gpu for gpu in gpus if row[gpu] == best[gpu] and (row[gpu] < SAME_SOCKET or not switched)]
        if switched and not near:
            near = [gpu for gpu in gpus if row[gpu] == min(row)]
        nearby.append(tuple(near))
    return nearby


def deal(near: Sequence[Sequence[int]], rates: Sequence[float], gpus: int) -> list[tuple[int, ...]]:
    """Return the GPUs that each NIC serves: those near it, NICs near to the same ones dealt evenly, each once.

    Whole NICs go to the GPUs that have least; what does not go round is shared by those.
    """
    load = [0.0] * gpus
    served: list[tuple[int, ...]] = [()] * len(near)
    groups: dict[tuple[tuple[int, ...], float], list[int]] = defaultdict(list)
    for number, (members, rate) in enumerate(zip(near, rates, strict=True)):
        groups[tuple(members), rate] += [number] if members else []
    for (members, rate), nics in sorted(groups.items(), key=lambda item: (len(item[0][0]), -item[0][1])):
        exclusive: list[int] = []
        low = _least(load, members)
        while low and len(low) <= len(nics) - len(exclusive):
            exclusive += low
            for gpu in low:
                load[gpu] += rate
            low = _least(load, members)
        for nic, gpu in zip(nics, sorted(exclusive, key=members.index), strict=False):
            served[nic] = (gpu,)
        shared = nics[len(exclusive) :]
        size = len(low) if shared and len(low) % len(shared) else len(low) // max(1, len(shared))
        for turn, nic in enumerate(shared):
            served[nic] = tuple(low[turn * size : (turn + 1) * size] or low)
            for gpu in low:
                load[gpu] += rate / len(low)
    return served


def _least(load: Sequence[float], members: Sequence[int]) -> list[int]:
    least = min((load[gpu] for gpu in members), default=0.0)
    return [gpu for gpu in members if load[gpu] <= least * (1 + 1e-9)]


def kept_switches(
    chains: Mapping[str, Sequence[str]], rates: Mapping[str, Figure]
) -> tuple[dict[str, tuple[str, ...]], dict[str, Figure]]:
    """Return the switches above each device, without those that have one thing below, and the rates of links.

    ``chains`` are the bridges above each device from the root down, ``rates`` those of the links of bridges and
    devices to what is above them. A bridge above one thing alone (a port of a switch) is part of that one's link.
    """
    below: dict[str, set[str]] = defaultdict(set)
    for device, chain in chains.items():
        for bridge, under in pairwise((*chain, device)):
            below[bridge].add(under)
    branching = {device: tuple(b for b in chain if len(below[b]) > 1) for device, chain in chains.items()}
    slowest: dict[str, Figure] = {}
    for device, chain in chains.items():
        passed: list[Figure] = []
        for name in (*chain, device):
            passed += [rates[name]] if name in rates else []
            if name == device or len(below[name]) > 1:
                if passed:
                    slowest[name] = min(passed, key=lambda figure: figure.value)
                passed = []
    return branching, slowest


def sockets(gpus: Sequence[_Gpu], same: Callable[[_Gpu, _Gpu], bool]) -> tuple[str, ...]:
    """Return the number of each GPU's socket, where ``same`` says whether two share one."""
    groups = groups_of(gpus, (pair for pair in combinations(gpus, 2) if same(*pair)))
    numbers = {gpu: str(i) for i, group in enumerate(groups) for gpu in group}
    return tuple(numbers[gpu] for gpu in gpus)
