"""Experts into domains: mean-field starts, the best annealed by exchanges, loads brought under their limits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.arrays import Floats, Index, Ints
from placement.traffic.mean_field import mean_field, melting_heat
from placement.traffic.tokens import Partition

HARD = 1e4
"""Price of a choice above a limit, in parts reached, where no gain may buy it."""
_DRAWS = 1 << 18  # random numbers drawn once, read from any place on
_ROWS = 8  # experts whose exchanges with all others are looked at together
_MIN_PART = 1e-6  # parts reached: below it rounding could go on for ever
_START_TOKENS = 8192  # a start needs fewer than a search: what it finds is coarse
_STARTS_WORK = 4e8  # tokens x k x parts x steps of all starts together
_STEPS, _INNER, _MOST_STARTS = 60, 5, 6
_HEAT = 0.1, 0.005  # of the tokens of an average expert
_EXCHANGES = 2000
_WAYS = (1.0, 1.0), (10.0, 0.3), (5.0, 3.0), (1.0, 1.0)  # heat, and price of a choice above a limit
_MULTISTART_CHOICES = 20_000  # choices that may be searched from several starts in the time of one


def partition(
    task: Partition, rng: np.random.Generator, starts: Sequence[Ints] = (), *, share: float = 1.0
) -> Ints:
    """Return a part for each expert, ``[experts]``: the best found, from mean-field starts and from ``starts``.

    ``share`` scales the number of starts and of exchanges; 1 takes about a second for 256 experts and 20,000 tokens.
    """
    if task.parts < 2:
        return task.in_order()
    start_tokens = int(_STARTS_WORK / (task.tokens.k * task.parts * _STEPS))
    few = task.sampled(min(_START_TOKENS, start_tokens + 1))
    cells = len(few.tokens) * few.tokens.k * task.parts * _STEPS
    melting = melting_heat(few)
    number = max(1, int(share * min(_STARTS_WORK / cells, _MOST_STARTS)))
    drawn = [mean_field(few, rng, steps=_STEPS, inner=_INNER, melting=melting) for _ in range(number)]
    begun = [task.in_order(), *starts, *drawn]
    begun.sort(key=lambda part: task.reached(part) + task.excess(part))
    tries = int(
        np.clip(_MULTISTART_CHOICES / task.tokens.choices.size, 1, len(_WAYS))
    )  # few tokens are soon counted
    ends = [
        _annealed(task, part, rng, *way, steps=int(_EXCHANGES * share))
        for part, way in zip(begun, _WAYS[:tries], strict=False)
    ]
    return min(ends, key=lambda part: (task.excess(part), task.reached(part)))


def _annealed(
    task: Partition, part: Ints, rng: np.random.Generator, heat: float, price: float, *, steps: int
) -> Ints:
    search = Exchange(task, part)
    unit = task.tokens.load.sum() / task.tokens.experts
    search.anneal(rng, heat=(_HEAT[0] * heat * unit, _HEAT[1] * unit), steps=steps, price=price)
    for higher in (4 * price, HARD):
        search.descend(price=higher, most=_EXCHANGES)
    return search.best[1][:-1].astype(np.int64)


class Exchange:
    """Experts in parts, and what moving any of them changes.

    ``alone[e, d]`` counts the tokens of expert e whose other experts are not in part d: with e there they reach one
    part more. ``first[e, f]`` counts the tokens of both in which e is the only one in its part. Exchanging e (in a)
    and f (in b) changes the parts reached by
    ``alone[e, b] - alone[e, a] + alone[f, a] - alone[f, b] + first[e, f] + first[f, e]``, exactly.
    """

    def __init__(self, task: Partition, part: Ints) -> None:
        self.task = task
        tokens = task.tokens
        self.choices = tokens.choices
        self.experts, self.parts, self.k = tokens.experts, task.parts, tokens.k
        self.part = np.append(part, task.parts).astype(np.int32)  # no choice lies in a part of its own
        ends, token = tokens.by_expert.indptr, tokens.by_expert.indices
        self.tokens_of = [token[ends[e] : ends[e + 1]] for e in range(self.experts)]
        self.has = np.zeros((self.experts, len(tokens)), dtype=bool)
        for expert, mine in enumerate(self.tokens_of):
            self.has[expert, mine] = True
        self.part_load = task.part_load(part)
        self._count()
        self.best = (self.rank(), self.part.copy())

    def _count(self) -> None:
        tokens, task = self.task.tokens, self.task
        rows = np.arange(len(tokens))
        where = self.part[self.choices]
        key = where.astype(np.int64) * len(tokens) + rows[:, None]
        count = np.bincount(key.ravel(), minlength=(self.parts + 1) * len(tokens))
        self.count = count.reshape(self.parts + 1, -1).astype(np.int16)
        single = (self.count[where, rows[:, None]] == 1) & tokens.chosen
        self.alone = np.zeros((self.experts + 1, self.parts))
        self.alone[:-1] = tokens.by_expert @ (self.count[: self.parts].T == 0).astype(np.float64)
        only = np.bincount(self.choices[single], minlength=self.experts)
        self.alone[np.arange(self.experts), self.part[:-1]] = only
        lonely = tokens.table.copy()
        lonely.data = single[tokens.chosen].astype(np.float64)
        self.first = np.zeros((self.experts + 1, self.experts + 1))
        self.first[:-1, :-1] = (lonely.T.tocsr() @ tokens.table).toarray()
        np.fill_diagonal(self.first, 0.0)
        self.reached = int((self.count[: task.parts] > 0).sum())

    def changes(self, rows: Index, price: float) -> Floats:
        """Change of parts reached, plus ``price`` times that of the load above limits, ``[rows, experts]``.

        Infinite within a part.
        """
        part = self.part[:-1]
        mine = part[rows]
        alone = self.alone[:-1]
        change = alone[rows][:, part] - alone[rows, mine][:, None]
        change += alone[:, mine].T - alone[np.arange(self.experts), part]
        change += self.first[rows, :-1] + self.first[:-1, rows].T
        for load, busy in zip(self.task.load, self.part_load, strict=True):
            over = busy - self.task.limit
            more = load[rows][:, None] - load
            here, there = over[mine][:, None], over[part]
            change += price * (
                np.maximum(here - more, 0.0)
                + np.maximum(there + more, 0.0)
                - np.maximum(here, 0.0)
                - np.maximum(there, 0.0)
            )
        change[mine[:, None] == part] = np.inf
        return change

    def exchange(self, one: int, two: int) -> None:
        """Let two experts change their parts."""
        a, b = int(self.part[one]), int(self.part[two])
        self._both(one, two, a, b)
        mine = self.tokens_of[one][~self.has[two][self.tokens_of[one]]]
        other = self.tokens_of[two][~self.has[one][self.tokens_of[two]]]
        n, m = mine.size, other.size
        token = np.concatenate((mine, other))
        choices = self.choices[token]
        where = self.part[choices]
        in_a, in_b = self.count[a][token], self.count[b][token]
        left = np.concatenate((in_a[:n], in_b[n:]))  # experts of the token in the part that one leaves
        joined = np.concatenate((in_b[:n], in_a[n:]))
        mover = np.repeat(np.array([one, two], dtype=np.int32), [n, m])[:, None]
        source = np.repeat(np.array([a, b], dtype=np.int32), [n, m])[:, None]
        others = choices != mover
        now_alone = (left == 2)[:, None] & (where == source) & others
        no_more = (joined == 1)[:, None] & (where == a + b - source)
        opened = (((left == 1)[:, None] & others) | now_alone).astype(np.int8)
        closed = (((joined == 0)[:, None] & others) | no_more).astype(np.int8)
        flat, size = choices.ravel(), self.experts + 1
        to_a = np.concatenate((opened[:n], -closed[n:])).ravel()
        to_b = np.concatenate((-closed[:n], opened[n:])).ravel()
        self.alone[:, a] += np.bincount(flat, to_a, minlength=size)
        self.alone[:, b] += np.bincount(flat, to_b, minlength=size)
        turned = (joined == 0).astype(np.int8) - (left == 1)
        self.first[one] += np.bincount(choices[:n].ravel(), np.repeat(turned[:n], self.k), minlength=size)
        self.first[two] += np.bincount(choices[n:].ravel(), np.repeat(turned[n:], self.k), minlength=size)
        row, at = np.nonzero(now_alone)
        row2, at2 = np.nonzero(no_more)
        row, at = np.concatenate((row, row2)), np.concatenate((at, at2))
        key = choices[row, at][:, None] * size + choices[row]
        sign = np.repeat([1.0, -1.0], [row.size - row2.size, row2.size])
        np.add.at(self.first.reshape(-1), key.ravel(), np.repeat(sign, self.k))
        np.fill_diagonal(self.first, 0.0)
        self.count[a][mine] -= 1
        self.count[b][mine] += 1
        self.count[b][other] -= 1
        self.count[a][other] += 1
        self.part[one], self.part[two] = b, a
        more = self.task.load[:, one] - self.task.load[:, two]
        self.part_load[:, a] -= more
        self.part_load[:, b] += more
        self.reached += int((joined == 0).sum()) - int((left == 1).sum())

    def _both(self, one: int, two: int, a: int, b: int) -> None:
        """Update what the two experts' own tokens in common say of them; nothing else changes there."""
        token = self.tokens_of[one][self.has[two][self.tokens_of[one]]]
        if token.size == 0:
            return
        in_a, in_b = self.count[a][token] == 1, self.count[b][token] == 1
        only_a, only_b = in_a.sum(), in_b.sum()
        self.alone[one, a] -= only_a
        self.alone[two, a] += only_a
        self.alone[one, b] += only_b
        self.alone[two, b] -= only_b
        turned = in_b.astype(np.int8) - in_a
        change = np.bincount(
            self.choices[token].ravel(), np.repeat(turned, self.k), minlength=self.experts + 1
        )
        self.first[one] += change
        self.first[two] -= change

    def rank(self) -> tuple[float, int]:
        """What is made least: load above limits (up to rounding), then parts reached."""
        excess = float(np.maximum(self.part_load - self.task.limit, 0.0).sum())
        return (excess if excess > _MIN_PART else 0.0), self.reached

    def keep(self) -> None:
        """Remember where experts are, if that is the best so far."""
        rank = self.rank()
        if rank < self.best[0]:
            self.best = (rank, self.part.copy())

    def anneal(
        self, rng: np.random.Generator, *, heat: tuple[float, float], steps: int, price: float
    ) -> None:
        """Draw ``steps`` exchanges by their Boltzmann weights while it cools from the first heat to the second.

        Each step looks at some experts with all others, and at staying as it is; ``heat`` is in parts reached. The
        best on the way is kept.
        """
        draws = rng.gumbel(size=_DRAWS)
        cells = _ROWS * self.experts
        for now in np.geomspace(*heat, steps):
            rows = rng.integers(0, self.experts, _ROWS)
            start = int(rng.integers(0, _DRAWS - cells))
            rank = draws[start : start + cells].reshape(_ROWS, -1) - self.changes(rows, price) / now
            best = int(rank.argmax())
            if rank.flat[best] > draws[start - 1]:
                self.exchange(int(rows[best // self.experts]), best % self.experts)
                self.keep()

    def descend(self, *, price: float, most: int) -> int:
        """Exchange the best pair until none helps or ``most`` are done; return how many."""
        rows = np.arange(self.experts)
        for done in range(most):
            change = self.changes(rows, price)
            best = int(change.argmin())
            if not change.flat[best] < -_MIN_PART:
                self.keep()
                return done
            self.exchange(best // self.experts, best % self.experts)
        self.keep()
        return most
