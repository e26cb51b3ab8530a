"""Documents of recorded expert loads and routing traces: windows, skew, drift, experts that are used together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cost.experts.loads import ExpertLoads
from cost.experts.traces.description import Description, TraceDescription
from cost.experts.traces.statistics import LoadStatistics
from rackplan.report.doc import Chart, Doc, Layer, Note, Row, Shape, Table
from rackplan.report.fields import said
from rackplan.report.shared import missing

RECORDINGS = Table.of(
    "recordings",
    "file file_kind layers ids layers_without_tokens experts windows windows_empty windows_kept scenarios tokens",
    "Recordings",
    shown="file file_kind layers ids experts windows windows_kept scenarios tokens",
)
_PAIRS = "dependent_share by_chance_share beyond_chance_share worst_dependent_share"
TRACES = Table.of(
    "traces",
    f"file file_kind tokens tokens_kept tokens_counted layers experts choices one_layer_for_all {_PAIRS} at_layer",
    "Routing traces, pairs of experts of a token",
    shown=f"file tokens layers experts choices {_PAIRS}",
)
SKEW = Table.of(
    "skew", "file measure skew_mean skew_median skew_worst at_layer", "Skew over experts, all windows"
)
LAYERS = Table.of(
    "layers", "file layer expert_max_over_mean coefficient_of_variation", "Skew by layer", most=0
)
DRIFT = Table.of(
    "drift", "file between moved_share by_chance_share correlation", "Drift of loads, mean over layers"
)
CONTIGUOUS = Table.of(
    "contiguous",
    "file domains domains_per_token independent_domains_per_token",
    "Experts in order over equal domains",
)
LOADS = Shape(
    "loads",
    "Recordings of expert loads and routing traces.",
    (RECORDINGS, TRACES, SKEW, LAYERS, DRIFT, CONTIGUOUS),
)
_METHOD = (
    "Skew is of tokens per expert. Tokens moved is half the sum of |a - b| over shares of experts; chance is what "
    "two draws from the same shares would give. Pairs are held against independent choices with the same popularity."
)


LOADED = Shape("loads", "Loads of experts.", ())
_RANKED = Table.of("ranked", "series rank over_mean")


def loads_doc(files: Mapping[str, Description | TraceDescription]) -> Doc:
    """Return the document of ``rackplan loads``, of each file by name."""
    recorded = [(name, one) for name, one in files.items() if isinstance(one, Description)]
    found = [(name, one.trace if isinstance(one, Description) else one) for name, one in files.items()]
    traced = [(name, trace) for name, trace in found if trace is not None]
    notes = [(name, note) for name, one in recorded for note in one.notes]
    notes += [(name, note) for name, trace in traced for note in trace.trace.notes]
    notes += [(name, "one window, so no drift to measure") for name, one in recorded if one.windows.kept == 1]
    recordings = RECORDINGS(_recording(name, one) for name, one in recorded)
    drift = DRIFT(row for name, one in recorded for row in _drift(name, one.statistics))
    parts = [(name, one.statistics, one.layers, "") for name, one in recorded]
    parts += [(name, one.statistics, list(one.statistics.rows), " of the trace") for name, one in traced]
    skew = SKEW(row for part in parts for row in _skew(*part))
    traces = TRACES(_trace(name, one) for name, one in traced)
    return Doc(
        LOADS,
        ", ".join(files),
        list(_answer(skew.rows, drift.rows, traces.rows)),
        [
            recordings,
            traces,
            skew,
            drift,
            CONTIGUOUS(row for name, one in traced for row in _contiguous(name, one)),
            *(Note(f"{name}: {note}.") for name, note in dict.fromkeys(notes)),
            *missing(recordings, tokens="The sum is beyond the range of floats."),
            *missing(drift, correlation="The loads are all equal."),
            *missing(traces, "A token chooses one expert."),
        ],
        [LAYERS(row for name, one in recorded for row in _layers(name, one)), Note(_METHOD, kind="method")],
    )


def _answer(skew: Sequence[Row], drift: Sequence[Row], traces: Sequence[Row]) -> Iterator[str]:
    """Yield how uneven the most uneven file is, and what drifts and depends most."""
    uneven = max(skew[::2], key=lambda row: row["skew_worst"])
    worst = f"{uneven['skew_worst']:.2f}x in the worst (layer {uneven['at_layer']} of {uneven['file']})"
    yield f"The busiest expert of a layer has {uneven['skew_mean']:.2f}x the mean tokens, {worst}."
    if drift:
        most = max(drift, key=lambda row: row["moved_share"])
        chance = f"{said(most, 'by_chance_share')} would by chance"
        yield f"From {most['between']}, {said(most, 'moved_share')} of the tokens go to other experts; {chance}."
    if dependent := [row for row in traces if row["beyond_chance_share"] is not None]:
        most = max(dependent, key=lambda row: row["beyond_chance_share"])
        yield f"Neither popularity nor chance explains {said(most, 'beyond_chance_share')} of the pairs of experts."


def _recording(name: str, found: Description) -> Row:
    return RECORDINGS.row(
        found.windows,
        file=name,
        file_kind=found.recording.kind,
        layers=len(found.layers),
        ids="as recorded" if found.recording.layer_ids else "rows from 0",
        layers_without_tokens=found.dense,
        experts=found.recording.experts,
        windows=found.windows.total,
        windows_empty=found.windows.empty,
        windows_kept=found.windows.kept,
        scenarios=len(found.windows.names),
        tokens=found.tokens,
    )


def _skew(name: str, found: LoadStatistics, layers: Sequence[int], of: str) -> Iterator[Row]:
    measures = {"max / mean": found.max_over_mean, "coefficient of variation": found.variation}
    for measure, values in measures.items():
        worst = int(values.argmax())
        yield {
            "file": name,
            "measure": f"{measure}{of}",
            "skew_mean": float(values.mean()),
            "skew_median": float(np.median(values)),
            "skew_worst": float(values[worst]),
            "at_layer": layers[worst],
        }


def _layers(name: str, found: Description) -> Iterator[Row]:
    columns = found.layers, found.statistics.max_over_mean.tolist(), found.statistics.variation.tolist()
    keys = ("layer", "expert_max_over_mean", "coefficient_of_variation")
    return ({"file": name, **dict(zip(keys, row, strict=True))} for row in zip(*columns, strict=True))


def _drift(name: str, found: LoadStatistics) -> Iterator[Row]:
    windows = {"window to next window": found.consecutive, "first to last window": found.first_to_last}
    for between, drift in windows.items():
        if drift is not None:
            yield DRIFT.row(drift, file=name, between=between)


def _trace(name: str, found: TraceDescription) -> Row:
    within = dict.fromkeys(_PAIRS.split()) if found.found.within is None else TRACES.row(found.found.within)
    at_layer = None if found.found.within is None else found.found.within.worst_layer
    row = {"file": name, "file_kind": found.kind, "tokens_kept": found.trace.kept, "choices": found.trace.k}
    counted = {"tokens_counted": found.found.tokens, "one_layer_for_all": found.trace.repeated}
    return TRACES.row(found.trace, **row, **counted, **within, at_layer=at_layer)


def _contiguous(name: str, found: TraceDescription) -> Iterator[Row]:
    for parts, (traced, alone) in found.found.domains.items():
        row = {"file": name, "domains": parts}
        yield {**row, "domains_per_token": traced, "independent_domains_per_token": alone}


def loaded_doc(loads: ExpertLoads) -> Doc:
    """Return the document of loads: how uneven their evenest, a middle and the most uneven layer are."""
    ranked = -np.sort(-loads.mean, axis=1)
    busiest = ranked[:, 0]
    order = np.argsort(busiest, kind="stable")
    chosen = {"evenest": order[0], "median": order[len(order) // 2], "most uneven": order[-1]}
    rows = _RANKED(
        {"series": f"{word}: layer {layer}", "rank": rank, "over_mean": round(over, 4)}
        for word, layer in chosen.items()
        for rank, over in enumerate(ranked[layer].tolist(), 1)
    )
    mean = f"{busiest.mean():.2f}x the mean tokens, at most {busiest.max():.2f}x"
    lines, alt = [Layer("line", rows, "rank", "over_mean", "series")], "Load of experts by rank over the mean"
    notes = (Note(f"{note}.") for note in loads.notes)
    return Doc(
        LOADED,
        f"Loads: {loads.brief()}",
        [f"The busiest expert of a layer has {mean}."],
        [Chart("Experts by load", lines, alt=alt, height=420), *notes],
        frame=lambda: _tokens(loads),
    )


def _tokens(loads: ExpertLoads) -> dict[str, Any]:
    """Return a row for each expert of each MoE layer in each scenario: its tokens."""
    scenario, layer, expert = (index.ravel() for index in np.indices(loads.tokens.shape))
    names = np.array(loads.names)[scenario]
    return {"scenario": names, "moe_layer": layer, "expert": expert, "tokens": loads.tokens.ravel()}
