"""Recordings of expert loads and routing traces, with their statistics: skew, drift, experts used together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cost.experts.loads import is_generator
from cost.experts.traces.counts import TokenCounts
from cost.experts.traces.open import is_routing, open_counts, open_routing
from cost.experts.traces.routing import RoutingTrace, collect_routing
from cost.experts.traces.statistics import CoActivation, LoadStatistics, coactivation, load_statistics
from cost.experts.traces.windows import MAX_WINDOWS, Windows, collect_windows
from topology.base.errors import InputError

_OF_ONE_EXPERT = 0.5 * (1 + 1e-6)
"""Share of a layer's tokens above which an expert gets them only if a token has no second one."""


@dataclass(frozen=True, eq=False)
class TraceDescription:
    """A routing trace with its statistics."""

    kind: str
    trace: RoutingTrace
    found: CoActivation
    statistics: LoadStatistics


@dataclass(frozen=True, eq=False)
class Description:
    """A recording, its windows and their statistics.

    ``trace`` is there where the recording says which experts each token chose.
    """

    recording: TokenCounts
    windows: Windows
    statistics: LoadStatistics
    trace: TraceDescription | None = None

    @property
    def by_row(self) -> Sequence[int]:
        """The layer of each row: its id if recorded, else the row number."""
        return self.recording.layer_ids or range(self.recording.rows)

    @property
    def layers(self) -> list[int]:
        """The layers with tokens."""
        return [self.by_row[row] for row in self.statistics.rows]

    @property
    def layers_without_tokens(self) -> list[int]:
        """Layers without a token in any window."""
        return [layer for row, layer in enumerate(self.by_row) if row not in self.statistics.rows]

    @property
    def tokens(self) -> float | None:
        """Tokens over all layers, once for each expert chosen; None beyond the range of floats."""
        with np.errstate(over="ignore"):
            tokens = float(self.windows.tokens.sum())
        return tokens if np.isfinite(tokens) else None

    @property
    def notes(self) -> Iterator[str]:
        """What was done to read it, and an expert with more tokens than routers to several experts can give it."""
        yield from (*self.recording.notes, *self.windows.notes)
        shares = self.statistics.over_mean / self.recording.experts
        row, expert = np.unravel_index(int(shares.argmax()), shares.shape)
        if shares[row, expert] > _OF_ONE_EXPERT:
            yield (
                f"expert {expert} has {shares[row, expert]:.1%} of the tokens of layer {self.layers[row]}: more than "
                "1/2 is impossible where each token chooses several experts"
            )


def describe(text: str, on_progress: Callable[[str, float], None] | None) -> Description | TraceDescription:
    """Read a recording of loads or a routing trace.

    Raises
    ------
    InputError
        If it cannot be read, or holds no tokens.
    """
    if is_generator(text):
        raise InputError(f"{text} is a load generator, not a recording; give a file.")
    if is_routing(text):
        return _describe_trace(text, on_progress)
    recording = open_counts(text)
    windows = collect_windows(recording, MAX_WINDOWS, on_progress)
    trace = _describe_trace(text, on_progress) if recording.per_token else None
    return Description(recording, windows, load_statistics(windows.tokens), trace)


def _describe_trace(text: str, on_progress: Callable[[str, float], None] | None) -> TraceDescription:
    source = open_routing(text)
    trace = collect_routing(source, None, on_progress)
    statistics = load_statistics(trace.counts[None].astype(np.float64))
    return TraceDescription(source.kind, trace, coactivation(trace), statistics)
