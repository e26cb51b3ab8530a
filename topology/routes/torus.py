"""Dimension-order routes on a torus or grid: along x to the right place, then y, then z, the shorter way round.

A half-way peer on an even ring is reached both ways, half of the bytes each. In one dimension the bytes that each
place of a line sends to each other place are all that matters; they are a sum over pairs, or a product of sums where
everyone sends to everyone, so the work grows with GPUs times the longest dimension, not with GPUs squared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from topology.routes.demand import Pairs, summed
from topology.routes.network import Bools, Floats, Ints, Network
from topology.spec import DomainSpec

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Torus:
    """The grid of one domain.

    Attributes
    ----------
    shape, wrap:
        Sizes of its dimensions, and which are closed to rings.
    sites:
        ``[gpus]`` place of each GPU of the domain, in row-major order.
    plus, minus:
        ``[dimensions, sites]`` link from each site to the next, or the one before, along a dimension; -1 where
        there is none.
    """

    shape: tuple[int, ...]
    wrap: tuple[bool, ...]
    sites: Ints
    plus: Ints
    minus: Ints

    @property
    def size(self) -> int:
        """Places of the grid, with those whose GPU is out of service."""
        return int(np.prod(self.shape))

    def places(self, gpus: Ints) -> Ints:
        """Return coordinates ``[dimensions, gpus]`` of GPUs (numbers in the domain)."""
        return np.array(np.unravel_index(self.sites[gpus], self.shape))

    def turns(self, sources: Ints, targets: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield for each dimension the site where a pair begins to move along it, and its place at the end."""
        here, there = self.places(sources), self.places(targets)
        for k in range(len(self.shape)):
            at = np.concatenate([there[:k], here[k:]])
            yield k, np.ravel_multi_index(tuple(at), self.shape), there[k]

    def pair_moves(self, demand: Pairs) -> list[Floats]:
        """Return for each dimension ``[sites, places]`` bytes that move from a site along it to a place."""
        moves = []
        for k, start, place in self.turns(demand.sources, demand.targets):
            size = self.shape[k]
            moved = summed(start * size + place, demand.amounts, self.size * size)
            moves.append(moved.reshape(self.size, size))
        return moves

    def uniform_moves(self, members: Bools, amount: float) -> list[Floats]:
        """Return the same for ``amount`` bytes from each member to every other one."""
        grid = self._grid(members)
        moves = []
        for k, size in enumerate(self.shape):
            # a site of phase k represents all sources that agree with it from k on, and all targets before k
            senders = grid.sum(axis=tuple(range(k)), keepdims=True)
            receivers = grid.sum(axis=tuple(range(k + 1, grid.ndim)))
            receivers = receivers.reshape(self.shape[:k] + (1,) * (grid.ndim - k) + (size,))
            moves.append((amount * senders[..., None] * receivers).reshape(self.size, size))
        return moves

    def load(self, moves: list[Floats], links: int) -> Floats:
        """Return the bytes on each of a network's ``links``."""
        load = np.zeros(links)
        for k, moved in enumerate(moves):
            size = self.shape[k]
            if size == 1:
                continue
            lines = np.moveaxis(moved.reshape(*self.shape, size), k, -2)
            for forward, link in ((True, self.plus[k]), (False, self.minus[k])):
                carried = np.moveaxis(self._along(lines, k, forward=forward), -1, k).reshape(-1)
                there = link >= 0
                np.add.at(load, link[there], carried[there])
        return load

    def uniform_hops(self, members: Bools, latency_s: Floats) -> float:
        """Return the seconds of the longest route between two members; ``latency_s [dimensions]`` of a hop."""
        from scipy.fft import irfftn, rfftn

        # which displacements occur: the autocorrelation of who takes part, padded where ends do not meet
        padded = [size if wrap else 2 * size for size, wrap in zip(self.shape, self.wrap, strict=True)]
        spectrum = rfftn(self._grid(members), s=padded, axes=range(len(padded)))
        occurs = irfftn(np.abs(spectrum) ** 2, s=padded, axes=range(len(padded))) > 0.5
        steps = np.nonzero(occurs)
        ways = [np.minimum(step, size - step) for step, size in zip(steps, padded, strict=True)]
        return float(np.max(sum(latency_s[k] * way for k, way in enumerate(ways)), initial=0.0))

    def pair_hops(self, sources: Ints, targets: Ints, latency_s: Floats) -> Floats:
        """Return the seconds of each pair's route."""
        ahead, size = self.places(targets) - self.places(sources), np.array(self.shape)[:, None]
        hops = np.where(np.array(self.wrap)[:, None], np.minimum(ahead % size, -ahead % size), np.abs(ahead))
        return np.asarray((latency_s[:, None] * hops).sum(axis=0))

    def blocked(self, sources: Ints, targets: Ints) -> Bools:
        """Return for each pair whether a link of its route is not there."""
        bad = np.zeros(len(sources), dtype=bool)
        for k, start, place in self.turns(sources, targets):
            bad |= self._cut(k)[start, place]
        return bad

    def _grid(self, members: Bools) -> Floats:
        """Return who takes part, by place."""
        grid = np.zeros(self.size)
        grid[self.sites[members]] = 1.0
        return grid.reshape(self.shape)

    def _part(self, k: int, *, forward: bool) -> Floats:
        """Return ``[places, places]`` the part of the bytes that goes forwards (or backwards)."""
        ahead = np.arange(self.shape[k])[None, :] - np.arange(self.shape[k])[:, None]
        way = ahead if forward else -ahead
        if not self.wrap[k]:
            return (way > 0).astype(float)
        there, back = way % self.shape[k], -way % self.shape[k]
        return np.where(there == 0, 0.0, np.where(there < back, 1.0, np.where(there == back, 0.5, 0.0)))

    def _along(self, lines: Floats, k: int, *, forward: bool) -> Floats:
        """Return ``[..., places]`` bytes that leave each place of a line, from ``[..., from, to]`` bytes."""
        moving = lines * self._part(k, forward=forward)
        size = self.shape[k]
        first, last = np.arange(size)[:, None], np.arange(size)[None, :]
        wraps = last < first if forward else last > first
        change = moving.sum(axis=-1) - moving.sum(axis=-2)
        change = change if forward else change[..., ::-1]
        carried = np.cumsum(change, axis=-1)
        carried = carried if forward else carried[..., ::-1]
        carried = carried + (moving * wraps).sum(axis=(-2, -1))[..., None]
        carried[carried < _ROUNDING * carried.max(initial=0.0)] = 0.0
        return np.asarray(carried)

    def _cut(self, k: int) -> Bools:
        """Return ``[sites, places]`` whether the way from a site along ``k`` to a place meets a missing link."""
        size = self.shape[k]
        cut = np.zeros((self.size, size), dtype=bool)
        own = np.unravel_index(np.arange(self.size), self.shape)[k]
        for forward, link in ((True, self.plus[k]), (False, self.minus[k])):
            missing = np.moveaxis((link < 0).reshape(self.shape), k, 0)
            met = np.zeros_like(missing)
            used = self._part(k, forward=forward) > 0
            for hop in range(1, size):
                met = met | np.roll(missing, (1 - hop) if forward else (hop - 1), axis=0)
                place = (own + (hop if forward else -hop)) % size
                goes = used[own, place]
                cut[np.flatnonzero(goes), place[goes]] |= np.moveaxis(met, 0, k).reshape(-1)[goes]
        return cut


