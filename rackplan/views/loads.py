"""Recordings of expert loads and routing traces: windows, skew, drift, and how far experts are used together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from cost.experts.loads import ExpertLoads
from cost.experts.traces.description import Description, TraceDescription
from cost.experts.traces.statistics import Drift, LoadStatistics
from rackplan.views.blocks import Block, Chart, Heading, Table, Text, View, labelled, sections
from rackplan.views.data import LEFT_OUT, Maybe, taken
from topology.base.units import plural


@dataclass(frozen=True, kw_only=True)
class WindowsData:
    """Windows of a recording.

    Attributes
    ----------
    total, empty, kept, scenarios:
        Recorded, without tokens, kept, and the scenarios that they became.
    """

    total: int
    empty: int
    kept: int
    scenarios: int


@dataclass(frozen=True, kw_only=True)
class MeanAndWorstData:
    """A measure over layers.

    Attributes
    ----------
    mean, worst, worst_layer:
        The mean, the largest, and the id of the layer that has it.
    """

    mean: float
    worst: float
    worst_layer: int


@dataclass(frozen=True, kw_only=True)
class LayerSkewData:
    """Skew of a layer.

    Attributes
    ----------
    max_over_mean, coefficient_of_variation:
        Of tokens per expert.
    """

    max_over_mean: float
    coefficient_of_variation: float


@dataclass(frozen=True, kw_only=True)
class SkewData:
    """Skew of tokens over experts.

    Attributes
    ----------
    max_over_mean, coefficient_of_variation:
        Over layers.
    layers:
        By id of the layer, where layers are distinguished.
    """

    max_over_mean: MeanAndWorstData
    coefficient_of_variation: MeanAndWorstData
    layers: Maybe[dict[str, LayerSkewData]] = LEFT_OUT


@dataclass(frozen=True, kw_only=True)
class DriftsData:
    """Drift of loads.

    Attributes
    ----------
    consecutive, first_to_last:
        From window to window, and over all; null: there is one window.
    """

    consecutive: Drift | None
    first_to_last: Drift | None


@dataclass(frozen=True, kw_only=True)
class DependenceData:
    """How far choices of experts depend on each other.

    Attributes
    ----------
    distance, by_chance, beyond_chance:
        From independent choices, what chance alone would give, and what is beyond it.
    worst, worst_layer:
        The largest, and the layer that has it.
    """

    distance: float
    by_chance: float
    beyond_chance: float
    worst: float
    worst_layer: int


@dataclass(frozen=True, kw_only=True)
class ContiguousData:
    """Experts in equal contiguous parts.

    Attributes
    ----------
    domains_per_token, if_independent:
        Parts that a token needs, and what independent choices would need.
    """

    domains_per_token: float
    if_independent: float


@dataclass(frozen=True, kw_only=True)
class TraceData:
    """A routing trace.

    Attributes
    ----------
    kind:
        What it is.
    tokens, tokens_kept, tokens_counted:
        In it, kept, and counted in pairs.
    layers, experts, choices:
        How many, and experts that a token chooses.
    one_layer_for_all:
        Whether a single layer stands for all.
    skew:
        Of tokens over experts.
    coactivation:
        Choices in a layer; null: a token has one.
    contiguous:
        What equal parts of the experts need, by how many.
    notes:
        What a reader should know.
    """

    kind: str
    tokens: int
    tokens_kept: int
    layers: int
    experts: int
    choices: int
    one_layer_for_all: bool
    skew: SkewData
    coactivation: DependenceData | None
    contiguous: dict[str, ContiguousData]
    tokens_counted: int
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class RecordingData:
    """A recording of expert loads.

    Attributes
    ----------
    kind:
        What it is.
    layers, layers_without_tokens, experts:
        How many; rows that are dense layers.
    windows, tokens:
        Windows, and tokens over all layers, once for each expert chosen; null: beyond the range of floats.
    skew, drift:
        Over experts, and over windows.
    routing:
        The routing trace that it has too.
    notes:
        What a reader should know.
    """

    kind: str
    layers: int
    layers_without_tokens: int | list[int]
    experts: int
    windows: WindowsData
    tokens: float | None
    skew: SkewData
    drift: DriftsData
    routing: Maybe[TraceData] = LEFT_OUT
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class LoadsResult:
    """Output of ``rackplan loads``: recordings and traces.

    Attributes
    ----------
    files:
        By name.
    """

    files: dict[str, RecordingData | TraceData]


def loads_view(found: Mapping[str, Description | TraceDescription]) -> View:
    """Return the blocks and the data of ``rackplan loads``, of each file."""
    blocks: list[list[Block]] = []
    files: dict[str, RecordingData | TraceData] = {}
    for name, one in found.items():
        trace = one.trace if isinstance(one, Description) else one
        traced = None if trace is None else _trace_data(trace)
        if isinstance(one, Description):
            recorded = replace(_recording_data(one), routing=traced or LEFT_OUT)
            files[name] = recorded
            blocks.append(_recording_blocks(name, one, recorded))
        elif traced is not None:
            files[name] = traced
        if trace is not None and traced is not None:
            blocks.append(_trace_blocks(name, trace, traced))
    return View(sections(*blocks), LoadsResult(files=files))


def skew_blocks(loads: ExpertLoads) -> list[Block]:
    """Return what the page of loads shows: what they are, and how uneven their layers are."""
    from rackplan.views.data_charts import skew_chart

    notes = [Text(note, style="note") for note in loads.notes]
    chart = Chart("skew", skew_chart(loads.mean), "Load of experts by rank over the mean of their layer", 420)
    return [Heading(f"Loads: {loads.brief()}"), chart, *notes]


def _mean_and_worst(values: NDArray[np.float64], layers: Sequence[int]) -> MeanAndWorstData:
    worst = int(values.argmax())
    return MeanAndWorstData(mean=float(values.mean()), worst=float(values[worst]), worst_layer=layers[worst])


def _skew(statistics: LoadStatistics, layers: Sequence[int], *, by_layer: bool) -> SkewData:
    each = zip(layers, statistics.max_over_mean.tolist(), statistics.variation.tolist(), strict=True)
    skews = {
        str(layer): LayerSkewData(max_over_mean=most, coefficient_of_variation=variation)
        for layer, most, variation in each
    }
    return SkewData(
        max_over_mean=_mean_and_worst(statistics.max_over_mean, layers),
        coefficient_of_variation=_mean_and_worst(statistics.variation, layers),
        layers=skews if by_layer else LEFT_OUT,
    )


def _recording_data(found: Description) -> RecordingData:
    statistics, windows = found.statistics, found.windows
    return RecordingData(
        kind=found.recording.kind,
        layers=len(found.layers),
        layers_without_tokens=found.dense,
        experts=found.recording.experts,
        windows=taken(WindowsData, windows, scenarios=len(windows.names)),
        tokens=found.tokens,
        skew=_skew(statistics, found.layers, by_layer=True),
        drift=DriftsData(consecutive=statistics.consecutive, first_to_last=statistics.first_to_last),
        notes=list(found.notes),
    )


def _recording_blocks(name: str, found: Description, data: RecordingData) -> list[Block]:
    windows = data.windows
    kept = f"{windows.total:,}, {windows.kept:,} of them with tokens"
    merged = f", merged into {windows.scenarios}" if windows.scenarios < windows.kept else ""
    counted = "out of range" if data.tokens is None else f"{data.tokens:,.0f}"
    return sections(
        [
            Heading(f"{name}: {data.kind}"),
            Text(_layer_words(found), "layers"),
            Text(f"{data.experts}", "experts"),
            Text(kept + merged, "windows"),
            Text(f"{counted}, over all layers, counting each expert that a token chooses", "tokens"),
            *(Text(note, "note") for note in data.notes),
        ],
        [_skew_table(found.statistics, data.skew)],
        [_drift_table(data.drift)],
    )


def _layer_words(found: Description) -> str:
    layers = found.layers
    words = f"{len(layers)} with tokens, {layers[0]} to {layers[-1]}" if layers else "none"
    if found.dense:
        shown = ", ".join(map(str, found.dense[:8])) + (", ..." if len(found.dense) > 8 else "")
        words += f"; {len(found.dense)} without any ({shown}), like dense layers"
    ids = "ids as recorded" if found.recording.layer_ids else "rows from 0"
    return f"{words} ({ids})"


def _skew_table(statistics: LoadStatistics, skew: SkewData) -> Table:
    rows = (
        ("max / mean", statistics.max_over_mean, skew.max_over_mean),
        ("coefficient of variation", statistics.variation, skew.coefficient_of_variation),
    )
    return Table.of(
        rows,
        ("skew over experts, all windows", lambda row: row[0]),
        ("mean", lambda row: f"{row[2].mean:.3f}"),
        ("median", lambda row: f"{float(np.median(row[1])):.3f}"),
        ("worst", lambda row: f"{row[2].worst:.3f}"),
        ("worst layer", lambda row: str(row[2].worst_layer)),
    )


def _drift_table(drift: DriftsData) -> Block:
    given = (("window to next window", drift.consecutive), ("first to last window", drift.first_to_last))
    rows = [(what, one) for what, one in given if one is not None]
    if not rows:
        return Text("one window, so no drift to measure", "drift")
    return Table.of(
        rows,
        ("drift, mean over layers", lambda row: row[0]),
        ("tokens moved", lambda row: f"{row[1].distance:.1%}"),
        ("by chance", lambda row: f"{row[1].by_chance:.1%}"),
        ("correlation", lambda row: "-" if row[1].correlation is None else f"{row[1].correlation:.3f}"),
    )


def _trace_data(described: TraceDescription) -> TraceData:
    trace, found = described.trace, described.found
    return taken(
        TraceData,
        trace,
        kind=described.kind,
        tokens_kept=trace.kept,
        choices=trace.k,
        one_layer_for_all=trace.repeated,
        skew=_skew(described.statistics, described.statistics.rows, by_layer=False),
        coactivation=None if found.within is None else taken(DependenceData, found.within),
        contiguous={
            str(parts): ContiguousData(domains_per_token=traced, if_independent=alone)
            for parts, (traced, alone) in found.domains.items()
        },
        tokens_counted=found.tokens,
        notes=list(trace.notes),
    )


def _trace_blocks(name: str, described: TraceDescription, data: TraceData) -> list[Block]:
    most = described.statistics.max_over_mean
    one = data.coactivation
    pairs = [] if one is None else [one.distance, one.by_chance, one.beyond_chance, one.worst]
    dependence = Table(
        (
            f"pairs of choices ({plural(data.tokens_counted, 'token')})",
            "not independent",
            "by chance",
            "beyond",
            "worst layer",
        ),
        [("two experts of a token in a layer", *([f"{figure:.1%}" for figure in pairs] or ["-"] * 4))],
    )
    contiguous = Table.of(
        data.contiguous.items(),
        ("domains per token in a layer", lambda row: f"{plural(int(row[0]), 'domain')}, experts in order"),
        ("as traced", lambda row: f"{row[1].domains_per_token:.3f}"),
        ("if independent", lambda row: f"{row[1].if_independent:.3f}"),
        ("", lambda row: f"{row[1].domains_per_token / row[1].if_independent - 1:+.1%}"),
    )
    return sections(
        [
            Heading(f"{name}: {data.kind}"),
            *labelled("tokens", f"{data.tokens:,}"),
            *labelled("layers", f"{data.layers} (MoE layers in order, rows from 0)"),
            *labelled("choices", f"{data.choices} of {data.experts} experts per token"),
            *labelled(
                "load",
                f"max / mean {most.mean():.3f}, worst {most.max():.3f} in layer row {int(most.argmax())}",
            ),
            *(Text(note, "note") for note in data.notes),
        ],
        [dependence],
        [contiguous],
    )
