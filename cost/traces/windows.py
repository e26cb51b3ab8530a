"""The windows of a recording that hold tokens, merged into so many runs that a plan can take them as scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.traces.recording import Recording
from topology.errors import InputError

MOST_WINDOWS = 32
"""Scenarios of one recording: enough to see a day drift, and a placement for 32 takes seconds, not minutes."""

MOST_CELLS = 2**24
"""Numbers of all scenarios together, 128 MiB and a few copies: 1,129 scenarios of 58 layers with 256 experts."""


@dataclass(frozen=True, eq=False)
class Windows:
    """What a recording holds: ``tokens [runs, rows, experts]``, float64, with a name for each run.

    ``total`` windows were there, ``empty`` of them without a token and left out; ``notes`` say so.
    """

    tokens: NDArray[np.float64]
    names: tuple[str, ...]
    total: int
    empty: int
    notes: tuple[str, ...]

    @property
    def kept(self) -> int:
        """Windows that hold tokens."""
        return self.total - self.empty


def collect_windows(
    recording: Recording,
    most: int = MOST_WINDOWS,
    on_progress: Callable[[str, float], None] | None = None,
) -> Windows:
    """Read a recording twice, in pieces: which windows hold tokens, then their sums.

    More than ``most`` windows with tokens are merged into that many runs of consecutive ones, whose numbers of
    windows differ by one at most. ``on_progress(path, fraction)`` is called as the reading goes on.

    Raises
    ------
    InputError
        If an entry is no finite number from 0, no window holds a token, or there are too many scenarios.
    """
    if most < 1:
        raise InputError(f"--windows {most}: expected 1 or more.")
    filled = list(recording.filled)
    if not filled:
        for piece in _checked(recording, on_progress, 0.0):
            filled.extend(bool(table.any()) for table in piece)
    kept = np.flatnonzero(filled)
    if not kept.size:
        count = f"{len(filled):,} window{'s' * (len(filled) != 1)}"
        raise InputError(f"{recording.path}: no tokens in its {count}; record while requests are served.")
    runs = min(most, kept.size)
    if (cells := runs * recording.rows * recording.experts) > MOST_CELLS:
        fit = MOST_CELLS // (recording.rows * recording.experts)
        raise InputError(
            f"{recording.path}: {runs:,} scenarios of [{recording.rows}, {recording.experts}] are {cells:,} numbers, "
            f"too many to plan for; give --windows {fit} or fewer."
        )
    run_of = {int(window): i * runs // kept.size for i, window in enumerate(kept)}
    tokens = np.zeros((runs, recording.rows, recording.experts))
    window = 0
    with np.errstate(over="ignore"):
        for piece in _checked(recording, on_progress, 0.5):
            for table in piece:
                if window in run_of:
                    tokens[run_of[window]] += table
                window += 1
    if not np.isfinite(tokens).all():
        raise InputError(f"{recording.path}: the sum over its windows is too large for a count of tokens.")
    names = recording.names or tuple(str(i) for i in range(len(filled)))
    labels = []
    for run in range(runs):
        # run of the i-th: i * runs // kept, so a run begins at the smallest i that reaches it
        begin, end = (-(-edge * kept.size // runs) for edge in (run, run + 1))
        first, last = names[kept[begin]], names[kept[end - 1]]
        labels.append(first if first == last else f"{first} to {last}")
    return Windows(
        tokens, tuple(labels), len(filled), len(filled) - kept.size, _notes(len(filled), kept.size, runs)
    )


def _notes(total: int, kept: int, runs: int) -> tuple[str, ...]:
    notes = []
    if total > kept:
        notes.append(f"{total - kept:,} of {total:,} windows empty, dropped")
    if kept > runs:
        sizes = sorted({kept // runs, -(-kept // runs)})
        each = " or ".join(f"{size:,}" for size in sizes)
        what = "one scenario" if runs == 1 else f"{runs} scenarios of {each} consecutive ones"
        notes.append(f"{kept:,} windows merged into {what}")
    elif kept > 1:
        notes.append(f"{kept} windows, each a scenario")
    return tuple(notes)


def _checked(
    recording: Recording, on_progress: Callable[[str, float], None] | None, start: float
) -> Iterator[NDArray[np.float64]]:
    """Yield the pieces as float64, or say which entry is no count; progress goes from ``start`` by a half."""
    done = 0
    for piece in _readable(recording):
        values = _floats(recording, piece)
        bad = ~np.isfinite(values) | (values < 0)
        if bad.any():
            window, row, expert = (int(i) for i in np.argwhere(bad)[0])
            label = recording.names[done + window] if recording.names else f"scenario {done + window}"
            raise InputError(
                f"{recording.path}: {label}, row {row}, expert {expert}: {values[window, row, expert]} "
                "is not a count of tokens; give finite numbers that are not negative."
            )
        yield values
        done += len(values)
        if on_progress and recording.windows:
            on_progress(recording.path, start + done / recording.windows / 2)


def _readable(recording: Recording) -> Iterator[NDArray[Any]]:
    try:
        yield from recording.pieces()
    except OSError as error:
        raise InputError(f"{recording.path}: cannot be read ({error.strerror or error}).") from error


def _floats(recording: Recording, piece: NDArray[Any]) -> NDArray[np.float64]:
    if piece.shape[1:] != (recording.rows, recording.experts):
        raise InputError(f"{recording.path}: changed while it was read.")
    with np.errstate(over="ignore"):  # a wider float that does not fit becomes inf, and is refused as that
        return piece.astype(np.float64, copy=False)
