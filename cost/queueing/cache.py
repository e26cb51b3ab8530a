"""What an engine keeps of earlier prompts: in HBM beside running requests, and in slower memories below it."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class KvTier:
    """A memory below HBM as one engine sees it.

    Attributes
    ----------
    name:
        ``host``, ``ssd`` or ``pool``.
    tokens:
        What it holds: an engine's own part, or of a ``shared`` one all.
    seconds_per_token, latency_s:
        Of a load over the engine's links, alone.
    shared:
        Whether all engines find what one of them left there.
    """

    name: str
    tokens: float
    seconds_per_token: float
    latency_s: float
    shared: bool = False


@dataclass(eq=False)
class Shelf:
    """Segments that nobody uses, the one longest unused first, with the tokens of each that are still there."""

    room: float
    shared: bool = False
    held: OrderedDict[int, int] = field(default_factory=OrderedDict)
    tokens: int = 0

    def put(self, segment: int, tokens: int, size: int) -> None:
        """Add the end of a segment of ``size`` tokens, or all of it; it is the one last used."""
        there = self.held.pop(segment, 0)
        self.held[segment] = min(size, there + tokens)
        self.tokens += self.held[segment] - there

    def take(self, segment: int) -> None:
        """Remove a segment; of a ``shared`` shelf others may want it, so there it is the one last used."""
        if not self.shared:
            self.tokens -= self.held.pop(segment, 0)
        elif segment in self.held:
            self.held.move_to_end(segment)

    def shed(self, room: float, block: int) -> list[tuple[int, int]]:
        """Return what does not fit, removed: whole blocks from the end of the segment that is longest unused."""
        shed = []
        while self.tokens > room and self.held:
            segment, tokens = next(iter(self.held.items()))
            over = min(tokens, math.ceil((self.tokens - room) / block) * block)
            if over == tokens:
                del self.held[segment]
            else:
                self.held[segment] = tokens - over
            self.tokens -= over
            shed.append((segment, over))
        return shed


class Match(NamedTuple):
    """Tokens at the start of a prompt that others use, that wait in HBM and in each tier, and its whole segments."""

    used: int
    waiting: tuple[int, ...]
    whole: int

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.used + sum(self.waiting)


@dataclass(eq=False)
class PrefixCache:
    """The cache of one engine, in segments: runs of tokens that prompts share as a whole.

    What running requests use is pinned, once however many share it. What nobody uses waits in HBM in the order of
    its last use, then in each tier in turn: a segment that has no more room goes one tier down, its end first, and
    off the last one. A token is in one place only (*exclusive*, as of engines that write back), so tiers add up, and
    all of them together are one list by last use.

    Attributes
    ----------
    sizes:
        Tokens of each segment.
    block:
        Tokens that move together.
    tiers, shelves:
        Below HBM, the fastest first, with what is there.
    users:
        Requests that use each pinned segment.
    link_free_s:
        When the links of an attention group to a tier are free.
    """

    sizes: Mapping[int, int]
    block: int
    tiers: Sequence[KvTier] = ()
    shelves: Sequence[Shelf] = ()
    hbm: Shelf = field(default_factory=lambda: Shelf(0.0))
    users: dict[int, int] = field(default_factory=dict)
    link_free_s: dict[tuple[int, int], float] = field(default_factory=dict)

    def tokens(self, segments: Sequence[int]) -> int:
        """Return the tokens of segments."""
        return sum(map(self.sizes.__getitem__, segments))

    def matches(self, segments: Sequence[int], limit: int) -> Match:
        """Return what is there of the start of a prompt, at most ``limit`` tokens: the last is always computed."""
        waiting = [0] * (1 + len(self.shelves))
        used = whole = total = 0
        for segment in segments:
            size = there = self.sizes[segment]
            if segment in self.users:
                used += min(size, limit - total)
                total += min(size, limit - total)
            else:
                there = 0
                for place, shelf in enumerate((self.hbm, *self.shelves)):
                    part = min(shelf.held.get(segment, 0), size - there, limit - total)
                    waiting[place] += part
                    total += part
                    there += part
            if there < size or total >= limit:
                break
            whole += 1
        return Match(used, tuple(waiting), whole)

    def pin(self, segments: Sequence[int], whole: int) -> None:
        """Let a request use its first ``whole`` segments; what it finds of the next one moves in with it."""
        for segment in segments[:whole]:
            self._use(segment)
        for segment in segments[whole : whole + 1]:
            if segment not in self.users:
                self._take(segment)

    def share(self, segments: Sequence[int]) -> int:
        """Let others find segments that a request has computed; return tokens that others hold already."""
        twice = self.tokens([segment for segment in segments if segment in self.users])
        for segment in segments:
            self._use(segment)
        return twice

    def _use(self, segment: int) -> None:
        if segment not in self.users:
            self._take(segment)
        self.users[segment] = self.users.get(segment, 0) + 1

    def _take(self, segment: int) -> None:
        for shelf in (self.hbm, *self.shelves):
            shelf.take(segment)

    def release(self, segments: Sequence[int], computed: Sequence[int] = ()) -> int:
        """Return tokens that nobody uses any more: these and what was ``computed`` wait in HBM, ends to go first."""
        freed = 0
        for segment in reversed(computed):
            if segment not in self.users:
                self._take(segment)
                self.hbm.put(segment, self.sizes[segment], self.sizes[segment])
        for segment in reversed(segments):
            self.users[segment] -= 1
            if not self.users[segment]:
                del self.users[segment]
                freed += self.sizes[segment]
                self.hbm.put(segment, self.sizes[segment], self.sizes[segment])
        return freed

    def trim(self, free: float) -> None:
        """Move down what HBM has no room for, and so on."""
        shed = self.hbm.shed(free, self.block)
        for shelf in self.shelves:
            for segment, tokens in shed:
                shelf.put(segment, tokens, self.sizes[segment])
            shed = shelf.shed(shelf.room, self.block)

    def loaded_s(self, waiting: Sequence[int], group: int, time_s: float) -> float:
        """Return when what waits in the tiers is in HBM of a group, whose loads of a tier follow each other."""
        ready_s = time_s
        for number, (tier, tokens) in enumerate(zip(self.tiers, waiting[1:], strict=True)):
            if tokens:
                free_s = max(time_s, self.link_free_s.get((number, group), 0.0))
                self.link_free_s[number, group] = free_s + tokens * tier.seconds_per_token
                ready_s = max(ready_s, self.link_free_s[number, group] + tier.latency_s)
        return ready_s
