"""Dimension-order routes on a grid or its rings: along x to the right place, then y, then z, the shorter way round.

A half-way peer on an even ring is reached both ways, half of the bytes each. In one dimension the bytes that each
place of a line sends to each other place are all that matters; they are a sum over pairs, or a product of sums where
everyone sends to everyone, so the work grows with GPUs times the longest dimension, not with GPUs squared. Grids that
are alike are routed at once, as *copies*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from topology.routes.demand import Alike, Pairs, runs, summed
from topology.routes.ecmp import Routed, Taken, nothing_routed
from topology.routes.network import Bools, Floats, Ints, Network

_ROUNDING = 1e-12


class DimensionOrder:
    """Routes between the GPUs of grids that are alike.

    Parameters
    ----------
    network:
        All nodes and links.
    places, links:
        ``[copies, terminals]`` GPUs and ``[copies, links]`` directed links of each grid.
    shape, wrap:
        Sizes of its dimensions, and which are closed to rings.
    """

    def __init__(
        self, network: Network, places: Ints, links: Ints, shape: Sequence[int], wrap: Sequence[bool]
    ) -> None:
        self._net, self._places, self._links = network, places, links
        self.shape, self.wrap, self._copies = tuple(shape), tuple(wrap), len(places)
        self.size = int(np.prod(self.shape))
        at = np.array([network.coordinates[gpu] for gpu in places[0]], dtype=np.int64)
        sites = np.ravel_multi_index(tuple(at.reshape(-1, len(self.shape)).T), self.shape)
        self._site, self._copy = np.zeros((2, network.gpus), dtype=np.int64)
        self._site[places], self._copy[places] = sites, np.arange(self._copies)[:, None]
        gpu_at = np.full(self.size, -1, dtype=np.int64)
        gpu_at[sites] = places[0]
        grid = gpu_at.reshape(self.shape)
        # [ways, dimensions, sites] place among the links of a copy, -1 for none: to the next, to the one before
        self._ways = np.array([[self._steps(grid, k, turn) for k in range(len(shape))] for turn in (-1, 1)])

    def _steps(self, grid: Ints, k: int, turn: int) -> Ints:
        """Return the link from each site to the one after (``turn`` -1) or before along dimension ``k``."""
        peer = np.roll(grid, turn, axis=k)
        link = self._net.link_between(np.maximum(grid, 0), np.maximum(peer, 0))
        number = np.full(self._net.links + 1, -1, dtype=np.int64)
        number[self._links[0]] = np.arange(self._links.shape[1])
        exists = (grid >= 0) & (peer >= 0) & (self.shape[k] > 1)
        if not self.wrap[k]:
            place = np.indices(self.shape)[k]
            exists &= place != (self.shape[k] - 1 if turn == -1 else 0)
        return np.asarray(np.where(exists, number[link], -1).reshape(-1))

    def route(self, pairs: Pairs, alike: Alike) -> Routed:
        """Route some pairs, and what GPUs that send alike send to the others of their grid."""
        routed = nothing_routed(self._net)
        moves = self._pair_moves(pairs)
        sent, heard = self._grid(alike.senders), self._grid(alike.weights)
        if sent.any() and heard.any():
            alike_moves = self._alike_moves(sent, heard)
            moves = [a + alike.amount * b for a, b in zip(moves, alike_moves, strict=True)]
            routed.longest_s = self._alike_s(sent, heard)
        load = np.zeros((self._copies, self._links.shape[1]))
        for k, moved in enumerate(moves):
            for forward, way in zip((True, False), self._ways, strict=True):
                sites = np.flatnonzero(way[k] >= 0)
                load[:, way[k][sites]] += self._along(moved, k, forward=forward)[:, sites]
        routed.load_bytes[self._links] = load
        routed.longest_s = max(
            routed.longest_s, float(self._hops_s(pairs.sources, pairs.targets).max(initial=0.0))
        )
        routed.tier_bytes = self._tier_bytes(pairs, sent, alike.amount * heard)
        return routed

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair, -inf where a link of it is missing."""
        seconds = self._hops_s(sources, targets)
        if not self.joins_all:
            for k, start, place in self._turns(sources, targets):
                seconds[self._cut(k)[start, place]] = -np.inf
        return seconds

    def taken(self, sources: Ints, targets: Ints) -> Taken:
        """Return the links of each pair, and the part of its bytes that takes each."""
        parts = [Taken.none()]
        copy = self._copy[sources]
        for k, start, place in self._turns(sources, targets):
            stride = int(np.prod(self.shape[k + 1 :]))
            origin = start // stride % self.shape[k]
            for forward, way in zip((True, False), self._ways, strict=True):
                part = self._part(k, forward=forward)[origin, place]
                ahead = (place - origin if forward else origin - place) % self.shape[k]
                step, pair = runs(np.zeros_like(origin), np.where(part > 0, ahead, 0))
                at = (origin[pair] + (step if forward else -step)) % self.shape[k]
                link = way[k][start[pair] + (at - origin[pair]) * stride]
                parts.append(Taken(self._links[copy[pair], link], pair, part[pair]))
        return Taken.joined(parts)

    @cached_property
    def joins_all(self) -> bool:
        """Whether no link of the grid is missing."""
        lines = [(size, wrap) for size, wrap in zip(self.shape, self.wrap, strict=True) if size > 1]
        ends = sum(self.size if wrap else self.size // size * (size - 1) for size, wrap in lines)
        return int((self._ways[0] >= 0).sum()) == ends

    @cached_property
    def _latency_s(self) -> Floats:
        """``[dimensions]`` seconds of one hop."""
        latency = self._net.types.latency_s[self._net.type[self._links[0]]]
        return np.array([latency[row[row >= 0]].max(initial=0.0) for row in self._ways[0]])

    def _coordinates(self, gpus: Ints) -> Ints:
        """Return coordinates ``[dimensions, gpus]`` of GPUs."""
        return np.array(np.unravel_index(self._site[gpus], self.shape))

    def _turns(self, sources: Ints, targets: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield for each dimension the site where a pair begins to move along it, and its place at the end."""
        source, target = self._coordinates(sources), self._coordinates(targets)
        for k in range(len(self.shape)):
            at = np.concatenate([target[:k], source[k:]])
            yield k, np.ravel_multi_index(tuple(at), self.shape), target[k]

    def _pair_moves(self, pairs: Pairs) -> list[Floats]:
        """Return for each dimension ``[copies, sites, places]`` bytes that move from a site along it to a place."""
        moves, base = [], self._copy[pairs.sources] * self.size
        for k, start, place in self._turns(pairs.sources, pairs.targets):
            shape = (self._copies, self.size, self.shape[k])
            moves.append(
                summed((base + start) * shape[2] + place, pairs.amounts, int(np.prod(shape))).reshape(shape)
            )
        return moves

    def _alike_moves(self, sent: Floats, heard: Floats) -> list[Floats]:
        """Return the same for what each sender sends alike, from who sends and the weights of who hears, by place."""
        moves = []
        for k, size in enumerate(self.shape):
            # a site of phase k represents all sources that agree with it from k on, and all targets before k
            senders = sent.sum(axis=tuple(range(1, k + 1)), keepdims=True)
            receivers = heard.sum(axis=tuple(range(k + 2, heard.ndim)))
            ones = (1,) * (len(self.shape) - k)
            receivers = receivers.reshape((self._copies, *self.shape[:k], *ones, size))
            moves.append((senders[..., None] * receivers).reshape(self._copies, self.size, size))
        return moves

    def _alike_s(self, sent: Floats, heard: Floats) -> float:
        """Return the seconds of the longest route from one that sends to one that hears in one grid."""
        from scipy.fft import irfftn, rfftn

        # which displacements occur: the correlation of who sends and who hears, padded where ends do not meet
        padded = [size if wrap else 2 * size for size, wrap in zip(self.shape, self.wrap, strict=True)]
        axes = range(1, len(padded) + 1)
        spectra = (rfftn(grid, s=padded, axes=axes) for grid in (sent, (heard > 0).astype(float)))
        occurs = (irfftn(np.conj(next(spectra)) * next(spectra), s=padded, axes=axes) > 0.5).any(axis=0)
        steps = np.nonzero(occurs)
        ways = [np.minimum(step, size - step) for step, size in zip(steps, padded, strict=True)]
        return float(np.max(sum(self._latency_s[k] * way for k, way in enumerate(ways)), initial=0.0))

    def _hops_s(self, sources: Ints, targets: Ints) -> Floats:
        """Return the seconds of each pair's route, were no link missing."""
        ahead, size = self._coordinates(targets) - self._coordinates(sources), np.array(self.shape)[:, None]
        hops = np.where(np.array(self.wrap)[:, None], np.minimum(ahead % size, -ahead % size), np.abs(ahead))
        return np.asarray((self._latency_s[:, None] * hops).sum(axis=0))

    def _grid(self, values: Bools | Floats) -> Floats:
        """Return values of GPUs by copy and place."""
        grid = np.zeros((self._copies, self.size))
        grid[:, self._site[self._places[0]]] = values[self._places]
        return grid.reshape((self._copies, *self.shape))

    def _part(self, k: int, *, forward: bool) -> Floats:
        """Return ``[places, places]`` the part of the bytes that goes forwards (or backwards)."""
        ahead = np.arange(self.shape[k])[None, :] - np.arange(self.shape[k])[:, None]
        way = ahead if forward else -ahead
        if not self.wrap[k]:
            return (way > 0).astype(float)
        forth, back = way % self.shape[k], -way % self.shape[k]
        return np.where(forth == 0, 0.0, np.where(forth < back, 1.0, np.where(forth == back, 0.5, 0.0)))

    def _along(self, moved: Floats, k: int, *, forward: bool) -> Floats:
        """Return ``[copies, sites]`` bytes that leave each along ``k``, of ``[copies, sites, places]`` to places."""
        size = self.shape[k]
        lines = np.moveaxis(moved.reshape(self._copies, *self.shape, size), k + 1, -2)  # [..., from, to]
        moving = lines * self._part(k, forward=forward)
        origin, target = np.arange(size)[:, None], np.arange(size)[None, :]
        wraps = target < origin if forward else target > origin
        change = moving.sum(axis=-1) - moving.sum(axis=-2)
        change = change if forward else change[..., ::-1]
        carried = np.cumsum(change, axis=-1)
        carried = carried if forward else carried[..., ::-1]
        carried = carried + (moving * wraps).sum(axis=(-2, -1))[..., None]
        carried[carried < _ROUNDING * carried.max(initial=0.0)] = 0.0
        return np.asarray(np.moveaxis(carried, -1, k + 1).reshape(self._copies, -1))

    def _cut(self, k: int) -> Bools:
        """Return ``[sites, places]`` whether the way from a site along ``k`` to a place meets a missing link."""
        size = self.shape[k]
        cut = np.zeros((self.size, size), dtype=bool)
        origin = np.unravel_index(np.arange(self.size), self.shape)[k]
        for forward, way in zip((True, False), self._ways, strict=True):
            missing = np.moveaxis((way[k] < 0).reshape(self.shape), k, 0)
            met = np.zeros_like(missing)
            used = self._part(k, forward=forward) > 0
            for hop in range(1, size):
                met = met | np.roll(missing, (1 - hop) if forward else (hop - 1), axis=0)
                place = (origin + (hop if forward else -hop)) % size
                goes = used[origin, place]
                cut[np.flatnonzero(goes), place[goes]] |= np.moveaxis(met, 0, k).reshape(-1)[goes]
        return cut

    def _tier_bytes(self, pairs: Pairs, sent: Floats, heard: Floats) -> Floats:
        """Return the bytes that move in any dimension of each tier."""
        tier_bytes = np.zeros(len(self._net.tiers))
        tier = self._net.types.tier[self._net.type[self._links[0]]]
        rows = [np.unique(tier[row[row >= 0]]) for row in self._ways[0]]
        source, target = self._coordinates(pairs.sources), self._coordinates(pairs.targets)
        axes = tuple(range(1, sent.ndim))
        total = float((sent.sum(axis=axes) * heard.sum(axis=axes)).sum())
        for number in np.unique(np.concatenate(rows)) if rows else []:
            dimensions = [k for k, row in enumerate(rows) if number in row]
            moves = (source[dimensions] != target[dimensions]).any(axis=0)
            tier_bytes[number] = pairs.amounts[moves].sum()
            # all pairs, less those that agree in every dimension of this tier
            rest_axes = tuple(k + 1 for k in range(len(rows)) if k not in dimensions)
            tier_bytes[number] += total - float((sent.sum(axis=rest_axes) * heard.sum(axis=rest_axes)).sum())
        return tier_bytes
