"""Routing traces: how often experts are used, and how far they are used together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost.experts.traces.open import open_routing
from cost.experts.traces.routing import RoutingTrace, collect_routing
from cost.experts.traces.statistics import (
    CoActivation,
    Dependence,
    LoadStatistics,
    coactivation,
    load_statistics,
)
from rackplan.schemas.records import DependenceData, TraceData
from rackplan.views.blocks import Block, Heading, Table, Text, picked, sections
from topology.base.units import plural


@dataclass(frozen=True, eq=False)
class TraceDescription:
    """A routing trace, and what is found in it."""

    kind: str
    trace: RoutingTrace
    found: CoActivation
    statistics: LoadStatistics


def describe_trace(text: str, on_progress: Callable[[str, float], None] | None) -> TraceDescription:
    """Read a routing trace.

    Raises
    ------
    InputError
        If it cannot be read, or is no trace.
    """
    source = open_routing(text, None)
    trace = collect_routing(source, None, on_progress)
    statistics = load_statistics(trace.counts[None].astype(np.float64))
    return TraceDescription(source.kind, trace, coactivation(trace), statistics)


def trace_data(described: TraceDescription) -> TraceData:
    """Return what is found in a trace as data."""
    trace, found, statistics = described.trace, described.found, described.statistics
    skew: Any = {
        name: {
            "mean": float(values.mean()),
            "worst": float(values.max()),
            "worst_layer": statistics.rows[int(values.argmax())],
        }
        for name, values in (
            ("max_over_mean", statistics.max_over_mean),
            ("coefficient_of_variation", statistics.variation),
        )
    }
    return {
        "kind": described.kind,
        "tokens": trace.tokens,
        "tokens_kept": trace.kept,
        "layers": trace.layers,
        "experts": trace.experts,
        "choices": trace.k,
        "one_layer_for_all": trace.repeated,
        "skew": skew,
        "coactivation": _dependence_data(found.within),
        "contiguous": {
            str(parts): {"domains_per_token": traced, "if_independent": alone}
            for parts, (traced, alone) in found.domains.items()
        },
        "tokens_counted": found.tokens,
        "notes": list(trace.notes),
    }


def _dependence_data(found: Dependence | None) -> DependenceData | None:
    return None if found is None else picked(found, "distance by_chance beyond_chance worst worst_layer")


def trace_blocks(name: str, described: TraceDescription) -> list[Block]:
    """Return what is said of a trace."""
    trace, found = described.trace, described.found
    most = described.statistics.max_over_mean
    skew = f"max / mean {most.mean():.3f}, worst {most.max():.3f} in layer row {int(most.argmax())}"
    return sections(
        [
            Heading(f"{name}: {described.kind}"),
            Text(f"{trace.tokens:,}", "tokens"),
            Text(f"{trace.layers} (MoE layers in order, rows from 0)", "layers"),
            Text(f"{trace.k} of {trace.experts} experts a token", "choices"),
            Text(skew, "load"),
            *(Text(note, "note") for note in trace.notes),
        ],
        [_dependence_table(found)],
        [_contiguous_table(found)],
    )


def _dependence_table(found: CoActivation) -> Table:
    one = found.within
    figures = () if one is None else (one.distance, one.by_chance, one.beyond_chance, one.worst)
    shown = [f"{figure:.1%}" for figure in figures] or ["-"] * 4
    rows = [("two experts of a token in a layer", *shown)]
    counted = plural(found.tokens, "token")
    return Table(
        (f"pairs of choices ({counted})", "not independent", "by chance", "beyond", "worst layer"), rows
    )


def _contiguous_table(found: CoActivation) -> Table:
    rows = [
        (
            f"{plural(parts, 'domain')}, experts in order",
            f"{traced:.3f}",
            f"{alone:.3f}",
            f"{traced / alone - 1:+.1%}",
        )
        for parts, (traced, alone) in found.domains.items()
    ]
    return Table(("domains per token in a layer", "as traced", "if independent", ""), rows)
