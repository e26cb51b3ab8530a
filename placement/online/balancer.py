"""Online re-plans with few moves, for recent windows and stored workloads together.

A pure function of what is known and what is placed: every rank of an engine that calls it gets the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from placement.arrays import Experts, Index, Ints
from placement.experts.problem import Problem
from placement.experts.soft_max import along_prices
from placement.experts.solve import solve
from placement.migrate.front import TaskFront, along_hulls, paying
from placement.migrate.start import fill, relabel, restore
from placement.migrate.task import MigrationTask
from placement.online.memory import Memory
from placement.online.state import (
    OnlineOptions,
    OnlineState,
    Promise,
    checked_loads,
    checked_placement,
    checked_slots,
)
from placement.online.votes import relative, votes, workloads
from topology.base.errors import InputError, input_name

_STEPS = 300
"""Of a search: longer ones gain less than .001 of balancedness on windows to come."""


@dataclass(frozen=True, eq=False)
class Decision:
    """The next placement.

    Attributes
    ----------
    slot_expert:
        int32 ``[layers, slots]``; copies that stay keep their slot.
    moves:
        Copies that a GPU must hold and did not hold before.
    restored:
        Those of them that no placement can do without: of experts without a copy, and into empty slots. The budget
        limits the rest.
    allowed:
        The budget of this re-plan in moves; None: all that pays.
    why:
        One line for a log.
    state:
        The state to go on with.
    """

    slot_expert: Experts
    moves: int
    restored: int
    allowed: int | None
    why: str
    state: OnlineState


def start(
    experts: int,
    slots_per_gpu: int | ArrayLike,
    gpus: int | None = None,
    *,
    layers: int | None = None,
    stored: ArrayLike | None = None,
    static: ArrayLike | None = None,
    options: OnlineOptions | None = None,
) -> OnlineState:
    """Return the state of a balancer that has seen no window yet.

    Parameters
    ----------
    experts:
        Logical experts of a layer.
    slots_per_gpu:
        Of each GPU, ``[gpus]``, or one number for each of ``gpus``.
    layers:
        Layers with experts; None: as ``stored`` or the first window has.
    stored:
        ``[scenarios, layers, experts]`` tokens of known workloads, on any scale; alike ones share a vote. A row
        that is all 0 is unknown.
    static:
        ``[layers, slots]``, the robust plan over ``stored`` where somebody has made one; None: made in some seconds
        when it is asked for, at the first re-plan if at all.

    Raises
    ------
    InputError
        If shapes do not agree, there are fewer slots than experts, or a load is negative or not finite.
    """
    if isinstance(slots_per_gpu, (int, np.integer)):
        if gpus is None or gpus < 1:
            raise InputError(
                f"give the number of GPUs with {slots_per_gpu} slots each.", field="gpus", value=gpus
            )
        slots_per_gpu = np.full(gpus, slots_per_gpu)
    slots = checked_slots(slots_per_gpu)
    if gpus is not None and gpus != slots.size:
        raise InputError(f"`slots_per_gpu` has {slots.size} GPUs and {input_name('gpus')} is {gpus}.")
    if experts < 1 or int(slots.sum()) < experts:
        raise InputError(f"{int(slots.sum())} slots for {experts} experts: each expert needs one.")
    options = options or OnlineOptions()
    if stored is None or not len(np.asarray(stored)):
        none = np.zeros((layers or 0, experts))
        return OnlineState(options, slots, none[None][:0], none, Memory.empty(len(none), experts))
    known = workloads(relative(checked_loads(stored, "stored", (0, layers or 0, experts))))
    empty = np.zeros((known.shape[1], experts))
    state = OnlineState(options, slots, known, empty, Memory.empty(len(empty), experts))
    return state if static is None else replace(state, static=checked_placement(static, state, "static"))


def replan(state: OnlineState, window: ArrayLike, old: ArrayLike | None = None) -> Decision:
    """Return what to place after ``window`` ``[layers, experts]``, where ``old`` ``[layers, slots]`` is placed.

    Parameters
    ----------
    window:
        Tokens by expert since the last window, on any scale. A layer without tokens is left as it is.
    old:
        May hold two copies of an expert on a GPU, and -1 where a slot is empty. None: the last answer; before the
        first one, nothing, so that a plan is made and no moves are counted.

    Raises
    ------
    InputError
        If shapes do not agree with the state, a load is negative or not finite, or an expert does not exist.
    """
    return plan(state.seen(window), old)


def plan(state: OnlineState, old: ArrayLike | None = None) -> Decision:
    """Return what to place from now on, by the windows that ``state`` has seen; ``old`` as of :func:`replan`.

    Raises
    ------
    InputError
        As of :func:`replan`, or if no window has been seen.
    """
    if not state.windows:
        raise InputError("no window has been observed yet, so there is nothing to plan for.")
    placed = state.placed if old is None else checked_placement(old, state, "old")
    if placed is None:
        return _decision(state, None, _anew(state), (0, 0), "first plan, nothing placed yet")
    budget = state.options.budget
    allowed = None if budget is None else int(budget * placed.size + 1e-9)
    forced, intact = forced_moves(placed, state.experts), placed.copy()
    for layer in np.flatnonzero(forced):  # a second copy on a GPU stays unless its slot is needed
        fill(state.window, int(layer), intact[layer])
    restored = int(forced.sum())
    layers = np.flatnonzero(state.last.max(axis=1) > 0)
    if allowed == 0 or not layers.size:
        return _decision(state, placed, intact, (restored, allowed), "the budget is 0" * (allowed == 0))
    if state.placed is None and state.options.first_free:
        allowed = None
    front = _front(state, layers, placed[layers], intact[layers])
    price, trust = state.options.price / layers.size, state.record.trust
    proposed = _paying(front, price, allowed)
    chosen = _paying(front, price / trust if trust else math.inf, allowed)
    promise = front.total([0] * layers.size).objective - front.total(proposed).objective
    carried, proposal = intact.copy(), intact.copy()
    carried[layers], proposal[layers] = front.placement(chosen), front.placement(proposed)
    if promise > 0:
        state = replace(state, promise=Promise(intact, proposal, promise * layers.size))
    return _decision(state, placed, carried, (restored, allowed), "")


def _front(state: OnlineState, layers: Index, placed: Experts, restored: Experts) -> TaskFront:
    """Return placements of some layers from ``restored`` on, by moves from ``placed`` and by the votes.

    A search starts from what is placed, and where a plan made for the last window is better, from that one too.
    """
    loads, weights = votes(state.last, state.memory, state.stored)
    problem = Problem(loads, state.slots_per_gpu, votes=weights, grouped=False).rows(layers)
    task = MigrationTask(problem, placed)
    front = TaskFront(task, restored)

    def search(which: Index, start: Experts) -> None:
        part, price = task.rows(which), min(1.0, state.options.price)
        previous = start
        for slot_expert in along_prices(part.problem, start, part.old, price=price, steps=_STEPS):
            changed = np.flatnonzero((slot_expert != previous).any(axis=1))
            if changed.size:
                front.add(which[changed], slot_expert[changed])
            previous = slot_expert

    rows = np.arange(layers.size)
    begin = restore(task)
    front.add(rows, begin)
    search(rows, begin)
    window = state.window.rows(layers)
    fresh = relabel(MigrationTask(window, placed), solve(window, exact=False).assignment.slot_expert)
    front.add(rows, fresh)
    ahead = np.flatnonzero((front.best == fresh).all(axis=1) & (fresh != restored).any(axis=1))
    if ahead.size:
        search(ahead, fresh[ahead])
    return front


def _paying(front: TaskFront, price: float, allowed: int | None) -> list[int]:
    """Return the point of each layer up to which moves are worth ``price``, within ``allowed`` besides the fewest."""
    chosen = paying(front, price)
    if allowed is not None and front.total(chosen).moves > front.fewest + allowed:
        return along_hulls(front, allowed)
    return chosen


def _anew(state: OnlineState) -> Experts:
    """Return a placement made without regard to any: the static plan, or one for the last window."""
    if state.static is not None:
        return state.static.copy()
    problem, loads = state.window, state.stored
    if len(loads):  # a plan for all; layers that some do not know are as in the others
        known = loads.max(axis=2, keepdims=True) > 0
        mean = loads.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        mean[~known.any(axis=0)[:, 0]] = 1.0
        problem = Problem(np.where(known, loads, mean), state.slots_per_gpu)
    return solve(problem, exact=False).assignment.slot_expert


def forced_moves(placed: Experts, experts: int) -> Ints:
    """Count the experts without a copy of ``placed`` ``[layers, slots]``, or its empty slots where those are more."""
    ordered = np.sort(placed, axis=1)
    distinct = (np.diff(ordered, axis=1, prepend=-1) > 0).sum(axis=1)
    forced: Ints = np.maximum(experts - distinct, (placed < 0).sum(axis=1)).astype(np.int64)
    return forced


def restored_words(copies: int) -> str:
    """Return what was restored, in words."""
    return f"copies restored in addition to the budget: {copies:,} (experts without a copy, empty slots)"


def _decision(
    state: OnlineState, old: Experts | None, new: Experts, limits: tuple[int, int | None], why: str
) -> Decision:
    """Describe a re-plan; ``limits``: the copies that had to be restored, and the moves allowed besides."""
    restored, allowed = limits
    moves = 0 if old is None else int(MigrationTask(state.window, old).moves(new).sum())
    chosen, limit = moves - restored, "no limit" if allowed is None else f"{allowed} allowed"
    why = why or (f"{chosen} moves, {limit}" if chosen else "no move is worth its cost")
    if restored:
        why = f"{restored_words(restored)}; {why}"
    return Decision(
        np.ascontiguousarray(new, dtype=np.int32),
        moves,
        restored,
        allowed,
        why,
        replace(state, placed=new.copy()),
    )
