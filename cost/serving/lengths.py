"""Lengths of requests: one prompt and answer, or a mix of them with shares, as read from a CSV file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from cost.inputs.workload import Workload
from cost.quantity import MAX_CONTEXT_TOKENS
from cost.queueing.schedulers import Scheduler
from topology.base.errors import InputError
from topology.base.table import Row, Table
from topology.base.units import parse_length

if TYPE_CHECKING:
    from cost.serving.keeping import Keeping

COLUMNS = ("isl", "osl", "share")
MAX_PROMPTS = 6
"""Lengths of prompts that are priced apart; more are merged, the longest never."""
SHARE_TOLERANCE = 0.01
"""How far shares may be from adding up to 1: rounding of a file, not another scale."""


@dataclass(frozen=True)
class Lengths:
    """Requests by length.

    Attributes
    ----------
    isl, osl, share:
        Tokens of a prompt, of its answer, and the share of the requests that have them; shares add up to 1.
    prefix_hit:
        Part of each prompt's tokens that a cache already holds.
    tier_hits, load_s:
        The same by the tier that holds them, of conversations, and mean seconds of a request to load what is in
        slower ones than HBM.
    keeping:
        What caches keep of conversations, by which a way of serving holds ``prefix_hit`` of them or not.
    note:
        What was done to the shares; empty: nothing.
    """

    isl: tuple[int, ...]
    osl: tuple[int, ...]
    share: tuple[float, ...]
    note: str = ""
    prefix_hit: float = 0.0
    tier_hits: tuple[tuple[str, float], ...] = ()
    load_s: float = 0.0
    keeping: Keeping | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.isl or not len(self.isl) == len(self.osl) == len(self.share):
            raise InputError("lengths: give equally many prompts, answers and shares, at least one of each.")
        for name, values in (("isl", self.isl), ("osl", self.osl)):
            for value in values:
                _require_tokens(name, value)
        total = math.fsum(self.share)
        if not all(share > 0 for share in self.share) or not math.isclose(total, 1, abs_tol=1e-9):
            raise InputError(
                f"lengths: shares add up to {total:g}; expected numbers above 0 with a sum of 1."
            )

    @classmethod
    def of(cls, isl: int, osl: int) -> Lengths:
        """Return requests that are all alike."""
        return cls((isl,), (osl,), (1.0,))

    def brief(self) -> str:
        """Return the tokens of a request."""
        mean = " on average" * (len(self.isl) > 1)
        return f"requests of {self.mean_isl:,.0f} + {self.mean_osl:,.0f} tokens{mean}"

    @property
    def mean_isl(self) -> float:
        """Tokens of a prompt on average."""
        return _mean(self.isl, self.share)

    @property
    def mean_osl(self) -> float:
        """Tokens of an answer on average."""
        return _mean(self.osl, self.share)

    @property
    def alike(self) -> Lengths:
        """Requests of the mean lengths, with the same hits."""
        return replace(self, isl=(round(self.mean_isl),), osl=(round(self.mean_osl),), share=(1.0,))

    @property
    def context(self) -> int:
        """Tokens in the cache of a sequence that decodes, the mean over the tokens that are made.

        A request of ``osl`` tokens decodes for ``osl`` steps, with ``isl + osl / 2`` tokens in its cache on average:
        ``sum(share * osl * (isl + osl / 2)) / sum(share * osl)``. A step's time and the cache are straight lines over
        it, so the mean stands for the mix.
        """
        weights = [share * osl for share, osl in zip(self.share, self.osl, strict=True)]
        cached = [isl + osl // 2 for isl, osl in zip(self.isl, self.osl, strict=True)]
        return round(_mean(cached, weights) / math.fsum(weights))

    def prompts(self, limit: int = MAX_PROMPTS) -> list[tuple[int, float]]:
        """Return lengths of prompts with their shares, the longest first, at most ``limit`` of them.

        Where there are more, the longest stays and neighbours are merged, those that make the least difference first:
        together they have the mean of their tokens, rounded up.
        """
        share: dict[int, float] = {}
        for isl, part in zip(self.isl, self.share, strict=True):
            share[isl] = share.get(isl, 0.0) + part
        rows = sorted(((float(isl), part) for isl, part in share.items()), reverse=True)
        while len(rows) > max(2, limit):
            costs = [(a - b) * p * q / (p + q) for (a, p), (b, q) in pairwise(rows[1:])]
            at = 1 + costs.index(min(costs))
            (a, p), (b, q) = rows[at], rows[at + 1]
            rows[at : at + 2] = [((a * p + b * q) / (p + q), p + q)]
        return [(math.ceil(isl - 1e-6), part) for isl, part in rows]

    def workloads(
        self, workload: Workload, scheduler: Scheduler | None = None
    ) -> tuple[Workload, list[tuple[float, Workload]]]:
        """Return what the decode pool does, and what the prefill pool does for each length, the longest first.

        ``scheduler``: how the engine admits requests; None: by what they hold on average.
        """
        prompts = self.prompts()
        prefills = [
            (part, serving_workloads(workload, isl, self.osl[0], prefix_hit=self.prefix_hit)[1])
            for isl, part in prompts
        ]
        decode = serving_workloads(workload, prompts[0][0], self.osl[0])[0]
        return self._admitted(replace(decode, context=self.context), scheduler), prefills

    def _admitted(self, workload: Workload, scheduler: Scheduler | None) -> Workload:
        if scheduler is None:
            return workload
        held = scheduler.held(self.mean_isl, self.mean_osl) if scheduler.reserved else 0.0
        return replace(workload, held=float(held), states=scheduler.states)

    def in_one_pool(self, workload: Workload, scheduler: Scheduler | None = None) -> Workload:
        """Return what one pool does: it decodes, and prefills the prompts of other requests in the same steps."""
        mixed = replace(
            workload,
            phase="both",
            context=self.context,
            prompt=self.mean_isl,
            answer=self.mean_osl,
            prefix_hit=self.prefix_hit,
        )
        return self._admitted(mixed, scheduler)


def serving_workloads(
    workload: Workload, isl: int, osl: int, *, prefix_hit: float = 0.0
) -> tuple[Workload, Workload]:
    """Return what the decode pool and the prefill pool do for prompts of ``isl`` and answers of ``osl`` tokens.

    While it decodes, a request has ``isl + osl / 2`` tokens in its cache on average. ``prefix_hit`` of the prompt's
    tokens are not prefilled.

    Raises
    ------
    InputError
        If a length is not at least 1, or too long.
    """
    _require_tokens("isl", isl)
    _require_tokens("osl", osl)
    decode = replace(workload, phase="decode", context=isl + osl // 2)
    prefill = replace(
        workload, phase="prefill", context=isl, draft_tokens=0, accept_length=1.0, prefix_hit=prefix_hit
    )
    return decode, prefill


def read_lengths(path: str | Path) -> Lengths:
    """Read a CSV file with the columns ``isl``, ``osl`` and ``share``, a row for each kind of request.

    Shares that nearly make 1 are scaled to it, with a note.

    Raises
    ------
    InputError
        If the file cannot be read, has other columns, or a row has no such numbers: with its place.
    """
    table = Table.read(path)
    for name in table.header:
        if name not in COLUMNS or table.header.count(name) > 1:
            problem = "unknown" if name not in COLUMNS else "duplicate"
            raise InputError(f"{path}: {problem} column {name!r}; required columns: {', '.join(COLUMNS)}.")
    isl: list[int] = []
    osl: list[int] = []
    share: list[float] = []
    for row in table.rows(COLUMNS):
        isl.append(_tokens(row, "isl"))
        osl.append(_tokens(row, "osl"))
        share.append(row.positive("share"))
    if not isl:
        raise InputError(f"{path}: has no rows below its header.")
    total = math.fsum(share)
    if abs(total - 1) > SHARE_TOLERANCE:
        raise InputError(
            f"{path}: its shares add up to {total:.6g}, expected 1; divide each by their sum if they are counts."
        )
    exact = math.isclose(total, 1, rel_tol=1e-9)
    note = "" if exact else f"shares of {path} add up to {total:.6g} and were normalized"
    return Lengths(tuple(isl), tuple(osl), tuple(part / total for part in share), note)


def _tokens(row: Row, column: str) -> int:
    tokens = parse_length(row.need(column), row.at(column))
    if not 1 <= tokens <= MAX_CONTEXT_TOKENS:
        row.must_be(column, f"a whole number from 1 to {MAX_CONTEXT_TOKENS}")
    return tokens


def _require_tokens(name: str, value: int) -> None:
    if not 1 <= value <= MAX_CONTEXT_TOKENS:
        raise InputError(
            f"expected 1 token or more, at most {MAX_CONTEXT_TOKENS:,}.", field=name, value=value
        )


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True))
