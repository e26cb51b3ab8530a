"""Traffic between GPUs: the named patterns, a matrix, and files of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from topology.base.errors import InputError
from topology.base.npy import load_npy
from topology.base.reading import nearest
from topology.routes.demand import NO_PAIRS, Alike, Pairs
from topology.routes.network import Floats, Ints

PATTERNS = ("all-to-all", "ring", "incast", "permutation")
ONE_TO_ONE = PATTERNS[1:]
"""Patterns in which a GPU sends to one other."""
ZIPF = "zipf"
MAX_SKEW = 10.0
_BLOCK_PAIRS = 2_000_000
LEAST_BYTES, MOST_BYTES = 1e-100, 1e30
"""Range of bytes per sending GPU or pair, so that sums and times stay within floating point."""


@dataclass(frozen=True)
class Traffic:
    """Bytes from GPU to GPU of a cluster of ``gpus``; what a GPU sends to itself crosses no link and is left out.

    Attributes
    ----------
    name:
        What it is called in a report.
    gpus:
        GPUs of the cluster.
    uniform:
        Numbers of the GPUs that each send ``uniform_bytes`` to every other of them.
    pairs:
        Further pairs, with the bytes of each.
    matrix, row, members:
        Further bytes ``[members, members]`` between the GPUs numbered ``members``, and ``[members]`` from each to
        each of them.
    """

    name: str
    gpus: int
    uniform: Ints = field(default_factory=lambda: NO_PAIRS.sources)
    uniform_bytes: float = 0.0
    pairs: Pairs = NO_PAIRS
    matrix: Floats | None = None
    row: Floats | None = None
    members: Ints = field(default_factory=lambda: NO_PAIRS.sources)

    @property
    def total_bytes(self) -> float:
        """Bytes that travel between different GPUs."""
        return sum(float(self._sent(part).sum()) for part in self.alike()) + sum(
            float(amounts.sum()) for _, _, amounts in self.blocks()
        )

    @property
    def senders(self) -> int:
        """GPUs that send anything."""
        sends = np.zeros(self.gpus, dtype=bool)
        for part in self.alike():
            sends |= self._sent(part) > 0
        for sources, _, amounts in self.blocks():
            sends[sources[amounts > 0]] = True
        return int(sends.sum())

    def alike(self) -> Iterator[Alike]:
        """Yield the parts in which GPUs send alike; :meth:`blocks` has the others."""
        if len(self.uniform) > 1 and self.uniform_bytes > 0:
            members = np.zeros(self.gpus, dtype=bool)
            members[self.uniform] = True
            yield Alike(members, members.astype(float), self.uniform_bytes)
        peak = 0.0 if self.row is None else float(self.row.max(initial=0.0))
        if self.row is not None and peak > 0:
            senders, weights = np.zeros(self.gpus, dtype=bool), np.zeros(self.gpus)
            senders[self.members], weights[self.members] = True, self.row / peak
            yield Alike(senders, weights, peak)

    def _sent(self, alike: Alike) -> Floats:
        """Return what each GPU sends to others."""
        amounts = alike.amount * (alike.weights.sum() - alike.weights)
        amounts[amounts <= alike.least] = 0.0
        return np.where(alike.senders, amounts, 0.0)

    def blocks(self) -> Iterator[Pairs]:
        """Yield all pairs but those of :meth:`alike`, a few million at a time."""
        moving = (self.pairs.sources != self.pairs.targets) & (self.pairs.amounts > 0)
        if moving.any():
            yield self.pairs.where(moving)
        if self.matrix is None:
            return
        count = len(self.members)
        step = max(1, _BLOCK_PAIRS // max(1, count))
        for start in range(0, count, step):
            rows = np.array(self.matrix[start : start + step], dtype=float)
            at, to = np.nonzero(rows)
            amounts = rows[at, to]
            moving = at + start != to
            if moving.any():
                yield Pairs(self.members[at + start], self.members[to], amounts).where(moving)


def pattern_traffic(
    pattern: str, gpus: int, bytes_per_gpu: float, members: Sequence[int] | None = None
) -> Traffic:
    """Return a named pattern.

    Parameters
    ----------
    pattern:
        ``all-to-all``; ``ring``: i to i + 1; ``incast``: all to the first; ``permutation``: i to i + n/2;
        ``zipf:S``: all to all, as much to the k-th of them as ``k ** -S`` (experts of unequal use).
    gpus:
        GPUs of the cluster.
    bytes_per_gpu:
        What each GPU sends in all (the target of an incast sends nothing).
    members:
        Numbers of the GPUs that take part; default all.

    Raises
    ------
    InputError
        If the pattern is not known, fewer than two GPUs take part, or the bytes are not above zero.
    """
    word, colon, skew = pattern.partition(":")
    zipf = word == ZIPF and bool(colon)
    if not zipf and pattern not in PATTERNS:
        raise InputError(f'unknown traffic pattern "{pattern}"; {nearest(pattern, PATTERNS)}')
    if not LEAST_BYTES <= bytes_per_gpu <= MOST_BYTES:
        raise InputError(
            f"bytes per GPU: {bytes_per_gpu:g} must be greater than zero, at most {MOST_BYTES:g}."
        )
    who = _members(members, gpus)
    n = len(who)
    if zipf:
        weights = np.arange(1, n + 1) ** -_skew(skew)
        return Traffic(pattern, gpus, row=bytes_per_gpu * weights / weights.sum(), members=who)
    if pattern == "all-to-all":
        return Traffic(pattern, gpus, who, bytes_per_gpu / (n - 1))
    ranks = np.arange(n)
    if pattern == "incast":
        sources, targets = ranks[1:], np.zeros(n - 1, dtype=np.int64)
    else:
        sources, targets = ranks, (ranks + (1 if pattern == "ring" else n // 2)) % n
    amounts = np.full(len(sources), float(bytes_per_gpu))
    return Traffic(pattern, gpus, pairs=Pairs(who[sources], who[targets], amounts))


def _skew(text: str) -> float:
    """Return the exponent of a Zipf distribution."""
    try:
        skew = float(text)
    except ValueError:
        skew = np.nan
    if not 0 <= skew <= MAX_SKEW:
        raise InputError(
            f"traffic pattern zipf:{text}: expected an exponent from 0 to {MAX_SKEW:g}, like zipf:1."
        )
    return skew


def traffic_matrix(
    matrix: Floats,
    gpus: int,
    members: Sequence[int] | None = None,
    name: str = "matrix",
    where: str = "traffic",
) -> Traffic:
    """Return traffic ``matrix [members, members]`` in bytes; row sends to column.

    Raises
    ------
    InputError
        If it is not square over the GPUs that take part, or has a value that is not a count of bytes.
    """
    who = _members(members, gpus)
    shape = tuple(np.shape(matrix))
    if shape != (len(who), len(who)):
        raise InputError(f"{where}: shape {shape} must be ({len(who)}, {len(who)}), one row per GPU.")
    if np.asarray(matrix).dtype.kind not in "fiu":
        raise InputError(f"{where}: holds {np.asarray(matrix).dtype}, not numbers; write bytes as floats.")
    for start in range(0, len(who), 1024):
        with np.errstate(over="ignore"):  # of a longer float; what is infinite then is refused
            rows = np.asarray(matrix[start : start + 1024], dtype=np.float64)
        valid = (rows == 0) | ((rows >= LEAST_BYTES) & (rows <= MOST_BYTES))  # false for nan as well
        if not valid.all():
            cell = np.argwhere(~valid)[0]
            raise InputError(
                f"{where}: bytes from GPU {start + cell[0]} to GPU {cell[1]} are {rows[tuple(cell)]}; "
                f"they must be finite and not negative, 0 or from {LEAST_BYTES:g} to {MOST_BYTES:g}."
            )
    same = _row_of_all(matrix)
    traffic = Traffic(name, gpus, matrix=np.asarray(matrix) if same is None else None, row=same, members=who)
    if traffic.total_bytes <= 0:
        raise InputError(f"{where}: no bytes between different GPUs, so there is nothing to route.")
    return traffic


def _row_of_all(matrix: Floats) -> Floats | None:
    """Return what every GPU sends to each other one, whatever to itself; None where they differ."""
    row = np.array(matrix[0], dtype=np.float64)
    row[0] = matrix[1, 0]
    for start in range(0, len(row), 1024):
        rows = np.array(matrix[start : start + 1024], dtype=np.float64)
        diagonal = np.arange(len(rows))
        rows[diagonal, start + diagonal] = row[start + diagonal]
        if (rows != row).any():
            return None
    return row


def read_traffic(path: Path, gpus: int, members: Sequence[int] | None = None) -> Traffic:
    """Read traffic ``[gpus, gpus]`` in bytes from a ``.npy`` file.

    Raises
    ------
    InputError
        If it is not such a file, or its matrix cannot be used.
    """
    if not path.is_file():
        raise InputError(f'traffic file "{path}" does not exist or is not a file.')
    try:
        matrix = load_npy(path, path.name)
    except OSError as error:
        raise InputError(f"{path.name}: cannot be read ({error.strerror or error}).") from None
    return traffic_matrix(matrix, gpus, members, name=path.name, where=path.name)


def _members(members: Sequence[int] | None, gpus: int) -> Ints:
    """Return the numbers of the GPUs that take part."""
    who = np.arange(gpus) if members is None else np.asarray(members, dtype=np.int64)
    if len(who) < 2:
        raise InputError(f"traffic needs at least two GPUs, not {len(who)}.")
    if who.min() < 0 or who.max() >= gpus or len(np.unique(who)) != len(who):
        raise InputError(f"traffic: GPU numbers must be different and from 0 to {gpus - 1}.")
    return who.astype(np.int64)
