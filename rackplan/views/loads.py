"""Recordings of expert loads: layers, windows, skew, drift between windows; what is in traces of tokens besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.experts.loads import is_generator
from cost.experts.traces.counts import TokenCounts
from cost.experts.traces.open import is_routing, open_counts
from cost.experts.traces.statistics import Drift, LoadStatistics, load_statistics
from cost.experts.traces.windows import MOST_WINDOWS, Windows, collect_windows
from rackplan.schemas.records import DriftData, MeanAndWorstData, RecordingData, TraceData
from rackplan.views.blocks import Block, Heading, Table, Text, View, picked, sections
from rackplan.views.routing import TraceDescription, describe_trace, trace_blocks, trace_data
from topology.base.errors import InputError


@dataclass(frozen=True, eq=False)
class Description:
    """A recording, its windows and their statistics.

    ``trace`` is there where the recording says which experts each token chose.
    """

    recording: TokenCounts
    windows: Windows
    statistics: LoadStatistics
    notes: tuple[str, ...]
    trace: TraceDescription | None = None

    @property
    def ids(self) -> Sequence[int]:
        """The layer of each row: its id where the recording says it, else the row."""
        return self.recording.layer_ids or range(self.recording.rows)

    @property
    def layers(self) -> list[int]:
        """The layers with tokens."""
        return [self.ids[row] for row in self.statistics.rows]

    @property
    def dense(self) -> list[int]:
        """Layers without a token in any window."""
        return [layer for row, layer in enumerate(self.ids) if row not in self.statistics.rows]


def describe(text: str, on_progress: Callable[[str, float], None] | None) -> Description | TraceDescription:
    """Read a recording of loads or a routing trace.

    Raises
    ------
    InputError
        If it cannot be read, or holds no tokens.
    """
    if is_generator(text):
        raise InputError(f"{text}: a generator of loads, not a recording; name a file.")
    if is_routing(text):
        return describe_trace(text, on_progress)
    recording = open_counts(text)
    found = collect_windows(recording, MOST_WINDOWS, on_progress)
    trace = describe_trace(text, on_progress) if recording.per_token else None
    notes = (*recording.notes, *found.notes)
    return Description(recording, found, load_statistics(found.tokens), notes, trace)


def _file_data(found: Description) -> RecordingData:
    statistics = found.statistics
    skew = zip(found.layers, statistics.max_over_mean, statistics.variation, strict=True)
    return {
        "kind": found.recording.kind,
        "layers": len(found.layers),
        "layers_without_tokens": found.dense,
        "experts": found.recording.experts,
        "windows": {
            "total": found.windows.total,
            "empty": found.windows.empty,
            "kept": found.windows.kept,
            "scenarios": len(found.windows.names),
        },
        "tokens": _tokens(found),
        "skew": {
            "max_over_mean": _mean_and_worst(statistics.max_over_mean, found.layers),
            "coefficient_of_variation": _mean_and_worst(statistics.variation, found.layers),
            "layers": {
                str(layer): {"max_over_mean": float(most), "coefficient_of_variation": float(variation)}
                for layer, most, variation in skew
            },
        },
        "drift": {
            "consecutive": _drift_json(statistics.consecutive),
            "first_to_last": _drift_json(statistics.first_to_last),
        },
        "notes": list(found.notes),
    }


def _mean_and_worst(values: NDArray[np.float64], layers: list[int]) -> MeanAndWorstData:
    worst = int(values.argmax())
    return {"mean": float(values.mean()), "worst": float(values[worst]), "worst_layer": layers[worst]}


def _drift_json(drift: Drift | None) -> DriftData | None:
    return None if drift is None else picked(drift, "distance by_chance correlation")


def _tokens(found: Description) -> float | None:
    """Tokens of all layers, each counted once for every expert that it goes to; None beyond the range of floats."""
    with np.errstate(over="ignore"):
        total = float(found.windows.tokens.sum())
    return total if np.isfinite(total) else None


def loads_view(found: Mapping[str, Description | TraceDescription]) -> View:
    """Return what ``rackplan loads`` says of each file; drift distances are shares of the tokens, 0 to 1."""
    blocks: list[list[Block]] = []
    data: dict[str, RecordingData | TraceData] = {}
    for name, one in found.items():
        if isinstance(one, TraceDescription):
            blocks.append(trace_blocks(name, one))
            data[name] = trace_data(one)
            continue
        blocks.append(_file_blocks(name, one))
        recorded = data[name] = _file_data(one)
        if one.trace is not None:
            blocks.append(trace_blocks(name, one.trace))
            recorded["routing"] = trace_data(one.trace)
    return View(sections(*blocks), {"files": data})


def _file_blocks(name: str, found: Description) -> list[Block]:
    windows, tokens, merged = found.windows, _tokens(found), len(found.windows.names)
    kept = f"{windows.total:,}, {windows.kept:,} of them with tokens"
    counted = "beyond counting" if tokens is None else f"{tokens:,.0f}"
    return sections(
        [
            Heading(f"{name}: {found.recording.kind}"),
            Text(_layer_words(found), "layers"),
            Text(f"{found.recording.experts}", "experts"),
            Text(kept + (f", merged into {merged}" if merged < windows.kept else ""), "windows"),
            Text(f"{counted}, over all layers, once for each expert that one goes to", "tokens"),
            *(Text(note, "note") for note in found.notes),
        ],
        [_skew_table(found)],
        [_drift(found)],
    )


def _layer_words(found: Description) -> str:
    layers = found.layers
    words = f"{len(layers)} with tokens, {layers[0]} to {layers[-1]}" if layers else "none"
    if found.dense:
        shown = ", ".join(map(str, found.dense[:8])) + (", ..." if len(found.dense) > 8 else "")
        words += f"; {len(found.dense)} without any ({shown}), as dense layers are"
    ids = "ids as recorded" if found.recording.layer_ids else "rows from 0"
    return f"{words} ({ids})"


def _skew_table(found: Description) -> Table:
    rows = []
    for what, values in (
        ("max / mean", found.statistics.max_over_mean),
        ("coefficient of variation", found.statistics.variation),
    ):
        worst = _mean_and_worst(values, found.layers)
        figures = [float(values.mean()), float(np.median(values)), worst["worst"]]
        rows.append((what, *(f"{figure:.3f}" for figure in figures), str(worst["worst_layer"])))
    return Table(("skew over experts, all windows", "mean", "median", "worst", "worst layer"), rows)


def _drift(found: Description) -> Block:
    rows = []
    for what, drift in (
        ("window to next window", found.statistics.consecutive),
        ("first to last window", found.statistics.first_to_last),
    ):
        if drift is not None:
            correlation = "-" if drift.correlation is None else f"{drift.correlation:.3f}"
            rows.append((what, f"{drift.distance:.1%}", f"{drift.by_chance:.1%}", correlation))
    if not rows:
        return Text("one window: nothing to compare with", "drift")
    return Table(("drift, mean over layers", "tokens elsewhere", "by chance", "correlation"), rows)
