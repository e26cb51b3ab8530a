"""Data that a balancer has before the first window: load recordings, and a plan made for them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from cost.experts.traces.open import open_counts
from cost.experts.traces.windows import collect_windows
from placement.arrays import Experts, Floats
from rackplan.balancers.settings import Settings
from topology.base.errors import InputError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Stored:
    """Stored loads used in every re-plan, and a placement made for them.

    Attributes
    ----------
    loads:
        float64 ``[scenarios, layers, experts]``; a layer of zeros is not known.
    placed:
        int32 ``[layers, slots]`` by rank, or None.
    ranks:
        Ranks of ``placed``.
    """

    loads: Floats
    placed: Experts | None = None
    ranks: int = 0

    @property
    def words(self) -> str:
        """The shape, for messages."""
        return f"{self.loads.shape[1]} layers with {self.loads.shape[2]} experts"


@cache
def read_stored(files: tuple[str, ...], plan: str) -> Stored | None:
    """Read the MoE layers of recordings and a plan; None without either.

    Raises
    ------
    InputError
        If a file cannot be read, or they are of different layers or experts.
    """
    entries = [_read_plan(plan)] if plan else []
    for file in files:
        tokens = collect_windows(open_counts(file)).tokens
        entries.append(Stored(tokens[:, tokens.any(axis=(0, 2))]))
    if not entries:
        return None
    names = [plan] * bool(plan) + list(files)
    for name, entry in zip(names, entries, strict=True):
        if entry.loads.shape[1:] != entries[0].loads.shape[1:]:
            raise InputError(
                f"{name}: has {entry.words}, but {names[0]} has {entries[0].words}: give recordings of one model."
            )
    return Stored(np.concatenate([entry.loads for entry in entries]), entries[0].placed, entries[0].ranks)


def stored_for(options: Settings, loads: Floats, slots: int, ranks: int) -> Stored | None:
    """Return the stored data for the layers of ``loads`` ``[layers, experts]``, or None if they do not match.

    Rows of ``loads`` without tokens may be dense layers, which recordings and plans leave out. Layers that are not
    those stored (a draft model's call has one or two), and a plan of other slots, are left out with a warning.

    Raises
    ------
    InputError
        If what is stored has another number of experts than the engine, or cannot be read.
    """
    stored = read_stored(options.scenarios, options.plan)
    if stored is None:
        return None
    layers, experts = loads.shape
    if stored.loads.shape[2] != experts:
        names = ", ".join((*[options.plan] * bool(options.plan), *options.scenarios))
        raise InputError(f"{names}: {stored.words}; the engine balances {experts} experts.")
    placed = stored.placed
    if placed is not None and (placed.shape[1], stored.ranks) != (slots, ranks):
        _warn_once(
            f"{options.plan} ignored: it has {placed.shape[1]} slots on {stored.ranks} ranks, but the engine has "
            f"{slots} on {ranks}"
        )
        placed = None
    if stored.loads.shape[1] == layers:
        return Stored(stored.loads, placed, ranks)
    rows = np.flatnonzero(loads.any(axis=1))
    if stored.loads.shape[1] != rows.size:
        _warn_once(
            f"stored loads ignored: they have {stored.loads.shape[1]} layers, but the engine balances {layers}"
        )
        return None
    wide = np.zeros((len(stored.loads), layers, experts))
    wide[:, rows] = stored.loads
    if placed is not None:
        filled = np.tile(np.arange(slots, dtype=np.int32) % experts, (layers, 1))
        filled[rows] = placed
        placed = filled
    return Stored(wide, placed, ranks)


def _read_plan(file: str) -> Stored:
    from placement.engines.mapping import mapping_of
    from placement.plans.reading import read_plan

    plan = read_plan(Path(file))
    mapping = mapping_of(plan)
    if plan.loads is None:  # no plan with experts is without: mapping_of would have refused it
        raise InputError(f"{file}: contains no loads.")
    placed = mapping.slot_expert.astype(np.int32)
    return Stored(plan.loads.tokens, placed, mapping.ranks)


@cache
def _warn_once(text: str) -> None:
    _log.warning("rackplan: %s", text)
