"""Stored scenarios: recordings of loads that a balancer plans for beside the windows that it sees."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

import numpy as np

from cost.traces.open import open_recording
from cost.traces.windows import collect_windows
from placement.arrays import Floats
from topology.errors import InputError

_log = logging.getLogger(__name__)


@cache
def read_scenarios(files: tuple[str, ...]) -> Floats:
    """Read recordings into float64 ``[scenarios, MoE layers, experts]``; rows that no scenario uses are left out.

    Raises
    ------
    InputError
        If a file cannot be read, or they are of different layers or experts.
    """
    tables: list[Floats] = []
    for file in files:
        tokens = collect_windows(open_recording(file)).tokens
        tables.append(tokens[:, tokens.any(axis=(0, 2))])
        if tables[-1].shape[1:] != tables[0].shape[1:]:
            raise InputError(
                f"{file}: has {_shape(tables[-1])}, and {files[0]} {_shape(tables[0])}: give recordings of one model."
            )
    found = np.concatenate(tables)
    found.setflags(write=False)
    return found


def scenarios_for(files: Sequence[str], loads: Floats) -> Floats | None:
    """Return the stored scenarios for the layers that an engine asks for, or None where they are of others.

    Rows of ``loads`` ``[layers, experts]`` without tokens may be dense layers, whose scenarios are all zero.
    Scenarios of other layers (a draft model's call has a layer or two) are left out with a warning.

    Raises
    ------
    InputError
        If the files have another number of experts than the engine, or cannot be read.
    """
    if not files:
        return None
    layers, experts = loads.shape
    found = read_scenarios(tuple(files))
    if found.shape[2] != experts:
        raise InputError(
            f"RACKPLAN_SCENARIOS {', '.join(files)}: {_shape(found)}; the engine balances {experts} experts."
        )
    rows = np.flatnonzero(loads.any(axis=1))
    if found.shape[1] == layers:
        return found
    if found.shape[1] == rows.size:
        wide = np.zeros((len(found), layers, experts))
        wide[:, rows] = found
        return wide
    _warn_once(f"scenarios of {found.shape[1]} layers left out where the engine balances {layers}")
    return None


@cache
def _warn_once(text: str) -> None:
    _log.warning("rackplan: %s", text)


def _shape(table: Floats) -> str:
    return f"{table.shape[1]} layers with {table.shape[2]} experts"
