"""Routing traces: which experts each token chose in each MoE layer, read in pieces and kept as an even sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import Wanted, model_rows
from topology.base.errors import InputError
from topology.base.npy import whole_numbers
from topology.base.units import plural

MAX_TOKENS = 2**16
"""Tokens of a trace that are kept: 61 MB for 58 layers of 8 choices; a mean over them is known to 0.4 %."""
MAX_EXPERTS = 2**15
"""Ids are kept in 16 bits."""
_UNUSED = -1


@dataclass(frozen=True, eq=False)
class RoutedTokens:
    """A file of routed experts as every reader gives it; its tokens are read anew by each call of ``pieces``.

    Attributes
    ----------
    path, kind:
        Its path and what it is, for messages.
    tokens, rows, k:
        Tokens, layers and choices of a token.
    pieces:
        Yields runs of tokens in order, integers ``[some tokens, rows, k]``: ids of logical experts, -1 for none.
    experts:
        Logical experts where the file says them; else None.
    """

    path: str
    kind: str
    tokens: int
    rows: int
    k: int
    pieces: Callable[[], Iterator[NDArray[Any]]]
    experts: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> list[int]:
        """Tokens, layers, choices."""
        return [self.tokens, self.rows, self.k]


@dataclass(frozen=True, eq=False)
class RoutingTrace:
    """Which experts each token chose in each MoE layer: one scenario of co-activation.

    Attributes
    ----------
    choices:
        int16 ``[layers, tokens, k]``: ids of logical experts, -1 for a choice that was not used; layers are the
        MoE layers in order, tokens in the order of the file, and row ``t`` is the same token in every layer. An even
        sample of at most :data:`MAX_TOKENS` tokens where the file has more.
    counts:
        int64 ``[layers, experts]``: choices of each expert by *all* tokens of the file.
    tokens:
        Tokens in the file.
    name:
        Of the file, without its folder.
    repeated:
        One layer's choices stand for every layer: nothing is known of how layers depend on each other.
    notes:
        Lines that a summary repeats.
    """

    choices: NDArray[np.int16]
    counts: NDArray[np.int64]
    tokens: int
    name: str
    repeated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        """MoE layers."""
        return int(self.choices.shape[0])

    @property
    def kept(self) -> int:
        """Tokens in ``choices``."""
        return int(self.choices.shape[1])

    @property
    def k(self) -> int:
        """Choices of a token in a layer."""
        return int(self.choices.shape[2])

    @property
    def experts(self) -> int:
        """Logical experts of a layer."""
        return int(self.counts.shape[1])

    def rows(self, which: Sequence[int]) -> RoutingTrace:
        """Return some of the layers, as the stages of a pipeline have them."""
        if list(which) == list(range(self.layers)):
            return self
        # one layer that stands for all stays one array
        choices = self.choices[: len(which)] if self.repeated else self.choices[list(which)]
        return replace(self, choices=choices, counts=self.counts[list(which)])

    def sample(self, limit: int) -> RoutingTrace:
        """Return at most ``limit`` tokens, evenly spaced: always the same ones. ``counts`` stay those of all."""
        if limit >= self.kept:
            return self
        return replace(self, choices=self.choices[:, evenly_spaced(self.kept, limit)])

    def part(self, start: int, end: int) -> RoutingTrace:
        """Return the kept tokens ``start`` to ``end - 1`` as a trace of its own, with their own counts.

        What is learned from one half of a trace is scored on the other.
        """
        choices = self.choices[:, start:end]
        counts = np.stack(
            [_counted(layer, self.experts) for layer in choices[: 1 if self.repeated else None]]
        )
        counts = np.repeat(counts, self.layers // len(counts), axis=0)
        return replace(self, choices=choices, counts=counts, tokens=choices.shape[1])


def evenly_spaced(tokens: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` of ``tokens`` indices, evenly spaced and increasing."""
    return np.arange(count, dtype=np.int64) * tokens // count