def torus_of(network: Network, spec: DomainSpec, gpus: Ints) -> Torus:
    """Return the grid of a domain, from the coordinates that its GPUs carry."""
    shape = spec.shape
    places = np.array([network.coordinates[gpu] for gpu in gpus], dtype=np.int64).reshape(-1, len(shape))
    sites = np.asarray(np.ravel_multi_index(tuple(places.T), shape), dtype=np.int64)
    count = int(np.prod(shape))
    gpu_at = np.full(count, -1, dtype=np.int64)
    gpu_at[sites] = gpus
    grid = gpu_at.reshape(shape)
    ways = []
    for turn in (-1, 1):
        rows = []
        for k, size in enumerate(shape):
            peer = np.roll(grid, turn, axis=k)
            link = network.link_between(np.maximum(grid, 0), np.maximum(peer, 0))
            link = np.where((grid >= 0) & (peer >= 0) & (size > 1), link, -1)
            if not spec.wrap[k]:
                edge = [slice(None)] * len(shape)
                edge[k] = slice(-1, None) if turn == -1 else slice(0, 1)
                link[tuple(edge)] = -1
            rows.append(link.reshape(-1))
        ways.append(np.array(rows))
    return Torus(tuple(shape), tuple(spec.wrap), sites, ways[0], ways[1])
