"""Assign counted replicas to domains and GPUs, keeping neighbours together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.fleet.model import Answer, Pattern
from placement.fleet.pricing import Column
from placement.fleet.shapes import Block, DomainClass, Group
from topology.cluster import Cluster


@dataclass(frozen=True, eq=False)
class Replica:
    """A replica on its GPUs.

    ``stages`` has the GPUs of each stage, ``places`` the domain of each of its blocks.
    """

    column: Column
    stages: tuple[Group, ...]
    places: tuple[int, ...]

    @property
    def gpus(self) -> Group:
        """All its GPUs, in order of its stages."""
        return tuple(gpu for stage in self.stages for gpu in stage)

    def alike(self, cluster: Cluster) -> tuple[object, ...]:
        """Equal for replicas of a shape that cost the same."""
        order_of = {place: number for number, place in enumerate(dict.fromkeys(self.places))}
        specs = [cluster.spec.domains[place] for place in self.places]
        where: tuple[object, ...] = tuple(order_of[place] for place in self.places)
        faulty = any(fault.link for fault in cluster.spec.faults)
        if faulty or any(not spec.switched for spec in specs):
            where += tuple(cluster.gpus[gpu].id.partition(".")[2] for gpu in self.gpus)
        return where


_Cut = tuple[int, Group]
"""A block: its domain, and its GPUs."""


def assign(
    classes: Sequence[DomainClass], columns: Sequence[Column], answer: Answer, place_of: Sequence[int]
) -> list[Replica]:
    """Return the replicas of an answer on GPUs; those that join domains come first and take neighbours.

    ``place_of``: the domain of each GPU of the cluster, numbered in their order.
    """
    joined = {
        block
        for column, count in zip(columns, answer.counts, strict=True)
        if count and len(column.shape.blocks) > 1
        for block in column.shape.blocks
    }
    free: dict[Block, list[_Cut]] = {}
    for domains, patterns in zip(classes, answer.patterns, strict=True):
        ordered = sorted(patterns, key=lambda pattern: _order(pattern, joined))
        for gpus, pattern in zip(domains.gpus, ordered, strict=True):
            start = 0
            slow = [block for block in pattern if block.slow >= 0]
            end = domains.size - sum(block.size for block in slow)
            for block in pattern:
                if block.slow >= 0:
                    start = max(start, end)
                free.setdefault(block, []).append((place_of[gpus[0]], gpus[start : start + block.size]))
                start += block.size
    for cuts in free.values():
        cuts.sort()
    order = sorted(range(len(columns)), key=lambda index: (-len(columns[index].shape.blocks), index))
    replicas: dict[int, list[Replica]] = {}
    for index in order:
        column = columns[index]
        for _ in range(answer.counts[index]):
            replicas.setdefault(index, []).append(_take(column, free))
    return [replica for index in sorted(replicas) for replica in replicas[index]]


def _order(pattern: Pattern, joined: set[Block]) -> tuple[bool, tuple[tuple[int, Block], ...]]:
    """Domains with blocks that are joined first, large ones before small ones, empty domains last."""
    sizes = tuple(sorted((-block.size, block) for block in pattern))
    return not any(block in joined for block in pattern), sizes or ((1, Block(0, 0)),)


def _take(column: Column, free: dict[Block, list[_Cut]]) -> Replica:
    """Take the block of which fewest are free, and of each other one the nearest to it."""
    blocks = column.shape.blocks
    cuts_of: dict[int, _Cut] = {}
    for index in sorted(range(len(blocks)), key=lambda number: (len(free[blocks[number]]), number)):
        cuts = free[blocks[index]]
        anchor = next(iter(cuts_of.values()))[0] if cuts_of else cuts[0][0]
        nearest = min(range(len(cuts)), key=lambda at: abs(cuts[at][0] - anchor))
        cuts_of[index] = cuts.pop(nearest)
    places, gpus = zip(*(cuts_of[index] for index in range(len(blocks))), strict=True)
    return Replica(column, column.shape.groups(gpus), places)
