"""State between calls: the last windows of each running placement, identical on every rank.

An engine calls its balancer on every rank with the same arrays, so each rank remembers the same. A call that goes on
from what another one saw or answered belongs to its stream; any other begins a new one.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Experts, Floats, Ints
from placement.online.balancer import replan, start
from placement.online.state import OnlineOptions, OnlineState
from rackplan.balancers.maps import keep_slots
from rackplan.balancers.settings import Settings
from rackplan.balancers.stored import Stored

_MOST_STREAMS = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Asked:
    """A call of a balancer: rows of experts, which are layers or layers of nodes.

    Attributes
    ----------
    loads:
        float64 ``[rows, experts]``: tokens of the last window; a row of zeros is not known.
    slots, ranks:
        Slots of a row, and the ranks that have equally many of them.
    old:
        int32 ``[rows, slots]``, -1 where nothing lies; None where all is planned afresh.
    at_start:
        Whether the engine's own first placement lies there: then the answer depends on this call alone, and no budget
        limits the moves.
    groups, nodes:
        Groups of experts of the engine that shall each lie on one of its nodes; 1 and 1 where they mean nothing.
    stored:
        What is known beforehand of the same rows and ranks, or None.
    names:
        The expert that each of a row represents, int64 ``[rows, experts]``; None where it is that one.
    """

    loads: Floats
    slots: int
    ranks: int
    old: Experts | None
    at_start: bool
    groups: int = 1
    nodes: int = 1
    stored: Stored | None = None
    names: Ints | None = None

    @property
    def experts(self) -> int:
        """Experts of a row."""
        return int(self.loads.shape[1])

    @property
    def world(self) -> tuple[int, ...]:
        """Settings common to all models that an engine balances together, until ranks change."""
        return self.experts, self.slots, self.ranks


@dataclass(eq=False)
class Stream:
    """The calls for one placement: the state after the last call, its arguments and its result."""

    asked: Asked
    given: Settings
    state: OnlineState
    answer: Experts

    def goes_on(self, call: Asked, options: Settings) -> bool:
        """Whether a call continues the stream: every layer is as in the last result, or as before it.

        Engines drop answers for some layers, or for all: a check of their own, or a transfer that was cut short.
        """
        previous = self.asked
        if call.old is None or call.at_start:
            return False
        if call.loads.shape != previous.loads.shape or options != self.given:
            return False
        if not _same(call.names, previous.names):
            return False
        same = (call.old == self.answer).all(axis=1)
        if previous.old is not None:
            same |= (call.old == previous.old).all(axis=1)
        return bool(same.all())

    def repeats(self, call: Asked) -> bool:
        """Whether a continuing call repeats the last one."""
        return _same(call.loads, self.asked.loads) and _same(call.old, self.asked.old)


def _same(left: NDArray[Any] | None, right: NDArray[Any] | None) -> bool:
    if left is None or right is None:
        return left is right
    return np.array_equal(left, right)


_streams: list[Stream] = []
_lock = threading.Lock()


def next_placement(call: Asked, options: Settings) -> Experts:
    """Return the expert of each slot, int32 ``[rows, slots]``, after the moves that ``options`` allows.

    Raises
    ------
    InputError
        As :func:`placement.online.balancer.replan`.
    """
    with _lock:
        if _streams and _streams[0].asked.world != call.world:
            _streams.clear()  # a rank that joins remembers nothing, so the others must forget
        stream = next((candidate for candidate in _streams if candidate.goes_on(call, options)), None)
        if stream is not None and stream.repeats(call):
            return stream.answer.copy()
        state = _started(call, options) if stream is None else stream.state
        decision = replan(state, call.loads, call.old)
        # an engine's dry run, with loads of zero, teaches nothing
        next_state = decision.state if call.loads.any() else state
        if stream is not None:
            _streams.remove(stream)
        placed = decision.slot_expert
        if call.old is not None:
            placed = keep_slots(call.old, placed, call.ranks)
        _streams.insert(0, Stream(call, options, next_state, placed))
        del _streams[_MOST_STREAMS:]
        # engines show the warnings of others, and experts without a copy are no usual call
        _log.log(logging.WARNING if decision.restored else logging.DEBUG, "rackplan: %s", decision.why)
        return placed.copy()


def _started(call: Asked, options: Settings) -> OnlineState:
    rules = OnlineOptions(budget=options.max_moves, history=options.history, first_free=call.at_start)
    layers, experts = call.loads.shape
    size = call.slots // call.ranks
    loads, placed = (None, None) if call.stored is None else (call.stored.loads, call.stored.placed)
    return start(experts, size, call.ranks, layers=layers, stored=loads, static=placed, options=rules)
