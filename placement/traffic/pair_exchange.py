"""Exchanges of experts between two GPUs over all layers, for many pairs of GPUs at once.

Kernighan and Lin's search: the best exchange of any layer comes first even where it costs, each expert moves once,
and the best prefix is kept. Experts of one layer send each other nothing, so that the best exchange of a layer is the
best expert of either GPU. Pairs that do not touch each other are searched as one array.
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Bools, Floats, Index

_PATIENCE = 48
"""Exchanges without a gain after which a pass ends, besides half of a GPU's experts of all layers."""
_LOST = 1e-9


class PairExchange:
    """Pairs of GPUs with their experts in all layers: side +1 is a pair's first GPU, -1 its second, 0 nothing.

    Arrays have an empty layer before the first and after the last, so that every layer has neighbours.
    """

    def __init__(
        self, weights: Floats, members: Index, side: Floats, price: Floats, pull: Floats | None = None
    ) -> None:
        """Take pairs.

        Parameters
        ----------
        weights:
            ``[hops, experts, experts]``.
        members, side:
            ``[pairs, layers, pool]``: experts, and where they are.
        price:
            ``[pairs]`` of a change between the two GPUs.
        pull:
            ``[pairs, layers, pool]``: half of what an expert saves on the first GPU by other GPUs; None: nothing.
        """
        pairs, layers, pool = members.shape
        self.layers = layers
        self.members = members
        self.side = np.zeros((pairs, layers + 2, pool))
        self.side[:, 1:-1] = side
        hop = np.arange(layers - 1)[None, :, None, None]
        # forth[:, n] is between layers n and n + 1 of the padded ones; empty at both ends
        self.forth = np.zeros((pairs, layers + 1, pool, pool))
        self.forth[:, 1:-1] = weights[hop, members[:, :-1, :, None], members[:, 1:, None, :]]
        used = side != 0
        self.forth[:, 1:-1] *= (used[:, :-1, :, None] & used[:, 1:, None, :]) * price[:, None, None, None]
        self.back = np.ascontiguousarray(self.forth.transpose(0, 1, 3, 2))
        self.pull = np.zeros_like(self.side)
        if pull is not None:
            self.pull[:, 1:-1] = pull

    def force(self, rows: Index) -> Floats:
        """Return half of what each expert saves on the first GPU rather than the second, of some pairs."""
        side = self.side[rows]
        met = np.zeros_like(side)
        met[:, :-1] += (self.forth[rows] @ side[:, 1:, :, None])[..., 0]
        met[:, 1:] += (self.back[rows] @ side[:, :-1, :, None])[..., 0]
        return met / 2 + self.pull[rows]

    def saved(self) -> Floats:
        """Return what each pair saves by its sides, up to a constant, ``[pairs]``."""
        every = np.arange(len(self.side))
        found: Floats = ((self.force(every) + self.pull) * self.side).sum(axis=(1, 2)) / 2
        return found

    def perturb(self, rng: np.random.Generator) -> None:
        """In every other pair shuffle a run of layers; in the rest exchange a few experts in each layer."""
        for pair, side in enumerate(self.side):
            if pair % 2:
                low, high = sorted(int(n) for n in rng.integers(0, self.layers, 2))
                for layer in range(low + 1, high + 2):
                    used = np.flatnonzero(side[layer])
                    side[layer, used] = rng.permutation(side[layer, used])
                continue
            least = int(min((side[1] > 0).sum(), (side[1] < 0).sum()))
            if least:
                some = int(rng.integers(1, max(2, least // 2 + 1)))
                # the experts with the least random numbers on each side
                drawn = rng.random((self.layers, side.shape[1]))
                for sign in (1.0, -1.0):
                    key = np.where(self.side[pair, 1:-1] * sign > 0, drawn, 2.0)
                    chosen = np.argpartition(key, some - 1, axis=1)[:, :some]
                    drawn[np.arange(self.layers)[:, None], chosen] = 3.0
                side[1:-1][drawn == 3.0] *= -1.0

    def search(self, seconds: list[float]) -> None:
        """Exchange until no pass gains; adds its work to ``seconds[0]``."""
        rows = np.arange(len(self.side))
        while rows.size:
            rows = rows[self._pass(rows, seconds)]

    def _pass(self, rows: Index, seconds: list[float]) -> Bools:
        """Let each expert of some pairs move once and keep the best prefix; which pairs gained."""
        pairs = np.arange(rows.size)
        side, force = self.side[rows], self.force(rows)
        forth, back = self.forth, self.back
        leave = np.where(side > 0, -force, -np.inf)
        join = np.where(side < 0, force, -np.inf)
        first, second = leave.argmax(axis=2), join.argmax(axis=2)
        gains = leave.max(axis=2) + join.max(axis=2)
        floor = _LOST * np.abs(force).sum(axis=(1, 2))
        total = np.zeros(rows.size)
        best = np.zeros(rows.size)
        length = np.zeros(rows.size, dtype=np.int64)
        patience = _PATIENCE + self.layers * side.shape[2] // 4
        done: list[tuple[Index, Index, Index]] = []
        around = np.array([-1, 0, 1])
        while True:
            layer = gains.argmax(axis=1)
            gain = gains[pairs, layer]
            i, j = first[pairs, layer], second[pairs, layer]
            done.append((layer, i, j))
            total += gain
            better = total > best + floor
            best[better] = total[better]
            length[better] = len(done)
            # a pair that has no exchange left has a gain of -inf, and its total stays there
            if len(done) >= int(length.max()) + patience or not np.isfinite(total).any():
                break
            # without an exchange left the layer is the empty one in front: what is done there changes nothing
            leave[pairs, layer, i] = join[pairs, layer, j] = -np.inf
            one = forth[rows, layer, j] - forth[rows, layer, i]
            two = back[rows, layer - 1, j] - back[rows, layer - 1, i]
            leave[pairs, layer + 1] -= one
            join[pairs, layer + 1] += one
            leave[pairs, layer - 1] -= two
            join[pairs, layer - 1] += two
            near = layer[:, None] + around
            at = pairs[:, None]
            out, into = leave[at, near], join[at, near]
            first[at, near], second[at, near] = out.argmax(axis=2), into.argmax(axis=2)
            gains[at, near] = out.max(axis=2) + into.max(axis=2)
        seconds[0] += len(done) * (3e-5 + rows.size * side.shape[2] * 2e-8)
        layers, ones, twos = (np.array(part) for part in zip(*done, strict=True))
        step, pair = np.nonzero(np.arange(len(done))[:, None] < length)
        self.side[rows[pair], layers[step, pair], ones[step, pair]] = -1.0
        self.side[rows[pair], layers[step, pair], twos[step, pair]] = 1.0
        return length > 0
