"""Tokens routed to each expert: one scenario or several, validated where they enter."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import Wanted, of_array
from cost.experts.traces.open import open_counts
from cost.experts.traces.routing import RoutingTrace
from cost.experts.traces.windows import MAX_CELLS, MAX_WINDOWS, model_windows
from topology.base.errors import InputError, input_name
from topology.base.shown import Shown

EARLIER_SHARE = 0.75
"""Share of a trace's tokens, the first, that placements are made by to be compared on the others."""
_MIN_CHOICES = (
    20  # of an expert, on average, among the tokens that judge: its load is then known to a quarter
)


@dataclass(frozen=True, eq=False, repr=False)
class ExpertLoads(Shown):
    """Tokens per expert, float64 ``[scenarios, layers, experts]``; layers are the MoE layers in order.

    ``names`` has one entry a scenario. ``synthetic`` says that they were generated, or some of them.
    ``notes`` are lines that the summary repeats (dense rows dropped, and so on).
    ``routing`` are traces of tokens, of the same layers: which experts are chosen together, each trace a scenario of
    its own, all of equal weight. Without any, experts are taken to be chosen independently.
    ``held_out`` are loads and traces of later tokens: what is placed by these is scored on those.
    """

    tokens: NDArray[np.float64]
    names: tuple[str, ...]
    synthetic: bool
    notes: tuple[str, ...] = ()
    routing: tuple[RoutingTrace, ...] = ()
    held_out: ExpertLoads | None = None

    def brief(self) -> str:
        """Return scenarios, layers, experts, and where they are from."""
        scenarios, layers, experts = self.tokens.shape
        return f"{scenarios} x {layers} layers x {experts} experts: {', '.join(self.names)}"

    @property
    def normalised(self) -> NDArray[np.float64]:
        """Each layer of each scenario divided by its own mean, ``[scenarios, layers, experts]``."""
        part = self.tokens / self.tokens.max(axis=2, keepdims=True)  # the sum of loads near 1e308 overflows
        scaled: NDArray[np.float64] = part / part.mean(axis=2, keepdims=True)
        return scaled

    @property
    def mean(self) -> NDArray[np.float64]:
        """The scenarios weighted equally, ``[layers, experts]``, each layer with mean 1."""
        averaged: NDArray[np.float64] = self.normalised.mean(axis=0)
        return averaged

    def rows(self, which: Sequence[int]) -> ExpertLoads:
        """Return those of some layers, as a pipeline stage has them; tokens that are traced likewise."""
        routing = tuple(trace.rows(which) for trace in self.routing)
        held_out = self.held_out and self.held_out.rows(which)
        return replace(self, tokens=self.tokens[:, list(which)], routing=routing, held_out=held_out)

    @property
    def untraced(self) -> ExpertLoads:
        """The same loads without traces: as if experts were chosen independently."""
        return replace(self, routing=(), held_out=self.held_out and self.held_out.untraced)

    @property
    def judged(self) -> ExpertLoads:
        """What a placement is scored on: the tokens held out, where there are some."""
        return self.held_out or self

    def sampled(self, limit: int) -> ExpertLoads:
        """Return them with at most ``limit`` tokens of each trace, evenly spaced, where a search has to be quick."""
        routing = tuple(trace.sample(limit) for trace in self.routing)
        return replace(self, routing=routing, held_out=self.held_out and self.held_out.sampled(limit))

    def part(self, start: float, end: float) -> ExpertLoads:
        """Return the tokens from ``start`` to ``end`` of each trace, as shares of its kept tokens in their order.

        Loads that the traces imply become those of the part; others stay as they are.
        """
        routing = tuple(
            trace.part(round(trace.kept * start), round(trace.kept * end)) for trace in self.routing
        )
        counts = [trace.counts for trace in self.routing]
        if len(counts) != len(self.tokens) or not np.array_equal(self.tokens, np.stack(counts)):
            return replace(self, routing=routing)
        tokens = np.stack([trace.counts for trace in routing]).astype(np.float64)
        return replace(self, tokens=tokens, routing=routing)

    def divided(self) -> ExpertLoads:
        """Return the first :data:`EARLIER_SHARE` of the tokens of each trace, with the others held out.

        Tokens are not drawn at random: what drifts is then judged on tokens that come later, as it will be in use.
        Where too few are left to judge by, the loads are returned without traces, and a note says so.
        """
        if not self.routing:
            return self
        earlier, later = self.part(0, EARLIER_SHARE), self.part(EARLIER_SHARE, 1)
        for trace, *parts in zip(self.routing, earlier.routing, later.routing, strict=True):
            if min(int(part.counts.sum(axis=1).min()) for part in parts) < _MIN_CHOICES * trace.experts:
                note = (
                    f"{trace.name}: {trace.kept:,} tokens are too few to evaluate placements on the last "
                    f"{1 - EARLIER_SHARE:.0%} ({_MIN_CHOICES} choices an expert are needed there in each layer); "
                    "planned by the loads alone"
                )
                return replace(self, routing=(), notes=(*self.notes, note))
        return replace(earlier, held_out=later)


