"""From a recording to scenarios of a plan: windows with tokens merged into runs, rows against the model's layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import TokenCounts, Wanted, model_rows
from topology.base.errors import InputError
from topology.base.units import plural

MAX_WINDOWS = 32
"""Scenarios of one recording: enough to see a day drift, and a placement for 32 takes seconds, not minutes."""

_SHARE_ROUNDING = 1e-6
"""Part of a share by which rounded loads may be above what is possible."""
_UNEVEN_RATIO = 1.5
"""Times the tokens of another layer from which on it is said."""
MAX_CELLS = 15_000_000
"""Scenarios times MoE layers times experts: 1,010 scenarios of 58 layers with 256 experts."""


@dataclass(frozen=True, eq=False)
class Windows:
    """What a recording holds: ``tokens [runs, rows, experts]``, float64, with a name for each run.

    ``kept`` windows hold tokens, others were left out; ``notes`` say so.
    """

    tokens: NDArray[np.float64]
    names: tuple[str, ...]
    kept: int
    notes: tuple[str, ...]


def collect_windows(
    recording: TokenCounts,
    limit: int = MAX_WINDOWS,
    on_progress: Callable[[str, float], None] | None = None,
) -> Windows:
    """Read a recording twice, in pieces: which windows hold tokens, then their sums.

    More than ``limit`` windows with tokens are merged into that many runs of consecutive ones, whose numbers of
    windows differ by one at most. ``on_progress(path, fraction)`` is called as the reading goes on.

    Raises
    ------
    InputError
        If an entry is no finite number from 0, no window holds a token, or there are too many scenarios.
    """
    if limit < 1:
        raise InputError(f"`windows` {limit}: expected 1 or more.")
    tables = (table for piece in _checked(recording, on_progress, 0.0) for table in piece)
    used_windows = [window for window, table in enumerate(tables) if table.any()]
    if not used_windows:
        count = plural(recording.windows, "window")
        raise InputError(f"{recording.path}: no tokens in its {count}; record while requests are served.")
    runs = min(limit, len(used_windows))
    if (cells := runs * recording.rows * recording.experts) > MAX_CELLS:
        fit = MAX_CELLS // (recording.rows * recording.experts)
        raise InputError(
            f"{recording.path}: {runs:,} scenarios of [{recording.rows}, {recording.experts}] are {cells:,} numbers, "
            f"too many to plan for; give `windows` {fit} or fewer."
        )
    run_of = {window: i * runs // len(used_windows) for i, window in enumerate(used_windows)}
    tokens = np.zeros((runs, recording.rows, recording.experts))
    tables = (table for piece in _checked(recording, on_progress, 0.5) for table in piece)
    with np.errstate(over="ignore"):
        for window, table in enumerate(tables):
            if window in run_of:
                tokens[run_of[window]] += table
    if not np.isfinite(tokens).all():
        raise InputError(f"{recording.path}: the sum over its windows is too large for a count of tokens.")
    spans: list[list[str]] = [[] for _ in range(runs)]
    for window, run in run_of.items():
        spans[run].append(recording.names[window] if recording.names else str(window))
    labels = tuple(span[0] if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in spans)
    notes = (*_notes(recording.windows, len(used_windows), runs), *_uneven_layers(recording, tokens))
    return Windows(tokens, labels, len(used_windows), notes)


def _notes(total: int, used: int, runs: int) -> Iterator[str]:
    if total > used:
        yield f"{total - used:,} of {total:,} windows dropped (empty)"
    if used > runs:
        sizes = " or ".join(f"{size:,}" for size in sorted({used // runs, -(-used // runs)}))
        scenarios = "one scenario" if runs == 1 else f"{runs} scenarios of {sizes} consecutive ones"
        yield f"{used:,} windows merged into {scenarios}"
    elif used > 1:
        yield f"{used} windows, each a scenario"


def _uneven_layers(recording: TokenCounts, tokens: NDArray[np.float64]) -> Iterator[str]:
    """Yield a note where a layer has far more tokens than another: each token passes through all of them."""
    sums = (tokens / tokens.max()).sum(axis=(0, 2))
    named = dict(zip(recording.layer_ids or range(recording.rows), sums.tolist(), strict=True))
    named = {layer: total for layer, total in named.items() if total}
    busiest, idlest = max(named, key=named.__getitem__), min(named, key=named.__getitem__)
    if named[busiest] >= _UNEVEN_RATIO * named[idlest]:
        word = "layer" if recording.layer_ids else "row"
        yield (
            f"{word} {busiest} has {named[busiest] / named[idlest]:.1f}x the tokens of {word} {idlest}; a token "
            "passes through every layer, so some were not recorded"
        )


def _checked(
    recording: TokenCounts, on_progress: Callable[[str, float], None] | None, start: float
) -> Iterator[NDArray[np.float64]]:
    """Yield the pieces as float64, or say which entry is no count; progress goes from ``start`` by a half."""
    done = 0
    try:
        for piece in recording.pieces():
            if piece.shape[1:] != (recording.rows, recording.experts):
                raise InputError(f"{recording.path}: changed while it was read.")
            with np.errstate(over="ignore"):  # a wider float that does not fit becomes inf, refused as that
                values = piece.astype(np.float64, copy=False)
            invalid = ~np.isfinite(values) | (values < 0)
            if invalid.any():
                window, row, expert = (int(i) for i in np.argwhere(invalid)[0])
                label = recording.names[done + window] if recording.names else f"scenario {done + window}"
                raise InputError(
                    f"{recording.path}: {label}, row {row}, expert {expert}: {values[window, row, expert]} "
                    "is not a token count; give finite, non-negative numbers."
                )
            yield values
            done += len(values)
            if on_progress:
                on_progress(recording.path, start + done / recording.windows / 2)
    except OSError as error:
        raise InputError(f"{recording.path}: cannot be read ({error.strerror or error}).") from error


def model_windows(
    recording: TokenCounts,
    model: Wanted,
    limit: int = MAX_WINDOWS,
    on_progress: Callable[[str, float], None] | None = None,
) -> Windows:
    """As :func:`collect_windows`, the rows being the model's MoE layers: dense ones dropped, all others with tokens.

    Raises
    ------
    InputError
        As of that; if the recording is of other layers or experts (before its counts are read), a dense layer has
        tokens, or a MoE layer has none in some run.
    """
    kept_rows, notes = _kept_rows(recording, model)
    if recording.experts != model.experts or len(kept_rows) not in {len(model.moe_layers), model.layers}:
        raise InputError(f"{recording.path}: has shape {recording.shape}; the model needs {model.words}.")
    windows = collect_windows(recording, limit, on_progress)
    tokens = windows.tokens[:, kept_rows]
    rows, row_notes = model_rows(recording.path, tokens, model, windows.names)
    windows = replace(windows, tokens=tokens[:, rows], notes=(*windows.notes, *notes, *row_notes))
    if model.top_k:
        _require_possible(recording.path, windows, model.moe_layers, model.top_k)
    return windows


def _require_possible(path: str, windows: Windows, moe_layers: tuple[int, ...], top_k: int) -> None:
    """Refuse an expert with a larger part of a layer than a router to ``top_k`` different ones can give it."""
    part = windows.tokens / windows.tokens.max(axis=2, keepdims=True)  # the sum of loads near 1e308 overflows
    share = part / part.sum(axis=2, keepdims=True)
    scenario, row, expert = np.unravel_index(int(share.argmax()), share.shape)
    largest = float(share[scenario, row, expert])
    if largest > (1 + _SHARE_ROUNDING) / top_k:
        raise InputError(
            f"{path}: scenario {windows.names[scenario]}, layer {moe_layers[row]}, expert {expert} has {largest:.1%} "
            f"of the choices, but each token chooses {top_k} different experts, so none can have more than 1/{top_k} "
            f"= {1 / top_k:.1%}. Are these loads of this model? Give its own recording."
        )


def _kept_rows(recording: TokenCounts, model: Wanted) -> tuple[list[int], tuple[str, ...]]:
    """Return the rows to keep, and a note where a recording names its layers and they are not the model's."""
    layers = recording.layer_ids or ()
    layer_ids = set(layers)
    if not layers or layer_ids in (set(model.moe_layers), set(range(model.layers))):
        return list(range(recording.rows)), ()
    if layer_ids == set(range(len(model.moe_layers))):
        return list(range(len(layers))), (f"layers 0..{len(layer_ids) - 1} read as the MoE layers in order",)
    beyond = {layer for layer in layer_ids if layer >= model.layers}
    if layer_ids - beyond == set(model.moe_layers):
        kept_rows = [row for row, layer in enumerate(layers) if layer not in beyond]
        named = ", ".join(map(str, sorted(beyond)[:8]))
        return kept_rows, (
            f"layer {named} is beyond the model's {model.layers} layers (a draft layer?), left out",
        )
    span = f"{len(layer_ids)} layers from {min(layer_ids)} to {max(layer_ids)}"
    moe = model.moe_layers
    raise InputError(
        f"{recording.path}: has {span}; the model needs its MoE layers {moe[0]} to {moe[-1]} "
        f"({len(moe)} of them), or 0 to {model.layers - 1} with the dense ones zero."
    )
