"""What a picture of several domains shows: blocks of GPUs by pod, equal units collapsed with a count."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from topology.builders.rails import pods_of

if TYPE_CHECKING:
    from topology.cluster import Cluster
    from topology.spec import ClusterSpec, DomainSpec

__all__ = ["Block", "Unit", "choose", "rack_blocks", "shorten", "units_of"]

_OPEN_BLOCKS, _OPEN_GPUS = 8, 640
_OVERLAY_BLOCKS, _OVERLAY_GPUS = 16, 1152
_LONGEST_BLOCK = 18
_MOST_SHAPES = 5

Shape = tuple[object, ...]


@dataclass(frozen=True)
class Block:
    """A grid of GPUs under one set of leaves: rows are hosts, columns are rails.

    ``rows`` are (header, GPU numbers); ``single`` says that each row is a domain of its own.
    """

    title: str
    pod: int
    domain: DomainSpec
    single: bool
    rows: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def gpus(self) -> int:
        """GPUs in the block."""
        return sum(len(gpus) for _, gpus in self.rows)

    @property
    def columns(self) -> int:
        """GPUs in the longest row."""
        return max(len(gpus) for _, gpus in self.rows)


@dataclass(frozen=True)
class Unit:
    """Domains and pods that belong together: one domain over several pods, or one pod of several domains."""

    domains: tuple[int, ...]
    blocks: tuple[Block, ...]
    shape: Shape

    @property
    def pods(self) -> tuple[int, ...]:
        """Pods of the unit, in order."""
        return tuple(sorted({block.pod for block in self.blocks}))

    @property
    def gpus(self) -> int:
        """GPUs in the unit."""
        return sum(block.gpus for block in self.blocks)


def units_of(cluster: Cluster) -> list[Unit]:
    """Return the units of ``cluster`` in order."""
    spec = cluster.spec
    pods = pods_of(spec)
    groups: list[list[int]] = []
    last = -1
    for d, hosts in enumerate(pods):
        if hosts[0] == last:
            groups[-1].append(d)
        else:
            groups.append([d])
        last = hosts[-1]
    first = [0, *accumulate(domain.gpus for domain in spec.domains)]
    return [_unit(spec, pods, first, group) for group in groups]


def rack_blocks(cluster: Cluster) -> list[Block]:
    """Return one block for each rack of the first domain."""
    domain = cluster.spec.domains[0]
    hosts = range(domain.gpus // domain.gpus_per_node)
    racks = sorted({host // domain.nodes_per_rack for host in hosts})
    return [
        _domain_block(0, 0, domain, rack, 0, [h for h in hosts if h // domain.nodes_per_rack == rack])
        for rack in racks
    ]


def choose(units: list[Unit], *, overlay: bool) -> list[tuple[Unit, tuple[Unit, ...], int]]:
    """Choose what is drawn open: everything where it fits, else the first unit of each shape.

    Returns (unit drawn, units like it that are not, how many of its pods are drawn).
    """
    blocks = sum(len(unit.blocks) for unit in units)
    gpus = sum(unit.gpus for unit in units)
    most = (_OVERLAY_BLOCKS, _OVERLAY_GPUS) if overlay else (_OPEN_BLOCKS, _OPEN_GPUS)
    if blocks <= most[0] and gpus <= most[1]:
        return [(unit, (), len(unit.pods)) for unit in units]
    by_shape: dict[Shape, list[Unit]] = {}
    for unit in units:
        by_shape.setdefault(unit.shape, []).append(unit)
    groups = list(by_shape.values())
    if len(groups) > _MOST_SHAPES:
        rest = sorted(
            (unit for group in groups[_MOST_SHAPES - 1 :] for unit in group), key=lambda u: u.domains
        )
        groups = [*groups[: _MOST_SHAPES - 1], rest]
    pods = 2 if len(groups) > 1 else 3
    return [(group[0], tuple(group[1:]), _opened(group[0], pods)) for group in groups]


def _opened(unit: Unit, most: int) -> int:
    """Return how many pods of a unit are open; one more than ``most`` is not worth hiding."""
    return len(unit.pods) if len(unit.pods) <= most + 1 else most


def shorten(block: Block, *, overlay: bool) -> tuple[Block, int]:
    """Return the block with at most a readable number of rows, and how many are left out."""
    if overlay or len(block.rows) <= _LONGEST_BLOCK:
        return block, 0
    kept = 8
    rows = block.rows[:kept]
    return Block(block.title, block.pod, block.domain, block.single, rows), len(block.rows) - kept


def _unit(spec: ClusterSpec, pods: list[list[int]], first: list[int], group: list[int]) -> Unit:
    """Put the domains of one group into blocks."""
    blocks: list[Block] = []
    shape: list[object] = []
    base = pods[group[0]][0]
    for d in group:
        domain, hosts = spec.domains[d], pods[d]
        shape.append((_shape(domain), tuple(pod - base for pod in hosts)))
        if len(hosts) == 1:
            _append_row(blocks, d, hosts[0], domain, first[d])
            continue
        places = sorted({(pod, host // domain.nodes_per_rack) for host, pod in enumerate(hosts)})
        for pod, rack in places:
            members = [h for h, p in enumerate(hosts) if (p, h // domain.nodes_per_rack) == (pod, rack)]
            blocks.append(_domain_block(d, pod, domain, rack, first[d], members, several=len(places) > 1))
    return Unit(tuple(group), tuple(blocks), tuple(shape))


def _append_row(blocks: list[Block], d: int, pod: int, domain: DomainSpec, first: int) -> None:
    """Add a domain of one host as a row, to the block before it where that has the same kind."""
    row = (f"d{d}", tuple(range(first, first + domain.gpus)))
    last = blocks[-1] if blocks else None
    if last and last.single and last.pod == pod and _shape(last.domain) == _shape(domain):
        blocks[-1] = Block(last.title, pod, domain, True, (*last.rows, row))
    else:
        blocks.append(Block(domain.title, pod, domain, True, (row,)))


def _domain_block(
    d: int, pod: int, domain: DomainSpec, rack: int, first: int, hosts: list[int], *, several: bool = True
) -> Block:
    """Return the block of some hosts of one domain."""
    size = domain.gpus_per_node
    rows = tuple((f"n{h}", tuple(range(first + h * size, first + (h + 1) * size))) for h in hosts)
    place = f"d{d} rack {rack}" if several else f"d{d}"
    return Block(f"{place}: {len(hosts) * size} GPUs", pod, domain, False, rows)


def _shape(domain: DomainSpec) -> Shape:
    """Return what two domains of one shape have in common."""
    fabric = domain.fabric
    rate = fabric.link_bytes_per_s.value
    return (domain.part, domain.gpu.name, domain.gpus, domain.gpus_per_node, domain.links_per_switch, rate)