def repeated_ids(choices: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Return where the sorted choices of a token repeat an expert, ``[..., k - 1]``, and the sorted ``[..., k]``."""
    ordered = np.sort(choices, axis=-1)
    return (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0), ordered


def _counted(choices: NDArray[np.int16], experts: int) -> NDArray[np.int64]:
    used = choices[choices >= 0]
    return np.bincount(used.ravel(), minlength=experts)


@dataclass
class _Collected:
    """What is gathered from the pieces of a file: the even sample and counts of all tokens."""

    source: RoutedTokens
    experts: int | None
    counts: NDArray[np.int64]
    done: int = 0
    empty: int = 0
    zeros: int = 0
    sample: list[NDArray[np.int16]] = field(default_factory=list)

    def add(self, piece: NDArray[Any]) -> None:
        source = self.source
        if piece.shape[1:] != (source.rows, source.k) or self.done + len(piece) > source.tokens:
            raise InputError(f"{source.path}: changed while it was read.")
        piece = whole_numbers(piece)
        if source.k > 1 and not piece.all():  # what was not recorded, engines leave as it was: zeros
            unwritten = (piece == 0).all(axis=2)
            self.zeros += int(unwritten.sum())
            piece = np.where(unwritten[..., None], _UNUSED, piece)
        self._check(piece)
        experts = max(int(piece.max(initial=_UNUSED)) + 1, self.counts.shape[1])
        # a column before the first expert takes the choices that were not used
        cell = piece + (np.arange(source.rows, dtype=np.int64) * (experts + 1) + 1)[:, None]
        counts = np.bincount(cell.ravel(), minlength=source.rows * (experts + 1)).reshape(
            source.rows, experts + 1
        )
        self.counts = np.pad(self.counts, ((0, 0), (0, experts - self.counts.shape[1]))) + counts[:, 1:]
        self.empty += int((piece < 0).all(axis=(1, 2)).sum())
        sampled, done = min(MAX_TOKENS, source.tokens), self.done
        begin, end = (-(-edge * sampled // source.tokens) for edge in (done, done + len(piece)))
        at = np.arange(begin, end, dtype=np.int64) * source.tokens // sampled - done
        self.sample.append(np.asarray(piece[at], dtype=np.int16))
        self.done += len(piece)

    def _check(self, piece: NDArray[Any]) -> None:
        """Reject ids that cannot be, and an expert that a token has twice."""
        limit = self.experts or MAX_EXPERTS
        known_ids = (
            f"the model has experts 0..{limit - 1}" if self.experts else f"ids below {limit:,} are read"
        )
        self._refuse(
            (piece < _UNUSED) | (piece >= limit), piece, f", but {known_ids} (-1: an unused choice)."
        )
        once = " twice; a token uses an expert only once. Are these expert ids?"
        self._refuse(*repeated_ids(piece), once)

    def _refuse(self, invalid: NDArray[np.bool_], piece: NDArray[Any], problem: str) -> None:
        """Refuse the first of the choices that are wrong."""
        if invalid.any():
            token, row, choice = (int(i) for i in np.argwhere(invalid)[0])
            where = f"{self.source.path}: token {self.done + token}, layer row {row}"
            raise InputError(f"{where}: expert {int(piece[token, row, choice])}{problem}")


def collect_routing(
    source: RoutedTokens,
    model: Wanted | None = None,
    on_progress: Callable[[str, float], None] | None = None,
) -> RoutingTrace:
    """Read a file of routed experts once, in pieces: every id is checked and counted, an even sample is kept.

    Parameters
    ----------
    model:
        What it needs; None: experts up to the highest id that is there.
    on_progress:
        Called with the path and the fraction that was read.

    Raises
    ------
    InputError
        If an id is no expert's, a token has an expert twice, no token chose any, or layers or choices are not the
        model's. A file of one layer stands for every layer of the model, which is noted.
    """
    if not source.tokens or not source.k or not source.rows:
        raise InputError(f"{source.path}: has shape {source.shape}, without any token choices.")
    if model is not None:
        _require_fit(source, model)
    experts = model.experts if model else source.experts
    collected = _Collected(source, experts, np.zeros((source.rows, experts or 0), dtype=np.int64))
    for piece in source.pieces():
        collected.add(piece)
        if on_progress:
            on_progress(source.path, collected.done / source.tokens)
    if collected.done != source.tokens:
        raise InputError(
            f"{source.path}: {collected.done:,} of {source.tokens:,} tokens are present; the file is truncated."
        )
    if not collected.counts.any():
        raise InputError(f"{source.path}: no choice of an expert in its {plural(source.tokens, 'token')}.")
    choices = np.concatenate(collected.sample)
    recorded = (choices >= 0).any(axis=(1, 2))
    choices = np.ascontiguousarray(np.moveaxis(choices[recorded], 1, 0))
    notes = list(source.notes)
    if collected.zeros:
        notes.append(
            f"{collected.zeros:,} times all choices of a token in a layer are 0, treated as not recorded"
        )
    if collected.empty:
        notes.append(f"{collected.empty:,} of {source.tokens:,} tokens without any choice, left out")
    if choices.shape[1] < source.tokens - collected.empty:
        notes.append(
            f"{choices.shape[1]:,} of {source.tokens:,} tokens kept, evenly spaced; counts are of all"
        )
    trace = RoutingTrace(
        choices,
        collected.counts,
        source.tokens - collected.empty,
        source.path.rpartition("/")[2],
        notes=tuple(notes),
    )
    return trace if model is None else _of_model(source, trace, model)


def _require_fit(source: RoutedTokens, model: Wanted) -> None:
    moe = len(model.moe_layers)
    rows = f"{moe} MoE layers" + (f" or all {model.layers} layers" if model.layers != moe else "")
    mismatch = ""
    if model.top_k is not None and source.k != model.top_k:
        mismatch = plural(source.k, "choice") + " of a token"
    elif source.rows not in {1, moe, model.layers}:
        mismatch = plural(source.rows, "layer")
    elif source.experts is not None and source.experts != model.experts:
        mismatch = plural(source.experts, "expert")
    if mismatch:
        raise InputError(
            f"{source.path}: has shape {source.shape}, {mismatch}; the model routes each token to {model.top_k} of "
            f"{model.experts} experts in {rows}, or give one layer [tokens, {model.top_k}] for all."
        )


def _of_model(source: RoutedTokens, trace: RoutingTrace, model: Wanted) -> RoutingTrace:
    """Return the MoE layers of the model: dense rows dropped, or one layer for all."""
    moe = len(model.moe_layers)
    if source.rows == 1 < moe:
        note = (
            f"only one layer of choices, used for all {moe} MoE layers; gains are those of one layer, and "
            "dependencies between layers are unknown"
        )
        return replace(
            trace,
            choices=np.broadcast_to(trace.choices, (moe, *trace.choices.shape[1:])),
            counts=np.repeat(trace.counts, moe, axis=0),
            repeated=True,
            notes=(*trace.notes, note),
        )
    # with one choice a row that was not recorded cannot be told from expert 0
    rows, row_notes = model_rows(source.path, trace.counts[None], model, unused=int(source.k == 1))
    return replace(trace.rows(rows), notes=(*trace.notes, *row_notes))
