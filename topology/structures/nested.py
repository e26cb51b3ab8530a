"""Groups in groups, the members of each linked without a switch: Boardfly, Atlas 950, trays of Maia 200."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np

from topology.base.errors import InputError
from topology.base.schema import Count, MaybeCount, keyword_spec
from topology.spec import FabricSpec
from topology.structures.domain import DomainRow, DomainSpec, Way
from topology.wiring import Ints, Laying

LARGEST_NESTED_GPUS = 16_384
_MAX_LINKS = 256  # of one GPU in one level; nobody has as many


@keyword_spec
class NestedDomain(DomainSpec):
    """Levels of groups: ``members[0]`` GPUs in a group, ``members[1]`` of these in a group of the next level...

    Each member of a group has ``links_per_member`` of its level to the others of the group: as many to each, and what
    is over to its next ones on both sides, around a circle (two links among four are a ring). An odd one goes to
    the member opposite. At its ends a link is at the GPU of the member that has fewest links so far, so that links
    between two members with a link for each GPU join GPUs of the same place. A route takes the fewest hops.

    A part of it (``gpus``) is whole members of one group.
    """

    structure: Literal["nested"] = "nested"
    members: tuple[Count, ...]
    links_per_member: tuple[Count, ...]

    picture: ClassVar = "nested"
    keys: ClassVar = {**DomainSpec.keys, "members": "members", "links_per_member": "links_per_member"}
    ways: ClassVar = ((Way.FORWARDED, ""),)

    def check(self) -> None:
        """Reject levels whose groups cannot be linked so, and GPUs that are not whole members of one."""
        super().check()
        if not self.members or len(self.members) != len(self.links_per_member):
            raise InputError(
                f"members has {len(self.members)} levels and links_per_member {len(self.links_per_member)}; give "
                "both for each level, like `members: [4, 8]` and `links_per_member: [2, 11]`."
            )
        total = prod(self.members)
        if total > LARGEST_NESTED_GPUS:
            raise InputError(
                f"members are {total:,} GPUs; at most {LARGEST_NESTED_GPUS:,} are supported in one domain."
            )
        for level, (size, links) in enumerate(zip(self.members, self.links_per_member, strict=True)):
            self._check_level(f"level {level + 1}", size, links, prod(self.members[:level]))
        if (sizes := self._sizes(self.gpus)) != (self.gpus,):
            raise InputError(
                f"{self.gpus} GPUs are not whole members of one group of {_times(self.members)}; use "
                f"{' or '.join(map(str, sizes))}."
            )

    @staticmethod
    def _check_level(where: str, size: int, links: int, gpus: int) -> None:
        if size < 2:
            raise InputError(f"members: {where} has {size}; at least 2 are a group.")
        least = min(2, size - 1)
        if not least <= links <= _MAX_LINKS * gpus:
            raise InputError(
                f"links_per_member: {links} in {where} of {size} members; use {least} to {_MAX_LINKS * gpus:,}."
            )
        if size * links % 2:
            raise InputError(
                f"links_per_member: {size} members with {links} links each in {where} leave one end over; use "
                f"{links - 1 if links > least else links + 1}."
            )

    def _sizes(self, gpus: int) -> tuple[int, ...]:
        """Return the numbers of GPUs of a part nearest to ``gpus``, below and above; itself alone where it is one."""
        blocks = [prod(self.members[:level]) for level in range(len(self.members) + 1)]
        step = max((block for block in blocks[:-1] if block <= gpus), default=1)
        below = min(gpus // step * step, blocks[-1])
        return (below,) if below in (gpus, blocks[-1]) else (below, below + step)

    def cut(self, gpus: int) -> DomainSpec:
        """Return whole members of one group, with the links among them.

        Raises
        ------
        InputError
            If ``gpus`` are none; the nearest sizes are named.
        """
        if (sizes := self._sizes(gpus)) != (gpus,):
            raise InputError(
                f"{gpus} GPUs are not whole members of one group of {self.title} ({_times(self.members)}); use "
                f"{' or '.join(map(str, sizes))}."
            )
        return super().cut(gpus)

    def lay(self) -> Laying:
        """Link the members of each group, level by level."""
        laying = Laying(self.gpus)
        a, b, count = _links(self.members, self.links_per_member)
        inside = b < self.gpus
        laying.link([self.fabric], a[inside], b[inside], count[inside])
        return laying

    def words(self) -> str:
        """Return what is in what."""
        if len(self.members) == 1 and self.links_per_member[0] >= self.members[0] - 1:
            return "full mesh without a switch"
        return f"nested groups of {_times(self.members)} without a switch"

    @property
    def scale_up_links(self) -> list[tuple[int, FabricSpec]]:
        """Scale-up links of the GPU that has least, with their fabric."""
        a, b, count = _links(self.members, self.links_per_member)
        inside = b < self.gpus
        ends = np.concatenate([a[inside], b[inside]])
        links = np.bincount(ends, np.tile(count[inside], 2), self.gpus)
        return [(int(links.min()), self.fabric)]


@keyword_spec
class NestedRow(DomainRow):
    """It as a row of a cluster YAML; all members where ``gpus`` does not say fewer."""

    structure: Literal["nested"] = "nested"
    members: tuple[Count, ...]
    links_per_member: tuple[Count, ...]
    gpus_per_node: Count
    gpus: MaybeCount = None

    domain: ClassVar = NestedDomain

    def sizes(self, known: Sequence[DomainSpec]) -> dict[str, Any]:
        """Return its fields."""
        return super().sizes(known) | {"gpus": self.gpus or prod(self.members)}


def _times(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def links_to_others(size: int, links: int) -> Ints:
    """Return ``[size]`` how many of its ``links`` a member has to itself (none), the next one, the one after...

    As many to each; what is over goes to the next ones on both sides, an odd one to the member opposite.
    """
    base, over = divmod(links, size - 1)
    steps = np.arange(size)
    apart = np.minimum(steps, size - steps)
    counts: Ints = base + (apart <= over // 2) + (over % 2) * (2 * steps == size)
    counts[0] = 0
    return counts


def _order(lower: Sequence[int], used: Ints, links: int) -> Ints:
    """Return ``[links]`` which GPU of a member each of its links is at: those with fewest ``used`` first.

    Of those alike the first GPU of each inner group goes before the second of any.
    """
    turns = np.arange(len(used)).reshape(tuple(reversed(lower))).T.reshape(-1)
    rounds = np.arange(links // len(used) + int(used.max() - used.min()) + 1)
    ranks = (used[turns] + rounds[:, None]).reshape(-1)
    order: Ints = np.tile(turns, len(rounds))[np.argsort(ranks, kind="stable")[:links]]
    return order


@cache
def _links(members: tuple[int, ...], links_per_member: tuple[int, ...]) -> tuple[Ints, Ints, Ints]:
    """Return the links of a whole domain: both ends, the lower first, and how many are parallel."""
    gpus, used = prod(members), np.zeros(1, dtype=np.int64)
    rows: list[Ints] = []
    for level, (size, links) in enumerate(zip(members, links_per_member, strict=True)):
        block, order = len(used), _order(members[:level], used, links)
        counts = links_to_others(size, links)
        starts = np.cumsum(counts) - counts
        groups = np.arange(0, gpus, size * block)[:, None]
        for step in range(1, size // 2 + 1):
            tail = np.arange(size // 2 if 2 * step == size else size)
            head = (tail + step) % size
            tail_gpus = order[starts[step] : starts[step] + counts[step]]
            head_gpus = order[starts[size - step] : starts[size - step] + counts[step]]
            for a, b in zip(tail_gpus, head_gpus, strict=True):
                ends = [(groups + tail * block + a).reshape(-1), (groups + head * block + b).reshape(-1)]
                rows.append(np.sort(np.stack(ends), axis=0))
        used = np.tile(used + np.bincount(order, minlength=block), size)
    (a, b), count = np.unique(np.concatenate(rows, axis=1), axis=1, return_counts=True)
    return a, b, count.astype(np.int64)
