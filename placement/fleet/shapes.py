"""Shapes of replicas: kinds of domains, and runs of GPUs in one or several domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations_with_replacement, groupby, permutations, product
from math import gcd

from cost.inputs.machine import unlike_gpus
from cost.layouts.candidates import MAX_STAGES
from cost.layouts.deployable import WIDTHS, deployable_stage, deployable_stages
from topology.cluster import Cluster
from topology.structures.domain import DomainSpec

Group = tuple[int, ...]

MAX_BLOCK_SIZES = 40
"""Sizes of a block in a domain at most; of more multiples of a node, evenly spread ones."""
JOINED_DOMAINS = (*range(2, 13), 16, 18, 20, 24, 32, 36, 48, 64)
"""Domains that one replica joins, besides the divisors of all there are and all of them."""
MAX_NEIGHBOURS = 8
"""Neighbouring domains of unlike kinds that one replica joins at most; of few domains, all of them."""
MAX_PAIRED_CLASSES = 8
"""Kinds of domains up to which each pair is joined, neighbours or not."""
MAX_CUT_CLASSES = 8
"""The same, up to which parts of the two are joined too."""
MAX_UNEVEN_GPUS = 16
"""GPUs of a domain up to which a block may have any size."""


@dataclass(frozen=True, order=True)
class Block:
    """A run of GPUs in one domain.

    Attributes
    ----------
    kind:
        Which domains cost the same for as many GPUs.
    size:
        GPUs.
    slow:
        The class of domains whose slow GPUs it includes; -1: none of them.
    """

    kind: int
    size: int
    slow: int = -1


@dataclass(frozen=True, eq=False)
class DomainClass:
    """Domains with equally many GPUs that work, all of one kind: counted, never enumerated.

    Attributes
    ----------
    kind:
        Number of the kind.
    gpus:
        Of each domain, its GPUs in the order in which blocks are cut from them: whole nodes first, slow ones last.
    fast:
        GPUs of a domain that are not slower than others of it.
    """

    kind: int
    number: int
    spec: DomainSpec
    gpus: tuple[Group, ...]
    fast: int

    @property
    def size(self) -> int:
        """GPUs of a domain."""
        return len(self.gpus[0])

    @property
    def count(self) -> int:
        """How many domains there are of it."""
        return len(self.gpus)

    def block(self, start: int, size: int) -> Block:
        """The block of ``size`` GPUs from ``start`` on."""
        return Block(self.kind, size, self.number if start + size > self.fast else -1)


@dataclass(frozen=True)
class Shape:
    """A replica before its layers are split: blocks, each in a domain of its own, and the GPUs of each stage.

    Stages are runs of the GPUs of all blocks, in order: each a part of one block, or some whole ones.
    """

    blocks: tuple[Block, ...]
    sizes: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return sum(self.sizes)

    @property
    def stages(self) -> int:
        """Stages of the replica."""
        return len(self.sizes)

    @property
    def legal(self) -> bool:
        """Whether each stage is a part of one block, or some whole ones."""
        ends = list(accumulate(block.size for block in self.blocks))
        starts, start = {0, *ends}, 0
        for size in self.sizes:
            end = start + size
            inside = any(
                left <= start and end <= right for left, right in zip([0, *ends], ends, strict=False)
            )
            if not inside and not (start in starts and end in starts):
                return False
            start = end
        return start == ends[-1]

    def groups(self, blocks: Sequence[Group]) -> tuple[Group, ...]:
        """The GPUs of each stage where the blocks lie on these."""
        flat = [gpu for block in blocks for gpu in block]
        ends = list(accumulate(self.sizes))
        return tuple(tuple(flat[end - size : end]) for size, end in zip(self.sizes, ends, strict=True))


def even(blocks: tuple[Block, ...], stages: int) -> Shape:
    """Return a shape of equal stages."""
    return Shape(blocks, (sum(block.size for block in blocks) // stages,) * stages)


def domain_classes(cluster: Cluster) -> list[DomainClass]:
    """Return the domains of a cluster by what they cost and how many of their GPUs work, in order of appearance."""
    unlike = unlike_gpus(cluster)
    members: dict[int, list[int]] = {}
    for index, gpu in enumerate(cluster.gpus):
        members.setdefault(gpu.domain, []).append(index)
    kinds: dict[object, int] = {}
    members_of: dict[tuple[int, tuple[float, ...]], list[Group]] = {}
    for domain, gpus in members.items():
        spec = cluster.spec.domains[domain]
        marks = [unlike.get(gpu, (1.0, -1)) for gpu in gpus]
        where: object = ()
        if not spec.switched and len(gpus) < spec.gpus:
            where = tuple(cluster.gpus[gpu].id.partition(".")[2] for gpu in gpus)
        links = domain if any(place >= 0 for _, place in marks) else -1
        kind = kinds.setdefault((cluster.domain_kind[domain], where, links), len(kinds))
        rate = {gpu: mark[0] for gpu, mark in zip(gpus, marks, strict=True)}
        if links >= 0:
            rate = {gpu: rate[gpu] * cluster.scale_up_bytes_per_s(gpu) for gpu in gpus}
        fastest = max(rate.values())
        rate = {gpu: part / fastest for gpu, part in rate.items()}
        ordered = _ordered(cluster, spec, rate)
        members_of.setdefault((kind, tuple(rate[gpu] for gpu in ordered)), []).append(ordered)
    classes = []
    for number, ((kind, rates), domains) in enumerate(members_of.items()):
        fast = sum(part == 1.0 for part in rates)
        spec = cluster.spec.domains[cluster.gpus[domains[0][0]].domain]
        classes.append(DomainClass(kind, number, spec, tuple(domains), fast))
    return classes


def _ordered(cluster: Cluster, spec: DomainSpec, rate: Mapping[int, float]) -> Group:
    """GPUs of a domain, each with its part of the best one's rate, in order: whole nodes first, slow ones last."""
    node_size = Counter(cluster.gpus[gpu].node for gpu in rate)

    def place(gpu: int) -> tuple[bool, bool, int]:
        return rate[gpu] < 1.0, node_size[cluster.gpus[gpu].node] < spec.gpus_per_node, gpu

    return tuple(sorted(rate, key=place))