def routed_loads(traces: Sequence[RoutingTrace], loads: ExpertLoads | None = None) -> ExpertLoads:
    """Return ``loads`` with routing traces beside them; without, the loads that the traces imply, a scenario each.

    With both, loads say how busy the GPUs are, and traces where the tokens go.

    Raises
    ------
    InputError
        If there is no trace, in some layer of one no token chose any expert, or they are of other layers or experts
        than the loads.
    """
    if not traces:
        raise InputError("no routing trace given; name a file.")
    for trace in traces:
        for layer in np.flatnonzero(~trace.counts.any(axis=1)).tolist():
            raise InputError(
                f"{trace.name}: no token chose an expert in MoE layer {layer} (from 0); record for longer."
            )
    notes = tuple(f"{trace.name}: {note}" for trace in traces for note in trace.notes)
    if loads is not None:
        for trace in traces:
            if trace.counts.shape != loads.tokens.shape[1:]:
                raise InputError(
                    f"{trace.name}: a trace of {list(trace.counts.shape)} layers and experts does not fit loads of "
                    f"{list(loads.tokens.shape[1:])}."
                )
        return replace(loads, notes=(*loads.notes, *notes), routing=tuple(traces))
    tokens = np.stack([trace.counts for trace in traces]).astype(np.float64)
    names = tuple(trace.name for trace in traces)
    return ExpertLoads(tokens, names, synthetic=False, notes=notes, routing=tuple(traces))


# Above this, all tokens of a layer go to one expert whatever the seed: nothing is left to place.
MAX_SKEW = 10.0
_MEAN_TOKENS = 1000.0  # loads are counts on paper only: every result divides them by their mean

_GENERATOR = re.compile(r"(lognormal|zipf|uniform)(?::(.*))?", re.DOTALL)


def is_generator(text: str) -> bool:
    """Whether ``text`` names a generator (``lognormal:0.63``) and not a file."""
    return _GENERATOR.fullmatch(text) is not None


def synthetic_loads(text: str, *, layers: int, experts: int, seed: int, draw: int) -> NDArray[np.float64]:
    """Return ``[layers, experts]`` expected tokens, mean 1000 a layer, every entry positive.

    ``lognormal:SIGMA`` draws the logarithm of each load from a normal distribution with that deviation.
    ``zipf:S`` gives the r-th expert of a layer, in an order drawn by the seed, a load of ``r ** -S``.
    ``draw`` sets generators with the same seed apart.

    Raises
    ------
    InputError
        If the parameter is missing, not a number, negative or above :data:`MAX_SKEW`, or the seed negative.
    """
    match = _GENERATOR.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} is not a load generator; give lognormal:SIGMA, zipf:S or uniform.")
    if seed < 0:
        raise InputError(f"seed {seed} is negative: give 0 or more.")
    kind, parameter = match.groups()
    rng = np.random.default_rng([seed, draw])
    if kind == "uniform":
        if parameter is not None:
            raise InputError(f"{text}: uniform takes no parameter; give uniform alone.")
        weight = np.ones((layers, experts))
    elif kind == "lognormal":
        weight = np.exp(_skew(text, parameter) * rng.standard_normal((layers, experts)))
    else:
        ranks = np.tile(np.arange(1.0, experts + 1), (layers, 1))
        weight = rng.permuted(ranks, axis=1) ** -_skew(text, parameter)
    scaled: NDArray[np.float64] = weight / weight.mean(axis=1, keepdims=True) * _MEAN_TOKENS
    return scaled


