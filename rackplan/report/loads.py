"""Documents of recorded expert loads and routing traces: windows, skew, drift, experts that are used together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from cost.experts.loads import ExpertLoads
from cost.experts.traces.description import Description, TraceDescription
from cost.experts.traces.statistics import LoadStatistics
from rackplan.report.doc import Chart, Doc, Layer, Note, Row, Shape, Table
from rackplan.report.fields import phrase
from rackplan.report.shared import missing

RECORDINGS = Table.of(
    "recordings",
    "file file_kind layers ids experts windows windows_kept scenarios tokens | layers_without_tokens windows_empty",
    "Recordings",
)
TRACES = Table.of(
    "traces",
    "file tokens layers experts choices dependent_share by_chance_share beyond_chance_share worst_dependent_share | "
    "file_kind tokens_kept tokens_counted one_layer_for_all at_layer",
    "Routing traces, pairs of experts of a token",
)
SKEW = Table.of(
    "skew", "file measure skew_mean skew_median skew_worst at_layer", "Skew over experts, all windows"
)
LAYERS = Table.of(
    "layers", "file layer expert_max_over_mean coefficient_of_variation", "Skew by layer", max_rows=0
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
    "Tokens moved is half the sum of |a - b| over shares of experts; chance is what two draws from the same shares "
    "would give. Pairs are held against independent choices with the same popularity."
)


LOADED = Shape("loads", "Loads of experts.", ())
_RANKED = Table.of("ranked", "series rank over_mean")


def loads_doc(files: Mapping[str, Description | TraceDescription]) -> Doc:
    """Return the document of ``rackplan loads``, of each file by name."""
    recorded = [(name, entry) for name, entry in files.items() if isinstance(entry, Description)]
    pairs = [
        (name, entry.trace if isinstance(entry, Description) else entry) for name, entry in files.items()
    ]
    traced = [(name, trace) for name, trace in pairs if trace is not None]
    alone = len(recorded) + len(traced) == 1  # labels and values are read more easily than a row, and fit
    notes = [(name, note) for name, entry in recorded for note in entry.notes]
    notes += [(name, note) for name, entry in traced for note in entry.trace.notes]
    notes += [
        (name, "one window, so no drift to measure") for name, entry in recorded if entry.windows.kept == 1
    ]
    recordings = RECORDINGS((_recording(name, entry) for name, entry in recorded), across=alone)
    drift = DRIFT(row for name, entry in recorded for row in _drift(name, entry.statistics))
    parts = [(name, entry.statistics, entry.layers, "") for name, entry in recorded]
    parts += [
        (name, entry.statistics, list(entry.statistics.rows), " of the trace") for name, entry in traced
    ]
    skew = SKEW(row for part in parts for row in _skew(*part))
    traces = TRACES((_trace(name, entry) for name, entry in traced), across=alone)
    reach = ((name, of, *sets) for name, entry in traced for of, sets in entry.found.domains.items())
    layers = (row for name, entry in recorded for row in _layers(name, entry))
    return Doc(
        LOADS,
        ", ".join(files),
        list(_answer(skew.rows, drift.rows, traces.rows)),
        [
            recordings,
            traces,
            skew,
            drift,
            CONTIGUOUS(reach),
            *(Note(f"{name}: {note}.") for name, note in dict.fromkeys(notes)),
            *missing(recordings, tokens="The sum is beyond the range of floats."),
            *missing(drift, correlation="The loads are all equal."),
            *missing(traces, "A token chooses one expert."),
        ],
        [LAYERS(layers), Note(_METHOD, kind="method")],
    )


def _answer(skew: Sequence[Row], drift: Sequence[Row], traces: Sequence[Row]) -> Iterator[str]:
    """Yield how uneven the most uneven file is, and what drifts and depends most."""
    uneven = max(skew[::2], key=itemgetter("skew_worst"))
    worst = f"{uneven['skew_worst']:.2f}x in the worst (layer {uneven['at_layer']} of {uneven['file']})"
    yield f"The busiest expert of a layer has {uneven['skew_mean']:.2f}x the mean tokens, {worst}."
    if drift:
        row = max(drift, key=itemgetter("moved_share"))
        chance = f"{phrase(row, 'by_chance_share')} would by chance"
        yield f"From {row['between']}, {phrase(row, 'moved_share')} of the tokens go to other experts; {chance}."
    if dependent := [row for row in traces if row["beyond_chance_share"] is not None]:
        row = max(dependent, key=itemgetter("beyond_chance_share"))
        yield f"Neither popularity nor chance explains {phrase(row, 'beyond_chance_share')} of the pairs of experts."


def _recording(name: str, description: Description) -> Row:
    recording, windows = description.recording, description.windows
    ids = "as recorded" if recording.layer_ids else "rows from 0"
    kinds = {"file": name, "file_kind": recording.kind, "layers": len(description.layers), "ids": ids}
    empty = recording.windows - windows.kept
    counts = {"windows": recording.windows, "windows_empty": empty, "windows_kept": windows.kept}
    return RECORDINGS.row(description, recording, **kinds, **counts, scenarios=len(windows.names))


def _layers(name: str, description: Description) -> Iterator[tuple[Any, ...]]:
    columns = description.statistics.max_over_mean.tolist(), description.statistics.variation.tolist()
    return ((name, *row) for row in zip(description.layers, *columns, strict=True))


def _skew(name: str, statistics: LoadStatistics, layers: Sequence[int], of: str) -> Iterator[tuple[Any, ...]]:
    measures = {"max / mean": statistics.max_over_mean, "coefficient of variation": statistics.variation}
    for measure, values in measures.items():
        at = int(values.argmax())
        yield name, f"{measure}{of}", *map(float, (values.mean(), np.median(values), values[at])), layers[at]


def _drift(name: str, statistics: LoadStatistics) -> Iterator[Row]:
    windows = {
        "window to next window": statistics.consecutive,
        "first to last window": statistics.first_to_last,
    }
    for between, drift in windows.items():
        if drift is not None:
            yield DRIFT.row(drift, file=name, between=between)


def _trace(name: str, description: TraceDescription) -> Row:
    trace, within = description.trace, description.found.within
    kinds = {"file": name, "file_kind": description.kind, "one_layer_for_all": trace.repeated}
    counts = {"tokens_kept": trace.kept, "tokens_counted": description.found.tokens, "choices": trace.k}
    return TRACES.row(trace, within, **kinds, **counts, at_layer=within and within.worst_layer)


def loaded_doc(loads: ExpertLoads) -> Doc:
    """Return the document of loads: how uneven their evenest, a middle and the most uneven layer are."""
    ranked = -np.sort(-loads.mean, axis=1)
    busiest = ranked[:, 0]
    order = np.argsort(busiest, kind="stable")
    chosen = {"evenest": order[0], "median": order[len(order) // 2], "most uneven": order[-1]}
    rows = _RANKED(
        (f"{word}: layer {layer}", rank, round(over, 4))
        for word, layer in chosen.items()
        for rank, over in enumerate(ranked[layer].tolist(), 1)
    )
    line, alt = Layer("line", rows, "rank", "over_mean", "series"), "Load of experts by rank over the mean"
    mean = f"{busiest.mean():.2f}x the mean tokens, at most {busiest.max():.2f}x"
    return Doc(
        LOADED,
        f"Loads: {loads.brief()}",
        [f"The busiest expert of a layer has {mean}."],
        [Chart("Experts by load", [line], alt=alt, height=420), *(Note(f"{note}.") for note in loads.notes)],
        frame=lambda: _tokens(loads),
    )


def _tokens(loads: ExpertLoads) -> dict[str, Any]:
    """Return a row for each expert of each MoE layer in each scenario: its tokens."""
    scenario, layer, expert = (index.ravel() for index in np.indices(loads.tokens.shape))
    names = np.array(loads.names)[scenario]
    return {"scenario": names, "moe_layer": layer, "expert": expert, "tokens": loads.tokens.ravel()}