def block_sizes(spec: DomainSpec, capacities: Iterable[int]) -> list[int]:
    """Return the sizes of blocks in domains of one kind, of which some have ``capacities`` GPUs.

    Divisors of a whole domain, powers of two, widths that are deployed, whole nodes, and all, a half, a third and a
    quarter of what works; any in a domain of up to :data:`MAX_UNEVEN_GPUS`.
    """
    largest = max(capacities)
    sizes = {size for size in range(1, largest + 1) if spec.gpus % size == 0 or largest <= MAX_UNEVEN_GPUS}
    sizes |= {1 << power for power in range(largest.bit_length()) if 1 << power <= largest}
    sizes |= {width for width in WIDTHS if width <= largest}
    sizes |= {count // part for count in capacities for part in (1, 2, 3, 4) if count >= part}
    nodes = [size for size in range(spec.gpus_per_node, largest + 1, spec.gpus_per_node) if size not in sizes]
    room = max(0, MAX_BLOCK_SIZES - len(sizes))
    step = max(1, -(-len(nodes) // room)) if room else len(nodes) + 1
    return sorted({*sizes, *nodes[::-1][::step]})


def shapes_of(
    cluster: Cluster, classes: Sequence[DomainClass], *, most_stages: int, any_shape: bool = False
) -> list[Shape]:
    """Return the shapes that replicas may have; ``most_stages``: of a replica at most, as it has layers.

    Without ``any_shape`` those that are deployable (:mod:`cost.layouts.deployable`).
    """
    deepest = min(MAX_STAGES, most_stages)
    shapes: dict[Shape, None] = {}
    for kind in dict.fromkeys(domains.kind for domains in classes):
        alike = [domains for domains in classes if domains.kind == kind]
        sizes = block_sizes(alike[0].spec, {domains.size for domains in alike})
        for size in sizes:
            fits = [domains for domains in alike if domains.size >= size]
            blocks = {domains.block(start, size) for domains in fits for start in (0, domains.size - size)}
            cuts = [n for n in range(1, min(size, deepest) + 1) if size % n == 0 and size // n in sizes]
            for block in blocks:
                shapes |= {even((block,), stages): None for stages in cuts}
        for size in {domains.size for domains in alike}:
            shapes |= dict.fromkeys(_joined(alike, size, deepest))
    gpu_name = {domains.kind: domains.spec.gpu.name for domains in classes}
    for several in (*_mixed(cluster, classes), *_parts(classes)):
        if len({gpu_name[block.kind] for block in several}) == 1:
            shapes[even(several, 1)] = None
        if len(several) <= deepest:
            shapes[Shape(several, tuple(block.size for block in several))] = None
        total, common = sum(block.size for block in several), gcd(*(block.size for block in several))
        for size in (part for part in range(1, common + 1) if common % part == 0):
            if total // size <= deepest:
                shapes[even(several, total // size)] = None
    groups = sum(domains.count for domains in classes)
    spec = {domains.kind: domains.spec for domains in classes}
    return [shape for shape in shapes if shape.legal and (any_shape or _deployable(shape, spec, groups))]


def _deployable(shape: Shape, spec_of: Mapping[int, DomainSpec], groups: int) -> bool:
    """Whether stages and blocks fill nodes evenly, as many as replicas have, and equal ones on one kind of domain."""
    specs = [spec_of[block.kind] for block in shape.blocks]
    node, domain = max(spec.gpus_per_node for spec in specs), max(spec.gpus for spec in specs)
    unlike = len({block.kind for block in shape.blocks}) > 1
    return (
        (unlike or len(set(shape.sizes)) == 1)
        and all(deployable_stage(size, node=node, domain=domain) for size in shape.sizes)
        and all(block.size % node == 0 or block.size < node for block in shape.blocks)
        and deployable_stages(shape.stages, min(shape.sizes), node=node, domain=domain, groups=groups)
    )


def _joined(alike: Sequence[DomainClass], size: int, deepest: int) -> Iterator[Shape]:
    """Yield joins of whole domains of ``size`` GPUs: as one stage, or stages of some domains or of parts of one."""
    able = [domains for domains in alike if domains.size >= size]
    count = sum(domains.count for domains in able)
    slow = [domains for domains in able if domains.size == size and domains.fast < size]
    blocks = [Block(able[0].kind, size)] if any(domains.fast >= size for domains in able) else []
    blocks += [domains.block(0, size) for domains in slow]
    numbers = {*JOINED_DOMAINS, count, *(part for part in range(2, count + 1) if count % part == 0)}
    parts = [part for part in range(1, deepest + 1) if size % part == 0]
    for joined in sorted(number for number in numbers if 2 <= number <= count):
        stages = {part for part in range(1, deepest + 1) if joined % part == 0}
        stages |= {joined * part for part in parts if joined * part <= deepest}
        for block, cut in product(blocks, sorted(stages)):
            yield even((block,) * joined, cut)


def _mixed(cluster: Cluster, classes: Sequence[DomainClass]) -> Iterator[tuple[Block, ...]]:
    """Yield sets of whole domains of unlike classes: neighbours, pairs of each two classes, and all of few."""
    if len(classes) < 2:
        return
    of = {
        cluster.gpus[gpus[0]].domain: alike.block(0, alike.size) for alike in classes for gpus in alike.gpus
    }
    row = [of[domain] for domain in sorted(of)]
    lengths = {*range(2, min(MAX_NEIGHBOURS, len(row)) + 1)} | (
        {len(row)} if len(row) <= MAX_STAGES else set()
    )
    windows: set[tuple[Block, ...]] = set()
    for length, start in product(sorted(lengths), range(len(row))):
        window = tuple(row[start : start + length])
        if len(window) == length and len(set(window)) > 1:
            windows |= {window, window[::-1]}
    if len(classes) <= MAX_PAIRED_CLASSES:
        full = [alike.block(0, alike.size) for alike in classes]
        windows |= set(permutations(full, 2))
    yield from sorted(windows)


def _parts(classes: Sequence[DomainClass]) -> Iterator[tuple[Block, ...]]:
    """Yield pairs of domains of which one or both are cut: for what is too large for a domain, too small for two."""
    if len(classes) > MAX_CUT_CLASSES:
        return
    for domains, neighbours in combinations_with_replacement(classes, 2):
        if domains is neighbours and domains.count == 1:
            continue
        for size, neighbour_size in product(_part_sizes(domains), _part_sizes(neighbours)):
            if size == domains.size and neighbour_size == neighbours.size:
                continue
            pair = domains.block(0, size), neighbours.block(0, neighbour_size)
            if domains is not neighbours or size >= neighbour_size:
                yield pair
            if domains is not neighbours:
                yield pair[::-1]


def _part_sizes(alike: DomainClass) -> list[int]:
    """All, a half, a third and a quarter of a domain of a class, in whole nodes where it has several."""
    node = alike.spec.gpus_per_node if alike.size > alike.spec.gpus_per_node else 1
    return sorted(
        {size for part in (1, 2, 3, 4) if (size := alike.size // part // node * node)} | {alike.size}
    )


def stand(classes: Sequence[DomainClass], shape: Shape) -> tuple[Group, ...] | None:
    """Return GPUs that a replica of ``shape`` may lie on, by stage, to price it on; None where there are none."""
    used: Counter[int] = Counter()
    blocks: list[Group] = []
    for block in shape.blocks:
        gpus = _free(classes, block, used)
        if gpus is None:
            return None
        blocks.append(gpus)
    return shape.groups(blocks)


def _free(classes: Sequence[DomainClass], block: Block, used: Counter[int]) -> Group | None:
    """GPUs of a block in the first domain that no other block of the replica lies in.

    ``used``: how many domains of each class have one, which are its first; one more of that block's.
    """
    for domains in classes:
        slow = block.slow == domains.number
        fits = domains.size >= block.size if slow else block.slow < 0 and domains.fast >= block.size
        if domains.kind == block.kind and fits and used[domains.number] < len(domains.gpus):
            gpus = domains.gpus[used[domains.number]]
            used[domains.number] += 1
            return gpus[-block.size :] if slow else gpus[: block.size]
    return None


def shapes_like(
    cluster: Cluster, classes: Sequence[DomainClass], replicas: Iterable[tuple[Group, ...]]
) -> list[Shape]:
    """Return the shapes of ``replicas``, the GPUs of each stage, that lie on these domains, each domain once."""
    of = {cluster.gpus[gpus[0]].domain: domains for domains in classes for gpus in domains.gpus}
    shapes: dict[Shape, None] = {}
    for stages in replicas:
        runs = [
            (domain, len(list(run)))
            for domain, run in groupby(cluster.gpus[gpu].domain for stage in stages for gpu in stage)
        ]
        numbers = [domain for domain, _ in runs]
        if len(set(numbers)) < len(runs) or not of.keys() >= set(numbers):
            continue
        if all(size <= of[domain].fast or size == of[domain].size for domain, size in runs):
            blocks = tuple(of[domain].block(0, size) for domain, size in runs)
            shapes[Shape(blocks, tuple(len(stage) for stage in stages))] = None
    return [shape for shape in shapes if shape.legal]