def _skew(text: str, parameter: str | None) -> float:
    try:
        skew = float(parameter or "")
    except ValueError:
        skew = math.nan
    if not 0 <= skew <= MAX_SKEW:  # false for nan as well
        raise InputError(
            f"{text}: {parameter!r} must be a number from 0 to {MAX_SKEW:g}; for example lognormal:0.63."
        )
    return skew


def read_loads(
    texts: Sequence[str | NDArray[Any]],
    wanted: Wanted,
    *,
    seed: int,
    windows: int = MAX_WINDOWS,
    on_progress: Callable[[str, float], None] | None = None,
) -> ExpertLoads:
    """Read each of ``texts``, a recording or a generator, into one or more scenarios.

    A file becomes one scenario or several. Its rows are the MoE layers in order, or all layers of the model with the
    dense ones all zero, which are dropped and noted. Forms and files: :mod:`cost.experts.traces`.

    Parameters
    ----------
    texts:
        Paths of recordings (SGLang's ``.pt`` and ``.json``, TensorRT-LLM's folder, vLLM's ``.jsonl``), of
        ``.npy``, ``.npz`` (key ``loads``) or ``.csv`` files, or ``lognormal:SIGMA``, ``zipf:S``, ``uniform``; an
        array ``[layers, experts]`` or ``[windows, layers, experts]`` is read as a file of it.
    wanted:
        What the model needs.
    seed:
        For generators.
    windows:
        Scenarios of one recording at most; more windows than that are merged, and noted.
    on_progress:
        Called with the path and the fraction that was read.

    Raises
    ------
    InputError
        If a file cannot be read, has another shape than the model needs, holds anything but finite numbers that are
        not negative, a row of a MoE layer is all zero, or an expert has more tokens than there are. The message names
        file, place and value.
    """
    if not wanted.moe_layers:
        raise InputError(
            f"the model has no MoE layers, so expert loads do not apply: leave {input_name('loads')} out."
        )
    if not texts:
        raise InputError("no expert loads given; name a file or a generator such as lognormal:0.63.")
    layers = len(wanted.moe_layers)
    tokens: list[NDArray[np.float64]] = []
    names: list[str] = []
    notes: list[str] = []
    synthetic = False
    for draw, text in enumerate(texts):
        if isinstance(text, str) and is_generator(text):
            synthetic = True
            drawn = synthetic_loads(text, layers=layers, experts=wanted.experts, seed=seed, draw=draw)
            tokens.append(drawn[None])
            repeated = any(isinstance(previous, str) and previous == text for previous in texts[:draw])
            names.append(f"{text} (synthetic, seed {seed}{f', draw {draw + 1}' if repeated else ''})")
        else:
            if isinstance(text, str):
                recording, stem = open_counts(text, wanted), Path(text).name
            else:
                stem = "loads" if len(texts) == 1 else f"loads {draw + 1}"
                recording = of_array(stem, "an array", text, wanted)
            loads = model_windows(recording, wanted, windows, on_progress)
            tokens.append(loads.tokens)
            names += [stem] if len(loads.tokens) == 1 else [f"{stem}#{name}" for name in loads.names]
            notes += [f"{stem}: {note}" for note in (*recording.notes, *loads.notes)]
        if (numbers := len(names) * layers * wanted.experts) > MAX_CELLS:
            raise InputError(
                f"loads: {len(names):,} scenarios x {layers:,} MoE layers x {wanted.experts:,} experts are "
                f"{numbers:,} numbers; at most {MAX_CELLS:,} are supported."
            )
    return ExpertLoads(np.concatenate(tokens), tuple(names), synthetic, tuple(notes))
