"""Where the tokens of a routing trace go under a placement: the places that each reaches, by where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenHits:
    """What the tokens of routing traces reach, by trace, MoE layer and the GPU that they come from.

    Sources are one where copies are chosen alike from everywhere (an even split, a linear programme), else each GPU
    of the EP group (``source``). Tokens are equally many from each GPU.

    Attributes
    ----------
    gpus:
        Chance that a token needs some expert on a GPU, ``[traces, layers, sources, gpus]``.
    pairs:
        Its choices that a GPU serves, ``[traces, layers, sources, gpus]``: no less than ``gpus``.
    nodes, domains:
        As ``gpus``, for the nodes and the scale-up domains of the group, ``[traces, layers, sources, places]``, in
        increasing order of their number.
    node_of, domain_of:
        Place of each GPU among those, ``[gpus]``.
    tokens:
        Tokens counted, over all traces.
    """

    gpus: Floats
    pairs: Floats
    nodes: Floats
    domains: Floats
    node_of: Ints
    domain_of: Ints
    tokens: int

    @property
    def traces(self) -> int:
        """Traces, which count equally."""
        return int(self.gpus.shape[0])

    @cached_property
    def gpus_per_token(self) -> Floats:
        """GPUs that a token's experts lie on, ``[traces, layers]``."""
        return _reached(self.gpus)

    @cached_property
    def nodes_per_token(self) -> Floats:
        """Nodes that a token's experts lie on, its own among them, ``[traces, layers]``."""
        return _reached(self.nodes)

    @cached_property
    def domains_per_token(self) -> Floats:
        """Scale-up domains that a token's experts lie in, its own among them, ``[traces, layers]``."""
        return _reached(self.domains)


def numbered(where: Ints) -> Ints:
    """Return ``where`` with its values numbered from 0 in increasing order."""
    return np.unique(where, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _reached(chance: Floats) -> Floats:
    reached: Floats = chance.sum(axis=-1).mean(axis=-1)
    return reached


def place_hits(
    choices: Ints,
    slot_expert: Ints,
    slot_place: Ints,
    chosen: Floats,
    places: int,
    experts: int,
) -> Floats:
    """Return the chance that a token reaches each place, the mean over tokens, ``[sources, places]``.

    Parameters
    ----------
    choices:
        ``[tokens, k]`` experts, -1 for none; each token has one at least.
    slot_expert, slot_place:
        Expert and place of each slot, ``[slots]``.
    chosen:
        Fraction of a source's tokens of the slot's expert that go to the slot, ``[sources, slots]``.

    Notes
    -----
    Most experts always go to one place: those are marked in a table of tokens and places. What is left are choices of
    experts whose tokens are split over places. Tokens that bring the same such experts to a place are counted once,
    with how many they are, so that all sources are computed at the cost of one.
    """
    # expert and place, once for each pair of them
    key, entry = np.unique(slot_expert * places + slot_place, return_inverse=True)
    expert, place = key // places, key % places
    # sources that choose alike are computed once
    chance, alike = np.unique(summed(chosen, entry.reshape(-1), key.size), axis=0, return_inverse=True)
    count = np.bincount(expert, minlength=experts)
    # where the tokens of an expert all go; the last is of a choice that was not used
    home = np.full(experts + 1, -1, dtype=np.int64)
    home[expert] = np.where(count[expert] == 1, place, -1)
    at = home[choices]
    sure = np.zeros((len(choices), places), dtype=bool)
    token, which = np.nonzero(at >= 0)
    sure[token, at[token, which]] = True
    reached = np.broadcast_to(sure.sum(axis=0, dtype=np.float64), (len(chance), places))
    token, which = np.nonzero((at < 0) & (choices >= 0))
    if token.size:
        of = choices[token, which]
        entries = np.repeat((np.cumsum(count) - count)[of], count[of]) + _within(count[of])
        cell = np.repeat(token, count[of]) * places + place[entries]
        unsure = ~sure.reshape(-1)[cell]
        reached = reached + _reached_by_chance(chance, place, places, cell[unsure], entries[unsure])
    mean: Floats = reached[alike.reshape(-1)] / max(1, len(choices))
    return mean


def _reached_by_chance(chance: Floats, place: Ints, places: int, cell: Ints, entries: Ints) -> Floats:
    """Return the expected number of cells (a token at a place) that some entry brings, ``[sources, places]``.

    ``chance [sources, entries]``, ``place [entries]``: of an expert at a place; ``entries`` may each bring ``cell``.
    """
    order = np.argsort(cell, kind="stable")
    cell, entries = cell[order], entries[order]
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    sizes = np.diff(starts, append=cell.size)
    alone = np.bincount(entries[starts[sizes == 1]], minlength=place.size)
    reached = summed(chance * alone, place, places)
    several = sizes > 1
    if several.any():
        # a set of entries is known by the sum of random numbers, one for each entry
        marks = np.random.default_rng(0).integers(1, 2**63, place.size, dtype=np.uint64)
        marked = np.add.reduceat(marks[entries], starts)[several]
        _, first, times = np.unique(marked, return_index=True, return_counts=True)
        starts, sizes = starts[several][first], sizes[several][first]
        members = entries[np.repeat(starts, sizes) + _within(sizes)]
        runs = np.cumsum(sizes) - sizes
        missed = np.multiply.reduceat(1.0 - chance[:, members], runs, axis=1)
        reached += summed((1.0 - missed) * times, place[members[runs]], places)
    return reached


def summed(values: Floats, group: Ints, groups: int) -> Floats:
    """Sum of each group's columns, ``[rows, columns]`` to ``[rows, groups]``."""
    found = np.zeros((groups, len(values)))
    np.add.at(found, group, values.T)
    return found.T


def _within(lengths: Ints) -> Ints:
    """Return 0, 1, .. for each run of these lengths."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
